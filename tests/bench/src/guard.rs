//! `guard`: how many instructions a request costs the worker, by valgrind's callgrind, held against a record;
//! and how many system calls, by strace, held against the least that there can be.
//!
//! The worker's example `hello` runs as one process, in lockstep. What a run with more requests costs over one
//! with fewer, divided by the difference, is the cost of a request: start and end cancel out. Instructions are
//! those of the main thread outside the kernel; time plays no part.

use crate::{
    ground::Ground,
    hostler, lockstep,
    report::{Report, Wanted},
};
use hostler_bench::{
    load::{Error, real},
    request::{Protocol, Request},
};
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What to do with the count.
#[derive(Debug, clap::Args)]
pub(crate) struct Guard {
    /// Record what is counted now in place of the figures of before
    #[arg(long)]
    record: bool,
    /// Print where the instructions go
    #[arg(long)]
    explain: bool,
    /// Count this FastCGI program, on a listener as descriptor 0, in place of the worker's example
    #[arg(last = true)]
    program: Vec<PathBuf>,
}

/// An exchange over a recorded count by more than this fails.
const TOLERANCE: f64 = 1.05;
const WARM: usize = 50;
const REQUESTS: usize = 200;
/// Requests of a run that is explained: start-up is little beside them, and a listener's backlog (4096) holds them.
const EXPLAINED: usize = 3000;
/// Wait, read, write.
const CALLS_KEPT: f64 = 3.0;
/// Wait, accept, watch, wait, read, write, close.
const CALLS_FRESH: f64 = 7.0;

impl Guard {
    /// Whether no exchange costs over 5 % more than recorded.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        let ground = Ground::new(1, false)?;
        let program = match self.program.as_slice() {
            [] => hostler::example("hello")?,
            [program, ..] => program.clone(),
        };
        let arguments = self.program.get(1..).unwrap_or_default();
        let subject = Subject { ground: &ground, program: &program, arguments };
        if self.explain {
            return subject.explain();
        }
        let mut counted = BTreeMap::new();
        let mut report = Report::default();
        for (name, request) in exchanges() {
            counted.insert(name.to_string(), subject.instructions(&request)?);
            let calls = subject.calls(&request)?;
            let list: Vec<String> = calls.iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
            let most = if request.keep { CALLS_KEPT } else { CALLS_FRESH };
            let what = format!("{name}: system calls a request ({})", list.join(", "));
            // To a tenth: a wait that a signal broke off is no call of the request.
            let sum = (calls.values().sum::<f64>() * 10.0).round() / 10.0;
            report.check(&what, sum, Wanted::AtMost(most));
        }
        if self.record {
            record(&counted)?;
        }
        let recorded = recorded()?;
        for (name, count) in &counted {
            let before = recorded.get(name).copied().unwrap_or(0);
            let what = format!("{name}: {count} instructions a request, to {before} recorded");
            report.check(&what, real(*count) / real(before.max(1)), Wanted::AtMost(TOLERANCE));
        }
        report.line("\nWhere more instructions are meant: tests/guard/run --record");
        report.finish("guard", "tests/guard/run", false)
    }
}

fn exchanges() -> [(&'static str, Request); 3] {
    let kept = Request::new(Protocol::Fastcgi, true);
    let fresh = Request::new(Protocol::Fastcgi, false);
    let form = Request { method: "POST".into(), body: 2000, ..kept.clone() };
    [("kept", kept), ("fresh", fresh), ("form of 2000 bytes, kept", form)]
}

/// How a program is counted.
struct Subject<'a> {
    ground: &'a Ground,
    program: &'a Path,
    arguments: &'a [PathBuf],
}

impl Subject<'_> {
    /// Instructions a request of the main thread.
    fn instructions(&self, request: &Request) -> Result<u64, Error> {
        let total = |requests| -> Result<u64, Error> {
            let text = self.callgrind(request, requests)?;
            let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
            total
                .and_then(|total| total.trim().parse().ok())
                .ok_or_else(|| Error::new("callgrind wrote no totals"))
        };
        let (once, twice) = (total(WARM + REQUESTS)?, total(WARM + 2 * REQUESTS)?);
        Ok(twice.saturating_sub(once) / REQUESTS as u64)
    }

    /// Callgrind's file about the main thread.
    fn callgrind(&self, request: &Request, requests: usize) -> Result<String, Error> {
        let mut command = Command::new(self.ground.program("valgrind", "valgrind")?);
        let output = self.ground.path("callgrind.out");
        command.args(["--tool=callgrind", "--separate-threads=yes"]);
        command
            .arg(format!("--callgrind-out-file={}", output.display()))
            .arg(self.program)
            .args(self.arguments);
        lockstep::serve(self.ground, command, request, requests)?;
        let main = self.ground.path("callgrind.out-01");
        fs::read_to_string(main).map_err(|source| Error::system("reading callgrind's counts", source))
    }

    /// System calls a request by name, of the main thread: those of the keeper come with time, not with requests.
    fn calls(&self, request: &Request) -> Result<BTreeMap<String, f64>, Error> {
        let (once, twice) =
            (self.strace(request, WARM + REQUESTS)?, self.strace(request, WARM + 2 * REQUESTS)?);
        let each = |(name, count): (String, u64)| {
            let before = once.get(&name).copied().unwrap_or(0);
            (name, real(count.saturating_sub(before)) / REQUESTS as f64)
        };
        Ok(twice.into_iter().map(each).filter(|(_, count)| *count >= 0.01).collect())
    }

    fn strace(&self, request: &Request, requests: usize) -> Result<BTreeMap<String, u64>, Error> {
        let mut command = Command::new(self.ground.program("strace", "strace")?);
        let output = self.ground.path("strace.out");
        // -D: the program is our child, and strace looks at it from aside.
        command.args(["-D", "-f", "-o"]).arg(&output).arg(self.program).args(self.arguments);
        lockstep::serve(self.ground, command, request, requests)?;
        let text =
            fs::read_to_string(output).map_err(|source| Error::system("reading strace's lines", source))?;
        let mut counts = BTreeMap::new();
        let main = text.lines().find_map(call).map(|(pid, _)| pid);
        for (_, name) in text.lines().filter_map(call).filter(|(pid, _)| Some(*pid) == main) {
            *counts.entry(name.to_string()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Prints where the instructions go.
    fn explain(&self) -> Result<bool, Error> {
        for (name, request) in exchanges() {
            println!("{name}: {EXPLAINED} requests");
            self.callgrind(&request, EXPLAINED)?;
            let mut annotate = Command::new("callgrind_annotate");
            annotate.args(["--auto=no", "--threshold=95"]).arg(self.ground.path("callgrind.out-01"));
            annotate.status().map_err(|source| Error::system("starting callgrind_annotate", source))?;
        }
        Ok(true)
    }
}

/// Thread and name of a line `PID name(arguments) = result`; a call that another thread interrupts is told where it
/// begins.
fn call(line: &str) -> Option<(&str, &str)> {
    let (pid, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some((pid, name))
}

/// Where the figures are kept: one `COUNT NAME` a line.
fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../guard/instructions"))
}

fn recorded() -> Result<BTreeMap<String, u64>, Error> {
    let path = file();
    let text = fs::read_to_string(&path)
        .map_err(|source| Error::system(format!("reading {}", path.display()), source))?;
    let figures = text.lines().filter_map(|line| line.split_once(' '));
    Ok(figures.filter_map(|(count, name)| Some((name.to_string(), count.parse().ok()?))).collect())
}

fn record(counted: &BTreeMap<String, u64>) -> Result<(), Error> {
    let mut text = String::from("# Instructions a request; written by tests/guard/run --record\n");
    for (name, count) in counted {
        let _ = writeln!(text, "{count} {name}");
    }
    print!("{text}");
    fs::write(file(), text).map_err(|source| Error::system("writing the recorded counts", source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_however_strace_writes_it() {
        assert_eq!(call("12 read(3, \"a(b\", 9) = 4"), Some(("12", "read")));
        assert_eq!(call("12 epoll_wait(4,  <unfinished ...>"), Some(("12", "epoll_wait")));
        assert_eq!(call("12 <... epoll_wait resumed>, 16, -1) = 1"), None);
        assert_eq!(call("12 --- SIGTERM {si_signo=SIGTERM} ---"), None);
        assert_eq!(call("12 +++ exited with 0 +++"), None);
    }
}
