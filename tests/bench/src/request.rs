//! Requests as bytes, built once before the load starts.
//!
//! FastCGI: BEGIN_REQUEST, PARAMS, STDIN as of the specification's sections 3 and 5, request id 1, the
//! parameters that nginx sends. Does no I/O.

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// FastCGI 1.0, role Responder.
    Fastcgi,
    /// HTTP/1.1.
    Http,
}

/// One request, from which its bytes are built.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is spoken.
    pub protocol: Protocol,
    /// Whether the connection stays open after the answer.
    pub keep: bool,
    /// `GET`, `POST`.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// Bytes of body.
    pub body: usize,
    /// FastCGI: CGI parameters more, each in place of a usual one of its name. HTTP: header fields more.
    pub parameters: Vec<(String, String)>,
}

impl Request {
    /// A GET of `/hello`.
    #[must_use]
    pub fn new(protocol: Protocol, keep: bool) -> Self {
        let (method, uri) = ("GET".into(), "/hello".into());
        Self { protocol, keep, method, uri, body: 0, parameters: Vec::new() }
    }

    /// The whole request.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.protocol {
            Protocol::Fastcgi => self.fastcgi(),
            Protocol::Http => self.http(),
        }
    }

    /// The request up to somewhere inside its head: inside a PARAMS record, or a header field.
    #[must_use]
    pub fn cut_in_head(&self) -> Vec<u8> {
        let mut bytes = self.to_bytes();
        bytes.truncate(bytes.len().saturating_sub(self.tail()) / 2);
        bytes
    }

    /// The request up to the middle of its body.
    #[must_use]
    pub fn cut_in_body(&self) -> Vec<u8> {
        let mut bytes = self.to_bytes();
        bytes.truncate(bytes.len().saturating_sub(self.tail() / 2));
        bytes
    }

    /// Bytes that follow the head.
    fn tail(&self) -> usize {
        match self.protocol {
            Protocol::Fastcgi => self.body + self.body.div_ceil(RECORD) * 8 + 8,
            Protocol::Http => self.body,
        }
    }

    fn http(&self) -> Vec<u8> {
        let connection = if self.keep { "keep-alive" } else { "close" };
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: hostler-bench\r\nAccept: */*\r\nConnection: {connection}\r\n",
            self.method, self.uri
        );
        for (name, value) in &self.parameters {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.body > 0 {
            head.push_str(&format!("Content-Length: {}\r\n", self.body));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + self.body, b'x');
        bytes
    }

    fn fastcgi(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        record(&mut bytes, 1, &[0, 1, u8::from(self.keep), 0, 0, 0, 0, 0]);
        stream(&mut bytes, 4, &self.params());
        stream(&mut bytes, 5, &vec![b'x'; self.body]);
        bytes
    }

    fn params(&self) -> Vec<u8> {
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        let length = if self.body > 0 { self.body.to_string() } else { String::new() };
        let usual = [
            ("QUERY_STRING", query),
            ("REQUEST_METHOD", &self.method),
            ("CONTENT_TYPE", ""),
            ("CONTENT_LENGTH", &length),
            ("SCRIPT_NAME", path),
            ("REQUEST_URI", &self.uri),
            ("DOCUMENT_URI", path),
            ("DOCUMENT_ROOT", "/var/www"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_SCHEME", "http"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "hostler-bench"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REMOTE_PORT", "40000"),
            ("SERVER_ADDR", "127.0.0.1"),
            ("SERVER_PORT", "80"),
            ("SERVER_NAME", "localhost"),
            ("HTTP_HOST", "localhost"),
            ("HTTP_USER_AGENT", "hostler-bench"),
            ("HTTP_ACCEPT", "*/*"),
        ];
        let mut bytes = Vec::new();
        for (name, value) in usual {
            if !self.parameters.iter().any(|(own, _)| own == name) {
                pair(&mut bytes, name, value);
            }
        }
        for (name, value) in &self.parameters {
            pair(&mut bytes, name, value);
        }
        bytes
    }
}

/// The most that one of our records holds: a multiple of eight, so that none needs padding for speed.
const RECORD: usize = 65_528;

fn stream(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    for chunk in content.chunks(RECORD) {
        record(bytes, kind, chunk);
    }
    record(bytes, kind, &[]);
}

fn record(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    bytes.extend([1, kind, 0, 1]);
    bytes.extend(length);
    bytes.extend([0, 0]);
    bytes.extend(content);
}

fn pair(bytes: &mut Vec<u8>, name: &str, value: &str) {
    for length in [name.len(), value.len()] {
        match u8::try_from(length) {
            Ok(short) if short < 128 => bytes.push(short),
            _ => bytes.extend((u32::try_from(length).unwrap_or(0) | 1 << 31).to_be_bytes()),
        }
    }
    bytes.extend(name.bytes().chain(value.bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_with_the_specification_s_begin_record() {
        let bytes = Request::new(Protocol::Fastcgi, true).to_bytes();
        assert_eq!(bytes[..16], [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..18], [1, 4]);
        assert!(bytes.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]));
    }

    #[test]
    fn a_parameter_takes_the_place_of_the_usual_one() {
        let mut request = Request::new(Protocol::Fastcgi, true);
        request.parameters.push(("SCRIPT_NAME".into(), "v".repeat(200)));
        let params = request.params();
        let count = params.windows(11).filter(|w| w == b"SCRIPT_NAME").count();
        assert_eq!(count, 1);
        let long = [&[11, 0x80, 0, 0, 200][..], b"SCRIPT_NAMEvv"].concat();
        assert!(params.windows(long.len()).any(|w| w == long));
    }

    #[test]
    fn cuts_fall_inside_the_head_and_inside_the_body() {
        for protocol in [Protocol::Fastcgi, Protocol::Http] {
            let mut request = Request::new(protocol, true);
            request.body = 10_000;
            let head = request.cut_in_head();
            assert!(head.len() > 20 && !head.contains(&b'x') || protocol == Protocol::Fastcgi);
            assert!(!head.windows(4).any(|w| w == b"\r\n\r\n" || w == b"xxxx"));
            let body = request.cut_in_body();
            let sent = body.iter().filter(|b| **b == b'x').count();
            assert!((4_000..6_000).contains(&sent), "{sent}");
        }
    }
}
