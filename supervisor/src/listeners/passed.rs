//! Sockets that systemd passed (`LISTEN_FDS`, `LISTEN_FDNAMES`, `LISTEN_PID`; sd_listen_fds(3)): those of socket
//! units, and those that it kept for us in its descriptor store.
//!
//! Always holds: variables meant for another process (`LISTEN_PID`) are not believed; each socket closes on exec.
//!
//! Takes stream sockets alone, Unix or TCP.

use std::{env, os::fd::OwnedFd, process};

/// What systemd passed, by name.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    sockets: Vec<(String, OwnedFd)>,
}

impl Passed {
    /// Takes what the environment tells of. Call it once, first of all: it owns the descriptors from then on.
    pub(crate) fn from_environment() -> Passed {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        // A process that some supervisor of ours started must not take for its own what was its parent's.
        let ours = env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(process::id()));
        if !ours {
            return Passed::default();
        }
        let mut fds = listenfd::ListenFd::from_env();
        let names = names.split(':').map(str::to_owned).chain(std::iter::repeat("unknown".to_owned()));
        let mut sockets = Vec::new();
        for (index, name) in (0..fds.len()).zip(names) {
            let unix = fds.take_unix_listener(index).ok().flatten().map(OwnedFd::from);
            let any = unix.or_else(|| fds.take_tcp_listener(index).ok().flatten().map(OwnedFd::from));
            sockets.extend(any.map(|fd| (name, fd)));
        }
        Passed { sockets }
    }

    /// Copies of all sockets with this name: a pool may drop its listener and take it again at a later reload.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub(crate) fn copies(&self, name: &str) -> Result<Vec<OwnedFd>, String> {
        let named = self.sockets.iter().filter(|(n, _)| n == name);
        named.map(|(_, fd)| fd.try_clone().map_err(|e| format!("copy the descriptor: {e}"))).collect()
    }

    /// All sockets with their names, to be kept over a re-exec.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &OwnedFd)> {
        self.sockets.iter().map(|(name, fd)| (name.as_str(), fd))
    }

    /// Takes out all sockets with this name.
    pub(crate) fn take(&mut self, name: &str) -> Vec<OwnedFd> {
        let (taken, left) = std::mem::take(&mut self.sockets).into_iter().partition(|(n, _)| n == name);
        self.sockets = left;
        let taken: Vec<_> = taken;
        taken.into_iter().map(|(_, fd)| fd).collect()
    }

    /// Says why there is nothing under `name`.
    pub(super) fn what_there_is(&self, name: &str) -> String {
        let mut names: Vec<&str> = self.sockets.iter().map(|(n, _)| n.as_str()).collect();
        names.dedup();
        if names.is_empty() {
            "systemd passed no socket at all; is the socket unit started?".to_owned()
        } else {
            format!("systemd passed no socket named {name}, only {}", names.join(", "))
        }
    }
}

/// After a re-exec.
impl From<Vec<(String, OwnedFd)>> for Passed {
    fn from(sockets: Vec<(String, OwnedFd)>) -> Passed {
        Passed { sockets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn passed(names: &[&str]) -> Passed {
        let socket = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        Passed { sockets: names.iter().map(|n| ((*n).to_owned(), socket())).collect() }
    }

    #[test]
    fn all_sockets_of_a_name_are_found_and_stay() {
        let passed = passed(&["shop", "blog", "shop"]);
        assert_eq!(passed.copies("shop").unwrap().len(), 2);
        assert_eq!(passed.copies("shop").unwrap().len(), 2);
        assert_eq!(passed.copies("none").unwrap().len(), 0);
    }

    #[test]
    fn what_is_taken_is_gone() {
        let mut passed = passed(&["shop", "blog", "shop"]);
        assert_eq!(passed.take("shop").len(), 2);
        assert_eq!(passed.what_there_is("shop"), "systemd passed no socket named shop, only blog");
    }
}
