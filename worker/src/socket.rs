//! The two system calls on a connection that each request costs.
//!
//! Always holds: neither waits, since connections are non-blocking, and a peer that is gone is no signal.
//!
//! `recv` and `send`, not `read` and `write`: those go through what the kernel does for any file before they come to the
//! socket. By rustix, which calls the kernel itself: the C library's are points at which a thread may be cancelled, and
//! in a process of two threads it prepares for that at each call. Both can be felt in a small answer.

use nix::sys::socket::{MsgFlags, sendmsg};
use rustix::net::{RecvFlags, SendFlags};
use std::{
    io::IoSlice,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Reads what is there; 0 at the end of the connection.
pub(crate) fn read(fd: BorrowedFd<'_>, space: &mut [u8]) -> nix::Result<usize> {
    rustix::net::recv(fd, space, RecvFlags::empty()).map(|(read, _)| read).map_err(known)
}

/// Writes what the peer takes now.
pub(crate) fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> nix::Result<usize> {
    match slices {
        [one] => rustix::net::send(fd, one, SendFlags::NOSIGNAL).map_err(known),
        several => sendmsg::<()>(fd.as_raw_fd(), several, &[], MsgFlags::MSG_NOSIGNAL, None),
    }
}

fn known(error: rustix::io::Errno) -> nix::Error {
    nix::Error::from_raw(error.raw_os_error())
}
