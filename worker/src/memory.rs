//! Private memory of this process and its children, the heir aside: what would be free if they ended.
//!
//! A cheap figure from `statm`; the exact one, from `smaps_rollup`, is asked for near a limit alone.

use crate::heir;
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

/// All descendants of a process, but for this one's heir.
pub(crate) fn children(pid: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![pid.to_owned()];
    while let Some(pid) = open.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let heir = heir::pid().map(|pid| pid.to_string());
            for child in list.split_ascii_whitespace().filter(|child| heir.as_deref() != Some(*child)) {
                // A tree that changes while it is read has an end all the same.
                if all.len() < 1000 {
                    all.push(child.to_owned());
                    open.push(child.to_owned());
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

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
