//! Malformed HTTP: see [`crate::malformed`].

use super::{Case, Due};

const BAD: Due = Due::Status(400);

/// All of them but those torn from a sound request ([`super::torn`]).
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        lines(),
        versions(),
        hosts(),
        names(),
        values(),
        framing(),
        smuggling(),
        codings(),
        chunks(),
        giants(),
        noise(),
    ]
    .concat()
}

/// A small request with a body, sound in every way, to be torn.
#[must_use]
pub fn sound() -> Vec<u8> {
    b"POST /echo?a=b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nX-Y: z\r\n\r\nbody".to_vec()
}

/// The same with its body in chunks.
#[must_use]
pub fn sound_chunked() -> Vec<u8> {
    b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nbody\r\n0\r\nT: u\r\n\r\n"
        .to_vec()
}

/// A head with these lines after the Host field.
fn get(lines: impl AsRef<[u8]>) -> Vec<u8> {
    [b"GET /echo HTTP/1.1\r\nHost: localhost\r\n", lines.as_ref(), b"\r\n\r\n"].concat()
}

/// A request with these lines after the Host field and this body.
fn post(lines: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!("POST /echo HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n");
    [head.as_bytes(), body.as_ref()].concat()
}

fn lines() -> Vec<Case> {
    let line = |line: &[u8]| [line, b"\r\nHost: localhost\r\n\r\n"].concat();
    let bad: &[&[u8]] = &[
        b"GET",
        b"GET /",
        b"GET / ",
        b"GET HTTP/1.1",
        b" GET / HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET\t/\tHTTP/1.1",
        b"GET / HTTP/1.1 x",
        b"GET / HTTP/1.1 ",
        b"GET echo HTTP/1.1",
        b"GET ?a HTTP/1.1",
        b"GET \x00 HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /a\x01b HTTP/1.1",
        b"GET /a\x7fb HTTP/1.1",
        b"GET /a\tb HTTP/1.1",
        b"GET /a\rb HTTP/1.1",
        b"GET http:// HTTP/1.1",
        b"GET * HTTP/1.1",
        b"G\x00T / HTTP/1.1",
        b"G(T / HTTP/1.1",
        b"G@T / HTTP/1.1",
        b"G\xc3\xa9T / HTTP/1.1",
        b"\"GET\" / HTTP/1.1",
        b"GET: / HTTP/1.1",
    ];
    let mut cases: Vec<Case> =
        bad.iter().map(|l| Case::new(format!("request line {}", l.escape_ascii()), line(l), BAD)).collect();
    let bare = "GET / HTTP/1.1\nHost: localhost\n\n";
    cases.push(Case::new("bare LF at every line's end", bare, BAD));
    cases.push(Case::new("bare LF after the request line", "GET / HTTP/1.1\nHost: localhost\r\n\r\n", BAD));
    cases.push(Case::new("bare LF after a field", "GET / HTTP/1.1\r\nHost: localhost\n\r\n", BAD));
    cases.push(Case::new("bare LF for the empty line", "GET / HTTP/1.1\r\nHost: localhost\r\n\n", BAD));
    cases.push(Case::new("bare CR for a line's end", "GET / HTTP/1.1\rHost: localhost\r\n\r\n", BAD));
    cases
}

fn versions() -> Vec<Case> {
    let case = |version: &str, due| {
        let bytes = format!("GET / {version}\r\nHost: localhost\r\n\r\n");
        Case::new(format!("version {version}"), bytes, due)
    };
    let other =
        ["HTTP/0.9", "HTTP/2.0", "HTTP/2.1", "HTTP/3.0", "HTTP/9.9"].map(|v| case(v, Due::Status(505)));
    let none = [
        "HTTP/1",
        "HTTP/1.",
        "HTTP/.1",
        "HTTP/1,1",
        "http/1.1",
        "HTTP1.1",
        "HTTP/a.b",
        "HTTPS/1.1",
        "FTP/1.1",
    ]
    .map(|v| case(v, BAD));
    [other.to_vec(), none.to_vec()].concat()
}

fn hosts() -> Vec<Case> {
    let case = |name: &str, fields: &str| Case::new(name, format!("GET / HTTP/1.1\r\n{fields}\r\n"), BAD);
    vec![
        case("no Host", ""),
        case("no Host among fields", "Accept: */*\r\n"),
        case("Host twice", "Host: a\r\nHost: a\r\n"),
        case("two Hosts", "Host: a\r\nHost: b\r\n"),
        case("Host with a space", "Host: a b\r\n"),
        case("Host with a path", "Host: a/b\r\n"),
        case("Host with a user", "Host: u@a\r\n"),
        case("Host with a list", "Host: a, b\r\n"),
        case("Host with a port that is none", "Host: a:b\r\n"),
        case("Host with half an IPv6 address", "Host: [::1\r\n"),
    ]
}

/// Field names with every character that a token does not have.
fn names() -> Vec<Case> {
    let mut cases = Vec::new();
    let separators = b"()<>@,;\\\"/[]?={} \t\x7f".iter().copied();
    let controls = (0..32).filter(|c| !b"\t\r\n".contains(c));
    for byte in controls.chain(separators).chain([0x80, 0xff]) {
        let line = [b"X".as_slice(), &[byte], b"Y: z"].concat();
        cases.push(Case::new(format!("byte {byte:#04x} in a field name"), get(line), BAD));
    }
    for (name, line) in [
        ("a field without a colon", "X"),
        ("a field without a name", ": x"),
        ("a space before the colon", "X : y"),
        ("a tab before the colon", "X\t: y"),
        ("a folded field", "X: y\r\n z"),
        ("a field folded by a tab", "X: y\r\n\tz"),
        ("a folded line that is empty", "X: y\r\n \r\nZ: z"),
        ("bare CR in a field name", "X\rY: z"),
    ] {
        cases.push(Case::new(name, get(line), BAD));
    }
    let first = "GET / HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n";
    cases.push(Case::new("a folded first field", first, BAD));
    cases
}

/// Field values with every control character.
fn values() -> Vec<Case> {
    let controls = (0..32).filter(|c| !b"\t\r\n".contains(c)).chain([0x7f]);
    let mut cases: Vec<Case> = controls
        .map(|byte| {
            let line = [b"X: y".as_slice(), &[byte], b"z"].concat();
            Case::new(format!("byte {byte:#04x} in a field value"), get(line), BAD)
        })
        .collect();
    cases.push(Case::new("bare CR in a field value", get("X: y\rz"), BAD));
    cases.push(Case::new("bare CR at the end of a field value", get("X: y\r\r\nZ: z"), BAD));
    cases
}

/// Content-Length that is none.
fn framing() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in [
        "",
        "abc",
        "4x",
        "+4",
        "-4",
        "-1",
        "4 4",
        "4,4",
        "4, 4",
        "4,5",
        "0x4",
        "4.0",
        "1e1",
        "4;q=1",
        "\"4\"",
        "'4'",
        "18446744073709551616",
        "18446744073709551619",
        "99999999999999999999999999999999",
        "٤",
        "4\u{b}",
        "--4",
        "4-",
    ] {
        let case = Case::new(
            format!("Content-Length {length:?}"),
            post(&format!("Content-Length: {length}"), "body"),
            BAD,
        );
        cases.push(case);
    }
    cases.push(Case::new(
        "Content-Length twice",
        post("Content-Length: 4\r\nContent-Length: 4", "body"),
        BAD,
    ));
    cases.push(Case::new("two Content-Lengths", post("Content-Length: 4\r\nContent-Length: 5", "body"), BAD));
    cases.push(Case::new(
        "Content-Length, none and some",
        post("Content-Length:\r\nContent-Length: 4", "body"),
        BAD,
    ));
    let huge = post("Content-Length: 999999999999", "body");
    cases.push(Case::new("a body over max_body", huge, Due::Status(413)));
    cases
}

/// Two ways to tell where the body ends.
fn smuggling() -> Vec<Case> {
    let chunked = "4\r\nbody\r\n0\r\n\r\n";
    let mut cases = Vec::new();
    for (name, lines) in [
        ("CL before TE", "Content-Length: 4\r\nTransfer-Encoding: chunked"),
        ("TE before CL", "Transfer-Encoding: chunked\r\nContent-Length: 4"),
        ("CL 0 and TE", "Content-Length: 0\r\nTransfer-Encoding: chunked"),
        ("CL with an empty value and TE", "Content-Length:\r\nTransfer-Encoding: chunked"),
        ("TE in other letters, and CL", "tRANSFER-eNCODING: cHUNKED\r\ncONTENT-lENGTH: 4"),
        ("CL and TE with a space before its colon", "Content-Length: 4\r\nTransfer-Encoding : chunked"),
        ("CL and TE with NUL in its name", "Content-Length: 4\r\nTransfer-Encoding\0: chunked"),
        ("CL and TE folded", "Content-Length: 4\r\nTransfer-Encoding:\r\n chunked"),
        ("CL and TE after a bare CR", "Content-Length: 4\r\nX: y\rTransfer-Encoding: chunked"),
        ("CL and TE after a bare LF", "Content-Length: 4\r\nX: y\nTransfer-Encoding: chunked"),
        ("CL and TE with a vertical tab", "Content-Length: 4\r\nTransfer-Encoding: \u{b}chunked"),
        ("TE with NUL after it", "Transfer-Encoding: chunked\0"),
        ("a second request in a body with CL and TE", "Content-Length: 44\r\nTransfer-Encoding: chunked"),
    ] {
        let body = format!("{chunked}GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n");
        cases.push(Case::new(format!("smuggling: {name}"), post(lines, body), BAD));
    }
    let old = format!("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}");
    cases.push(Case::new("smuggling: TE in HTTP/1.0", old, BAD));
    cases
}

/// Transfer codings that are not `chunked` alone.
fn codings() -> Vec<Case> {
    let mut cases = Vec::new();
    for coding in [
        "gzip",
        "deflate",
        "compress",
        "identity",
        "xchunked",
        "chunkedx",
        "chunk",
        "chun ked",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, identity",
        "identity, chunked",
        "chunked;q=1",
        "\"chunked\"",
        "x-gzip",
    ] {
        let bytes = post(&format!("Transfer-Encoding: {coding}"), "4\r\nbody\r\n0\r\n\r\n");
        cases.push(Case::new(format!("Transfer-Encoding {coding}"), bytes, Due::Status(501)));
    }
    cases
}

/// Chunked bodies that do not add up.
fn chunks() -> Vec<Case> {
    let mut cases = Vec::new();
    let long_extension = format!("4;{}\r\nbody\r\n0\r\n\r\n", "x".repeat(100_000));
    for (name, body) in [
        ("a size that is none", "xyz\r\nbody\r\n0\r\n\r\n"),
        ("an empty size", "\r\nbody\r\n0\r\n\r\n"),
        ("an extension alone", ";a=b\r\nbody\r\n0\r\n\r\n"),
        ("a negative size", "-4\r\nbody\r\n0\r\n\r\n"),
        ("a size with a plus", "+4\r\nbody\r\n0\r\n\r\n"),
        ("a size with 0x", "0x4\r\nbody\r\n0\r\n\r\n"),
        ("a space before the size", " 4\r\nbody\r\n0\r\n\r\n"),
        ("two sizes", "4 4\r\nbody\r\n0\r\n\r\n"),
        ("a size with a fraction", "4.0\r\nbody\r\n0\r\n\r\n"),
        ("a size with an underscore", "0_4\r\nbody\r\n0\r\n\r\n"),
        ("a size of 17 digits", "10000000000000004\r\nbody\r\n0\r\n\r\n"),
        ("a size of 20 digits", "ffffffffffffffffffff\r\nbody\r\n0\r\n\r\n"),
        ("bare LF after the size", "4\nbody\r\n0\r\n\r\n"),
        ("bare CR after the size", "4\rbody\r\n0\r\n\r\n"),
        ("bare LF after the chunk", "4\r\nbody\n0\r\n\r\n"),
        ("nothing after the chunk", "4\r\nbody0\r\n\r\n"),
        ("a chunk longer than its size", "3\r\nbody\r\n0\r\n\r\n"),
        ("a chunk shorter than its size", "6\r\nbody\r\n0\r\n\r\n"),
        ("NUL in the size", "4\0\r\nbody\r\n0\r\n\r\n"),
        ("NUL in an extension", "4;a\0\r\nbody\r\n0\r\n\r\n"),
        ("bare LF in an extension", "4;a\nbody\r\n0\r\n\r\n"),
        ("bare CR in an extension", "4;a\rb\r\nbody\r\n0\r\n\r\n"),
        ("an extension of 100 KB", &long_extension),
        ("bare LF after the last size", "4\r\nbody\r\n0\n\r\n"),
        ("bare LF at the very end", "4\r\nbody\r\n0\r\n\n"),
        ("a trailer with NUL", "4\r\nbody\r\n0\r\nX: \0\r\n\r\n"),
    ] {
        cases.push(Case::new(format!("chunks: {name}"), post("Transfer-Encoding: chunked", body), BAD));
    }
    // The chunk never comes: it is the time limit that ends it.
    let most = post("Transfer-Encoding: chunked", "ffffffffffffff\r\nbody\r\n0\r\n\r\n");
    cases.push(Case::new("chunks: a size over max_body", most, Due::Status(408)));
    cases
}

/// Heads over `max_params` (256 KiB).
fn giants() -> Vec<Case> {
    let large = "x".repeat(300 * 1024);
    let many: String = (0..30_000).map(|n| format!("X{n}: y\r\n")).collect();
    vec![
        Case::new(
            "a target of 300 KiB",
            format!("GET /{large} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            Due::Status(414),
        ),
        Case::new("a target that never ends", format!("GET /{large}"), Due::Status(414)),
        Case::new(
            "a query of 300 KiB",
            format!("GET /?{large} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            Due::Status(414),
        ),
        Case::new("a field of 300 KiB", get(format!("X: {large}")), Due::Status(431)),
        Case::new("a field that never ends", format!("GET / HTTP/1.1\r\nX: {large}"), Due::Status(431)),
        Case::new("a field name of 300 KiB", get(format!("{large}: y")), Due::Status(431)),
        Case::new("30,000 fields", get(many.trim_end()), Due::Status(431)),
    ]
}

/// Bytes of another protocol, or of none.
fn noise() -> Vec<Case> {
    let mut cases = vec![
        Case::new("an HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Due::Status(505)),
        Case::new("a TLS hello", *b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03abcdefgh\r\n\r\n", BAD),
        Case::new("a FastCGI request", super::fastcgi::sound(), BAD),
        Case::new("a PROXY line", "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n\r\n", BAD),
        Case::new("a thousand zeros", [0; 1000], BAD),
    ];
    for seed in 1..=10 {
        let mut bytes = crate::place::bytes(100, seed);
        bytes[0] |= 0x80;
        bytes.extend(b"\r\n\r\n");
        cases.push(Case::new(format!("noise of seed {seed}"), bytes, BAD));
    }
    cases
}
