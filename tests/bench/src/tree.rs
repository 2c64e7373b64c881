//! CPU time, private memory and wake-ups of a process and all of its descendants, from `/proc`.
//!
//! CPU time of live threads is the scheduler's own, in nanoseconds; where threads have ended, and for children
//! that were reaped, it is counted to the kernel's tick (10 ms). A child that ends without being waited for by
//! a live process of the tree is lost. Reads only.

use nix::unistd::{SysconfVar, sysconf};
use std::{fs, time::Duration};

/// User and system time of `root`, its live descendants, and all that they reaped.
#[must_use]
pub fn cpu(root: u32) -> Duration {
    let hertz = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|hertz| u64::try_from(hertz).ok());
    let tick = Duration::from_millis(1000 / hertz.unwrap_or(100).max(1));
    let times = |count: u64| tick * u32::try_from(count).unwrap_or(u32::MAX);
    let own = |process: &Process| {
        let (exact, coarse) = (threads(process.pid, "schedstat", exact_time), times(process.own_ticks));
        let exact = Duration::from_nanos(exact);
        if coarse > exact + 3 * tick { coarse } else { exact }
    };
    members(root).iter().map(|process| own(process) + times(process.reaped_ticks)).sum()
}

/// How often threads of `root` and its live descendants went to sleep by themselves: at rest, this stands still.
#[must_use]
pub fn wake_ups(root: u32) -> u64 {
    members(root).iter().map(|process| threads(process.pid, "status", voluntary_switches)).sum()
}

/// A figure of each thread of a process, added up.
fn threads(pid: u32, file: &str, figure: fn(&str) -> Option<u64>) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| figure(&fs::read_to_string(task.path().join(file)).ok()?)).sum()
}

/// The first field of schedstat: nanoseconds on a processor.
fn exact_time(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

fn voluntary_switches(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Private memory of `root` and its live descendants, in bytes: pages that no other process shares.
#[must_use]
pub fn private_memory(root: u32) -> u64 {
    members(root).iter().map(|process| private_memory_of(process.pid)).sum()
}

/// Private memory of one process, in bytes; 0 where it is gone.
#[must_use]
pub fn private_memory_of(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let private = rollup.lines().filter_map(|line| line.strip_prefix("Private_"));
    private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>() * 1024
}

/// `root` and its live descendants.
#[must_use]
pub fn pids(root: u32) -> Vec<u32> {
    members(root).iter().map(|process| process.pid).collect()
}

/// The live children of `root`.
#[must_use]
pub fn children(root: u32) -> Vec<u32> {
    members(root).iter().filter(|process| process.parent == root).map(|process| process.pid).collect()
}

/// What is below a Hostler supervisor, without the processes that hold a worker's connections in case that it dies.
#[must_use]
pub fn workers(supervisor: u32) -> Vec<u32> {
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let is_worker = |pid: &u32| *pid != supervisor && name(*pid).trim() != "hostler-heir";
    pids(supervisor).into_iter().filter(is_worker).collect()
}

struct Process {
    pid: u32,
    parent: u32,
    /// Of itself, all threads.
    own_ticks: u64,
    /// Of children that it waited for.
    reaped_ticks: u64,
}

fn members(root: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut outside: Vec<Process> = pids.filter_map(process).collect();
    let (mut inside, others) = outside.drain(..).partition::<Vec<_>, _>(|process| process.pid == root);
    outside = others;
    loop {
        let known: Vec<u32> = inside.iter().map(|process| process.pid).collect();
        let (children, others) =
            outside.drain(..).partition::<Vec<_>, _>(|process| known.contains(&process.parent));
        outside = others;
        if children.is_empty() {
            return inside;
        }
        inside.extend(children);
    }
}

fn process(pid: u32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// proc(5): after the name in parentheses, field 4 is the parent; 14 to 17 are utime, stime, cutime, cstime.
fn parse(pid: u32, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let (own_ticks, reaped_ticks) = (ticks(11)? + ticks(12)?, ticks(13)? + ticks(14)?);
    Some(Process { pid, parent, own_ticks, reaped_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 3 0 0 0 -1 0 0 0 0 0 10 20 300 4000 20 0 1 0 0";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.own_ticks, process.reaped_ticks), (3, 30, 4300));
    }

    #[test]
    fn a_child_belongs_to_the_tree_and_a_stranger_does_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = pids(std::process::id());
        assert!(children(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.contains(&child.id()) && tree.contains(&std::process::id()) && !tree.contains(&1));
        assert!(private_memory(std::process::id()) > 100_000);
    }
}
