//! What happens to a pool's workers: what they report, how they end, and what time alone brings.
//!
//! Each event changes what is known; what follows from it is for [`Pool::conclude`].

use super::{
    Action, Exit, Kind, Reason, State, Turn, WorkerId,
    life::Event as Life,
    pool::{FAILED_AT, Goal, OVERDUE_GRACE, Pool},
    worker::Doom,
};
use hostler_worker::control::{Report, Wear};
use std::time::Duration;

/// Between a control socket that closed and SIGTERM.
const MUTE_GRACE: Duration = Duration::from_secs(1);
/// A worker that served for this long was no barren one.
const PROVEN: Duration = Duration::from_secs(10);
/// Until a stand-in that ended is started again.
const STAND_IN_PAUSE: Duration = Duration::from_secs(1);

impl Pool {
    pub(super) fn reported(&mut self, id: WorkerId, report: Report, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        match report {
            Report::Ready => self.ready(id, turn),
            Report::BootFailed { message } => {
                worker.fault = Some(message);
                self.apply(id, Life::BootFailed, turn);
            }
            Report::Active => worker.idle_since = None,
            Report::Rest => {
                if worker.idle_since.is_none() && worker.ready.is_some() {
                    worker.idle_since = Some(turn.now);
                }
            }
            Report::Pressure => self.pressed(turn.now),
            Report::Worn { why } => self.worn(id, why, turn),
            Report::TimedOut { .. } => self.timed_out(id, turn),
            Report::OverHard { .. } => {
                if worker.state < State::Killing {
                    self.totals.killed_memory += 1;
                    self.apply_for(id, Life::Kill, Some(Reason::Memory), turn);
                }
            }
            Report::Slow { .. } => {}
        }
    }

    /// A process that exits closes its control socket a moment before its end is told: it gets that moment.
    pub(super) fn mute(&mut self, id: WorkerId, turn: &mut Turn<'_>) {
        if let Some(worker) = self.workers.get_mut(&id).filter(|w| w.state < State::Retiring) {
            worker.mute_until = Some(turn.now + MUTE_GRACE);
        }
    }

    pub(super) fn exited(&mut self, id: WorkerId, exit: &Exit, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.remove(&id) else { return };
        if worker.kind == Kind::StandIn {
            if worker.state < State::Retiring {
                self.stand_in_after = Some(turn.now + STAND_IN_PAUSE);
            }
            return;
        }
        if exit.oom {
            self.totals.killed_memory += 1;
        }
        if self.goal != Goal::Run {
            return;
        }
        let Some(fault) = worker.fault_of(exit) else { return };
        let served = worker.ready.is_some();
        match (served, worker.doom) {
            (false, _) => self.totals.boot_failures += 1,
            (true, Some(Doom::Fault(Reason::Stuck | Reason::Memory))) => {} // counted as what they are
            (true, _) => self.totals.crashes += 1,
        }
        if self.trial.as_ref().is_some_and(|trial| trial.worker == id) {
            self.trial_failed(fault, turn);
            return;
        }
        let productive = exit.requests > 0 || worker.ready.is_some_and(|ready| turn.now >= ready + PROVEN);
        if served && productive {
            self.spare(turn.now);
        }
        let barren = match (served && productive, worker.doom) {
            (true, _) => 0,
            (false, Some(Doom::Fault(Reason::BootTimeout))) => FAILED_AT, // it took its time: no second try first
            (false, _) => 1,
        };
        // Those that one blow hits together have not failed one after another.
        let same_blow = barren > 0 && worker.ready.is_some_and(|ready| self.backoff.last() >= Some(ready));
        if !same_blow {
            self.backoff.fail(turn.now, barren, self.plan.boot_timeout, turn.lots);
        }
        self.demand.lost(&self.plan.model, served);
        self.last_error = Some(fault.clone());
        if worker.generation == self.generation && !served {
            self.rolling_failed(fault, turn);
        }
    }

    /// What time alone brings.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        let late: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, w)| w.due().is_some_and(|d| d <= turn.now))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let Some(worker) = self.workers.get_mut(&id) else { continue };
            if worker.mute_until.take_if(|until| *until <= turn.now).is_some() {
                self.apply_for(id, Life::Terminate, Some(Reason::Mute), turn);
                continue;
            }
            let reason = match worker.state {
                State::Booting => Reason::BootTimeout,
                State::Overdue => {
                    worker.deadline = None;
                    worker.judged = true;
                    turn.act(Action::Sample { pool: self.id });
                    continue;
                }
                _ => Reason::Lingering,
            };
            if worker.state == State::Killing {
                worker.doom = Some(Doom::Lost);
            }
            self.apply_for(id, Life::Deadline, Some(reason), turn);
        }
        if self.sample_at.is_some_and(|at| at <= turn.now) {
            self.sample_at = None;
            turn.act(Action::Sample { pool: self.id });
        }
    }

    fn ready(&mut self, id: WorkerId, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&id).filter(|w| w.state == State::Booting) else { return };
        worker.ready = Some(turn.now);
        worker.idle_since = Some(turn.now);
        self.apply(id, Life::Ready, turn);
        if self.trial.as_ref().is_some_and(|trial| trial.worker == id) {
            self.trial_ready(turn);
        }
    }

    fn worn(&mut self, id: WorkerId, why: Wear, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&id).filter(|w| !w.worn && w.ready.is_some()) else { return };
        worker.worn = true;
        match why {
            Wear::Requests => self.totals.recycled_requests += 1,
            Wear::Memory => self.totals.recycled_memory += 1,
            Wear::Fault => {}
        }
        self.apply(id, Life::Worn, turn);
    }

    /// The client is answered. The worker has a moment to come back; one that retires has no more than that.
    fn timed_out(&mut self, id: WorkerId, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let soon = turn.now + OVERDUE_GRACE;
        match worker.state {
            State::Serving | State::Worn => {
                worker.overdue_at = None;
                self.apply(id, Life::TimedOut, turn);
                turn.act(Action::Sample { pool: self.id });
            }
            State::Retiring => worker.deadline = Some(worker.deadline.map_or(soon, |d| d.min(soon))),
            _ => {}
        }
    }

    /// Compares an overdue worker with what it had done when it became overdue.
    pub(super) fn judge(&mut self, id: WorkerId, busy: bool, requests: u64, turn: &mut Turn<'_>) {
        let Some(worker) = self.workers.get_mut(&id).filter(|w| w.state == State::Overdue) else { return };
        let before = *worker.overdue_at.get_or_insert(requests);
        if !busy || requests > before {
            worker.judged = false;
            let worn = worker.worn;
            self.apply(id, Life::CameBack, turn);
            if worn {
                self.apply(id, Life::Worn, turn);
            }
        } else if worker.judged {
            worker.judged = false;
            self.totals.killed_stuck += 1;
            self.apply_for(id, Life::Terminate, Some(Reason::Stuck), turn);
        }
    }
}
