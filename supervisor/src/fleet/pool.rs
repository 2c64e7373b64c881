//! One pool: its workers, what it should have, and the way from here to there.
//!
//! Whatever happens to a pool, [`Pool::conclude`] follows: it compares what is with what should be and starts,
//! lets go or stands in. So no event has to think of all the others.
//!
//! Always holds: a serving worker is let go only while as many as are wanted serve besides it, or the pool is
//! stopped; a pool that is stopped or failed has a stand-in that answers 503.

use super::{
    Action, Kind, Plan, PoolId, Reason, Stop, Time, Turn, WorkerId,
    backoff::Backoff,
    demand::Demand,
    life::{self, Event as Life, Force, State},
    reload::{Rolling, Trial},
    worker::{Doom, Worker},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// What a worker may take to come back from a request over its time.
pub(crate) const OVERDUE_GRACE: Duration = Duration::from_secs(2);
/// Between SIGTERM and SIGKILL at most.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL where everything ends at once.
pub(crate) const NOW_GRACE: Duration = Duration::from_secs(1);
/// Until SIGKILL is sent once more.
const KILL_AGAIN: Duration = Duration::from_secs(10);
/// Weight of barren ends at which a pool without a serving worker counts as failed.
pub(super) const FAILED_AT: u32 = 2;
/// After the end of a worker that had proven itself, a pool without workers has not failed yet: its clients wait.
const SPARED: Duration = Duration::from_secs(1);
/// Workers of a pool that boot at a time.
const BOOTING_CAP: usize = 32;

/// Totals since the pool appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub crashes: u64,
    pub recycled_memory: u64,
    pub recycled_requests: u64,
    pub killed_memory: u64,
    pub killed_stuck: u64,
    pub boot_failures: u64,
    pub reloads: u64,
    pub failed_reloads: u64,
}

/// A pool's state, as status shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolState {
    Starting,
    Running,
    Degraded,
    Failed,
    Stopped,
}

/// What a pool is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Goal {
    Run,
    Stop,
    End,
}

/// One pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(super) id: PoolId,
    pub(super) plan: Plan,
    pub(super) generation: u64,
    /// The highest generation given out, also to reloads that failed.
    pub(super) newest: u64,
    pub(super) goal: Goal,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    pub(super) demand: Demand,
    pub(super) trial: Option<Trial>,
    pub(super) pending: Option<Plan>,
    pub(super) rolling: Option<Rolling>,
    pub(super) queued: bool,
    pub(super) backoff: Backoff,
    pub(super) stand_in_after: Option<Time>,
    /// Until when the pool has not failed, since a worker served just now.
    #[serde(default)]
    pub(super) spared: Option<Time>,
    pub(super) sample_at: Option<Time>,
    pub(super) watching: bool,
    pub(super) state: PoolState,
    pub(super) last_error: Option<String>,
    pub(super) totals: Totals,
    pub(super) due: Option<Time>,
    /// The old workers are to be gone before the new ones come.
    pub(super) restarting: bool,
    fresh: bool,
}

impl Pool {
    pub(super) fn new(id: PoolId, plan: Plan) -> Pool {
        Pool {
            id,
            plan,
            generation: 0,
            newest: 0,
            goal: Goal::Run,
            workers: BTreeMap::new(),
            demand: Demand::new(&plan.model),
            trial: None,
            pending: None,
            rolling: None,
            queued: false,
            backoff: Backoff::default(),
            stand_in_after: None,
            spared: None,
            sample_at: None,
            watching: false,
            state: PoolState::Starting,
            last_error: None,
            totals: Totals::default(),
            due: None,
            restarting: false,
            fresh: true,
        }
    }

    pub(crate) fn state(&self) -> PoolState {
        self.state
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(id, w)| (*id, w))
    }

    /// The settings in force.
    pub(crate) fn revision(&self) -> u64 {
        self.plan.revision
    }

    // Events ---------------------------------------------------------------------------------------------

    /// First settings start the pool, later ones wait for their reload.
    pub(super) fn configured(&mut self, plan: Plan, turn: &mut Turn<'_>) {
        if self.fresh {
            self.fresh = false;
            self.adopt(plan, turn);
        } else if self.goal == Goal::Run {
            self.pending = Some(plan);
        } else {
            self.adopt(plan, turn);
            self.conclude_reload(None, turn);
        }
    }

    /// Lets all workers go. `forever`: the pool itself ends with its last worker.
    pub(super) fn stop(&mut self, forever: bool, turn: &mut Turn<'_>) {
        if self.goal == Goal::End {
            return;
        }
        self.goal = if forever { Goal::End } else { Goal::Stop };
        self.drop_reloads("the pool was stopped", turn);
        self.force_all(Life::Retire, Some(turn.now + self.plan.stop_timeout), turn);
        if forever {
            self.force_stand_ins(turn);
        }
    }

    /// Ends the pool as part of everything.
    pub(super) fn end(&mut self, stop: Stop, turn: &mut Turn<'_>) {
        self.goal = Goal::End;
        self.drop_reloads("everything is being stopped", turn);
        match stop {
            Stop::Graceful(within) => self.force_all(Life::Retire, Some(turn.now + within), turn),
            Stop::Now => self.force_all(Life::Terminate, Some(turn.now + NOW_GRACE), turn),
        }
        self.force_stand_ins(turn);
    }

    pub(super) fn start(&mut self, turn: &mut Turn<'_>) {
        if self.goal == Goal::Stop {
            self.renew(turn);
        }
    }

    pub(super) fn restart(&mut self, turn: &mut Turn<'_>) {
        if self.goal == Goal::End {
            return;
        }
        self.drop_reloads("the pool was restarted", turn);
        self.force_all(Life::Retire, Some(turn.now + self.plan.stop_timeout), turn);
        self.renew(turn);
        self.restarting = true;
    }

    // Conclusions ----------------------------------------------------------------------------------------

    /// Does what the present asks for.
    pub(super) fn conclude(&mut self, turn: &mut Turn<'_>) {
        self.spared = self.spared.filter(|until| *until > turn.now);
        if self.goal == Goal::Run {
            self.let_idle_go(turn);
            self.let_surplus_go(turn);
            self.start_missing(turn);
            self.conclude_rolling(turn);
        }
        self.stand_in(turn);
        self.watch(turn);
        self.plan_sample(turn.now);
        let state = self.judge_state();
        if state != self.state {
            turn.act(Action::Changed { pool: self.id, from: self.state, to: state });
            self.state = state;
        }
    }

    /// A worker that had proven itself ended.
    pub(super) fn spare(&mut self, now: Time) {
        self.spared = Some(now + SPARED);
    }

    fn start_missing(&mut self, turn: &mut Turn<'_>) {
        self.restarting &= self.count(|p, w| w.kind == Kind::App && w.generation < p.generation) > 0;
        let missing = self.missing();
        if missing == 0 || self.restarting || !self.backoff.permits(turn.now) {
            return;
        }
        let booting = self.count(|p, w| w.state == State::Booting && p.is_current(w));
        let cap = match (self.is_failed(), self.has_old()) {
            (true, _) => 1, // one tries for all
            (false, true) => self.desired().div_ceil(4).max(1),
            (false, false) => BOOTING_CAP,
        };
        for _ in 0..missing.min(cap.saturating_sub(booting)) {
            self.spawn(Kind::App, self.plan, self.generation, turn);
        }
    }

    /// Lets serving workers go that are more than wanted: those of old generations, then the worn.
    fn let_surplus_go(&mut self, turn: &mut Turn<'_>) {
        let serving = self.count(|_, w| w.kind == Kind::App && w.serves());
        let surplus = serving.saturating_sub(self.desired());
        if surplus == 0 {
            return;
        }
        let mut order: Vec<(bool, bool, bool, Time, WorkerId)> = self
            .workers
            .iter()
            .filter(|(_, w)| w.kind == Kind::App && w.serves())
            .map(|(id, w)| {
                let idle = w.idle_since.unwrap_or(Time::MAX);
                (self.is_current(w), !w.worn, w.idle_since.is_none(), idle, *id)
            })
            .collect();
        order.sort_unstable();
        for (.., id) in order.into_iter().take(surplus) {
            self.apply(id, Life::Retire, turn);
        }
    }

    fn stand_in(&mut self, turn: &mut Turn<'_>) {
        let wanted = match self.goal {
            Goal::Run => self.is_failed(),
            Goal::Stop => true,
            Goal::End => false,
        };
        let present = self.count(|_, w| w.kind == Kind::StandIn && w.state < State::Retiring);
        let served = self.count(|_, w| w.kind == Kind::App && w.serves()) > 0;
        if wanted && present == 0 && self.stand_in_after.is_none_or(|at| at <= turn.now) {
            self.spawn(Kind::StandIn, self.plan, self.generation, turn);
        } else if present > 0 && self.goal == Goal::Run && (served || self.rests()) {
            self.force_stand_ins(turn);
        }
    }

    fn judge_state(&self) -> PoolState {
        let serving = self.count(|_, w| w.kind == Kind::App && w.serves());
        match self.goal {
            Goal::Stop | Goal::End => PoolState::Stopped,
            Goal::Run if self.is_failed() => PoolState::Failed,
            Goal::Run if self.rests() => PoolState::Running,
            // To come and go is what an ondemand pool is for.
            Goal::Run if self.comes_and_goes() && self.backoff.barren() == 0 => PoolState::Running,
            Goal::Run if serving == 0 => PoolState::Starting,
            Goal::Run if self.missing() > 0 && self.backoff.barren() > 0 => PoolState::Degraded,
            // Booting is no trouble, unless it has failed before.
            Goal::Run if serving < self.desired() && self.state != PoolState::Running => {
                self.state.unstarted()
            }
            Goal::Run => PoolState::Running,
        }
    }

    /// No worker serves and those that were tried did not live.
    fn is_failed(&self) -> bool {
        self.backoff.barren() >= FAILED_AT
            && self.spared.is_none()
            && !self.rests()
            && self.count(|_, w| w.kind == Kind::App && (w.serves() || w.state == State::Overdue)) == 0
    }

    /// Nobody is wanted and nobody is there.
    pub(super) fn rests(&self) -> bool {
        self.desired() == 0 && self.count(|_, w| w.kind == Kind::App && w.state <= State::Overdue) == 0
    }

    /// Workers of the current generation that are to be started.
    pub(super) fn missing(&self) -> usize {
        let fresh = |p: &Pool, w: &Worker| {
            let ends = w.state >= State::Retiring;
            p.is_current(w) && !w.worn && (!ends || matches!(w.doom, Some(Doom::Fault(_))))
        };
        self.desired().saturating_sub(self.count(fresh))
    }

    pub(super) fn has_old(&self) -> bool {
        self.count(|p, w| w.kind == Kind::App && w.generation < p.generation && w.state <= State::Overdue) > 0
    }

    pub(super) fn is_current(&self, worker: &Worker) -> bool {
        worker.kind == Kind::App && worker.generation == self.generation
    }

    pub(super) fn count(&self, which: impl Fn(&Pool, &Worker) -> bool) -> usize {
        self.workers.values().filter(|w| which(self, w)).count()
    }

    /// The last worker of a pool that ends is gone.
    pub(super) fn is_over(&self) -> bool {
        self.goal == Goal::End && self.workers.is_empty()
    }

    /// When time alone will change something.
    pub(super) fn next_due(&self, now: Time) -> Option<Time> {
        let run = self.goal == Goal::Run;
        let waits = run && (self.missing() > 0 || (self.rests() && !self.watching));
        let stand_in = if self.stand_in_is_missing() { self.stand_in_after } else { None };
        self.workers
            .values()
            .filter_map(Worker::due)
            .chain(self.idle_due().filter(|_| run))
            .chain(self.backoff.until().filter(|until| waits && *until > now))
            .chain(self.sample_at)
            .chain(self.spared.filter(|_| run))
            .chain(stand_in)
            .min()
            .map(|due| due.max(now + Duration::from_millis(1)))
    }

    fn stand_in_is_missing(&self) -> bool {
        let wanted = self.goal == Goal::Stop || (self.goal == Goal::Run && self.is_failed());
        wanted && self.count(|_, w| w.kind == Kind::StandIn && w.state < State::Retiring) == 0
    }

    // Workers --------------------------------------------------------------------------------------------

    pub(super) fn spawn(&mut self, kind: Kind, plan: Plan, generation: u64, turn: &mut Turn<'_>) -> WorkerId {
        let worker = turn.birth(self.id);
        self.workers.insert(worker, Worker::new(kind, generation, turn.now + plan.boot_timeout));
        let lot = turn.lots.draw();
        let revision = plan.revision;
        turn.act(Action::Spawn { pool: self.id, worker, kind, revision, generation, lot });
        worker
    }

    pub(super) fn apply(&mut self, id: WorkerId, event: Life, turn: &mut Turn<'_>) {
        self.apply_for(id, event, None, turn);
    }

    /// Moves a worker along the table.
    pub(super) fn apply_for(&mut self, id: WorkerId, event: Life, why: Option<Reason>, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let (state, force) = life::next(worker.state, event);
        let same = state == worker.state && force.is_none();
        worker.state = state;
        if same {
            return;
        }
        let after = match state {
            State::Booting => Some(self.plan.boot_timeout),
            State::Serving | State::Worn => None,
            State::Overdue => Some(OVERDUE_GRACE),
            State::Retiring => Some(self.plan.retire_timeout),
            State::Terminating => Some(self.plan.stop_timeout.min(TERM_GRACE)),
            State::Killing => Some(KILL_AGAIN),
        };
        worker.deadline = after.map(|after| turn.now + after);
        if let Some(force) = force {
            let doom = why.map_or(Doom::Wish, Doom::Fault);
            worker.doom.get_or_insert(doom);
            turn.act(Action::Force { worker: id, force, why });
        }
    }

    /// Applies force to all app workers; nobody has longer than `within` then.
    fn force_all(&mut self, event: Life, within: Option<Time>, turn: &mut Turn<'_>) {
        self.force_those(Kind::App, event, within, turn);
    }

    pub(super) fn force_stand_ins(&mut self, turn: &mut Turn<'_>) {
        let event = if self.goal == Goal::Run { Life::Retire } else { Life::Terminate };
        self.force_those(Kind::StandIn, event, Some(turn.now + NOW_GRACE), turn);
    }

    fn force_those(&mut self, kind: Kind, event: Life, within: Option<Time>, turn: &mut Turn<'_>) {
        let ids: Vec<WorkerId> =
            self.workers.iter().filter(|(_, w)| w.kind == kind).map(|(id, _)| *id).collect();
        for id in ids {
            self.apply(id, event, turn);
            let Some(worker) = self.workers.get_mut(&id) else { continue };
            if matches!(worker.state, State::Retiring | State::Terminating) {
                worker.deadline = match (worker.deadline, within) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
}

impl PoolState {
    /// The state of a pool whose workers boot: a pool that started goes on starting, others are degraded.
    fn unstarted(self) -> PoolState {
        if self == PoolState::Starting { PoolState::Starting } else { PoolState::Degraded }
    }
}

impl Force {
    /// The word for the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Force::Retire => "retire",
            Force::Terminate => "SIGTERM",
            Force::Kill => "SIGKILL",
        }
    }
}
