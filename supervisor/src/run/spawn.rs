//! Starts a worker: its program, its control socket, its page, and what it is told first.
//!
//! Always holds: a worker gets the environment of its pool and nothing of ours, its own process group, and no
//! descriptor but 0, 1 and 2 (all others close on exec and come over the control socket).

use super::{
    cgroup::Groups,
    link::{Link, Page, Queue},
    log,
    place::Revision,
};
use crate::{
    fleet::{Kind, WorkerId},
    settings,
};
use hostler_worker::control::{App, Become, Listener, Order, Runtime, Serve};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where programs put temporary files (environ(7)).
const TMPDIR: &str = "TMPDIR";
/// Seconds after which a client of a stopped or failed pool may come again.
const RETRY_AFTER: u32 = 5;

/// A worker that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) link: Link,
    pub(crate) page: Page,
    /// Its standard output and standard error, non-blocking.
    pub(crate) output: [OwnedFd; 2],
    /// The kernel holds it to its hard limit.
    pub(crate) grouped: bool,
}

/// What differs between the workers of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Which {
    pub(crate) worker: WorkerId,
    pub(crate) kind: Kind,
    pub(crate) generation: u64,
    /// A random number.
    pub(crate) lot: u64,
}

/// Starts a worker of a pool and tells it what to become and to serve. `temporary` is its TMPDIR, where the pool has one
/// of its own.
///
/// # Errors
/// Where the system refuses; nothing is left behind but, at most, a process that ends by itself because its
/// control socket is closed.
pub(crate) fn start(
    program: &Path,
    groups: Option<&Groups>,
    revision: &Revision,
    temporary: Option<PathBuf>,
    queue: &Queue,
    which: Which,
) -> io::Result<Started> {
    let settings = &revision.settings;
    let (link, theirs) = Link::pair()?;
    let page = Page::new()?;
    let access_log = match (&settings.access_log, which.kind) {
        (Some(access_log), Kind::App) => Some(log::append(&access_log.file).map_err(|e| {
            io::Error::new(e.kind(), format!("open the access log {}: {e}", access_log.file.display()))
        })?),
        _ => None,
    };
    let mut child = Command::new(program)
        .arg0("hostler-worker")
        .args(["worker", &settings.name])
        .env_clear()
        .envs(&settings.env)
        .envs(temporary.as_ref().map(|directory| (TMPDIR, directory)))
        .stdin(theirs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("start {}: {e}", program.display())))?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("a worker without pipes"));
    };
    let output = [OwnedFd::from(out), OwnedFd::from(err)];
    for fd in &output {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    // Before it is told what to become: none of its work is outside.
    let grouped = groups.is_some_and(|groups| group(groups, settings, which, pid));
    // Its end is reaped with all others; `child` itself is not needed.
    let serve = serve_order(revision, temporary.as_deref(), which);
    let orders = [Order::Become(Box::new(become_order(settings, which.kind))), Order::Serve(Box::new(serve))];
    introduce(&link, orders, revision, queue, &page, access_log.as_ref())?;
    Ok(Started { pid, link, page, output, grouped })
}

/// Puts a worker with a hard limit into a group of its own; where that fails, its own look stands in.
fn group(groups: &Groups, settings: &settings::Pool, which: Which, pid: i32) -> bool {
    let Some(limit) = settings.memory.hard.filter(|_| which.kind == Kind::App) else { return false };
    let taken = groups.make(which.worker, limit).and_then(|group| group.take(pid));
    if let Err(e) = &taken {
        tracing::warn!(pool = settings.name, worker = pid, "no cgroup for its hard limit: {e}");
        groups.remove(which.worker);
    }
    taken.is_ok()
}

fn introduce(
    link: &Link,
    [become_, serve]: [Order; 2],
    revision: &Revision,
    queue: &Queue,
    page: &Page,
    access_log: Option<&File>,
) -> io::Result<()> {
    link.send(&become_, &[])?;
    let mut fds: Vec<BorrowedFd<'_>> = revision.sockets.iter().map(|s| s.bound.fd.as_fd()).collect();
    fds.extend([queue.receiving.as_fd(), queue.sending.as_fd(), page.0.as_fd()]);
    fds.extend(access_log.map(AsFd::as_fd));
    link.send(&serve, &fds)
}

fn become_order(settings: &settings::Pool, kind: Kind) -> Become {
    Become {
        user: settings.user.clone(),
        umask: Some(settings.umask),
        directory: settings.directory.as_ref().map(|d| d.to_string_lossy().into_owned()),
        open_files: settings.open_files,
        core: settings.core,
        sandbox: settings.sandbox.clone().filter(|_| kind == Kind::App),
        exec: settings.command.clone().filter(|_| kind == Kind::App),
    }
}

fn serve_order(revision: &Revision, temporary: Option<&Path>, which: Which) -> Serve {
    let settings = &revision.settings;
    let listener = |socket: &super::place::Socket| Listener {
        address: socket.listen.address.to_string(),
        protocol: socket.listen.protocol,
        allow: socket.listen.allow.clone(),
    };
    let mut serve = Serve {
        pool: settings.name.clone(),
        generation: which.generation,
        listeners: revision.sockets.iter().map(|s| listener(s)).collect(),
        apps: settings.apps.iter().map(|app| with_temporary(app, temporary)).collect(),
        limits: settings.limits.clone(),
        max_requests: max_requests(settings, which.lot),
        memory_soft: settings.memory.soft,
        memory_hard: settings.memory.hard,
        slow_log: settings.slow_log,
        access_log: settings.access_log.as_ref().map(|a| a.format),
    };
    if which.kind == Kind::StandIn {
        let message = "This site is not available at the moment.".to_owned();
        let runtime = Runtime::Unavailable { message, retry_after: RETRY_AFTER };
        serve.apps = vec![App { host: None, path: "/".to_owned(), runtime }];
        serve.max_requests = 0;
        serve.memory_soft = None;
        serve.memory_hard = None;
        serve.slow_log = None;
        serve.access_log = None;
    }
    serve
}

/// What an app starts has no environment of its worker's.
fn with_temporary(app: &App, temporary: Option<&Path>) -> App {
    let mut app = app.clone();
    let env = match &mut app.runtime {
        Runtime::Cgi(cgi) => Some(&mut cgi.env),
        Runtime::Fastcgi(fastcgi) => Some(&mut fastcgi.env),
        Runtime::Files(_) | Runtime::Demo | Runtime::Unavailable { .. } => None,
    };
    let env = env.filter(|env| !env.iter().any(|(name, _)| name == TMPDIR));
    if let (Some(env), Some(temporary)) = (env, temporary) {
        env.push((TMPDIR.to_owned(), temporary.to_string_lossy().into_owned()));
    }
    app
}

/// Takes the jitter off, so that workers that began together do not end together.
fn max_requests(settings: &settings::Pool, lot: u64) -> u64 {
    let jitter = settings.max_requests_jitter.min(settings.max_requests.saturating_sub(1));
    settings.max_requests - lot % (jitter + 1)
}
