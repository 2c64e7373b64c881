//! A control group (cgroup v2) for each worker with a hard memory limit, where a part of the tree is delegated to
//! us: the kernel then kills exactly what is over its limit, with all its children, and says so.
//!
//! At the start the supervisor moves itself into a leaf of its own group, since a group with processes cannot hand
//! controllers down, and enables `memory` for its siblings.
//!
//! Always holds: without a delegated group, or without its memory controller, nothing of this is done and the
//! worker's own look and the supervisor's SIGKILL stand in; a group is removed when its worker is gone and the last
//! of its children too: where these still die, it is tried again when the next worker ends.

use crate::fleet::WorkerId;
use hostler_worker::control::HEIR_NAME;
use std::{
    cell::RefCell,
    fs, io,
    path::{Path, PathBuf},
    process,
};

/// The leaf that the supervisor lives in.
const LEAF: &str = "hostler-supervisor";
/// The group of all heirs: they must outlive what is killed with a worker.
const HEIRS: &str = "hostler-heirs";
/// Bytes that all heirs may have, which have next to nothing: what calls itself one gains no memory by that.
const HEIRS_MAX: u64 = 128 << 20;

/// The group that was delegated.
#[derive(Debug)]
pub(crate) struct Groups {
    base: PathBuf,
    /// Groups of dead workers in which something still dies.
    left: RefCell<Vec<PathBuf>>,
}

/// A worker's group.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

impl Groups {
    /// Finds the own group and makes it ready, where it can be.
    pub(crate) fn find() -> Option<Groups> {
        let mount = mount_point(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = mount.join(own_group(&groups)?.trim_start_matches('/'));
        // After a re-exec we are in the leaf already.
        let base = if own.ends_with(LEAF) { own.parent()?.to_owned() } else { own };
        match Groups::prepare(&base) {
            Ok(()) => {
                tracing::info!("hard memory limits are the kernel's: {}", base.display());
                let groups = Groups { base, left: RefCell::default() };
                groups.sweep();
                Some(groups)
            }
            Err(e) => {
                tracing::debug!("no cgroup of our own at {}: {e}", base.display());
                None
            }
        }
    }

    fn prepare(base: &Path) -> io::Result<()> {
        if Path::new("/run/systemd/system").exists() && !is_delegated(base) {
            return Err(io::Error::other("systemd has not delegated it (Delegate=memory)"));
        }
        let controllers = fs::read_to_string(base.join("cgroup.controllers"))?;
        if !controllers.split_whitespace().any(|name| name == "memory") {
            return Err(io::Error::other("it has no memory controller"));
        }
        let leaf = base.join(LEAF);
        match fs::create_dir(&leaf) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        fs::write(leaf.join("cgroup.procs"), process::id().to_string())?;
        fs::write(base.join("cgroup.subtree_control"), "+memory").inspect_err(|_| {
            // Others live in the group: it is not ours alone. Back to where we were.
            let _ = fs::write(base.join("cgroup.procs"), process::id().to_string());
            let _ = fs::remove_dir(&leaf);
        })?;
        let heirs = base.join(HEIRS);
        match fs::create_dir(&heirs) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => fs::write(heirs.join("memory.max"), HEIRS_MAX.to_string()),
        }
    }

    /// Moves a worker's heir out of the worker's group, which the kernel kills as a whole.
    pub(crate) fn part_from_heir(&self, worker: WorkerId, pid: i32) {
        let list = fs::read_to_string(self.of(worker).path.join("cgroup.procs")).unwrap_or_default();
        let all = list.lines().filter_map(|line| line.parse::<i32>().ok());
        let heir = all.into_iter().find(|other| {
            fs::read_to_string(format!("/proc/{other}/stat")).is_ok_and(|stat| is_heir(&stat, pid))
        });
        if let Some(heir) = heir
            && let Err(e) = fs::write(self.base.join(HEIRS).join("cgroup.procs"), heir.to_string())
        {
            tracing::warn!(worker = pid, "its heir stays in its cgroup: {e}");
        }
    }

    /// Makes the group of a worker.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn make(&self, worker: WorkerId, limit: u64) -> io::Result<Group> {
        let group = self.of(worker);
        fs::create_dir(&group.path)?;
        fs::write(group.path.join("memory.max"), limit.to_string())?;
        // What the kernel cannot hold in memory must not go on in swap; without swap there is no such file.
        let _ = fs::write(group.path.join("memory.swap.max"), "0");
        fs::write(group.path.join("memory.oom.group"), "1")?;
        Ok(group)
    }

    /// Removes a worker's group; what is left in it is killed first.
    pub(crate) fn remove(&self, worker: WorkerId) {
        let group = self.of(worker);
        let mut left = self.left.borrow_mut();
        left.retain(|path| !is_removed(path));
        if !is_removed(&group.path) {
            group.kill();
            left.push(group.path);
        }
    }

    /// Removes groups of workers in which nothing lives: a former program may have left some.
    fn sweep(&self) {
        let entries = fs::read_dir(&self.base).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_string_lossy().starts_with("worker-") {
                is_removed(&entry.path());
            }
        }
    }

    /// The group of a worker, there or not.
    pub(crate) fn of(&self, worker: WorkerId) -> Group {
        Group { path: self.base.join(format!("worker-{}-{}", process::id(), worker.0)) }
    }
}

impl Group {
    /// Moves a process into it.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn take(&self, pid: i32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// Whether the kernel killed in it for its memory.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        oom_kills(&events) > 0
    }

    /// Kills all that is in it.
    pub(crate) fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

/// Removes a group, where nothing lives in it; whether it is gone.
fn is_removed(group: &Path) -> bool {
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// The mark that systemd leaves on a group that is not its own business any more.
fn is_delegated(group: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].into_iter().any(|name| {
        let mut value = [0; 8];
        rustix::fs::getxattr(group, name, &mut value).is_ok_and(|n| value.get(..n) == Some(b"1"))
    })
}

/// Whether `/proc/PID/stat` is that of the heir of this worker: `PID (NAME) STATE PPID …`.
fn is_heir(stat: &str, worker: i32) -> bool {
    let Some((before, after)) = stat.rsplit_once(") ") else { return false };
    let name = before.rsplit_once('(').map_or(before, |(_, name)| name);
    name.as_bytes() == HEIR_NAME.to_bytes() && after.split(' ').nth(1) == Some(worker.to_string().as_str())
}

/// `oom_kill N` of memory.events.
fn oom_kills(events: &str) -> u64 {
    let line = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Where the version 2 tree is mounted: the fifth field of the line whose type is cgroup2.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The own group in the version 2 tree: `0::/system.slice/hostler.service`.
fn own_group(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_and_the_own_group_are_found() {
        let mountinfo = "24 1 0:22 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mountinfo).unwrap(), Path::new("/sys/fs/cgroup"));
        assert_eq!(mount_point("24 1 0:22 / /proc rw - proc proc rw\n"), None);
        assert_eq!(own_group("1:name=x:/\n0::/system.slice/h.service\n"), Some("/system.slice/h.service"));
    }

    #[test]
    fn an_heir_is_known_by_its_name_and_its_worker() {
        assert!(is_heir("12 (hostler-heir) S 7 12 12 0 -1", 7));
        assert!(!is_heir("12 (hostler-heir) S 8 12 12 0 -1", 7));
        assert!(!is_heir("12 (sh) S 7 12 12 0 -1", 7) && !is_heir("", 7));
    }

    #[test]
    fn only_kills_count_as_out_of_memory() {
        assert_eq!(oom_kills("low 0\nhigh 0\nmax 17\noom 1\noom_kill 0\noom_group_kill 0\n"), 0);
        assert_eq!(oom_kills("oom 1\noom_kill 2\n"), 2);
        assert_eq!(oom_kills(""), 0);
    }

    #[test]
    fn a_group_in_which_something_still_dies_is_removed_when_the_next_worker_ends() {
        let place = tempfile::tempdir().unwrap();
        let groups = Groups { base: place.path().to_owned(), left: RefCell::default() };
        // A directory that is not empty cannot be removed, like a group with a process.
        let [first, second] = [groups.of(WorkerId(1)).path, groups.of(WorkerId(2)).path];
        fs::create_dir_all(first.join("alive")).unwrap();
        fs::create_dir(&second).unwrap();
        groups.remove(WorkerId(1));
        assert!(first.exists());
        fs::remove_dir(first.join("alive")).unwrap();
        let _ = fs::remove_file(first.join("cgroup.kill"));
        groups.remove(WorkerId(2));
        assert!(!first.exists() && !second.exists());
    }
}
