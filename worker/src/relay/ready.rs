//! When a program is ready: it answers `GET_VALUES` (FastCGI 4.1), or has at least read it and said nothing, as
//! some programs do, or has closed the connection that it came on; and, where there is a `ready_path`, it answers that.
//!
//! Always holds: a program that has ended is noticed at once, one that is silent at the deadline.

use super::{
    incoming::{Incoming, Piece},
    outgoing::{ID, Outgoing},
    program::{DYING, Program},
    pump::QUICK,
};
use crate::sys;
use hostler_proto::{Header, Kind, Role, cgi::Head, pairs::write_pair};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use std::{
    io::Write,
    os::{fd::AsFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

/// Between two looks at a program that is not there yet.
const PAUSE: Duration = Duration::from_millis(2);
/// A program that has read a question and does not answer it for so long, will not.
const SILENCE: Duration = Duration::from_millis(50);

/// Why a program is not ready.
pub(super) struct NotReady {
    /// A phrase.
    pub why: String,
    /// It has ended after it had read `GET_VALUES`, and perhaps because of that.
    pub by_question: bool,
}

impl From<String> for NotReady {
    fn from(why: String) -> Self {
        NotReady { why, by_question: false }
    }
}

/// Waits until the program is ready to take a request; a connection to it, where it has left one open. A program
/// that is `mute` is not asked: it is ready when it has lived for a moment with its socket there.
///
/// # Errors
/// Why it is not ready: it has ended, or `until` has passed.
pub(super) fn wait(
    program: &mut Program,
    incoming: &mut Incoming,
    mute: bool,
    until: Instant,
) -> Result<Option<UnixStream>, NotReady> {
    let conn = connect(program, until)?;
    program.reached().map_err(|e| format!("reach its socket: {e}"))?;
    if mute {
        pause(program, SILENCE)?;
        return Ok(Some(conn));
    }
    match ask(program, &conn, incoming, until)? {
        Said::Answer => Ok(Some(conn)),
        Said::Nothing => Ok(None),
        Said::Closed { read } => match program.ended(DYING) {
            Some(how) => Err(NotReady { why: how.to_owned(), by_question: read }),
            None if read => Ok(None),
            None => Err("it closes its connections unread".to_owned().into()),
        },
    }
}

/// Asks for `params` until they are answered with a status below 500.
///
/// # Errors
/// As [`wait`].
pub(super) fn answers(
    program: &mut Program,
    incoming: &mut Incoming,
    params: &[(&str, &[u8])],
    until: Instant,
) -> Result<(), String> {
    let mut last = "no answer".to_owned();
    while Instant::now() < until {
        let conn = connect(program, until)?;
        match get(&conn, incoming, params, until) {
            Some(status) if status < 500 => return Ok(()),
            Some(status) => last = format!("status {status}"),
            None => {}
        }
        pause(program, Duration::from_millis(50))?;
    }
    Err(format!("its ready_path was not answered in time: {last}"))
}

/// Makes a connection fit for requests: reads wait a moment, no more.
pub(super) fn prepare(conn: &UnixStream) {
    let _ = conn.set_read_timeout(Some(QUICK));
}

enum Said {
    Answer,
    Nothing,
    /// `read`: after it had read what was asked.
    Closed {
        read: bool,
    },
}

fn connect(program: &mut Program, until: Instant) -> Result<UnixStream, String> {
    loop {
        let why = match program.connect() {
            Ok(conn) => {
                prepare(&conn);
                return Ok(conn);
            }
            Err(why) => why,
        };
        pause(program, PAUSE)?;
        if Instant::now() >= until {
            return Err(format!("it does not listen: {why}"));
        }
    }
}

/// Waits a moment; an error where the program ends in it.
fn pause(program: &mut Program, time: Duration) -> Result<(), String> {
    match program.ended(time) {
        Some(how) => Err(how.to_owned()),
        None => Ok(()),
    }
}

fn ask(
    program: &mut Program,
    mut conn: &UnixStream,
    incoming: &mut Incoming,
    until: Instant,
) -> Result<Said, String> {
    if conn.write_all(&question()).is_err() {
        return Ok(Said::Closed { read: false });
    }
    incoming.clear();
    let mut read_at: Option<Instant> = None;
    loop {
        let mut fds = vec![PollFd::new(conn.as_fd(), PollFlags::POLLIN)];
        fds.extend(program.end().map(|end| PollFd::new(end, PollFlags::POLLIN)));
        let _ = poll(&mut fds, PollTimeout::from(5u8));
        let is = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        let (answered, ended) = (is(0), is(1));
        if answered || ended {
            match incoming.read(conn, false) {
                Ok(0) => return Ok(Said::Closed { read: true }),
                Ok(_) => {}
                Err(Errno::EAGAIN | Errno::EINTR) if !ended => {}
                // What was not read is told by a reset.
                Err(_) => return Ok(Said::Closed { read: false }),
            }
        }
        match incoming.next(ID) {
            // Its content is passed over with the next request's answer.
            Piece::Values => return Ok(if drained(conn, incoming) { Said::Answer } else { Said::Nothing }),
            Piece::Broken => return Err("what it sends is no FastCGI".into()),
            _ => {}
        }
        if sys::unread(conn.as_fd()).is_ok_and(|bytes| bytes == 0) {
            let at = *read_at.get_or_insert_with(Instant::now);
            if at.elapsed() >= SILENCE {
                return Ok(Said::Nothing);
            }
        }
        if Instant::now() >= until {
            return Err("it listens and takes no request".into());
        }
    }
}

/// Passes over the rest of the answer to `GET_VALUES`; `false` where it does not come.
fn drained(conn: &UnixStream, incoming: &mut Incoming) -> bool {
    loop {
        if incoming.next(ID) != Piece::More {
            return false;
        }
        if incoming.is_empty() {
            return true;
        }
        if !incoming.read(conn, true).is_ok_and(|count| count > 0) {
            return false;
        }
    }
}

/// `GET_VALUES` for all that the specification names.
fn question() -> Vec<u8> {
    let mut content = Vec::new();
    for name in ["FCGI_MAX_CONNS", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS"] {
        write_pair(&mut content, name.as_bytes(), b"");
    }
    let header = Header::padded(Kind::GetValues, 0, u16::try_from(content.len()).unwrap_or(0));
    let mut record = header.to_bytes().to_vec();
    record.extend_from_slice(&content);
    record.resize(record.len() + usize::from(header.padding_length), 0);
    record
}

/// The status of the answer to a request with these parameters.
fn get(
    mut conn: &UnixStream,
    incoming: &mut Incoming,
    params: &[(&str, &[u8])],
    until: Instant,
) -> Option<u16> {
    let mut out = Outgoing::default();
    // Its connection is not used again.
    out.begin(ID, Role::Responder, false);
    params.iter().for_each(|(name, value)| out.pair(name.as_bytes(), value));
    out.end_params();
    out.end_body();
    conn.write_all(out.pending()).ok()?;
    incoming.clear();
    let mut head = Vec::new();
    loop {
        match incoming.next(ID) {
            Piece::Stdout(bytes) => head.extend_from_slice(bytes),
            Piece::End(_) => return Some(Head::parse(&head, 64 * 1024).ok()??.status),
            Piece::Broken => return None,
            Piece::Stderr(_) | Piece::Values => {}
            Piece::More => match incoming.read(conn, true) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < until => {}
                Err(_) => return None,
            },
        }
    }
}
