//! How a worker begins: what descriptor 0 is, and what it is told to serve.
//!
//! Descriptor 0 is the control socket of a supervisor (`SOCK_SEQPACKET`), or the listener of some FastCGI process
//! manager (FastCGI 2.2), which is served with the limits of [`Limits::default`].

use crate::{
    App, Content, Error, Request,
    app::Function,
    control::{Limits, Listener, Order, Protocol, Report, Serve},
    counters::Counters,
    exchange::Desk,
    hand::HAND,
    heir::{self, Ledger},
    keeper,
    link::{Link, Received},
    listening::Listening,
    queue::Queue,
    routes::Routes,
    runtimes,
    serve::Worker,
    shared::{BELL, CONTROL, LISTENERS_MAX, QUEUE, SIGNAL, Shared},
    sys,
    table::Table,
};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
    socket::{SockType, getsockopt, sockopt},
};
use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

/// Exit code: the app cannot be loaded (EX_UNAVAILABLE).
const BOOT_FAILED: u8 = 69;
/// Exit code: this is not started as it must be (EX_USAGE).
const NO_LISTENER: u8 = 64;
/// Descriptors that are kept for other things than connections.
const OTHER_DESCRIPTORS: usize = 64;

/// Serves a function from requests to responses until the process is told to end.
///
/// The response's head and body are the `http` crate's types; see [`Content`] for what a body may be.
pub fn run<F, B>(function: F) -> ExitCode
where
    F: FnMut(&mut Request<'_>) -> Result<http::Response<B>, Error> + 'static,
    B: Into<Content> + 'static,
{
    run_app(Function(function))
}

/// Serves an app until the process is told to end.
pub fn run_app(app: impl App + 'static) -> ExitCode {
    let app: Box<dyn App> = Box::new(app);
    match begin(Some(app)) {
        Ok(worker) => worker.run(),
        Err(code) => code,
    }
}

/// Serves the apps that the supervisor names.
pub(crate) fn run_named() -> ExitCode {
    match begin(None) {
        Ok(worker) => worker.run(),
        Err(code) => code,
    }
}

fn begin(app: Option<Box<dyn App>>) -> Result<Worker, ExitCode> {
    let refuse = |why: String| {
        eprintln!("hostler: {why}");
        ExitCode::from(NO_LISTENER)
    };
    let fd = sys::take_descriptor_0().map_err(|e| refuse(format!("descriptor 0: {e}")))?;
    let kind = getsockopt(&fd, sockopt::SockType);
    if kind == Ok(SockType::SeqPacket) {
        return supervised(Link::new(fd), app);
    }
    if getsockopt(&fd, sockopt::AcceptConn) != Ok(true) {
        let what = "descriptor 0 is neither a listener nor a supervisor's socket: start this by `hostler run`, or by \
                    a FastCGI process manager such as spawn-fcgi";
        return Err(refuse(what.into()));
    }
    let Some(app) = app else { return Err(refuse("a listener, but nothing to serve on it".into())) };
    let listener =
        Listener { address: "descriptor 0".into(), protocol: Protocol::Fastcgi, allow: Vec::new() };
    let serve = alone(listener);
    let parts =
        Parts { listeners: vec![fd], queue: None, page: None, access_log: None, ledger: Ledger::default() };
    assemble(&serve, parts, None, Routes::new([(None, "/".into(), app)])).map_err(refuse)
}

/// What a worker without a supervisor serves.
fn alone(listener: Listener) -> Serve {
    Serve {
        pool: String::new(),
        generation: 0,
        listeners: vec![listener],
        apps: Vec::new(),
        limits: Limits::default(),
        max_requests: 0,
        memory_soft: None,
        memory_hard: None,
        slow_log: None,
        access_log: None,
    }
}

fn supervised(link: Link, app: Option<Box<dyn App>>) -> Result<Worker, ExitCode> {
    let (serve, fds) = loop {
        match link.receive(true) {
            Ok(Received::Order(Order::Serve(serve), fds)) => break (serve, fds),
            Ok(Received::Order(Order::Retire, _) | Received::Gone) => return Err(ExitCode::SUCCESS),
            Ok(Received::Order(..) | Received::Nothing) => {}
            Err(why) => {
                eprintln!("hostler: {why}");
                return Err(ExitCode::from(NO_LISTENER));
            }
        }
    };
    let ready = Parts::sort(fds, &serve).and_then(|parts| {
        let routes = match app {
            Some(app) => Routes::new([(None, "/".into(), app)]),
            None => runtimes::load(&serve.apps, &format!("{} {}", serve.pool, serve.generation))?,
        };
        Ok((routes, parts))
    });
    let link = Arc::new(link);
    let made = ready.and_then(|(routes, parts)| assemble(&serve, parts, Some(Arc::clone(&link)), routes));
    match made {
        Ok(worker) => {
            link.report(&Report::Ready);
            Ok(worker)
        }
        Err(message) => {
            eprintln!("hostler: {message}");
            link.report(&Report::BootFailed { message });
            Err(ExitCode::from(BOOT_FAILED))
        }
    }
}

/// The descriptors of [`Order::Serve`].
struct Parts {
    listeners: Vec<OwnedFd>,
    queue: Option<Queue>,
    page: Option<OwnedFd>,
    access_log: Option<OwnedFd>,
    ledger: Ledger,
}

impl Parts {
    /// Sorts them, and starts the heir, which needs the queue.
    fn sort(fds: Vec<OwnedFd>, serve: &Serve) -> Result<Parts, String> {
        let mut fds = fds.into_iter();
        let listeners: Vec<OwnedFd> = fds.by_ref().take(serve.listeners.len()).collect();
        let (Some(receive), Some(send), Some(page)) = (fds.next(), fds.next(), fds.next()) else {
            return Err("fewer descriptors beside Order::Serve than it names".into());
        };
        let access_log = fds.next().filter(|_| serve.access_log.is_some());
        let queue = Queue { receive, send };
        let ledger = heir::start(&queue, descriptors()).map_err(|e| format!("start the heir: {e}"))?;
        Ok(Parts { listeners, queue: Some(queue), page: Some(page), access_log, ledger })
    }
}

fn assemble(serve: &Serve, parts: Parts, link: Option<Arc<Link>>, routes: Routes) -> Result<Worker, String> {
    let say = |what: &'static str| move |e: nix::Error| format!("{what}: {e}");
    let listeners = parts.listeners.into_iter().zip(&serve.listeners).take(LISTENERS_MAX);
    let listeners: Vec<Listening> =
        listeners.map(|(fd, listener)| Listening::new(fd, listener)).collect::<Result<_, _>>()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(say("make an epoll"))?;
    let signals = signals().map_err(say("take signals by descriptor"))?;
    let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
    epoll.add(&signals, readable(SIGNAL)).map_err(say("watch signals"))?;
    if let Some(link) = &link {
        epoll.add(link.as_fd(), readable(CONTROL)).map_err(say("watch the control socket"))?;
    }
    if let Some(queue) = &parts.queue {
        for (fd, token) in [(&queue.receive, QUEUE), (&queue.send, BELL)] {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, token);
            epoll.add(fd, event).map_err(say("watch the hand-over queue"))?;
        }
    }
    let counters =
        Counters::open(parts.page.as_ref()).map_err(|e| format!("map the page of counters: {e}"))?;
    let mut limits = serve.limits.clone();
    // The rest is the app's, half of them at most.
    let all = descriptors();
    let room = all - (all / 2).min(OTHER_DESCRIPTORS);
    limits.max_connections = limits.max_connections.min(room.max(1));
    let shared = Arc::new(Shared {
        table: Mutex::new(Table::new(parts.ledger)),
        epoll,
        queue: parts.queue,
        listeners,
        link,
        counters,
        limits: limits.clone(),
        memory_soft: serve.memory_soft,
        memory_hard: serve.memory_hard,
        slow_log: serve.slow_log,
        sequence: AtomicU64::new(0),
        resting: false.into(),
        moving: Mutex::new(()),
    });
    for (number, listener) in shared.listeners.iter().enumerate() {
        shared.watch_listener(number, listener, false);
    }
    sys::on_crash(|| {
        if !HAND.answer(502) {
            HAND.break_off();
        }
    })
    .map_err(|e| format!("watch for crashes: {e}"))?;
    let keeper = keeper::start(Arc::clone(&shared)).map_err(|e| format!("start the keeper: {e}"))?;
    let access_log = serve.access_log.zip(parts.access_log.map(File::from));
    Ok(Worker::new(shared, Desk::new(routes, limits, access_log), keeper, signals, serve.max_requests))
}

/// SIGTERM and SIGQUIT as a descriptor; they interrupt nothing.
fn signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGQUIT);
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Descriptors that this process may have.
fn descriptors() -> usize {
    nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}
