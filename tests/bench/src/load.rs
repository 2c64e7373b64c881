//! What load to put on a server, and what came of it.
//!
//! Does no I/O: [`crate::driver::run`] makes an [`Outcome`] of a [`Plan`].

use crate::{address::Address, request::Request, times::Times};
use std::{fmt, io, time::Duration};

/// A closed-loop load: each connection has one request in flight, and sends the next on the answer.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where.
    pub address: Address,
    /// What each connection asks for.
    pub request: Request,
    /// This fraction of requests, chosen by chance, asks for something else.
    pub slow: Option<(f64, Request)>,
    /// Connections.
    pub connections: usize,
    /// Nothing counts before this time has passed.
    pub warm_up: Duration,
    /// When to stop.
    pub until: Until,
    /// An answer whose first 4 KiB do not hold this text is an error.
    pub expect: String,
    /// Account the CPU time and private memory of this process and all of its descendants.
    pub tree: Option<u32>,
    /// Account the CPU time of this process and its descendants apart: a web server in front.
    pub front: Option<u32>,
}

/// When a load stops.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After a time.
    Elapsed(Duration),
    /// After so many answers, errors among them.
    Answers(u64),
}

impl Plan {
    /// `connections` that send `request` for `seconds`, after a warm-up of 200 ms.
    #[must_use]
    pub fn new(address: Address, request: Request, connections: usize, seconds: f64) -> Self {
        let (warm_up, until) = (Duration::from_millis(200), Until::Elapsed(Duration::from_secs_f64(seconds)));
        let (slow, expect, tree, front) = (None, "hello".into(), None, None);
        Self { address, request, slow, connections, warm_up, until, expect, tree, front }
    }
}

/// What came of a load.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Right answers.
    pub requests: u64,
    /// Wrong answers, and connections closed without a whole one.
    pub errors: u64,
    /// The first few errors in words.
    pub complaints: Vec<String>,
    /// What was measured over.
    pub elapsed: Duration,
    /// Times of right answers.
    pub all: Times,
    /// Times of right answers to other than slow requests.
    pub quick: Times,
    /// Right answers to each connection.
    pub served: Vec<u64>,
    /// Connections made, the first ones among them.
    pub dialled: u64,
    /// CPU time of the process tree.
    pub cpu: Option<Duration>,
    /// CPU time of the process tree in front.
    pub front_cpu: Option<Duration>,
    /// Private memory of the process tree at the end, connections still open, in bytes.
    pub memory: Option<u64>,
}

impl Outcome {
    /// Right answers a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        real(self.requests) / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Microseconds of CPU a right answer.
    #[must_use]
    pub fn cpu_us(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / real(self.requests.max(1)))
    }

    /// Microseconds of CPU of the web server in front a right answer.
    #[must_use]
    pub fn front_cpu_us(&self) -> Option<f64> {
        self.front_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / real(self.requests.max(1)))
    }

    /// Answers of the connection that got the fewest, and of the one that got the most.
    #[must_use]
    pub fn fairness(&self) -> (u64, u64) {
        let count = self.served.iter().copied();
        (count.clone().min().unwrap_or(0), count.max().unwrap_or(0))
    }

    /// Connections that got at least one answer.
    #[must_use]
    pub fn connections_served(&self) -> usize {
        self.served.iter().filter(|count| **count > 0).count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fewest, most) = self.fairness();
        writeln!(
            f,
            "requests     {} in {:.2} s, {} errors",
            self.requests,
            self.elapsed.as_secs_f64(),
            self.errors
        )?;
        writeln!(f, "rate         {:.0} /s", self.rate())?;
        writeln!(f, "all          {}", self.all)?;
        writeln!(f, "but slow     {}", self.quick)?;
        writeln!(
            f,
            "connections  {} of {} served, {fewest} to {most} answers each; {} made",
            self.connections_served(),
            self.served.len(),
            self.dialled
        )?;
        if let (Some(cpu), Some(memory)) = (self.cpu_us(), self.memory) {
            writeln!(
                f,
                "server       {cpu:.2} us of CPU a request, {:.2} MiB private memory",
                real(memory) / 1_048_576.0
            )?;
        }
        self.complaints.iter().try_for_each(|complaint| writeln!(f, "error        {complaint}"))
    }
}

/// What kept a measurement from being made.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// One lower-case phrase that names the thing and what was tried.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// What was tried, and what the system said.
    pub fn system(what: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Self(format!("{what}: {}", source.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A count as a real number, for rates and means; exact up to 2^53.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of requests and bytes are far below 2^53")]
pub fn real(count: u64) -> f64 {
    count as f64
}
