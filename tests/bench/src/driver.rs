//! The load itself: one thread, one epoll, prebuilt bytes.
//!
//! Always holds: at most one request is in flight on a connection; a wrong answer ends its connection, and a
//! new one takes its place; where nothing comes for [`PATIENCE`], the load ends with an error and no hang.
//! Where an answer's bytes equal those of the last right answer, they are compared and not parsed.

use crate::{
    answer::{Answer, Progress},
    load::{Error, Outcome, Plan, Until},
    times::Times,
    tree,
};
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{MsgFlags, recv, send},
    },
};
use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    thread,
    time::{Duration, Instant},
};

/// How long a load goes on without any answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Puts `plan`'s load on its server and says what came of it.
///
/// # Errors
/// Where the first connections cannot be made, or the system refuses an epoll.
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    let mut driver = Driver::new(plan)?;
    driver.drive()?;
    Ok(driver.finish())
}

struct Driver<'a> {
    plan: &'a Plan,
    quick: Vec<u8>,
    slow: Vec<u8>,
    epoll: Epoll,
    connections: Vec<Connection>,
    /// The last right answer that came in one piece.
    known: Vec<u8>,
    dice: Dice,
    outcome: Outcome,
    began: Instant,
    /// Of the server, and of what stands in front.
    cpu_before: [Option<Duration>; 2],
    last_answer: Instant,
}

struct Connection {
    /// `None` only while a new one is made.
    socket: Option<OwnedFd>,
    answer: Answer,
    is_slow: bool,
    sent: usize,
    waits_for_room: bool,
    started: Instant,
}

impl Connection {
    fn descriptor(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl<'a> Driver<'a> {
    fn new(plan: &'a Plan) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| Error::system("an epoll for the load", errno))?;
        let now = Instant::now();
        Ok(Self {
            plan,
            quick: plan.request.to_bytes(),
            slow: plan.slow.as_ref().map(|(_, request)| request.to_bytes()).unwrap_or_default(),
            epoll,
            connections: Vec::with_capacity(plan.connections),
            known: Vec::new(),
            dice: Dice(0x9E37_79B9_7F4A_7C15),
            outcome: blank(plan.connections),
            began: now,
            cpu_before: [None; 2],
            last_answer: now,
        })
    }

    fn drive(&mut self) -> Result<(), Error> {
        for at in 0..self.plan.connections {
            let socket = Some(self.dial(at)?);
            let answer = Answer::new(self.plan.request.protocol);
            let started = Instant::now();
            self.connections.push(Connection {
                socket,
                answer,
                is_slow: false,
                sent: 0,
                waits_for_room: false,
                started,
            });
            self.start(at, started);
        }
        let mut buffer = vec![0; 1 << 17];
        let mut events = [EpollEvent::empty(); 256];
        self.turn(self.plan.warm_up, None, &mut events, &mut buffer)?;
        let dialled = self.outcome.dialled;
        self.outcome = Outcome { dialled, ..blank(self.plan.connections) };
        self.cpu_before = [self.plan.tree, self.plan.front].map(|root| root.map(tree::cpu));
        self.began = Instant::now();
        match self.plan.until {
            Until::Elapsed(time) => self.turn(time, None, &mut events, &mut buffer),
            Until::Answers(count) => self.turn(Duration::MAX, Some(count), &mut events, &mut buffer),
        }
    }

    /// Serves events until `time` has passed or `answers` were had.
    fn turn(
        &mut self,
        time: Duration,
        answers: Option<u64>,
        events: &mut [EpollEvent],
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let began = Instant::now();
        self.last_answer = began;
        let mut now = began;
        while now.duration_since(began) < time
            && answers.is_none_or(|count| self.outcome.requests + self.outcome.errors < count)
        {
            let ready = match self.epoll.wait(events, EpollTimeout::from(100u8)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(Error::system("waiting for answers", errno)),
            };
            for event in events.iter().take(ready) {
                self.ready(usize::try_from(event.data()).unwrap_or(0), event.events(), buffer)?;
            }
            now = Instant::now();
            if now.duration_since(self.last_answer) > PATIENCE {
                self.complain(&format!("no answer for {} s", PATIENCE.as_secs()));
                break;
            }
        }
        Ok(())
    }

    fn ready(&mut self, at: usize, flags: EpollFlags, buffer: &mut [u8]) -> Result<(), Error> {
        if flags == EpollFlags::EPOLLOUT {
            self.flush(at);
            return Ok(());
        }
        let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
        let progress = match recv(connection.descriptor(), buffer, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Ok(0) => connection.answer.end(),
            Err(_) if connection.answer.begun() => Progress::Wrong("cut answer"),
            Err(_) => Progress::Wrong("closed without an answer"),
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                let first = !connection.answer.begun();
                if first && bytes == self.known {
                    return self.answered(at);
                }
                let progress = connection.answer.feed(bytes);
                let right =
                    progress == Progress::Whole && connection.answer.shows(self.plan.expect.as_bytes());
                if first && right && !connection.is_slow {
                    self.known.clear();
                    self.known.extend_from_slice(bytes);
                }
                progress
            }
        };
        match progress {
            Progress::Partial if flags.contains(EpollFlags::EPOLLOUT) => self.flush(at),
            Progress::Partial => {}
            Progress::Wrong(why) => return self.failed(at, why),
            Progress::Whole if !connection.answer.shows(self.plan.expect.as_bytes()) => {
                return self.failed(at, "an answer without the expected text");
            }
            Progress::Whole => return self.answered(at),
        }
        Ok(())
    }

    fn answered(&mut self, at: usize) -> Result<(), Error> {
        let now = Instant::now();
        self.last_answer = now;
        if let (Some(connection), Some(served)) = (self.connections.get(at), self.outcome.served.get_mut(at))
        {
            let took = now.duration_since(connection.started);
            self.outcome.all.record(took);
            if !connection.is_slow {
                self.outcome.quick.record(took);
            }
            self.outcome.requests += 1;
            *served += 1;
        }
        if self.plan.request.keep {
            self.start(at, now);
            return Ok(());
        }
        self.renew(at)
    }

    fn failed(&mut self, at: usize, why: &str) -> Result<(), Error> {
        let seen = self.connections.get(at).map(|connection| connection.answer.seen()).unwrap_or_default();
        self.complain(&if seen.is_empty() { why.to_string() } else { format!("{why}: {seen:?}") });
        self.renew(at)
    }

    fn complain(&mut self, complaint: &str) {
        self.outcome.errors += 1;
        let known = &mut self.outcome.complaints;
        if known.len() < 5 && !known.iter().any(|old| old == complaint) {
            known.push(complaint.to_string());
        }
    }

    /// A new connection in the place of one that is done or broken; the old one is closed first.
    fn renew(&mut self, at: usize) -> Result<(), Error> {
        if let Some(connection) = self.connections.get_mut(at) {
            (connection.socket, connection.waits_for_room) = (None, false);
        }
        let socket = self.dial(at)?;
        if let Some(connection) = self.connections.get_mut(at) {
            connection.socket = Some(socket);
        }
        self.start(at, Instant::now());
        Ok(())
    }

    fn dial(&mut self, at: usize) -> Result<OwnedFd, Error> {
        let began = Instant::now();
        loop {
            match self.plan.address.connect() {
                Ok(socket) => {
                    self.outcome.dialled += 1;
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::try_from(at).unwrap_or(0));
                    self.epoll
                        .add(&socket, event)
                        .map_err(|errno| Error::system("watching a connection", errno))?;
                    return Ok(socket);
                }
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(Error::system(format!("connecting to {}", self.plan.address), error));
                }
                Err(error) => {
                    self.complain(&format!("connect: {error}"));
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    fn start(&mut self, at: usize, now: Instant) {
        let is_slow = self.plan.slow.as_ref().is_some_and(|(fraction, _)| self.dice.roll() < *fraction);
        if let Some(connection) = self.connections.get_mut(at) {
            connection.answer.clear();
            (connection.is_slow, connection.sent, connection.started) = (is_slow, 0, now);
        }
        self.flush(at);
    }

    /// Sends what the socket takes, and asks to be told of room for the rest.
    fn flush(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let request = if connection.is_slow { &self.slow } else { &self.quick };
        while let Some(rest) = request.get(connection.sent..).filter(|rest| !rest.is_empty()) {
            match send(connection.descriptor(), rest, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => connection.sent += count,
                Err(_) => break, // no room, or a break that the next read reports
            }
        }
        let waits = connection.sent < request.len();
        if waits != connection.waits_for_room {
            connection.waits_for_room = waits;
            let flags = if waits { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            let mut event = EpollEvent::new(flags, u64::try_from(at).unwrap_or(0));
            if let Some(socket) = &connection.socket {
                let _ = self.epoll.modify(socket, &mut event);
            }
        }
    }

    fn finish(mut self) -> Outcome {
        self.outcome.elapsed = self.began.elapsed();
        let spent =
            |root: Option<u32>, before: Option<Duration>| Some(tree::cpu(root?).saturating_sub(before?));
        let [server, front] = self.cpu_before;
        self.outcome.cpu = spent(self.plan.tree, server);
        self.outcome.front_cpu = spent(self.plan.front, front);
        self.outcome.memory = self.plan.tree.map(tree::private_memory);
        self.outcome
    }
}

fn blank(connections: usize) -> Outcome {
    Outcome {
        requests: 0,
        errors: 0,
        complaints: Vec::new(),
        elapsed: Duration::ZERO,
        all: Times::default(),
        quick: Times::default(),
        served: vec![0; connections],
        dialled: 0,
        cpu: None,
        front_cpu: None,
        memory: None,
    }
}

/// Repeatable chance (xorshift64).
struct Dice(u64);

impl Dice {
    /// Evenly in 0.0..1.0.
    fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        crate::load::real(self.0 >> 11) / crate::load::real(1 << 53)
    }
}
