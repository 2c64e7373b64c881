//! Moves one request to a program and its answer back, both ways at once: body to STDIN, STDOUT to the answer,
//! STDERR to the log.
//!
//! Always holds: nothing is buffered that grows with a body or an answer; the program's answer is read whether or not
//! it can take more of the body, so a program that echoes cannot deadlock; the head is whole and checked before its
//! first byte leaves; a client that leaves is noticed. The answer begins when the body is here: nginx sends nothing
//! more of a body once it has the head of the answer, and many a client reads no answer before it has sent its body.
//! Where the program has much to say before, the rest of the body goes to a file first.
//!
//! The cheap way, for a request that is all there: one write, one read that waits for at most [`QUICK`]. After that,
//! and for a body that streams, it waits for program and client together.

use super::{
    incoming::{Incoming, Piece},
    outgoing::Outgoing,
};
use crate::{Error, answer::Answer, cgi::lines::Lines, request::Request};
use hostler_proto::{EndRequest, ProtocolStatus, Role, cgi::Head};
use http::StatusCode;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, send},
};
use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

/// How long the first read waits for the program alone.
pub(super) const QUICK: Duration = Duration::from_millis(10);
/// Milliseconds that a part of an answer waits for more of it before it is sent.
const GATHER: u8 = 3;
/// Output that is taken from the program while it must not be sent yet.
const HELD_LIMIT: usize = 64 * 1024;
/// The longest head of an answer, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;
/// The peer has closed its sending side; nix has no name for it.
const HUNG_UP: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// Where the body comes from.
pub(super) enum Source {
    /// From the client.
    Request,
    /// It was gathered here first.
    File(File),
    /// There is none, or no more of it.
    Over,
}

/// How it went.
pub(super) enum Outcome {
    /// The answer is written; the connection can carry another request where `clean`.
    Answered { clean: bool },
    /// The program wants another path and query to answer (RFC 3875, section 6.2.2).
    LocalRedirect { target: Vec<u8>, clean: bool },
    /// The program has closed the connection before the end; `begun` where some of its answer had come.
    Lost { begun: bool },
}

/// Buffers that are used again.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) out: Outgoing,
    pub(super) incoming: Incoming,
    /// Output whose head is not whole, or that must not be sent yet.
    head: Vec<u8>,
}

/// How far the answer is.
enum Stage {
    Head,
    Body,
    Redirect(Vec<u8>),
}

/// One request on its way; see the module.
pub(super) struct Pump<'p, 'r, 'a> {
    request: &'p mut Request<'r>,
    answer: &'p mut Answer<'a>,
    conn: &'p UnixStream,
    buffers: &'p mut Buffers,
    source: Source,
    stage: Stage,
    complaints: Lines,
    begun: bool,
    /// Part of the answer waits in its buffer.
    unsent: bool,
    /// Bytes came from the client that are no body and no farewell: there is no use in watching for more.
    deaf: bool,
    /// When the client last sent some of its body.
    heard: Option<Instant>,
}

/// What a wait found.
#[derive(Default)]
struct Ready {
    program: bool,
    client: bool,
    timed_out: bool,
}

impl<'p, 'r, 'a> Pump<'p, 'r, 'a> {
    /// Between `request`, whose parameters are in `buffers` already, and the program at the other end of `conn`.
    pub(super) fn new(
        request: &'p mut Request<'r>,
        answer: &'p mut Answer<'a>,
        conn: &'p UnixStream,
        buffers: &'p mut Buffers,
        source: Source,
    ) -> Self {
        buffers.incoming.clear();
        buffers.head.clear();
        Pump {
            request,
            answer,
            conn,
            buffers,
            source,
            stage: Stage::Head,
            complaints: Lines::default(),
            begun: false,
            unsent: false,
            deaf: false,
            heard: None,
        }
    }

    /// Runs until the answer is whole.
    ///
    /// # Errors
    /// The client is gone or broke its body, or the program failed.
    pub(super) fn run(mut self) -> Result<Outcome, Error> {
        // An Authorizer is not sent the body (FastCGI 6.3).
        if matches!(self.source, Source::Over) && self.request.role() != Role::Authorizer {
            self.buffers.out.end_body();
            self.add_data();
        }
        let moved = self.flow();
        let request = &*self.request;
        self.complaints.finish(&mut |line| request.log(line));
        moved
    }

    fn flow(&mut self) -> Result<Outcome, Error> {
        self.feed()?;
        if self.is_fed()
            && let Some(outcome) = self.receive(true)?
        {
            return Ok(outcome);
        }
        loop {
            let ready = self.wait()?;
            if ready.program
                && let Some(outcome) = self.receive(false)?
            {
                return Ok(outcome);
            }
            if ready.client && !self.wants_body() {
                if self.request.client_gone() {
                    return Err(Error::Gone);
                }
                self.deaf = true;
            }
            self.feed()?;
            if ready.timed_out {
                self.timed_out()?;
            }
            if self.buffers.head.len() >= HELD_LIMIT && !self.may_answer() {
                self.divert()?;
            }
            self.release()?;
        }
    }

    /// The answer may begin: the body is here, or the program wants no more of it.
    fn may_answer(&self) -> bool {
        !matches!(self.source, Source::Request)
    }

    /// Begins the answer where it may and its head is here.
    fn release(&mut self) -> Result<(), Error> {
        if self.may_answer() && !self.buffers.head.is_empty() { self.begin(&[]) } else { Ok(()) }
    }

    /// Takes the rest of the body in without waiting for the program to take it, since there is output to send.
    fn divert(&mut self) -> Result<(), Error> {
        self.source = Source::File(super::gather(self.request)?.0);
        self.feed()
    }

    /// Takes `bytes` as the first of the answer, and begins it where its head is whole.
    fn begin(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let (Stage::Head, Some(next)) = (&self.stage, begin(&mut self.buffers.head, bytes, self.answer)?) {
            self.buffers.head.clear();
            self.stage = next;
            self.unsent = true;
        }
        Ok(())
    }

    /// All of the request is sent.
    fn is_fed(&self) -> bool {
        matches!(self.source, Source::Over) && self.buffers.out.pending().is_empty()
    }

    /// All that came of the body is sent, and more is to come from the client.
    fn wants_body(&self) -> bool {
        matches!(self.source, Source::Request) && self.buffers.out.pending().is_empty()
    }

    /// Sends as much of the request as is there and as the program takes.
    fn feed(&mut self) -> Result<(), Error> {
        loop {
            while !self.buffers.out.is_full() && self.fill()? {}
            let pending = self.buffers.out.pending();
            if pending.is_empty() {
                return Ok(());
            }
            match send(self.conn.as_raw_fd(), pending, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => self.buffers.out.pass(count),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                // The program takes no more; its answer may be there all the same.
                Err(_) => {
                    self.buffers.out.clear();
                    self.source = Source::Over;
                }
            }
        }
    }

    /// Takes more of the body in; `false` where nothing is there now.
    fn fill(&mut self) -> Result<bool, Error> {
        let out = &mut self.buffers.out;
        let filled = match &mut self.source {
            Source::Over => return Ok(false),
            Source::File(file) => out.body(|room| file.read(room)),
            Source::Request => out.body(|room| self.request.body().try_read(room)),
        };
        match filled {
            Ok(0) => {
                self.source = Source::Over;
                self.add_data();
            }
            Ok(_) => self.heard = None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// After the body, the file that a Filter works on; it was gathered, so there is room for it.
    fn add_data(&mut self) {
        if self.request.role() == Role::Filter {
            self.buffers.out.data(self.request.data());
        }
    }

    fn wait(&mut self) -> Result<Ready, Error> {
        let wants_body = self.wants_body();
        let timeout = self.timeout(wants_body);
        let mut from_program = PollFlags::POLLIN;
        from_program.set(PollFlags::POLLOUT, !self.buffers.out.pending().is_empty());
        let mut from_client = HUNG_UP;
        from_client.set(PollFlags::POLLIN, wants_body || !self.deaf);
        let client = self.request.body();
        let mut fds =
            [PollFd::new(self.conn.as_fd(), from_program), PollFd::new(client.as_fd(), from_client)];
        let count = match poll(&mut fds, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        };
        // What nix has no name for (see HUNG_UP) hides all the rest of it.
        let [program, client] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::POLLHUP));
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        Ok(Ready { program: program.intersects(readable), client: !client.is_empty(), timed_out: count == 0 })
    }

    /// How long to wait for anything: a moment where output is held back, else for as long as the client may take
    /// to send more of its body, else for ever.
    fn timeout(&mut self, wants_body: bool) -> PollTimeout {
        if self.unsent {
            return PollTimeout::from(GATHER);
        }
        if !wants_body {
            return PollTimeout::NONE;
        }
        let heard = self.heard.get_or_insert_with(Instant::now).elapsed();
        let left = self.request.body().read_timeout().saturating_sub(heard);
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }

    fn timed_out(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.unsent) {
            return if self.may_answer() { self.answer.flush() } else { self.divert() };
        }
        let limit = self.request.body().read_timeout();
        if self.wants_body() && self.heard.is_some_and(|heard| heard.elapsed() >= limit) {
            return Err(Error::Client(408, "no more of its body in time"));
        }
        Ok(())
    }

    /// Reads what the program has sent, and passes it on; how it went, where that was the end.
    fn receive(&mut self, wait: bool) -> Result<Option<Outcome>, Error> {
        match self.buffers.incoming.read(self.conn, wait) {
            Ok(0) | Err(Errno::ECONNRESET | Errno::EPIPE) => Ok(Some(Outcome::Lost { begun: self.begun })),
            Ok(_) => self.pass_on(),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn pass_on(&mut self) -> Result<Option<Outcome>, Error> {
        loop {
            let Buffers { out, incoming, head } = &mut *self.buffers;
            match incoming.next(out.id()) {
                Piece::More => return Ok(None),
                Piece::Values => {}
                Piece::Stderr(bytes) => {
                    let request = &*self.request;
                    self.complaints.push(bytes, &mut |line| request.log(line));
                }
                Piece::Stdout(bytes) => {
                    self.begun = true;
                    match self.stage {
                        Stage::Redirect(_) => {}
                        Stage::Body => {
                            self.unsent = true;
                            self.answer.write(bytes)?;
                        }
                        Stage::Head if matches!(self.source, Source::Request) => {
                            head.extend_from_slice(bytes);
                            self.unsent = true;
                        }
                        Stage::Head => {
                            if let Some(next) = begin(head, bytes, self.answer)? {
                                head.clear();
                                self.stage = next;
                                self.unsent = true;
                            }
                        }
                    }
                }
                Piece::End(end) => {
                    // It wants no more of the body.
                    if !head.is_empty() {
                        self.begin(&[])?;
                    }
                    return self.end(end).map(Some);
                }
                Piece::Broken => {
                    return Err(Error::Upstream(502, "the program sent what is no FastCGI".into()));
                }
            }
        }
    }

    fn end(&mut self, end: EndRequest) -> Result<Outcome, Error> {
        let clean = self.is_fed() && self.buffers.incoming.is_empty();
        let refused = match end.protocol_status {
            _ if self.begun => None,
            ProtocolStatus::RequestComplete => None,
            ProtocolStatus::Overloaded => Some((503, "is overloaded")),
            ProtocolStatus::UnknownRole => Some((502, "does not know the role of the request")),
            ProtocolStatus::CantMpxConn | ProtocolStatus::Other(_) => Some((502, "refused the request")),
        };
        if let Some((status, why)) = refused {
            return Err(Error::Upstream(status, format!("the program {why}")));
        }
        match std::mem::replace(&mut self.stage, Stage::Body) {
            Stage::Body => Ok(Outcome::Answered { clean }),
            Stage::Redirect(target) => Ok(Outcome::LocalRedirect { target, clean }),
            Stage::Head => Err(Error::App("the program ended its answer before it had a head".into())),
        }
    }
}

/// Begins the answer, where all of its head is in `held` and `bytes`, and says how it goes on.
fn begin(held: &mut Vec<u8>, bytes: &[u8], answer: &mut Answer<'_>) -> Result<Option<Stage>, Error> {
    if held.is_empty() {
        let next = parse(bytes, answer)?;
        if next.is_none() {
            held.extend_from_slice(bytes);
        }
        return Ok(next);
    }
    held.extend_from_slice(bytes);
    parse(held, answer)
}

fn parse(output: &[u8], answer: &mut Answer<'_>) -> Result<Option<Stage>, Error> {
    let fault = |error| Error::App(format!("the program wrote a {error}"));
    let Some(head) = Head::parse(output, HEAD_LIMIT).map_err(fault)? else { return Ok(None) };
    if let Some(target) = head.local_redirect {
        return Ok(Some(Stage::Redirect(target.to_vec())));
    }
    if head.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("Transfer-Encoding")) {
        return Err(Error::App("the program frames its answer itself (Transfer-Encoding)".into()));
    }
    let status =
        StatusCode::from_u16(head.status).map_err(|e| Error::App(format!("the program's status: {e}")))?;
    answer.head(status, &head.fields)?;
    answer.write(output.get(head.len..).unwrap_or_default())?;
    Ok(Some(Stage::Body))
}
