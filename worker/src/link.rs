//! The worker's end of the control socket: orders in, reports out; see [`crate::control`].

use crate::{
    control::{MESSAGE_LIMIT, Order, Report, from_bytes, to_bytes},
    sys,
};
use nix::{
    cmsg_space,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send},
};
use std::{
    io::IoSliceMut,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Descriptors that one message may bring.
const FDS_MAX: usize = 64;

/// The supervisor was told that this worker should be replaced.
static WORN: AtomicBool = AtomicBool::new(false);

/// Whether this worker has asked to be replaced.
pub(crate) fn is_worn() -> bool {
    WORN.load(Relaxed)
}

/// See the module.
pub(crate) struct Link {
    fd: OwnedFd,
}

/// What came over the link.
pub(crate) enum Received {
    /// An order with its descriptors.
    Order(Order, Vec<OwnedFd>),
    /// Nothing is there now.
    Nothing,
    /// The supervisor is gone.
    Gone,
}

impl Link {
    /// The link on this descriptor.
    pub(crate) fn new(fd: OwnedFd) -> Link {
        Link { fd }
    }

    /// The next order; waits for it where `wait`.
    ///
    /// # Errors
    /// A phrase for the log: a message that is no order.
    pub(crate) fn receive(&self, wait: bool) -> Result<Received, String> {
        let mut bytes = vec![0; MESSAGE_LIMIT];
        let (n, fds) = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let mut rights = cmsg_space!([RawFd; FDS_MAX]);
            let flags =
                MsgFlags::MSG_CMSG_CLOEXEC | if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
            match recvmsg::<()>(self.fd.as_raw_fd(), &mut parts, Some(&mut rights), flags) {
                Ok(message) => {
                    let mut fds = Vec::new();
                    for control in message.cmsgs().map_err(|e| format!("descriptors beside an order: {e}"))? {
                        if let ControlMessageOwned::ScmRights(some) = control {
                            fds.extend(some.into_iter().map(sys::own));
                        }
                    }
                    break (message.bytes, fds);
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return Ok(Received::Nothing),
                Err(_) => return Ok(Received::Gone),
            }
        };
        if n == 0 {
            return Ok(Received::Gone);
        }
        Ok(Received::Order(from_bytes(bytes.get(..n).unwrap_or_default())?, fds))
    }

    /// Sends a report. One that cannot be sent is dropped: the supervisor is gone, or so far behind that it
    /// knows; it never waits.
    pub(crate) fn report(&self, report: &Report) {
        if matches!(report, Report::Worn { .. }) {
            WORN.store(true, Relaxed);
        }
        if let Ok(bytes) = to_bytes(report) {
            let _ = send(self.fd.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
