//! The hand-over queue of a pool: connections that a busy or retiring worker gives to whichever worker is idle next.
//!
//! A `SOCK_SEQPACKET` pair that the supervisor made and keeps open: a connection in it belongs to no process, so no
//! death loses it. One packet is one connection: its descriptor, when its wait began, and the bytes of its request
//! that were read already. Sending and receiving never wait; the kernel is the only lock.
//!
//! The pair's other direction is a bell. A wake-up for the queue or a listener goes to one worker; where that worker
//! finds a long request of its own beside it, nobody else knows that somebody waits. Its keeper rings, and an idle
//! worker comes and looks.
//!
//! Always holds: a connection is in one place: a failed send leaves it with the sender.

use crate::{
    control::Protocol,
    sys,
    table::{Conn, Partial},
};
use nix::{
    cmsg_space,
    sys::socket::{ControlMessageOwned, MsgFlags, recv, recvmsg, send},
};
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// Version, protocol, flags, nothing, then the beginning of the wait as 8 bytes.
const HEADER: usize = 12;
const VERSION: u8 = 1;
/// `100 Continue` has been sent.
const CONTINUED: u8 = 1;
/// No request has been served on it: it may not rest for ever.
pub(crate) const FRESH: u8 = 2;
/// A connection with more bytes than this stays where it is.
const HELD_MAX: usize = 96 * 1024;

/// Both ends of a pool's queue.
pub(crate) struct Queue {
    /// Read by workers that are idle.
    pub(crate) receive: OwnedFd,
    /// Written by workers that are busy or leave.
    pub(crate) send: OwnedFd,
}

/// A connection taken from the queue.
pub(crate) struct Handed {
    pub(crate) fd: OwnedFd,
    pub(crate) protocol: Protocol,
    /// When its wait began.
    pub(crate) arrived: u64,
    pub(crate) partial: Option<Box<Partial>>,
    /// No request has been served on it.
    pub(crate) fresh: bool,
}

impl Queue {
    /// Gives a connection on; `false` where the queue is full or the connection cannot travel.
    pub(crate) fn give(&self, conn: &Conn, arrived: u64) -> bool {
        let held = conn.partial.as_ref().map_or(&[][..], |p| &p.held);
        if held.len() > HELD_MAX || conn.partial.as_ref().is_some_and(|p| p.gather.is_skipping()) {
            return false;
        }
        let flags = if conn.partial.as_ref().is_some_and(|p| p.continued) { CONTINUED } else { 0 }
            | if conn.fresh { FRESH } else { 0 };
        let header = header(conn.protocol, flags, arrived);
        let parts = [IoSlice::new(&header), IoSlice::new(held)];
        sys::send_with_descriptor(&self.send, &parts, conn.fd.as_raw_fd())
    }

    /// Gives a connection on by its number alone, all of whose bytes are in its socket; `flags` is 0 or [`FRESH`].
    /// Allocates nothing.
    pub(crate) fn give_bare(&self, fd: RawFd, protocol: Protocol, flags: u8, arrived: u64) -> bool {
        sys::send_with_descriptor(&self.send, &[IoSlice::new(&header(protocol, flags, arrived))], fd)
    }

    /// Wakes an idle worker of the pool, or the next that is idle.
    pub(crate) fn ring(&self) {
        let mut byte = [0];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        if recv(self.send.as_raw_fd(), &mut byte, flags) == Err(nix::Error::EAGAIN) {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(self.receive.as_raw_fd(), &[1], flags);
        }
    }

    /// Stops the bell, which was heard.
    pub(crate) fn answer_bell(&self) {
        let mut byte = [0];
        let _ = recv(self.send.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT);
    }

    /// When the wait of the oldest connection began; `None` where the queue is empty.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let mut header = [0; HEADER];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.receive.as_raw_fd(), &mut header, flags).ok().filter(|n| *n == HEADER)?;
        header.last_chunk().map(|time| u64::from_le_bytes(*time))
    }

    /// The oldest connection. `space` is used for its bytes and must be of 128 KiB.
    pub(crate) fn take(&self, space: &mut [u8]) -> Option<Handed> {
        let mut header = [0; HEADER];
        let (n, fd) = {
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(space)];
            let mut rights = cmsg_space!(RawFd);
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
            let message =
                recvmsg::<()>(self.receive.as_raw_fd(), &mut parts, Some(&mut rights), flags).ok()?;
            let mut fd = None;
            for control in message.cmsgs().ok()? {
                if let ControlMessageOwned::ScmRights(fds) = control {
                    fd = fds.first().copied().map(sys::own).or(fd);
                }
            }
            (message.bytes, fd)
        };
        let [version, protocol, flags, _, time @ ..] = header;
        let held = space.get(..n.checked_sub(HEADER)?)?;
        if version != VERSION {
            return None;
        }
        let partial = (!held.is_empty()).then(|| {
            Box::new(Partial {
                held: held.to_vec(),
                continued: flags & CONTINUED != 0,
                pipelined: true,
                ..Partial::default()
            })
        });
        let protocol = if protocol == 1 { Protocol::Http } else { Protocol::Fastcgi };
        Some(Handed {
            fd: fd?,
            protocol,
            arrived: u64::from_le_bytes(time),
            partial,
            fresh: flags & FRESH != 0,
        })
    }
}

fn header(protocol: Protocol, flags: u8, arrived: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let [version, protocol_at, flags_at, _, time @ ..] = &mut header;
    *version = VERSION;
    *protocol_at = u8::from(protocol == Protocol::Http);
    *flags_at = flags;
    time.copy_from_slice(&arrived.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::{io::Write, os::unix::net::UnixStream};

    fn queue() -> Queue {
        let (receive, send) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        Queue { receive, send }
    }

    #[test]
    fn a_connection_travels_with_its_bytes_and_its_wait() {
        let queue = queue();
        let (mut peer, ours) = UnixStream::pair().unwrap();
        let mut conn = Conn::new(ours.into(), Protocol::Http, None);
        conn.partial =
            Some(Box::new(Partial { held: b"GET /".to_vec(), continued: true, ..Partial::default() }));
        assert!(queue.give(&conn, 42));
        drop(conn);
        assert_eq!(queue.oldest(), Some(42));
        let mut space = vec![0; 128 * 1024];
        let handed = queue.take(&mut space).unwrap();
        let partial = handed.partial.unwrap();
        assert_eq!((handed.protocol, handed.arrived, &partial.held[..]), (Protocol::Http, 42, &b"GET /"[..]));
        assert!(partial.continued && partial.pipelined && handed.fresh);
        peer.write_all(b"x").unwrap();
        let mut byte = [0];
        assert_eq!(nix::unistd::read(&handed.fd, &mut byte), Ok(1));
        assert!(queue.take(&mut space).is_none() && queue.oldest().is_none());
    }

    #[test]
    fn a_full_queue_refuses_and_loses_nothing() {
        let queue = queue();
        let (_peer, ours) = UnixStream::pair().unwrap();
        let conn = Conn::new(ours.into(), Protocol::Fastcgi, None);
        let sent = (0..100_000).take_while(|n| queue.give(&conn, *n)).count();
        assert!(sent > 100 && sent < 100_000);
        let mut space = vec![0; 128 * 1024];
        for n in 0..sent as u64 {
            assert_eq!(queue.take(&mut space).unwrap().arrived, n);
        }
        assert!(queue.take(&mut space).is_none());
    }

    #[test]
    fn a_bell_that_rings_is_not_rung_twice_and_is_no_connection() {
        let queue = queue();
        for _ in 0..1000 {
            queue.ring();
        }
        assert!(queue.oldest().is_none());
        queue.answer_bell();
        let mut byte = [0];
        assert_eq!(recv(queue.send.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT), Err(nix::Error::EAGAIN));
    }

    #[test]
    fn what_is_no_connection_is_dropped() {
        let queue = queue();
        nix::unistd::write(&queue.send, b"garbage").unwrap();
        nix::unistd::write(&queue.send, &[1; 40]).unwrap();
        let mut space = vec![0; 128 * 1024];
        assert!(queue.take(&mut space).is_none());
        assert!(queue.take(&mut space).is_none());
    }
}
