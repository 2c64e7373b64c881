//! The keeper: the second thread of a worker, which acts while the first one is busy with a request.
//!
//! After about [`TICK`] it gives the worker's other connections that turn readable to the pool's hand-over queue; and
//! where requests are shorter but not [`QUICK`], some of those that wait, as long as others take them.
//! It answers 504 in the worker's place, answers 503 to who waited too long, watches memory, and tells the
//! supervisor what it sees. While the worker rests it sleeps without a clock.
//!
//! Always holds: it waits for nothing but its tick. It looks at the epoll without ever waiting in it: a thread that
//! waits there would take the wake-up of a listener (EPOLLEXCLUSIVE) from an idle worker.

use crate::{
    control::{Protocol, Report, Wear},
    counters::now,
    hand::{HAND, send_ready},
    memory, page,
    shared::{BELL, CONTROL, LISTENER, LISTENERS_MAX, QUEUE, SIGNAL, Shared},
    table::{Conn, Table, Token},
};
use hostler_proto::{Header, Kind};
use nix::{
    poll::PollTimeout,
    sys::{
        epoll::EpollEvent,
        socket::{MsgFlags, recv},
    },
};
use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

/// How often it looks while the worker is active.
const TICK: Duration = Duration::from_millis(2);
/// A request younger than this is left alone.
const BUSY: u64 = 2_000_000;
/// Requests that take less are not worth a hand-over, whoever waits behind them: it costs two workers about 20 µs.
const QUICK: u64 = 250_000;
/// Idle ticks after which it rests.
const REST_AFTER: u32 = 50;
/// Ticks between two looks at the memory, with a limit and without one.
const MEMORY_EVERY: (u32, u32) = (10, 500);
/// Ticks between two reports of pressure.
const PRESSURE_EVERY: u32 = 20;
/// A tick that took this long means that the machine slept: the time is nobody's fault.
const SLEPT: u64 = 1_000_000_000;
/// How long a request may take when the supervisor is gone and no `request_timeout` says so.
const ORPHANED: Duration = Duration::from_secs(60);
/// How long an answered connection may take to close.
pub(crate) const LINGER: u64 = 5_000_000_000;

struct Keeper {
    shared: Arc<Shared>,
    /// The request that was in hand at the last look.
    sequence: u64,
    /// Nanoseconds of its age that the machine slept.
    slept: u64,
    told_slow: bool,
    told_worn: bool,
    told_hard: bool,
    last: u64,
    idle: u32,
    ticks: u32,
    /// Looks in a row at which connections waited that no worker took.
    pending: u32,
    space: Vec<u8>,
    /// When the supervisor was found to be gone.
    gone: Option<u64>,
    growth: memory::Growth,
}

/// Starts the keeper.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<thread::Thread> {
    let keeper = Keeper {
        shared,
        sequence: 0,
        slept: 0,
        told_slow: false,
        told_worn: false,
        told_hard: false,
        last: 0,
        idle: 0,
        ticks: 0,
        pending: 0,
        space: Vec::new(),
        gone: None,
        // Twice, since the supervisor has to start the replacement, and perhaps others at the same time.
        growth: memory::Growth::new(now(), 2 * memory::age()),
    };
    let thread = thread::Builder::new().name("keeper".into()).stack_size(256 * 1024);
    Ok(thread.spawn(move || keeper.run())?.thread().clone())
}

impl Keeper {
    fn run(mut self) -> ! {
        loop {
            self.rest();
            self.report(&Report::Active);
            self.idle = 0;
            self.last = now();
            while self.idle < REST_AFTER {
                thread::sleep(TICK);
                self.look();
            }
            self.memory();
            self.report(&Report::Rest);
        }
    }

    /// Sleeps until the worker begins a request.
    fn rest(&mut self) {
        let shared = &self.shared;
        shared.resting.store(true, SeqCst);
        // The worker counts a request before it looks at `resting`; so either it wakes this thread, or this sees it.
        while shared.resting.load(SeqCst) && shared.sequence.load(SeqCst) == self.sequence {
            thread::park();
        }
        shared.resting.store(false, SeqCst);
    }

    fn look(&mut self) {
        let now = now();
        let gap = now.saturating_sub(std::mem::replace(&mut self.last, now));
        self.ticks = self.ticks.wrapping_add(1);
        let sequence = self.shared.sequence.load(SeqCst);
        let since = self.shared.counters.get(page::WORD_BUSY_SINCE);
        let begun = sequence.wrapping_sub(std::mem::replace(&mut self.sequence, sequence));
        if begun > 0 {
            self.slept = 0;
            self.told_slow = false;
            self.idle = 0;
        } else if gap > SLEPT {
            self.slept += gap;
        }
        let limited = self.shared.memory_soft.or(self.shared.memory_hard).is_some();
        if self.ticks.is_multiple_of(if limited { MEMORY_EVERY.0 } else { MEMORY_EVERY.1 }) {
            self.memory();
        }
        if since == 0 {
            self.pending = 0;
            self.idle += 1;
            return;
        }
        self.idle = 0;
        let age = now.saturating_sub(since).saturating_sub(self.slept);
        if age >= BUSY {
            self.hand_over(now);
            self.time(age);
            self.orphaned(now);
        } else if gap / QUICK >= begun {
            self.spread(now);
        } else {
            self.pending = 0;
        }
    }

    /// What is readable now; `None` where nobody can tell.
    fn readable(&self) -> Option<Vec<Token>> {
        let mut events = [EpollEvent::empty(); 64];
        let n = self.shared.epoll.wait(&mut events, PollTimeout::ZERO).ok()?;
        Some(events.iter().take(n).map(EpollEvent::data).collect())
    }

    /// Gives away what turned readable, and sees who waits for the pool.
    fn hand_over(&mut self, now: u64) {
        let Some(found) = self.readable() else { return };
        let mut waits = false;
        let shared = Arc::clone(&self.shared);
        // So that the process does not end with a connection that is neither here nor there.
        let _moving = shared.moving();
        let mut table = shared.table();
        let again: Vec<Token> = table.again.drain(..).collect();
        for token in found.into_iter().chain(again) {
            match token {
                QUEUE => waits = true,
                CONTROL => self.gone = self.gone.or_else(|| is_gone(&self.shared).then_some(now)),
                BELL | SIGNAL => {}
                listener if is_listener(listener) => waits = true,
                token => give(&self.shared, &mut table, token, now),
            }
        }
        drop(table);
        self.waiting(waits);
        if self.pending >= 2 {
            self.queue_timeout(now);
        }
    }

    /// Short requests, one after another: gives away half of the connections that wait behind the one in hand.
    ///
    /// Only while the queue is empty, which says that idle workers took what was given before. Where all are busy a
    /// connection would travel for nothing; there the queue stays filled, and the pool hears of the pressure.
    fn spread(&mut self, now: u64) {
        let Some(found) = self.readable() else { return };
        let waits = found.iter().any(|token| *token == QUEUE || is_listener(*token));
        if !waits {
            let shared = Arc::clone(&self.shared);
            let _moving = shared.moving();
            let mut table = shared.table();
            let own: Vec<Token> = found.into_iter().filter(|token| is_connection(*token)).collect();
            for token in own.iter().take(own.len().div_ceil(2)) {
                give(&shared, &mut table, *token, now);
            }
        }
        self.waiting(waits);
    }

    /// Whether anybody waited at this look: wakes who is idle, and tells the supervisor of a second time in a row.
    fn waiting(&mut self, waits: bool) {
        self.pending = if waits { self.pending + 1 } else { 0 };
        if let (true, Some(queue)) = (waits, &self.shared.queue) {
            queue.ring();
        }
        if self.pending >= 2 && self.pending % PRESSURE_EVERY == 2 {
            self.report(&Report::Pressure);
        }
    }

    /// All workers are busy: notes since when the waiting wait, and refuses those who waited too long.
    fn queue_timeout(&mut self, now: u64) {
        let shared = Arc::clone(&self.shared);
        let (Some(queue), Some(limit)) = (&shared.queue, shared.limits.queue_timeout) else { return };
        for listener in &shared.listeners {
            while let Ok(Some((fd, ends))) = listener.accept() {
                let mut conn = Conn::new(fd, listener.protocol, ends);
                if shared.give(&mut conn, now) {
                    continue;
                }
                conn.arrived = now;
                let mut table = shared.table();
                let token = table.enter();
                shared.rest(&mut table, token, conn);
                break;
            }
        }
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.space.resize(128 * 1024, 0);
        while queue.oldest().is_some_and(|arrived| now.saturating_sub(arrived) > limit) {
            let Some(handed) = queue.take(&mut self.space) else { return };
            let mut conn = Conn::new(handed.fd, handed.protocol, None);
            conn.partial = handed.partial;
            conn.fresh = handed.fresh;
            if now.saturating_sub(handed.arrived) > limit {
                let mut table = shared.table();
                let token = table.enter();
                refuse_late(&shared, &mut table, token, conn, now);
            } else if !shared.give(&mut conn, handed.arrived) {
                // Another took the old one; this one goes back, at worst into this worker's own hands.
                let mut table = shared.table();
                let token = table.enter();
                shared.rest(&mut table, token, conn);
                return;
            }
        }
    }

    /// What a request that takes long is told, and who else.
    fn time(&mut self, age: u64) {
        let over = |limit: Duration| u128::from(age) > limit.as_nanos();
        let ms = age / 1_000_000;
        if self.shared.slow_log.is_some_and(over) && !self.told_slow {
            self.told_slow = true;
            self.report(&Report::Slow { request: self.shared.counters.request(), ms });
        }
        if self.shared.limits.request_timeout.is_some_and(over) && HAND.end(504) {
            self.shared.counters.add_shared(page::WORD_TIMEOUTS, 1);
            self.report(&Report::TimedOut { request: self.shared.counters.request(), ms });
        }
    }

    /// Without a supervisor nobody else would end a request that has no end.
    fn orphaned(&self, now: u64) {
        let limit = self.shared.limits.request_timeout.unwrap_or(ORPHANED);
        if self.gone.is_some_and(|gone| u128::from(now.saturating_sub(gone)) > limit.as_nanos()) {
            HAND.end(504);
            eprintln!(
                "hostler: the supervisor is gone and the request does not end: {}",
                self.shared.counters.request()
            );
            std::process::exit(75);
        }
    }

    fn memory(&mut self) {
        let mut bytes = memory::about();
        let (soft, hard) = (self.shared.memory_soft, self.shared.memory_hard);
        if [soft, hard].into_iter().flatten().any(|limit| bytes > limit - limit / 10) {
            bytes = memory::exact();
        }
        self.shared.counters.memory(bytes);
        if hard.is_some_and(|hard| bytes > hard) && !std::mem::replace(&mut self.told_hard, true) {
            self.report(&Report::OverHard { bytes });
        }
        let at = now();
        if soft.is_some_and(|soft| self.growth.passes(bytes, at, soft))
            && !std::mem::replace(&mut self.told_worn, true)
        {
            self.report(&Report::Worn { why: Wear::Memory });
        }
    }

    fn report(&self, report: &Report) {
        if let Some(link) = &self.shared.link {
            link.report(report);
        }
    }
}

fn is_gone(shared: &Shared) -> bool {
    let mut byte = [0];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    shared.link.as_ref().is_some_and(|link| recv(link.as_fd().as_raw_fd(), &mut byte, flags) == Ok(0))
}

fn is_connection(token: Token) -> bool {
    token <= LISTENER - LISTENERS_MAX as Token
}

fn is_listener(token: Token) -> bool {
    token <= LISTENER && token > LISTENER - LISTENERS_MAX as Token
}

/// Gives a connection that waits to the pool, with its readable bytes still in the socket.
fn give(shared: &Shared, table: &mut Table, token: Token, now: u64) {
    let Some(mut conn) = table.take(token) else { return };
    if !conn.lingering && shared.give(&mut conn, now) {
        table.leave(token);
    } else {
        if conn.partial.as_ref().is_some_and(|p| p.pipelined) {
            table.again.push_back(token);
        }
        shared.rest(table, token, conn);
    }
}

/// Answers 503 on a connection that is in hand, as far as it has said anything.
pub(crate) fn refuse_late(shared: &Shared, table: &mut Table, token: Token, mut conn: Conn, now: u64) {
    let mut bytes = [0; 4096];
    let held = conn.partial.as_ref().map(|p| p.held.clone()).unwrap_or_default();
    let read = if held.is_empty() {
        recv(conn.fd.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT).unwrap_or(0)
    } else {
        0
    };
    let said = if held.is_empty() { bytes.get(..read).unwrap_or_default() } else { &held[..] };
    let (id, head_only) = match (conn.protocol, said.first_chunk::<{ Header::LEN }>()) {
        (Protocol::Http, _) => (0, said.starts_with(b"HEAD ")),
        (Protocol::Fastcgi, Some(head)) => match Header::from_bytes(*head) {
            Ok(Header { kind: Kind::BeginRequest, id, .. }) => (id, false),
            _ => (0, false),
        },
        (Protocol::Fastcgi, None) => (0, false),
    };
    if said.is_empty() || (conn.protocol == Protocol::Fastcgi && id == 0) {
        // No request that waits: a connection at rest, or one whose beginning no answer fits.
        if said.is_empty() {
            shared.rest(table, token, conn);
        } else {
            table.leave(token);
        }
        return;
    }
    shared.counters.add_shared(page::WORD_REJECTED, 1);
    // What is unread would turn the close into a reset that takes the answer with it.
    while recv(conn.fd.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT).is_ok_and(|n| n > 0) {}
    send_ready(conn.fd.as_fd(), 503, conn.protocol, id, head_only);
    conn.partial = None;
    conn.lingering = true;
    conn.deadline = now + LINGER;
    shared.rest(table, token, conn);
}
