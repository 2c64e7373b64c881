//! What a script leaves behind outside its process group: who called `setsid`, or was started by one who did.
//!
//! The worker is a subreaper (prctl(2)): a process whose parent ends becomes the worker's own child, wherever it
//! hid. A worker serves one request at a time, so its children after a script that were not there before it are
//! the script's.
//!
//! Always holds: no child is touched that the worker had before; what is killed is reaped.
//!
//! Limitation: needs the kernel's list of children (CONFIG_PROC_CHILDREN, in Debian's kernels); without it such
//! processes live on.

use crate::memory::{self, has_children};
use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};

/// Times that the list is read: each time those that the last ones left behind are found.
const ROUNDS: usize = 100;

/// The children that the worker had before a script was started.
pub(super) struct Family(Vec<Pid>);

impl Family {
    /// Makes orphaned processes below this one its children from now on.
    ///
    /// # Errors
    /// The kernel does not.
    pub(super) fn adopt_orphans() -> nix::Result<()> {
        prctl::set_child_subreaper(true)
    }

    /// As it is now.
    pub(super) fn now() -> Family {
        Family(if has_children() { children() } else { Vec::new() })
    }

    /// Kills and reaps all children that are not of the family.
    pub(super) fn clear_others(&self) {
        for _ in 0..ROUNDS {
            if self.0.is_empty() && !has_children() {
                return;
            }
            let others: Vec<Pid> = children().into_iter().filter(|pid| !self.0.contains(pid)).collect();
            if others.is_empty() {
                return;
            }
            for pid in others {
                let _ = kill(pid, Signal::SIGKILL);
                while waitpid(pid, None) == Err(Errno::EINTR) {}
            }
        }
    }
}

fn children() -> Vec<Pid> {
    memory::children_of("self").into_iter().map(Pid::from_raw).collect()
}
