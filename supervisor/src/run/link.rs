//! The socket pair between supervisor and worker, the hand-over queue of a pool, and the page of a worker.
//!
//! Always holds: every descriptor closes on exec; nothing here waits; a page is read with `pread` alone, so that
//! no worker can make the supervisor fault.

use hostler_worker::{
    control::{self, Order, Report},
    page::{self, Snapshot},
};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{
            AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, setsockopt,
            socketpair, sockopt,
        },
    },
    unistd::ftruncate,
};
use std::{
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
};

/// Bytes of send buffer to ask for on the hand-over queue: each connection in flight takes some 700 of them.
const QUEUE_BUFFER: usize = 16 << 20;

/// The supervisor's end of a worker's control socket.
#[derive(Debug)]
pub(crate) struct Link(pub(crate) OwnedFd);

/// What came over a link.
#[derive(Debug)]
pub(crate) enum Received {
    Report(Report),
    /// No more for now.
    Nothing,
    /// The worker closed its end, or sent nonsense.
    Over(String),
}

impl Link {
    /// Both ends; the other one is the worker's descriptor 0.
    pub(crate) fn pair() -> nix::Result<(Link, OwnedFd)> {
        // Not non-blocking: the flag is the worker's business on its end, and ours is said with each call.
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let _ = setsockopt(&ours, sockopt::SndBuf, &(2 * control::MESSAGE_LIMIT));
        Ok((Link(ours), theirs))
    }

    /// Sends an order, with descriptors beside it.
    ///
    /// # Errors
    /// Where it is too long, or the worker is gone or does not read.
    pub(crate) fn send(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = control::to_bytes(order).map_err(io::Error::other)?;
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let beside = if raw.is_empty() { &[][..] } else { &rights[..] };
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], beside, flags, None)?;
        Ok(())
    }

    /// The next report. Descriptors that a worker sends are dropped by the kernel.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        let mut take = || recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT);
        // A worker that ended with an order unread: the kernel says so first, and then gives its last reports.
        let taken = match take() {
            Err(Errno::ECONNRESET) => take(),
            taken => taken,
        };
        match taken {
            Ok(0) => Received::Over("it closed its control socket".to_owned()),
            Ok(n) => match control::from_bytes(buffer.get(..n).unwrap_or_default()) {
                Ok(report) => Received::Report(report),
                Err(e) => Received::Over(e),
            },
            Err(Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
            Err(e) => Received::Over(format!("read its control socket: {e}")),
        }
    }
}

/// The hand-over queue of a pool: made once, it outlives generations and workers.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) receiving: OwnedFd,
    pub(crate) sending: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> nix::Result<Queue> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (receiving, sending) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        // Root may pass net.core.wmem_max; others get as much as it allows.
        if setsockopt(&sending, sockopt::SndBufForce, &QUEUE_BUFFER).is_err() {
            let _ = setsockopt(&sending, sockopt::SndBuf, &QUEUE_BUFFER);
        }
        Ok(Queue { receiving, sending })
    }
}

/// A worker's page of counters.
#[derive(Debug)]
pub(crate) struct Page(pub(crate) std::fs::File);

impl Page {
    pub(crate) fn new() -> nix::Result<Page> {
        let fd = memfd_create("hostler-page", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&fd, i64::try_from(page::LEN).unwrap_or(0))?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(Page(fd.into()))
    }

    /// A copy as it is now; `None` before the worker has set it up.
    pub(crate) fn read(&self) -> Option<Snapshot> {
        let mut bytes = [0; page::LEN];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Snapshot::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_last_report_of_a_worker_that_left_an_order_unread_is_heard() {
        let (link, theirs) = Link::pair().unwrap();
        link.send(&Order::Retire, &[]).unwrap();
        let report = Report::BootFailed { message: "no".to_owned() };
        nix::sys::socket::send(theirs.as_raw_fd(), &control::to_bytes(&report).unwrap(), MsgFlags::empty())
            .unwrap();
        drop(theirs);
        let mut buffer = [0; 256];
        let heard = link.receive(&mut buffer);
        assert!(matches!(&heard, Received::Report(said) if *said == report), "{heard:?}");
        assert!(matches!(link.receive(&mut buffer), Received::Over(_)));
    }

    #[test]
    fn a_page_cannot_be_shrunk_or_grown_by_who_holds_it() {
        let page = Page::new().unwrap();
        assert!(page.read().is_none());
        assert!(page.0.set_len(0).is_err());
        assert!(page.0.set_len(1 << 20).is_err());
        page.0.write_all_at(&page::VERSION.to_le_bytes(), 0).unwrap();
        page.0.write_all_at(&7u64.to_le_bytes(), 8 * page::WORD_REQUESTS as u64).unwrap();
        assert_eq!(page.read().unwrap().word(page::WORD_REQUESTS), 7);
    }

    #[test]
    fn reports_arrive_one_by_one_and_the_end_is_told() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link(theirs);
        let mut buffer = [0; 4096];
        assert!(matches!(ours.receive(&mut buffer), Received::Nothing));
        ours.send(&Order::Retire, &[std::io::stdin().as_fd()]).unwrap();
        let bytes = control::to_bytes(&Report::Ready).unwrap();
        for _ in 0..2 {
            nix::sys::socket::send(theirs.0.as_raw_fd(), &bytes, MsgFlags::empty()).unwrap();
        }
        nix::sys::socket::send(theirs.0.as_raw_fd(), b"nonsense", MsgFlags::empty()).unwrap();
        assert!(matches!(ours.receive(&mut buffer), Received::Report(Report::Ready)));
        assert!(matches!(ours.receive(&mut buffer), Received::Report(Report::Ready)));
        assert!(matches!(ours.receive(&mut buffer), Received::Over(_)));
        drop(theirs);
        assert!(matches!(ours.receive(&mut buffer), Received::Over(_)));
    }

    #[test]
    fn the_hand_over_queue_holds_more_than_the_default_buffer_would() {
        let queue = Queue::new().unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let raw = [one.as_raw_fd()];
        let mut held = 0;
        while held < 1000 {
            let rights = [ControlMessage::ScmRights(&raw)];
            let sent = sendmsg::<()>(
                queue.sending.as_raw_fd(),
                &[IoSlice::new(b"x")],
                &rights,
                MsgFlags::MSG_DONTWAIT,
                None,
            );
            if sent.is_err() {
                break;
            }
            held += 1;
        }
        assert!(held >= 200, "{held}");
    }
}
