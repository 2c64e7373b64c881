//! All of this crate's unsafe code: descriptors that arrive as numbers, shared memory, the crash handler, the heir's
//! fork.
//!
//! Always holds: each block states why it is needed (JUSTIFICATION) and why it is sound (SAFETY); nothing here
//! knows a protocol or decides anything.

use crate::page::LEN;
use memmap2::{MmapOptions, MmapRaw};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use std::{
    io,
    os::fd::{AsFd, FromRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicI32, AtomicU8, AtomicU64},
};

/// Takes ownership of a descriptor that the kernel has just made for this process (accept, SCM_RIGHTS).
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // JUSTIFICATION: `accept4` and `recvmsg` give bare numbers.
    // SAFETY: callers pass a number that a system call has just returned to them alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Takes descriptor 0 out of the process: what a process manager hands to a FastCGI program (FastCGI 2.2).
///
/// It moves to another number and 0 becomes /dev/null, so that nothing reads requests as standard input.
pub(crate) fn take_descriptor_0() -> io::Result<OwnedFd> {
    let fd = nix::fcntl::fcntl(io::stdin().as_fd(), nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(3))?;
    let null = std::fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    Ok(own(fd))
}

/// A page of counters, mapped; see [`crate::page`].
pub(crate) struct Page {
    map: MmapRaw,
}

impl Page {
    /// Maps the page behind `fd`, or a private one.
    pub(crate) fn map(fd: Option<&OwnedFd>) -> io::Result<Page> {
        let map = match fd {
            Some(fd) => MmapOptions::new().len(LEN).map_raw(fd)?,
            None => MmapOptions::new().len(LEN).map_anon()?.into(),
        };
        Ok(Page { map })
    }

    /// A word of the page; the last one for a number past it.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> &AtomicU64 {
        let word = word.min(LEN / 8 - 1);
        // JUSTIFICATION: shared memory is reached by address.
        // SAFETY: the map is of LEN bytes, page-aligned, and lives as long as `self`; `word` is within it; all
        // access in this process is by atomics; the kernel sealed the memfd against shrinking.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(word)) }
    }
}

/// Bytes in memory that this process shares with those that it forks, all 0 at first.
pub(crate) struct SharedBytes {
    map: MmapRaw,
}

impl SharedBytes {
    /// Maps `len` bytes. A page of them takes memory when it is first written.
    pub(crate) fn map(len: usize) -> io::Result<SharedBytes> {
        let memory =
            nix::sys::memfd::memfd_create(c"hostler-ledger", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&memory, i64::try_from(len).map_err(io::Error::other)?)?;
        Ok(SharedBytes { map: MmapOptions::new().len(len).map_raw(&memory)? })
    }

    /// The first four of them as one number.
    pub(crate) fn number(&self) -> Option<&AtomicI32> {
        // JUSTIFICATION: shared memory is reached by address.
        // SAFETY: as `byte`; the map begins at a page, so the number is aligned; who asks for it asks for no bytes.
        (self.map.len() >= 4).then(|| unsafe { AtomicI32::from_ptr(self.map.as_mut_ptr().cast()) })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// One of them.
    #[inline]
    pub(crate) fn byte(&self, at: usize) -> Option<&AtomicU8> {
        // JUSTIFICATION: shared memory is reached by address.
        // SAFETY: `at` is within the map, which lives as long as `self`; all access, here and in the forked process,
        // is by atomics; the memfd is known to nobody who could shrink it.
        (at < self.map.len()).then(|| unsafe { AtomicU8::from_ptr(self.map.as_mut_ptr().add(at)) })
    }
}

/// Forks a process that shares this one's table of descriptors: a descriptor that either opens or closes is the
/// other's, too. `None` in the new process.
///
/// The new process has one thread, and memory as it was: another thread's lock would be held for ever. So until
/// [`exit_at_once`] it may do nothing but system calls and atomics, and must not return to its caller's caller. Its
/// end is no SIGCHLD for the app, and `wait` does not find it.
pub(crate) fn fork_sharing_descriptors() -> io::Result<Option<nix::unistd::Pid>> {
    // JUSTIFICATION: neither std nor nix has a fork with CLONE_FILES.
    // SAFETY: without CLONE_VM the child has a copy of the memory, the stack included, and goes on from here by
    // itself; the one caller keeps to what is said above.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_FILES, 0, 0, 0, 0) };
    let pid = nix::errno::Errno::result(pid)?;
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    Ok((pid != 0).then(|| nix::unistd::Pid::from_raw(pid)))
}

/// Ends this process, and runs nothing before.
pub(crate) fn exit_at_once() -> ! {
    // JUSTIFICATION: `std::process::exit` runs what libraries have registered, which is another process's.
    // SAFETY: it touches no memory and does not return.
    unsafe { libc::_exit(0) }
}

/// Sends `parts` as one packet with the descriptor `fd` beside it; does not wait, allocates nothing. Whether it went.
pub(crate) fn send_with_descriptor(socket: &OwnedFd, parts: &[io::IoSlice<'_>], fd: RawFd) -> bool {
    use std::os::fd::AsRawFd;
    /// Of a descriptor's number.
    const LEN: libc::c_uint = 4;
    // Of `u64`s, since a header of control data must be aligned as one.
    let mut control = [0u64; 4];
    // JUSTIFICATION: nix's `sendmsg` allocates, and the caller may be a process that must not.
    // SAFETY: zeros are a valid `msghdr`; `IoSlice` is laid out as `iovec`, is only read, and outlives the call;
    // `control` has room for CMSG_SPACE(LEN), 24 bytes, so CMSG_FIRSTHDR and CMSG_DATA point into it.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len();
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(LEN) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(LEN) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) >= 0
    }
}

/// The signals that end a process by its own fault.
const FATAL: [Signal; 5] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGFPE, Signal::SIGABRT];

/// Lets `last_words` run once when the process is about to die of a fault, then lets it die of that fault.
///
/// `last_words` must restrict itself to atomics and `write`, `shutdown`: it runs in a signal handler.
pub(crate) fn on_crash(last_words: fn()) -> io::Result<()> {
    static LAST_WORDS: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();
    extern "C" fn crashed(signal: libc::c_int) {
        if let Some(last_words) = LAST_WORDS.get() {
            last_words();
        }
        if let Ok(signal) = Signal::try_from(signal) {
            // SA_RESETHAND has restored the default action: this ends the process as the fault would have.
            let _ = raise(signal);
        }
    }
    LAST_WORDS.get_or_init(|| last_words);
    let flags = SaFlags::SA_RESETHAND | SaFlags::SA_NODEFER | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::Handler(crashed), flags, SigSet::empty());
    for signal in FATAL {
        // JUSTIFICATION: signal-hook refuses these signals, and the answer has to be written by the process itself.
        // SAFETY: `crashed` uses an initialised OnceLock (an atomic load), `last_words` as documented, and `raise`;
        // all of them are async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// A descriptor that turns readable when the process `pid` ends (Linux 5.3).
pub(crate) fn pidfd_open(pid: nix::unistd::Pid) -> io::Result<OwnedFd> {
    // JUSTIFICATION: neither std nor nix has this call.
    // SAFETY: it takes two numbers and touches no memory; what it returns, where it is no error, is a new
    // descriptor (with close-on-exec set) that nobody else knows.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    nix::errno::Errno::result(fd)?;
    RawFd::try_from(fd).map(own).map_err(io::Error::other)
}

/// Lets no descriptor but 0, 1 and 2 through to a program that this process starts, whoever opened it and however
/// (Linux 5.11).
pub(crate) fn close_on_exec_from_3() -> io::Result<()> {
    let flags = libc::c_int::try_from(libc::CLOSE_RANGE_CLOEXEC).map_err(io::Error::other)?;
    // JUSTIFICATION: neither std nor nix has this call.
    // SAFETY: it takes three numbers, touches no memory, and closes nothing here: it only sets a flag.
    nix::errno::Errno::result(unsafe { libc::close_range(3, libc::c_uint::MAX, flags) })?;
    Ok(())
}

/// Bytes that were sent on a stream socket and not read by its peer yet.
pub(crate) fn unread(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    let mut bytes: libc::c_int = 0;
    // JUSTIFICATION: neither std nor nix has this call as a safe one.
    // SAFETY: TIOCOUTQ writes one int to the address that it is given, which is that of `bytes`; the descriptor is
    // borrowed for the time of the call.
    nix::errno::Errno::result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    usize::try_from(bytes).map_err(io::Error::other)
}
