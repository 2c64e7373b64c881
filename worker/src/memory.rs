//! Private memory of this process and its children, the heir aside: what would be free if they ended.
//!
//! A cheap figure from `statm`; the exact one, from `smaps_rollup`, is asked for near a limit alone.

use crate::heir;
use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
};
use std::fs;

/// Private memory in bytes of this process and its children, pages shared with files left out; pages shared with a
/// parent by copy-on-write are counted.
pub(crate) fn about() -> u64 {
    let page = 4096;
    let of = |pid: &str| -> u64 {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let mut fields = statm.split(' ').skip(1).map(|field| field.parse::<u64>().unwrap_or(0));
        let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        resident.saturating_sub(shared) * page
    };
    of("self") + children("self").iter().map(|pid| of(pid)).sum::<u64>()
}

/// The exact figure, in bytes.
pub(crate) fn exact() -> u64 {
    let of = |pid: &str| -> u64 {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let private = rollup.lines().filter(|line| line.starts_with("Private_"));
        private.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
            * 1024
    };
    of("self") + children("self").iter().map(|pid| of(pid)).sum::<u64>()
}

/// Tells ahead that memory will pass a limit: a leak grows on as it did, and a replacement takes as long to boot as this
/// process did.
pub(crate) struct Growth {
    /// When the worker was ready, and how long that had taken, in nanoseconds.
    ready: u64,
    boot: u64,
    /// What it had then.
    base: Option<u64>,
}

impl Growth {
    /// Of a worker that is ready `now`, and took `boot` nanoseconds for that.
    pub(crate) fn new(now: u64, boot: u64) -> Growth {
        Growth { ready: now, boot, base: None }
    }

    /// Whether `bytes` are over `limit`, or will be before a replacement is there. No more is told ahead than it has
    /// grown, and than a quarter of the limit.
    pub(crate) fn passes(&mut self, bytes: u64, now: u64, limit: u64) -> bool {
        let grown = bytes.saturating_sub(*self.base.get_or_insert(bytes));
        let age = now.saturating_sub(self.ready).max(1);
        let ahead = u128::from(grown) * u128::from(self.boot) / u128::from(age.max(self.boot).max(1));
        bytes + u64::try_from(ahead).unwrap_or(u64::MAX).min(limit / 4) > limit
    }
}

/// Nanoseconds since this process began; 0 where the kernel does not tell.
pub(crate) fn age() -> u64 {
    let begun = || {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // proc(5): the 22nd field, the 20th after the name, in ticks since the machine booted.
        let ticks: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
        let hertz = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten()?;
        Some(ticks * (1_000_000_000 / u64::try_from(hertz).ok()?.max(1)))
    };
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    begun().map_or(0, |begun| now.saturating_sub(begun))
}

/// All descendants of a process, but for this one's heir.
pub(crate) fn children(pid: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![pid.to_owned()];
    while let Some(pid) = open.pop() {
        for child in children_of(&pid) {
            // A tree that changes while it is read has an end all the same.
            if all.len() < 1000 {
                all.push(child.to_string());
                open.push(child.to_string());
            }
        }
    }
    all
}

/// Whether this process has any child; one system call.
pub(crate) fn has_children() -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags) != Err(Errno::ECHILD)
}

/// The children of all threads of a process, but for this one's heir, which `waitid` does not find either.
pub(crate) fn children_of(pid: &str) -> Vec<i32> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    all.retain(|pid| Some(*pid) != heir::pid());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_told_a_boot_before_it_reaches_the_limit_and_rest_is_not() {
        const SECOND: u64 = 1_000_000_000;
        // Ready with 80 at second 10, after a boot of 3 seconds; grows by 2 a second.
        let mut growth = Growth::new(10 * SECOND, 3 * SECOND);
        let told = (10..).find(|second| growth.passes(80 + 2 * (second - 10), second * SECOND, 200));
        assert_eq!(told, Some(68), "at 196, of which 6 are to come");
        let mut growth = Growth::new(0, 3 * SECOND);
        assert!(!(1..1000).any(|second| growth.passes(190, second * SECOND, 200)));
        assert!(growth.passes(201, 1000 * SECOND, 200));
    }

    #[test]
    fn this_process_began_before_now_and_after_the_machine() {
        let age = age();
        assert!(age > 0 && age < 24 * 3600 * 1_000_000_000, "{age}");
    }

    #[test]
    fn memory_that_is_used_is_seen_and_a_childs_too() {
        let before = (about(), exact());
        let used = std::hint::black_box(vec![1u8; 32 << 20]);
        assert!(about() > before.0 + (30 << 20) && exact() > before.1 + (30 << 20));
        drop(used);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(children("self").contains(&child.id().to_string()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
