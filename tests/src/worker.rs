//! A worker program by itself: with a listener on descriptor 0, as any FastCGI process manager starts it, or with
//! the supervisor's part played by the test over the control socket, so that each limit can be set.
//!
//! Always holds: the test keeps the listeners, so that connections are accepted by the kernel before the worker
//! is up, and the control socket, whose end makes the worker leave.

use crate::{
    net::{Address, DEADLINE, Listener, Stream},
    place::{self, Place},
    program::{Program, eventually},
    reader::Reader,
};
use hostler_worker::{
    control::{self, Limits, Order, Protocol, Report, Serve},
    page,
};
use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, setsockopt, socketpair,
        sockopt::ReceiveTimeout,
    },
    time::{TimeVal, TimeValLike},
};
use nix::unistd::Pid;
use std::{
    fs::File,
    io::IoSlice,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::FileExt, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
};

/// The hand-over queue of the workers of one pool.
#[derive(Debug)]
pub struct Queue {
    receiving: OwnedFd,
    sending: OwnedFd,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new() -> Queue {
        let (receiving, sending) = packets();
        Queue { receiving, sending }
    }
}

fn packets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    /// Its process.
    pub program: Program,
    /// Where it listens; the first one is meant where a test does not say which.
    pub address: Address,
    control: Option<OwnedFd>,
    page: Option<File>,
    _place: Place,
}

/// `hello` or `probe` alone with a Unix socket on descriptor 0.
#[must_use]
pub fn alone(example: &str) -> Worker {
    alone_with(example, |_| {})
}

/// Like [`alone`], with environment or arguments added to the command.
#[must_use]
pub fn alone_with(example: &str, prepare: impl FnOnce(&mut Command)) -> Worker {
    let place = Place::new();
    let listener = Listener::unix(&place.path("w.sock"));
    let mut command = Command::new(place::example(example));
    command.stdin(Stdio::from(listener.descriptor()));
    prepare(&mut command);
    let program = Program::start(&mut command);
    Worker { program, address: listener.address.clone(), control: None, page: None, _place: place }
}

/// `probe` with one Unix socket of `protocol`, under these limits.
#[must_use]
pub fn probe(protocol: Protocol, limits: Limits) -> Worker {
    let place = Place::new();
    let listener = Listener::unix(&place.path("w.sock"));
    let serve = Serve { limits, ..serve(&[(&listener, protocol)]) };
    served(&place::example("probe"), &[&listener], serve, &Queue::new(), place)
}

/// Hostler's own worker with `apps` on one Unix socket of `protocol`.
#[must_use]
pub fn own(protocol: Protocol, apps: Vec<control::App>, limits: Limits) -> Worker {
    let place = Place::new();
    let listener = Listener::unix(&place.path("w.sock"));
    let serve = Serve { limits, apps, ..serve(&[(&listener, protocol)]) };
    served(&place::program("hostler"), &[&listener], serve, &Queue::new(), place)
}

/// What a worker is told to serve where a test wants nothing special.
#[must_use]
pub fn serve(listeners: &[(&Listener, Protocol)]) -> Serve {
    let listener = |(listener, protocol): &(&Listener, Protocol)| control::Listener {
        address: listener.address.to_string(),
        protocol: *protocol,
        allow: Vec::new(),
    };
    Serve {
        pool: "test".into(),
        generation: 1,
        listeners: listeners.iter().map(listener).collect(),
        apps: Vec::new(),
        limits: Limits::default(),
        max_requests: 0,
        memory_soft: None,
        memory_hard: None,
        slow_log: None,
        access_log: None,
    }
}

/// `program` serving as told on `listeners`, ready.
#[must_use]
pub fn served(program: &Path, listeners: &[&Listener], serve: Serve, queue: &Queue, place: Place) -> Worker {
    let worker = started(program, listeners, serve, queue, place);
    assert_eq!(worker.report(), Report::Ready);
    worker
}

/// `program` told to serve on `listeners`; its first report is still to come.
#[must_use]
pub fn started(program: &Path, listeners: &[&Listener], serve: Serve, queue: &Queue, place: Place) -> Worker {
    let (ours, theirs) = packets();
    let wait = TimeVal::seconds(i64::try_from(DEADLINE.as_secs()).unwrap());
    setsockopt(&ours, ReceiveTimeout, &wait).unwrap();
    let mut command = Command::new(program);
    let own = program.ends_with("hostler");
    if own {
        // As the supervisor starts it: the one binary under the worker's name.
        command.arg0("hostler-worker").args(["worker", &serve.pool]);
    }
    let process = Program::start(command.stdin(Stdio::from(theirs)));
    let page = memfd_create(c"page", MFdFlags::MFD_CLOEXEC).unwrap();
    let page = File::from(page);
    page.set_len(page::LEN as u64).unwrap();
    let worker = Worker {
        program: process,
        address: listeners[0].address.clone(),
        control: Some(ours),
        page: Some(page.try_clone().unwrap()),
        _place: place,
    };
    if own {
        worker.order(&Order::Become(Box::default()), &[]);
    }
    let mut descriptors: Vec<i32> = listeners.iter().map(|l| l.socket.as_raw_fd()).collect();
    descriptors.extend([queue.receiving.as_raw_fd(), queue.sending.as_raw_fd(), page.as_raw_fd()]);
    worker.order(&Order::Serve(Box::new(serve)), &descriptors);
    worker
}

impl Worker {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.program.pid()
    }

    /// A connection to its first listener, to read FastCGI from.
    #[must_use]
    pub fn connect(&self) -> Reader<Stream> {
        Reader::new(self.address.connect())
    }

    /// A connection to its first listener, to speak HTTP on.
    #[must_use]
    pub fn http(&self) -> crate::http::Connection {
        crate::http::Connection::to(&self.address)
    }

    /// Sends an order with descriptors.
    pub fn order(&self, order: &Order, descriptors: &[i32]) {
        let bytes = control::to_bytes(order).unwrap();
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let control = self.control.as_ref().unwrap().as_raw_fd();
        sendmsg::<()>(control, &[IoSlice::new(&bytes)], rights, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    }

    /// The next report.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut bytes = vec![0; control::MESSAGE_LIMIT];
        let n = recv(self.control.as_ref().unwrap().as_raw_fd(), &mut bytes, MsgFlags::empty());
        let n = n.unwrap_or_else(|e| panic!("no report: {e}; the worker said {:?}", self.program.lines()));
        control::from_bytes(&bytes[..n]).unwrap_or_else(|e| panic!("{e}; it said {:?}", self.program.lines()))
    }

    /// The next report that is not about rest and activity.
    #[must_use]
    pub fn news(&self) -> Report {
        loop {
            match self.report() {
                Report::Active | Report::Rest | Report::Pressure => {}
                report => return report,
            }
        }
    }

    /// Ends the supervisor's part: the control socket closes.
    pub fn let_go(&mut self) {
        self.control = None;
    }

    /// Its counters now.
    #[must_use]
    pub fn counters(&self) -> page::Snapshot {
        let mut bytes = vec![0; page::LEN];
        self.page.as_ref().unwrap().read_exact_at(&mut bytes, 0).unwrap();
        page::Snapshot::from_bytes(&bytes).expect("the worker has written no page")
    }

    /// Waits until a counter has a value.
    pub fn counted(&self, word: usize, value: u64) {
        eventually(&format!("counter {word} at {value}"), || {
            (self.counters().word(word) == value).then_some(())
        });
    }
}

/// Limits short enough for a test to wait for, and long enough not to end a sound request on a busy machine.
#[must_use]
pub fn short_limits() -> Limits {
    let short = std::time::Duration::from_secs(2);
    Limits { read_timeout: short, write_timeout: short, keepalive_timeout: short, ..Limits::default() }
}
