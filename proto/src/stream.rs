//! The rest of a body too large to gather: STDIN records that are read while the app runs.
//!
//! Always holds: holds no bytes; asks for a record header whole, and takes contents in whatever pieces come.

use crate::{
    Error,
    record::{Header, Kind, MANAGEMENT_ID},
};

/// What the next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// The next `n` bytes are body.
    Content(usize),
    /// The next `n` bytes are padding or of no interest.
    Skip(usize),
    /// Fewer bytes than a header are there: read on.
    More,
    /// The body is over; nothing more is taken.
    End,
    /// The web server took the request back (FastCGI 5.4).
    Aborted,
    /// Another request was begun on the connection: refuse this id with CANT_MPX_CONN, then go on.
    Multiplexed(u16),
}

/// Reads the STDIN records of one request, from a record border on.
#[derive(Debug)]
pub struct Stream {
    id: u16,
    content: usize,
    padding: usize,
    whole: bool,
}

impl Stream {
    /// A stream of the request `id`; `whole` where its end has been gathered already.
    #[must_use]
    pub fn new(id: u16, whole: bool) -> Stream {
        Stream { id, content: 0, padding: 0, whole }
    }

    /// The stream has ended.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.whole
    }

    /// Bytes of the record at hand that are still to come, where the app has had enough.
    #[must_use]
    pub fn left(&self) -> usize {
        self.content + self.padding
    }

    /// What `bytes`, the next ones, begin with. The caller passes over the bytes that it tells, and over
    /// the [`Header::LEN`] bytes of header when [`Piece::Skip`] says so.
    ///
    /// # Errors
    /// What the peer did wrong; the connection is to be closed.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Piece, Error> {
        if self.whole {
            return Ok(Piece::End);
        }
        if self.content > 0 && !bytes.is_empty() {
            let n = self.content.min(bytes.len());
            self.content -= n;
            return Ok(Piece::Content(n));
        }
        if self.padding > 0 && !bytes.is_empty() {
            let n = self.padding.min(bytes.len());
            self.padding -= n;
            return Ok(Piece::Skip(n));
        }
        let Some(head) = bytes.first_chunk::<{ Header::LEN }>() else { return Ok(Piece::More) };
        self.header(Header::from_bytes(*head)?)
    }

    fn header(&mut self, header: Header) -> Result<Piece, Error> {
        match header.kind {
            Kind::Stdin if header.id == self.id => {
                self.content = usize::from(header.content_length);
                self.padding = usize::from(header.padding_length);
                self.whole = self.content == 0 && self.padding == 0;
                if self.content == 0 && self.padding > 0 {
                    // The end of the body with padding: the padding is skipped as content of no interest.
                    self.whole = true;
                    return Ok(Piece::Skip(Header::LEN + std::mem::take(&mut self.padding)));
                }
                Ok(Piece::Skip(Header::LEN))
            }
            Kind::AbortRequest if header.id == self.id => Ok(Piece::Aborted),
            Kind::BeginRequest if header.id == self.id || header.id == MANAGEMENT_ID => {
                Err(Error::Unexpected(header.kind))
            }
            Kind::BeginRequest => {
                self.padding = Header::LEN + header.rest();
                Ok(Piece::Multiplexed(header.id))
            }
            Kind::Params | Kind::Stdin | Kind::Data | Kind::AbortRequest if header.id != self.id => {
                self.padding = header.rest();
                Ok(Piece::Skip(Header::LEN))
            }
            Kind::GetValues | Kind::Other(_) if header.id == MANAGEMENT_ID => {
                // Not answered inside a body: the web server waits for the answer of its request first.
                self.padding = header.rest();
                Ok(Piece::Skip(Header::LEN))
            }
            kind => Err(Error::Unexpected(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let header = Header { kind, id, content_length: content.len() as u16, padding_length: padding };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + usize::from(padding), 0);
        bytes
    }

    /// Feeds `bytes` at most `step` at a time; the body, and what is left after its end.
    fn read(bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize), Error> {
        let (mut stream, mut body, mut from, mut to) = (Stream::new(7, false), Vec::new(), 0, 0);
        loop {
            match stream.next(&bytes[from.min(to)..to])? {
                Piece::Content(n) => {
                    body.extend_from_slice(&bytes[from..from + n]);
                    from += n;
                }
                Piece::Skip(n) => from += n,
                Piece::More => {
                    assert!(to < bytes.len(), "never ended");
                    to = bytes.len().min(to.max(from) + step);
                }
                Piece::End => return Ok((body, bytes.len() - from)),
                Piece::Aborted => return Err(Error::Unexpected(Kind::AbortRequest)),
                Piece::Multiplexed(_) => {}
            }
        }
    }

    #[test]
    fn a_body_is_the_same_however_it_is_torn() {
        let bytes = [
            record(Kind::Stdin, 7, b"hello ", 2),
            record(Kind::GetValues, 0, b"abc", 5),
            record(Kind::Stdin, 8, b"not ours", 0),
            record(Kind::BeginRequest, 9, b"12345678", 0),
            record(Kind::Stdin, 7, b"world", 255),
            record(Kind::Stdin, 7, b"", 9),
            b"next".to_vec(),
        ]
        .concat();
        for step in 1..bytes.len() {
            assert_eq!(read(&bytes, step).unwrap(), (b"hello world".to_vec(), 4), "{step}");
        }
    }

    #[test]
    fn an_abort_and_what_does_not_belong_here_are_told() {
        for kind in [Kind::AbortRequest, Kind::BeginRequest, Kind::Params, Kind::Stdout, Kind::EndRequest] {
            assert_eq!(read(&record(kind, 7, b"", 0), 100), Err(Error::Unexpected(kind)), "{kind:?}");
        }
        assert_eq!(read(b"\x02\x05\0\x07\0\0\0\0", 100), Err(Error::Version(2)));
    }
}
