//! The body of a request: what is gathered already, then what still comes from the connection.
//!
//! Always holds: never more than [`Limits::max_body`] bytes; a body that does not have the length it was said to
//! have is an error, not a short body; a peer that sends nothing for `read_timeout` is an error.
//!
//! [`Limits::max_body`]: crate::control::Limits

use crate::{Error, http1::Chunked, wait};
use hostler_proto::{Piece, Stream};
use std::{
    io::{self, BufRead, Read},
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

/// How the rest of a body is marked off on the connection.
pub(crate) enum Framing {
    /// Nothing more comes.
    Over,
    /// STDIN records.
    Fastcgi(Stream),
    /// So many bytes.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1).
    Chunked(Chunked),
}

impl Framing {
    fn next(&mut self, bytes: &[u8]) -> Result<Piece, Error> {
        match self {
            Framing::Over | Framing::Length(0) => Ok(Piece::End),
            Framing::Fastcgi(stream) => stream.next(bytes).map_err(|_| Error::Client(400, "a broken record")),
            Framing::Chunked(chunked) => {
                chunked.next(bytes).map_err(|_| Error::Client(400, "a broken chunk"))
            }
            Framing::Length(_) if bytes.is_empty() => Ok(Piece::More),
            Framing::Length(left) => {
                let n = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= n as u64;
                Ok(Piece::Content(n))
            }
        }
    }
}

/// Bytes of a connection that are read and not used yet. Its memory is used again.
#[derive(Default)]
pub(crate) struct Raw {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Raw {
    const SIZE: usize = 64 * 1024;

    /// Begins with the bytes that were read past the gathered part.
    pub(crate) fn begin(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.at = 0;
        self.end = bytes.len();
    }

    /// What is there.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }

    /// Passes over bytes.
    fn pass(&mut self, n: usize) {
        self.at = self.end.min(self.at + n);
    }

    /// Reads more behind what is there; 0 at the end of the connection.
    fn read(&mut self, fd: BorrowedFd<'_>) -> nix::Result<usize> {
        self.bytes.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        if self.bytes.len() < self.end + Raw::SIZE {
            self.bytes.resize(self.end + Raw::SIZE, 0);
        }
        let n = crate::socket::read(fd, self.bytes.get_mut(self.end..).unwrap_or_default())?;
        self.end += n;
        Ok(n)
    }
}

/// The body of a request; see the module. `Read` and `BufRead` wait for the peer, [`Body::try_read`] does not.
pub struct Body<'a> {
    gathered: &'a [u8],
    pieces: &'a [Range<usize>],
    /// Bytes of the first of `pieces` that are used.
    used: usize,
    framing: Framing,
    raw: &'a mut Raw,
    /// Body bytes at the front of `raw`.
    ready: usize,
    /// Bytes to pass over that are not read yet.
    skip: usize,
    total: u64,
    declared: Option<u64>,
    max: u64,
    read_timeout: Duration,
    fd: BorrowedFd<'a>,
    over: bool,
}

/// What a [`Body`] is made of.
pub(crate) struct Parts<'a> {
    pub(crate) gathered: &'a [u8],
    pub(crate) pieces: &'a [Range<usize>],
    pub(crate) framing: Framing,
    pub(crate) raw: &'a mut Raw,
    pub(crate) declared: Option<u64>,
    pub(crate) max: u64,
    pub(crate) read_timeout: Duration,
    pub(crate) fd: BorrowedFd<'a>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> Body<'a> {
        let Parts { gathered, pieces, framing, raw, declared, max, read_timeout, fd } = parts;
        let over = pieces.is_empty() && matches!(framing, Framing::Over);
        Body {
            gathered,
            pieces,
            used: 0,
            framing,
            raw,
            ready: 0,
            skip: 0,
            total: pieces.iter().map(|piece| piece.len() as u64).sum(),
            declared,
            max,
            read_timeout,
            fd,
            over,
        }
    }

    /// The length that the client told; `None` where it told none.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.declared
    }

    /// The length, where it is known: told, or counted since all of it has come.
    pub(crate) fn known_length(&self) -> Option<u64> {
        self.declared.or(matches!(self.framing, Framing::Over).then_some(self.total))
    }

    /// All of it has been read.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.over
    }

    /// Bytes are here that need no reading from the connection.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        !self.pieces.is_empty() || self.ready > 0 || !self.raw.rest().is_empty()
    }

    /// How long the peer may take to send more.
    pub(crate) fn read_timeout(&self) -> Duration {
        self.read_timeout
    }

    /// Reads what is there without waiting.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there yet: wait for [`Body::as_fd`] to be readable. Else as `Read`.
    pub fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = {
            let here = self.fill(false)?;
            let n = here.len().min(buf.len());
            if let (Some(to), Some(from)) = (buf.get_mut(..n), here.get(..n)) {
                to.copy_from_slice(from);
            }
            n
        };
        self.consume(n);
        Ok(n)
    }

    /// What stands behind the body, for the next request: bytes to skip first, then bytes that are read
    /// already. `None` where the rest of the body can only be drained by closing the connection.
    pub(crate) fn behind(&self) -> Option<(usize, &[u8])> {
        let rest = self.raw.rest().get(self.ready..).unwrap_or_default();
        match &self.framing {
            Framing::Fastcgi(stream) => Some((self.skip + stream.left(), rest)),
            Framing::Over | Framing::Length(0) if self.skip == 0 => Some((0, rest)),
            Framing::Chunked(chunked) if chunked.whole() && self.skip == 0 => Some((0, rest)),
            _ => None,
        }
    }

    /// Bytes at the front; empty at the end.
    fn fill(&mut self, wait: bool) -> Result<&[u8], Error> {
        while let Some(piece) = self.pieces.first() {
            if self.used < piece.len() {
                let (start, end) = (piece.start + self.used, piece.end);
                return Ok(self.gathered.get(start..end).unwrap_or_default());
            }
            self.pieces = self.pieces.get(1..).unwrap_or_default();
            self.used = 0;
        }
        while self.ready == 0 && !self.over {
            self.advance(wait)?;
        }
        Ok(self.raw.rest().get(..self.ready).unwrap_or_default())
    }

    /// One step towards the next body byte on the connection.
    fn advance(&mut self, wait: bool) -> Result<(), Error> {
        let passed = self.skip.min(self.raw.rest().len());
        self.raw.pass(passed);
        self.skip -= passed;
        let piece = if self.skip > 0 { Piece::More } else { self.framing.next(self.raw.rest())? };
        match piece {
            Piece::Content(n) => {
                self.count(n)?;
                self.ready = n;
            }
            Piece::Skip(n) => self.skip = n,
            Piece::More => self.read(wait)?,
            Piece::Aborted => return Err(Error::Gone),
            Piece::Multiplexed(id) => refuse(self.fd, id),
            Piece::End => {
                self.over = true;
                if self.declared.is_some_and(|n| n != self.total) {
                    return Err(Error::Client(400, "a body shorter than its length"));
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, wait: bool) -> Result<(), Error> {
        loop {
            match self.raw.read(self.fd) {
                Ok(0) => return Err(Error::Gone),
                Ok(_) => return Ok(()),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) if !wait => {
                    return Err(Error::System(io::ErrorKind::WouldBlock.into()));
                }
                Err(nix::Error::EAGAIN) => {
                    if !wait::readable(self.fd, self.read_timeout)? {
                        return Err(Error::Client(408, "no more of its body in time"));
                    }
                }
                Err(_) => return Err(Error::Gone),
            }
        }
    }

    fn count(&mut self, n: usize) -> Result<(), Error> {
        self.total += n as u64;
        if self.total > self.max {
            return Err(Error::Client(413, "a body over max_body"));
        }
        if self.declared.is_some_and(|declared| self.total > declared) {
            return Err(Error::Client(400, "a body longer than its length"));
        }
        Ok(())
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = {
            let here = self.fill(true)?;
            let n = here.len().min(buf.len());
            if let (Some(to), Some(from)) = (buf.get_mut(..n), here.get(..n)) {
                to.copy_from_slice(from);
            }
            n
        };
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Body<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.fill(true)?)
    }

    fn consume(&mut self, n: usize) {
        if self.pieces.is_empty() {
            let n = n.min(self.ready);
            self.ready -= n;
            self.raw.pass(n);
        } else {
            self.used += n;
        }
    }
}

impl AsFd for Body<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

/// Refuses a second request on the connection (FastCGI 5.5).
pub(crate) fn refuse(fd: BorrowedFd<'_>, id: u16) {
    use hostler_proto::{EndRequest, ProtocolStatus};
    let end = EndRequest { app_status: 0, protocol_status: ProtocolStatus::CantMpxConn };
    let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL;
    let _ = nix::sys::socket::send(fd.as_raw_fd(), &end.to_record(id), flags);
}
