//! What supervisor and worker say to each other.
//!
//! One message is one packet of JSON on a `SOCK_SEQPACKET` socket pair: the worker's end is its descriptor 0.
//! Descriptors travel beside a message as `SCM_RIGHTS`, in the order that its documentation gives.
//!
//! Always holds: an order never interrupts a request (a worker reads orders between requests); end-of-file
//! means that the other side is gone, and a worker then finishes its request and leaves; the supervisor
//! treats every report as a claim, never as an address, a length or a reason to trust.
//!
//! Does no I/O: [`to_bytes`] and [`from_bytes`] are all.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{ffi::CStr, time::Duration};

/// The largest message in bytes, of either direction; a longer one is refused by its sender.
pub const MESSAGE_LIMIT: usize = 160 * 1024;

/// Supervisor to worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// The first message, read by Hostler's own worker program alone: drop privileges, then serve, or execute
    /// `exec`, which finds [`Order::Serve`] waiting on the same descriptor 0.
    Become(Box<Become>),
    /// What to serve. Descriptors: each of `listeners` in order; the hand-over queue's receiving end; its
    /// sending end; the page of counters; then, where `access_log` is set, the access log.
    Serve(Box<Serve>),
    /// Take no new request, finish the one in hand, give kept connections to the hand-over queue, exit with 0.
    Retire,
    /// Use the descriptor beside this message as the access log from now on.
    AccessLog,
}

/// What the process is called (comm of proc(5)) that a worker leaves its connections to: the supervisor tells it from
/// what the app starts by that.
pub const HEIR_NAME: &CStr = c"hostler-heir";

/// Privileges to drop and surroundings to set, once, before anything else. In this order: limits, umask,
/// groups, group, user, no_new_privs, directory, sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Become {
    /// Whom to become; `None` where the supervisor does not run as root.
    pub user: Option<Identity>,
    /// File mode creation mask; `None` keeps the supervisor's.
    pub umask: Option<u32>,
    /// Working directory.
    pub directory: Option<String>,
    /// RLIMIT_NOFILE, in descriptors.
    pub open_files: Option<u64>,
    /// RLIMIT_CORE, in bytes.
    pub core: Option<u64>,
    /// What it may reach of files and network; `None`: all that its user may.
    pub sandbox: Option<Sandbox>,
    /// Program and arguments to execute; `None` where Hostler's own worker serves.
    pub exec: Option<Vec<String>>,
}

/// What a worker and all that it starts may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Roots of the pool's apps: it may read and execute beneath the directories in which they lie, so that a root
    /// may be replaced by another in its place.
    #[serde(default)]
    pub roots: Vec<String>,
    /// Beneath these it may read and execute.
    pub read: Vec<String>,
    /// Beneath these it may do anything that its user may.
    pub write: Vec<String>,
    /// It may make sockets other than Unix ones.
    pub network: bool,
    /// The config asks for it: what is in it may also execute the programs of the system, read `/etc`, and use the
    /// directory for temporary files; and where the kernel cannot enforce it, the worker must not start.
    #[serde(default)]
    pub asked_for: bool,
}

/// A user with all that the kernel needs to know of it, resolved by the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups, the primary one among them.
    pub groups: Vec<u32>,
}

/// All that a worker needs to know to serve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Serve {
    /// The pool's name.
    pub pool: String,
    /// The pool's generation.
    pub generation: u64,
    /// One for each descriptor at the front of the message, in order.
    pub listeners: Vec<Listener>,
    /// Which app answers what; empty where the program itself is the app (`native`).
    pub apps: Vec<App>,
    /// Times and sizes that a peer cannot pass.
    pub limits: Limits,
    /// Ask to be replaced shortly before this many requests, and take none after; 0: never. The supervisor
    /// has added the jitter.
    pub max_requests: u64,
    /// Private memory in bytes over which to ask to be replaced ([`Report::Worn`]).
    pub memory_soft: Option<u64>,
    /// Private memory in bytes at which to report [`Report::OverHard`].
    pub memory_hard: Option<u64>,
    /// Report a request as [`Report::Slow`] after this time.
    pub slow_log: Option<Duration>,
    /// Write one line a request to the last descriptor.
    pub access_log: Option<AccessLogFormat>,
}

/// Form of access log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// The common "combined" form, then the request's milliseconds.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// FastCGI 1.0.
    Fastcgi,
    /// HTTP/1.1 and 1.0.
    Http,
}

/// One listener of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    /// As written in the config, for logs: `unix:/run/x.sock`, `tcp:[::1]:9000`.
    pub address: String,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// Networks that may connect (`10.0.0.0/8`, `::1`); empty: any. TCP alone.
    pub allow: Vec<String>,
}

/// One app of a pool: what answers a host and a path prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct App {
    /// Exact host, `*.domain`, or `None` for any; lower case, no port.
    pub host: Option<String>,
    /// Path prefix that ends at a `/` boundary; starts with `/`; no trailing slash but for `/` itself.
    pub path: String,
    /// What runs it.
    pub runtime: Runtime,
}

/// What runs an app, with its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Static files.
    Files(Files),
    /// CGI scripts (RFC 3875), one process a request.
    Cgi(Cgi),
    /// A FastCGI program of someone else's, one process a worker.
    Fastcgi(Fastcgi),
    /// The built-in page and form of `hostler demo`.
    Demo,
    /// Answers 503 with Retry-After: the pool is stopped or failed.
    Unavailable {
        /// Said in the answer's body.
        message: String,
        /// Seconds for Retry-After.
        retry_after: u32,
    },
}

/// Settings of the `files` runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// Directory that nothing leaves; absolute.
    pub root: String,
    /// Names tried in a directory, in order.
    pub index: Vec<String>,
    /// List a directory without an index.
    pub listing: bool,
    /// Which symbolic links are followed.
    pub symlinks: Symlinks,
    /// Serve names that begin with a dot.
    pub dot_files: bool,
    /// Serve `x.br` and `x.gz` in place of `x` to those who accept it.
    pub precompressed: bool,
    /// Value of Cache-Control, where set.
    pub cache_control: Option<String>,
}

/// Which symbolic links the `files` runtime follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// None.
    Never,
    /// Those that stay beneath the root.
    Beneath,
}

/// Settings of the `cgi` runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cgi {
    /// Directory beneath which scripts must be; absolute.
    pub root: String,
    /// Take SCRIPT_FILENAME from the web server where it sends one (it must lie beneath `root`).
    pub script_filename: bool,
    /// Names tried in a directory.
    pub index: Vec<String>,
    /// The script must be owned by this user id.
    pub owner: Option<u32>,
    /// Environment of every script, besides the meta-variables.
    pub env: Vec<(String, String)>,
}

/// Settings of the `fastcgi` runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fastcgi {
    /// Program and arguments; `{listen}` in an argument becomes the address with `listen_by = "argument"`.
    pub command: Vec<String>,
    /// How the program learns of its listener.
    pub listen_by: ListenBy,
    /// Directory of its scripts; absolute. A request whose SCRIPT_FILENAME is no script in it (it came over HTTP, or
    /// the web server does not know) is given the one along its path there, and DOCUMENT_ROOT; files that are no
    /// scripts are sent as they are. `None`: parameters are left alone.
    pub root: Option<String>,
    /// Names tried in a directory beneath `root`; their endings are those of scripts. Empty: every path is a script.
    pub index: Vec<String>,
    /// Requests that it may have at once.
    pub concurrency: u32,
    /// Whether it is asked to keep connections open after an answer.
    pub keep_connections: bool,
    /// Path to ask for until it answers; `None`: ready when it accepts.
    pub ready_path: Option<String>,
    /// How long it may take until it is ready.
    pub boot_timeout: Duration,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
}

/// How a FastCGI program learns of its listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListenBy {
    /// The listener is its descriptor 0 (FastCGI 1.0, section 2.2).
    Fd0,
    /// The path of a Unix socket that it binds itself is in FCGI_LISTEN of its environment.
    Path,
    /// `{listen}` in its arguments is the path of a Unix socket that it binds itself.
    Argument,
}

/// Times and sizes that a peer cannot pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Of a request in hand; its client gets 504.
    pub request_timeout: Option<Duration>,
    /// Of a request that waits for a worker; its client gets 503.
    pub queue_timeout: Option<Duration>,
    /// For the next byte of a request's head or body.
    pub read_timeout: Duration,
    /// For the peer to take the next byte of an answer.
    pub write_timeout: Duration,
    /// For the next request on a kept HTTP connection. FastCGI connections rest for as long as the peer likes.
    pub keepalive_timeout: Duration,
    /// Body in bytes; over it the client gets 413.
    pub max_body: u64,
    /// All parameters, or the HTTP head, in bytes.
    pub max_params: usize,
    /// A request with a body of up to this many bytes takes a worker only when it is all there.
    pub gather: usize,
    /// Connections of one worker.
    pub max_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_timeout: None,
            queue_timeout: None,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(75),
            max_body: 64 << 20,
            max_params: 256 << 10,
            gather: 64 << 10,
            max_connections: 16_384,
        }
    }
}

/// Worker to supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// The app is loaded and the listeners are watched.
    Ready,
    /// The app cannot be loaded; the worker exits after this.
    BootFailed {
        /// What went wrong, in a phrase for the log and the status.
        message: String,
    },
    /// Requests come after a rest.
    Active,
    /// No request for about a tenth of a second.
    Rest,
    /// The worker is busy, and connections wait that no other worker has taken.
    Pressure,
    /// The worker should be replaced and then retired; it serves on meanwhile.
    Worn {
        /// Why.
        why: Wear,
    },
    /// A request passed `request_timeout`; its client has been answered. Sent once a request.
    TimedOut {
        /// `GET /path`.
        request: String,
        /// Its age.
        ms: u64,
    },
    /// Private memory passed `memory_hard`: kill this worker.
    OverHard {
        /// Private memory.
        bytes: u64,
    },
    /// A request passed `slow_log`. Sent once a request.
    Slow {
        /// `GET /path`.
        request: String,
        /// Its age.
        ms: u64,
    },
}

/// Why a worker should be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wear {
    /// Its requests are counted out.
    Requests,
    /// Its private memory passed `memory_soft`.
    Memory,
    /// A panic or another fault of the app that leaves the process in doubt.
    Fault,
}

/// The bytes of a message.
///
/// # Errors
/// A phrase for the log where the message is over [`MESSAGE_LIMIT`].
pub fn to_bytes<T: Serialize>(message: &T) -> Result<Vec<u8>, String> {
    let bytes = serde_json::to_vec(message).map_err(|e| format!("encode a control message: {e}"))?;
    if bytes.len() > MESSAGE_LIMIT {
        return Err(format!(
            "a control message of {} bytes is over the limit of {MESSAGE_LIMIT}",
            bytes.len()
        ));
    }
    Ok(bytes)
}

/// The message in `bytes`.
///
/// # Errors
/// A phrase for the log where they are none.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("decode a control message: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_and_report_survives_the_wire() {
        for order in [Order::Retire, Order::AccessLog, Order::Become(Box::default())] {
            assert_eq!(from_bytes::<Order>(&to_bytes(&order).unwrap()).unwrap(), order);
        }
        for report in [
            Report::Ready,
            Report::BootFailed { message: "no\n\u{7f}".into() },
            Report::Worn { why: Wear::Memory },
            Report::Slow { request: "GET /".into(), ms: 3 },
        ] {
            assert_eq!(from_bytes::<Report>(&to_bytes(&report).unwrap()).unwrap(), report);
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b""[..], b"{", b"\"Dance\"", b"\xff\xff", b"{\"Retire\":1}"] {
            assert!(from_bytes::<Order>(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_by_its_sender() {
        assert!(to_bytes(&Report::BootFailed { message: "x".repeat(MESSAGE_LIMIT) }).is_err());
    }
}
