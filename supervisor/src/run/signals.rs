//! Signals to the supervisor, as bytes on a socket that the loop waits for.
//!
//! Always holds: signals that whoever started us had blocked, the former program of an upgrade among them, are unblocked
//! here and in every worker.

use nix::sys::signal::SigSet;
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{backend::SignalDelivery, exfiltrator::SignalOnly},
};
use std::{io, os::unix::net::UnixStream};

/// What a signal asks for; SIGNALS.md is the whole story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Reload,
    ReopenLogs,
    Upgrade,
    StopGracefully,
    StopNow,
    Reap,
}

/// The signals that are listened to.
pub(crate) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn new() -> io::Result<Signals> {
        let all = [SIGHUP, SIGUSR1, SIGUSR2, SIGTERM, SIGQUIT, SIGINT, SIGCHLD];
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, all)?;
        SigSet::all().thread_unblock()?;
        Ok(Signals(delivery))
    }

    /// What becomes readable when a signal came.
    pub(crate) fn readable(&self) -> &UnixStream {
        self.0.get_read()
    }

    /// What was wished since the last call; each wish once.
    pub(crate) fn wishes(&mut self) -> Vec<Wish> {
        let mut wishes: Vec<Wish> = self
            .0
            .pending()
            .map(|signal| match signal {
                SIGHUP => Wish::Reload,
                SIGUSR1 => Wish::ReopenLogs,
                SIGUSR2 => Wish::Upgrade,
                SIGINT => Wish::StopNow,
                SIGCHLD => Wish::Reap,
                _ => Wish::StopGracefully,
            })
            .collect();
        wishes.dedup();
        wishes
    }
}
