//! Ends of processes: which of our children ended, and how to say it.
//!
//! Always holds: everything that ended is reaped, also strangers that were left to us as process 1; what is left
//! of a dead worker's process group is killed before its number can belong to anyone else; a death that has no
//! name here (a real-time signal) holds up no other.

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
    /// By a signal without a name: a real-time signal.
    Unnamed,
}

impl End {
    /// For log and status.
    pub(crate) fn said(self) -> String {
        match self {
            End::Code(code) => format!("exit code {code}"),
            End::Signal(signal, false) => format!("signal {signal}"),
            End::Signal(signal, true) => format!("signal {signal}, core dumped"),
            End::Unnamed => "a real-time signal".to_owned(),
        }
    }
}

const PEEK: WaitPidFlag = WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

/// Looks for the next process that ended and leaves it unreaped: [`bury`] it after a last look at it. `ours` are
/// the process ids of workers.
pub(crate) fn next_dead(ours: impl IntoIterator<Item = i32>) -> Option<(Pid, End)> {
    loop {
        match waitid(Id::All, PEEK) {
            Ok(status) => return of(status),
            Err(Errno::EINTR) => {}
            // nix has no word for the signal, and so does not say whose end it was.
            Err(Errno::EINVAL) => return unnamed(ours),
            Err(_) => return None,
        }
    }
}

fn of(status: WaitStatus) -> Option<(Pid, End)> {
    match status {
        WaitStatus::Exited(pid, code) => Some((pid, End::Code(code))),
        WaitStatus::Signaled(pid, signal, core) => Some((pid, End::Signal(signal, core))),
        _ => None,
    }
}

/// How this child ended, where it has; it is left unreaped.
pub(crate) fn ended(pid: Pid) -> Option<End> {
    match waitid(Id::Pid(pid), PEEK) {
        Ok(status) => of(status).map(|(_, end)| end),
        Err(Errno::EINVAL) => Some(End::Unnamed),
        Err(_) => None,
    }
}

fn unnamed(ours: impl IntoIterator<Item = i32>) -> Option<(Pid, End)> {
    let mut ours = ours.into_iter().map(Pid::from_raw);
    if let Some(pid) = ours.find(|pid| waitid(Id::Pid(*pid), PEEK) == Err(Errno::EINVAL)) {
        return Some((pid, End::Unnamed));
    }
    // A stranger: reaped here and now, since nothing else tells its number.
    let (pid, status) = rustix::process::wait(rustix::process::WaitOptions::NOHANG).ok().flatten()?;
    let end = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(code),
        (None, Some(signal)) => Signal::try_from(signal).map_or(End::Unnamed, |s| End::Signal(s, false)),
        (None, None) => End::Unnamed,
    };
    Some((Pid::from_raw(pid.as_raw_nonzero().get()), end))
}

/// Kills what is left of a worker's process group. Only before [`bury`].
pub(crate) fn sweep(pid: Pid) {
    let _ = killpg(pid, Signal::SIGKILL);
}

/// Reaps a process that ended.
pub(crate) fn bury(pid: Pid) {
    while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) == Err(Errno::EINTR) {}
}

/// Waits for the end of a process that was sent SIGKILL, and reaps it.
pub(crate) fn await_end(pid: Pid) {
    while waitid(Id::Pid(pid), WaitPidFlag::WEXITED) == Err(Errno::EINTR) {}
}
