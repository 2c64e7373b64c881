//! The FastCGI program that a worker runs: started below a warden, reached through its door, known to be alive or
//! to have ended. With `concurrency` it may be one that another worker runs.
//!
//! Always holds: there is one program at most behind a [`Program`]; when it is dropped, the program and all that it
//! started are gone, or will be within moments by the warden's doing: of a shared one, when no request is in it.

use super::{
    door::Door,
    share::{self, Entered, Share},
    warden::{self, Errand},
};
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
    thread,
    time::{Duration, Instant},
};

/// How long the warden may take to clear up; longer than its own patience with the program.
const CLEARED: Duration = Duration::from_secs(5);
/// How long it takes at most until a program that has closed its connection by dying is known to have ended.
pub(super) const DYING: Duration = Duration::from_millis(500);
/// Between two looks at whether another worker's program has ended.
const LOOK: Duration = Duration::from_millis(5);
/// PATH of a program whose settings name none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// See the module.
pub(super) struct Program {
    runs: Runs,
    door: Door,
    /// Several workers use it.
    share: Option<Share>,
    ended: Option<String>,
}

enum Runs {
    /// Below a warden of this worker, whose link is at its end when the program has ended.
    Here { warden: Child, link: UnixStream },
    /// Below another worker.
    Elsewhere,
}

impl Program {
    /// A program of the app that is called `name`: a place in one that another worker has started, where there is
    /// one, or else one that is started now. It is not ready yet; a shared one is held for a request.
    ///
    /// # Errors
    /// What the system refused, as a phrase.
    pub(super) fn get(settings: &Fastcgi, name: &str) -> Result<Program, String> {
        if settings.concurrency < 2 {
            let door = Door::new().map_err(say("make a directory for its socket"))?;
            return Self::start(settings, door, None);
        }
        match share::enter(name, settings.concurrency).map_err(say("make a directory for its socket"))? {
            Entered::Owner(share) => Self::start(settings, Door::shared(&share), Some(share)),
            Entered::Guest(share) => {
                let door = Door::shared(&share);
                Ok(Program { runs: Runs::Elsewhere, door, share: Some(share), ended: None })
            }
        }
    }

    fn start(settings: &Fastcgi, mut door: Door, share: Option<Share>) -> Result<Program, String> {
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
        let words: Vec<String> =
            settings.command.iter().map(|word| word.replace("{listen}", &path)).collect();
        let words = if settings.listen_by == ListenBy::Argument { &words } else { &settings.command };
        let errand = Errand {
            command: words.clone(),
            directory: share.as_ref().map(|share| share.directory().to_path_buf()),
        };
        let mut line = serde_json::to_vec(&errand).map_err(|e| e.to_string())?;
        line.push(b'\n');
        let told = (&link).write_all(&line);
        let program = Program { runs: Runs::Here { warden, link }, door, share, ended: None };
        told.map_err(say("tell its warden what to start"))?;
        Ok(program)
    }

    /// Of those that several workers share.
    pub(super) fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// It is another worker's.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.runs, Runs::Elsewhere)
    }

    /// Connects; an error where it does not listen, or not yet.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        self.door.connect()
    }

    /// It listens: nothing of its socket needs to be on the disk any more.
    pub(super) fn reached(&mut self) -> io::Result<()> {
        self.door.hide()
    }

    /// Readable when the program has ended, where that can be waited for.
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        match &self.runs {
            Runs::Here { link, .. } => Some(link.as_fd()),
            Runs::Elsewhere => None,
        }
    }

    /// How it ended and its last words, where it has ended or does within `time`.
    pub(super) fn ended(&mut self, time: Duration) -> Option<&str> {
        if self.ended.is_none() {
            self.ended = match &self.runs {
                Runs::Here { link, .. } => {
                    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
                    let ready = poll(&mut [PollFd::new(link.as_fd(), PollFlags::POLLIN)], timeout);
                    ready.is_ok_and(|count| count > 0).then(|| last_words(link))
                }
                Runs::Elsewhere => self.is_gone(time).then(|| "another worker's has ended".to_owned()),
            };
        }
        self.ended.as_deref()
    }

    /// Whether the program of another worker has ended, or does within `time`.
    fn is_gone(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.share.as_ref().is_none_or(Share::is_gone) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::sleep(LOOK.min(left));
        }
        true
    }

    /// Tells the program to end, after the requests that others have in it, and does not wait for it.
    pub(super) fn leave(&self) {
        if let Runs::Here { link, .. } = &self.runs {
            let _ = link.shutdown(Shutdown::Write);
        }
    }

    /// Ends the program, where it runs here, and waits until all of it is gone; its last words.
    pub(super) fn stop(&mut self) -> String {
        self.leave();
        match (&self.runs, &self.share) {
            (Runs::Elsewhere, _) => "it is another worker's".to_owned(),
            // Others are not done with it; the supervisor knows how long that may take.
            (Runs::Here { .. }, Some(_)) => self.ended(Duration::MAX).unwrap_or_default().to_owned(),
            (Runs::Here { .. }, None) => self.ended(CLEARED).unwrap_or("it did not end").to_owned(),
        }
    }

    /// The same without much patience, for one that does not come to an end of its request.
    pub(super) fn kill(&mut self) -> String {
        if let Runs::Here { link, .. } = &self.runs {
            let _ = (&*link).write_all(b"!");
        }
        self.stop()
    }
}

fn last_words(mut link: &UnixStream) -> String {
    let mut told = Vec::new();
    let _ = link.set_read_timeout(Some(CLEARED));
    let _ = link.read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    match told.split_once('\n') {
        Some((how, "")) => how.to_owned(),
        Some((how, words)) => format!("{how}; its last line: {words}"),
        None if told.is_empty() => "its warden was killed".to_owned(),
        None => told.into_owned(),
    }
}

fn say(what: &'static str) -> impl Fn(io::Error) -> String {
    move |e| format!("{what}: {e}")
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
        let Runs::Here { warden, .. } = &mut self.runs else { return };
        // Whoever is left of the group, should the warden have been killed; not reaped yet, so the number is its own.
        if let Ok(group) = i32::try_from(warden.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = warden.wait();
    }
}
