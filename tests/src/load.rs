//! Constant load from several clients at once, kept and fresh connections, GET and POST, and a count of every
//! request that did not get its whole, right answer.
//!
//! Always holds: a request that is not answered with 200 and its own content is a failure, with what it got.

use crate::{http::Connection, net::Address};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Load that runs until it is told to end.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Tally>>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests with the right answer.
    pub served: u64,
    /// What others got.
    pub failures: Vec<String>,
    /// The longest that a request took.
    pub slowest: Duration,
}

impl Load {
    /// `clients` threads against an HTTP server: the odd ones connect anew for each request. They ask for `/echo`
    /// (POST, sent back) and for `get`.
    #[must_use]
    pub fn start(address: &Address, clients: usize, get: &'static str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicU64::new(0));
        let threads = (0..clients)
            .map(|client| {
                let (address, stop, served) = (address.clone(), Arc::clone(&stop), Arc::clone(&served));
                std::thread::spawn(move || drive(&address, client, get, &stop, &served))
            })
            .collect();
        Load { stop, served, threads }
    }

    /// Waits until `n` more requests have been served: time measured in work done.
    ///
    /// # Panics
    /// Where that takes over a minute.
    pub fn serve(&self, n: u64) {
        let until = self.served.load(Ordering::Relaxed) + n;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.served.load(Ordering::Relaxed) < until {
            assert!(Instant::now() < deadline, "{n} requests are not served in a minute");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it.
    ///
    /// # Panics
    /// Where a client panicked.
    #[must_use]
    pub fn end(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for thread in self.threads {
            let tally = thread.join().unwrap();
            all.served += tally.served;
            all.failures.extend(tally.failures);
            all.slowest = all.slowest.max(tally.slowest);
        }
        all
    }
}

impl Tally {
    /// Checks that there was some load and no failure.
    ///
    /// # Panics
    /// Where there was not, or was.
    pub fn is_clean(&self) {
        assert!(self.served > 0, "nothing was served");
        let shown = self.failures.iter().take(5).collect::<Vec<_>>();
        assert!(self.failures.is_empty(), "{} of {} failed: {shown:#?}", self.failures.len(), self.served);
    }
}

fn drive(address: &Address, client: usize, get: &str, stop: &AtomicBool, served: &AtomicU64) -> Tally {
    let mut tally = Tally::default();
    let mut kept: Option<Connection> = None;
    let body = crate::place::bytes(3000, client as u64);
    for turn in 0_u64.. {
        if stop.load(Ordering::Relaxed) || tally.failures.len() > 100 {
            break;
        }
        let begun = Instant::now();
        match one(address, &mut kept, get, turn % 3 == 0, &body) {
            Ok(()) => {
                tally.served += 1;
                served.fetch_add(1, Ordering::Relaxed);
                tally.slowest = tally.slowest.max(begun.elapsed());
                if client % 2 == 1 {
                    kept = None;
                }
            }
            Err(what) => {
                tally
                    .failures
                    .push(format!("client {client}, request {turn}, {:?}: {what}", begun.elapsed()));
                kept = None;
            }
        }
    }
    tally
}

/// One request; a POST gets its body back.
fn one(
    address: &Address,
    kept: &mut Option<Connection>,
    get: &str,
    post: bool,
    body: &[u8],
) -> Result<(), String> {
    let connection = match kept {
        Some(connection) => connection,
        None => kept.insert(Connection::over(address.try_connect().map_err(|e| format!("connect: {e}"))?)),
    };
    let (method, target) = if post { ("POST", "/echo") } else { ("GET", get) };
    let length = if post { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n").into_bytes();
    if post {
        request.extend(body);
    }
    std::io::Write::write_all(connection.stream(), &request).map_err(|e| format!("{method}: send: {e}"))?;
    let answer = connection.answer(method).map_err(|e| format!("{method}: {e:?}"))?;
    if answer.status != 200 {
        return Err(format!("{method}: {} {}", answer.status, answer.text()));
    }
    if post && answer.body != body {
        return Err(format!("{method}: {} bytes back, not those that were sent", answer.body.len()));
    }
    Ok(())
}
