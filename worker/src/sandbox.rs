//! The sandbox of a pool: files by Landlock, the network by seccomp.
//!
//! Entered once, by a process that has no_new_privs, before anything of the app is loaded or executed; holds for all
//! that the process ever starts. Needs no privilege.
//!
//! Always holds: what was asked for in the config is in force, or the worker does not start and says why. The
//! sandbox that a pool of `files` has by default is in force as far as the kernel can.
//!
//! Not stopped by it: what is open already (listeners, logs), connections to Unix sockets, signals to processes of the
//! same user, and changes of modes, owners, times and attributes, within what the user may.

use crate::control::Sandbox;
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus,
};
use nix::sys::prctl;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The newest rights that this knows; an older kernel enforces those that it has.
const RIGHTS: ABI = ABI::V5;
/// What any program needs to start: itself, libraries, zone and names, its own process.
const PROGRAMS: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc", "/sys/devices/system/cpu", "/opt"];
/// Devices that hold nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Puts this process and all that it starts into the sandbox.
///
/// # Errors
/// What is to be allowed is not there, or the kernel lacks what is needed; names the key or the path.
pub(crate) fn enter(sandbox: &Sandbox) -> Result<(), String> {
    // What the worker starts must not take descriptors or memory from it, also where nobody changed users.
    prctl::set_dumpable(false).map_err(|e| format!("sandbox: {e}"))?;
    let files = files(sandbox).map_err(|e| format!("sandbox: Landlock: {e}"));
    let enforced = match files {
        Ok(enforced) => enforced?,
        Err(_) if !sandbox.asked_for => false,
        Err(why) => return Err(why),
    };
    if sandbox.asked_for && !enforced {
        return Err("sandbox: this kernel enforces no Landlock (Linux 5.13 or newer, with \"landlock\" in \
                    /sys/kernel/security/lsm): leave [pool.NAME.sandbox] out, or use another kernel"
            .into());
    }
    if sandbox.network {
        return Ok(());
    }
    match no_network() {
        Err(e) if sandbox.asked_for => Err(format!("sandbox: network = false: seccomp: {e}")),
        _ => Ok(()),
    }
}

/// Whether the kernel enforces it; the inner error names a path of the config.
fn files(sandbox: &Sandbox) -> Result<Result<bool, String>, landlock::RulesetError> {
    let all = AccessFs::from_all(RIGHTS);
    let read = AccessFs::from_read(RIGHTS);
    let mut ruleset = Ruleset::default().handle_access(all)?.create()?;
    if sandbox.asked_for {
        let own = std::env::current_exe().ok();
        for path in PROGRAMS.iter().map(Path::new).chain(own.as_deref()) {
            ruleset = allow(ruleset, path, read)?.0;
        }
        ruleset = allow(ruleset, &std::env::temp_dir(), all)?.0;
    } else {
        // Its own account of its memory.
        ruleset = allow(ruleset, Path::new("/proc"), read)?.0;
    }
    for path in DEVICES {
        ruleset = allow(ruleset, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?.0;
    }
    for place in sandbox.roots.iter().flat_map(|root| places(Path::new(root))) {
        ruleset = allow(ruleset, &place, read)?.0;
    }
    for (key, paths, rights) in [("read", &sandbox.read, read), ("write", &sandbox.write, all)] {
        for path in paths {
            let (with, missing) = allow(ruleset, Path::new(path), rights)?;
            ruleset = with;
            if let Some(why) = missing {
                return Ok(Err(format!("sandbox.{key}: {path}: {why}")));
            }
        }
    }
    Ok(Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced))
}

/// Allows what is beneath `path`; where it cannot be opened, says why.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<(RulesetCreated, Option<String>), landlock::RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => Ok((ruleset.add_rule(PathBeneath::new(opened, rights))?, None)),
        Err(why) => Ok((ruleset, Some(why.to_string()))),
    }
}

/// Where a root lies, by its name and by what its links lead to: a rule holds for what was opened, and a deploy puts
/// another root in the same place. A root in / is meant itself.
fn places(root: &Path) -> [PathBuf; 2] {
    let real = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    [root, &real].map(|root| match root.parent() {
        Some(parent) if parent.parent().is_some() => parent.to_owned(),
        _ => root.to_owned(),
    })
}

/// Sockets of no family but Unix; and no io_uring, which could make others past this.
fn no_network() -> Result<(), Box<dyn std::error::Error>> {
    let unix = u64::try_from(libc::AF_UNIX)?;
    let other_family = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?;
    let rules = BTreeMap::from([
        (libc::SYS_socket, vec![SeccompRule::new(vec![other_family])?]),
        (libc::SYS_io_uring_setup, Vec::new()),
    ]);
    let refused = SeccompAction::Errno(u32::try_from(libc::EACCES)?);
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok(())
}
