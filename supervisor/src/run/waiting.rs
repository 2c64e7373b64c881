//! How many connections wait in the kernel at a listener: NETLINK_SOCK_DIAG (sock_diag(7)), since neither
//! `/proc/net/unix` nor a socket option tells it for Unix sockets.
//!
//! Always holds: every number comes from the kernel and is read with bounds; what the kernel does not tell is
//! `None`. Asked only when somebody wants to see it.

use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
    },
    stat::fstat,
};
use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

/// SOCK_DIAG_BY_FAMILY.
const BY_FAMILY: u16 = 20;
/// NLM_F_REQUEST and NLM_F_DUMP.
const DUMP: u16 = 0x301;
/// NLMSG_DONE, NLMSG_ERROR.
const DONE: u16 = 3;
const ERROR: u16 = 2;
const AF_UNIX: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
/// TCP_LISTEN as a bit; Unix sockets use the same states.
const LISTENING: u32 = 1 << 10;
/// UDIAG_SHOW_RQLEN and the attribute UNIX_DIAG_RQLEN.
const SHOW_QUEUE: u32 = 0x10;
const QUEUE: u16 = 4;
/// Bytes of nlmsghdr, unix_diag_msg, and where inet_diag_msg has its queue and its inode.
const HEADER: usize = 16;
const UNIX: usize = 16;
const INET_QUEUE: usize = 56;
const INET_INODE: usize = 68;

/// Connections that wait at listeners, by inode.
#[derive(Debug, Default)]
pub(crate) struct Waiting(HashMap<u64, u32>);

impl Waiting {
    /// Asks the kernel for all listeners, Unix and TCP.
    pub(crate) fn ask() -> Waiting {
        let mut found = HashMap::new();
        if let Ok(netlink) = open() {
            for request in [unix_request(), inet_request(AF_INET), inet_request(AF_INET6)] {
                // One family that the kernel does not know leaves the others.
                let _ = dump(&netlink, &request, &mut found);
            }
        }
        Waiting(found)
    }

    /// At this listener.
    pub(crate) fn at(&self, listener: impl AsFd) -> Option<u32> {
        self.0.get(&fstat(listener).ok()?.st_ino).copied()
    }
}

fn open() -> nix::Result<OwnedFd> {
    let protocol = SockProtocol::NetlinkSockDiag;
    let fd = socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    Ok(fd)
}

fn dump(netlink: &OwnedFd, request: &[u8], found: &mut HashMap<u64, u32>) -> nix::Result<()> {
    send(netlink.as_raw_fd(), request, MsgFlags::empty())?;
    let mut buffer = vec![0; 32 * 1024];
    loop {
        // The kernel has the answer ready when `send` returns.
        let n = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)?;
        if read_answer(buffer.get(..n).unwrap_or_default(), found) {
            return Ok(());
        }
    }
}

/// Reads the messages of one datagram. Gives whether the answer is over.
fn read_answer(mut bytes: &[u8], found: &mut HashMap<u64, u32>) -> bool {
    while let (Some(len), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let len = len as usize;
        if kind == DONE || kind == ERROR || len < HEADER || len > bytes.len() {
            return true;
        }
        let message = bytes.get(HEADER..len).unwrap_or_default();
        let queue = match message.first() {
            Some(&AF_UNIX) => unix_queue(message),
            Some(&(AF_INET | AF_INET6)) => u32_at(message, INET_INODE).zip(u32_at(message, INET_QUEUE)),
            _ => None,
        };
        if let Some((inode, waiting)) = queue {
            found.insert(u64::from(inode), waiting);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// Inode and queue of a unix_diag_msg with its attributes.
fn unix_queue(message: &[u8]) -> Option<(u32, u32)> {
    let inode = u32_at(message, 4)?;
    let mut attributes = message.get(UNIX..)?;
    loop {
        let (len, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        if kind == QUEUE {
            return Some((inode, u32_at(attributes, 4)?));
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
}

fn header(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + len);
    bytes.extend(u32::try_from(HEADER + len).unwrap_or(0).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// struct unix_diag_req.
fn unix_request() -> Vec<u8> {
    let mut bytes = header(24);
    bytes.extend([AF_UNIX, 0, 0, 0]);
    bytes.extend(LISTENING.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(SHOW_QUEUE.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// struct inet_diag_req_v2.
fn inet_request(family: u8) -> Vec<u8> {
    let mut bytes = header(56);
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend(LISTENING.to_ne_bytes());
    bytes.extend([0; 48]);
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream},
        os::unix::net::{UnixListener, UnixStream},
    };

    #[test]
    fn connections_that_wait_are_counted_on_unix_and_tcp() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(Waiting::ask().at(&unix), Some(0));
        let _clients: Vec<_> = (0..5).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let _others: Vec<_> =
            (0..3).map(|_| TcpStream::connect(tcp.local_addr().unwrap()).unwrap()).collect();
        let waiting = Waiting::ask();
        assert_eq!((waiting.at(&unix), waiting.at(&tcp)), (Some(5), Some(3)));
        let _ = unix.accept().unwrap();
        assert_eq!(Waiting::ask().at(&unix), Some(4));
    }

    #[test]
    fn an_answer_that_lies_about_its_length_is_left() {
        let mut found = HashMap::new();
        for bytes in [&b"\xff\xff\xff\xff\x14\0\0\0aaaaaaaaaaaa"[..], b"\x10", b"", &[0; 64]] {
            read_answer(bytes, &mut found);
        }
        assert!(found.is_empty());
    }
}
