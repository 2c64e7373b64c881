//! The limit: the least that a FastCGI server can do, as what others are measured against.
//!
//! N processes, each with an epoll of its own over the shared listener (EPOLLEXCLUSIVE) and its own
//! connections: one wait, one read, one write of a fixed answer; a close where the connection is not kept.
//! It reads nothing of a request but the keep-connection flag in the BEGIN_REQUEST record, and takes it that
//! a request arrives whole in one read. Three system calls a request on a kept connection, seven on a fresh one.
//!
//! Which process takes a connection is the kernel's choice, which likes the one that took the last; with `--spread` a
//! process that has taken four moves to the end of those to wake, as Hostler's workers do with connections that stay.
//! The more processes few connections are spread over, the more switches of processes a request costs.
//!
//! The processes are this program executed again with the listener as descriptor 0, so no fork of our own.

use crate::{options::Limit, prefork};
use hostler_bench::{address::Address, load::Error};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::{
    ffi::OsStr,
    io::{Read, Write, stdin},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::{UnixListener, UnixStream},
    },
};

/// STDOUT of 34 bytes in two records, the second padded, and END_REQUEST: "hello\n" as text/plain.
const ANSWER: &[u8] = b"\x01\x06\0\x01\0\x20\0\0Content-Type: text/plain\r\n\r\nhell\
    \x01\x06\0\x01\0\x02\x06\0o\n\0\0\0\0\0\0\
    \x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

/// Serves an address with so many processes until it is ended; they end with it.
pub(crate) fn serve(limit: &Limit) -> Result<(), Error> {
    if let Address::Tcp(_) = limit.address {
        return Err(Error::new("the limit serves Unix sockets alone"));
    }
    let program = std::env::current_exe().map_err(|source| Error::system("finding this program", source))?;
    let mut worker = vec![program.as_os_str(), OsStr::new("limit-worker")];
    worker.extend(limit.spread.then_some(OsStr::new("--spread")));
    prefork::serve(&limit.address, limit.processes, &worker)
}

/// One process: serves the listener on descriptor 0 until its parent ends.
pub(crate) fn worker(spread: bool) -> Result<(), Error> {
    let error = |errno| Error::system("serving the listener on descriptor 0", errno);
    let listener =
        stdin().as_fd().try_clone_to_owned().map_err(|source| Error::system("descriptor 0", source))?;
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(|source| Error::system("descriptor 0", source))?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(error)?;
    let watch = || {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        epoll.add(&listener, EpollEvent::new(flags, u64::MAX))
    };
    watch().map_err(error)?;
    let mut taken = 0;
    let mut connections: Vec<Option<UnixStream>> = Vec::new();
    let mut request = vec![0; 65_536];
    let mut events = [EpollEvent::empty()];
    loop {
        if epoll.wait(&mut events, EpollTimeout::NONE) != Ok(1) {
            continue;
        }
        let [event] = &events;
        let Ok(at) = usize::try_from(event.data()) else { continue };
        match connections.get_mut(at) {
            Some(held) => answer(held, &mut request),
            None => {
                accept(&listener, &epoll, &mut connections);
                taken += 1;
                if spread && taken % 4 == 0 {
                    epoll.delete(&listener).and_then(|()| watch()).map_err(error)?;
                }
            }
        }
    }
}

fn answer(held: &mut Option<UnixStream>, request: &mut [u8]) {
    let Some(connection) = held else { return };
    let count = connection.read(request).unwrap_or(0);
    let keep = count > 10 && request.get(10).is_some_and(|flags| flags & 1 == 1);
    let sent = if count > 0 { connection.write(ANSWER).is_ok() } else { false };
    if !keep || !sent {
        *held = None;
    }
}

fn accept(listener: &UnixListener, epoll: &Epoll, connections: &mut Vec<Option<UnixStream>>) {
    let Ok((connection, _)) = listener.accept() else { return };
    let at = usize::try_from(connection.as_raw_fd()).unwrap_or(0);
    let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::try_from(at).unwrap_or(0));
    if epoll.add(&connection, event).is_ok() {
        connections.resize_with(connections.len().max(at + 1), || None);
        if let Some(place) = connections.get_mut(at) {
            *place = Some(connection);
        }
    }
}
