//! How many workers a pool wants, by its model and by true demand.
//!
//! Always holds: a static pool wants its count; a dynamic one stays within `min` and `max`, an ondemand one
//! within 0 and `max`; growth is 1, 2, 4 … workers at a time, at most [`STEP_CAP`], at most once in [`PACE`];
//! readings are asked for only while a pool works, never at rest.

use super::{
    Action, Reading, Time, Turn, WorkerId,
    life::Event as Life,
    pool::{Goal, Pool},
};
use crate::settings::Model;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Between two growths.
pub(crate) const PACE: Duration = Duration::from_millis(50);
/// Workers in one growth at most.
pub(crate) const STEP_CAP: u32 = 32;
/// Without growth for this long, the next begins with one worker again.
const CALM: Duration = Duration::from_secs(1);
/// Between two readings of a dynamic pool that works.
const SAMPLE_LOAD: Duration = Duration::from_millis(100);
/// Between two readings of a pool with a memory limit that works.
const SAMPLE_MEMORY: Duration = Duration::from_secs(1);
/// A worker is not replaced for the pool's memory before it served this long.
const FAT_AFTER: Duration = Duration::from_secs(10);

/// What a pool wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Demand {
    wanted: u32,
    step: u32,
    grown: Option<Time>,
}

impl Demand {
    pub(super) fn new(model: &Model) -> Demand {
        Demand { wanted: bounds(model).0.max(spare(model)), step: 1, grown: None }
    }

    /// Fits what is wanted to new settings. Something is wanted after a trial: its worker is there.
    pub(super) fn refit(&mut self, model: &Model) {
        let (min, max) = bounds(model);
        self.wanted = self.wanted.clamp(min, max);
    }

    fn grow(&mut self, now: Time, max: u32) {
        if self.grown.is_some_and(|grown| now < grown + PACE) || self.wanted >= max {
            return;
        }
        let soon = self.grown.is_some_and(|grown| now < grown + CALM);
        self.step = if soon { (self.step * 2).min(STEP_CAP) } else { 1 };
        self.grown = Some(now);
        self.wanted = (self.wanted + self.step).min(max);
    }

    /// A worker ended. The next connection says whether an ondemand pool needs another; one that could not
    /// boot is still needed.
    pub(super) fn lost(&mut self, model: &Model, served: bool) {
        if served && matches!(model, Model::Ondemand { .. }) {
            self.wanted = self.wanted.saturating_sub(1);
        }
    }
}

/// The fewest and the most workers.
pub(crate) fn bounds(model: &Model) -> (u32, u32) {
    let fewest = match *model {
        Model::Static { count } => count,
        Model::Dynamic { min, .. } => min,
        Model::Ondemand { .. } => 0,
    };
    (fewest, model.most())
}

fn spare(model: &Model) -> u32 {
    match *model {
        Model::Dynamic { spare, max, .. } => spare.min(max),
        Model::Static { .. } | Model::Ondemand { .. } => 0,
    }
}

fn idle_timeout(model: &Model) -> Option<Duration> {
    match *model {
        Model::Static { .. } => None,
        Model::Dynamic { idle_timeout, .. } | Model::Ondemand { idle_timeout, .. } => Some(idle_timeout),
    }
}

impl Pool {
    /// Workers that the pool should have.
    pub(crate) fn desired(&self) -> usize {
        self.demand.wanted as usize
    }

    /// Somebody waits at the listener of a pool without workers.
    pub(super) fn connecting(&mut self) {
        self.watching = false;
        if self.goal == Goal::Run && self.demand.wanted == 0 {
            self.demand.wanted = 1;
        }
    }

    /// The trial's worker is there: something is wanted.
    pub(super) fn want_one(&mut self) {
        self.demand.wanted = self.demand.wanted.max(1);
    }

    /// Somebody waits although workers are there. Grows only when nobody is on the way already.
    pub(super) fn pressed(&mut self, now: Time) {
        if self.goal == Goal::Run && self.missing() == 0 {
            self.demand.grow(now, bounds(&self.plan.model).1);
        }
    }

    /// Watches the listeners of an ondemand pool at rest.
    pub(super) fn watch(&mut self, turn: &mut Turn<'_>) {
        let wanted = self.goal == Goal::Run && self.rests() && self.backoff.permits(turn.now);
        if wanted != self.watching {
            self.watching = wanted;
            let pool = self.id;
            turn.act(if wanted { Action::Watch { pool } } else { Action::Unwatch { pool } });
        }
    }

    /// What the workers' pages say: who came back, who may leave, who is fat, how many are busy.
    pub(super) fn sampled(&mut self, readings: &[Reading], turn: &mut Turn<'_>) {
        for reading in readings {
            if let Some(worker) = self.workers.get_mut(&reading.worker) {
                worker.memory = reading.memory;
            }
            self.judge(reading.worker, reading.busy, reading.requests, turn);
            self.judge_leaving(reading, turn);
        }
        self.let_fattest_go(turn);
        if let Model::Dynamic { spare, .. } = self.plan.model {
            let idle = readings
                .iter()
                .filter(|r| !r.busy && self.workers.get(&r.worker).is_some_and(|w| w.serves() && !w.worn));
            if self.goal == Goal::Run && idle.count() < spare as usize && self.missing() == 0 {
                self.demand.grow(turn.now, bounds(&self.plan.model).1);
            }
        }
    }

    /// Lets workers go that were idle for their time, the longest idle first.
    pub(super) fn let_idle_go(&mut self, turn: &mut Turn<'_>) {
        while self.idle_due().is_some_and(|due| due <= turn.now) {
            let Some((_, id)) = self.longest_idle() else { return };
            if self.is_last_on_demand() {
                // It may hold connections that rest: its page says.
                let Some(worker) = self.workers.get_mut(&id) else { return };
                worker.idle_since = Some(turn.now);
                worker.judged = true;
                turn.act(Action::Sample { pool: self.id });
                return;
            }
            self.demand.wanted = self.demand.wanted.saturating_sub(1).max(bounds(&self.plan.model).0);
            self.apply(id, Life::Retire, turn);
        }
    }

    /// When the longest idle worker may leave, if any may.
    pub(super) fn idle_due(&self) -> Option<Time> {
        let timeout = idle_timeout(&self.plan.model)?;
        let (min, _) = bounds(&self.plan.model);
        let serving = self.count(|p, w| p.is_current(w) && w.serves());
        let idle = self.count(|p, w| p.is_current(w) && w.serves() && w.idle_since.is_some());
        // Nobody goes while somebody comes.
        let settled = serving >= self.desired() && !self.has_old();
        let may = settled && serving > min as usize && idle > spare(&self.plan.model) as usize;
        self.longest_idle().filter(|_| may).map(|(since, _)| since + timeout)
    }

    fn longest_idle(&self) -> Option<(Time, WorkerId)> {
        self.workers
            .iter()
            .filter(|(_, w)| self.is_current(w) && w.serves())
            .filter_map(|(id, w)| Some((w.idle_since?, *id)))
            .min()
    }

    pub(super) fn comes_and_goes(&self) -> bool {
        matches!(self.plan.model, Model::Ondemand { .. })
    }

    fn is_last_on_demand(&self) -> bool {
        self.comes_and_goes() && self.count(|p, w| p.is_current(w) && w.serves()) == 1
    }

    /// The last worker of an ondemand pool leaves only when it holds no connection: nobody else would watch it.
    fn judge_leaving(&mut self, reading: &Reading, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&reading.worker) else { return };
        if !worker.judged || !worker.serves() {
            return;
        }
        worker.judged = false;
        let rests = !reading.busy && reading.connections == 0 && worker.idle_since.is_some();
        if rests && self.is_last_on_demand() {
            self.demand.wanted = 0;
            self.apply(reading.worker, Life::Retire, turn);
        }
    }

    /// Over the pool's memory limit: the fattest is replaced, one at a time.
    fn let_fattest_go(&mut self, turn: &mut Turn<'_>) {
        let Some(limit) = self.plan.memory else { return };
        let all: u64 = self.workers.values().fold(0, |sum, w| sum.saturating_add(w.memory));
        let under_way = self.count(|_, w| w.kind == super::Kind::App && (w.worn || w.ready.is_none())) > 0;
        if all <= limit || under_way {
            return;
        }
        let fattest = self
            .workers
            .iter()
            .filter(|(_, w)| w.state == super::State::Serving)
            .filter(|(_, w)| w.ready.is_some_and(|ready| turn.now >= ready + FAT_AFTER))
            .max_by_key(|(_, w)| w.memory)
            .map(|(id, _)| *id);
        let Some(id) = fattest else { return };
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.worn = true;
        }
        self.totals.recycled_memory += 1;
        self.apply(id, Life::Worn, turn);
    }

    /// Plans the next reading: only while somebody works.
    pub(super) fn plan_sample(&mut self, now: Time) {
        let every = match (&self.plan.model, self.plan.memory) {
            (Model::Dynamic { .. }, _) => Some(SAMPLE_LOAD),
            (_, Some(_)) => Some(SAMPLE_MEMORY),
            _ => None,
        };
        let works = self.count(|p, w| p.is_current(w) && w.serves() && w.idle_since.is_none()) > 0;
        self.sample_at = match every.filter(|_| works && self.goal == Goal::Run) {
            Some(every) => Some(self.sample_at.unwrap_or(now + every)),
            None => None,
        };
    }
}
