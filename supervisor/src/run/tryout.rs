//! What `hostler check` asks of an app: whether a worker of each pool boots, as its real user and with its real
//! limits, without serving.
//!
//! Always holds: such a worker has no listener and a hand-over queue of its own, so that no request can reach it; it
//! is ended when it has said that it is ready or cannot be, or when `boot_timeout` is over, with all that it started;
//! a few boot at a time.
//!
//! Limitation: what an app does to the world when it boots, it does here too.

use super::{
    link::{Queue, Received},
    place::Revision,
    reap::{self, End},
    spawn::{self, Started, Which},
    temporary::Temporary,
};
use crate::{
    fleet::{Kind, WorkerId},
    settings::Pool,
};
use hostler_worker::control::{MESSAGE_LIMIT, Order, Report};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{Pid, read},
};
use std::{
    collections::VecDeque,
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

/// Workers that boot at a time.
const AT_ONCE: usize = 8;
/// How long a worker that was tried may take to leave.
const LEAVE: Duration = Duration::from_secs(1);
/// Bytes of a worker's output that are kept for the message.
const SAID: usize = 4096;
/// Until it is looked whether a worker has left.
const LOOK: Duration = Duration::from_millis(1);
/// Milliseconds between two looks at what workers wrote.
const MOMENT: u8 = 20;

/// A worker that boots.
struct Tryout {
    pool: Pool,
    started: Started,
    _queue: Queue,
    said: Vec<u8>,
    until: Instant,
}

/// Boots a worker of each pool, and says why those that did not boot did not.
pub(crate) fn boot(pools: Vec<Pool>) -> Vec<(String, String)> {
    let mut waiting = VecDeque::from(pools);
    let mut running: Vec<Tryout> = Vec::new();
    let mut faults = Vec::new();
    let mut temporary = Temporary::default();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => return vec![(String::new(), format!("find the own program: {e}"))],
    };
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < AT_ONCE
            && let Some(pool) = waiting.pop_front()
        {
            let name = pool.name.clone();
            match Tryout::start(pool, &program, &mut temporary) {
                Ok(tryout) => running.push(tryout),
                Err(message) => faults.push((name, message)),
            }
        }
        wait(&running);
        for mut tryout in std::mem::take(&mut running) {
            match tryout.verdict() {
                None => running.push(tryout),
                Some(verdict) => {
                    let end = tryout.end();
                    faults.extend(verdict.fault(&tryout, end).map(|fault| (tryout.pool.name.clone(), fault)));
                }
            }
        }
    }
    faults
}

/// What a worker that boots came to.
enum Verdict {
    Ready,
    Refused(String),
    Died,
    Late,
}

impl Verdict {
    fn fault(self, tryout: &Tryout, end: Option<End>) -> Option<String> {
        let said = tryout.last_line();
        let said = if said.is_empty() { said } else { format!("; it said: {said}") };
        match self {
            Verdict::Ready => None,
            Verdict::Refused(message) => Some(message),
            Verdict::Late => Some(format!("it was not ready within {:?}{said}", tryout.pool.boot_timeout)),
            Verdict::Died => {
                let end = end.map_or_else(|| "it closed its control socket".to_owned(), End::said);
                Some(format!("{end}{said}"))
            }
        }
    }
}

impl Tryout {
    fn start(mut pool: Pool, program: &Path, temporary: &mut Temporary) -> Result<Tryout, String> {
        pool.access_log = None; // nothing is left behind
        let queue = Queue::new().map_err(|e| format!("make the hand-over queue: {e}"))?;
        let until = Instant::now() + pool.boot_timeout;
        let revision = Revision { settings: pool, sockets: Vec::new() };
        let which = Which { worker: WorkerId(0), kind: Kind::App, generation: 0, lot: 0 };
        let started = temporary
            .of(&revision.settings)
            .and_then(|temporary| spawn::start(program, None, &revision, temporary, &queue, which))
            .map_err(|e| e.to_string())?;
        Ok(Tryout { pool: revision.settings, started, _queue: queue, said: Vec::new(), until })
    }

    /// What it came to, where that is known.
    fn verdict(&mut self) -> Option<Verdict> {
        self.listen();
        let mut buffer = vec![0; MESSAGE_LIMIT];
        loop {
            match self.started.link.receive(&mut buffer) {
                Received::Report(Report::Ready) => return Some(Verdict::Ready),
                Received::Report(Report::BootFailed { message }) => return Some(Verdict::Refused(message)),
                Received::Report(_) => {}
                Received::Nothing if Instant::now() >= self.until => return Some(Verdict::Late),
                Received::Nothing => return None,
                Received::Over(_) => return Some(Verdict::Died),
            }
        }
    }

    /// Reads what it wrote.
    fn listen(&mut self) {
        let mut buffer = [0; SAID];
        for fd in &self.started.output {
            loop {
                match read(fd, &mut buffer) {
                    Ok(0) | Err(Errno::EAGAIN) => break,
                    Ok(n) => self.said.extend(buffer.get(..n).unwrap_or_default()),
                    Err(Errno::EINTR) => {}
                    Err(_) => break,
                }
            }
        }
        let over = self.said.len().saturating_sub(SAID);
        self.said.drain(..over);
    }

    fn last_line(&self) -> String {
        let last = self.said.split(|byte| *byte == b'\n').rfind(|line| !line.trim_ascii().is_empty());
        super::lines::escaped(last.unwrap_or_default().trim_ascii())
    }

    /// Lets it leave, and ends it with all that it started where it does not. How it ended by itself.
    fn end(&mut self) -> Option<End> {
        let pid = Pid::from_raw(self.started.pid);
        let _ = self.started.link.send(&Order::Retire, &[]); // it may be gone
        let until = Instant::now() + LEAVE;
        let mut end = None;
        while end.is_none() && Instant::now() < until {
            end = reap::ended(pid);
            if end.is_none() {
                self.listen();
                std::thread::sleep(LOOK);
            }
        }
        self.listen();
        reap::sweep(pid);
        reap::await_end(pid);
        end
    }
}

/// Waits until one of them has something to say, or is late; and a moment at most, since their output is to be read.
fn wait(running: &[Tryout]) {
    let links = running.iter().map(|tryout| PollFd::new(tryout.started.link.0.as_fd(), PollFlags::POLLIN));
    let mut links: Vec<PollFd<'_>> = links.collect();
    let _ = poll(&mut links, PollTimeout::from(MOMENT)); // whatever came, all are looked at
}
