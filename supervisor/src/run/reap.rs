//! Ends of processes: which of our children ended, and how to say it.
//!
//! Always holds: everything that ended is reaped, also strangers that were left to us as process 1; what is left
//! of a dead worker's process group is killed before its number can belong to anyone else.

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(Signal, bool),
}

impl End {
    /// For log and status.
    pub(crate) fn said(self) -> String {
        match self {
            End::Code(code) => format!("exit code {code}"),
            End::Signal(signal, false) => format!("signal {signal}"),
            End::Signal(signal, true) => format!("signal {signal}, core dumped"),
        }
    }
}

/// Looks for the next process that ended and leaves it unreaped: [`bury`] it after a last look at it.
pub(crate) fn next_dead() -> Option<(Pid, End)> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::All, flags) {
            Ok(WaitStatus::Exited(pid, code)) => return Some((pid, End::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, core)) => return Some((pid, End::Signal(signal, core))),
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Kills what is left of a worker's process group. Only before [`bury`].
pub(crate) fn sweep(pid: Pid) {
    let _ = killpg(pid, Signal::SIGKILL);
}

/// Reaps a process that ended.
pub(crate) fn bury(pid: Pid) {
    while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) == Err(Errno::EINTR) {}
}
