//! The state of a supervisor as others see it: `GET /status` on the control socket, `hostler status --json`.
//!
//! The names are pinned: a script that reads them today reads them in ten years. Times of day are whole seconds
//! since 1970, sizes are bytes, short times are micro- or milliseconds as their names say.
//!
//! Does no I/O: the supervisor fills it in, the client renders it.

use hostler_worker::control::Protocol;
use serde::{Deserialize, Serialize};
use std::fmt;

pub(crate) mod table;

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Of the running supervisor.
    pub version: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// When it was started; a re-exec is no start.
    pub started: u64,
    /// In the order of the config.
    pub pools: Vec<Pool>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pool {
    /// Its name.
    pub name: String,
    /// How it does.
    pub state: PoolState,
    /// Grows with each reload.
    pub generation: u64,
    /// As in the config; several are joined by `+`.
    pub runtime: String,
    /// Where requests come from.
    pub listeners: Vec<Listener>,
    /// The worker processes.
    pub workers: Vec<Worker>,
    /// How many there may be, those that retire aside.
    #[serde(default)]
    pub workers_max: u32,
    /// Counts since the supervisor's start.
    pub totals: Totals,
    /// How long requests took.
    pub latency_us: Percentiles,
    /// How long requests waited for a worker.
    pub queue_us: Percentiles,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

/// How a pool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolState {
    /// No worker has been ready yet.
    Starting,
    /// It serves.
    Running,
    /// It serves, and something is wrong.
    Degraded,
    /// It answers 503: its workers cannot start.
    Failed,
    /// It answers 503: somebody stopped it.
    Stopped,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listener {
    /// As in the config.
    pub address: String,
    /// What is spoken.
    pub protocol: Protocol,
    /// Connections that wait in the kernel; `None` where the kernel does not tell.
    pub queue: Option<u32>,
    /// How many may wait.
    pub backlog: u32,
}

/// One worker process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Worker {
    /// Process id.
    pub pid: u32,
    /// Generation of the pool that it belongs to.
    pub generation: u64,
    /// What it does.
    pub state: WorkerState,
    /// Requests that it has answered.
    pub requests: u64,
    /// Connections that it holds.
    pub connections: u64,
    /// Private memory, its own and its children's.
    pub memory_bytes: u64,
    /// When it was started.
    pub started: u64,
    /// The request in hand.
    pub request: Option<Request>,
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WorkerState {
    /// Not ready yet.
    Booting,
    /// Waits for a request.
    Idle,
    /// Has a request in hand.
    Busy,
    /// Takes no new request and leaves.
    Retiring,
}

/// A request in hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// `GET`.
    pub method: String,
    /// `/path`.
    pub uri: String,
    /// Its age.
    pub ms: u64,
}

/// Counts since the supervisor's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Requests answered.
    pub requests: u64,
    /// Of them, with a status of 500 and more.
    pub errors: u64,
    /// Workers that died.
    pub crashes: u64,
    /// Requests over `request_timeout`.
    pub timeouts: u64,
    /// Workers replaced for their memory.
    pub recycled_memory: u64,
    /// Workers replaced for `max_requests`.
    pub recycled_requests: u64,
    /// Workers killed for their memory.
    pub killed_memory: u64,
    /// Requests refused with 503.
    pub rejected: u64,
    /// Reloads that ended well.
    pub reloads: u64,
    /// Reloads that kept the old generation.
    pub failed_reloads: u64,
}

/// Times below which this part of all requests lay, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// Half.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
}

impl PoolState {
    /// Whether requests reach the app.
    pub(crate) fn serves(self) -> bool {
        matches!(self, PoolState::Running | PoolState::Degraded)
    }
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PoolState::Starting => "starting",
            PoolState::Running => "running",
            PoolState::Degraded => "degraded",
            PoolState::Failed => "failed",
            PoolState::Stopped => "stopped",
        })
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            WorkerState::Booting => "booting",
            WorkerState::Idle => "idle",
            WorkerState::Busy => "busy",
            WorkerState::Retiring => "retiring",
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One pool with one busy worker.
    pub(crate) fn sample() -> Status {
        Status {
            version: "0.1.0".into(),
            pid: 7,
            started: 1_800_000_000,
            pools: vec![Pool {
                name: "shop".into(),
                state: PoolState::Running,
                generation: 3,
                runtime: "cgi+files".into(),
                listeners: vec![Listener {
                    address: "unix:/run/shop".into(),
                    protocol: Protocol::Fastcgi,
                    queue: Some(0),
                    backlog: 4096,
                }],
                workers: vec![Worker {
                    pid: 8,
                    generation: 3,
                    state: WorkerState::Busy,
                    requests: 1234,
                    connections: 5,
                    memory_bytes: 12 << 20,
                    started: 1_800_000_100,
                    request: Some(Request { method: "GET".into(), uri: "/cart".into(), ms: 17 }),
                }],
                workers_max: 8,
                totals: Totals { requests: 5000, crashes: 1, ..Totals::default() },
                latency_us: Percentiles { p50: 900, p90: 2000, p99: 15_000, p999: 1_200_000 },
                queue_us: Percentiles::default(),
                last_error: None,
            }],
        }
    }

    #[test]
    fn the_names_are_the_pinned_ones_and_how_many_workers_there_may_be() {
        let json = serde_json::to_value(sample()).unwrap();
        let keys = |value: &serde_json::Value| {
            let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys.join(" ")
        };
        assert_eq!(keys(&json), "pid pools started version");
        let pool = &json["pools"][0];
        assert_eq!(
            keys(pool),
            "generation last_error latency_us listeners name queue_us runtime state totals workers workers_max"
        );
        assert_eq!(keys(&pool["listeners"][0]), "address backlog protocol queue");
        assert_eq!(
            keys(&pool["workers"][0]),
            "connections generation memory_bytes pid request requests started state"
        );
        assert_eq!(keys(&pool["workers"][0]["request"]), "method ms uri");
        assert_eq!(
            keys(&pool["totals"]),
            "crashes errors failed_reloads killed_memory recycled_memory recycled_requests rejected reloads \
             requests timeouts"
        );
        assert_eq!(keys(&pool["latency_us"]), "p50 p90 p99 p999");
        assert_eq!((&pool["state"], &pool["workers"][0]["state"]), (&"running".into(), &"busy".into()));
        assert!(pool["last_error"].is_null());
    }

    #[test]
    fn a_status_survives_the_wire() {
        let json = serde_json::to_string(&sample()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), sample());
    }
}
