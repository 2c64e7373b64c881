//! Malformed FastCGI: see [`crate::malformed`].

use super::{Case, Due};
use crate::fcgi::{
    ABORT, BEGIN, DATA, END, FILTER, GET_VALUES, GET_VALUES_RESULT, PARAMS, RESPONDER, Request, STDERR,
    STDIN, STDOUT, UNKNOWN_ROLE, UNKNOWN_TYPE, begin, pair, raw_record, record,
};

/// All of them but those torn from a sound request ([`super::torn`]).
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        versions(),
        begins(),
        roles(),
        orders(),
        foreign(),
        pairs(),
        lengths(),
        requests(),
        management(),
        noise(),
    ]
    .concat()
}

/// A small request with a body, sound in every way, to be torn.
#[must_use]
pub fn sound() -> Vec<u8> {
    let mut request = Request::post("/echo", b"body").closing();
    request.params.retain(|(name, _)| !name.starts_with(b"SERVER_S") && name != b"GATEWAY_INTERFACE");
    request.shape.padding = crate::fcgi::Padding::Fixed(3);
    request.to_bytes()
}

/// PARAMS of a GET request, without the empty record at their end.
fn params(content: &[u8]) -> Vec<u8> {
    record(PARAMS, 1, content, 0)
}

fn sound_params() -> Vec<u8> {
    Request::get("/echo").params.iter().flat_map(|(name, value)| pair(name, value, false)).collect()
}

/// BEGIN_REQUEST, then these.
fn begun(rest: &[Vec<u8>]) -> Vec<u8> {
    [begin(1, RESPONDER, true), rest.concat()].concat()
}

/// A request whose parameters are whole, then these.
fn asked(rest: &[Vec<u8>]) -> Vec<u8> {
    begun(&[params(&sound_params()), params(b""), rest.concat()])
}

fn versions() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in [0, 2, 3, 16, 127, 128, 255] {
        let bad = |kind, content: &[u8]| {
            raw_record(version, kind, 1, u16::try_from(content.len()).unwrap(), 0, content)
        };
        for (place, bytes) in [
            ("BEGIN_REQUEST", bad(BEGIN, &[0, 1, 0, 0, 0, 0, 0, 0])),
            ("PARAMS", begun(&[bad(PARAMS, &sound_params())])),
            ("the end of PARAMS", begun(&[params(&sound_params()), bad(PARAMS, b"")])),
            ("STDIN", asked(&[bad(STDIN, b"x")])),
            ("ABORT_REQUEST", begun(&[bad(ABORT, b"")])),
            ("GET_VALUES", bad(GET_VALUES, b"")),
        ] {
            cases.push(Case::new(format!("version {version} in {place}"), bytes, Due::Closed));
        }
    }
    cases
}

fn begins() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 16, 255, 4096] {
        let content = vec![0; len];
        let name = format!("BEGIN_REQUEST with a body of {len} bytes");
        cases.push(Case::new(name, record(BEGIN, 1, &content, 0), Due::Closed));
    }
    for claimed in [9, 300, 65_535] {
        let lie = raw_record(1, BEGIN, 1, claimed, 0, &[0, 1, 0, 0, 0, 0, 0, 0]);
        cases.push(Case::new(format!("BEGIN_REQUEST that claims {claimed} bytes"), lie, Due::Closed));
    }
    let twice = begin(1, RESPONDER, true);
    cases.push(Case::new("BEGIN_REQUEST with id 0", begin(0, RESPONDER, true), Due::Closed));
    cases.push(Case::new("the same id begun twice", begun(std::slice::from_ref(&twice)), Due::Closed));
    cases.push(Case::new("the same id begun in its body", asked(&[twice]), Due::Closed));
    cases
}

fn roles() -> Vec<Case> {
    let role = |role: u16| {
        let request = Request { role, ..Request::get("/echo") };
        Case::new(format!("role {role}"), request.to_bytes(), Due::Refused(UNKNOWN_ROLE))
    };
    [0, 4, 5, 9, 127, 255, 256, 257, 258, 259, 512, 32_768, 65_535].map(role).to_vec()
}

fn orders() -> Vec<Case> {
    let end = || record(STDIN, 1, b"", 0);
    [
        ("STDIN before PARAMS", begun(&[record(STDIN, 1, b"x", 0)])),
        ("STDIN's end before PARAMS", begun(&[end()])),
        ("STDIN inside PARAMS", begun(&[params(&sound_params()), record(STDIN, 1, b"x", 0)])),
        ("STDIN's end inside PARAMS", begun(&[params(&sound_params()), end()])),
        ("PARAMS after their end", asked(&[params(b"\x01\x01ab")])),
        ("PARAMS ended twice", asked(&[params(b"")])),
        ("PARAMS inside STDIN", asked(&[record(STDIN, 1, b"x", 0), params(b"\x01\x01ab")])),
        ("DATA for a responder", asked(&[record(DATA, 1, b"x", 0)])),
        ("DATA's end for a responder", asked(&[record(DATA, 1, b"", 0)])),
        ("DATA inside PARAMS", begun(&[params(&sound_params()), record(DATA, 1, b"x", 0)])),
        ("DATA before a filter's PARAMS", [begin(1, FILTER, true), record(DATA, 1, b"x", 0)].concat()),
    ]
    .into_iter()
    .map(|(name, bytes)| Case::new(name, bytes, Due::Closed))
    .collect()
}

/// Records that only an application sends, and types that are none, with a request's id.
fn foreign() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [END, STDOUT, STDERR, GET_VALUES_RESULT, UNKNOWN_TYPE, GET_VALUES, 0, 12, 13, 100, 200, 255] {
        for (place, before) in
            [("at first", Vec::new()), ("after BEGIN", begun(&[])), ("in the body", asked(&[]))]
        {
            let bytes = [before, record(kind, 1, &[0; 8], 0)].concat();
            cases.push(Case::new(format!("a record of type {kind} {place}"), bytes, Due::Closed));
        }
    }
    for kind in [END, STDOUT, STDERR, GET_VALUES_RESULT, UNKNOWN_TYPE, BEGIN] {
        let name = format!("a record of type {kind} with id 0");
        cases.push(Case::new(name, record(kind, 0, &[0; 8], 0), Due::Closed));
    }
    cases
}

/// Pairs that do not add up.
fn pairs() -> Vec<Case> {
    let sound = sound_params();
    let tails: &[(&str, &[u8])] = &[
        ("a name length alone", b"\x05"),
        ("two lengths and nothing", b"\x05\x05"),
        ("half a name", b"\x05\x05HT"),
        ("a name without its value", b"\x05\x05HTTPX"),
        ("half a value", b"\x05\x05HTTPXabc"),
        ("an empty name with half a value", b"\x00\x09abc"),
        ("one byte of a long length", b"\x80"),
        ("two bytes of a long length", b"\x80\x00"),
        ("three bytes of a long length", b"\x80\x00\x00"),
        ("a long length alone", b"\x80\x00\x00\x01"),
        ("a long length and half of another", b"\x80\x00\x00\x01\x80\x00\x00"),
        ("a name one byte too long", b"\x03\x00AB"),
        ("a name of 2 GiB", b"\xff\xff\xff\xff\x01A"),
        ("a value of 2 GiB", b"\x01\xff\xff\xff\xffA"),
        ("both of 2 GiB", b"\xff\xff\xff\xff\xff\xff\xff\xffAB"),
        ("a value of 2 GiB less one", b"\x01\xff\xff\xff\xfeA"),
        ("a name of 16 MiB", b"\x81\x00\x00\x00\x01A"),
        ("lengths that wrap when added", b"\xff\xff\xff\xff\x80\x00\x00\x01A"),
        ("a value of 64 KiB that is not there", b"\x01\x80\x01\x00\x00A"),
    ];
    let mut cases = Vec::new();
    for (name, tail) in tails {
        for (place, before) in [("alone", &[][..]), ("after sound pairs", &sound[..])] {
            let content = [before, tail].concat();
            let bytes = begun(&[params(&content), params(b""), record(STDIN, 1, b"", 0)]);
            cases.push(Case::new(format!("pairs: {name}, {place}"), bytes, Due::Status(400)));
        }
    }
    cases
}

/// Record lengths that lie about what follows: the next header is read out of the middle of something.
fn lengths() -> Vec<Case> {
    let content = sound_params();
    let len = u16::try_from(content.len()).unwrap();
    let mut cases = Vec::new();
    for short in [1, 2, 7, 8, 9, 20, 50] {
        let lie = raw_record(1, PARAMS, 1, len - short, 0, &content);
        let bytes = begun(&[lie, params(b""), record(STDIN, 1, b"", 0)]);
        cases.push(Case::new(format!("PARAMS {short} bytes longer than they claim"), bytes, Due::Closed));
    }
    // Three or six would make a sound management record out of what follows.
    for long in [1, 2, 4, 5, 7] {
        let lie = raw_record(1, PARAMS, 1, len + long, 0, &content);
        let bytes = begun(&[lie, params(b""), record(STDIN, 1, b"", 0), record(STDIN, 1, b"", 0)]);
        cases.push(Case::new(format!("PARAMS {long} bytes shorter than they claim"), bytes, Due::Closed));
    }
    for (padding, sent) in [(8, 5), (255, 100), (3, 0)] {
        let mut record = raw_record(1, PARAMS, 1, len, 0, &content);
        record[6] = padding;
        record.extend(vec![0; sent]);
        let bytes = begun(&[record, params(b"")]);
        let name = format!("{sent} padding bytes where {padding} are claimed");
        cases.push(Case::new(name, bytes, Due::Closed));
    }
    for id in [0, 2, 256, 65_535] {
        let bytes = begun(&[params(&content), record(PARAMS, id, b"", 0), record(STDIN, 1, b"", 0)]);
        cases.push(Case::new(format!("PARAMS ended under id {id}"), bytes, Due::Closed));
    }
    for id in [0, 2, 256, 65_535] {
        let bytes = asked(&[record(STDIN, 1, b"x", 0), record(STDIN, id, b"", 0)]);
        cases.push(Case::new(format!("STDIN ended under id {id}"), bytes, Due::Closed));
    }
    let silent = raw_record(1, STDIN, 1, 65_535, 255, b"x");
    cases.push(Case::new("STDIN of one byte that claims 65,535", asked(&[silent]), Due::Closed));
    cases
}

/// Whole records that carry a request which is none.
fn requests() -> Vec<Case> {
    let mut cases = Vec::new();
    let lengths = [
        "abc",
        "1x",
        "x1",
        "+4",
        "-4",
        " 4",
        "4 ",
        "4,4",
        "4, 4",
        "0x4",
        "4.0",
        "1e1",
        "٤",
        "\u{0}4",
        "4\n",
        "--1",
        "- 1",
        "-0",
        "-1 ",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
    ];
    for length in lengths {
        let request =
            Request::post("/echo", b"body").without("CONTENT_LENGTH").with("CONTENT_LENGTH", length);
        cases.push(Case::new(format!("CONTENT_LENGTH {length:?}"), request.to_bytes(), Due::Status(400)));
    }
    for length in ["0", "1", "3", "5", "100", "60000"] {
        let request =
            Request::post("/echo", b"body").without("CONTENT_LENGTH").with("CONTENT_LENGTH", length);
        cases.push(Case::new(
            format!("a body of 4 bytes said to be {length}"),
            request.to_bytes(),
            Due::Status(400),
        ));
    }
    for method in ["", "G ET", "GET\r\nX: y", "GET\0", "G\u{e9}T", "GET/", "(GET)", "\tGET"] {
        let request = Request::get("/echo").without("REQUEST_METHOD").with("REQUEST_METHOD", method);
        cases.push(Case::new(format!("method {method:?}"), request.to_bytes(), Due::Status(400)));
    }
    let nameless = Request::get("/echo").without("REQUEST_METHOD");
    cases.push(Case::new("no method", nameless.to_bytes(), Due::Status(400)));
    let bare = begun(&[params(b""), record(STDIN, 1, b"", 0)]);
    cases.push(Case::new("no parameters", bare, Due::Status(400)));
    let mut large = Request::get("/echo").with("LARGE", vec![b'x'; 300 * 1024]);
    (large.shape.params_record, large.shape.cut_pairs) = (60_000, true);
    cases.push(Case::new("parameters over max_params", large.to_bytes(), Due::Status(431)));
    let huge =
        Request::post("/echo", b"body").without("CONTENT_LENGTH").with("CONTENT_LENGTH", "999999999999");
    cases.push(Case::new("a body over max_body", huge.to_bytes(), Due::Status(413)));
    cases
}

/// Management records of types that are none.
fn management() -> Vec<Case> {
    let unknown = |kind: u8| {
        let bytes = record(kind, 0, b"anything", 1);
        Case::new(format!("a management record of type {kind}"), bytes, Due::UnknownType(kind))
    };
    [0, 12, 13, 50, 99, 127, 128, 200, 254, 255].map(unknown).to_vec()
}

/// Bytes of another protocol, or of none.
fn noise() -> Vec<Case> {
    let texts: &[(&str, &[u8])] = &[
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("an HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("a TLS hello", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03abcdefgh"),
        ("a PROXY line", b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n"),
        ("an uwsgi packet", b"\x00\x1a\x00\x00\x0e\x00REQUEST_METHOD\x03\x00GET"),
        ("an SCGI request", b"70:CONTENT_LENGTH\x000\x00SCGI\x001\x00,"),
        ("eight zeros", &[0; 8]),
        ("a thousand zeros", &[0; 1000]),
        ("eight times 0xff", &[0xff; 8]),
        ("a hundred line ends", &[b'\n'; 100]),
    ];
    let mut cases: Vec<Case> =
        texts.iter().map(|(name, bytes)| Case::new(*name, *bytes, Due::Closed)).collect();
    for seed in 1..=20 {
        let mut bytes = crate::place::bytes(64 + 40 * usize::try_from(seed).unwrap(), seed);
        // Any version but 1.
        bytes[0] |= 2;
        cases.push(Case::new(format!("noise of seed {seed}"), bytes, Due::Closed));
    }
    cases
}
