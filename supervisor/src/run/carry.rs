//! Carries descriptors over an exec: they lie in a socket pair of which one end is descriptor 0.
//!
//! Always holds: every descriptor keeps its close-on-exec flag, before and after, so that no child that starts
//! meanwhile gets any of them; what was carried comes out in the order in which it went in.

use nix::{
    sys::socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair, sockopt,
    },
    unistd::dup2_stdin,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

/// Descriptors in one message; the kernel takes 253.
const BATCH: usize = 128;

/// Descriptors, each under a number.
#[derive(Default)]
pub(crate) struct Load<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Load<'a> {
    /// Takes a descriptor and gives its number.
    pub(crate) fn put(&mut self, fd: &'a impl AsFd) -> usize {
        self.0.push(fd.as_fd());
        self.0.len() - 1
    }

    /// Packs all of them: the result is to become descriptor 0.
    ///
    /// # Errors
    /// Where the kernel does not hold so many.
    pub(crate) fn pack(&self) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (end, start) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let _ = setsockopt(&start, sockopt::SndBuf, &(4 << 20));
        for batch in self.0.chunks(BATCH) {
            let raw: Vec<RawFd> = batch.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&raw)];
            let message = [IoSlice::new(b"fds")];
            sendmsg::<()>(start.as_raw_fd(), &message, &rights, MsgFlags::MSG_DONTWAIT, None)?;
        }
        Ok(end)
    }
}

/// What was carried, by number; each can be taken once.
#[derive(Debug)]
pub(crate) struct Cargo(Vec<Option<OwnedFd>>);

impl Cargo {
    /// Unpacks descriptor 0, which then is /dev/null.
    ///
    /// # Errors
    /// Where it is no socket that was packed.
    pub(crate) fn unpack() -> io::Result<Cargo> {
        let cargo = Cargo::from(io::stdin().as_fd());
        dup2_stdin(File::open("/dev/null")?)?;
        cargo
    }

    /// Takes the last one out.
    ///
    /// # Errors
    /// Where nothing was carried.
    pub(crate) fn take_last(&mut self) -> io::Result<OwnedFd> {
        self.take(self.0.len().wrapping_sub(1))
    }

    fn from(socket: BorrowedFd<'_>) -> io::Result<Cargo> {
        let mut all = Vec::new();
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [0; 8];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags)?;
            if received.bytes == 0 {
                return Ok(Cargo(all));
            }
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    all.extend(fds.map(Some));
                }
            }
        }
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// Where there is none under the number.
    pub(crate) fn take(&mut self, number: usize) -> io::Result<OwnedFd> {
        let fd = self.0.get_mut(number).and_then(Option::take);
        fd.ok_or_else(|| io::Error::other(format!("descriptor {number} was not handed over")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use std::os::unix::net::UnixStream;

    #[test]
    fn hundreds_of_descriptors_arrive_in_order_and_close_on_exec() {
        let pairs: Vec<_> = (0..400).map(|_| UnixStream::pair().unwrap()).collect();
        let mut load = Load::default();
        for (number, (one, _)) in pairs.iter().enumerate() {
            assert_eq!(load.put(one), number);
        }
        let packed = load.pack().unwrap();
        let mut cargo = Cargo::from(packed.as_fd()).unwrap();
        for (number, (_, other)) in pairs.iter().enumerate().rev() {
            let fd = cargo.take(number).unwrap();
            assert_eq!(fcntl(&fd, FcntlArg::F_GETFD).unwrap(), FdFlag::FD_CLOEXEC.bits());
            io::Write::write_all(&mut UnixStream::from(fd), &[7]).unwrap();
            let mut byte = [0];
            io::Read::read_exact(&mut &*other, &mut byte).unwrap();
            assert_eq!(byte, [7]);
        }
        assert!(cargo.take(0).is_err() && cargo.take(400).is_err());
    }
}
