//! One worker as the mind knows it, and what is to be said of its end.

use super::{Exit, Kind, Reason, State, Time};
use serde::{Deserialize, Serialize};

/// One worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) generation: u64,
    /// When its state is over.
    pub(super) deadline: Option<Time>,
    /// It closed its control socket: until when it may end by itself.
    pub(super) mute_until: Option<Time>,
    pub(super) ready: Option<Time>,
    /// Since when it has had no request, by its own account.
    pub(super) idle_since: Option<Time>,
    pub(super) worn: bool,
    pub(super) memory: u64,
    /// Requests at the time it became overdue.
    pub(super) overdue_at: Option<u64>,
    /// A reading decides: whether it came back, or whether it may leave.
    pub(super) judged: bool,
    /// Why it ends, if it was not its own doing alone.
    pub(super) doom: Option<Doom>,
    pub(super) fault: Option<String>,
}

/// Why a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Doom {
    /// It is needed no more.
    Wish,
    /// It broke a rule. It is replaced when it is gone, under the rules for those that die.
    Fault(Reason),
    /// It does not even heed SIGKILL: it is replaced as if it were gone.
    Lost,
}

impl Worker {
    pub(super) fn new(kind: Kind, generation: u64, deadline: Time) -> Worker {
        Worker {
            kind,
            state: State::Booting,
            generation,
            deadline: Some(deadline),
            mute_until: None,
            ready: None,
            idle_since: None,
            worn: false,
            memory: 0,
            overdue_at: None,
            judged: false,
            doom: None,
            fault: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// When time alone does something to it.
    pub(super) fn due(&self) -> Option<Time> {
        [self.deadline, self.mute_until].into_iter().flatten().min()
    }

    /// Whether it takes requests.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.state, State::Serving | State::Worn)
    }

    /// What is to be said of this end; `None` where it was as it should be.
    pub(super) fn fault_of(&self, exit: &Exit) -> Option<String> {
        match (self.ready, self.doom) {
            (None, Some(Doom::Wish)) => None,
            (None, Some(Doom::Fault(Reason::BootTimeout) | Doom::Lost)) => {
                Some("a worker did not boot: it was not ready in time".to_owned())
            }
            (None, _) => {
                Some(format!("a worker did not boot: {}", self.fault.as_deref().unwrap_or(&exit.said)))
            }
            (Some(_), Some(Doom::Wish)) if exit.clean || self.state > State::Retiring => None,
            (Some(_), None) if exit.clean && exit.requests > 0 => None,
            (Some(_), _) => Some(format!("a worker died: {}", exit.said)),
        }
    }
}
