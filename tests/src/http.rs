//! A small HTTP/1.1 client on raw sockets: it sends what a test writes, byte by byte, and reads answers strictly.
//!
//! Always refused: a status line or field that is not one, bare line feeds, Content-Length together with or
//! besides Transfer-Encoding, a chunk that is not one, a body cut short. Several answers on one connection are
//! read one after another, so that a byte too many in one breaks the next.

use crate::net::{Address, Stream};
use crate::reader::{Fault, fault};
use std::io::{BufRead, BufReader, Read, Write};

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// Fields in order; names as sent.
    pub fields: Vec<(String, String)>,
    /// The body, chunks joined, unless a sink took it.
    pub body: Vec<u8>,
    /// How long the body was.
    pub body_len: u64,
}

impl Answer {
    /// The value of a field, by its name in any case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection to an HTTP server.
#[derive(Debug)]
pub struct Connection<S = Stream> {
    stream: BufReader<S>,
}

impl Connection {
    /// Connects.
    #[must_use]
    pub fn to(address: &Address) -> Connection {
        Connection::over(address.connect())
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends `METHOD target` with Host and the given field lines (each without its line end), no body.
    pub fn ask(&mut self, method: &str, target: &str, fields: &[&str]) {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        self.send(head + "\r\n");
    }

    /// `GET target` and its answer.
    #[must_use]
    pub fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, &[]);
        self.answer("GET").unwrap()
    }

    /// `POST target` with a body and its answer.
    #[must_use]
    pub fn post(&mut self, target: &str, body: &[u8]) -> Answer {
        self.ask("POST", target, &[&format!("Content-Length: {}", body.len())]);
        self.send(body);
        self.answer("POST").unwrap()
    }

    /// The stream beneath.
    pub fn stream(&mut self) -> &mut Stream {
        self.stream.get_mut()
    }
}

impl<S: Read> Connection<S> {
    /// Over a stream that is open already.
    pub fn over(stream: S) -> Connection<S> {
        Connection { stream: BufReader::with_capacity(64 * 1024, stream) }
    }

    /// The next answer, interim ones (1xx) included.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn answer(&mut self, method: &str) -> Result<Answer, Fault> {
        let mut body = Vec::new();
        let mut answer = self.answer_into(method, &mut |part| body.extend(part))?;
        answer.body = body;
        Ok(answer)
    }

    /// Like [`Connection::answer`], the body given to `sink` piece by piece.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn answer_into(&mut self, method: &str, sink: &mut dyn FnMut(&[u8])) -> Result<Answer, Fault> {
        let mut answer = self.head()?;
        let lengths = answer.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case("content-length")).count();
        let coded = answer.field("transfer-encoding").map(str::to_owned);
        if lengths > 1 || (lengths == 1 && coded.is_some()) {
            return Err(Fault::Broken("two lengths in one answer".into()));
        }
        if method == "HEAD" || matches!(answer.status, 100..=199 | 204 | 304) {
            return Ok(answer);
        }
        let length = answer.field("content-length").map(str::parse::<u64>);
        answer.body_len = match (length, coded.as_deref()) {
            (Some(Ok(length)), _) => self.piece(length, sink)?,
            (Some(Err(_)), _) => return Err(Fault::Broken("Content-Length is no number".into())),
            (None, Some("chunked")) => self.chunks(sink)?,
            (None, Some(other)) => return Err(Fault::Broken(format!("Transfer-Encoding {other}"))),
            (None, None) => self.until_close(sink)?,
        };
        Ok(answer)
    }

    /// A line without its CR LF.
    fn line(&mut self) -> Result<String, Fault> {
        let mut bytes = Vec::new();
        self.stream.read_until(b'\n', &mut bytes).map_err(|e| fault(&e))?;
        if bytes.is_empty() {
            return Err(Fault::End);
        }
        let Some(line) = bytes.strip_suffix(b"\r\n") else {
            return Err(if bytes.ends_with(b"\n") { Fault::Broken("bare LF".into()) } else { Fault::Cut });
        };
        match String::from_utf8(line.to_vec()) {
            Ok(line) if !line.contains(|c: char| c.is_control()) => Ok(line),
            _ => Err(Fault::Broken(format!("line {line:?}"))),
        }
    }

    fn inner_line(&mut self) -> Result<String, Fault> {
        self.line().map_err(|f| if f == Fault::End { Fault::Cut } else { f })
    }

    fn head(&mut self) -> Result<Answer, Fault> {
        let line = self.line()?;
        let bad = || Fault::Broken(format!("status line {line:?}"));
        let (version, rest) = line.split_once(' ').ok_or_else(bad)?;
        let (code, _reason) = rest.split_once(' ').ok_or_else(bad)?;
        if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || code.len() != 3 {
            return Err(bad());
        }
        let mut answer = Answer {
            status: code.parse().map_err(|_| bad())?,
            version: version.to_owned(),
            ..Answer::default()
        };
        loop {
            let line = self.inner_line()?;
            if line.is_empty() {
                return Ok(answer);
            }
            let field = line.split_once(':').filter(|(name, _)| !name.is_empty() && !name.contains(' '));
            let (name, value) = field.ok_or_else(|| Fault::Broken(format!("field {line:?}")))?;
            answer.fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn piece(&mut self, len: u64, sink: &mut dyn FnMut(&[u8])) -> Result<u64, Fault> {
        let mut left = len;
        while left > 0 {
            let part = self.stream.fill_buf().map_err(|e| fault(&e))?;
            if part.is_empty() {
                return Err(Fault::Cut);
            }
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
            sink(&part[..n]);
            self.stream.consume(n);
            left -= n as u64;
        }
        Ok(len)
    }

    fn chunks(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, Fault> {
        let mut all = 0;
        loop {
            let line = self.inner_line()?;
            let size =
                u64::from_str_radix(&line, 16).map_err(|_| Fault::Broken(format!("chunk {line:?}")))?;
            self.piece(size, sink)?;
            all += size;
            // After the last chunk this is the end of an empty trailer.
            let end = self.inner_line()?;
            if !end.is_empty() {
                return Err(Fault::Broken(format!("{end:?} after a chunk")));
            }
            if size == 0 {
                return Ok(all);
            }
        }
    }

    fn until_close(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, Fault> {
        let mut all = 0;
        loop {
            let part = self.stream.fill_buf().map_err(|e| fault(&e))?;
            if part.is_empty() {
                return Ok(all);
            }
            sink(part);
            let n = part.len();
            all += n as u64;
            self.stream.consume(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Answer, Fault> {
        Connection::over(bytes).answer("GET")
    }

    #[test]
    fn answers_follow_each_other_on_one_connection() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n0\r\n\r\nHTTP/1.0 404 Not Found\r\nContent-Length: 1\r\n\r\nx";
        let mut connection = Connection::over(&bytes[..]);
        let statuses: Vec<u16> =
            std::iter::from_fn(|| connection.answer("GET").ok().map(|a| a.status)).collect();
        assert_eq!(statuses, [100, 200, 404]);
    }

    #[test]
    fn what_is_no_whole_answer_is_refused() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nNo field\r\n\r\n",
            b"Status: 200 OK\r\n\r\n",
        ] {
            assert!(read(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
