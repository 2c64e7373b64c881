//! Random stories: a world of workers that boot, hang, crash, obey or do not, and a fleet that must keep its
//! promises in each step. A seed makes a list of deeds; a list that breaks a promise is shrunk to a short one.
//!
//! `HOSTLER_SIM_SEED=N` repeats one seed; `HOSTLER_SIM_STEPS=N` sets how many steps are driven.

use super::{
    demand::bounds,
    pool::{NOW_GRACE, TERM_GRACE},
    *,
};
use hostler_worker::control::Wear;
use std::collections::BTreeMap;

const POOLS: u64 = 3;
const DEEDS: usize = 400;
const HOUR: Duration = Duration::from_secs(3600);
/// Ticks in one passage of a minute at most: readings come ten times a second, a pool.
const TICKS: usize = 5000;

/// One thing that happens; what it means depends on the world in which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deed {
    kind: u8,
    whom: u16,
    how: u16,
}

/// A worker as the world has it.
#[derive(Debug, Clone)]
struct Soul {
    pool: PoolId,
    kind: Kind,
    generation: u64,
    ready: bool,
    idle: bool,
    /// It has given cause to be ended: over its time or memory, or mute.
    guilty: bool,
    forced: Option<Force>,
    requests: u64,
    connections: u64,
    memory: u64,
}

struct World {
    fleet: Fleet,
    now: Time,
    souls: BTreeMap<WorkerId, Soul>,
    watched: BTreeMap<PoolId, bool>,
    revision: u64,
    steps: usize,
    finished: bool,
    stopping: Option<Stop>,
    /// In the fleet's own time: nobody is spared any longer.
    merciless: Option<Time>,
    jumped: bool,
    told: Vec<String>,
}

type Verdict = Result<(), String>;

impl World {
    fn new(seed: u64) -> World {
        World {
            fleet: Fleet::new(seed),
            now: Duration::from_secs(100_000),
            souls: BTreeMap::new(),
            watched: BTreeMap::new(),
            revision: 0,
            steps: 0,
            finished: false,
            stopping: None,
            merciless: None,
            jumped: false,
            told: Vec::new(),
        }
    }

    fn step(&mut self, event: Event) -> Verdict {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.steps += 1;
            if self.told.capacity() > 0 {
                self.told.push(format!("{:>12.3} {event:?}", self.now.as_secs_f64()));
            }
            let actions = self.fleet.step(self.now, event.clone());
            let jumped = std::mem::take(&mut self.jumped);
            for action in &actions {
                if self.told.capacity() > 0 {
                    self.told.push(format!("             → {action:?}"));
                }
                self.obey(&event, action, jumped, &mut events)?;
            }
            self.check(&event, &actions)?;
        }
        Ok(())
    }

    /// Does what the shell would do, and complains of what it must never be told.
    fn obey(&mut self, event: &Event, action: &Action, jumped: bool, events: &mut Vec<Event>) -> Verdict {
        match action {
            Action::Spawn { pool, worker, kind, generation, .. } => {
                let soul = Soul {
                    pool: *pool,
                    kind: *kind,
                    generation: *generation,
                    ready: false,
                    idle: false,
                    guilty: false,
                    forced: None,
                    requests: 0,
                    connections: 0,
                    memory: 1 << 20,
                };
                ensure(self.stopping.is_none(), "a worker starts although everything ends")?;
                ensure(self.souls.insert(*worker, soul).is_none(), "a worker's number is used twice")?;
            }
            Action::Force { worker, force, why } => self.force(event, *worker, *force, *why, jumped)?,
            Action::Sample { pool } => {
                let readings = self.souls.iter().filter(|(_, s)| s.pool == *pool && s.kind == Kind::App);
                let readings = readings.map(|(id, s)| Reading {
                    worker: *id,
                    busy: !s.idle,
                    requests: s.requests,
                    connections: s.connections,
                    memory: s.memory,
                });
                events.push(Event::Sampled { pool: *pool, readings: readings.collect() });
            }
            Action::Watch { pool } => {
                self.watched.insert(*pool, true);
            }
            Action::Unwatch { pool } | Action::Forget { pool } => {
                self.watched.remove(pool);
            }
            Action::Finished => {
                ensure(self.souls.is_empty(), "it is finished although workers live")?;
                ensure(!self.finished, "it is finished twice")?;
                self.finished = true;
            }
            Action::Adopted { .. } | Action::Reloaded { .. } | Action::Changed { .. } => {}
        }
        Ok(())
    }

    fn force(
        &mut self,
        event: &Event,
        id: WorkerId,
        force: Force,
        why: Option<Reason>,
        jumped: bool,
    ) -> Verdict {
        let Some(soul) = self.souls.get_mut(&id) else {
            return Err("force against a worker that is gone".into());
        };
        ensure(soul.forced <= Some(force), "force falls")?;
        let ending = matches!(
            event,
            Event::StopAll(_) | Event::StopAsked { .. } | Event::Dropped { .. } | Event::RestartAsked { .. }
        );
        if force > Force::Retire && soul.ready && soul.idle && !soul.guilty && soul.kind == Kind::App {
            ensure(soul.forced.is_some() || ending, "an idle worker is killed that did nothing wrong")?;
        }
        let blamed = matches!(why, Some(Reason::BootTimeout | Reason::Lingering | Reason::Stuck));
        ensure(!(jumped && blamed), "a worker is blamed for time in which nobody ran")?;
        soul.forced = Some(force);
        Ok(())
    }

    fn check(&self, event: &Event, actions: &[Action]) -> Verdict {
        let ending = matches!(
            event,
            Event::StopAll(_) | Event::StopAsked { .. } | Event::Dropped { .. } | Event::RestartAsked { .. }
        );
        for (id, pool) in &self.fleet.pools {
            let of = |s: &&Soul| s.pool == *id && s.kind == Kind::App;
            let serving = self.souls.values().filter(of).filter(|s| s.ready && s.forced.is_none()).count();
            let retired = actions.iter().any(|a| match a {
                Action::Force { worker, force: Force::Retire, .. } => {
                    self.souls.get(worker).is_some_and(|s| of(&s))
                }
                _ => false,
            });
            if retired && !ending {
                ensure(serving >= pool.desired(), "a worker is let go although it is needed")?;
            }
            let (min, max) = bounds(&pool.plan.model);
            ensure(pool.desired() >= min as usize && pool.desired() <= max as usize, "wanted out of bounds")?;
            let current = pool.count(|p, w| p.is_current(w) && !w.worn && w.state <= State::Overdue);
            let extra = if pool.desired() < max as usize { 0 } else { current.saturating_sub(max as usize) };
            ensure(extra <= 1, "more workers than max")?;
            if self.watched.contains_key(id) {
                ensure(pool.rests(), "watched although somebody serves or boots")?;
            }
        }
        if self.merciless.is_some_and(|at| self.fleet.inner_time(self.now) > at) {
            let killed = self.souls.values().all(|soul| soul.forced == Some(Force::Kill));
            ensure(killed, "everything was to end by now, and a worker is still asked to")?;
        }
        let due = self.fleet.next_deadline();
        ensure(due.is_none_or(|due| due > self.now), "a deadline that is over: it would turn for ever")
    }

    /// Time passes, and each deadline is met.
    fn passes(&mut self, time: Duration) -> Verdict {
        let until = self.now + time;
        let mut ticks = 0;
        while let Some(due) = self.fleet.next_deadline().filter(|due| *due <= until) {
            ticks += 1;
            ensure(ticks < TICKS, "it never comes to rest")?;
            self.now = due;
            self.step(Event::Tick)?;
        }
        self.now = until;
        Ok(())
    }

    fn whom(&self, deed: Deed) -> Option<WorkerId> {
        let n = self.souls.len();
        if n == 0 {
            return None;
        }
        self.souls.keys().nth(usize::from(deed.whom) % n).copied()
    }

    fn does(&mut self, deed: Deed) -> Verdict {
        let pool = PoolId(u64::from(deed.whom) % POOLS);
        match deed.kind {
            0..=19 => self.passes(Duration::from_millis(u64::from(deed.how) % 400)),
            20..=22 => self.passes(Duration::from_millis(u64::from(deed.how))),
            23 => self.passes(Duration::from_secs(60)),
            24 => {
                // Suspended for hours, or a moment too late.
                let hours = u32::from(deed.how % 5);
                self.now += if hours == 0 { Duration::from_millis(1500) } else { HOUR * hours };
                let due = self.fleet.next_deadline();
                self.jumped = hours > 0 && due.is_some_and(|due| self.now > due + OVERSLEPT);
                self.step(Event::Tick)
            }
            25..=54 => self.boots(deed),
            55..=69 => self.dies(deed),
            70..=84 => self.reports(deed),
            85..=90 => {
                self.revision += 1;
                self.step(Event::Configured { pool, plan: plan(self.revision, deed.how) })
            }
            91 => self.step(Event::StopAsked { pool }),
            92 | 93 => self.step(Event::StartAsked { pool }),
            94 => self.step(Event::RestartAsked { pool }),
            95 if deed.how.is_multiple_of(4) => self.step(Event::Dropped { pool }),
            96 => match self.watched.remove(&pool) {
                Some(_) => self.step(Event::Connecting { pool }),
                None => Ok(()),
            },
            97 if deed.how.is_multiple_of(16) => self.stops(if deed.how.is_multiple_of(32) {
                Stop::Now
            } else {
                Stop::Graceful(Duration::from_secs(5))
            }),
            98 => self.again(),
            _ => Ok(()),
        }
    }

    fn stops(&mut self, stop: Stop) -> Verdict {
        self.stopping = self.stopping.max(Some(stop));
        self.step(Event::StopAll(stop))?;
        let within = match stop {
            Stop::Graceful(within) => within + TERM_GRACE,
            Stop::Now => NOW_GRACE,
        };
        let at = self.fleet.inner_time(self.now) + within;
        self.merciless = Some(self.merciless.map_or(at, |earlier| earlier.min(at)));
        Ok(())
    }

    fn boots(&mut self, deed: Deed) -> Verdict {
        let Some(id) = self.whom(deed) else { return Ok(()) };
        let Some(soul) = self.souls.get_mut(&id) else { return Ok(()) };
        if soul.ready {
            return self.obeys(id, deed);
        }
        if deed.how.is_multiple_of(8) {
            let message = "no".to_owned();
            self.step(Event::Reported { worker: id, report: Report::BootFailed { message } })?;
            return self.ends(id, false);
        }
        if soul.forced.is_none() {
            soul.ready = true;
            soul.idle = true;
        }
        self.step(Event::Reported { worker: id, report: Report::Ready })
    }

    /// It does as it was told, if it was told.
    fn obeys(&mut self, id: WorkerId, deed: Deed) -> Verdict {
        match self.souls.get(&id).and_then(|s| s.forced) {
            Some(Force::Retire) if !deed.how.is_multiple_of(4) => self.ends(id, true),
            Some(Force::Terminate) if !deed.how.is_multiple_of(4) => self.ends(id, false),
            Some(Force::Kill) => self.ends(id, false),
            _ => Ok(()),
        }
    }

    fn dies(&mut self, deed: Deed) -> Verdict {
        let Some(id) = self.whom(deed) else { return Ok(()) };
        let forced = self.souls.get(&id).is_some_and(|s| s.forced.is_some());
        if forced || deed.how.is_multiple_of(3) {
            return self.ends(id, deed.how.is_multiple_of(5));
        }
        Ok(())
    }

    fn ends(&mut self, id: WorkerId, clean: bool) -> Verdict {
        let Some(soul) = self.souls.remove(&id) else { return Ok(()) };
        let exit =
            Exit { clean, oom: !clean && soul.requests % 7 == 3, requests: soul.requests, said: "x".into() };
        self.step(Event::Exited { worker: id, exit })
    }

    fn reports(&mut self, deed: Deed) -> Verdict {
        let Some(id) = self.whom(deed) else { return Ok(()) };
        let Some(soul) = self.souls.get_mut(&id) else { return Ok(()) };
        let request = String::new;
        let report = match deed.how % 16 {
            0..=3 => Report::Active,
            4..=6 => Report::Rest,
            7..=9 => Report::Pressure,
            10 => Report::Worn { why: Wear::Memory },
            11 => Report::Worn { why: Wear::Requests },
            12 => Report::TimedOut { request: request(), ms: 1 },
            13 => Report::OverHard { bytes: 1 },
            14 => Report::Slow { request: request(), ms: 1 },
            _ => {
                soul.guilty = true;
                return self.step(Event::Mute { worker: id });
            }
        };
        match report {
            Report::Active => {
                soul.idle = false;
                soul.requests += u64::from(deed.how % 5);
                soul.connections = u64::from(deed.how % 3);
                soul.memory += u64::from(deed.how) << 12;
            }
            Report::Rest => soul.idle = true,
            Report::TimedOut { .. } | Report::OverHard { .. } => soul.guilty = true,
            _ => {}
        }
        self.step(Event::Reported { worker: id, report })
    }

    /// The supervisor executes itself anew.
    fn again(&mut self) -> Verdict {
        let text = serde_json::to_string(&self.fleet).map_err(|e| e.to_string())?;
        self.fleet = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        self.step(Event::Tick)
    }

    /// From now on everybody behaves: all must come to where it should, and to rest.
    fn calm(&mut self) -> Verdict {
        for _ in 0..400 {
            for id in self.souls.keys().copied().collect::<Vec<_>>() {
                let Some(soul) = self.souls.get_mut(&id) else { continue };
                match (soul.forced, soul.ready) {
                    (Some(force), _) => self.ends(id, force == Force::Retire)?,
                    (None, false) => {
                        soul.ready = true;
                        soul.idle = true;
                        self.step(Event::Reported { worker: id, report: Report::Ready })?;
                    }
                    (None, true) => {
                        soul.guilty = false;
                        soul.connections = 0;
                        soul.memory = 0;
                        if !soul.idle {
                            soul.idle = true;
                            soul.requests += 1;
                            self.step(Event::Reported { worker: id, report: Report::Rest })?;
                        }
                    }
                }
            }
            self.passes(Duration::from_secs(1))?;
        }
        self.at_rest()
    }

    fn at_rest(&self) -> Verdict {
        ensure(self.fleet.next_deadline().is_none(), "a deadline although all is calm")?;
        ensure(self.finished == self.stopping.is_some(), "it was to end and does not")?;
        for (id, pool) in &self.fleet.pools {
            let said = |what: &str| Err(format!("{id:?} {what}: {pool:?}"));
            let of = |kind| {
                self.souls.values().filter(move |s| s.pool == *id && s.kind == kind && s.ready).count()
            };
            if pool.reloads() {
                return said("reloads for ever");
            }
            match pool.state() {
                PoolState::Stopped if of(Kind::App) > 0 || of(Kind::StandIn) != 1 => {
                    return said("is not stood in for");
                }
                PoolState::Stopped => {}
                PoolState::Running if of(Kind::App) != pool.desired() => {
                    return said("has not what it wants");
                }
                PoolState::Running if pool.rests() && !self.watched.contains_key(id) => {
                    return said("is not watched");
                }
                PoolState::Running if of(Kind::StandIn) > 0 => return said("is stood in for"),
                PoolState::Running
                    if self.souls.values().any(|s| s.pool == *id && s.generation != pool.generation()) =>
                {
                    return said("has old workers");
                }
                PoolState::Running => {}
                _ => return said("does not run"),
            }
        }
        Ok(())
    }
}

fn ensure(holds: bool, promise: &str) -> Verdict {
    if holds { Ok(()) } else { Err(promise.to_owned()) }
}

fn plan(revision: u64, how: u16) -> Plan {
    let n = u32::from(how / 8 % 4) + 1;
    let idle_timeout = Duration::from_secs(2);
    Plan {
        revision,
        model: match how % 4 {
            0 | 1 => Model::Static { count: n },
            2 => Model::Dynamic { min: n, max: n * 3, spare: n / 2, idle_timeout },
            _ => Model::Ondemand { max: n * 2, idle_timeout },
        },
        boot_timeout: Duration::from_secs(3),
        retire_timeout: Duration::from_secs(8),
        stop_timeout: Duration::from_secs(4),
        memory: how.is_multiple_of(3).then_some(50 << 20),
    }
}

fn deeds(seed: u64) -> Vec<Deed> {
    let mut lots = Lots::new(seed);
    let mut deed = |_| {
        let [kind, _, a, b, c, d, ..] = lots.draw().to_le_bytes();
        Deed { kind: kind % 100, whom: u16::from_le_bytes([a, b]), how: u16::from_le_bytes([c, d]) }
    };
    let how = u16::try_from(seed / 8 % 96).unwrap();
    let start = (0..POOLS).map(|pool| Deed { kind: 85, whom: u16::try_from(pool).unwrap(), how });
    start.collect::<Vec<_>>().into_iter().chain((0..DEEDS).map(&mut deed)).collect()
}

fn tells(seed: u64, deeds: &[Deed], aloud: bool) -> (usize, Verdict, Vec<String>) {
    let mut world = World::new(seed);
    if aloud {
        world.told.reserve(1);
    }
    let verdict = deeds.iter().try_for_each(|deed| world.does(*deed)).and_then(|()| world.calm());
    (world.steps, verdict, world.told)
}

/// Leaves out what the fault does not need.
fn shrink(seed: u64, mut deeds: Vec<Deed>) -> Vec<Deed> {
    let mut chunk = deeds.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < deeds.len() {
            let mut fewer = deeds.clone();
            fewer.drain(at..(at + chunk).min(deeds.len()));
            if tells(seed, &fewer, false).1.is_err() {
                deeds = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    deeds
}

/// Drives one seed; a fault is told as a short story.
fn drive(seed: u64) -> Result<usize, String> {
    let deeds = deeds(seed);
    let (steps, verdict, _) = tells(seed, &deeds, false);
    match verdict {
        Ok(()) => Ok(steps),
        Err(_) => {
            let (_, verdict, told) = tells(seed, &shrink(seed, deeds), true);
            let promise = verdict.err().unwrap_or_default();
            let from = told.len().saturating_sub(60);
            Err(format!("HOSTLER_SIM_SEED={seed} breaks a promise: {promise}\n{}", told[from..].join("\n")))
        }
    }
}

#[test]
fn a_million_steps_of_random_stories_keep_every_promise() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    if let Some(seed) = number("HOSTLER_SIM_SEED") {
        drive(seed).unwrap_or_else(|story| panic!("{story}"));
        return;
    }
    let wanted = usize::try_from(number("HOSTLER_SIM_STEPS").unwrap_or(1_000_000)).unwrap();
    let start = number("HOSTLER_SIM_START").unwrap_or(1);
    let thread = |parity: u64| {
        move || {
            let mut steps = 0;
            let mut seed = start + parity;
            while steps < wanted / 2 {
                steps += drive(seed)?;
                seed += 2;
            }
            Ok::<_, String>((steps, seed))
        }
    };
    let other = std::thread::spawn(thread(1));
    let ours = thread(0)();
    for end in [ours, other.join().unwrap()] {
        let (steps, seed) = end.unwrap_or_else(|story| panic!("{story}"));
        println!("{steps} steps, up to seed {seed}");
    }
}
