//! The supervisor's mind: (time, event) → actions. It decides when workers start, are replaced and end; the
//! shell (`run`) turns the system's events into [`Event`]s and [`Action`]s into system calls.
//!
//! Always holds: nothing here reads a clock, a file or a random number (chance comes from the seed); a worker
//! that was idle by its own account is never killed; no serving worker is let go before another serves in its
//! place; a pool whose workers die waits ever longer; what must end has a deadline; one pool's state never
//! depends on another's, but for the few reloads that run at a time. `sim` checks these on random stories.
//!
//! Time is a [`Duration`] since any fixed start. Where the machine slept (a deadline found long past), the time
//! slept is taken out, so that nobody is blamed for time in which nobody ran.

mod backoff;
mod demand;
mod events;
mod life;
mod pool;
mod reload;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod stories;
mod worker;

pub(crate) use life::{Force, State};
pub(crate) use pool::{Pool, PoolState};
pub(crate) use worker::Worker;

use crate::settings::Model;
use hostler_worker::control::Report;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// A moment: time since any fixed start.
pub(crate) type Time = Duration;

/// A deadline found this late means that nobody ran meanwhile.
const OVERSLEPT: Duration = Duration::from_secs(2);
/// Pools that reload at a time.
const RELOADS: usize = 4;
/// A reload that takes longer lets the next one begin.
const SLOT: Duration = Duration::from_secs(5);

/// A pool, from its appearance in the config until its last worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct PoolId(pub u64);

/// A worker; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct WorkerId(pub u64);

/// What the mind needs to know of a pool's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The shell's number for these settings; it grows.
    pub revision: u64,
    /// How many workers.
    pub model: Model,
    /// How long a worker may take until it is ready.
    pub boot_timeout: Duration,
    /// How long a worker that is replaced may take to finish.
    pub retire_timeout: Duration,
    /// How long a worker of a stopped pool may take to finish.
    pub stop_timeout: Duration,
    /// Private memory of all workers together, in bytes.
    pub memory: Option<u64>,
}

/// How everything ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stop {
    /// Workers finish what they have in hand, within this time.
    Graceful(Duration),
    /// At once.
    Now,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// Nothing but time passed.
    Tick,
    /// A pool's settings are new: it starts, or reloads.
    Configured { pool: PoolId, plan: Plan },
    /// A pool is in the config no more.
    Dropped { pool: PoolId },
    /// Someone asked to stop a pool.
    StopAsked { pool: PoolId },
    /// Someone asked to start a stopped pool.
    StartAsked { pool: PoolId },
    /// Someone asked for all workers of a pool to be new, the old ones gone before.
    RestartAsked { pool: PoolId },
    /// A worker reported.
    Reported { worker: WorkerId, report: Report },
    /// The answer to [`Action::Sample`]: what the pages of a pool's workers say.
    Sampled { pool: PoolId, readings: Vec<Reading> },
    /// A worker is gone.
    Exited { worker: WorkerId, exit: Exit },
    /// A worker broke the rules of the control socket, or closed it.
    Mute { worker: WorkerId },
    /// Someone connects to a pool without workers ([`Action::Watch`]).
    Connecting { pool: PoolId },
    /// Everything ends.
    StopAll(Stop),
}

/// What one worker's page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub worker: WorkerId,
    pub busy: bool,
    pub requests: u64,
    pub connections: u64,
    pub memory: u64,
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exit {
    /// By itself, with exit code 0.
    pub clean: bool,
    /// By the kernel, for its memory.
    pub oom: bool,
    /// Requests that it had answered.
    pub requests: u64,
    /// For log and status: "signal SIGSEGV".
    pub said: String,
}

/// What a worker is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Serves the pool's apps.
    App,
    /// Answers 503 for a pool that is stopped or failed.
    StandIn,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Start a worker. `lot` is a random number for what differs by chance between workers.
    Spawn { pool: PoolId, worker: WorkerId, kind: Kind, revision: u64, generation: u64, lot: u64 },
    /// Send the order to retire, SIGTERM or SIGKILL. `why` where it is nobody's wish.
    Force { worker: WorkerId, force: Force, why: Option<Reason> },
    /// Watch the listeners and the hand-over queue of a pool that has no worker; report once.
    Watch { pool: PoolId },
    /// Watch them no more.
    Unwatch { pool: PoolId },
    /// Read the pages of a pool's workers and report them at once.
    Sample { pool: PoolId },
    /// These settings are in force now; older ones are only those of workers that still live.
    Adopted { pool: PoolId, revision: u64, generation: u64 },
    /// A reload to these settings is over, with its fault where it failed; so are all asked for before.
    /// `generation` is the one that serves now.
    Reloaded { pool: PoolId, revision: u64, generation: u64, fault: Option<String> },
    /// A pool's state changed.
    Changed { pool: PoolId, from: PoolState, to: PoolState },
    /// The last worker of a dropped pool is gone.
    Forget { pool: PoolId },
    /// The last worker is gone and nothing will start.
    Finished,
}

/// Why a worker is ended that did not wish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// It was not ready within `boot_timeout`.
    BootTimeout,
    /// It did not come back from a request over its time.
    Stuck,
    /// It did not finish within its time to retire, or did not heed SIGTERM.
    Lingering,
    /// Its private memory passed the hard limit.
    Memory,
    /// It closed its control socket or sent nonsense.
    Mute,
}

/// Chance, from a seed (splitmix64).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lots(u64);

impl Lots {
    pub(crate) fn new(seed: u64) -> Lots {
        Lots(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.draw() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

/// All pools and their workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fleet {
    pools: BTreeMap<PoolId, Pool>,
    homes: BTreeMap<WorkerId, PoolId>,
    /// When each pool wants to be looked at; one entry a pool at most.
    due: BTreeSet<(Time, PoolId)>,
    /// Pools that wait for their reload to begin, and those that reload since when.
    queue: VecDeque<PoolId>,
    slots: BTreeMap<PoolId, Time>,
    stopping: Option<Stop>,
    finished: bool,
    lots: Lots,
    last_worker: u64,
    /// Time slept, and the last time seen, in the fleet's own time.
    slept: Duration,
    seen: Time,
}

/// What the pools share during one step.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) lots: &'a mut Lots,
    last_worker: &'a mut u64,
    homes: &'a mut BTreeMap<WorkerId, PoolId>,
    out: &'a mut Vec<Action>,
}

impl Turn<'_> {
    pub(crate) fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    pub(crate) fn birth(&mut self, pool: PoolId) -> WorkerId {
        *self.last_worker += 1;
        let worker = WorkerId(*self.last_worker);
        self.homes.insert(worker, pool);
        worker
    }
}

impl Fleet {
    pub(crate) fn new(seed: u64) -> Fleet {
        Fleet {
            pools: BTreeMap::new(),
            homes: BTreeMap::new(),
            due: BTreeSet::new(),
            queue: VecDeque::new(),
            slots: BTreeMap::new(),
            stopping: None,
            finished: false,
            lots: Lots::new(seed),
            last_worker: 0,
            slept: Duration::ZERO,
            seen: Duration::ZERO,
        }
    }

    /// Takes one event and says what to do, in order.
    pub(crate) fn step(&mut self, now: Time, event: Event) -> Vec<Action> {
        let now = self.awake(now);
        let mut out = Vec::new();
        self.take(now, event, &mut out);
        while let Some((_, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.tend(now, id, &mut out, Pool::expire);
        }
        self.admit(now, &mut out);
        if self.stopping.is_some() && self.pools.is_empty() && !self.finished {
            self.finished = true;
            out.push(Action::Finished);
        }
        out
    }

    /// When to step with [`Event::Tick`] if nothing happens before; `None`: never.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due_next().map(|due| due + self.slept)
    }

    /// A pool.
    pub(crate) fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(&id)
    }

    /// The time that a pool's times are in, for `now` of the outside.
    pub(crate) fn inner_time(&self, now: Time) -> Time {
        now.saturating_sub(self.slept)
    }

    /// Whether everything ends.
    pub(crate) fn stopping(&self) -> Option<Stop> {
        self.stopping
    }

    fn due_next(&self) -> Option<Time> {
        let slot = if self.queue.is_empty() { None } else { self.slots.values().min().map(|t| *t + SLOT) };
        [self.due.first().map(|(due, _)| *due), slot].into_iter().flatten().min()
    }

    /// The fleet's own time: without what was slept.
    fn awake(&mut self, now: Time) -> Time {
        let mut inner = now.saturating_sub(self.slept).max(self.seen);
        if self.due_next().is_some_and(|due| inner > due + OVERSLEPT) {
            self.slept += inner - self.seen;
            inner = self.seen;
        }
        self.seen = inner;
        inner
    }

    fn take(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Tick => {}
            Event::Configured { pool, plan } => self.configured(now, pool, plan, out),
            Event::Dropped { pool } => self.tend(now, pool, out, |p, turn| p.stop(true, turn)),
            Event::StopAsked { pool } => self.tend(now, pool, out, |p, turn| p.stop(false, turn)),
            Event::StartAsked { pool } => self.tend(now, pool, out, Pool::start),
            Event::RestartAsked { pool } => self.tend(now, pool, out, Pool::restart),
            Event::Reported { worker, report } => {
                self.tend_home(now, worker, out, |p, turn| p.reported(worker, report, turn));
            }
            Event::Mute { worker } => self.tend_home(now, worker, out, |p, turn| p.mute(worker, turn)),
            Event::Exited { worker, exit } => {
                self.tend_home(now, worker, out, |p, turn| p.exited(worker, &exit, turn));
                self.homes.remove(&worker);
            }
            Event::Sampled { pool, readings } => {
                self.tend(now, pool, out, |p, turn| p.sampled(&readings, turn));
            }
            Event::Connecting { pool } => self.tend(now, pool, out, |p, _| p.connecting()),
            Event::StopAll(stop) => self.stop_all(now, stop, out),
        }
    }

    fn configured(&mut self, now: Time, id: PoolId, plan: Plan, out: &mut Vec<Action>) {
        if self.stopping.is_some() {
            let fault = Some("everything is being stopped".to_owned());
            out.push(Action::Reloaded { pool: id, revision: plan.revision, generation: 0, fault });
            return;
        }
        self.pools.entry(id).or_insert_with(|| Pool::new(id, plan));
        self.tend(now, id, out, |pool, turn| pool.configured(plan, turn));
    }

    /// A graceful stop may become one at once, never the other way round.
    fn stop_all(&mut self, now: Time, stop: Stop, out: &mut Vec<Action>) {
        if self.stopping.is_some_and(|earlier| earlier >= stop || matches!(stop, Stop::Graceful(_))) {
            return;
        }
        self.stopping = Some(stop);
        for id in self.pools.keys().copied().collect::<Vec<_>>() {
            self.tend(now, id, out, |pool, turn| pool.end(stop, turn));
        }
    }

    fn tend_home(
        &mut self,
        now: Time,
        worker: WorkerId,
        out: &mut Vec<Action>,
        act: impl FnOnce(&mut Pool, &mut Turn<'_>),
    ) {
        if let Some(pool) = self.homes.get(&worker).copied() {
            self.tend(now, pool, out, act);
        }
    }

    /// Acts on one pool, lets it draw its conclusions, and notes when it wants to be looked at again.
    fn tend(
        &mut self,
        now: Time,
        id: PoolId,
        out: &mut Vec<Action>,
        act: impl FnOnce(&mut Pool, &mut Turn<'_>),
    ) {
        let Some(pool) = self.pools.get_mut(&id) else {
            self.due.retain(|(_, of)| *of != id);
            return;
        };
        if let Some(due) = pool.due {
            self.due.remove(&(due, id));
        }
        let Fleet { lots, last_worker, homes, .. } = self;
        let mut turn = Turn { now, lots, last_worker, homes, out };
        act(pool, &mut turn);
        pool.conclude(&mut turn);
        pool.due = pool.next_due(now);
        if let Some(due) = pool.due {
            self.due.insert((due, id));
        }
        if !pool.reloads() || pool.waits_for_slot() {
            self.slots.remove(&id);
        }
        if pool.waits_for_slot() && !pool.queued {
            pool.queued = true;
            self.queue.push_back(id);
        }
        if pool.is_over() {
            self.due.retain(|(_, of)| *of != id);
            self.slots.remove(&id);
            self.pools.remove(&id);
            out.push(Action::Forget { pool: id });
        }
    }

    /// Begins reloads that wait while there is room.
    fn admit(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.queue.is_empty() {
            return;
        }
        self.slots.retain(|_, since| *since + SLOT > now);
        while self.slots.len() < RELOADS {
            let Some(id) = self.queue.pop_front() else { return };
            self.slots.insert(id, now);
            self.tend(now, id, out, |pool, turn| {
                pool.queued = false;
                pool.begin_reload(turn);
            });
            if !self.pools.contains_key(&id) {
                self.slots.remove(&id);
            }
        }
    }
}
