//! The FastCGI program that a worker runs: started below a warden, reached through its door, known to be alive or
//! to have ended.
//!
//! Always holds: there is one program at most behind a [`Program`]; when it is dropped, the program and all that it
//! started are gone, or will be within moments by the warden's doing.

use super::{door::Door, warden};
use crate::control::{Fastcgi, ListenBy};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How long the warden may take to clear up; longer than its own patience with the program.
const CLEARED: Duration = Duration::from_secs(5);
/// How long it takes at most until a program that has closed its connection by dying is known to have ended.
pub(super) const DYING: Duration = Duration::from_millis(500);
/// PATH of a program whose settings name none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// See the module.
pub(super) struct Program {
    warden: Child,
    /// At its end when the program has ended.
    link: UnixStream,
    door: Door,
    ended: Option<String>,
}

impl Program {
    /// Starts the program; it is not ready yet.
    ///
    /// # Errors
    /// What the system refused, as a phrase.
    pub(super) fn start(settings: &Fastcgi) -> Result<Program, String> {
        let say = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
        let mut door = Door::new().map_err(say("make a directory for its socket"))?;
        let path = door.path().to_str().unwrap_or_default().to_owned();
        let stdin = match settings.listen_by {
            ListenBy::Fd0 => Stdio::from(OwnedFd::from(door.listen().map_err(say("bind its socket"))?)),
            ListenBy::Path | ListenBy::Argument => Stdio::null(),
        };
        let (link, theirs) = UnixStream::pair().map_err(say("make a socket pair"))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(warden::NAME).arg("worker").env_clear();
        if !settings.env.iter().any(|(name, _)| name == "PATH") {
            command.env("PATH", PATH);
        }
        command.envs(settings.env.iter().map(|(name, value)| (name, value)));
        if settings.listen_by == ListenBy::Path {
            command.env("FCGI_LISTEN", &path);
        }
        let started = command.process_group(0).stdin(stdin).stdout(OwnedFd::from(theirs)).spawn();
        let warden = started.map_err(say("start its warden"))?;
        // Closes our copy of the listener: the program alone has it.
        drop(command);
        let program = Program { warden, link, door, ended: None };
        let words: Vec<String> =
            settings.command.iter().map(|word| word.replace("{listen}", &path)).collect();
        let words = if settings.listen_by == ListenBy::Argument { &words } else { &settings.command };
        let mut line = serde_json::to_vec(words).map_err(|e| e.to_string())?;
        line.push(b'\n');
        (&program.link).write_all(&line).map_err(say("tell its warden what to start"))?;
        Ok(program)
    }

    /// Connects; an error where it does not listen, or not yet.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        self.door.connect()
    }

    /// It listens: nothing of its socket needs to be on the disk any more.
    pub(super) fn reached(&mut self) -> io::Result<()> {
        self.door.hide()
    }

    /// Readable when the program has ended.
    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// How it ended and its last words, where it has ended or does within `time`.
    pub(super) fn ended(&mut self, time: Duration) -> Option<&str> {
        if self.ended.is_none() {
            let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
            let ready = poll(&mut [PollFd::new(self.link.as_fd(), PollFlags::POLLIN)], timeout);
            if ready.is_ok_and(|count| count > 0) {
                self.ended = Some(self.last_words());
            }
        }
        self.ended.as_deref()
    }

    /// Ends the program, where it runs, and waits until all of it is gone; its last words.
    pub(super) fn stop(&mut self) -> String {
        let _ = self.link.shutdown(Shutdown::Write);
        self.ended(CLEARED).unwrap_or("it did not end").to_owned()
    }

    /// The same without much patience, for one that does not come to an end of its request.
    pub(super) fn kill(&mut self) -> String {
        let _ = (&self.link).write_all(b"!");
        self.stop()
    }

    fn last_words(&self) -> String {
        let mut told = Vec::new();
        let _ = self.link.set_read_timeout(Some(CLEARED));
        let _ = (&self.link).read_to_end(&mut told);
        let told = String::from_utf8_lossy(&told);
        match told.split_once('\n') {
            Some((how, "")) => how.to_owned(),
            Some((how, words)) => format!("{how}; its last line: {words}"),
            None if told.is_empty() => "its warden was killed".to_owned(),
            None => told.into_owned(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
        // Whoever is left of the group, should the warden have been killed; not reaped yet, so the number is its own.
        if let Ok(group) = i32::try_from(self.warden.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.warden.wait();
    }
}
