//! When a worker that ended by itself is replaced: at once the first time, then after a growing delay with
//! jitter.
//!
//! An end is *barren* where the worker answered nothing and did not live: it could not boot, or died at once.
//! Barren ends wait up to half a minute; a worker that had served is replaced within a tenth of a second
//! always, so that a pool whose workers are shot one after another stays up.

use super::{Lots, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest wait after barren ends.
pub(crate) const BARREN_CAP: Duration = Duration::from_secs(30);
/// The longest wait after a worker that had served.
pub(crate) const SERVED_CAP: Duration = Duration::from_millis(100);
const BARREN_STEP: Duration = Duration::from_millis(100);
const SERVED_STEP: Duration = Duration::from_millis(10);
/// Without a failure for this long (and twice the last wait, and a boot's time) all is forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// The memory of a pool's failures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Backoff {
    /// Failures of one kind in a row, and one more where those of the other kind went before.
    failures: u32,
    /// The last one was of a worker that had served.
    #[serde(default)]
    served: bool,
    barren: u32,
    last: Option<Time>,
    wait: Duration,
    until: Option<Time>,
}

impl Backoff {
    /// Takes a failure into account. `barren`: 0 for a worker that had served, else its weight.
    pub(crate) fn fail(&mut self, now: Time, barren: u32, boot_timeout: Duration, lots: &mut Lots) {
        if self.last.is_some_and(|last| now > last + FORGET + self.wait * 2 + boot_timeout) {
            *self = Backoff::default();
        }
        self.last = Some(now);
        self.barren = if barren == 0 { 0 } else { self.barren.saturating_add(barren) };
        if self.until.is_some_and(|until| until > now) {
            return; // a wait that runs is not prolonged: else frequent ends would starve the pool
        }
        // A worker shot after many that had served, just before its first answer, is no app that cannot boot.
        if std::mem::replace(&mut self.served, barren == 0) != (barren == 0) {
            self.failures = self.failures.min(1);
        }
        self.failures = self.failures.saturating_add(1);
        self.wait = match self.failures {
            1 => Duration::ZERO,
            n => {
                let (step, cap) =
                    if barren == 0 { (SERVED_STEP, SERVED_CAP) } else { (BARREN_STEP, BARREN_CAP) };
                let wait = step.saturating_mul(1 << (n - 2).min(20)).min(cap);
                wait.mul_f64(0.75 + 0.5 * lots.fraction()).min(cap)
            }
        };
        self.until = Some(now + self.wait);
    }

    /// When the last failure was.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// Before this time nothing is started.
    pub(crate) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Whether something may be started.
    pub(crate) fn permits(&self, now: Time) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Barren ends in a row, by weight.
    pub(crate) fn barren(&self) -> u32 {
        self.barren
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Duration = Duration::from_secs(1);

    #[test]
    fn a_barren_end_after_many_that_had_served_waits_as_a_first_one() {
        let mut backoff = Backoff::default();
        let mut now = Duration::from_secs(100);
        for _ in 0..20 {
            backoff.fail(now, 0, BOOT, &mut Lots::new(7));
            now = backoff.until().unwrap();
        }
        backoff.fail(now, 1, BOOT, &mut Lots::new(7));
        assert!(backoff.until().unwrap() - now <= BARREN_STEP * 2);
    }

    fn waits(barren: u32, n: usize) -> Vec<Duration> {
        let mut backoff = Backoff::default();
        let mut now = Duration::from_secs(100);
        let mut all = Vec::new();
        for _ in 0..n {
            backoff.fail(now, barren, BOOT, &mut Lots::new(7));
            let until = backoff.until().unwrap();
            all.push(until - now);
            now = until;
        }
        all
    }

    #[test]
    fn the_first_replacement_comes_at_once_and_later_ones_wait_longer_up_to_a_cap() {
        let waits = waits(1, 20);
        assert_eq!(waits[0], Duration::ZERO);
        assert!(waits[1] >= Duration::from_millis(75) && waits[1] <= Duration::from_millis(125));
        assert!(waits[5] > waits[1] * 4);
        assert!(waits.iter().all(|w| *w <= BARREN_CAP));
        assert!(waits[19] >= BARREN_CAP.mul_f64(0.7));
    }

    #[test]
    fn a_worker_that_had_served_is_never_waited_for_longer_than_its_cap() {
        assert!(waits(0, 50).iter().all(|w| *w <= SERVED_CAP));
    }

    #[test]
    fn frequent_ends_do_not_prolong_a_wait_that_runs() {
        let mut backoff = Backoff::default();
        let mut lots = Lots::new(1);
        let start = Duration::from_secs(5);
        for _ in 0..6 {
            backoff.fail(start, 1, BOOT, &mut lots);
        }
        let until = backoff.until().unwrap();
        for ms in 1..50 {
            backoff.fail(start + Duration::from_millis(ms), 1, BOOT, &mut lots);
        }
        assert_eq!(backoff.until(), Some(until));
    }

    #[test]
    fn a_quiet_time_is_a_new_start() {
        let mut backoff = Backoff::default();
        let mut lots = Lots::new(1);
        let mut now = Duration::from_secs(5);
        for _ in 0..4 {
            backoff.fail(now, 1, BOOT, &mut lots);
            now += Duration::from_millis(1500);
        }
        now += Duration::from_secs(60);
        backoff.fail(now, 1, BOOT, &mut lots);
        assert_eq!(backoff.until(), Some(now));
        assert_eq!(backoff.barren(), 1);
    }
}
