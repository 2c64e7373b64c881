//! The heir: a process beside a worker that holds the same descriptors, and acts when the worker is no more.
//!
//! A kill that nobody can catch (SIGKILL, the kernel out of memory, a fault) ends a worker, but not its connections:
//! the heir shares the worker's table of descriptors, which lives until both are gone. It gives the connections
//! that were at rest, requests that nobody has read yet included, to the pool's queue, and ends. What was lost is
//! the request in hand, and with it goes the group of the script that answered it. The worker says which connections
//! are at rest in the [`Ledger`], a byte a descriptor in shared memory, written without a system call.
//!
//! Limitation: a worker that is killed in the very moment in which it starts a script does not know its number yet, and
//! the script lives on.
//!
//! Always holds: while the worker lives the heir sleeps, answers to no signal but SIGKILL, and opens and closes
//! nothing (a close would be the worker's, too). It allocates nothing: it is a copy of a process that may have had
//! other threads, whose locks nobody would free. It never waits: a connection that the queue has no room for is
//! closed.

use crate::{
    control::{HEIR_NAME, Protocol},
    counters::now,
    queue::{FRESH, Queue},
    sys::{self, SharedBytes},
};
use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal, killpg},
    },
    unistd::{Pid, getppid, setpgid},
};
use std::{
    io,
    os::fd::RawFd,
    sync::{
        OnceLock,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Nothing to inherit: closed, in hand, or with bytes that are in the worker's memory.
const NOTHING: u8 = 0;
/// At rest: all that was read is answered.
const AT_REST: u8 = 1;
/// With [`AT_REST`]: HTTP is spoken.
const HTTP: u8 = 2;
/// With [`AT_REST`]: no request has been served.
const UNUSED: u8 = 4;
/// Descriptors that a ledger has room for.
const ROOM: usize = 1 << 20;

/// What the heir says once at the place of descriptor 0, which is no connection.
const SETTLED: u8 = 8;
const SETTLED_AT: usize = 0;
/// Looks for it, of 20 µs: after that something has killed the heir, and the worker serves without.
const SETTLE_LOOKS: u32 = 5000;

/// The heir of this process; 0: none.
static HEIR: AtomicI32 = AtomicI32::new(0);

/// The process group that goes with this process; 0: none.
static GROUP: OnceLock<SharedBytes> = OnceLock::new();

/// From now on this process group ends when this process does, if there is an heir; `None`: no group any more.
pub(crate) fn takes_along(group: Option<Pid>) {
    if let Some(number) = GROUP.get().and_then(SharedBytes::number) {
        number.store(group.map_or(0, Pid::as_raw), Relaxed);
    }
}

/// The heir of this process, for those who count its children.
pub(crate) fn pid() -> Option<i32> {
    Some(HEIR.load(Relaxed)).filter(|pid| *pid != 0)
}

/// Which connections are at rest; see the module. The default has no heir, and notes nothing.
#[derive(Default)]
pub(crate) struct Ledger {
    bytes: Option<SharedBytes>,
}

impl Ledger {
    /// The connection of this descriptor is at rest.
    #[inline]
    pub(crate) fn rests(&self, fd: RawFd, protocol: Protocol, fresh: bool) {
        let http = if protocol == Protocol::Http { HTTP } else { 0 };
        self.note(fd, AT_REST | http | if fresh { UNUSED } else { 0 });
    }

    /// It is in hand, or gone.
    #[inline]
    pub(crate) fn is_taken(&self, fd: RawFd) {
        self.note(fd, NOTHING);
    }

    #[inline]
    fn note(&self, fd: RawFd, what: u8) {
        let byte = self.bytes.as_ref().and_then(|bytes| bytes.byte(usize::try_from(fd).ok()?));
        if let Some(byte) = byte {
            byte.store(what, Relaxed);
        }
    }
}

/// Starts the heir of this process, which gives to `queue`. To be done before the app is loaded: the heir keeps the
/// memory of this moment.
///
/// # Errors
/// The system gives no memory or process.
pub(crate) fn start(queue: &Queue, descriptors: usize) -> io::Result<Ledger> {
    let bytes = SharedBytes::map(descriptors.min(ROOM))?;
    let _ = GROUP.set(SharedBytes::map(4)?);
    let parent = Pid::this();
    let Some(heir) = sys::fork_sharing_descriptors()? else {
        outlive(parent, &bytes);
        inherit(&bytes, queue);
        sys::exit_at_once()
    };
    HEIR.store(heir.as_raw(), Relaxed);
    // Ready is told when the heir has its name, by which the supervisor knows it, and its group.
    let settled = || bytes.byte(SETTLED_AT).is_some_and(|byte| byte.load(Relaxed) == SETTLED);
    for _ in 0..SETTLE_LOOKS {
        if settled() {
            break;
        }
        thread::sleep(Duration::from_micros(20));
    }
    Ok(Ledger { bytes: Some(bytes) })
}

/// Returns when the worker is no more.
fn outlive(worker: Pid, bytes: &SharedBytes) {
    let _ = SigSet::all().thread_block();
    // Not with what the supervisor kills of a worker that was over its limit.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let _ = prctl::set_name(HEIR_NAME);
    if let Some(byte) = bytes.byte(SETTLED_AT) {
        byte.store(SETTLED, Relaxed);
    }
    let mut told = SigSet::empty();
    told.add(Signal::SIGTERM);
    if prctl::set_pdeathsig(Signal::SIGTERM).is_err() {
        return;
    }
    while getppid() == worker {
        let _ = told.wait();
    }
}

/// Ends the script that was at work, and gives to the queue what was at rest.
fn inherit(bytes: &SharedBytes, queue: &Queue) {
    let group = GROUP.get().and_then(SharedBytes::number).map_or(0, |number| number.load(Relaxed));
    if group > 1 {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let now = now();
    for fd in 0..bytes.len() {
        let what = bytes.byte(fd).map_or(NOTHING, |byte| byte.load(Relaxed));
        let (true, Ok(fd)) = (what & AT_REST != 0, RawFd::try_from(fd)) else { continue };
        let protocol = if what & HTTP != 0 { Protocol::Http } else { Protocol::Fastcgi };
        queue.give_bare(fd, protocol, if what & UNUSED != 0 { FRESH } else { 0 }, now);
    }
    // A wake-up for a listener may have died with the worker.
    queue.ring();
}
