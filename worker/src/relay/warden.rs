//! The warden: a small process of our own between a worker and the FastCGI program that it runs. It starts the
//! program, passes its standard output and error on line by line, and sees to it that the program, with all that it
//! ever started, is gone when the program has ended or the worker has: killed with SIGKILL too.
//!
//! A process of its own, since a program that is not ours cannot be told to end with its parent in any other way that
//! reaches its children: the warden is a subreaper (prctl(2)), so that whatever daemonises below it stays below it.
//!
//! Its descriptors: 0 is the program's listener or /dev/null, 1 a socket to the worker, 2 the worker's standard error.
//! The worker sends its [`Errand`] as one line of JSON; the end of that socket's input means that the program is to end,
//! a byte before it that this is urgent. Where several workers share the program, it is told to end when no request is
//! left in it, unless that is urgent. The warden answers with one message when the program has ended: how, a line end,
//! and its last words.
//!
//! Always holds: it waits for descriptors alone; the program gets the environment of the warden and no descriptor but
//! 0, 1 and 2; the message is sent after all processes below are gone.

use super::share::Share;
use crate::{cgi::lines::Lines, memory, sys};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, PipeReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    path::PathBuf,
    process::{Command, ExitCode, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The name by which our own program knows that it is to be a warden.
pub(super) const NAME: &str = "hostler-warden";
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// The same where it is urgent.
const HURRIED: Duration = Duration::from_millis(200);
/// Bytes of last words that are kept.
const WORDS: usize = 500;

/// Between two looks at what is left to kill.
const CLEARING: Duration = Duration::from_millis(10);
/// Between two looks at whether a request is left in a program that is to end.
const LOOK: Duration = Duration::from_millis(20);

/// What a warden is told.
#[derive(Serialize, Deserialize)]
pub(super) struct Errand {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Of the [`Share`] in it that several workers have.
    pub directory: Option<PathBuf>,
}

/// Whether this process is to be a warden.
pub(crate) fn is_wanted() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Is the warden until all is gone.
pub(crate) fn main() -> ExitCode {
    let worker = match io::stdout().as_fd().try_clone_to_owned() {
        Ok(fd) => UnixStream::from(fd),
        Err(_) => return ExitCode::FAILURE,
    };
    let ended = run(&worker).unwrap_or_else(|why| why);
    let _ = (&worker).write_all(ended.as_bytes());
    ExitCode::SUCCESS
}

/// Runs the program that the worker names; how it ended, or why it did not begin.
fn run(mut worker: &UnixStream) -> Result<String, String> {
    let errand = read_errand(&mut worker).map_err(|e| format!("read what to start: {e}"))?;
    let share = errand.directory.as_deref().map(Share::watch).transpose();
    let share = share.map_err(|e| format!("open what workers share: {e}"))?;
    let ended = Warden::start(&errand.command, share.as_ref()).map(|mut warden| warden.watch(worker));
    if let Some(share) = &share {
        share.remove();
    }
    ended
}

struct Warden<'a> {
    program: Pid,
    output: Option<PipeReader>,
    signals: SignalFd,
    lines: Lines,
    words: Vec<u8>,
    share: Option<&'a Share>,
}

/// What the warden is about.
enum Stage {
    /// The program serves.
    Serving,
    /// It is to end when no request is left in it.
    Emptying,
    /// It was told to end at this moment, and has so long for it.
    Ending(Instant, Duration),
}

impl<'a> Warden<'a> {
    fn start(command: &[String], share: Option<&'a Share>) -> Result<Warden<'a>, String> {
        let say = |what: &'static str| move |e: nix::Error| format!("{what}: {e}");
        let _ = sys::close_on_exec_from_3();
        let listener = sys::take_descriptor_0().map_err(|e| format!("take the listener: {e}"))?;
        let (output, theirs) = io::pipe().map_err(|e| format!("make a pipe: {e}"))?;
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(say("make a pipe"))?;
        prctl::set_child_subreaper(true).map_err(say("become a subreaper"))?;
        // The worker's mask came along, and the program would get it too.
        SigSet::empty().thread_set_mask().map_err(say("unblock signals"))?;
        let program = spawn(command, listener, theirs)?;
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
            mask.add(signal);
        }
        mask.thread_block().map_err(say("block signals"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).map_err(say("take signals by descriptor"))?;
        let (lines, words) = (Lines::default(), Vec::new());
        Ok(Warden { program, output: Some(output), signals, lines, words, share })
    }

    /// Watches until nothing is left; how the program ended, a line end, its last words.
    fn watch(&mut self, worker: &UnixStream) -> String {
        let mut stage = Stage::Serving;
        let status = loop {
            // Before the wait too: the program may have ended before its signal could be taken.
            if let Some(status) = self.reap() {
                break Some(status);
            }
            let asked = self.wait(worker, stage.left());
            self.copy();
            match stage {
                Stage::Serving if asked => {
                    let urgent = (&*worker).read(&mut [0]).is_ok_and(|count| count > 0);
                    stage = self.end(urgent);
                }
                Stage::Emptying if self.share.is_none_or(Share::is_free) => stage = tell(GRACE),
                Stage::Ending(at, grace) if at.elapsed() >= grace => break None,
                _ => {}
            }
        };
        let status = self.clear(worker, status);
        self.copy();
        let Warden { lines, words, .. } = self;
        lines.finish(&mut |line| pass_on(words, line));
        let asked = !matches!(stage, Stage::Serving);
        format!("{}\n{}", describe(status, asked), String::from_utf8_lossy(&self.words))
    }

    /// The program is to end.
    fn end(&self, urgent: bool) -> Stage {
        match self.share {
            Some(share) if !urgent => {
                share.dismiss();
                Stage::Emptying
            }
            _ => tell(if urgent { HURRIED } else { GRACE }),
        }
    }

    /// Waits for anything, or until no time is `left`; whether the program is to end from now on.
    fn wait(&self, worker: &UnixStream, left: Option<Duration>) -> bool {
        let watch = |fd, on: bool| PollFd::new(fd, if on { PollFlags::POLLIN } else { PollFlags::empty() });
        let mut fds = vec![watch(self.signals.as_fd(), true)];
        if left.is_none() {
            fds.push(watch(worker.as_fd(), true));
        }
        if let Some(output) = &self.output {
            fds.push(watch(output.as_fd(), true));
        }
        let timeout = match left {
            None => PollTimeout::NONE,
            Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
        };
        let _ = poll(&mut fds, timeout);
        let is = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        if is(0) {
            while matches!(self.signals.read_signal(), Ok(Some(_))) {}
        }
        // The worker says nothing after the command but that.
        left.is_none() && is(1)
    }

    /// Passes on what the program has written.
    fn copy(&mut self) {
        let Warden { output, lines, words, .. } = self;
        let mut piece = [0; 8 * 1024];
        while let Some(from) = output {
            match from.read(&mut piece) {
                Ok(0) => *output = None,
                Ok(n) => {
                    lines.push(piece.get(..n).unwrap_or_default(), &mut |line| pass_on(words, line));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Reaps what has ended below; the program's status where it is among that.
    fn reap(&self) -> Option<ExitStatus> {
        let mut status = None;
        while let Some((pid, ended)) = reaped() {
            if pid == self.program {
                status = Some(ended);
            }
        }
        status
    }

    /// Kills all that is left below and reaps it.
    fn clear(&mut self, worker: &UnixStream, mut status: Option<ExitStatus>) -> Option<ExitStatus> {
        loop {
            below(Signal::SIGKILL);
            status = self.reap().or(status);
            if !memory::has_children() {
                return status;
            }
            // Not until one ends: while some do, others may be missing in the kernel's list of children.
            self.wait(worker, Some(CLEARING));
            self.copy();
        }
    }
}

impl Stage {
    /// How long to wait at most for anything else; `None`: until the worker says something.
    fn left(&self) -> Option<Duration> {
        match self {
            Stage::Serving => None,
            Stage::Emptying => Some(LOOK),
            Stage::Ending(at, grace) => Some(grace.saturating_sub(at.elapsed())),
        }
    }
}

/// Tells all below to end.
fn tell(grace: Duration) -> Stage {
    below(Signal::SIGTERM);
    Stage::Ending(Instant::now(), grace)
}

/// One child that has ended; `None` where there is none.
fn reaped() -> Option<(Pid, ExitStatus)> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Some((pid, ExitStatus::from_raw(code << 8))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                return Some((pid, ExitStatus::from_raw(signal as i32)));
            }
            Ok(WaitStatus::StillAlive) => return None,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Signals every process below this one.
fn below(signal: Signal) {
    for pid in memory::children("self") {
        if let Ok(pid) = pid.parse() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

fn read_errand(worker: &mut &UnixStream) -> io::Result<Errand> {
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte: nothing may be read past the line, and it is short.
    while byte != *b"\n" {
        worker.read_exact(&mut byte)?;
        line.extend_from_slice(&byte);
    }
    Ok(serde_json::from_slice(&line)?)
}

fn spawn(command: &[String], listener: OwnedFd, output: io::PipeWriter) -> Result<Pid, String> {
    let [program, arguments @ ..] = command else { return Err("a command without a program".into()) };
    let second = output.try_clone().map_err(|e| format!("make a pipe: {e}"))?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(listener))
        .stdout(output)
        .stderr(second)
        .spawn()
        .map_err(|e| format!("it cannot be started: {e}"))?;
    i32::try_from(child.id()).map(Pid::from_raw).map_err(|e| e.to_string())
}

fn pass_on(words: &mut Vec<u8>, line: &[u8]) {
    if !line.trim_ascii().is_empty() {
        words.clear();
        words.extend_from_slice(line.trim_ascii().get(..WORDS).unwrap_or(line.trim_ascii()));
    }
    // One write a line, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(&[line, b"\n"].concat());
}

fn describe(status: Option<ExitStatus>, asked: bool) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some(_) if asked => "it was told to end".into(),
        Some((Some(code), _)) => format!("it ended with exit status {code}"),
        Some((_, Some(signal))) => format!("it was ended by signal {signal}"),
        _ => "it ended in an unknown way".into(),
    }
}
