//! Connections that ask for nothing more: silent ones, ones that stop inside a request, and kept ones at rest.
//!
//! Always holds: what was opened stays open until dropped, unless the peer closes it; nobody reads from it.

use crate::{
    address::Address,
    answer::{Answer, Progress},
    load::Error,
    request::Request,
};
use nix::{
    errno::Errno,
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        socket::{MsgFlags, recv, send, setsockopt, sockopt::ReceiveTimeout},
        time::{TimeVal, TimeValLike},
    },
};
use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

/// How long the answer of a connection that is to come to rest may take.
const AT_REST: Duration = Duration::from_secs(10);

/// Where a connection stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Before its first byte.
    Silent,
    /// Inside the head.
    InHead,
    /// Inside a body of 10 KB.
    InBody,
    /// After one whole answer, kept open.
    AtRest,
}

/// Connections held open.
#[derive(Debug)]
pub struct Still {
    held: Vec<OwnedFd>,
}

impl Still {
    /// Opens `count` connections that send as much of `request` as `stop` says.
    ///
    /// # Errors
    /// Where one cannot be made, or one that should come to rest gets no right answer.
    pub fn open(address: &Address, request: &Request, stop: Stop, count: usize) -> Result<Self, Error> {
        let mut request = request.clone();
        request.keep = true;
        if stop == Stop::InBody {
            (request.body, request.method) = (10_000, "POST".into());
        }
        let bytes = match stop {
            Stop::Silent => Vec::new(),
            Stop::InHead => request.cut_in_head(),
            Stop::InBody => request.cut_in_body(),
            Stop::AtRest => request.to_bytes(),
        };
        let mut held = Vec::with_capacity(count);
        for nth in 0..count {
            let what = || format!("still connection {} of {count} to {address}", nth + 1);
            let socket = address.connect().map_err(|error| Error::system(what(), error))?;
            if !bytes.is_empty() {
                send(socket.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL)
                    .map_err(|errno| Error::system(what(), errno))?;
            }
            if stop == Stop::AtRest {
                answer(&socket, &request, AT_REST).map_err(|why| Error::new(format!("{}: {why}", what())))?;
            }
            held.push(socket);
        }
        Ok(Self { held })
    }

    /// How many the peer has neither closed nor answered.
    #[must_use]
    pub fn untouched(&self) -> usize {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let is_still = |socket: &&OwnedFd| recv(socket.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN);
        self.held.iter().filter(is_still).count()
    }

    /// How many were opened.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.held.len()
    }
}

/// One request on a connection of its own, and the wait for its whole answer.
///
/// # Errors
/// Where the answer is not whole, or a part of it takes longer than `patience`.
pub fn ask(address: &Address, request: &Request, patience: Duration) -> Result<(), Error> {
    let what = || format!("a request for {} to {address}", request.uri);
    let socket = address.connect().map_err(|error| Error::system(what(), error))?;
    send(socket.as_raw_fd(), &request.to_bytes(), MsgFlags::MSG_NOSIGNAL)
        .map_err(|errno| Error::system(what(), errno))?;
    answer(&socket, request, patience).map_err(|why| Error::new(format!("{}: {why}", what())))
}

fn answer(socket: &OwnedFd, request: &Request, patience: Duration) -> Result<(), String> {
    let patience = TimeVal::seconds(i64::try_from(patience.as_secs()).unwrap_or(i64::MAX));
    setsockopt(socket, ReceiveTimeout, &patience).map_err(|errno| errno.to_string())?;
    let mut answer = Answer::new(request.protocol);
    let mut buffer = [0; 4096];
    loop {
        let count =
            recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(|errno| errno.to_string())?;
        let progress =
            if count == 0 { answer.end() } else { answer.feed(buffer.get(..count).unwrap_or_default()) };
        match progress {
            Progress::Partial => {}
            Progress::Whole => return Ok(()),
            Progress::Wrong(why) => return Err(why.into()),
        }
    }
}

/// Raises this process's limit of open descriptors to its hard limit, for itself and what it starts.
///
/// # Errors
/// What the system says.
pub fn raise_descriptor_limit() -> Result<u64, Error> {
    let error = |errno| Error::system("raising the limit of open descriptors", errno);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(error)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(error)?;
    Ok(hard)
}
