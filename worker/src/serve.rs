//! The serving loop: one epoll over listeners, control socket, hand-over queue and kept connections.
//!
//! Always holds: one request at a time; a request is served when it is all there (or too large to be gathered), so
//! that a slow or silent client holds memory within limits and no worker; orders are read between requests; the
//! loop does not know which runtime it serves.

mod ending;
mod fastcgi;
mod http;
mod orders;

use crate::{
    answer::End,
    control::{Protocol, Report, Wear},
    counters::now,
    exchange::{Desk, Served},
    keeper::refuse_late,
    params::Index,
    shared::{BELL, CONTROL, LISTENER, QUEUE, SIGNAL, Shared},
    socket,
    table::{Conn, Partial, Token},
};
use hostler_proto::Gather;
use nix::{
    poll::PollTimeout,
    sys::{epoll::EpollEvent, signalfd::SignalFd},
};
use std::{
    os::fd::AsFd,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::Thread,
};

/// Bytes that one look at a connection reads.
const READ: usize = 128 * 1024;
/// Events that are served before the epoll is asked again: what keeps fresh connections from starving.
const BATCH: usize = 16;
/// After so many connections taken, the worker goes to the end of the kernel's list of those to wake: before, the one
/// that took the last is woken again, which is cheapest.
const ROTATE_AFTER: u32 = 16;
/// One that stays counts as so many, since it will bring more work.
const STAYING: u32 = 4;

/// See the module.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) desk: Desk,
    pub(crate) keeper: Thread,
    pub(crate) signals: SignalFd,
    pub(crate) max_requests: u64,
    /// Listeners and queue are let go of.
    pub(crate) leaving: bool,
    /// Exit when nothing is left.
    pub(crate) retiring: bool,
    pub(crate) served: u64,
    /// What the connections count that were taken since the last move to the end of the kernel's list.
    pub(crate) taken: u32,
    /// The last moment that the clock was read.
    pub(crate) now: u64,
    /// When the events at hand were found.
    pub(crate) found: u64,
    pub(crate) space: Vec<u8>,
    pub(crate) gather: Gather,
    pub(crate) index: Index,
    /// FastCGI: `index` is that of the request under the scan.
    pub(crate) indexed: bool,
    /// Joined PARAMS of several records, or the meta-variables of an HTTP head.
    pub(crate) arena: Vec<u8>,
}

/// What becomes of a connection after its bytes were looked at. The number is how many of them are used.
pub(crate) enum Fate {
    /// It waits for more bytes.
    Wait(usize),
    /// It has been served; further bytes that are there get their turn after others.
    Served(usize),
    /// It has been served; so many bytes are to be skipped, and these were read past it.
    Streamed(usize, Vec<u8>),
    /// It is closed after the peer had time to read.
    Linger,
    /// It is closed now.
    Close,
}

impl Worker {
    /// A worker that has served nothing.
    pub(crate) fn new(
        shared: Arc<Shared>,
        desk: Desk,
        keeper: Thread,
        signals: SignalFd,
        max_requests: u64,
    ) -> Worker {
        Worker {
            shared,
            desk,
            keeper,
            signals,
            max_requests,
            leaving: false,
            retiring: false,
            served: 0,
            taken: 0,
            now: 0,
            found: 0,
            space: vec![0; READ],
            gather: Gather::default(),
            index: Index::default(),
            indexed: false,
            arena: Vec::new(),
        }
    }

    /// Serves until it is told to leave.
    pub(crate) fn run(mut self) -> ExitCode {
        self.shared.counters.set(crate::page::WORD_STATE, 1);
        let mut events = [EpollEvent::empty(); BATCH];
        loop {
            let found = match self.shared.epoll.wait(&mut events, self.timeout()) {
                Ok(n) => events.get(..n).unwrap_or_default(),
                Err(nix::Error::EINTR) => &[],
                Err(e) => {
                    eprintln!("hostler: cannot wait for requests: {e}");
                    return ExitCode::from(71);
                }
            };
            self.round(found);
            if self.desk.faulty {
                self.leave();
                let shared = Arc::clone(&self.shared);
                std::mem::forget(shared.moving());
                self.give_all();
                return ExitCode::from(70);
            }
            if self.retiring && self.shared.table().len() == 0 {
                let shared = Arc::clone(&self.shared);
                let moving = shared.moving();
                // The keeper may have put one back.
                if shared.table().len() == 0 {
                    std::mem::forget(moving);
                    return ExitCode::SUCCESS;
                }
            }
        }
    }

    /// Serves what these events tell of, and what became due.
    fn round(&mut self, events: &[EpollEvent]) {
        self.now = now();
        self.found = self.now;
        for event in events {
            self.event(event.data());
        }
        let (again, due) = {
            let mut table = self.shared.table();
            (!table.again.is_empty(), table.next_deadline().is_some_and(|at| at <= self.now))
        };
        if again {
            self.again();
        }
        if due {
            self.expire();
        }
        if self.leaving {
            self.give_all();
        }
    }

    /// One round with what is there.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn turn(&mut self) {
        let mut events = [EpollEvent::empty(); BATCH];
        if let Ok(n) = self.shared.epoll.wait(&mut events, PollTimeout::ZERO) {
            self.round(events.get(..n).unwrap_or_default());
        }
    }

    fn timeout(&self) -> PollTimeout {
        let mut table = self.shared.table();
        self.shared.counters.set(crate::page::WORD_CONNECTIONS, table.len() as u64);
        if !table.again.is_empty() {
            return PollTimeout::ZERO;
        }
        let Some(at) = table.next_deadline() else { return PollTimeout::NONE };
        // Rounded up: never awake before the deadline.
        let ms = at.saturating_sub(self.now).div_ceil(1_000_000).min(60_000);
        PollTimeout::try_from(i32::try_from(ms).unwrap_or(60_000)).unwrap_or(PollTimeout::NONE)
    }

    fn event(&mut self, token: Token) {
        match token {
            CONTROL => self.orders(),
            SIGNAL => self.signal(),
            QUEUE => self.take_handed(),
            BELL => self.bell(),
            listener
                if listener > LISTENER - crate::shared::LISTENERS_MAX as Token && listener <= LISTENER =>
            {
                self.accept(usize::try_from(LISTENER - listener).unwrap_or(usize::MAX));
            }
            connection => self.readable(connection),
        }
    }

    fn accept(&mut self, number: usize) {
        if self.leaving || self.desk.faulty {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Some(listener) = shared.listeners.get(number) else { return };
        self.make_room();
        let (fd, ends) = match listener.accept() {
            Ok(Some(taken)) => taken,
            Ok(None) => return,
            Err(e) => {
                eprintln!(
                    "hostler: cannot take a connection: {e}; one that can be missed most is closed for it"
                );
                self.evict(|_| true);
                return;
            }
        };
        let token = shared.table().enter();
        self.look(token, Conn::new(fd, listener.protocol, ends));
        self.taken += if shared.table().holds(token) { STAYING } else { 1 };
        if self.taken >= ROTATE_AFTER && !self.leaving {
            self.taken = 0;
            shared.watch_listener(number, listener, true);
        }
    }

    /// Somebody waits, for whom another worker was woken that has no time.
    fn bell(&mut self) {
        let shared = Arc::clone(&self.shared);
        if let Some(queue) = &shared.queue {
            queue.answer_bell();
        }
        self.take_handed();
        for number in 0..shared.listeners.len() {
            self.accept(number);
        }
    }

    fn take_handed(&mut self) {
        if self.leaving || self.desk.faulty {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Some(handed) = shared.queue.as_ref().and_then(|queue| queue.take(&mut self.space)) else {
            return;
        };
        self.make_room();
        let ends =
            (handed.protocol == Protocol::Http).then(|| Box::new(crate::listening::ends(handed.fd.as_fd())));
        let mut conn = Conn::new(handed.fd, handed.protocol, ends);
        conn.partial = handed.partial;
        conn.fresh = handed.fresh;
        conn.arrived = handed.arrived;
        let token = shared.table().enter();
        let late = shared
            .limits
            .queue_timeout
            .is_some_and(|limit| u128::from(self.now.saturating_sub(handed.arrived)) > limit.as_nanos());
        if late {
            refuse_late(&shared, &mut shared.table(), token, conn, self.now);
        } else {
            self.look(token, conn);
        }
    }

    fn readable(&mut self, token: Token) {
        let Some(conn) = self.shared.table().take(token) else { return };
        if conn.lingering {
            self.drain(token, conn);
        } else {
            self.look(token, conn);
        }
    }

    /// Connections whose bytes are there already, one request each.
    fn again(&mut self) {
        let tokens: Vec<Token> = self.shared.table().again.drain(..).collect();
        for token in tokens {
            let Some(conn) = self.shared.table().take(token) else { continue };
            self.look(token, conn);
        }
    }

    /// Reads what a connection in hand has, and serves a request that is all there.
    fn look(&mut self, token: Token, mut conn: Conn) {
        let mut space = std::mem::take(&mut self.space);
        let mut partial = conn.partial.take();
        let pipelined = partial.as_mut().is_some_and(|p| std::mem::take(&mut p.pipelined));
        let read = if pipelined { Ok(0) } else { socket::read(conn.fd.as_fd(), &mut space) };
        let fate = match read {
            Ok(0) if !pipelined => Fate::Close,
            Ok(n) => {
                let fresh = space.get(..n).unwrap_or_default();
                match &mut partial {
                    Some(partial) => {
                        partial.held.extend_from_slice(fresh);
                        let held = std::mem::take(&mut partial.held);
                        let fate = self.judge(&mut conn, &held, Some(partial));
                        partial.held = held;
                        fate
                    }
                    None => self.judge(&mut conn, fresh, None),
                }
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {
                // Readable no more, or taken before its first byte: it waits as it is.
                conn.partial = partial;
                conn.arrived = 0;
                self.wait_for_more(&mut conn);
                self.space = space;
                let mut table = self.shared.table();
                return self.shared.rest(&mut table, token, conn);
            }
            Err(_) => Fate::Close,
        };
        if matches!(fate, Fate::Close | Fate::Linger) {
            // Back first: what a peer still sends is read into it.
            self.space = space;
            return self.part(token, conn, matches!(fate, Fate::Linger));
        }
        let bytes = match &mut partial {
            Some(partial) => std::mem::take(&mut partial.held),
            None => Vec::new(),
        };
        let here =
            if partial.is_some() { &bytes[..] } else { space.get(..read.unwrap_or(0)).unwrap_or_default() };
        self.settle(token, conn, partial, here, fate);
        self.space = space;
    }

    fn judge(&mut self, conn: &mut Conn, bytes: &[u8], partial: Option<&mut Partial>) -> Fate {
        match conn.protocol {
            Protocol::Fastcgi => {
                // The scan of a request that began before goes on where it stood.
                let kept = partial.map(|partial| &mut partial.gather);
                let Some(kept) = kept else { return self.fastcgi(conn, bytes) };
                std::mem::swap(kept, &mut self.gather);
                let fate = self.fastcgi(conn, bytes);
                std::mem::swap(kept, &mut self.gather);
                fate
            }
            Protocol::Http => match partial {
                Some(partial) => self.http(conn, bytes, partial),
                None => {
                    let mut partial = Partial::default();
                    let fate = self.http(conn, bytes, &mut partial);
                    let begun = partial.http.head.is_some() || partial.http.scanned > 0 || partial.continued;
                    if begun && matches!(fate, Fate::Wait(_)) {
                        conn.partial = Some(Box::new(partial));
                    }
                    fate
                }
            },
        }
    }

    /// Does what was decided about a connection that stays, whose unused bytes are `here`.
    fn settle(
        &mut self,
        token: Token,
        mut conn: Conn,
        partial: Option<Box<Partial>>,
        here: &[u8],
        fate: Fate,
    ) {
        let mut pipelined = false;
        match fate {
            // Of those that do not stay: `part`.
            Fate::Close | Fate::Linger => return self.shared.table().leave(token),
            Fate::Streamed(skip, rest) => {
                conn.partial = None;
                if skip > 0 || !rest.is_empty() {
                    let mut partial = Box::<Partial>::default();
                    pipelined = !rest.is_empty();
                    partial.gather.skip(skip);
                    partial.held = rest;
                    conn.partial = Some(partial);
                }
            }
            Fate::Wait(used) | Fate::Served(used) => {
                let rest = here.get(used..).unwrap_or_default();
                let serve_on = matches!(fate, Fate::Served(_)) && !rest.is_empty();
                let mut kept = partial.or_else(|| conn.partial.take());
                if conn.protocol == Protocol::Fastcgi
                    && kept.is_none()
                    && (!rest.is_empty() || self.gather.is_skipping())
                {
                    kept = Some(Box::new(Partial {
                        gather: std::mem::take(&mut self.gather),
                        ..Partial::default()
                    }));
                }
                if rest.is_empty() && !kept.as_ref().is_some_and(|p| p.gather.is_skipping()) {
                    kept = None;
                } else {
                    let kept = kept.get_or_insert_default();
                    if matches!(fate, Fate::Served(_)) {
                        kept.http = crate::http1::Gathering::default();
                        kept.continued = false;
                    }
                    kept.held = rest.to_vec();
                }
                conn.partial = kept;
                pipelined = serve_on;
            }
        }
        // A fresh scan for the next connection, whatever this one left behind.
        self.gather.restart();
        self.wait_for_more(&mut conn);
        let mut table = self.shared.table();
        if pipelined {
            if let Some(partial) = &mut conn.partial {
                partial.pipelined = true;
            }
            table.again.push_back(token);
        }
        self.shared.rest(&mut table, token, conn);
    }

    /// Until when a connection may stay as it is.
    fn wait_for_more(&self, conn: &mut Conn) {
        let limits = &self.shared.limits;
        let limit = match (&conn.partial, conn.protocol) {
            // One deadline for the whole of a request: a byte now and then does not move it.
            (Some(_), _) if conn.deadline != 0 && conn.gathering => return,
            (Some(_), _) => limits.read_timeout,
            (None, _) if conn.fresh => limits.read_timeout,
            (None, Protocol::Http) => limits.keepalive_timeout,
            (None, Protocol::Fastcgi) => {
                conn.deadline = 0;
                conn.gathering = false;
                return;
            }
        };
        conn.gathering = conn.partial.is_some() || conn.fresh;
        conn.deadline = self.now.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a request that is about to begin, and wakes the keeper where it rests.
    pub(crate) fn begin(&mut self) {
        self.shared.sequence.fetch_add(1, SeqCst);
        if self.shared.resting.load(SeqCst) {
            self.shared.resting.store(false, SeqCst);
            self.keeper.unpark();
        }
    }

    /// When the request of a connection in hand began to wait.
    pub(crate) fn waited(&self, conn: &mut Conn) -> u64 {
        let arrived = std::mem::take(&mut conn.arrived);
        self.now.saturating_sub(if arrived == 0 { self.found } else { arrived })
    }

    /// Notes a request that has ended, and what its connection's fate is where `keep` says that it may live.
    pub(crate) fn ended(&mut self, conn: &mut Conn, served: &Served, keep: bool) -> Option<Fate> {
        self.now = served.ended;
        self.served += 1;
        conn.fresh = false;
        conn.gathering = false;
        if self.max_requests > 0 {
            let ask_at = self.max_requests - (self.max_requests / 10).max(1).min(self.max_requests - 1);
            if self.served == ask_at {
                self.report(&Report::Worn { why: Wear::Requests });
            }
            if self.served >= self.max_requests {
                self.leave();
            }
        }
        match served.end {
            End::Cut => Some(Fate::Close),
            End::Close => Some(Fate::Linger),
            End::Whole if !keep => Some(Fate::Linger),
            End::Whole => None,
        }
    }

    pub(crate) fn report(&self, report: &Report) {
        if let Some(link) = &self.shared.link {
            link.report(report);
        }
    }
}
