//! Waiting for one descriptor with a deadline.

use crate::{Error, counters::now};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{os::fd::BorrowedFd, time::Duration};

/// Waits until `fd` can be read or is at its end; `false` after `timeout`.
pub(crate) fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> Result<bool, Error> {
    until(fd, PollFlags::POLLIN, timeout)
}

/// Waits until `fd` takes more; `false` after `timeout`.
pub(crate) fn writable(fd: BorrowedFd<'_>, timeout: Duration) -> Result<bool, Error> {
    until(fd, PollFlags::POLLOUT, timeout)
}

fn until(fd: BorrowedFd<'_>, flags: PollFlags, timeout: Duration) -> Result<bool, Error> {
    let end = now().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    loop {
        let left = Duration::from_nanos(end.saturating_sub(now()));
        // A millisecond more than what is left, rounded down: never early.
        let ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1;
        let mut fds = [PollFd::new(fd, flags)];
        match poll(&mut fds, PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)) {
            Ok(0) if now() >= end => return Ok(false),
            Ok(0) | Err(nix::Error::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}
