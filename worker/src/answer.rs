//! The answer to a request, on its way to the connection.
//!
//! Always holds: the head is checked before its first byte leaves; a small answer is one system call; bodies are
//! cut into few large records (FastCGI 3.3) or chunks (RFC 9112, section 7.1); a HEAD request, 204 and 304 get no
//! body whatever the app writes; what is promised by Content-Length is kept or the connection is cut.

use crate::{Error, hand::HAND, socket, wait};
use hostler_proto::{EndRequest, Header, Kind, ProtocolStatus, record::CONTENT_MAX, token::is_token};
use http::StatusCode;
use nix::sys::socket::{MsgFlags, recv, send};
use std::{
    fs::File,
    io::{self, IoSlice, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::FileExt,
    },
    time::Duration,
};

/// Body bytes that are gathered before they are sent.
const FLUSH: usize = 32 * 1024;
/// A file up to this size is read into the answer; a larger one goes by `sendfile`.
const COPY_MAX: u64 = 16 * 1024;
/// Bytes of a FastCGI answer after which to look whether it is still wanted.
const LOOK_AFTER: usize = 256 * 1024;
/// Records or chunks that one system call takes.
const PIECES: usize = 16;

/// The protocol of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// FastCGI, with the request's id.
    Fastcgi {
        /// Echoed in each record.
        id: u16,
    },
    /// HTTP/1.`minor`.
    Http {
        /// 0 or 1.
        minor: u8,
        /// The connection may serve another request.
        keep: bool,
    },
}

/// How much of an answer is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No head yet.
    Fresh,
    /// The head waits in the buffer.
    Held,
    /// The head is out, the body ends with the connection, its length or its last record.
    Out,
    /// The head is out, the body goes by chunks.
    Chunks,
    /// Nothing more can be sent.
    Broken,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer is whole; the connection may serve another request.
    Whole,
    /// The answer is whole; the connection must be closed, after the client had time to read it.
    Close,
    /// The answer is cut, or another has answered: close at once.
    Cut,
}

/// The answer to a request; see the module. `Write` writes body bytes.
pub struct Answer<'a> {
    fd: BorrowedFd<'a>,
    wire: Wire,
    out: &'a mut Vec<u8>,
    /// Where the body begins in `out`, while the head waits there.
    body_at: usize,
    phase: Phase,
    head_only: bool,
    bodiless: bool,
    declared: Option<u64>,
    written: u64,
    status: u16,
    /// Bytes sent since the last look for ABORT_REQUEST.
    unlooked: usize,
    date: &'a str,
    write_timeout: Duration,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(
        fd: BorrowedFd<'a>,
        wire: Wire,
        out: &'a mut Vec<u8>,
        head_only: bool,
        date: &'a str,
        write_timeout: Duration,
    ) -> Answer<'a> {
        out.clear();
        Answer {
            fd,
            wire,
            out,
            body_at: 0,
            phase: Phase::Fresh,
            head_only,
            bodiless: head_only,
            declared: None,
            written: 0,
            status: 0,
            unlooked: 0,
            date,
            write_timeout,
        }
    }

    /// The status that was answered; 0 before the head.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first byte of the answer is out.
    #[must_use]
    pub fn is_out(&self) -> bool {
        !matches!(self.phase, Phase::Fresh | Phase::Held)
    }

    /// Body bytes that the app has written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The head is answered: a body is of no use, since the request was HEAD or the status has none.
    #[must_use]
    pub fn wants_no_body(&self) -> bool {
        self.bodiless
    }

    /// The head of the answer. Fields that belong to one connection alone (Connection, Transfer-Encoding, …) and
    /// `Status` are left out: they are the worker's.
    ///
    /// # Errors
    /// A head is there already, or a name or value cannot stand in a head.
    pub fn head(&mut self, status: StatusCode, fields: &[(&str, &[u8])]) -> Result<(), Error> {
        if self.phase != Phase::Fresh {
            return Err(Error::App("a second head for one answer".into()));
        }
        self.check(status, fields)?;
        self.status = status.as_u16();
        self.bodiless = self.head_only || matches!(self.status, 100..=199 | 204 | 304);
        let reason = status.canonical_reason().unwrap_or("");
        // Of FastCGI, behind the room for a record's header.
        const { assert!(Header::LEN == 8) };
        let begin: &[u8] = match (self.wire, status) {
            (Wire::Fastcgi { .. }, StatusCode::OK) => b"\0\0\0\0\0\0\0\0Status: 200 OK\r\n",
            (Wire::Fastcgi { .. }, _) => b"\0\0\0\0\0\0\0\0Status: ",
            (Wire::Http { .. }, StatusCode::OK) => b"HTTP/1.1 200 OK\r\n",
            (Wire::Http { .. }, _) => b"HTTP/1.1 ",
        };
        self.out.extend_from_slice(begin);
        if status != StatusCode::OK {
            for part in [status.as_str(), " ", reason, "\r\n"] {
                self.out.extend_from_slice(part.as_bytes());
            }
        }
        let mut dated = matches!(self.wire, Wire::Fastcgi { .. });
        for (name, value) in fields.iter().filter(|(name, _)| !is_ours(name)) {
            dated |= name.eq_ignore_ascii_case("date");
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                self.out.extend_from_slice(part);
            }
        }
        if !dated {
            for part in ["Date: ", self.date, "\r\n"] {
                self.out.extend_from_slice(part.as_bytes());
            }
        }
        if let Wire::Fastcgi { .. } = self.wire {
            self.out.extend_from_slice(b"\r\n");
        }
        self.body_at = self.out.len();
        self.phase = Phase::Held;
        Ok(())
    }

    fn check(&mut self, status: StatusCode, fields: &[(&str, &[u8])]) -> Result<(), Error> {
        if !(200..600).contains(&status.as_u16()) {
            return Err(Error::App(format!("an answer with the status {}", status.as_u16())));
        }
        self.declared = None;
        for (name, value) in fields {
            // Without an early end: the compiler looks at many bytes at once then.
            let breaks = |b: &u8| (*b < 0x20) & (*b != b'\t') | (*b == 0x7f);
            let broken = value.iter().fold(false, |broken, b| broken | breaks(b));
            if name.is_empty() || broken || !name.bytes().all(is_token) {
                return Err(Error::App(format!("an answer with a field that is none: {name:?}")));
            }
            if name.len() == 14 && name.eq_ignore_ascii_case("content-length") {
                match hostler_proto::length::content_length(Some(value)) {
                    hostler_proto::length::Length::Known(n) if self.declared.is_none_or(|d| d == n) => {
                        self.declared = Some(n);
                    }
                    _ => return Err(Error::App("an answer with a Content-Length that is none".into())),
                }
            }
        }
        Ok(())
    }

    /// Body bytes. They are sent when there are many, at [`Answer::flush`], or at the end.
    ///
    /// # Errors
    /// There is no head, more bytes than Content-Length says, the client is gone, or the answer was given by
    /// another.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if !self.admits(bytes.len() as u64)? {
            return Ok(());
        }
        if self.out.len() + bytes.len() <= FLUSH {
            self.begin_record();
            self.out.extend_from_slice(bytes);
            return Ok(());
        }
        self.send_held(bytes)
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// As [`Answer::write`].
    pub fn flush(&mut self) -> Result<(), Error> {
        match self.phase {
            Phase::Fresh => Ok(()),
            Phase::Broken => Err(Error::Gone),
            Phase::Held => self.send_held(&[]),
            Phase::Out | Phase::Chunks if self.out.is_empty() => Ok(()),
            Phase::Out | Phase::Chunks => self.send_held(&[]),
        }
    }

    /// `len` bytes of a file from `offset` on as body.
    ///
    /// # Errors
    /// As [`Answer::write`]; the file ends before.
    pub fn send_file(&mut self, file: &File, offset: u64, len: u64) -> Result<(), Error> {
        if !self.admits(len)? || len == 0 {
            return Ok(());
        }
        let by_kernel = matches!(self.wire, Wire::Http { .. }) && self.declared.is_some() && len > COPY_MAX;
        if by_kernel { self.send_by_kernel(file, offset, len) } else { self.send_by_copy(file, offset, len) }
    }

    fn send_by_copy(&mut self, file: &File, mut offset: u64, mut len: u64) -> Result<(), Error> {
        while len > 0 {
            self.begin_record();
            let room = CONTENT_MAX.saturating_sub(self.out.len());
            let n = usize::try_from(len).unwrap_or(usize::MAX).min(room);
            let start = self.out.len();
            self.out.resize(start + n, 0);
            let read = file.read_at(self.out.get_mut(start..).unwrap_or_default(), offset)?;
            self.out.truncate(start + read);
            if read == 0 && n > 0 {
                return Err(Error::App("a file that became shorter while it was sent".into()));
            }
            offset += read as u64;
            len -= read as u64;
            if len > 0 {
                self.send_held(&[])?;
            }
        }
        Ok(())
    }

    fn send_by_kernel(&mut self, file: &File, offset: u64, mut len: u64) -> Result<(), Error> {
        self.send_held_more()?;
        let mut at = i64::try_from(offset).map_err(|_| Error::App("an offset over 2^63".into()))?;
        while len > 0 {
            let n = usize::try_from(len).unwrap_or(usize::MAX).min(1 << 30);
            match nix::sys::sendfile::sendfile(self.fd, file, Some(&mut at), n) {
                Ok(0) => {
                    self.phase = Phase::Broken;
                    return Err(Error::App("a file that became shorter while it was sent".into()));
                }
                Ok(n) => len -= n as u64,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => self.wait()?,
                Err(_) => return self.broken(),
            }
        }
        Ok(())
    }

    /// Whether body bytes are wanted; counts them.
    #[inline]
    fn admits(&mut self, n: u64) -> Result<bool, Error> {
        match self.phase {
            Phase::Fresh => return Err(Error::App("a body without a head".into())),
            Phase::Broken => return Err(Error::Gone),
            Phase::Held | Phase::Out | Phase::Chunks => {}
        }
        self.written += n;
        if !self.bodiless && self.declared.is_some_and(|declared| self.written > declared) {
            self.written -= n;
            return Err(Error::App("a body longer than its Content-Length".into()));
        }
        Ok(!self.bodiless)
    }

    /// Room for the record header of FastCGI at the front of an empty buffer.
    #[inline]
    fn begin_record(&mut self) {
        if self.out.is_empty() && matches!(self.wire, Wire::Fastcgi { .. }) {
            self.out.extend_from_slice(&[0; Header::LEN]);
        }
    }

    /// Sends the buffer, then `bytes`.
    fn send_held(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self.wire {
            Wire::Fastcgi { id } => self.send_records(id, bytes),
            Wire::Http { .. } => self.send_http(bytes),
        }
    }

    fn send_records(&mut self, id: u16, bytes: &[u8]) -> Result<(), Error> {
        self.phase = Phase::Out.max_of(self.phase);
        close_record(self.out, id);
        let mut parts = bytes.chunks(CONTENT_MAX);
        let mut first = true;
        loop {
            let mut headers = [[0u8; Header::LEN]; PIECES];
            let mut slices = [IoSlice::new(&[]); PIECES * 2 + 1];
            let batch: Vec<&[u8]> = parts.by_ref().take(PIECES).collect();
            if batch.is_empty() && !first {
                return Ok(());
            }
            for (header, part) in headers.iter_mut().zip(&batch) {
                let length = u16::try_from(part.len()).unwrap_or(0);
                *header =
                    Header { kind: Kind::Stdout, id, content_length: length, padding_length: 0 }.to_bytes();
            }
            let held = if first { std::mem::take(self.out) } else { Vec::new() };
            let pieces = headers.iter().zip(&batch).flat_map(|(h, p)| [&h[..], p]);
            let mut count = 0;
            for (slot, piece) in slices.iter_mut().zip(std::iter::once(&held[..]).chain(pieces)) {
                *slot = IoSlice::new(piece);
                count += 1;
            }
            let sent = self.send(slices.get_mut(..count).unwrap_or_default());
            if first {
                *self.out = held;
                self.out.clear();
            }
            first = false;
            sent?;
        }
    }

    fn send_http(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut middle = Vec::new();
        if self.phase == Phase::Held {
            middle = self.http_head_end(None);
        }
        let held = std::mem::take(self.out);
        let (head, body) = held.split_at_checked(self.body_at).unwrap_or((&[], &held));
        let len = body.len() + bytes.len();
        let sent = if self.phase == Phase::Chunks && len > 0 {
            let size = format!("{len:x}\r\n");
            let mut slices = [head, &middle[..], size.as_bytes(), body, bytes, b"\r\n"].map(IoSlice::new);
            self.send(&mut slices)
        } else {
            self.send(&mut [head, &middle[..], body, bytes].map(IoSlice::new))
        };
        *self.out = held;
        self.out.clear();
        self.body_at = 0;
        sent
    }

    /// The end of an HTTP head: how the body is marked off, and what becomes of the connection. `len` is the
    /// body's whole length where it is known. Sets the phase.
    fn http_head_end(&mut self, len: Option<u64>) -> Vec<u8> {
        let Wire::Http { minor, keep } = &mut self.wire else { return Vec::new() };
        let mut end = Vec::with_capacity(64);
        self.phase = Phase::Out;
        let no_length = matches!(self.status, 100..=199 | 204 | 304);
        if self.declared.is_none() && !no_length {
            match len {
                Some(len) => end.extend_from_slice(format!("Content-Length: {len}\r\n").as_bytes()),
                None if *minor == 1 => {
                    end.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                    self.phase = if self.bodiless { Phase::Out } else { Phase::Chunks };
                }
                None => *keep = false,
            }
        }
        match (*keep, *minor) {
            (false, _) => end.extend_from_slice(b"Connection: close\r\n"),
            (true, 0) => end.extend_from_slice(b"Connection: keep-alive\r\n"),
            (true, _) => {}
        }
        end.extend_from_slice(b"\r\n");
        end
    }

    /// Sends the head of HTTP where it waits, and tells the kernel that more follows.
    fn send_held_more(&mut self) -> Result<(), Error> {
        let end = if self.phase == Phase::Held { self.http_head_end(None) } else { Vec::new() };
        self.out.splice(self.body_at..self.body_at, end);
        self.body_at = 0;
        if self.out.is_empty() {
            return Ok(());
        }
        if !HAND.claim() && !self.claimed() {
            return self.overtaken();
        }
        let flags = MsgFlags::from_bits_retain(libc::MSG_MORE | libc::MSG_NOSIGNAL);
        let n = match send(self.fd.as_raw_fd(), self.out, flags) {
            Ok(n) => n,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => 0,
            Err(_) => return self.broken(),
        };
        let held = std::mem::take(self.out);
        let sent = self.send(&mut [IoSlice::new(held.get(n..).unwrap_or_default())]);
        *self.out = held;
        self.out.clear();
        sent
    }

    /// Ends the answer: `Ok` where it is whole.
    pub(crate) fn finish(&mut self) -> Result<End, Error> {
        match self.phase {
            Phase::Fresh => return Err(Error::App("no answer".into())),
            Phase::Broken => return Ok(End::Cut),
            Phase::Held | Phase::Out | Phase::Chunks => {}
        }
        if !self.bodiless && self.declared.is_some_and(|declared| declared != self.written) {
            return Err(Error::App("a body shorter than its Content-Length".into()));
        }
        match self.wire {
            Wire::Fastcgi { id } => self.finish_fastcgi(id)?,
            Wire::Http { .. } => self.finish_http()?,
        }
        Ok(match self.wire {
            Wire::Http { keep: false, .. } => End::Close,
            _ => End::Whole,
        })
    }

    fn finish_fastcgi(&mut self, id: u16) -> Result<(), Error> {
        if self.out.is_empty() {
            self.out.extend_from_slice(&Header::padded(Kind::Stdout, id, 0).to_bytes());
        } else {
            close_record(self.out, id);
            self.out.extend_from_slice(&Header::padded(Kind::Stdout, id, 0).to_bytes());
        }
        let end = EndRequest { app_status: 0, protocol_status: ProtocolStatus::RequestComplete };
        self.out.extend_from_slice(&end.to_record(id));
        self.send_all()
    }

    fn finish_http(&mut self) -> Result<(), Error> {
        match self.phase {
            Phase::Held => {
                let end = self.http_head_end(Some(self.written));
                self.out.splice(self.body_at..self.body_at, end);
                self.send_all()
            }
            Phase::Chunks => {
                let size =
                    if self.out.is_empty() { String::new() } else { format!("{:x}\r\n", self.out.len()) };
                self.out.splice(0..0, size.into_bytes());
                self.out.extend_from_slice(if self.out.is_empty() { b"0\r\n\r\n" } else { b"\r\n0\r\n\r\n" });
                self.send_all()
            }
            _ if self.out.is_empty() => Ok(()),
            _ => self.send_all(),
        }
    }

    fn send_all(&mut self) -> Result<(), Error> {
        let held = std::mem::take(self.out);
        let sent = self.send(&mut [IoSlice::new(&held)]);
        *self.out = held;
        self.out.clear();
        sent
    }

    /// Takes back a head that is not out, so that another answer can be given.
    pub(crate) fn take_back(&mut self) -> bool {
        if self.is_out() {
            return false;
        }
        self.out.clear();
        self.body_at = 0;
        self.phase = Phase::Fresh;
        self.written = 0;
        self.declared = None;
        true
    }

    /// The connection is closed after this answer.
    pub(crate) fn close_after(&mut self) {
        if let Wire::Http { keep, .. } = &mut self.wire {
            *keep = false;
        }
    }

    /// Sends it all, waiting for the peer where it must.
    fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<(), Error> {
        if !HAND.claim() && !self.claimed() {
            return self.overtaken();
        }
        IoSlice::advance_slices(&mut slices, 0);
        self.unlooked += slices.iter().map(|slice| slice.len()).sum::<usize>();
        if self.unlooked > LOOK_AFTER {
            self.unlooked = 0;
            if self.is_aborted() {
                return self.broken();
            }
        }
        while !slices.is_empty() {
            match socket::write(self.fd, slices) {
                Ok(0) => return self.broken(),
                Ok(n) => IoSlice::advance_slices(&mut slices, n),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => self.wait()?,
                Err(_) => return self.broken(),
            }
        }
        Ok(())
    }

    /// The web server took the request back (FastCGI 5.4), and says nothing else first.
    fn is_aborted(&self) -> bool {
        let Wire::Fastcgi { id } = self.wire else { return false };
        let mut bytes = [0; Header::LEN];
        let peeked = recv(self.fd.as_raw_fd(), &mut bytes, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        peeked == Ok(Header::LEN)
            && Header::from_bytes(bytes)
                .is_ok_and(|header| header.kind == Kind::AbortRequest && header.id == id)
    }

    /// The claim was taken by this answer's own first byte.
    fn claimed(&self) -> bool {
        HAND.is_claimed()
    }

    fn wait(&mut self) -> Result<(), Error> {
        if wait::writable(self.fd, self.write_timeout)? { Ok(()) } else { self.broken() }
    }

    fn broken<T>(&mut self) -> Result<T, Error> {
        self.phase = Phase::Broken;
        Err(Error::Gone)
    }

    fn overtaken<T>(&mut self) -> Result<T, Error> {
        self.phase = Phase::Broken;
        Err(Error::Overtaken)
    }
}

impl Phase {
    /// A phase never goes back from chunks or a break.
    fn max_of(self, before: Phase) -> Phase {
        if matches!(before, Phase::Chunks | Phase::Broken) { before } else { self }
    }
}

impl Write for Answer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Answer::write(self, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(Answer::flush(self)?)
    }
}

impl AsFd for Answer<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

/// Writes the header of the record that `out` holds, and its padding.
fn close_record(out: &mut Vec<u8>, id: u16) {
    if out.is_empty() {
        return;
    }
    let header = Header::padded(Kind::Stdout, id, u16::try_from(out.len() - Header::LEN).unwrap_or(0));
    if let Some(front) = out.first_chunk_mut::<{ Header::LEN }>() {
        *front = header.to_bytes();
    }
    out.resize(out.len() + usize::from(header.padding_length), 0);
}

/// Fields that the worker writes itself, or that have a meaning for one connection alone.
fn is_ours(name: &str) -> bool {
    // Lengths first: most names are told apart by them.
    if !matches!(name.len(), 6 | 7 | 10 | 16 | 17) {
        return false;
    }
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "trailer", "status"]
        .iter()
        .any(|ours| name.eq_ignore_ascii_case(ours))
}
