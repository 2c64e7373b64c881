//! CPU time and private memory of a process and all of its descendants, from `/proc`.
//!
//! CPU time counts what a live process used and what it reaped, to the kernel's tick (10 ms). A child that
//! ends without being waited for by a live process of the tree is lost. Reads only.

use nix::unistd::{SysconfVar, sysconf};
use std::{fs, time::Duration};

/// User and system time of `root`, its live descendants, and all that they reaped.
#[must_use]
pub fn cpu(root: u32) -> Duration {
    let ticks: u64 = members(root).iter().map(|process| process.ticks).sum();
    let hertz = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|hertz| u64::try_from(hertz).ok())
        .unwrap_or(100);
    Duration::from_millis(ticks * 1000 / hertz.max(1))
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

struct Process {
    pid: u32,
    parent: u32,
    ticks: u64,
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
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Process { pid, parent, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 3 0 0 0 -1 0 0 0 0 0 10 20 300 4000 20 0 1 0 0";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.ticks), (3, 4330));
    }

    #[test]
    fn a_child_belongs_to_the_tree_and_a_stranger_does_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = pids(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.contains(&child.id()) && tree.contains(&std::process::id()) && !tree.contains(&1));
        assert!(private_memory(std::process::id()) > 100_000);
    }
}
