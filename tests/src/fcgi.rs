//! FastCGI 1.0 as a web server writes it, byte by byte, valid or not: records, pairs, whole requests.
//!
//! Always holds: nothing here is shared with `hostler-proto`; what a test asks for is what goes out, also where
//! the specification forbids it. Answers are read by [`crate::reader`].

/// Record type BEGIN_REQUEST.
pub const BEGIN: u8 = 1;
/// Record type ABORT_REQUEST.
pub const ABORT: u8 = 2;
/// Record type END_REQUEST.
pub const END: u8 = 3;
/// Record type PARAMS.
pub const PARAMS: u8 = 4;
/// Record type STDIN.
pub const STDIN: u8 = 5;
/// Record type STDOUT.
pub const STDOUT: u8 = 6;
/// Record type STDERR.
pub const STDERR: u8 = 7;
/// Record type DATA.
pub const DATA: u8 = 8;
/// Record type GET_VALUES.
pub const GET_VALUES: u8 = 9;
/// Record type GET_VALUES_RESULT.
pub const GET_VALUES_RESULT: u8 = 10;
/// Record type UNKNOWN_TYPE.
pub const UNKNOWN_TYPE: u8 = 11;

/// Role of an ordinary request.
pub const RESPONDER: u16 = 1;
/// Role of a request that only asks for leave.
pub const AUTHORIZER: u16 = 2;
/// Role of a request with a second stream, DATA.
pub const FILTER: u16 = 3;

/// Protocol status: refused, since one is in hand on this connection.
pub const CANT_MPX_CONN: u8 = 1;
/// Protocol status: refused, too many.
pub const OVERLOADED: u8 = 2;
/// Protocol status: refused, role not known.
pub const UNKNOWN_ROLE: u8 = 3;

/// One record of version 1.
#[must_use]
pub fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    raw_record(1, kind, id, u16::try_from(content.len()).unwrap(), padding, content)
}

/// One record with every field as given: `length` may lie about `content`. `padding` bytes follow.
#[must_use]
pub fn raw_record(version: u8, kind: u8, id: u16, length: u16, padding: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version, kind];
    bytes.extend(id.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend([padding, 0]);
    bytes.extend(content);
    bytes.resize(bytes.len() + usize::from(padding), 0xA5);
    bytes
}

/// The record that begins a request.
#[must_use]
pub fn begin(id: u16, role: u16, keep: bool) -> Vec<u8> {
    let [high, low] = role.to_be_bytes();
    record(BEGIN, id, &[high, low, u8::from(keep), 0, 0, 0, 0, 0], 0)
}

/// One name-value pair, lengths as short as they can be or (`long`) all of four bytes.
#[must_use]
pub fn pair(name: &[u8], value: &[u8], long: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in [name, value] {
        match u8::try_from(text.len()) {
            Ok(short @ 0..=127) if !long => bytes.push(short),
            _ => bytes.extend((u32::try_from(text.len()).unwrap() | 1 << 31).to_be_bytes()),
        }
    }
    bytes.extend(name);
    bytes.extend(value);
    bytes
}

/// How many padding bytes a record gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Always this many.
    Fixed(u8),
    /// As many as bring it to a multiple of eight.
    ToEight,
}

impl Padding {
    fn of(self, content: usize) -> u8 {
        match self {
            Padding::Fixed(n) => n,
            Padding::ToEight => u8::try_from((8 - content % 8) % 8).unwrap(),
        }
    }
}

/// How a request is laid out in records; this is where the web servers differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Padding of every PARAMS and STDIN record.
    pub padding: Padding,
    /// Bytes of content of a PARAMS record, at most.
    pub params_record: usize,
    /// Let pairs run over from one PARAMS record into the next.
    pub cut_pairs: bool,
    /// Bytes of content of a STDIN record, at most.
    pub stdin_record: usize,
    /// Write all lengths of pairs in four bytes.
    pub long_lengths: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            padding: Padding::Fixed(0),
            params_record: 0xffff,
            cut_pairs: false,
            stdin_record: 32_768,
            long_lengths: false,
        }
    }
}

/// A request to be written.
#[derive(Debug, Clone)]
pub struct Request {
    /// Request id.
    pub id: u16,
    /// Role.
    pub role: u16,
    /// Ask for the connection to stay open (FCGI_KEEP_CONN).
    pub keep: bool,
    /// Parameters in order, repeated ones too.
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body; `None`: not even the empty STDIN record that ends it.
    pub body: Option<Vec<u8>>,
    /// Records and their sizes.
    pub shape: Shape,
}

impl Request {
    /// A request for `uri` with the parameters that RFC 3875 wants, no body, the connection kept.
    #[must_use]
    pub fn new(method: &str, uri: &str) -> Request {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut request = Request {
            id: 1,
            role: RESPONDER,
            keep: true,
            params: Vec::new(),
            body: Some(Vec::new()),
            shape: Shape::default(),
        };
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "tests"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_NAME", "localhost"),
            ("SERVER_PORT", "80"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REQUEST_METHOD", method),
            ("REQUEST_URI", uri),
            ("DOCUMENT_URI", path),
            ("SCRIPT_NAME", path),
            ("QUERY_STRING", query),
            ("HTTP_HOST", "localhost"),
        ] {
            request = request.with(name, value);
        }
        request
    }

    /// `GET uri`.
    #[must_use]
    pub fn get(uri: &str) -> Request {
        Request::new("GET", uri)
    }

    /// `POST uri` with a body and its length.
    #[must_use]
    pub fn post(uri: &str, body: &[u8]) -> Request {
        let request = Request::new("POST", uri)
            .with("CONTENT_TYPE", "application/octet-stream")
            .with("CONTENT_LENGTH", body.len().to_string());
        Request { body: Some(body.to_vec()), ..request }
    }

    /// The same with one more parameter at the end.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Request {
        self.params.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// The same without any parameter of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Request {
        self.params.retain(|(n, _)| n != name.as_bytes());
        self
    }

    /// The same with another id.
    #[must_use]
    pub fn id(self, id: u16) -> Request {
        Request { id, ..self }
    }

    /// The same without FCGI_KEEP_CONN.
    #[must_use]
    pub fn closing(self) -> Request {
        Request { keep: false, ..self }
    }

    /// All of its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if let Some(body) = &self.body {
            bytes.extend(self.stdin(body));
            bytes.extend(record(STDIN, self.id, &[], 0));
        }
        bytes
    }

    /// BEGIN_REQUEST and PARAMS up to the empty record.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut bytes = begin(self.id, self.role, self.keep);
        let pairs = self.params.iter().map(|(name, value)| pair(name, value, self.shape.long_lengths));
        let mut content = Vec::new();
        for pair in pairs {
            let full = content.len() + pair.len() > self.shape.params_record;
            if full && !self.shape.cut_pairs && !content.is_empty() {
                bytes.extend(self.params_record(&content));
                content.clear();
            }
            content.extend(pair);
        }
        for part in content.chunks(self.shape.params_record) {
            bytes.extend(self.params_record(part));
        }
        bytes.extend(record(PARAMS, self.id, &[], 0));
        bytes
    }

    fn params_record(&self, content: &[u8]) -> Vec<u8> {
        record(PARAMS, self.id, content, self.shape.padding.of(content.len()))
    }

    /// STDIN records with `part` of the body, not ended.
    #[must_use]
    pub fn stdin(&self, part: &[u8]) -> Vec<u8> {
        let records = part.chunks(self.shape.stdin_record);
        records.flat_map(|c| record(STDIN, self.id, c, self.shape.padding.of(c.len()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_bytes_of_the_specification() {
        assert_eq!(record(STDIN, 0x0102, b"abc", 2), [1, 5, 1, 2, 0, 3, 2, 0, b'a', b'b', b'c', 0xA5, 0xA5]);
        assert_eq!(begin(1, RESPONDER, true), [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn lengths_from_128_on_take_four_bytes() {
        assert_eq!(pair(b"a", b"bc", false), [1, 2, b'a', b'b', b'c']);
        assert_eq!(pair(b"a", b"", true), [0x80, 0, 0, 1, 0x80, 0, 0, 0, b'a']);
        assert_eq!(&pair(b"n", &[7; 128], false)[..6], [1, 0x80, 0, 0, 128, b'n']);
    }

    #[test]
    fn cut_pairs_fill_each_record_and_whole_pairs_do_not() {
        let mut request = Request::get("/").with("LONG", "x".repeat(40));
        request.shape.params_record = 50;
        for cut in [true, false] {
            request.shape.cut_pairs = cut;
            let head = request.head();
            let mut records = &head[16..];
            let mut lengths = Vec::new();
            while let [_, _, _, _, high, low, ..] = *records {
                lengths.push(u16::from_be_bytes([high, low]));
                records = &records[8 + usize::from(lengths[lengths.len() - 1])..];
            }
            assert_eq!(lengths.pop(), Some(0));
            lengths.pop();
            assert_eq!(lengths.iter().all(|len| *len == 50), cut, "{lengths:?}");
        }
    }
}
