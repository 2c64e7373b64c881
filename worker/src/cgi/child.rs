//! A script's process: started, watched and ended, with all that it started in its process group.
//!
//! Started by `posix_spawn` (which `std::process::Command` uses where no code has to run between fork and exec),
//! so that a worker's size does not matter.
//!
//! Always holds: the script leads a process group of its own, has no descriptor but 0, 1 and 2, and when a
//! [`Child`] is dropped its group is killed and the script is reaped. The group is killed before the script is
//! reaped: until then its number cannot belong to anyone else.
//!
//! Limitation: a process that left the group (`setsid`) outlives the request.

use super::script::Script;
use crate::{Error, sys};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

/// How long a script may take to end by itself after SIGTERM, or after it has closed its output.
const GRACE: Duration = Duration::from_millis(500);

/// A script that runs.
pub(super) struct Child {
    process: std::process::Child,
    group: Pid,
    /// Readable when the script has ended.
    exit: OwnedFd,
    reaped: bool,
}

/// The worker's ends of a script's pipes, non-blocking.
pub(super) struct Pipes {
    /// What the script reads; `None` where the request has no body.
    pub stdin: Option<ChildStdin>,
    /// The script's answer.
    pub stdout: Option<ChildStdout>,
    /// The script's complaints.
    pub stderr: Option<ChildStderr>,
}

impl Child {
    /// Starts `script`, in its own directory (RFC 3875, section 7.2).
    ///
    /// # Errors
    /// What became of it, as an answer: 500 where the script is at fault, 503 where the system is short of
    /// processes.
    pub(super) fn start(
        script: &Script,
        environment: Vec<(OsString, OsString)>,
        with_body: bool,
    ) -> Result<(Child, Pipes), Error> {
        let mut command = Command::new(&script.file);
        command
            .env_clear()
            .envs(environment)
            .current_dir(script.file.parent().unwrap_or(Path::new("/")))
            .process_group(0)
            .stdin(if with_body { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| refused(script, &error))?;
        let group = Pid::from_raw(i32::try_from(process.id()).unwrap_or(i32::MAX));
        let pipes = Pipes {
            stdin: process.stdin.take(),
            stdout: process.stdout.take(),
            stderr: process.stderr.take(),
        };
        match sys::pidfd_open(group) {
            Ok(exit) => {
                let child = Child { process, group, exit, reaped: false };
                pipes.set_nonblocking()?;
                Ok((child, pipes))
            }
            Err(error) => {
                let _ = killpg(group, Signal::SIGKILL);
                let _ = process.wait();
                Err(error.into())
            }
        }
    }

    /// Readable when the script has ended.
    pub(super) fn exit(&self) -> &OwnedFd {
        &self.exit
    }

    /// Waits a moment for the script to end, kills its group, and reaps it. `None` where the script had to be
    /// killed, having closed its output long before.
    ///
    /// # Errors
    /// The system has lost track of the process.
    pub(super) fn finish(mut self) -> io::Result<Option<ExitStatus>> {
        let ended = self.wait_for(GRACE);
        let status = self.kill_and_reap()?;
        Ok(ended.then_some(status))
    }

    /// Asks the script and its group to end, and ends what does not.
    pub(super) fn stop(mut self) {
        let _ = killpg(self.group, Signal::SIGTERM);
        self.wait_for(GRACE);
        let _ = self.kill_and_reap();
    }

    fn wait_for(&self, time: Duration) -> bool {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(self.exit.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|count| count > 0)
    }

    fn kill_and_reap(&mut self) -> io::Result<ExitStatus> {
        let _ = killpg(self.group, Signal::SIGKILL);
        self.reaped = true;
        self.process.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill_and_reap();
        }
    }
}

impl Pipes {
    fn set_nonblocking(&self) -> Result<(), Error> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        let ends = [
            self.stdin.as_ref().map(AsFd::as_fd),
            self.stdout.as_ref().map(AsFd::as_fd),
            self.stderr.as_ref().map(AsFd::as_fd),
        ];
        for end in ends.into_iter().flatten() {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(())
    }
}

/// How a script ended, where that is a fault.
pub(super) fn fault(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("the script ended with exit status {code}")),
        (None, Some(signal)) => Some(format!("the script was ended by signal {signal}")),
        (None, None) => Some("the script ended in an unknown way".to_owned()),
    }
}

fn refused(script: &Script, error: &io::Error) -> Error {
    let file = script.file.display();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::ENOMEM) => {
            Error::Upstream(503, format!("start {file}: no process to be had: {error}"))
        }
        Some(Errno::ENOEXEC) => Error::App(format!("start {file}: it is no program and has no #! line")),
        Some(Errno::ENOENT) => {
            Error::App(format!("start {file}: the interpreter in its #! line is not there"))
        }
        _ => Error::App(format!("start {file}: {error}")),
    }
}
