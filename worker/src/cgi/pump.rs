//! Moves bytes between a client and a script, both ways at once: the body to the script's input, its output to the
//! answer, its complaints to the log.
//!
//! Always holds: no memory grows with a body or an answer; the answer begins when the body is here, or is not wanted
//! ([`super::intake`] says why), and the body comes in whether or not the script takes it, so a script that echoes
//! cannot deadlock; the answer ends when the script itself has ended and its pipe is empty, whoever else holds
//! the pipe; a client that leaves ends the script.

use super::{
    child::{self, Child, Pipes},
    intake::Intake,
    lines::Lines,
};
use crate::{Error, answer::Answer, request::Request};
use hostler_proto::cgi::Head;
use http::StatusCode;
use nix::{
    fcntl::{FcntlArg, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    time::Duration,
};

/// The longest head of an answer, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;
/// Output that is taken from the script while it must not be sent yet.
const HELD_LIMIT: usize = 64 * 1024;
/// Bytes of output moved at once: what a pipe holds.
const PIECE: usize = 64 * 1024;
/// Milliseconds that output waits for more of it before it is sent.
const GATHER: u8 = 3;

/// Pieces of output that are moved before the other directions have their turn.
const TURN: usize = 4;

/// The peer has closed its sending side; nix has no name for it.
const HUNG_UP: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// How a script's answer came out.
pub(super) enum Outcome {
    /// It is written.
    Answered,
    /// The script wants another path and query to answer (RFC 3875, section 6.2.2).
    LocalRedirect(Vec<u8>),
}

/// What flows between a request and a script.
pub(super) struct Pump<'p, 'r, 'a> {
    request: &'p mut Request<'r>,
    answer: &'p mut Answer<'a>,
    pipes: Pipes,
    intake: Intake,
    /// Bytes came from the client that are no body and no farewell: there is no use in watching for more.
    deaf: bool,
    output: Output,
    complaints: Lines,
    piece: Vec<u8>,
    /// Output waits to be sent.
    unsent: bool,
}

/// How far the answer is.
enum Output {
    /// Its head is not whole, or must not leave yet.
    Head(Vec<u8>),
    /// Its head is out.
    Body,
    /// It is another's to answer; what else the script writes is dropped.
    Redirect(Vec<u8>),
}

/// What to wait for.
#[derive(Clone, Copy)]
enum Event {
    Stdin,
    Stdout,
    Stderr,
    Exited,
    Client,
}

/// What [`Pump::wait`] found.
#[derive(Default)]
struct Ready {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    exited: bool,
    client: bool,
    timed_out: bool,
}

impl<'p, 'r, 'a> Pump<'p, 'r, 'a> {
    /// Between `request` and the script behind `pipes`.
    pub(super) fn new(request: &'p mut Request<'r>, answer: &'p mut Answer<'a>, pipes: Pipes) -> Self {
        Pump {
            request,
            answer,
            pipes,
            intake: Intake::new(),
            deaf: false,
            output: Output::Head(Vec::new()),
            complaints: Lines::default(),
            piece: vec![0; PIECE],
            unsent: false,
        }
    }

    /// Runs until the answer is whole; ends the script in any case.
    ///
    /// # Errors
    /// The client is gone or broke its body, or the script failed.
    pub(super) fn run(mut self, child: Child) -> Result<Outcome, Error> {
        let flowed = self.flow(&child);
        self.pipes.stdin = None;
        let ended = match flowed {
            Ok(()) => child.finish().map_err(Error::from),
            Err(error) => {
                child.stop();
                Err(error)
            }
        };
        self.read_stderr();
        let request = &*self.request;
        self.complaints.finish(&mut |line| request.log(line));
        let fault = match ended? {
            None => {
                request.log(b"the script ran on after it had closed its output, and was ended");
                return self.outcome();
            }
            Some(status) => child::fault(status),
        };
        match (&self.output, fault) {
            (Output::Head(_), Some((fault, _))) => {
                Err(Error::App(format!("{fault} before its answer had a head")))
            }
            // A signal is a crash: the answer may be cut, and that must show.
            (Output::Body, Some((fault, true))) => Err(Error::App(fault)),
            (_, Some((fault, _))) => {
                request.log(fault.as_bytes());
                self.outcome()
            }
            (_, None) => self.outcome(),
        }
    }

    fn outcome(self) -> Result<Outcome, Error> {
        match self.output {
            Output::Head(_) => Err(Error::App("the script ended before its answer had a head".into())),
            Output::Body => Ok(Outcome::Answered),
            Output::Redirect(target) => Ok(Outcome::LocalRedirect(target)),
        }
    }

    /// Moves bytes until the script's output has ended.
    fn flow(&mut self, child: &Child) -> Result<(), Error> {
        self.feed()?;
        while self.pipes.stdout.is_some() {
            let ready = self.wait(child)?;
            if ready.stderr {
                self.read_stderr();
            }
            if ready.exited {
                self.pipes.stdin = None;
                self.drain()?;
                break;
            }
            if ready.stdout {
                self.read_stdout()?;
            }
            if ready.client && !self.listens() {
                if self.request.client_gone() {
                    return Err(Error::Gone);
                }
                self.deaf = true;
            }
            if ready.stdin || ready.client {
                self.feed()?;
            }
            if ready.timed_out {
                self.timed_out()?;
            }
            self.release()?;
        }
        self.pipes.stdin = None;
        self.release()
    }

    /// More of the body can be taken in.
    fn listens(&self) -> bool {
        self.pipes.stdin.is_some() && self.intake.listens()
    }

    /// The answer may begin: the body is here, or the script wants no more of it.
    fn may_answer(&self) -> bool {
        self.pipes.stdin.is_none() || self.intake.is_over()
    }

    /// Begins the answer where it may and can.
    fn release(&mut self) -> Result<(), Error> {
        match &self.output {
            Output::Head(held) if self.may_answer() && !held.is_empty() => {
                if let Some(next) = begin(held, self.answer)? {
                    self.output = next;
                    self.unsent = true;
                }
                Ok(())
            }
            Output::Head(held) if held.len() >= HELD_LIMIT => self.divert(),
            _ => Ok(()),
        }
    }

    /// Takes the body in without waiting for the script to take it, since there is output to send.
    fn divert(&mut self) -> Result<(), Error> {
        if !self.intake.divert()? {
            return Ok(());
        }
        self.feed()?;
        self.release()
    }

    fn wait(&mut self, child: &Child) -> Result<Ready, Error> {
        let listens = self.listens();
        let timeout = self.timeout(listens);
        let full =
            matches!(&self.output, Output::Head(held) if held.len() >= HELD_LIMIT && !self.may_answer());
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        let mut events: Vec<Event> = Vec::with_capacity(5);
        let mut watch = |fd, flags, event| {
            fds.push(PollFd::new(fd, flags));
            events.push(event);
        };
        if let Some(stdout) = self.pipes.stdout.as_ref().filter(|_| !full) {
            watch(stdout.as_fd(), PollFlags::POLLIN, Event::Stdout);
        }
        if let Some(stderr) = &self.pipes.stderr {
            watch(stderr.as_fd(), PollFlags::POLLIN, Event::Stderr);
        }
        if let Some(stdin) = self.pipes.stdin.as_ref().filter(|_| self.intake.has_more()) {
            watch(stdin.as_fd(), PollFlags::POLLOUT, Event::Stdin);
        }
        watch(child.exit().as_fd(), PollFlags::POLLIN, Event::Exited);
        let incoming = if listens || !self.deaf { PollFlags::POLLIN } else { PollFlags::empty() };
        let connection = self.request.body();
        watch(connection.as_fd(), incoming | HUNG_UP, Event::Client);
        let count = match poll(&mut fds, timeout) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        };
        let mut ready = Ready { timed_out: count == 0, ..Ready::default() };
        for (fd, event) in fds.iter().zip(&events) {
            *ready.of(*event) = fd.any().unwrap_or(true);
        }
        Ok(ready)
    }

    /// How long to wait for anything: a moment where output is held back, else for as long as the client may take
    /// to send more of its body, else for ever.
    fn timeout(&mut self, listens: bool) -> PollTimeout {
        if self.unsent {
            return PollTimeout::from(GATHER);
        }
        if !listens {
            return PollTimeout::NONE;
        }
        let left = self.intake.patience(self.request.body().read_timeout());
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }

    fn timed_out(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.unsent) {
            return if self.may_answer() { self.answer.flush() } else { self.divert() };
        }
        if self.listens() && self.intake.patience(self.request.body().read_timeout()).is_zero() {
            return Err(Error::Client(408, "no more of its body in time"));
        }
        Ok(())
    }

    /// Takes in as much of the body as is there and has a place, and gives the script as much as it takes.
    fn feed(&mut self) -> Result<(), Error> {
        while let Some(stdin) = &mut self.pipes.stdin {
            let front = self.intake.front()?;
            if front.is_empty() {
                if self.intake.is_over() {
                    self.pipes.stdin = None;
                } else if !self.intake.hear(self.request.body())? {
                    return Ok(());
                }
                continue;
            }
            match stdin.write(front) {
                Ok(count) => self.intake.take(count),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted => {}
                    // The script has closed its input: it wants no more of the body.
                    _ => self.pipes.stdin = None,
                },
            }
        }
        while self.listens() {
            if !self.intake.hear(self.request.body())? {
                break;
            }
        }
        Ok(())
    }

    /// Reads what the script has written, up to some pieces of it.
    fn read_stdout(&mut self) -> Result<(), Error> {
        for _ in 0..TURN {
            // A short piece is the last for now: asking again would only tell so.
            if self.read_piece()?.is_none_or(|count| count < PIECE) {
                break;
            }
        }
        Ok(())
    }

    /// The script has ended: reads what it has left in its pipe. Another process may hold the pipe and write for
    /// ever, so no more is read than a pipe holds.
    fn drain(&mut self) -> Result<(), Error> {
        let Some(stdout) = &self.pipes.stdout else { return Ok(()) };
        let mut left =
            fcntl(stdout, FcntlArg::F_GETPIPE_SZ).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(PIECE);
        while left > 0 {
            match self.read_piece()? {
                None | Some(0) => break,
                Some(count) => left = left.saturating_sub(count),
            }
        }
        Ok(())
    }

    /// Reads one piece; `None` where nothing is there, 0 at the end.
    fn read_piece(&mut self) -> Result<Option<usize>, Error> {
        let Some(stdout) = &mut self.pipes.stdout else { return Ok(Some(0)) };
        match stdout.read(&mut self.piece) {
            Ok(0) => {
                self.pipes.stdout = None;
                Ok(Some(0))
            }
            Ok(count) => self.put(count).map(|()| Some(count)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Takes the first `count` bytes of the piece as output.
    fn put(&mut self, count: usize) -> Result<(), Error> {
        let bytes = self.piece.get(..count).unwrap_or_default();
        match &mut self.output {
            Output::Redirect(_) => Ok(()),
            Output::Body => {
                self.unsent = true;
                self.answer.write(bytes)
            }
            Output::Head(held) => {
                held.extend_from_slice(bytes);
                self.unsent = true;
                self.release()
            }
        }
    }

    fn read_stderr(&mut self) {
        let request = &*self.request;
        for _ in 0..TURN {
            let Some(stderr) = &mut self.pipes.stderr else { return };
            match stderr.read(&mut self.piece) {
                Ok(count @ 1..) => {
                    let bytes = self.piece.get(..count).unwrap_or_default();
                    self.complaints.push(bytes, &mut |line| request.log(line));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return;
                }
                Ok(0) | Err(_) => self.pipes.stderr = None,
            }
        }
    }
}

impl Ready {
    fn of(&mut self, event: Event) -> &mut bool {
        match event {
            Event::Stdin => &mut self.stdin,
            Event::Stdout => &mut self.stdout,
            Event::Stderr => &mut self.stderr,
            Event::Exited => &mut self.exited,
            Event::Client => &mut self.client,
        }
    }
}

/// Begins the answer, where all of its head is in `output`, and says how it goes on.
fn begin(output: &[u8], answer: &mut Answer<'_>) -> Result<Option<Output>, Error> {
    let fault = |error| Error::App(format!("the script wrote a {error}"));
    let Some(head) = Head::parse(output, HEAD_LIMIT).map_err(fault)? else { return Ok(None) };
    if let Some(target) = head.local_redirect {
        return Ok(Some(Output::Redirect(target.to_vec())));
    }
    if head.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("Transfer-Encoding")) {
        return Err(Error::App("the script frames its answer itself (Transfer-Encoding)".into()));
    }
    let status =
        StatusCode::from_u16(head.status).map_err(|e| Error::App(format!("the script's status: {e}")))?;
    answer.head(status, &head.fields)?;
    answer.write(output.get(head.len..).unwrap_or_default())?;
    Ok(Some(Output::Body))
}
