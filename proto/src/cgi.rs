//! The head of a CGI response (RFC 3875, section 6.2 and 6.3), as scripts and FastCGI programs really write it.
//!
//! Lines end with CR LF or LF. A first line `HTTP/1.1 404 Not Found` is taken as the status, as web servers do.
//!
//! Always holds: what [`Head::parse`] gives can be sent to a web server: names are tokens, values have no
//! control characters, the status is of three digits, and there is at least one field.

use crate::{Error, token::is_token};

/// The head of a response, borrowed from its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head<'a> {
    /// The status: as written, or 302 where there is a `Location` that is no local path, or 200.
    pub status: u16,
    /// Fields other than `Status`, in order.
    pub fields: Vec<(&'a str, &'a [u8])>,
    /// RFC 3875, section 6.2.2: the path and query that the server is to answer with in place of this.
    pub local_redirect: Option<&'a [u8]>,
    /// Bytes of the head, its empty line included.
    pub len: usize,
}

impl<'a> Head<'a> {
    /// The head that `bytes` begin with; `None` where its empty line has not come yet.
    ///
    /// # Errors
    /// [`Error::Head`] with what is wrong: no head at all, a line that is no field, or over `limit` bytes.
    pub fn parse(bytes: &'a [u8], limit: usize) -> Result<Option<Head<'a>>, Error> {
        let mut head = Head { status: 0, fields: Vec::new(), local_redirect: None, len: 0 };
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            head.len += end + 1;
            if head.len > limit {
                break;
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                return head.whole().map(Some);
            }
            head.line(line)?;
        }
        if bytes.len() > limit {
            return Err(Error::Head("no end within its limit"));
        }
        // Without this, a page without a head would be held back until it passed the limit.
        if rest.iter().take(128).all(|b| *b != b':') && rest.len() > 128 && !rest.starts_with(b"HTTP/") {
            return Err(Error::Head("a line that is no field"));
        }
        Ok(None)
    }

    fn line(&mut self, line: &'a [u8]) -> Result<(), Error> {
        if self.fields.is_empty() && self.status == 0 && line.starts_with(b"HTTP/") {
            let status =
                line.iter().position(|b| *b == b' ').and_then(|at| line.get(at..)).unwrap_or_default();
            self.status = status_code(status.trim_ascii())?;
            return Ok(());
        }
        let colon = line.iter().position(|b| *b == b':').ok_or(Error::Head("a line that is no field"))?;
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let name = std::str::from_utf8(name).map_err(|_| Error::Head("a field name that is none"))?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(Error::Head("a field name that is none"));
        }
        if value.iter().any(|b| (*b < 0x20 && *b != b'\t') || *b == 0x7f) {
            return Err(Error::Head("a control character in a field"));
        }
        if name.eq_ignore_ascii_case("Status") {
            self.status = status_code(value)?;
        } else {
            self.fields.push((name, value));
        }
        Ok(())
    }

    fn whole(mut self) -> Result<Head<'a>, Error> {
        if self.fields.is_empty() && self.status == 0 {
            return Err(Error::Head("no field"));
        }
        let location =
            self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("Location")).map(|f| f.1);
        if self.status == 0 {
            match location {
                Some(path)
                    if path.starts_with(b"/") && !path.starts_with(b"//") && self.fields.len() == 1 =>
                {
                    self.local_redirect = Some(path);
                    self.status = 200;
                }
                Some(_) => self.status = 302,
                None => self.status = 200,
            }
        }
        Ok(self)
    }
}

/// Three digits from 100 to 599 at the front of a status value.
fn status_code(value: &[u8]) -> Result<u16, Error> {
    match *value {
        [a @ b'1'..=b'5', b, c, ref rest @ ..]
            if b.is_ascii_digit() && c.is_ascii_digit() && matches!(rest, [] | [b' ', ..]) =>
        {
            Ok(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
        }
        _ => Err(Error::Head("a status that is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Option<Head<'_>>, Error> {
        Head::parse(bytes, 8192)
    }

    #[test]
    fn a_head_ends_at_its_empty_line_with_either_line_end() {
        let head = parse(b"Content-Type: text/html\r\nX-A:b \r\n\r\nbody").unwrap().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.fields, [("Content-Type", &b"text/html"[..]), ("X-A", b"b")]);
        assert_eq!(head.len, 35);
        assert_eq!(parse(b"Content-Type: a\n\nbody").unwrap().unwrap().len, 17);
    }

    #[test]
    fn a_head_that_is_torn_anywhere_is_waited_for() {
        let bytes = b"Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\n";
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(parse(bytes).unwrap().unwrap().status, 404);
    }

    #[test]
    fn status_and_location_follow_rfc_3875() {
        for (bytes, status) in [
            (&b"Status: 204\n\n"[..], 204),
            (b"status: 599 Whatever\nA: b\n\n", 599),
            (b"Location: http://example.org/\n\n", 302),
            (b"Location: /here\nContent-Type: text/plain\n\n", 302),
            (b"Location: //evil/\n\n", 302),
            (b"Status: 301 Moved\nLocation: /x\n\n", 301),
            (b"HTTP/1.1 418 Teapot\r\nA: b\r\n\r\n", 418),
        ] {
            let head = parse(bytes).unwrap().unwrap();
            assert_eq!((head.status, head.local_redirect), (status, None), "{bytes:?}");
        }
        let head = parse(b"Location: /other?x=1\n\n").unwrap().unwrap();
        assert_eq!(head.local_redirect, Some(&b"/other?x=1"[..]));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for bytes in [
            &b"\n"[..],
            b"\r\n\r\n",
            b"<html>\n<body>",
            b"Content-Type text\n\n",
            b": value\n\n",
            b"Bad Name: x\n\n",
            b" Folded: x\n\n",
            b"A: b\n folded\n\n",
            b"N\xe4me: x\n\n",
            b"A: b\0c\n\n",
            b"A: b\x7f\n\n",
            b"A: b\rc\n\n",
            b"Status: 20\n\n",
            b"Status: 2000\n\n",
            b"Status: 600 x\n\n",
            b"Status: abc\n\n",
            b"HTTP/1.1\nA: b\n\n",
        ] {
            assert!(parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert!(parse(&[b'x'; 200]).is_err());
    }

    #[test]
    fn a_head_over_its_limit_is_refused() {
        let long = [b"A: ".to_vec(), vec![b'x'; 9000], b"\n\n".to_vec()].concat();
        assert_eq!(parse(&long), Err(Error::Head("no end within its limit")));
        assert!(Head::parse(&long, 10_000).unwrap().is_some());
    }
}
