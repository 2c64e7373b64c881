//! The bytes of the control socket: one small HTTP/1.1 request in, one answer out, then close.

use serde::Serialize;

/// Bytes of a request, head and body.
pub(super) const REQUEST_LIMIT: usize = 256 * 1024;

/// A whole request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// `GET`.
    pub method: String,
    /// `/status/shop`, percent-decoded.
    pub path: String,
    /// Pairs of the query, percent-decoded.
    pub query: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// What bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// All is there.
    Request(Request),
    /// More must come.
    Partial,
    /// This will never be a request.
    Bad(Reply),
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: String,
}

impl Reply {
    /// An answer with a body.
    pub(super) fn json(status: u16, body: &impl Serialize) -> Reply {
        match serde_json::to_string(body) {
            Ok(body) => Reply { status, body },
            Err(e) => Reply::error(500, &format!("encode the answer: {e}")),
        }
    }

    /// `{"error": …}`.
    pub(super) fn error(status: u16, message: &str) -> Reply {
        Reply { status, body: serde_json::json!({ "error": message }).to_string() }
    }

    /// As it goes out; without the body for HEAD.
    pub(super) fn to_bytes(&self, head_only: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            411 => "Length Required",
            413 => "Content Too Large",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let mut bytes = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            self.body.len() + 1
        )
        .into_bytes();
        if !head_only {
            bytes.extend_from_slice(self.body.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }
}

/// Reads a request from the bytes so far.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let over = bytes.len() > REQUEST_LIMIT;
    let at = match head.parse(bytes) {
        Ok(httparse::Status::Complete(at)) => at,
        Ok(httparse::Status::Partial) if over => {
            return Parsed::Bad(Reply::error(413, "the request is too large"));
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(e) => return Parsed::Bad(Reply::error(400, &format!("read the request: {e}"))),
    };
    let named = |name: &str| {
        let mut all = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        (all.next().map(|header| header.value), all.next().is_some())
    };
    if named("transfer-encoding").0.is_some() {
        return Parsed::Bad(Reply::error(411, "a body needs Content-Length here"));
    }
    let length = match named("content-length") {
        (None, _) => 0,
        (Some(value), false) if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).unwrap_or(usize::MAX)
        }
        _ => return Parsed::Bad(Reply::error(400, "Content-Length is no number")),
    };
    if length > REQUEST_LIMIT - at.min(REQUEST_LIMIT) {
        return Parsed::Bad(Reply::error(413, "the request is too large"));
    }
    let Some(body) = bytes.get(at..at + length) else { return Parsed::Partial };
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    Parsed::Request(Request {
        method: head.method.unwrap_or_default().to_owned(),
        path: decode(path),
        query: pairs.map(|(name, value)| (decode(name), decode(value))).collect(),
        body: body.to_vec(),
    })
}

/// Percent-decodes; what is no escape stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or(&[]);
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: &[u8]) -> Request {
        match parse(bytes) {
            Parsed::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn refused(bytes: &[u8]) -> u16 {
        match parse(bytes) {
            Parsed::Bad(reply) => reply.status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_whole_with_its_last_byte_and_not_before() {
        let bytes = b"POST /reload?pool=a%20b&changed HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Parsed::Partial, "{end}");
        }
        let request = request(bytes);
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/reload"));
        assert_eq!(request.query, [("pool".into(), "a b".into()), ("changed".into(), String::new())]);
        assert_eq!(request.body, b"body");
    }

    #[test]
    fn what_will_never_be_a_request_is_refused() {
        assert_eq!(refused(b"\x16\x03\x01"), 400);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
        let mut long = b"GET / HTTP/1.1\r\nX: ".to_vec();
        long.resize(REQUEST_LIMIT + 1, b'x');
        assert_eq!(refused(&long), 413);
    }

    #[test]
    fn escapes_are_decoded_once_and_torn_ones_stay() {
        assert_eq!(decode("/a%2Fb%2"), "/a/b%2");
        assert_eq!(decode("%2525%zz%"), "%25%zz%");
        assert_eq!(decode("%ff"), "\u{fffd}");
    }

    #[test]
    fn an_answer_says_its_length_and_has_no_body_for_head() {
        let reply = Reply::error(404, "no");
        let text = String::from_utf8(reply.to_bytes(false)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n"));
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(String::from_utf8(reply.to_bytes(true)).unwrap().ends_with("\r\n\r\n"));
    }
}
