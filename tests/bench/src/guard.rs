//! `guard`: how many instructions a request costs the worker, by valgrind's callgrind, held against a record.
//!
//! The worker's example `hello` runs as one process on a listener as descriptor 0; the main thread's
//! instructions of a run with twice as many requests, less those of a run with half as many, divided by the
//! difference: start and end cancel out. Each request is sent only when the process sleeps in its epoll, so
//! that every request takes the same path. Instructions of the kernel do not count; time does not either.

use crate::{
    ground::Ground,
    hostler,
    report::{Report, Wanted},
};
use hostler_bench::{
    address::Address,
    answer::{Answer, Progress},
    load::{Error, real},
    request::{Protocol, Request},
};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{MsgFlags, recv, send, setsockopt, sockopt::ReceiveTimeout},
        time::{TimeVal, TimeValLike},
    },
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::{self, File},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
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
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Guard {
    /// Whether no exchange costs over 5 % more than recorded.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        let ground = Ground::new(1, false)?;
        let program = match self.program.as_slice() {
            [] => hostler::example("hello")?,
            [program, ..] => program.clone(),
        };
        let arguments = self.program.get(1..).unwrap_or_default();
        let mut counted = BTreeMap::new();
        for (name, request) in exchanges() {
            let count = |requests| measure(&ground, &program, arguments, &request, requests, self.explain);
            let (once, twice) = (count(REQUESTS)?, count(2 * REQUESTS)?);
            counted.insert(name.to_string(), twice.saturating_sub(once) / REQUESTS as u64);
        }
        if self.record {
            return record(&counted).map(|()| true);
        }
        let mut report = Report::default();
        let recorded = recorded()?;
        for (name, count) in &counted {
            let before = recorded.get(name).copied().unwrap_or(0);
            report.line(format!("{name}: {count} instructions a request, recorded {before}"));
            report.check(name, real(*count) / real(before.max(1)), Wanted::AtMost(TOLERANCE));
        }
        report.line("\nWhere more is meant: tests/guard/run --record");
        report.finish("guard", "tests/guard/run", false)
    }
}

fn exchanges() -> [(&'static str, Request); 3] {
    let kept = Request::new(Protocol::Fastcgi, true);
    let fresh = Request::new(Protocol::Fastcgi, false);
    let form = Request { method: "POST".into(), body: 2000, ..kept.clone() };
    [("kept", kept), ("fresh", fresh), ("form of 2000 bytes, kept", form)]
}

/// Instructions of the main thread of a whole run that serves so many requests.
fn measure(
    ground: &Ground,
    program: &Path,
    arguments: &[PathBuf],
    request: &Request,
    requests: usize,
    explain: bool,
) -> Result<u64, Error> {
    let socket = ground.path("guard.sock");
    let _ = fs::remove_file(&socket);
    let error = |source| Error::system("listening for the program to count", source);
    let listener: OwnedFd = UnixListener::bind(&socket).map_err(error)?.into();
    let valgrind = ground.program("valgrind", "valgrind")?;
    let output = ground.path("callgrind.out");
    let log = File::create(ground.path("guard.log")).map_err(error)?;
    let mut command = Command::new(valgrind);
    command.args(["--tool=callgrind", "--separate-threads=yes"]);
    command.arg(format!("--callgrind-out-file={}", output.display())).arg(program).args(arguments);
    command.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().map_err(|source| Error::system("starting valgrind", source))?;
    let served = exchange(&Address::Unix(socket), request, WARM + requests, child.id());
    let ended = end(&mut child);
    let log = || fs::read_to_string(ground.path("guard.log")).unwrap_or_default();
    served.and(ended).map_err(|error| Error::new(format!("{error}; {}", log())))?;
    let main = ground.path("callgrind.out-01");
    if explain && requests > REQUESTS {
        let _ = Command::new("callgrind_annotate").arg(&main).status();
    }
    let text =
        fs::read_to_string(&main).map_err(|source| Error::system("reading callgrind's counts", source))?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals:"))
        .and_then(|total| total.trim().parse().ok());
    total.ok_or_else(|| Error::new("callgrind wrote no totals"))
}

/// One request after another, each sent when the process sleeps in its epoll.
fn exchange(address: &Address, request: &Request, requests: usize, pid: u32) -> Result<(), Error> {
    let bytes = request.to_bytes();
    let mut kept: Option<OwnedFd> = None;
    for _ in 0..requests {
        sleeps(pid)?;
        let socket = match kept.take() {
            Some(socket) => socket,
            None => address
                .connect()
                .map_err(|source| Error::system("connecting to the counted program", source))?,
        };
        let error = |errno| Error::system("a request to the counted program", errno);
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(60)).map_err(error)?;
        send(socket.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL).map_err(error)?;
        whole(&socket, request)?;
        kept = request.keep.then_some(socket);
    }
    sleeps(pid)
}

fn whole(socket: &OwnedFd, request: &Request) -> Result<(), Error> {
    let mut answer = Answer::new(request.protocol);
    let mut buffer = [0; 4096];
    loop {
        let count = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())
            .map_err(|errno| Error::system("reading the counted program's answer", errno))?;
        let bytes = buffer.get(..count).unwrap_or_default();
        match if count == 0 { answer.end() } else { answer.feed(bytes) } {
            Progress::Partial => {}
            Progress::Whole => return Ok(()),
            Progress::Wrong(why) => return Err(Error::new(format!("the counted program: {why}"))),
        }
    }
}

/// Waits until the main thread of `pid` sleeps in an epoll.
fn sleeps(pid: u32) -> Result<(), Error> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let place = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        if place.contains("ep_poll") || place.contains("epoll") {
            return Ok(());
        }
        thread::yield_now();
    }
    Err(Error::new(format!("process {pid} does not come to rest in an epoll")))
}

fn end(child: &mut Child) -> Result<(), Error> {
    let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)), Signal::SIGTERM);
    let began = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::new("the counted program did not end on TERM"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
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
