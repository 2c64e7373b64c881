//! A worker as the shell sees it: started, heard, read, ended.

use super::{
    Link, Shell, Token,
    lines::Lines,
    link::{Page, Received},
    reap::{self, End},
    slow,
    spawn::{self, Which},
};
use crate::fleet::{Event, Exit, Force, Kind, PoolId, Reading, Reason, WorkerId};
use hostler_worker::{
    control::{Order, Report},
    page::{self, State},
};
use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::{Pid, read},
};
use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant, SystemTime},
};

/// Reports of one worker that are taken in one turn.
const REPORTS: usize = 32;
/// How long workers are started in one turn.
const STARTS: Duration = Duration::from_millis(20);
/// Bytes of one stream that are read in one turn.
const READ: usize = 64 * 1024;

/// What is held of a worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) pid: i32,
    pub(crate) pool: PoolId,
    pub(crate) kind: Kind,
    pub(crate) generation: u64,
    pub(crate) link: Link,
    pub(crate) page: Page,
    pub(crate) started: SystemTime,
    pub(crate) outputs: [u64; 2],
    /// The link is no longer read.
    pub(crate) mute: bool,
    /// It was killed for its memory by us.
    pub(crate) over_hard: bool,
    /// It has a cgroup of its own.
    pub(crate) grouped: bool,
}

/// Standard output or standard error of a worker, until the last process that holds it is gone.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) fd: OwnedFd,
    pub(crate) pool: String,
    pub(crate) pid: i32,
    pub(crate) stream: &'static str,
    pub(crate) lines: Lines,
}

/// A worker that is to be started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) pool: PoolId,
    pub(crate) revision: u64,
    pub(crate) which: Which,
}

impl Shell {
    /// Starts workers, for a moment at most: on a busy machine one start may take long, and signals and whoever asks
    /// are to be heard between them.
    pub(super) fn start_some(&mut self) {
        let until = Instant::now() + STARTS;
        while let Some(start) = self.starts.pop_front() {
            self.spawn(start);
            self.drive();
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Starts all that are to be started.
    pub(super) fn start_all(&mut self) {
        while !self.starts.is_empty() {
            self.start_some();
        }
    }

    fn spawn(&mut self, Start { pool, revision, which }: Start) {
        let worker = which.worker;
        let place = self.places.get(&pool);
        let Some((place, settings)) = place.and_then(|p| Some((p, p.revisions.get(&revision)?))) else {
            return self.not_started(worker, "its settings are in force no more".to_owned());
        };
        let temporary = match which.kind {
            Kind::App => self.temporary.of(&settings.settings),
            Kind::StandIn => Ok(None),
        };
        let started = temporary.and_then(|temporary| {
            spawn::start(&self.program, self.groups.as_ref(), settings, temporary, &place.queue, which)
        });
        match started {
            Ok(started) => {
                let name = place.name.clone();
                tracing::debug!(pool = name, worker = started.pid, generation = which.generation, "started");
                if let Err(e) = self.poll.add(&started.link.0, Token::Worker(worker)) {
                    tracing::error!(pool = name, "wait for a worker: {e}");
                }
                let outputs = started.output;
                let mut ids = [0; 2];
                for ((fd, stream), id) in outputs.into_iter().zip(["stdout", "stderr"]).zip(&mut ids) {
                    *id = self.keep_output(Output {
                        fd,
                        pool: name.clone(),
                        pid: started.pid,
                        stream,
                        lines: Lines::default(),
                    });
                }
                self.pids.insert(started.pid, worker);
                let held = Worker {
                    id: worker,
                    pid: started.pid,
                    pool,
                    kind: which.kind,
                    generation: which.generation,
                    link: started.link,
                    page: started.page,
                    started: SystemTime::now(),
                    outputs: ids,
                    mute: false,
                    over_hard: false,
                    grouped: started.grouped,
                };
                self.workers.insert(worker, held);
            }
            Err(e) => {
                tracing::error!(pool = place.name, "start a worker: {e}");
                self.not_started(worker, e.to_string());
            }
        }
    }

    fn not_started(&mut self, worker: WorkerId, said: String) {
        let exit = Exit { clean: false, oom: false, requests: 0, said };
        self.events.push_back(Event::Exited { worker, exit });
    }

    fn keep_output(&mut self, output: Output) -> u64 {
        self.last_output += 1;
        if let Err(e) = self.poll.add(&output.fd, Token::Output(self.last_output)) {
            tracing::error!(pool = output.pool, "read a worker's output: {e}");
        }
        self.outputs.insert(self.last_output, output);
        self.last_output
    }

    pub(super) fn force(&mut self, id: WorkerId, force: Force, why: Option<Reason>) {
        if let Some(at) = self.starts.iter().position(|start| start.which.worker == id) {
            self.starts.remove(at);
            return self.not_started(id, "it was not started any more".to_owned());
        }
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let pid = Pid::from_raw(worker.pid);
        worker.over_hard |= why == Some(Reason::Memory);
        let pool = self.places.get(&worker.pool).map(|p| p.name.as_str()).unwrap_or_default();
        match why {
            None => tracing::debug!(pool, worker = worker.pid, "{}", force.word()),
            Some(why) => tracing::warn!(pool, worker = worker.pid, "{}: {}", force.word(), why.said()),
        }
        let failed = match force {
            Force::Retire => worker.link.send(&Order::Retire, &[]).err().map(|e| e.to_string()),
            Force::Terminate => killpg(pid, Signal::SIGTERM).err().map(|e| e.to_string()),
            Force::Kill => {
                if let Some(groups) = self.groups.as_ref().filter(|_| worker.grouped) {
                    groups.of(id).kill();
                }
                killpg(pid, Signal::SIGKILL).err().map(|e| e.to_string())
            }
        };
        if let Some(e) = failed {
            // It is gone already, and its end on the way; or its deadline raises the force.
            tracing::debug!(pool, worker = worker.pid, "{}: {e}", force.word());
        }
    }

    /// Takes what a worker reports.
    pub(super) fn hear(&mut self, id: WorkerId) {
        for _ in 0..REPORTS {
            let Some(worker) = self.workers.get_mut(&id).filter(|w| !w.mute) else { return };
            match worker.link.receive(&mut self.buffer) {
                Received::Nothing => return,
                Received::Report(report) => {
                    self.note(id, &report);
                    self.events.push_back(Event::Reported { worker: id, report });
                }
                Received::Over(why) => {
                    worker.mute = true;
                    self.poll.remove(&worker.link.0);
                    tracing::debug!(worker = worker.pid, "{why}");
                    self.events.push_back(Event::Mute { worker: id });
                    return;
                }
            }
        }
    }

    fn note(&self, id: WorkerId, report: &Report) {
        let Some(worker) = self.workers.get(&id) else { return };
        let pool = self.places.get(&worker.pool).map(|p| p.name.as_str()).unwrap_or_default();
        let (worker, grouped) = (worker.pid, worker.grouped);
        match report {
            Report::Ready => {
                if let Some(groups) = self.groups.as_ref().filter(|_| grouped) {
                    groups.part_from_heir(id, worker);
                }
                tracing::info!(pool, worker, "a worker is ready");
            }
            Report::BootFailed { message } => tracing::error!(pool, worker, "boot: {message}"),
            Report::Worn { why } => tracing::info!(pool, worker, "a worker is to be replaced: {why:?}"),
            Report::TimedOut { request, ms } => {
                tracing::warn!(pool, worker, ms, "over its time, answered with 504: {request}");
            }
            Report::Slow { request, ms } => {
                let (kernel, below) = (slow::kernel(worker), slow::children(worker).join("; "));
                if below.is_empty() {
                    tracing::warn!(pool, worker, ms, kernel, "slow: {request}");
                } else {
                    tracing::warn!(pool, worker, ms, kernel, below, "slow: {request}");
                }
            }
            Report::OverHard { bytes } => tracing::warn!(pool, worker, bytes, "over its memory limit"),
            Report::Active | Report::Rest | Report::Pressure => {}
        }
    }

    pub(super) fn sample(&mut self, pool: PoolId) {
        let ids = self.fleet.pool(pool).into_iter().flat_map(|p| p.workers().map(|(id, _)| id));
        let readings = ids
            .filter_map(|id| {
                let page = self.workers.get(&id).filter(|w| w.kind == Kind::App)?.page.read()?;
                Some(Reading {
                    worker: id,
                    busy: page.state() == State::Busy,
                    requests: page.word(page::WORD_REQUESTS),
                    connections: page.word(page::WORD_CONNECTIONS),
                    memory: page.word(page::WORD_MEMORY),
                })
            })
            .collect();
        // Before anything else that waits: it is an answer.
        self.events.push_front(Event::Sampled { pool, readings });
    }

    /// Takes the ends of all processes that ended.
    pub(super) fn reap(&mut self) {
        while let Some((pid, end)) = reap::next_dead(self.pids.keys().copied()) {
            match self.pids.remove(&pid.as_raw()) {
                None => {
                    reap::bury(pid); // a stranger, unless it is the probe
                    self.probed(pid.as_raw(), end == End::Code(0));
                }
                Some(id) => {
                    self.hear(id); // its last words first
                    if end != End::Code(0) {
                        reap::sweep(pid);
                    }
                    reap::bury(pid);
                    self.part(id, end);
                }
            }
        }
    }

    fn part(&mut self, id: WorkerId, end: End) {
        let Some(worker) = self.workers.remove(&id) else { return };
        self.poll.remove(&worker.link.0);
        self.news.insert(worker.pool);
        for output in worker.outputs {
            self.read_output(output);
        }
        let page = worker.page.read();
        let requests = page.as_ref().map_or(0, |p| p.word(page::WORD_REQUESTS));
        let peak = page.as_ref().map_or(0, |p| p.word(page::WORD_MEMORY_PEAK));
        let request = page.as_ref().map(|p| p.request().to_owned()).unwrap_or_default();
        let pool = self.places.get_mut(&worker.pool);
        if let (Some(place), Some(page), Kind::App) = (pool, &page, worker.kind) {
            place.gone.add(page);
        }
        let pool = self.name(worker.pool);
        let pid = worker.pid;
        let groups = self.groups.as_ref().filter(|_| worker.grouped);
        let oom = end != End::Code(0) && groups.is_some_and(|groups| groups.of(id).was_out_of_memory());
        if let Some(groups) = groups {
            groups.remove(id);
        }
        let said = match (oom, worker.over_hard) {
            (true, _) => format!("out of memory, {}", end.said()),
            (false, true) => format!("{}, over its memory limit", end.said()),
            (false, false) => end.said(),
        };
        let planned = self
            .fleet
            .pool(worker.pool)
            .and_then(|p| p.worker(id))
            .is_some_and(|w| w.state() >= crate::fleet::State::Retiring);
        if planned {
            tracing::info!(pool, worker = pid, requests, "a worker left: {said}");
        } else {
            tracing::warn!(
                pool,
                worker = pid,
                requests,
                memory_peak = peak,
                request,
                "a worker died: {said}"
            );
        }
        let exit = Exit { clean: end == End::Code(0), oom, requests, said };
        self.events.push_back(Event::Exited { worker: id, exit });
    }

    /// Reads what a worker wrote and logs it line by line.
    pub(super) fn read_output(&mut self, id: u64) {
        let Some(output) = self.outputs.get_mut(&id) else { return };
        let Output { fd, pool, pid, stream, lines } = output;
        let log = |line: &str| tracing::info!(pool = *pool, worker = *pid, "{stream}: {line}");
        let mut left = READ;
        while left > 0 {
            let room = self.buffer.len().min(left);
            match read(&*fd, self.buffer.get_mut(..room).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => {
                    lines.push(self.buffer.get(..n).unwrap_or_default(), log);
                    left -= n.min(left);
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        if left > 0 {
            lines.finish(log);
            self.poll.remove(&*fd);
            self.outputs.remove(&id);
        }
    }

    /// At the end: what is left in the pipes.
    pub(super) fn drain_outputs(&mut self) {
        for id in self.outputs.keys().copied().collect::<Vec<_>>() {
            self.read_output(id);
        }
    }

    /// Opens the log and the access logs again.
    pub(super) fn reopen_logs(&mut self) {
        match super::log::reopen() {
            Ok(()) => tracing::info!("the log was opened again"),
            Err(e) => tracing::error!("open the log again: {e}"),
        }
        for worker in self.workers.values().filter(|w| w.kind == Kind::App && !w.mute) {
            let Some(place) = self.places.get(&worker.pool) else { continue };
            let access_log = place.current().and_then(|r| r.settings.access_log.as_ref());
            let Some(access_log) = access_log else { continue };
            let opened = super::log::append(&access_log.file);
            let sent = opened
                .and_then(|file| worker.link.send(&Order::AccessLog, &[std::os::fd::AsFd::as_fd(&file)]));
            if let Err(e) = sent {
                tracing::error!(pool = place.name, worker = worker.pid, "open the access log again: {e}");
            }
        }
    }
}

impl Reason {
    fn said(self) -> &'static str {
        match self {
            Reason::BootTimeout => "it was not ready in time",
            Reason::Stuck => "it did not come back from a request over its time",
            Reason::Lingering => "it did not leave in time",
            Reason::Memory => "its private memory passed the hard limit",
            Reason::Mute => "it closed its control socket or sent nonsense",
        }
    }
}
