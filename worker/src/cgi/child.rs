//! A script's process: started, watched and ended, with all that it started.
//!
//! Started by `posix_spawn`, so that a worker's size does not matter, with no signal blocked or ignored that the
//! worker blocks or ignores.
//!
//! Always holds: the script leads a process group of its own, has no descriptor but 0, 1 and 2, and when a
//! [`Child`] is dropped its group is killed, the script is reaped, and so is what had left the group
//! ([`super::family`]); a worker that is killed takes the group along ([`crate::heir`]). The group is killed before
//! the script is reaped: until then its number cannot belong to anyone else.

use super::{family::Family, script::Script};
use crate::{Error, heir, sys};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl, open},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn},
    sys::{
        signal::{SigSet, Signal, killpg},
        stat::Mode,
        wait::{WaitStatus, waitpid},
    },
    unistd::{Pid, chdir, fchdir, pipe2},
};
use std::{
    ffi::CString,
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    time::Duration,
};

/// How long a script may take to end by itself after SIGTERM, or after it has closed its output.
const GRACE: Duration = Duration::from_millis(500);

/// What each start of a script needs of its worker.
pub(super) struct Base {
    /// The worker's own working directory.
    directory: OwnedFd,
    null: File,
}

impl Base {
    /// Makes this process one that starts scripts.
    ///
    /// # Errors
    /// What the system refused, as a phrase for the log.
    pub(super) fn new() -> Result<Base, String> {
        // What this process opens has the flag from the start; this is for what it was started with. A kernel
        // without the call leaves those to the scripts, as any other server would.
        let _ = sys::close_on_exec_from_3();
        let say = |what: &'static str| move |e: Errno| format!("{what}: {}", e.desc());
        Family::adopt_orphans().map_err(say("become the parent of orphans"))?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(".", flags, Mode::empty()).map_err(say("open the working directory"))?;
        let null = File::open("/dev/null").map_err(|e| format!("open /dev/null: {e}"))?;
        Ok(Base { directory, null })
    }
}

/// A script that runs.
pub(super) struct Child {
    /// The script and its process group.
    pid: Pid,
    /// Readable when the script has ended.
    exit: OwnedFd,
    family: Family,
    reaped: bool,
}

/// The worker's ends of a script's pipes, non-blocking.
pub(super) struct Pipes {
    /// What the script reads; `None` where the request has no body.
    pub stdin: Option<File>,
    /// The script's answer.
    pub stdout: Option<File>,
    /// The script's complaints.
    pub stderr: Option<File>,
}

impl Child {
    /// Starts `script`, in its own directory (RFC 3875, section 7.2).
    ///
    /// # Errors
    /// What became of it, as an answer: 500 where the script is at fault, 503 where the system is short of
    /// processes.
    pub(super) fn start(
        script: &Script,
        environment: &[CString],
        with_body: bool,
        base: &Base,
    ) -> Result<(Child, Pipes), Error> {
        let (stdout, its_stdout) = pipe2(OFlag::O_CLOEXEC)?;
        let (stderr, its_stderr) = pipe2(OFlag::O_CLOEXEC)?;
        let stdin = with_body.then(|| pipe2(OFlag::O_CLOEXEC)).transpose()?;
        let (its_stdin, stdin) = stdin.map_or((None, None), |(read, write)| (Some(read), Some(write)));
        for end in [Some(&stdout), Some(&stderr), stdin.as_ref()].into_iter().flatten() {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let mut files = PosixSpawnFileActions::init()?;
        files.add_dup2(its_stdin.as_ref().map_or(base.null.as_raw_fd(), AsRawFd::as_raw_fd), 0)?;
        files.add_dup2(its_stdout.as_raw_fd(), 1)?;
        files.add_dup2(its_stderr.as_raw_fd(), 2)?;
        let family = Family::now();
        let pid = spawn(script, environment, &files, base).map_err(|errno| refused(script, errno))?;
        heir::takes_along(Some(pid));
        let exit = match sys::pidfd_open(pid) {
            Ok(exit) => exit,
            Err(error) => {
                let _ = killpg(pid, Signal::SIGKILL);
                heir::takes_along(None);
                let _ = waitpid(pid, None);
                return Err(error.into());
            }
        };
        let pipes = Pipes {
            stdin: stdin.map(File::from),
            stdout: Some(File::from(stdout)),
            stderr: Some(File::from(stderr)),
        };
        Ok((Child { pid, exit, family, reaped: false }, pipes))
    }

    /// Readable when the script has ended.
    pub(super) fn exit(&self) -> &OwnedFd {
        &self.exit
    }

    /// Waits a moment for the script to end, ends what it started, and reaps it. `None` where the script had to be
    /// killed, having closed its output long before.
    ///
    /// # Errors
    /// The system has lost track of the process.
    pub(super) fn finish(mut self) -> nix::Result<Option<WaitStatus>> {
        let ended = self.wait_for(GRACE);
        let status = self.end_all()?;
        Ok(ended.then_some(status))
    }

    /// Asks the script and its group to end, and ends what does not.
    pub(super) fn stop(mut self) {
        let _ = killpg(self.pid, Signal::SIGTERM);
        self.wait_for(GRACE);
        let _ = self.end_all();
    }

    fn wait_for(&self, time: Duration) -> bool {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(self.exit.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|count| count > 0)
    }

    fn end_all(&mut self) -> nix::Result<WaitStatus> {
        let _ = killpg(self.pid, Signal::SIGKILL);
        heir::takes_along(None);
        self.reaped = true;
        let status = loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                status => break status,
            }
        };
        self.family.clear_others();
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.end_all();
        }
    }
}

/// Starts `script` with these descriptors. The working directory is the process's own, so it is changed for the
/// moment; nothing else in a worker depends on it meanwhile.
fn spawn(
    script: &Script,
    environment: &[CString],
    files: &PosixSpawnFileActions,
    base: &Base,
) -> nix::Result<Pid> {
    let mut attributes = PosixSpawnAttr::init()?;
    let (mask, signals) = (PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK, PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF);
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETPGROUP | mask | signals)?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::all())?;
    let file = CString::new(script.file.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    chdir(script.file.parent().unwrap_or(Path::new("/")))?;
    let pid = posix_spawn(file.as_c_str(), files, &attributes, &[&file], environment);
    let _ = fchdir(&base.directory);
    pid
}

/// How a script ended, where that is a fault; and whether it was ended by a signal.
pub(super) fn fault(status: WaitStatus) -> Option<(String, bool)> {
    match status {
        WaitStatus::Exited(_, 0) => None,
        WaitStatus::Exited(_, code) => Some((format!("the script ended with exit status {code}"), false)),
        WaitStatus::Signaled(_, signal, _) => Some((format!("the script was ended by {signal}"), true)),
        _ => Some(("the script ended in an unknown way".to_owned(), true)),
    }
}

fn refused(script: &Script, errno: Errno) -> Error {
    let file = script.file.display();
    match errno {
        Errno::EAGAIN | Errno::ENOMEM => {
            Error::Upstream(503, format!("start {file}: no process to be had: {}", errno.desc()))
        }
        Errno::ENOEXEC => Error::App(format!("start {file}: it is no program and has no #! line")),
        Errno::ENOENT => Error::App(format!("start {file}: the interpreter in its #! line is not there")),
        _ => Error::App(format!("start {file}: {}", errno.desc())),
    }
}
