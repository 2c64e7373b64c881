//! What the fuzz targets call: a head of HTTP, and a whole connection through the real serving loop.
//!
//! Built with the feature `fuzzing` alone; nothing else may use it.

use crate::{
    Answer, App, Error, Request,
    control::{Limits, Protocol},
    counters::Counters,
    exchange::Desk,
    http1::{Ends, Scan, scan},
    params::{Index, Params},
    routes::Routes,
    serve::Worker,
    shared::Shared,
    table::{Conn, Table},
};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags},
    signal::SigSet,
    signalfd::SignalFd,
};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

/// Reads any bytes as the head of an HTTP request: a head that is accepted is the same when it comes in two pieces,
/// and all of its variables can be read.
pub fn http_head(bytes: &[u8]) {
    let (mut arena, mut index) = (Vec::new(), Index::default());
    let max = 4096;
    let ends = Ends::default();
    let whole = scan(bytes, 0, max, &ends, &mut arena, &mut index);
    if let Scan::Whole(head) = &whole {
        assert!(head.len <= bytes.len() && head.len <= max);
        let params = Params::new(&index, &arena);
        assert!(params.iter().all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
        assert!(params.get("HTTP_PROXY").is_none());
        let half = bytes.len() / 2;
        if scan(bytes.get(..half).unwrap_or_default(), 0, max, &ends, &mut arena, &mut index) == Scan::More {
            assert_eq!(scan(bytes, half, max, &ends, &mut arena, &mut index), whole);
        }
    }
}

/// Sends any bytes, cut as the first of them say, to a worker whose app sends bodies back.
pub fn connection(http: bool, bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let Some(mut worker) = worker() else { return };
    let Ok((mut peer, ours)) = UnixStream::pair() else { return };
    if peer.set_nonblocking(true).is_err() || ours.set_nonblocking(true).is_err() {
        return;
    }
    let protocol = if http { Protocol::Http } else { Protocol::Fastcgi };
    let token = worker.shared.table().enter();
    let conn = Conn::new(ours.into(), protocol, None);
    let shared = Arc::clone(&worker.shared);
    shared.rest(&mut shared.table(), token, conn);
    let mut answers = vec![0; 64 * 1024];
    for piece in bytes.chunks(usize::from(*cut) + 1) {
        if peer.write_all(piece).is_err() {
            break;
        }
        worker.turn();
        while peer.read(&mut answers).is_ok_and(|n| n > 0) {}
    }
    drop(peer);
    for _ in 0..4 {
        worker.turn();
    }
    assert!(shared.table().len() <= 1, "more connections than one");
}

struct Echo;

impl App for Echo {
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        let mut body = Vec::new();
        request.body().take(1 << 20).read_to_end(&mut body)?;
        for (name, value) in request.params() {
            assert!(name.len() < 1 << 20 && value.len() < 1 << 20);
        }
        answer.head(http::StatusCode::OK, &[("Content-Type", b"text/plain")])?;
        answer.write(&body)
    }
}

fn worker() -> Option<Worker> {
    let limits = Limits {
        read_timeout: Duration::ZERO,
        write_timeout: Duration::ZERO,
        max_body: 4096,
        max_params: 4096,
        gather: 1024,
        ..Limits::default()
    };
    let shared = Shared {
        table: Mutex::new(Table::default()),
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok()?,
        queue: None,
        listeners: Vec::new(),
        link: None,
        counters: Counters::open(None).ok()?,
        limits: limits.clone(),
        memory_soft: None,
        memory_hard: None,
        slow_log: None,
        sequence: AtomicU64::new(0),
        resting: false.into(),
        moving: Mutex::new(()),
    };
    let routes = Routes::new([(None, "/".to_owned(), Box::new(Echo) as Box<dyn App>)]);
    let signals = SignalFd::new(&SigSet::empty()).ok()?;
    Some(Worker::new(Arc::new(shared), Desk::new(routes, limits, None), std::thread::current(), signals, 0))
}
