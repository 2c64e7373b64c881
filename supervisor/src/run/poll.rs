//! What the supervisor waits for: one epoll, and a name for each descriptor in it.
//!
//! Always holds: a [`Token`] tells what became readable without any table that could be out of date.

use super::WorkerId;
use crate::fleet::PoolId;
use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
};
use std::{os::fd::AsFd, time::Duration};

/// What a descriptor in the epoll is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// The pipe that signals arrive on.
    Signals,
    /// The control socket of a worker.
    Worker(WorkerId),
    /// A pipe that holds output of a worker.
    Output(u64),
    /// Listeners and hand-over queue of a pool at rest.
    Pool(PoolId),
    /// The control socket's server; it has an epoll of its own.
    Control,
    /// File changes.
    Files,
}

impl Token {
    fn to_bits(self) -> u64 {
        let (kind, id) = match self {
            Token::Signals => (0, 0),
            Token::Worker(WorkerId(id)) => (1, id),
            Token::Output(id) => (2, id),
            Token::Pool(PoolId(id)) => (3, id),
            Token::Control => (4, 0),
            Token::Files => (5, 0),
        };
        kind << 56 | (id & (u64::MAX >> 8))
    }

    fn from_bits(bits: u64) -> Token {
        let id = bits & (u64::MAX >> 8);
        match bits >> 56 {
            0 => Token::Signals,
            1 => Token::Worker(WorkerId(id)),
            2 => Token::Output(id),
            3 => Token::Pool(PoolId(id)),
            4 => Token::Control,
            _ => Token::Files,
        }
    }
}

/// The epoll.
pub(crate) struct Poll(Epoll);

impl Poll {
    pub(crate) fn new() -> nix::Result<Poll> {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(Poll)
    }

    /// Waits for `fd` to become readable.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token) -> nix::Result<()> {
        self.0.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token.to_bits()))
    }

    /// Waits no more. A descriptor that was not waited for is none of our trouble.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = self.0.delete(fd);
    }

    /// What is readable, after `timeout` at the latest; `None`: however long it takes.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> nix::Result<Vec<Token>> {
        // Rounded up: woken a moment before a deadline, the loop would turn until it comes.
        let timeout = match timeout {
            None => EpollTimeout::NONE,
            Some(t) => {
                let ms = i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
                EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::MAX)
            }
        };
        let mut events = [EpollEvent::empty(); 64];
        match self.0.wait(&mut events, timeout) {
            Ok(n) => Ok(events.iter().take(n).map(|e| Token::from_bits(e.data())).collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_kernel() {
        for token in [
            Token::Signals,
            Token::Worker(WorkerId(u64::MAX >> 8)),
            Token::Output(7),
            Token::Pool(PoolId(3)),
            Token::Control,
            Token::Files,
        ] {
            assert_eq!(Token::from_bits(token.to_bits()), token);
        }
    }
}
