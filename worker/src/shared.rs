//! What main thread and keeper of a worker share.
//!
//! Always holds: the lock on the table is held by neither while it waits or runs an app.

use crate::{
    control::Limits,
    counters::Counters,
    link::Link,
    listening::Listening,
    queue::Queue,
    table::{Conn, Table, Token},
};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::{
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

/// What an event of the epoll is about, where it is no connection.
pub(crate) const CONTROL: Token = u64::MAX;
/// The hand-over queue.
pub(crate) const QUEUE: Token = u64::MAX - 1;
/// SIGTERM or SIGQUIT.
pub(crate) const SIGNAL: Token = u64::MAX - 2;
/// The bell of the hand-over queue.
pub(crate) const BELL: Token = u64::MAX - 3;
/// The first listener; the others follow downwards.
pub(crate) const LISTENER: Token = u64::MAX - 100;
/// Listeners that one worker may have.
pub(crate) const LISTENERS_MAX: usize = 1000;

/// See the module.
pub(crate) struct Shared {
    pub(crate) table: Mutex<Table>,
    pub(crate) epoll: Epoll,
    pub(crate) queue: Option<Queue>,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
    pub(crate) memory_soft: Option<u64>,
    pub(crate) memory_hard: Option<u64>,
    pub(crate) slow_log: Option<Duration>,
    /// Counts the requests that have begun: what tells the keeper one from the next.
    pub(crate) sequence: AtomicU64,
    /// The keeper sleeps until it is woken.
    pub(crate) resting: AtomicBool,
    /// Held by the keeper while it has connections in its hands, and for ever by a worker that ends: to be locked
    /// before the table.
    pub(crate) moving: Mutex<()>,
}

impl Shared {
    /// The table, for a moment.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is on its way from here to elsewhere as long as this is held.
    pub(crate) fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a listener, one worker of the pool to be woken for a connection. `again` moves this worker to the
    /// end of the kernel's list, which would else wake the same one each time.
    pub(crate) fn watch_listener(&self, number: usize, listener: &Listening, again: bool) {
        if again {
            let _ = self.epoll.delete(listener.as_fd());
        }
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        let _ = self.epoll.add(listener.as_fd(), EpollEvent::new(flags, LISTENER - number as Token));
    }

    /// Watches a connection. It must be made to be unwatched before it leaves the process by another way than
    /// being closed.
    pub(crate) fn watch(&self, token: Token, conn: &mut Conn) -> bool {
        if !conn.watched {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, token);
            conn.watched = self.epoll.add(&conn.fd, event).is_ok();
        }
        conn.watched
    }

    /// Gives a connection that is in hand to the pool. `false` where it must stay; it is then not watched.
    pub(crate) fn give(&self, conn: &mut Conn, arrived: u64) -> bool {
        let Some(queue) = &self.queue else { return false };
        // The registration belongs to the open connection, not to this process's number for it: it would live on
        // with the next worker and wake this one.
        if conn.watched && self.epoll.delete(conn.fd.as_fd()).is_err() {
            return false;
        }
        conn.watched = false;
        let given = queue.give(conn, arrived);
        if given {
            self.counters.add_shared(crate::page::WORD_HANDED, 1);
        }
        given
    }

    /// Lets a connection that is in hand wait for its next event.
    pub(crate) fn rest(&self, table: &mut Table, token: Token, mut conn: Conn) {
        if self.watch(token, &mut conn) {
            table.put(token, conn);
        } else {
            table.leave(token);
        }
    }
}
