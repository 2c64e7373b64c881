//! A pool's reload: a number that grew.
//!
//! One worker of the new generation boots first, the *trial*. Where it does not become ready, nothing else has
//! happened: the old generation serves on. Where it does, the new settings are adopted and the rest *rolls*: a
//! quarter of the workers boots at a time, and each that becomes ready lets one old worker go, so that memory
//! does not double and no moment has fewer serving workers than before.
//!
//! Reloads that are asked for while one runs become one that follows it.

use super::{
    Action, Kind, Plan, Turn, WorkerId,
    backoff::Backoff,
    life::Event as Life,
    pool::{Goal, Pool},
};
use serde::{Deserialize, Serialize};

/// Boots that may fail while the rest rolls until the reload is called failed (it is tried on all the same).
const ROLLING_FAULTS: u32 = 3;

/// The first worker of a generation that is not adopted yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(super) worker: WorkerId,
    pub(super) generation: u64,
    pub(super) plan: Plan,
}

/// The new generation is adopted, but old workers serve still.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Rolling {
    faults: u32,
}

impl Pool {
    /// Makes settings those in force, under a new generation.
    pub(super) fn adopt(&mut self, plan: Plan, turn: &mut Turn<'_>) {
        self.newest += 1;
        self.take_over(plan, self.newest, turn);
    }

    fn take_over(&mut self, plan: Plan, generation: u64, turn: &mut Turn<'_>) {
        self.plan = plan;
        self.generation = generation;
        self.demand.refit(&plan.model);
        turn.act(Action::Adopted { pool: self.id, revision: plan.revision, generation });
    }

    /// A new generation without a trial: whatever becomes of it, there is no old one to keep.
    pub(super) fn renew(&mut self, turn: &mut Turn<'_>) {
        self.goal = Goal::Run;
        self.backoff = Backoff::default();
        self.adopt(self.plan, turn);
    }

    /// Whether a reload waits or runs.
    pub(crate) fn reloads(&self) -> bool {
        self.pending.is_some() || self.trial.is_some() || self.rolling.is_some()
    }

    /// Whether a reload could begin.
    pub(super) fn waits_for_slot(&self) -> bool {
        self.pending.is_some() && self.trial.is_none() && self.rolling.is_none()
    }

    pub(super) fn begin_reload(&mut self, turn: &mut Turn<'_>) {
        if !self.waits_for_slot() {
            return;
        }
        let Some(plan) = self.pending.take() else { return };
        self.newest += 1;
        let generation = self.newest;
        let worker = self.spawn(Kind::App, plan, generation, turn);
        self.trial = Some(Trial { worker, generation, plan });
    }

    pub(super) fn trial_ready(&mut self, turn: &mut Turn<'_>) {
        let Some(trial) = self.trial.take() else { return };
        self.backoff = Backoff::default();
        self.take_over(trial.plan, trial.generation, turn);
        self.want_one();
        self.rolling = Some(Rolling::default());
    }

    /// The reload is done when nobody of an old generation serves and nobody is missing.
    pub(super) fn conclude_rolling(&mut self, turn: &mut Turn<'_>) {
        let serving = self.count(|p, w| p.is_current(w) && w.serves());
        if self.rolling.is_some() && !self.has_old() && serving >= self.desired() {
            self.last_error = None;
            self.conclude_reload(None, turn);
        }
    }

    /// A later worker of the new generation did not boot. The old ones that are left serve on.
    pub(super) fn rolling_failed(&mut self, fault: String, turn: &mut Turn<'_>) {
        let Some(rolling) = &mut self.rolling else { return };
        rolling.faults += 1;
        if rolling.faults >= ROLLING_FAULTS {
            self.conclude_reload(Some(fault), turn);
        }
    }

    /// Says how the reload went.
    pub(super) fn conclude_reload(&mut self, fault: Option<String>, turn: &mut Turn<'_>) {
        self.conclude_reload_to(self.plan.revision, fault, turn);
    }

    /// The trial did not live: nothing has changed.
    pub(super) fn trial_failed(&mut self, fault: String, turn: &mut Turn<'_>) {
        if let Some(trial) = self.trial.take() {
            self.conclude_reload_to(trial.plan.revision, Some(fault), turn);
        }
    }

    fn conclude_reload_to(&mut self, revision: u64, fault: Option<String>, turn: &mut Turn<'_>) {
        self.rolling = None;
        match &fault {
            None => self.totals.reloads += 1,
            Some(fault) => {
                self.totals.failed_reloads += 1;
                self.last_error = Some(fault.clone());
            }
        }
        let generation = self.generation;
        turn.act(Action::Reloaded { pool: self.id, revision, generation, fault });
    }

    /// Reloads that wait or run end without success; settings that wait are taken for the next start.
    pub(super) fn drop_reloads(&mut self, why: &str, turn: &mut Turn<'_>) {
        if !self.reloads() {
            return;
        }
        let trial = self.trial.take();
        if let Some(trial) = &trial {
            self.apply(trial.worker, Life::Terminate, turn);
        }
        if let Some(plan) = self.pending.take().or(trial.map(|trial| trial.plan)) {
            self.adopt(plan, turn);
        }
        self.conclude_reload(Some(why.to_owned()), turn);
    }
}
