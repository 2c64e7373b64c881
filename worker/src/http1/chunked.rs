//! Chunked bodies (RFC 9112, section 7.1), strictly: CR LF alone ends a line, sizes are plain hexadecimal.
//!
//! Chunk extensions and trailer fields are read and dropped. Holds no bytes.

use hostler_proto::Piece;

/// Bytes that one size line or the trailer may take.
const LINE_MAX: usize = 4096;

/// Reads chunks; see [`Piece`] for what it tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunked {
    state: State,
    left: u64,
    trailer: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data,
    DataEnd,
    Trailer,
    Over,
}

/// A chunk that is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Chunked {
    /// The last chunk and its trailer have been read.
    pub(crate) fn whole(&self) -> bool {
        self.state == State::Over
    }

    /// What `bytes`, the next ones, begin with.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Piece, Broken> {
        match self.state {
            State::Size => {
                let Some((line, len)) = line(bytes)? else { return Ok(Piece::More) };
                self.left = size(line)?;
                self.state = if self.left == 0 { State::Trailer } else { State::Data };
                Ok(Piece::Skip(len))
            }
            State::Data if bytes.is_empty() => Ok(Piece::More),
            State::Data => {
                let n = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= n as u64;
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                Ok(Piece::Content(n))
            }
            State::DataEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Piece::Skip(2))
                }
                [] | [b'\r'] => Ok(Piece::More),
                _ => Err(Broken),
            },
            State::Trailer => {
                let Some((line, len)) = line(bytes)? else { return Ok(Piece::More) };
                self.trailer += len;
                if self.trailer > LINE_MAX {
                    return Err(Broken);
                }
                if line.is_empty() {
                    self.state = State::Over;
                }
                Ok(Piece::Skip(len))
            }
            State::Over => Ok(Piece::End),
        }
    }
}

/// A line without its end, and its length with it.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Broken> {
    let Some(end) = bytes.iter().take(LINE_MAX).position(|b| *b == b'\n') else {
        return if bytes.len() >= LINE_MAX { Err(Broken) } else { Ok(None) };
    };
    let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(Broken)?;
    if line.iter().any(|b| (*b < 0x20 && *b != b'\t') || *b == 0x7f) {
        return Err(Broken);
    }
    Ok(Some((line, end + 1)))
}

fn size(line: &[u8]) -> Result<u64, Broken> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at_checked(digits).ok_or(Broken)?;
    if digits.is_empty() || digits.len() > 15 || !matches!(rest.trim_ascii_start(), [] | [b';', ..]) {
        return Err(Broken);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Broken)?;
    u64::from_str_radix(digits, 16).map_err(|_| Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize), Broken> {
        let (mut chunked, mut body, mut from, mut to) = (Chunked::default(), Vec::new(), 0, 0);
        loop {
            match chunked.next(&bytes[from..to])? {
                Piece::Content(n) => {
                    body.extend_from_slice(&bytes[from..from + n]);
                    from += n;
                }
                Piece::Skip(n) => from += n,
                Piece::End => return Ok((body, bytes.len() - from)),
                _ if to == bytes.len() => return Err(Broken),
                _ => to = bytes.len().min(to + step),
            }
        }
    }

    #[test]
    fn a_chunked_body_is_the_same_however_it_is_torn() {
        let bytes = b"5\r\nhello\r\n6;a=\"b\"\r\n world\r\n000\r\nX-T: 1\r\n\r\nnext";
        for step in 1..bytes.len() {
            assert_eq!(read(bytes, step), Ok((b"hello world".to_vec(), 4)), "{step}");
        }
    }

    #[test]
    fn a_chunk_that_is_none_is_refused() {
        for bytes in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5\r\nhello0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"-5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"\r\nhello\r\n0\r\n\r\n",
            b"g\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"5 5\r\nhello\r\n0\r\n\r\n",
            b"ffffffffffffffff\r\nhello",
            b"5;\0\r\nhello\r\n0\r\n\r\n",
            b"0\r\nX: y\n\r\n",
        ] {
            assert_eq!(read(bytes, 1000), Err(Broken), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(read(&[b'0'; 5000], 5000), Err(Broken));
        let endless = [b"0\r\n".to_vec(), b"X: y\r\n".repeat(1000)].concat();
        assert_eq!(read(&endless, 7), Err(Broken));
    }
}
