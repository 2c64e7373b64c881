//! A worker's life as a table: state × event → next state, and what is done to the worker.
//!
//! Always holds: force rises only (`Retire` < `Terminate` < `Kill`), every pair has a row, and a state that a
//! worker must leave has a deadline (`fleet::pool` keeps it). A worker's end is no row: it ends any state.

use serde::{Deserialize, Serialize};

/// Where a worker stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum State {
    /// Started, not ready yet.
    Booting,
    /// Ready.
    Serving,
    /// Serves on until its replacement is ready.
    Worn,
    /// A request passed its time and its client is answered; the worker has a moment to come back.
    Overdue,
    /// Told to finish and leave.
    Retiring,
    /// Sent SIGTERM, or ending by itself after a failed boot.
    Terminating,
    /// Sent SIGKILL.
    Killing,
}

/// What happens to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It reported that it serves.
    Ready,
    /// It reported that it cannot boot.
    BootFailed,
    /// It should be replaced.
    Worn,
    /// A request of it passed its time.
    TimedOut,
    /// An overdue worker was seen to have gone on.
    CameBack,
    /// It is needed no more.
    Retire,
    /// It must end soon.
    Terminate,
    /// It must end now.
    Kill,
    /// The time of its state is over.
    Deadline,
}

/// What is done to a worker, in rising force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Force {
    /// The order to retire.
    Retire,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, to all of its process group.
    Kill,
}

/// The table.
#[rustfmt::skip]
pub(crate) fn next(state: State, event: Event) -> (State, Option<Force>) {
    use {Event as E, Force as F, State as S};
    match (state, event) {
        (S::Booting, E::Ready)                                => (S::Serving, None),
        (S::Booting, E::BootFailed)                           => (S::Terminating, None), // leaves by itself
        (S::Booting, E::Worn | E::TimedOut | E::CameBack)     => (S::Booting, None),     // a claim before its time
        (S::Booting, E::Retire | E::Terminate)                => (S::Terminating, Some(F::Terminate)),
        (S::Booting, E::Kill | E::Deadline)                   => (S::Killing, Some(F::Kill)),

        (S::Serving, E::Worn)                                 => (S::Worn, None),
        (S::Serving, E::TimedOut)                             => (S::Overdue, None),
        (S::Serving, E::Ready | E::BootFailed | E::CameBack)  => (S::Serving, None),
        (S::Serving, E::Deadline)                             => (S::Serving, None),     // a rest has no time limit
        (S::Serving, E::Retire)                               => (S::Retiring, Some(F::Retire)),
        (S::Serving, E::Terminate)                            => (S::Terminating, Some(F::Terminate)),
        (S::Serving, E::Kill)                                 => (S::Killing, Some(F::Kill)),

        (S::Worn, E::TimedOut)                                => (S::Overdue, None),
        (S::Worn, E::Ready | E::BootFailed | E::Worn)         => (S::Worn, None),
        (S::Worn, E::CameBack | E::Deadline)                  => (S::Worn, None),
        (S::Worn, E::Retire)                                  => (S::Retiring, Some(F::Retire)),
        (S::Worn, E::Terminate)                               => (S::Terminating, Some(F::Terminate)),
        (S::Worn, E::Kill)                                    => (S::Killing, Some(F::Kill)),

        (S::Overdue, E::CameBack)                             => (S::Serving, None),
        (S::Overdue, E::Ready | E::BootFailed)                => (S::Overdue, None),
        (S::Overdue, E::Worn | E::TimedOut)                   => (S::Overdue, None),
        (S::Overdue, E::Retire)                               => (S::Retiring, Some(F::Retire)),
        (S::Overdue, E::Terminate | E::Deadline)              => (S::Terminating, Some(F::Terminate)),
        (S::Overdue, E::Kill)                                 => (S::Killing, Some(F::Kill)),

        (S::Retiring, E::Ready | E::BootFailed | E::Worn)     => (S::Retiring, None),
        (S::Retiring, E::TimedOut | E::CameBack | E::Retire)  => (S::Retiring, None),
        (S::Retiring, E::Terminate | E::Deadline)             => (S::Terminating, Some(F::Terminate)),
        (S::Retiring, E::Kill)                                => (S::Killing, Some(F::Kill)),

        (S::Terminating, E::Kill | E::Deadline)               => (S::Killing, Some(F::Kill)),
        (S::Terminating, _)                                   => (S::Terminating, None),

        (S::Killing, E::Deadline)                             => (S::Killing, Some(F::Kill)), // once more
        (S::Killing, _)                                       => (S::Killing, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Force, State, next};

    const STATES: [State; 7] = [
        State::Booting,
        State::Serving,
        State::Worn,
        State::Overdue,
        State::Retiring,
        State::Terminating,
        State::Killing,
    ];
    const EVENTS: [Event; 9] = [
        Event::Ready,
        Event::BootFailed,
        Event::Worn,
        Event::TimedOut,
        Event::CameBack,
        Event::Retire,
        Event::Terminate,
        Event::Kill,
        Event::Deadline,
    ];

    #[test]
    fn nobody_returns_from_the_way_out() {
        for state in [State::Retiring, State::Terminating, State::Killing] {
            for event in EVENTS {
                assert!(next(state, event).0 >= state, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn force_is_only_used_where_the_state_says_so() {
        for state in STATES {
            for event in EVENTS {
                let (then, force) = next(state, event);
                let due = match then {
                    State::Retiring => Some(Force::Retire),
                    State::Terminating => Some(Force::Terminate),
                    State::Killing => Some(Force::Kill),
                    _ => None,
                };
                assert!(force.is_none() || force == due, "{state:?} {event:?}");
                if then != state && !(state == State::Booting && event == Event::BootFailed) {
                    assert_eq!(force, due, "{state:?} {event:?}");
                }
            }
        }
    }

    #[test]
    fn every_state_on_the_way_out_rises_at_its_deadline() {
        for state in [State::Booting, State::Overdue, State::Retiring, State::Terminating, State::Killing] {
            assert!(next(state, Event::Deadline).1.is_some(), "{state:?}");
        }
    }
}
