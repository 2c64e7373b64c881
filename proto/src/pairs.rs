//! Name-value pairs (FastCGI 3.4): lengths of one byte up to 127, of four bytes above.
//!
//! A stream of pairs may be cut into records anywhere, inside a length too: join the contents first.

use crate::Error;

/// The pairs of a whole stream, in order, borrowed from it.
///
/// After an error it ends.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// The pairs in `stream`.
    #[must_use]
    pub fn new(stream: &'a [u8]) -> Pairs<'a> {
        Pairs { rest: stream }
    }

    /// The next pair, where there is one; `None` in place of one that overruns the stream.
    #[inline]
    fn pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (name, value, rest) = match *self.rest {
            // As most are.
            [name, value, ref rest @ ..] if (name | value) < 128 => {
                (usize::from(name), usize::from(value), rest)
            }
            _ => long(self.rest)?,
        };
        let (name, rest) = rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.rest = rest;
        Some((name, value))
    }
}

/// Both lengths of a pair, and what is behind them.
#[cold]
fn long(stream: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (name, rest) = length(stream)?;
    let (value, rest) = length(rest)?;
    Some((name, value, rest))
}

fn length(stream: &[u8]) -> Option<(usize, &[u8])> {
    match *stream {
        [short, ref rest @ ..] if short < 128 => Some((usize::from(short), rest)),
        [b3, b2, b1, b0, ref rest @ ..] => {
            let length = u32::from_be_bytes([b3 & 0x7f, b2, b1, b0]);
            usize::try_from(length).ok().map(|length| (length, rest))
        }
        _ => None,
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.pair() {
            Some(pair) => Some(Ok(pair)),
            None => {
                self.rest = &[];
                Some(Err(Error::Pair))
            }
        }
    }
}

/// Appends a pair to `out`. A name or value of 2³¹ bytes and more cannot be written and is cut to that.
pub fn write_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    const MAX: usize = 0x7fff_ffff;
    let name = name.get(..MAX).unwrap_or(name);
    let value = value.get(..MAX).unwrap_or(value);
    for length in [name.len(), value.len()] {
        match u8::try_from(length) {
            Ok(short @ 0..128) => out.push(short),
            _ => {
                let length = u32::try_from(length).unwrap_or(u32::MAX) | 0x8000_0000;
                out.extend_from_slice(&length.to_be_bytes());
            }
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &[u8]) -> Result<Vec<(&[u8], &[u8])>, Error> {
        Pairs::new(stream).collect()
    }

    #[test]
    fn pairs_survive_the_wire_at_each_border_of_a_length() {
        for name in [0, 1, 126, 127, 128, 129, 300, 70_000] {
            for value in [0, 1, 127, 128, 65_535, 65_536] {
                let (name, value) = (vec![b'N'; name], vec![b'v'; value]);
                let mut stream = Vec::new();
                write_pair(&mut stream, &name, &value);
                write_pair(&mut stream, b"", b"x");
                assert_eq!(all(&stream).unwrap(), [(&name[..], &value[..]), (b"", b"x")]);
            }
        }
    }

    #[test]
    fn pairs_have_the_bytes_of_the_specification() {
        assert_eq!(all(b"\x01\x02Abc").unwrap(), [(&b"A"[..], &b"bc"[..])]);
        assert_eq!(all(b"\x80\0\0\x01\x02Abc").unwrap(), [(&b"A"[..], &b"bc"[..])]);
        assert_eq!(all(b"\x01\x80\0\0\x02Abc").unwrap(), [(&b"A"[..], &b"bc"[..])]);
        assert_eq!(all(b"").unwrap(), []);
    }

    #[test]
    fn a_pair_that_overruns_is_refused_and_ends_the_stream() {
        for stream in [
            &b"\x01"[..],
            b"\x01\x01A",
            b"\x02\x01AB",
            b"\x80\0\0",
            b"\xff\xff\xff\xff\x01A",
            b"\x01\xff\xff\xff\xffA",
            b"\x7f\x00short",
        ] {
            let mut pairs = Pairs::new(stream);
            assert_eq!(pairs.next(), Some(Err(Error::Pair)), "{stream:?}");
            assert_eq!(pairs.next(), None);
        }
    }
}
