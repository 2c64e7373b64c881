//! The control socket: HTTP/1.1 over a Unix socket, for root and the supervisor's own user.
//!
//! [`core`] says what is answered, as a function of the request and of a [`View`]; [`http`] is the bytes;
//! [`Server`] is the connections. A server has one descriptor that turns readable when there is something to do,
//! so that it fits into any loop: watch [`Server::as_fd`], call [`Server::turn`] when it is readable or when
//! [`Server::deadline`] has come, and [`Server::answer`] when a [`Command`] has ended.
//!
//! Always holds: no call blocks; at most [`CONNECTIONS`] at once; a request has a bounded size and a bounded time;
//! nobody but root and the supervisor's own user gets more than 403.

pub(crate) mod client;
mod core;
mod http;

pub(crate) use self::core::{Answer, Command, Line, View};

use crate::{
    listeners::{self, Bound, Passed},
    settings::{Address, Listen},
};
use http::{Parsed, Reply};
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{SockFlag, accept4, getsockopt, sockopt},
    },
    unistd::geteuid,
};
use std::{
    collections::BTreeMap,
    fs::DirBuilder,
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{fs::DirBuilderExt, net::UnixStream},
    },
    path::Path,
    time::{Duration, Instant},
};

/// Connections at once; more are answered with 503.
const CONNECTIONS: usize = 64;
/// For a whole request to come, and then for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// What stands for the listener among the connections' numbers.
const LISTENER: u64 = 0;

/// Which connection waits for the end of a [`Command`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(u64);

/// The control socket with its connections.
#[derive(Debug)]
pub(crate) struct Server {
    listen: Listen,
    bound: Bound,
    epoll: Epoll,
    connections: BTreeMap<u64, Connection>,
    last: u64,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    state: State,
    allowed: bool,
    /// When it is closed unless something happens before; `None` while a command runs.
    until: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Reads(Vec<u8>),
    Waits { head_only: bool },
    Writes { bytes: Vec<u8>, at: usize },
}

impl Server {
    /// Binds the socket at `path`, and makes its directory where it is missing.
    ///
    /// # Errors
    /// [`listeners::Error::InUse`] where another supervisor answers there.
    pub(crate) fn open(path: &Path) -> Result<Server, listeners::Error> {
        Server::over(bind(path)?, path)
    }

    /// Goes on with a socket that is bound already: after a re-exec.
    ///
    /// # Errors
    /// Where the kernel gives no epoll.
    pub(crate) fn over(bound: Bound, path: &Path) -> Result<Server, listeners::Error> {
        let failed = |e: Errno| listeners::Error::Failed(format!("watch the control socket: {}", e.desc()));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let (listen, connections) = (listen(path), BTreeMap::new());
        let server = Server { listen, bound, epoll, connections, last: LISTENER };
        server.watch(&server.bound)?;
        Ok(server)
    }

    /// The socket, to be kept over a re-exec.
    pub(crate) fn bound(&self) -> &Bound {
        &self.bound
    }

    /// At a reload: sets the mode again, and makes the file again where somebody removed it.
    ///
    /// # Errors
    /// See [`Bound::refresh`].
    pub(crate) fn refresh(&mut self) -> Result<(), listeners::Error> {
        if let Some(again) = self.bound.refresh(&self.listen)? {
            self.watch(&again)?;
            self.bound = again;
        }
        Ok(())
    }

    /// At a reload that names another path: listens there from now on, and no more at the old one. Clients that
    /// are connected stay. Gives whether anything changed.
    ///
    /// # Errors
    /// As [`open`](Server::open); the socket then stays where it is.
    pub(crate) fn move_to(&mut self, path: &Path) -> Result<bool, listeners::Error> {
        if self.listen.address == Address::Unix(path.to_owned()) {
            return Ok(false);
        }
        let bound = bind(path)?;
        self.watch(&bound)?;
        self.remove_file();
        // What waits there to be accepted is served; the descriptor closes with the old `bound`.
        self.accept(Instant::now());
        self.bound = bound;
        self.listen = listen(path);
        Ok(true)
    }

    fn watch(&self, bound: &Bound) -> Result<(), listeners::Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
        self.epoll
            .add(&bound.fd, event)
            .map_err(|e| listeners::Error::Failed(format!("watch the control socket: {}", e.desc())))
    }

    /// At the end: removes the socket file.
    pub(crate) fn remove_file(&self) {
        self.bound.remove_file(&self.listen);
    }

    /// When [`turn`](Server::turn) is to be called at the latest; `None`: there is nothing to wait for.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.connections.values().filter_map(|connection| connection.until).min()
    }

    /// Does all that can be done now without waiting. Returns the commands that came in: each of them is to be
    /// ended by [`answer`](Server::answer).
    pub(crate) fn turn(&mut self, now: Instant, view: &dyn View) -> Vec<(Token, Command)> {
        let mut commands = Vec::new();
        let mut events = [EpollEvent::empty(); CONNECTIONS + 1];
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in events.iter().take(ready) {
            match event.data() {
                LISTENER => self.accept(now),
                number => commands.extend(self.advance(number, now, view)),
            }
        }
        self.connections.retain(|_, connection| connection.until.is_none_or(|until| until > now));
        commands
    }

    /// Ends a command: its client gets `answer`, where it is still there.
    pub(crate) fn answer(&mut self, token: Token, answer: &Answer, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token.0) else { return };
        if let State::Waits { head_only } = connection.state {
            let bytes = core::answered(answer).to_bytes(head_only);
            self.write(token.0, bytes, now);
        }
    }

    /// Writes what can be written, for up to `patience`: before an exit, so that the last answers get through.
    pub(crate) fn flush(&mut self, patience: Duration) {
        for connection in self.connections.values_mut() {
            if let State::Writes { bytes, at } = &connection.state {
                // Nothing is left to be done about a client that does not take its answer.
                let _ = connection
                    .stream
                    .set_nonblocking(false)
                    .and_then(|()| connection.stream.set_write_timeout(Some(patience)))
                    .and_then(|()| connection.stream.write_all(bytes.get(*at..).unwrap_or(&[])));
            }
        }
        self.connections.clear();
    }

    fn accept(&mut self, now: Instant) {
        while let Ok(fd) = accept4(&self.bound.fd, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
            let stream = UnixStream::from(fd);
            let me = geteuid().as_raw();
            let peer = getsockopt(&stream, sockopt::PeerCredentials).ok().map(|peer| peer.uid());
            let allowed = may_ask(peer, me);
            let full = self.connections.len() >= CONNECTIONS;
            if full {
                // Best effort: it fits into the socket's buffer, or the client is no loss.
                let _ =
                    (&stream).write_all(&Reply::error(503, "too many control connections").to_bytes(false));
                continue;
            }
            self.last += 1;
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, self.last);
            if self.epoll.add(&stream, event).is_ok() {
                let (state, until) = (State::Reads(Vec::new()), Some(now + PATIENCE));
                self.connections.insert(self.last, Connection { stream, state, allowed, until });
            }
        }
    }

    /// Goes on with one connection.
    fn advance(&mut self, number: u64, now: Instant, view: &dyn View) -> Option<(Token, Command)> {
        let connection = self.connections.get_mut(&number)?;
        match &mut connection.state {
            State::Reads(bytes) => {
                let more = read(&mut connection.stream, bytes);
                match http::parse(bytes) {
                    Parsed::Request(request) => {
                        let head_only = request.method == "HEAD";
                        let outcome = if connection.allowed {
                            core::reply(&request, view)
                        } else {
                            core::Outcome::Reply(Reply::error(
                                403,
                                "the control socket is for root and its owner",
                            ))
                        };
                        match outcome {
                            core::Outcome::Reply(reply) => self.write(number, reply.to_bytes(head_only), now),
                            core::Outcome::Deferred(command) => {
                                connection.state = State::Waits { head_only };
                                connection.until = None;
                                return Some((Token(number), command));
                            }
                        }
                    }
                    Parsed::Bad(reply) => self.write(number, reply.to_bytes(false), now),
                    Parsed::Partial if more => {}
                    Parsed::Partial => drop(self.connections.remove(&number)),
                }
            }
            State::Waits { .. } => {
                // Input after the request is of no interest; its end means that nobody waits any more.
                if !read(&mut connection.stream, &mut Vec::new()) {
                    self.connections.remove(&number);
                }
            }
            State::Writes { .. } => self.go_on_writing(number),
        }
        None
    }

    fn write(&mut self, number: u64, bytes: Vec<u8>, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.state = State::Writes { bytes, at: 0 };
            connection.until = Some(now + PATIENCE);
            let mut event = EpollEvent::new(EpollFlags::EPOLLOUT, number);
            // Where this fails, the deadline closes the connection.
            let _ = self.epoll.modify(&connection.stream, &mut event);
        }
        self.go_on_writing(number);
    }

    fn go_on_writing(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let State::Writes { bytes, at } = &mut connection.state else { return };
        while let Some(rest) = bytes.get(*at..).filter(|rest| !rest.is_empty()) {
            match connection.stream.write(rest) {
                Ok(n) if n > 0 => *at += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => break,
            }
        }
        self.connections.remove(&number);
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Reads what is there, up to a bound; false at the end of the stream.
fn read(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    while bytes.len() <= http::REQUEST_LIMIT {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => bytes.extend_from_slice(buffer.get(..n).unwrap_or(&[])),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return e.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
    true
}

/// Whether a peer with this user id may ask a supervisor that runs as `me`. The mode of the socket says the same;
/// this holds also where somebody changed it.
fn may_ask(peer: Option<u32>, me: u32) -> bool {
    peer.is_some_and(|uid| uid == 0 || uid == me)
}

/// Binds the socket, and makes its directory where it is missing.
fn bind(path: &Path) -> Result<Bound, listeners::Error> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        // Pools may have their sockets here too, and web servers must get through to them.
        let made = DirBuilder::new().mode(0o755).create(directory);
        made.map_err(|e| {
            listeners::Error::Failed(format!("make the directory {}: {e}", directory.display()))
        })?;
    }
    let bound = listeners::bind(&listen(path), &Passed::default())?.pop();
    bound.ok_or_else(|| listeners::Error::Failed(format!("listen on {}", path.display())))
}

fn listen(path: &Path) -> Listen {
    Listen { mode: 0o600, backlog: 128, ..Listen::new(Address::Unix(path.to_owned())) }
}

#[cfg(test)]
mod tests;
