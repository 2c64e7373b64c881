//! What a worker does when it is told to, and how it leaves.

use super::Worker;
use crate::{control::Order, link::Received, table::Token, wait};
use nix::sys::socket::{MsgFlags, recv};
use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
    time::Duration,
};

impl Worker {
    /// Reads the orders that are there.
    pub(crate) fn orders(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(link) = &shared.link else { return };
        loop {
            match link.receive(false) {
                Ok(Received::Order(Order::Retire, _)) => self.retire(),
                Ok(Received::Order(Order::AccessLog, fds)) => {
                    if let (Some((_, file)), Some(fd)) = (&mut self.desk.access_log, fds.into_iter().next()) {
                        *file = File::from(fd);
                    }
                }
                Ok(Received::Order(order, _)) => eprintln!("hostler: an order out of place: {order:?}"),
                Ok(Received::Nothing) => return,
                Ok(Received::Gone) => {
                    let _ = shared.epoll.delete(link.as_fd());
                    return self.retire();
                }
                Err(why) => return eprintln!("hostler: {why}"),
            }
        }
    }

    /// SIGTERM and SIGQUIT: leave as if told by the supervisor.
    pub(crate) fn signal(&mut self) {
        let _ = self.signals.read_signal();
        self.retire();
    }

    /// Takes no new request, gives the kept connections on, and ends when none is left.
    pub(crate) fn retire(&mut self) {
        self.retiring = true;
        self.shared.counters.set(crate::page::WORD_LEAVING, 1);
        self.shared.counters.set(crate::page::WORD_STATE, 3);
        self.leave();
        self.give_all();
    }

    /// Lets go of listeners and queue.
    pub(crate) fn leave(&mut self) {
        if std::mem::replace(&mut self.leaving, true) {
            return;
        }
        for listener in &self.shared.listeners {
            let _ = self.shared.epoll.delete(listener.as_fd());
        }
        if let Some(queue) = &self.shared.queue {
            let _ = self.shared.epoll.delete(queue.receive.as_fd());
            let _ = self.shared.epoll.delete(queue.send.as_fd());
        }
    }

    /// Gives all connections that wait to the pool. Without a pool that takes them, those at rest are closed.
    pub(crate) fn give_all(&mut self) {
        let shared = Arc::clone(&self.shared);
        let tokens = shared.table().waiting(|conn| !conn.lingering);
        for token in tokens {
            self.give_one(token);
        }
    }

    fn give_one(&mut self, token: Token) {
        let shared = Arc::clone(&self.shared);
        let Some(mut conn) = shared.table().take(token) else { return };
        let arrived = self.now;
        let mut given = shared.give(&mut conn, arrived);
        if let (false, Some(queue)) = (given, &shared.queue) {
            // Full: the others take from it as fast as they can.
            let _ = wait::writable(queue.send.as_fd(), Duration::from_secs(1));
            given = shared.give(&mut conn, arrived);
        }
        if given {
            return shared.table().leave(token);
        }
        let mut byte = [0];
        let silent = recv(conn.fd.as_raw_fd(), &mut byte, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)
            == Err(nix::Error::EAGAIN);
        let mut table = shared.table();
        if silent && conn.partial.is_none() {
            return table.leave(token);
        }
        // A request is on its way: it is served here before this worker ends.
        shared.rest(&mut table, token, conn);
    }
}
