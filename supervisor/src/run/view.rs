//! What the control socket shows: fleet, pages and places put together.

use super::{
    Shell,
    place::{Place, Socket},
    waiting::Waiting,
    worker::Worker,
};
use crate::{
    control::View,
    fleet::{self, Kind, PoolId, State},
    status,
};
use hostler_worker::page::{self, Snapshot, percentile};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

impl View for Shell {
    fn status(&self) -> status::Status {
        let mut workers: BTreeMap<PoolId, Vec<&Worker>> = BTreeMap::new();
        for worker in self.workers.values() {
            workers.entry(worker.pool).or_default().push(worker);
        }
        let waiting = Waiting::ask();
        let none = Vec::new();
        let running = self.places.iter().filter_map(|(id, place)| {
            self.pool_status(*id, place, workers.get(id).unwrap_or(&none), &waiting)
        });
        let broken = self
            .broken
            .iter()
            .filter(|(name, _)| !self.names.contains_key(*name))
            .map(|(name, broken)| broken_status(name, &broken.message));
        status::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: seconds(self.started),
            pools: running.chain(broken).collect(),
        }
    }
}

impl Shell {
    fn pool_status(
        &self,
        id: PoolId,
        place: &Place,
        workers: &[&Worker],
        waiting: &Waiting,
    ) -> Option<status::Pool> {
        let pool = self.fleet.pool(id)?;
        let current = place.current()?;
        let settings = &current.settings;
        let mut counts = place.gone.clone();
        let mut shown = Vec::new();
        for worker in workers {
            let page = worker.page.read();
            if let Some(page) = page.as_ref().filter(|_| worker.kind == Kind::App) {
                counts.add(page);
            }
            shown.push(worker_status(worker, worker.state(pool), page.as_ref()));
        }
        let totals = pool.totals();
        let broken = self.broken.get(&place.name).map(|broken| broken.message.as_str());
        Some(status::Pool {
            name: place.name.clone(),
            state: pool.state().into(),
            generation: pool.generation(),
            runtime: settings.runtime.clone(),
            listeners: current.sockets.iter().map(|socket| listener_status(socket, waiting)).collect(),
            workers: shown,
            workers_max: settings.model.most(),
            totals: status::Totals {
                requests: counts.requests,
                errors: counts.errors,
                crashes: totals.crashes,
                timeouts: counts.timeouts,
                recycled_memory: totals.recycled_memory,
                recycled_requests: totals.recycled_requests,
                killed_memory: totals.killed_memory,
                rejected: counts.rejected,
                reloads: totals.reloads,
                failed_reloads: totals.failed_reloads,
            },
            latency_us: percentiles(&counts.latency),
            queue_us: percentiles(&counts.queue),
            last_error: broken.or(pool.last_error()).map(str::to_owned),
        })
    }
}

fn listener_status(socket: &Socket, waiting: &Waiting) -> status::Listener {
    let listen = &socket.listen;
    status::Listener {
        address: listen.address.to_string(),
        protocol: listen.protocol,
        queue: waiting.at(&socket.bound.fd),
        backlog: listen.backlog,
    }
}

impl Worker {
    /// What the fleet thinks that it does; `None` where it knows it no more.
    fn state(&self, pool: &fleet::Pool) -> Option<State> {
        pool.worker(self.id).map(fleet::Worker::state)
    }
}

fn worker_status(worker: &Worker, state: Option<State>, page: Option<&Snapshot>) -> status::Worker {
    let word = |word| page.map_or(0, |page| page.word(word));
    let busy = page.is_some_and(|page| page.state() == page::State::Busy);
    let state = match state {
        Some(State::Booting) => status::WorkerState::Booting,
        Some(State::Serving | State::Worn | State::Overdue) if busy => status::WorkerState::Busy,
        Some(State::Serving | State::Worn | State::Overdue) => status::WorkerState::Idle,
        Some(State::Retiring | State::Terminating | State::Killing) | None => status::WorkerState::Retiring,
    };
    let since = word(page::WORD_BUSY_SINCE);
    let request = page.filter(|_| since > 0).map(|page| {
        let (method, uri) = page.request().split_once(' ').unwrap_or(("", page.request()));
        let now = u64::try_from(super::now().as_nanos()).unwrap_or(u64::MAX);
        status::Request {
            method: method.to_owned(),
            uri: uri.to_owned(),
            ms: now.saturating_sub(since) / 1_000_000,
        }
    });
    status::Worker {
        pid: u32::try_from(worker.pid).unwrap_or(0),
        generation: worker.generation,
        state,
        requests: word(page::WORD_REQUESTS),
        connections: word(page::WORD_CONNECTIONS),
        memory_bytes: word(page::WORD_MEMORY),
        started: seconds(worker.started),
        request,
    }
}

/// A pool that is in the config but could not be set up.
fn broken_status(name: &str, message: &str) -> status::Pool {
    status::Pool {
        name: name.to_owned(),
        state: status::PoolState::Failed,
        generation: 0,
        runtime: String::new(),
        listeners: Vec::new(),
        workers: Vec::new(),
        workers_max: 0,
        totals: status::Totals::default(),
        latency_us: status::Percentiles::default(),
        queue_us: status::Percentiles::default(),
        last_error: Some(message.to_owned()),
    }
}

fn percentiles(buckets: &[u64]) -> status::Percentiles {
    let at = |q| percentile(buckets, q);
    status::Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map(|t| t.as_secs()).unwrap_or(0)
}

impl From<fleet::PoolState> for status::PoolState {
    fn from(state: fleet::PoolState) -> status::PoolState {
        match state {
            fleet::PoolState::Starting => status::PoolState::Starting,
            fleet::PoolState::Running => status::PoolState::Running,
            fleet::PoolState::Degraded => status::PoolState::Degraded,
            fleet::PoolState::Failed => status::PoolState::Failed,
            fleet::PoolState::Stopped => status::PoolState::Stopped,
        }
    }
}
