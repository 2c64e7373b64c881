//! The configuration as meant: resolved, typed, checked. `config` makes it from the configuration as written;
//! nothing else builds one outside tests, so what stands here is known to be sound.
//!
//! Does no I/O.

use hostler_worker::control::{AccessLogFormat, App, Identity, Limits, Protocol, Sandbox};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// `[supervisor]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Supervisor {
    /// Path of the control socket.
    pub control: PathBuf,
    /// How long a graceful stop may take.
    pub stop_timeout: Duration,
    /// Where and how to log.
    pub log: Log,
}

/// `log = { level, format, file }`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: tracing::Level,
    /// Form of a line.
    pub format: LogFormat,
    /// `None`: standard error.
    pub file: Option<PathBuf>,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
    /// For systemd's journal: a `<priority>` prefix, no time of its own.
    Journal,
}

/// `[pool.NAME]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pool {
    /// Its name: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// The config file in which it stands.
    pub file: PathBuf,
    /// Its listeners; no address stands in two pools.
    pub listen: Vec<Listen>,
    /// Whom its workers become; `None` where the supervisor does not run as root.
    pub user: Option<Identity>,
    /// Working directory of its workers.
    pub directory: Option<PathBuf>,
    /// File mode creation mask.
    pub umask: u32,
    /// The whole environment of its workers: PATH, `keep_env`, `env`, and HOME, USER and LOGNAME of its user.
    pub env: BTreeMap<String, String>,
    /// What the workers execute for themselves (`runtime = "native"`); `None`: Hostler's own worker.
    pub command: Option<Vec<String>>,
    /// The word written as `runtime`, for status.
    pub runtime: String,
    /// Which app answers what; empty with `command`.
    pub apps: Vec<App>,
    /// Times and sizes that a peer cannot pass.
    pub limits: Limits,
    /// How many workers.
    pub model: Model,
    /// Requests after which a worker is replaced; 0: never.
    pub max_requests: u64,
    /// Up to this many are taken off `max_requests`, by chance, for each worker.
    pub max_requests_jitter: u64,
    /// How long a worker may take until it is ready.
    pub boot_timeout: Duration,
    /// How long a worker of a stopped pool may take before TERM, and then before KILL.
    pub stop_timeout: Duration,
    /// `stop_timeout` is written for this pool itself, and not taken from `[supervisor]`.
    #[serde(default)]
    pub own_stop_timeout: bool,
    /// `[pool.NAME.memory]`, in bytes.
    pub memory: Memory,
    /// Globs whose change reloads the pool.
    pub watch: Vec<String>,
    /// Log a request that takes longer.
    pub slow_log: Option<Duration>,
    /// Where each request is logged.
    pub access_log: Option<AccessLog>,
    /// What its workers may reach; `None`: all that their user may.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// RLIMIT_NOFILE of a worker.
    pub open_files: Option<u64>,
    /// RLIMIT_CORE of a worker, in bytes.
    pub core: Option<u64>,
}

/// `[pool.NAME.workers]`: how many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Model {
    /// Always `count`.
    Static {
        /// At least 1.
        count: u32,
    },
    /// Between `min` and `max`, `spare` of them idle where possible.
    Dynamic {
        /// At least 1.
        min: u32,
        /// At least `min`.
        max: u32,
        /// Idle workers to hold ready, at most `max`.
        spare: u32,
        /// An idle worker above `min` leaves after this time.
        idle_timeout: Duration,
    },
    /// None at rest, up to `max`.
    Ondemand {
        /// At least 1.
        max: u32,
        /// An idle worker leaves after this time.
        idle_timeout: Duration,
    },
}

impl Model {
    /// The most workers that there may be.
    pub(crate) fn most(&self) -> u32 {
        match *self {
            Model::Static { count } => count,
            Model::Dynamic { min, max, .. } => max.max(min),
            Model::Ondemand { max, .. } => max,
        }
    }
}

/// `[pool.NAME.memory]`: private memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Over it after a request: replace, then retire.
    pub soft: Option<u64>,
    /// Over it at any time: killed.
    pub hard: Option<u64>,
    /// All workers together: the fattest is replaced first.
    pub pool: Option<u64>,
}

/// `access_log = { file, format }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessLog {
    /// Appended to.
    pub file: PathBuf,
    /// Form of a line.
    pub format: AccessLogFormat,
}

/// One entry of `listen`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listen {
    /// Where.
    pub address: Address,
    /// What is spoken.
    pub protocol: Protocol,
    /// Networks that may connect; empty: any.
    pub allow: Vec<String>,
    /// Mode of a Unix socket's file; 0o660 unless written.
    pub mode: u32,
    /// Owner of a Unix socket's file, as user id.
    pub owner: Option<u32>,
    /// Group of a Unix socket's file, as group id.
    pub group: Option<u32>,
    /// Connections that the kernel holds until a worker takes them; 4096 unless written.
    pub backlog: u32,
    /// A listener on an IPv6 address takes no IPv4 clients. Not so unless written: `[::]` takes both.
    pub v6only: bool,
}

impl Listen {
    /// What stands for an entry of `listen` that is an address alone.
    pub(crate) fn new(address: Address) -> Listen {
        Listen {
            address,
            protocol: Protocol::Fastcgi,
            allow: Vec::new(),
            mode: 0o660,
            owner: None,
            group: None,
            backlog: 4096,
            v6only: false,
        }
    }
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Address {
    /// `unix:/path`, or `unix:@name` in the abstract namespace.
    Unix(PathBuf),
    /// `tcp:127.0.0.1:9000`, `tcp:[::1]:9000`.
    Tcp(std::net::SocketAddr),
    /// `systemd:NAME`: the descriptors that systemd passed under this name.
    Systemd(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
            Address::Systemd(name) => write!(f, "systemd:{name}"),
        }
    }
}
