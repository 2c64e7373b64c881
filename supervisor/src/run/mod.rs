//! The supervisor's shell: turns the system's events into those of the [`fleet`](crate::fleet) and its actions
//! into system calls. One thread, one epoll.
//!
//! Always holds: nothing here waits but the epoll; with nothing to do there is no timeout, so that a supervisor
//! at rest makes no system call; what a worker says is a claim, and what it breaks is its own.
//!
//! The files: `worker` (a worker from start to end), `place` (what is held of a pool), `change` (config and
//! reloads), `spawn`, `link`, `reap`, `lines`, `log`, `poll`, `signals`, `temporary`: one system interface each.

mod carry;
mod cgroup;
mod change;
mod command;
mod lines;
mod link;
mod log;
mod notify;
mod place;
mod poll;
mod reap;
mod signals;
mod slow;
mod spawn;
mod state;
mod temporary;
mod tryout;
mod upgrade;
mod view;
mod waiting;
mod watch;
mod worker;

pub(crate) use tryout::boot;
pub(crate) use upgrade::probe;

use crate::{
    config::Loaded,
    control::Server,
    fleet::{Action, Event, Fleet, PoolId, PoolState, Stop, WorkerId},
    listeners::Passed,
    settings,
};
use link::Link;
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use notify::Notify;
use place::Place;
use poll::{Poll, Token};
use signals::{Signals, Wish};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    io,
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};
use worker::{Output, Worker};

/// Where the settings come from.
pub(crate) enum Source {
    /// A file, read again at each reload.
    File(PathBuf),
    /// Made by a command; a reload starts new workers with the same settings.
    Made(Box<Loaded>),
}

/// Runs until it is told to stop.
pub(crate) fn run(source: Source) -> ExitCode {
    let shell = if upgrade::is_resumed() {
        Shell::resume(source).map(|mut shell| {
            shell.go_on();
            shell
        })
    } else {
        let passed = Passed::from_environment();
        // Whatever else we were started with is no business of any worker.
        close_fds::set_fds_cloexec(3, &[]);
        Shell::start(source, passed)
    };
    let shell = shell.and_then(|mut shell| shell.turn());
    match shell {
        Ok(code) => code,
        Err(e) => {
            eprintln!("hostler: {e}");
            ExitCode::from(e.code)
        }
    }
}

/// Why the supervisor cannot run.
#[derive(Debug)]
pub(crate) struct Error {
    code: u8,
    message: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// The config is at fault (EX_CONFIG).
const BAD_CONFIG: u8 = 78;

impl Error {
    fn config(message: String) -> Error {
        Error { code: BAD_CONFIG, message }
    }

    fn system(what: &str, e: impl std::fmt::Display) -> Error {
        Error { code: 1, message: format!("{what}: {e}") }
    }
}

/// All that the supervisor holds.
pub(crate) struct Shell {
    source: Source,
    passed: Passed,
    /// The worker program: this one.
    program: PathBuf,
    fleet: Fleet,
    events: VecDeque<Event>,
    poll: Poll,
    signals: Signals,
    places: BTreeMap<PoolId, Place>,
    names: BTreeMap<String, PoolId>,
    /// Pools that the config names but that could not be set up, with the reason.
    broken: BTreeMap<String, change::Broken>,
    workers: BTreeMap<WorkerId, Worker>,
    /// Workers that are to be started.
    starts: VecDeque<worker::Start>,
    pids: HashMap<i32, WorkerId>,
    outputs: BTreeMap<u64, Output>,
    last_output: u64,
    last_pool: u64,
    last_revision: u64,
    settings: settings::Supervisor,
    started: SystemTime,
    buffer: Vec<u8>,
    control: Option<Server>,
    waiting: Vec<command::Waiting>,
    /// Pools that somebody who waits may want to hear of.
    news: BTreeSet<PoolId>,
    /// Pools whose listeners are watched.
    watched: BTreeSet<PoolId>,
    probe: Option<upgrade::Probe>,
    notify: Notify,
    watches: watch::Watches,
    groups: Option<cgroup::Groups>,
    temporary: temporary::Temporary,
    /// Warnings about the config that were given already.
    warned: HashSet<String>,
    finished: bool,
}

impl Shell {
    /// Starts all pools.
    fn start(source: Source, passed: Passed) -> Result<Shell, Error> {
        let settings = change::supervisor_settings(&source)?;
        if let Err(e) = log::set(&settings.log) {
            let file = settings.log.file.clone().unwrap_or_default();
            return Err(Error::system(&format!("open the log {}", file.display()), e));
        }
        let mut shell = Shell::with(source, passed, settings)?;
        shell.begin()?;
        Ok(shell)
    }

    /// A shell that holds nothing yet.
    fn with(source: Source, passed: Passed, settings: settings::Supervisor) -> Result<Shell, Error> {
        raise_descriptor_limit();
        let system = |e: nix::Error| Error::system("set up the supervisor", e);
        let poll = Poll::new().map_err(system)?;
        let signals = Signals::new().map_err(|e| Error::system("listen for signals", e))?;
        poll.add(signals.readable(), Token::Signals).map_err(system)?;
        let program = std::env::current_exe().map_err(|e| Error::system("find the own program", e))?;
        Ok(Shell {
            source,
            passed,
            program,
            fleet: Fleet::new(seed()),
            events: VecDeque::new(),
            poll,
            signals,
            places: BTreeMap::new(),
            names: BTreeMap::new(),
            broken: BTreeMap::new(),
            workers: BTreeMap::new(),
            starts: VecDeque::new(),
            pids: HashMap::new(),
            outputs: BTreeMap::new(),
            last_output: 0,
            last_pool: 0,
            last_revision: 0,
            settings,
            started: SystemTime::now(),
            buffer: vec![0; hostler_worker::control::MESSAGE_LIMIT],
            control: None,
            waiting: Vec::new(),
            news: BTreeSet::new(),
            watched: BTreeSet::new(),
            probe: None,
            notify: Notify::from_environment(),
            watches: watch::Watches::default(),
            groups: cgroup::Groups::find(),
            temporary: temporary::Temporary::default(),
            warned: HashSet::new(),
            finished: false,
        })
    }

    fn begin(&mut self) -> Result<(), Error> {
        // First of all: it tells whether another supervisor runs here.
        let server = Server::open(&self.settings.control).map_err(|e| Error::system("control socket", e))?;
        self.poll.add(server.as_fd(), Token::Control).map_err(|e| Error::system("control socket", e))?;
        self.control = Some(server);
        tracing::info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "hostler starts");
        self.load(&change::Which::default()).map_err(Error::config)?;
        self.give_up_unclaimed();
        self.drive();
        self.tell_systemd();
        if self.names.is_empty() && self.broken.is_empty() {
            return Err(Error::config("the config names no pool: nothing to do".to_owned()));
        }
        Ok(())
    }

    /// The loop: wait, take what came, let the fleet decide, do it.
    fn turn(&mut self) -> Result<ExitCode, Error> {
        while !self.finished {
            let timeout = match self.starts.is_empty() {
                true => self.next_deadline().map(|due| due.saturating_sub(now())),
                false => Some(Duration::ZERO),
            };
            let ready = self.poll.wait(timeout).map_err(|e| Error::system("wait for events", e))?;
            for token in ready {
                self.take(token);
            }
            self.retry_broken();
            self.end_probe();
            self.reload_watched();
            self.events.push_back(Event::Tick);
            self.drive();
            self.start_some();
            if self.control.as_ref().and_then(Server::deadline).is_some_and(|at| at <= Instant::now()) {
                self.serve_control();
            }
            self.settle();
            self.tell_systemd();
        }
        self.answer_all();
        self.close_listeners();
        self.drain_outputs();
        tracing::info!("hostler ends");
        Ok(ExitCode::SUCCESS)
    }

    fn next_deadline(&self) -> Option<Duration> {
        let control = self.control.as_ref().and_then(Server::deadline);
        let control = control.map(|at| now() + at.saturating_duration_since(Instant::now()));
        let own =
            [self.retry_deadline(), self.probe_deadline(), self.notify.deadline(), self.watches.deadline()];
        own.into_iter().chain([self.fleet.next_deadline(), control]).flatten().min()
    }

    fn take(&mut self, token: Token) {
        match token {
            Token::Signals => {
                for wish in self.signals.wishes() {
                    self.grant(wish);
                }
            }
            Token::Worker(worker) => self.hear(worker),
            Token::Output(output) => self.read_output(output),
            Token::Pool(pool) => {
                self.unwatch(pool);
                self.events.push_back(Event::Connecting { pool });
            }
            Token::Control => self.serve_control(),
            Token::Files => self.read_changes(),
        }
    }

    fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::Reload => {
                // What is wrong is in the log, and in the status.
                let _ = self.load(&change::Which::default());
            }
            Wish::ReopenLogs => self.reopen_logs(),
            Wish::Upgrade => self.upgrade(),
            Wish::StopGracefully => self.stop(Stop::Graceful(self.settings.stop_timeout)),
            Wish::StopNow => self.stop(Stop::Now),
            Wish::Reap => self.reap(),
        }
    }

    fn stop(&mut self, stop: Stop) {
        tracing::info!(graceful = matches!(stop, Stop::Graceful(_)), "hostler is being stopped");
        self.broken.clear();
        self.notify.stop(match stop {
            Stop::Graceful(within) => within,
            Stop::Now => Duration::ZERO,
        });
        // Nobody new from now on: clients are refused and can go elsewhere, or wait where systemd keeps the listeners.
        self.close_listeners();
        self.events.push_back(Event::StopAll(stop));
    }

    /// At the end. Whether systemd will start us again with the listeners that it keeps, nobody tells us: so their
    /// files stay, without which no client would find them.
    fn close_listeners(&mut self) {
        let kept = self.notify.keeps_listeners();
        for place in self.places.values_mut() {
            if kept {
                place.leave();
            } else {
                place.close();
            }
        }
    }

    /// Lets the fleet decide about all events, and does what it says.
    fn drive(&mut self) {
        while let Some(event) = self.events.pop_front() {
            for action in self.fleet.step(now(), event) {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Spawn { pool, worker, kind, revision, generation, lot } => {
                let which = spawn::Which { worker, kind, generation, lot };
                self.starts.push_back(worker::Start { pool, revision, which });
            }
            Action::Force { worker, force, why } => self.force(worker, force, why),
            Action::Watch { pool } => self.watch(pool),
            Action::Unwatch { pool } => self.unwatch(pool),
            Action::Sample { pool } => self.sample(pool),
            Action::Adopted { pool, revision, generation } => self.adopted(pool, revision, generation),
            Action::Reloaded { pool, revision, generation, fault } => {
                self.reloaded(pool, revision, generation, fault);
            }
            Action::Changed { pool, from, to } => self.changed(pool, from, to),
            Action::Forget { pool } => self.forget(pool),
            Action::Finished => self.finished = true,
        }
    }

    fn watch(&mut self, pool: PoolId) {
        let Some(place) = self.places.get(&pool) else { return };
        self.watched.insert(pool);
        let sockets = place.current().into_iter().flat_map(|r| &r.sockets);
        for fd in sockets.map(|s| &s.bound.fd).chain([&place.queue.receiving]) {
            if let Err(e) = self.poll.add(fd, Token::Pool(pool)) {
                tracing::error!(pool = place.name, "watch a listener: {e}");
            }
        }
    }

    fn unwatch(&mut self, pool: PoolId) {
        self.watched.remove(&pool);
        let Some(place) = self.places.get(&pool) else { return };
        for fd in place.sockets().map(|s| &s.bound.fd).chain([&place.queue.receiving]) {
            self.poll.remove(fd);
        }
    }

    fn changed(&mut self, pool: PoolId, from: PoolState, to: PoolState) {
        self.notify.dirty = true;
        self.news.insert(pool);
        let name = self.name(pool);
        let (from, to) = (from.word(), to.word());
        match self.fleet.pool(pool).and_then(|p| p.last_error()) {
            Some(error) if to == "failed" || to == "degraded" => {
                tracing::warn!(pool = name, "the pool is {to}, was {from}: {error}");
            }
            _ => tracing::info!(pool = name, "the pool is {to}, was {from}"),
        }
    }

    fn forget(&mut self, pool: PoolId) {
        if let Some(mut place) = self.places.remove(&pool) {
            self.notify.dirty = true;
            self.news.insert(pool);
            let closed = place.close();
            self.let_go(closed);
            if self.names.get(&place.name) == Some(&pool) {
                self.names.remove(&place.name);
            }
            if !self.names.contains_key(&place.name) {
                self.temporary.remove(&place.name);
            }
            tracing::info!(pool = place.name, "the pool is gone");
            self.watch_files(pool);
        }
    }

    fn name(&self, pool: PoolId) -> String {
        self.places.get(&pool).map(|place| place.name.clone()).unwrap_or_default()
    }
}

impl PoolState {
    /// The word in log and status.
    pub(crate) fn word(self) -> &'static str {
        match self {
            PoolState::Starting => "starting",
            PoolState::Running => "running",
            PoolState::Degraded => "degraded",
            PoolState::Failed => "failed",
            PoolState::Stopped => "stopped",
        }
    }
}

/// The time that the fleet is told: it does not jump with the wall clock, stands while the machine is suspended,
/// and goes on after a re-exec.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Chance enough that two supervisors do not retry in step.
fn seed() -> u64 {
    let pid = u64::from(std::process::id());
    u64::from(now().subsec_nanos()) << 32 | pid
}

/// Thousands of pools need thousands of descriptors: take what the hard limit gives.
fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::other(e.message)
    }
}
