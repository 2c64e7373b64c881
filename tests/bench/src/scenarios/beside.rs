//! `beside`: what goes wrong in the programs of today, done to them and to Hostler alike: three stories with
//! fcgiwrap, three with php-fpm. Not how fast, but whether it is right.
//!
//! Always holds: both get the same request, with the same time to answer it; what was seen of either is told in
//! words; Hostler must be right, of the others it is only told; no script that was left running stays.

mod cgi;
mod php;

use crate::{
    ground::Ground,
    report::{Report, Wanted},
    rounds::progress,
};
use hostler_bench::{
    address::Address,
    answer::{Answer, Progress},
    load::{Error, real},
    request::Request,
    server::Server,
    tree,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fmt, fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

/// How long each may take for an answer that Hostler gives in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the result goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Beside {
    /// Install what is missing with apt-get
    #[arg(long)]
    install: bool,
    /// Put the result into BENCHMARKS.md
    #[arg(long)]
    write: bool,
}

/// What was seen of one of the two.
struct Seen {
    words: String,
    right: bool,
}

/// One story, with what was seen of today's program and of Hostler.
struct Story {
    what: &'static str,
    today: Seen,
    hostler: Seen,
}

impl Beside {
    /// Whether Hostler was right in each.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        let mut report = Report::default();
        let cgi = cgi::stories(&Ground::new(1, self.install)?)?;
        tell(&mut report, "fcgiwrap", &cgi);
        let php = php::stories(&Ground::new(4, self.install)?)?;
        tell(&mut report, "php-fpm", &php);
        progress("");
        let command = "cargo run --release -p hostler-bench -- beside --install --write";
        report.finish("beside", command, self.write)
    }
}

fn tell(report: &mut Report, today: &str, stories: &[Story]) {
    let row = |story: &Story| vec![story.what.into(), verdict(&story.today), verdict(&story.hostler)];
    report.table(&["what", today, "hostler"], &stories.iter().map(row).collect::<Vec<_>>());
    let right = |of: fn(&Story) -> &Seen| stories.iter().filter(|story| of(story).right).count() as u64;
    let all = real(stories.len() as u64);
    report.check(&format!("right at hostler, of {all}"), real(right(|s| &s.hostler)), Wanted::AtLeast(all));
    report.line(format!("- right at {today}, of {all}: {}", right(|s| &s.today)));
    report.line("");
}

fn verdict(seen: &Seen) -> String {
    format!("{}: {}", if seen.right { "right" } else { "wrong" }, seen.words)
}

/// What came of one request.
struct Heard {
    progress: Progress,
    /// Bytes of its answer, head and body.
    bytes: u64,
    took: Duration,
    /// Nothing more came until patience was over.
    silent: bool,
}

impl Heard {
    fn is_whole(&self) -> bool {
        self.progress == Progress::Whole
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.progress {
            Progress::Whole => write!(f, "a whole answer in {} ms", self.took.as_millis()),
            _ if self.silent => write!(f, "no end of an answer within {} s", self.took.as_secs()),
            Progress::Wrong(why) => f.write_str(why),
            Progress::Partial => f.write_str("a cut answer"),
        }
    }
}

/// Sends `request` on a connection of its own while its answer is read.
fn ask(address: &Address, request: &Request, patience: Duration) -> Result<Heard, Error> {
    let error = |source| Error::system(format!("a request to {address}"), source);
    let began = Instant::now();
    let Ok(socket) = address.connect() else {
        let progress = Progress::Wrong("connection refused");
        return Ok(Heard { progress, bytes: 0, took: began.elapsed(), silent: false });
    };
    let mut reader = UnixStream::from(socket);
    reader.set_write_timeout(Some(patience)).map_err(error)?;
    let mut writer = reader.try_clone().map_err(error)?;
    let bytes = request.to_bytes();
    thread::scope(|scope| {
        // That the peer takes no more of it shows in the answer.
        scope.spawn(move || writer.write_all(&bytes));
        let heard = listen(&mut reader, request, began, patience);
        let _ = reader.shutdown(std::net::Shutdown::Both);
        heard.map_err(error)
    })
}

fn listen(
    reader: &mut UnixStream,
    request: &Request,
    began: Instant,
    patience: Duration,
) -> std::io::Result<Heard> {
    let mut answer = Answer::new(request.protocol);
    let mut piece = [0; 1 << 16];
    loop {
        let left = patience.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
        reader.set_read_timeout(Some(left))?;
        let (progress, silent) = match reader.read(&mut piece) {
            Ok(0) => (answer.end(), false),
            Ok(count) => (answer.feed(piece.get(..count).unwrap_or_default()), began.elapsed() >= patience),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => (Progress::Partial, true),
            Err(_) => (Progress::Wrong("connection reset"), false),
        };
        if progress != Progress::Partial || silent {
            return Ok(Heard { progress, bytes: answer.bytes(), took: began.elapsed(), silent });
        }
    }
}

/// Sends `request`, and leaves when a script has noted its process id in the file `note`: which script.
fn leave(ground: &Ground, address: &Address, request: &Request, note: &str) -> Result<Pid, Error> {
    let error = |source| Error::system(format!("a request to {address}"), source);
    let mut socket = UnixStream::from(address.connect().map_err(error)?);
    socket.write_all(&request.to_bytes()).map_err(error)?;
    noted(ground, note).ok_or_else(|| Error::new("a script did not start"))
}

/// The process whose id stands in a file; waited for.
fn noted(ground: &Ground, name: &str) -> Option<Pid> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let text = fs::read_to_string(ground.path(name)).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            return Some(Pid::from_raw(pid));
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Whether a process ends within `patience`.
fn ends(pid: Pid, patience: Duration) -> bool {
    let began = Instant::now();
    while lives(pid) {
        if began.elapsed() > patience {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Ends a server and whatever of it, or of a script that it had started, does not end by itself.
fn clear(server: Server, left: Option<Pid>) {
    let below = tree::pids(server.pid());
    drop(server);
    let below = below.into_iter().filter_map(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    for pid in below.chain(left).filter(|pid| lives(*pid)) {
        let _ = kill(pid, Signal::SIGKILL);
    }
}
