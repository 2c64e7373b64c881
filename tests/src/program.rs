//! A process that a story starts, watches by its output, signals and ends.
//!
//! Always holds: its output is read all the time, so that it never blocks on it; a wait ends with a line, with
//! the process or with the deadline; when the value is dropped, the process is killed and reaped.

use crate::net::DEADLINE;
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// What the watching threads have seen.
#[derive(Debug, Default)]
struct Seen {
    lines: Vec<String>,
    ended: bool,
    open_outputs: usize,
}

type Shared = Arc<(Mutex<Seen>, Condvar)>;

/// A running process.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    seen: Shared,
}

impl Program {
    /// Starts `command` with its standard output and error read line by line.
    #[must_use]
    pub fn start(command: &mut Command) -> Program {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start {name}: {e}"));
        let seen: Shared = Arc::default();
        seen.0.lock().unwrap().open_outputs = 2;
        collect(child.stdout.take().unwrap(), &seen);
        collect(child.stderr.take().unwrap(), &seen);
        watch_end(pid_of(&child), &seen);
        Program { child, name, seen }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        // Not reaped before it is dropped, so that the id is never another's.
        let _ = kill(self.pid(), signal);
    }

    /// All lines so far, of standard output and error.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.seen.0.lock().unwrap().lines.clone()
    }

    /// How many lines hold `text` so far.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// Waits for a line that holds `text` and returns it.
    pub fn line(&self, text: &str) -> String {
        self.nth_line(text, 1)
    }

    /// Waits until `n` lines hold `text` and returns the `n`th.
    pub fn nth_line(&self, text: &str, n: usize) -> String {
        let found = self.wait(|seen| {
            let line = seen.lines.iter().filter(|line| line.contains(text)).nth(n - 1).cloned();
            line.map(Some).or((seen.ended && seen.open_outputs == 0).then_some(None))
        });
        found
            .flatten()
            .unwrap_or_else(|| panic!("{}: no line {text:?} (number {n}) in {}", self.name, self.told()))
    }

    /// Waits for its end.
    #[must_use]
    pub fn end(&mut self) -> ExitStatus {
        self.end_within(DEADLINE)
    }

    /// Waits for its end for at most `time`.
    #[must_use]
    pub fn end_within(&mut self, time: Duration) -> ExitStatus {
        if self.wait_for(time, |seen| seen.ended.then_some(())).is_none() {
            panic!("{} did not end in {time:?}: {}", self.name, self.told());
        }
        self.child.wait().unwrap()
    }

    /// Waits for its end and returns the exit code; a signal counts as 128 and its number.
    #[must_use]
    pub fn code(&mut self) -> i32 {
        let status = self.end();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }

    /// Asks it to end by SIGTERM, and waits for that: killed, a master process would leave its children behind.
    pub fn dismiss(&self) {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + DEADLINE;
        while self.runs() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether it runs still.
    #[must_use]
    pub fn runs(&self) -> bool {
        !self.seen.0.lock().unwrap().ended
    }

    fn wait<T>(&self, test: impl Fn(&Seen) -> Option<T>) -> Option<T> {
        self.wait_for(DEADLINE, test)
    }

    fn wait_for<T>(&self, time: Duration, test: impl Fn(&Seen) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + time;
        let (lock, changed) = &*self.seen;
        let mut seen = lock.lock().unwrap();
        loop {
            if let Some(found) = test(&seen) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            seen = changed.wait_timeout(seen, left).unwrap().0;
        }
    }

    fn told(&self) -> String {
        format!("\n{}", self.lines().join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} said:{}", self.name, self.told());
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

fn collect(from: impl Read + Send + 'static, seen: &Shared) {
    let seen = Arc::clone(seen);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            line.clear();
            seen.0.lock().unwrap().lines.push(text);
            seen.1.notify_all();
        }
        seen.0.lock().unwrap().open_outputs -= 1;
        seen.1.notify_all();
    });
}

fn watch_end(pid: Pid, seen: &Shared) {
    let seen = Arc::clone(seen);
    std::thread::spawn(move || {
        // WNOWAIT leaves it to be reaped by its owner.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        seen.0.lock().unwrap().ended = true;
        seen.1.notify_all();
    });
}

/// A number of `/proc/PID/status`, in KiB where it is a size (`VmHWM`, `RssAnon`, `PPid`, `Threads`).
#[must_use]
pub fn status(pid: Pid, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Private memory of a process in KiB: pages that it has written. Pages of its program's file do not count, since
/// they are shared or not by whatever else runs.
#[must_use]
pub fn private_kib(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let private = text.lines().filter(|line| line.starts_with("Private_Dirty:"));
    private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// Open descriptors of a process.
#[must_use]
pub fn descriptors(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The processes below `pid`, the heirs of workers aside, which are there for their end alone.
#[must_use]
pub fn descendants(pid: Pid) -> Vec<Pid> {
    let is_heir = |pid: &Pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "hostler-heir\n")
    };
    all_below(pid).into_iter().filter(|pid| !is_heir(pid)).collect()
}

/// All processes below `pid`.
#[must_use]
pub fn all_below(pid: Pid) -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        if let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw)
            && let Some(parent) = status(child, "PPid")
        {
            parents.push((child, parent));
        }
    }
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        let parent = u64::try_from(all[at].as_raw()).unwrap();
        all.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child));
        at += 1;
    }
    all.split_off(1)
}

/// Whether a process is there and no zombie.
#[must_use]
pub fn lives(pid: Pid) -> bool {
    state(pid).is_some_and(|state| !"ZX".contains(state))
}

/// Whether the main thread of a process waits for something: it is done with what it has answered.
#[must_use]
pub fn waits(pid: Pid) -> bool {
    state(pid) == Some('S')
}

fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Waits until `test` gives something: for what no descriptor or line tells of, such as another's process.
/// Looks again every few milliseconds until the deadline.
pub fn eventually<T>(what: &str, mut test: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = test() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
