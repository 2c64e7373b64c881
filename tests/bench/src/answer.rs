//! Answers as they arrive, read as far as it takes to know that one is whole and right.
//!
//! Always holds: bytes may be cut anywhere; an answer is whole only by its own protocol's end, never by
//! silence. Does no I/O, and keeps no more than the first [`SEEN`] bytes.

use crate::request::Protocol;

/// Bytes of an answer kept to look for the expected text in.
pub const SEEN: usize = 4096;

/// How far an answer has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More must come.
    Partial,
    /// All there, and well.
    Whole,
    /// All there or broken, and why it counts as an error.
    Wrong(&'static str),
}

/// An answer in the making.
#[derive(Debug)]
pub struct Answer {
    seen: Vec<u8>,
    bytes: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Fastcgi(Records),
    Http(Body),
}

impl Answer {
    /// Nothing of an answer yet.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        let form = match protocol {
            Protocol::Fastcgi => Form::Fastcgi(Records::default()),
            Protocol::Http => Form::Http(Body::Head),
        };
        Self { seen: Vec::new(), bytes: 0, form }
    }

    /// Forgets all for the next answer on the same connection.
    pub fn clear(&mut self) {
        self.seen.clear();
        self.bytes = 0;
        match &mut self.form {
            Form::Fastcgi(records) => *records = Records::default(),
            Form::Http(body) => *body = Body::Head,
        }
    }

    /// Whether anything has come.
    #[must_use]
    pub fn begun(&self) -> bool {
        match &self.form {
            Form::Fastcgi(records) => records.have > 0 || records.left > 0 || !self.seen.is_empty(),
            Form::Http(_) => !self.seen.is_empty(),
        }
    }

    /// Takes what was read.
    pub fn feed(&mut self, bytes: &[u8]) -> Progress {
        self.bytes += bytes.len() as u64;
        match &mut self.form {
            Form::Fastcgi(records) => records.feed(bytes, &mut self.seen),
            Form::Http(body) => body.feed(bytes, &mut self.seen),
        }
    }

    /// The peer closed: whole where the end of the connection ends the answer.
    #[must_use]
    pub fn end(&self) -> Progress {
        match &self.form {
            Form::Http(Body::UntilClose) => Progress::Whole,
            _ if self.begun() => Progress::Wrong("cut answer"),
            _ => Progress::Wrong("closed without an answer"),
        }
    }

    /// Whether `text` is in the first bytes.
    #[must_use]
    pub fn shows(&self, text: &[u8]) -> bool {
        text.is_empty() || self.seen.windows(text.len()).any(|window| window == text)
    }

    /// Bytes that have come, those of the protocol among them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first bytes, for a message.
    #[must_use]
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).chars().take(200).collect()
    }
}

fn keep(seen: &mut Vec<u8>, bytes: &[u8]) {
    let room = SEEN.saturating_sub(seen.len());
    seen.extend(bytes.iter().take(room));
}

/// FastCGI records, cut anywhere. Specification, section 3.3.
#[derive(Debug, Default)]
struct Records {
    header: [u8; 8],
    have: usize,
    /// Content still to come of the record at hand, then its padding.
    left: usize,
    padding: usize,
    end: [u8; 8],
    ended: usize,
}

const END_REQUEST: u8 = 3;
const STDOUT: u8 = 6;

impl Records {
    fn feed(&mut self, mut bytes: &[u8], seen: &mut Vec<u8>) -> Progress {
        while !bytes.is_empty() {
            if self.left > 0 {
                let (content, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.content(content, seen);
                self.left -= content.len();
                bytes = rest;
            } else if self.padding > 0 {
                let skipped = self.padding.min(bytes.len());
                self.padding -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
            } else {
                bytes = self.head(bytes);
                continue;
            }
            if self.left == 0 && self.padding == 0 && self.ended == 8 {
                return self.verdict();
            }
        }
        Progress::Partial
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = bytes.split_at((8 - self.have).min(bytes.len()));
        for (to, from) in self.header.iter_mut().skip(self.have).zip(taken) {
            *to = *from;
        }
        self.have += taken.len();
        if self.have == 8 {
            let [_, _, _, _, high, low, padding, _] = self.header;
            self.left = usize::from(u16::from_be_bytes([high, low]));
            self.padding = usize::from(padding);
            self.have = 0;
        }
        rest
    }

    fn content(&mut self, content: &[u8], seen: &mut Vec<u8>) {
        match self.header[1] {
            STDOUT => keep(seen, content),
            END_REQUEST => {
                for byte in content {
                    if let Some(to) = self.end.get_mut(self.ended) {
                        *to = *byte;
                        self.ended += 1;
                    }
                }
            }
            _ => {}
        }
    }

    fn verdict(&self) -> Progress {
        match self.end {
            [0, 0, 0, 0, 0, ..] => Progress::Whole,
            [_, _, _, _, 0, ..] => Progress::Wrong("application status other than 0"),
            _ => Progress::Wrong("protocol status other than REQUEST_COMPLETE"),
        }
    }
}

/// An HTTP answer: head, then a body of one of three forms. RFC 9112, section 6.
#[derive(Debug)]
enum Body {
    Head,
    Sized(usize),
    Chunked(Chunks),
    UntilClose,
}

impl Body {
    fn feed(&mut self, bytes: &[u8], seen: &mut Vec<u8>) -> Progress {
        match self {
            Self::Head => {
                let before = seen.len();
                keep(seen, bytes);
                match head(seen) {
                    Ok(None) if seen.len() == SEEN => Progress::Wrong("head of over 4 KiB"),
                    Ok(None) => Progress::Partial,
                    Err(why) => Progress::Wrong(why),
                    Ok(Some((length, body))) => {
                        *self = body;
                        let rest = bytes.get(length.saturating_sub(before)..).unwrap_or_default();
                        self.body(rest)
                    }
                }
            }
            _ => {
                keep(seen, bytes);
                self.body(bytes)
            }
        }
    }

    fn body(&mut self, bytes: &[u8]) -> Progress {
        match self {
            Self::Head | Self::UntilClose => Progress::Partial,
            Self::Sized(left) if bytes.len() > *left => Progress::Wrong("more than content-length"),
            Self::Sized(left) => {
                *left -= bytes.len();
                if *left == 0 { Progress::Whole } else { Progress::Partial }
            }
            Self::Chunked(chunks) => chunks.feed(bytes),
        }
    }
}

/// Length of the head, and what form of body follows.
fn head(seen: &[u8]) -> Result<Option<(usize, Body)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(seen) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("bad HTTP head"),
    };
    if response.code != Some(200) {
        return Err("status other than 200");
    }
    let field = |name: &str| {
        let found = response.headers.iter().find(|f| f.name.eq_ignore_ascii_case(name));
        found.and_then(|f| std::str::from_utf8(f.value).ok())
    };
    let body = match (field("transfer-encoding"), field("content-length")) {
        (Some(_), _) => Body::Chunked(Chunks::default()),
        (None, Some(length)) => Body::Sized(length.trim().parse().map_err(|_| "bad content-length")?),
        (None, None) => Body::UntilClose,
    };
    Ok(Some((length, body)))
}

/// A chunked body. RFC 9112, section 7.1; trailers are not expected.
#[derive(Debug, Default)]
struct Chunks {
    /// Bytes of the chunk at hand, with the CRLF behind it.
    left: usize,
    size: usize,
    last: bool,
}

impl Chunks {
    fn feed(&mut self, mut bytes: &[u8]) -> Progress {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                if self.left == 0 && self.last {
                    return Progress::Whole;
                }
                continue;
            }
            match (byte, char::from(byte).to_digit(16)) {
                (_, Some(digit)) => self.size = self.size * 16 + digit as usize,
                (b'\n', _) => (self.left, self.last, self.size) = (self.size + 2, self.size == 0, 0),
                (b'\r', _) => {}
                _ => return Progress::Wrong("bad chunk size"),
            }
            bytes = rest;
        }
        Progress::Partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"\x01\x06\0\x01\0\x05\x03\0hello\0\0\0\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

    /// Feeds `bytes` cut after every `step`; the progress after the last piece.
    fn fed(protocol: Protocol, bytes: &[u8], step: usize) -> (Progress, Answer) {
        let mut answer = Answer::new(protocol);
        let mut progress = Progress::Partial;
        for piece in bytes.chunks(step) {
            assert_eq!(progress, Progress::Partial);
            progress = answer.feed(piece);
        }
        (progress, answer)
    }

    #[test]
    fn a_fastcgi_answer_is_whole_however_it_is_cut() {
        for step in 1..=STREAM.len() {
            let (progress, answer) = fed(Protocol::Fastcgi, STREAM, step);
            assert_eq!(progress, Progress::Whole, "cut every {step}");
            assert!(answer.shows(b"hello") && !answer.shows(b"other"));
        }
    }

    #[test]
    fn every_shorter_fastcgi_answer_is_cut() {
        for length in 1..STREAM.len() {
            let (progress, answer) = fed(Protocol::Fastcgi, &STREAM[..length], length);
            assert_eq!(progress, Progress::Partial);
            assert_eq!(answer.end(), Progress::Wrong("cut answer"));
        }
        assert_eq!(Answer::new(Protocol::Fastcgi).end(), Progress::Wrong("closed without an answer"));
    }

    #[test]
    fn a_refusal_by_the_server_is_an_error() {
        let mut overloaded = STREAM.to_vec();
        let at = overloaded.len() - 4;
        overloaded[at] = 2;
        let (progress, _) = fed(Protocol::Fastcgi, &overloaded, 7);
        assert_eq!(progress, Progress::Wrong("protocol status other than REQUEST_COMPLETE"));
    }

    #[test]
    fn http_answers_are_whole_by_length_by_chunks_and_by_close() {
        let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".as_slice();
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
                .as_slice();
        for bytes in [sized, chunked] {
            for step in 1..=bytes.len() {
                assert_eq!(fed(Protocol::Http, bytes, step).0, Progress::Whole, "cut every {step}");
            }
        }
        let (progress, answer) = fed(Protocol::Http, b"HTTP/1.0 200 OK\r\n\r\nhello", 3);
        assert_eq!((progress, answer.end()), (Progress::Partial, Progress::Whole));
    }

    #[test]
    fn an_http_error_is_an_error() {
        let (progress, _) = fed(Protocol::Http, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 99);
        assert_eq!(progress, Progress::Wrong("status other than 200"));
    }
}
