//! The head of an HTTP request: parsed by httparse, judged by RFC 9110 and RFC 9112, written as meta-variables.
//!
//! Always holds: a head that is accepted has one meaning: one Host, one framing of its body, no bare LF, no
//! folded line, no NUL. Field names with an underscore are dropped, since `X_A` and `X-A` would become one
//! variable.

use crate::params::Index;
use hostler_proto::{
    length::{Length, content_length},
    pairs::write_pair,
};

/// Field lines that one head may have.
const FIELDS_MAX: usize = 100;
/// Bytes of a request target.
const TARGET_MAX: usize = 16 * 1024;

/// Where the scan of a head stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// No end of head among the bytes yet.
    More,
    /// A head of this many bytes, and what it says of the connection and the body.
    Whole(Head),
    /// Refused with this status; the connection is closed.
    Refused(u16),
}

/// What a head says besides its meta-variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the head, its empty line included.
    pub(crate) len: usize,
    /// 0 or 1.
    pub(crate) minor: u8,
    /// The client would keep the connection.
    pub(crate) keep: bool,
    /// HEAD: the answer has no body.
    pub(crate) head_only: bool,
    /// The body is chunked; else it has `length` bytes.
    pub(crate) chunked: bool,
    /// Bytes of body, 0 where it is chunked or there is none.
    pub(crate) length: u64,
    /// `Expect: 100-continue`.
    pub(crate) expects_continue: bool,
}

/// What the connection adds to the meta-variables (RFC 3875, section 4.1).
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    /// REMOTE_ADDR.
    pub(crate) remote_addr: String,
    /// REMOTE_PORT.
    pub(crate) remote_port: String,
    /// SERVER_ADDR.
    pub(crate) server_addr: String,
    /// SERVER_PORT.
    pub(crate) server_port: String,
}

/// Bytes looked at again when more came; found by searching for the end of the head first.
pub(crate) fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let from = from.saturating_sub(3);
    let rest = bytes.get(from..)?;
    rest.windows(4).position(|w| w == b"\r\n\r\n").map(|at| from + at + 4)
}

/// Reads the head that `bytes` begin with. Its variables are written to `arena` and `index`, which are cleared
/// first. `max` is the limit of a head in bytes; `from` is where the last scan of the same head ended.
pub(crate) fn scan(
    bytes: &[u8],
    from: usize,
    max: usize,
    ends: &Ends,
    arena: &mut Vec<u8>,
    index: &mut Index,
) -> Scan {
    let Some(len) = end_of_head(bytes, from) else { return unfinished(bytes, max) };
    if len > max {
        return Scan::Refused(if target_is_long(bytes) { 414 } else { 431 });
    }
    let head = bytes.get(..len).unwrap_or_default();
    if has_bare_line_end(head) {
        return Scan::Refused(400);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Scan::Refused(400),
        Err(httparse::Error::Version) => return Scan::Refused(version_status(head)),
        Err(httparse::Error::TooManyHeaders) => return Scan::Refused(431),
        Err(_) => return Scan::Refused(400),
    }
    match judge(&request, len).and_then(|head| write(&request, ends, arena, index).map(|()| head)) {
        Ok(head) => Scan::Whole(head),
        Err(status) => Scan::Refused(status),
    }
}

/// No end of head yet: wait, unless what is there can become none.
fn unfinished(bytes: &[u8], max: usize) -> Scan {
    if target_is_long(bytes) {
        return Scan::Refused(414);
    }
    if bytes.len() > max {
        return Scan::Refused(431);
    }
    // A client that speaks something else is told at once, not at the timeout.
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let whole_line = line.len() < bytes.len();
    let method = line.split(|b| *b == b' ').next().unwrap_or_default();
    if bytes.contains(&0) || method.iter().any(|b| !b.is_ascii_graphic() && *b != b'\r') || method.len() > 32
    {
        return Scan::Refused(400);
    }
    if whole_line && (!line.ends_with(b"\r") || has_bare_line_end(bytes)) {
        return Scan::Refused(400);
    }
    Scan::More
}

fn target_is_long(bytes: &[u8]) -> bool {
    bytes.iter().take(TARGET_MAX + 64).position(|b| *b == b'\n').unwrap_or(bytes.len()) > TARGET_MAX
}

fn has_bare_line_end(bytes: &[u8]) -> bool {
    let mut before = 0;
    bytes.iter().any(|b| {
        let bare = *b == b'\n' && before != b'\r';
        before = *b;
        bare
    })
}

/// `HTTP/2.0` is a version that is not spoken here; `HTTQ/1.1` is nothing.
fn version_status(head: &[u8]) -> u16 {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let version = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
    match version.strip_prefix(b"HTTP/") {
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => 505,
        _ => 400,
    }
}

/// What the head says of connection and body, or the status that refuses it.
fn judge(request: &httparse::Request<'_, '_>, len: usize) -> Result<Head, u16> {
    let minor = request.version.unwrap_or(1);
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let mut head = Head {
        len,
        minor,
        keep: minor == 1,
        head_only: method == "HEAD",
        chunked: false,
        length: 0,
        expects_continue: false,
    };
    if target.len() > TARGET_MAX {
        return Err(414);
    }
    if method == "CONNECT" {
        return Err(501);
    }
    let absolute = target.starts_with("http://") || target.starts_with("https://");
    let of_server = target == "*" && method == "OPTIONS";
    if !(target.starts_with('/') || absolute || of_server) {
        return Err(400);
    }
    let (mut hosts, mut lengths) = (0, 0);
    for field in request.headers.iter() {
        let is = |name| field.name.eq_ignore_ascii_case(name);
        if is("host") {
            hosts += 1;
        } else if is("content-length") {
            match content_length(Some(field.value)) {
                Length::Known(n) if lengths == 0 && !field.value.is_empty() => head.length = n,
                _ => return Err(400),
            }
            lengths += 1;
        } else if is("transfer-encoding") {
            if !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(501);
            }
            if head.chunked || minor == 0 {
                return Err(400);
            }
            head.chunked = true;
        } else if is("connection") {
            connection(&mut head, field.value);
        } else if is("expect") {
            if !field.value.eq_ignore_ascii_case(b"100-continue") {
                return Err(417);
            }
            head.expects_continue = minor == 1;
        }
    }
    if hosts > 1 || (hosts == 0 && minor == 1) || (head.chunked && lengths > 0) {
        return Err(400);
    }
    Ok(head)
}

fn connection(head: &mut Head, value: &[u8]) {
    for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
        if option.eq_ignore_ascii_case(b"close") {
            head.keep = false;
        } else if option.eq_ignore_ascii_case(b"keep-alive") && head.minor == 0 {
            head.keep = true;
        }
    }
}

/// Writes the meta-variables.
fn write(
    request: &httparse::Request<'_, '_>,
    ends: &Ends,
    arena: &mut Vec<u8>,
    index: &mut Index,
) -> Result<(), u16> {
    let target = request.path.unwrap_or("");
    let (authority, path) = split_target(target);
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let host = request
        .headers
        .iter()
        .find(|f| f.name.eq_ignore_ascii_case("host"))
        .map_or("", |f| std::str::from_utf8(f.value).unwrap_or(""));
    let host = authority.unwrap_or(host);
    if !is_host(host) || authority == Some("") {
        return Err(400);
    }
    let protocol = if request.version == Some(0) { "HTTP/1.0" } else { "HTTP/1.1" };
    arena.clear();
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", concat!("hostler/", env!("CARGO_PKG_VERSION"))),
        ("SERVER_PROTOCOL", protocol),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_METHOD", request.method.unwrap_or("")),
        ("REQUEST_URI", path),
        ("QUERY_STRING", query),
        ("SERVER_NAME", without_port(host)),
        ("SERVER_ADDR", &ends.server_addr),
        ("SERVER_PORT", &ends.server_port),
        ("REMOTE_ADDR", &ends.remote_addr),
        ("REMOTE_PORT", &ends.remote_port),
    ] {
        write_pair(arena, name.as_bytes(), value.as_bytes());
    }
    for field in request.headers.iter().filter(|field| !field.name.contains('_')) {
        let mut name = String::with_capacity(32);
        name.push_str("HTTP_");
        name.extend(field.name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_uppercase() }));
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("content-type")
            || field.name.eq_ignore_ascii_case("content-length")
        {
            write_pair(arena, name.trim_start_matches("HTTP_").as_bytes(), value);
        } else if field.name.eq_ignore_ascii_case("host") {
            write_pair(arena, b"HTTP_HOST", host.as_bytes());
        } else if !is_hop_by_hop(field.name) {
            write_pair(arena, name.as_bytes(), value);
        }
    }
    index.read(arena).map_err(|_| 400)
}

/// `http://host/path` has an authority (RFC 9112, section 3.2.2).
fn split_target(target: &str) -> (Option<&str>, &str) {
    let Some(rest) = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://")) else {
        return (None, target);
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    (Some(authority), if path.is_empty() { "/" } else { path })
}

/// A host and perhaps a port (RFC 3986, section 3.2.2); a request may come without any, as an empty one.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b)), port),
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let named = |b: u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(&b);
            (name.bytes().all(named), port)
        }
    };
    host && port.strip_prefix(':').map_or(port.is_empty(), |port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// `[::1]:80` is `[::1]`.
fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if !host.ends_with(']') => host.get(..at).unwrap_or(host),
        _ => host,
    }
}

/// Fields for this connection alone, which no app has a use for.
fn is_hop_by_hop(name: &str) -> bool {
    [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "te",
        "upgrade",
        "expect",
        "trailer",
    ]
    .iter()
    .any(|hop| name.eq_ignore_ascii_case(hop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    fn read(bytes: &[u8]) -> (Scan, Vec<(String, String)>) {
        let (mut arena, mut index) = (Vec::new(), Index::default());
        let scan = scan(bytes, 0, 8192, &Ends::default(), &mut arena, &mut index);
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let pairs = Params::new(&index, &arena).iter().map(|(n, v)| (text(n), text(v))).collect();
        (scan, pairs)
    }

    fn get(bytes: &[u8], name: &str) -> Option<String> {
        read(bytes).1.into_iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    #[test]
    fn a_head_becomes_meta_variables() {
        let head = b"POST /a/b?c=d HTTP/1.1\r\nHost: Example.org:8080\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 3\r\n\
            X_Two: 3\r\nProxy: evil\r\nCookie: a\r\ncookie: b\r\n\r\nabc";
        for (name, value) in [
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/a/b?c=d"),
            ("QUERY_STRING", "c=d"),
            ("SERVER_NAME", "Example.org"),
            ("HTTP_HOST", "Example.org:8080"),
            ("HTTP_X_ONE", "1, 2"),
            ("HTTP_COOKIE", "a; b"),
            ("CONTENT_LENGTH", "3"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
        ] {
            assert_eq!(get(head, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(get(head, "HTTP_X_TWO"), None);
        assert_eq!(get(head, "HTTP_PROXY"), None);
        let Scan::Whole(head) = read(head).0 else { panic!() };
        assert_eq!((head.length, head.keep, head.chunked, head.minor), (3, true, false, 1));
    }

    #[test]
    fn a_head_is_waited_for_at_each_byte() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(read(&head[..cut]).0, Scan::More, "{cut}");
            assert_eq!(end_of_head(head, cut), Some(head.len()), "{cut}");
        }
    }

    #[test]
    fn connection_and_version_decide_on_keeping() {
        for (head, keep) in [
            (&b"GET / HTTP/1.0\r\n\r\n"[..], false),
            (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
            (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n", false),
            (b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ] {
            let Scan::Whole(head) = read(head).0 else { panic!("{head:?}") };
            assert_eq!(head.keep, keep);
        }
        assert_eq!(get(b"GET http://b:1?x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP_HOST").as_deref(), Some("b:1"));
    }

    #[test]
    fn what_has_two_meanings_is_refused() {
        for (head, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
            (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            (b"GET / HTTP/1.1\nHost: a\n\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
            (b"GET / HTTQ/1.1\r\nHost: a\r\n\r\n", 400),
            (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
            (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
            (b"\x16\x03\x01\x02\0", 400),
            (b"\x01\x01\0\x01\0\x08\0\0", 400),
        ] {
            assert_eq!(read(head).0, Scan::Refused(status), "{:?}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in ["", "a", "a.example:80", "127.0.0.1:8080", "[::1]", "[::1]:80", "a:", "x_y-z~"] {
            assert!(is_host(host), "{host}");
        }
        for host in ["a b", "a/b", "u@a", "a, b", "a:b", "[::1", "::1", "[::1]x", "[x]", "a:80:80", "a\0"] {
            assert!(!is_host(host), "{host}");
        }
    }

    #[test]
    fn giants_are_refused_while_they_come() {
        let long_target = [b"GET /".to_vec(), vec![b'a'; 20_000]].concat();
        assert_eq!(read(&long_target).0, Scan::Refused(414));
        let long_head = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 9000]].concat();
        assert_eq!(read(&long_head).0, Scan::Refused(431));
        let many =
            [b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(), b"A: b\r\n".repeat(200), b"\r\n".to_vec()].concat();
        assert_eq!(read(&many).0, Scan::Refused(431));
    }
}
