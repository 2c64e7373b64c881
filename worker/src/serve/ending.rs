//! How connections end: at once, after their peer had time to read, or since they were silent for too long or there is
//! no room.
//!
//! Always holds: a peer that is answered and still sends is read until it closes or [`LINGER`] is over, since a close
//! with bytes unread is a reset, which takes the answer with it.

use super::Worker;
use crate::{
    control::Protocol,
    keeper::LINGER,
    table::{Conn, Token},
};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use std::os::fd::AsRawFd;

/// Bytes that all requests that are not whole may hold together.
const HELD_MAX: usize = 16 << 20;
/// How long a request may be on its way and be spared where there is no room.
const PATIENCE: u64 = 1_000_000_000;

/// Which connections go first where there is no room.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Missed {
    /// It has its answer.
    Answered,
    /// It has been silent inside a request for more than [`PATIENCE`].
    Silent,
    /// It rests between requests.
    AtRest,
    /// Its request is on its way.
    Young,
}

impl Worker {
    /// Parts with a connection: at once, or when its peer has had time to read.
    pub(super) fn part(&mut self, token: Token, mut conn: Conn, linger: bool) {
        // A fresh scan for the next connection, whatever this one left behind.
        self.gather.forget();
        if !linger {
            return self.shared.table().leave(token);
        }
        let _ = shutdown(conn.fd.as_raw_fd(), Shutdown::Write);
        conn.partial = None;
        conn.lingering = true;
        conn.deadline = self.now + LINGER;
        self.drain(token, conn);
    }

    /// Reads and drops what a peer still sends to a connection that is answered.
    pub(super) fn drain(&mut self, token: Token, conn: Conn) {
        // A few times, then it is the turn of others: a peer that never stops must not hold the worker.
        for _ in 0..16 {
            match recv(conn.fd.as_raw_fd(), &mut self.space, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return self.shared.table().leave(token),
                Ok(n) if n == self.space.len() => {}
                Ok(_) | Err(nix::Error::EAGAIN | nix::Error::EINTR) => break,
                Err(_) => return self.shared.table().leave(token),
            }
        }
        let mut table = self.shared.table();
        self.shared.rest(&mut table, token, conn);
    }

    /// Closes what has waited too long.
    pub(super) fn expire(&mut self) {
        loop {
            let expired = self.shared.table().expired(self.now);
            let Some((token, conn)) = expired else { return };
            self.close_silent(token, conn);
        }
    }

    /// Closes a connection; a client that was sending a request over HTTP is told why.
    fn close_silent(&mut self, token: Token, conn: Conn) {
        let began = conn.partial.as_ref().is_some_and(|p| !p.held.is_empty());
        if began && conn.protocol == Protocol::Http && !conn.lingering {
            let answer = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = send(conn.fd.as_raw_fd(), answer, MsgFlags::MSG_NOSIGNAL);
        }
        self.shared.table().leave(token);
    }

    /// Before a connection is taken: within the bounds, or those that can be missed most go.
    pub(super) fn make_room(&mut self) {
        let (count, held) = {
            let table = self.shared.table();
            (table.len(), table.held())
        };
        if count >= self.shared.limits.max_connections {
            self.evict(|_| true);
        } else if held > HELD_MAX {
            self.evict(|conn| conn.partial.is_some());
        }
    }

    /// Closes some connections for which `which` holds: those that can be missed most ([`Missed`]), and of these the ones
    /// that have waited longest.
    pub(super) fn evict(&mut self, which: impl Fn(&Conn) -> bool) {
        let read_timeout = u64::try_from(self.shared.limits.read_timeout.as_nanos()).unwrap_or(u64::MAX);
        let patience = read_timeout.saturating_sub(PATIENCE);
        let mut table = self.shared.table();
        let mut ranked: Vec<(Missed, u64, Token)> = table
            .waiting(which)
            .into_iter()
            .filter_map(|token| {
                let conn = table.peek(token)?;
                let missed = match conn.gathering {
                    _ if conn.lingering => Missed::Answered,
                    true if conn.deadline.saturating_sub(self.now) <= patience => Missed::Silent,
                    true => Missed::Young,
                    false => Missed::AtRest,
                };
                Some((missed, conn.deadline, token))
            })
            .collect();
        ranked.sort_unstable();
        // A request that is on its way is the last to go, and no more of them than must.
        let old = ranked.iter().filter(|(missed, ..)| *missed < Missed::Young).count();
        let share = (old / 16).max(1);
        let out: Vec<_> = ranked
            .into_iter()
            .take(share)
            .filter_map(|(_, _, token)| Some((token, table.take(token)?)))
            .collect();
        drop(table);
        for (token, conn) in out {
            self.close_silent(token, conn);
        }
    }
}
