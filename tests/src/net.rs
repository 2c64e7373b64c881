//! Addresses, listeners and byte streams, the same for Unix sockets and TCP.
//!
//! Always holds: a [`Stream`] has a read and a write timeout of [`DEADLINE`] unless a test sets another.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long any single wait of a test may take. Generous: it only ends tests that would fail.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket file.
    Unix(PathBuf),
    /// An address of the loopback.
    Tcp(SocketAddr),
}

impl Address {
    /// A fresh connection.
    #[must_use]
    pub fn connect(&self) -> Stream {
        self.try_connect().unwrap_or_else(|e| panic!("connect to {self}: {e}"))
    }

    /// A fresh connection, or why there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn try_connect(&self) -> io::Result<Stream> {
        let stream = match self {
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Address::Tcp(address) => Stream::Tcp(TcpStream::connect(address)?),
        };
        stream.deadline(DEADLINE);
        Ok(stream)
    }
}

impl fmt::Display for Address {
    /// As Hostler's and nginx's configuration files have it: `unix:/path` or `127.0.0.1:9000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A bound listener to give to a program.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: Address,
    /// The listening socket.
    pub socket: OwnedFd,
}

impl Listener {
    /// A Unix socket at `path`, which anyone may connect to.
    #[must_use]
    pub fn unix(path: &Path) -> Listener {
        use std::os::unix::fs::PermissionsExt;
        let socket = UnixListener::bind(path).unwrap_or_else(|e| panic!("bind {}: {e}", path.display()));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        Listener { address: Address::Unix(path.to_owned()), socket: socket.into() }
    }

    /// TCP on a free port of the loopback.
    #[must_use]
    pub fn tcp() -> Listener {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        Listener { address: Address::Tcp(socket.local_addr().unwrap()), socket: socket.into() }
    }

    /// One more descriptor of the same listener.
    #[must_use]
    pub fn descriptor(&self) -> OwnedFd {
        self.socket.try_clone().unwrap()
    }
}

/// A TCP port of the loopback that nothing listens on at the moment, for servers that bind it themselves.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl Stream {
    /// Sets how long a read or a write may take.
    pub fn deadline(&self, time: Duration) {
        match self {
            Stream::Unix(s) => s.set_read_timeout(Some(time)).and_then(|()| s.set_write_timeout(Some(time))),
            Stream::Tcp(s) => s.set_read_timeout(Some(time)).and_then(|()| s.set_write_timeout(Some(time))),
        }
        .unwrap();
    }

    /// Says that no more bytes come from here; the answer can still be read.
    pub fn half_close(&self) {
        // The peer may have closed already, which is the same to the caller.
        let _ = match self {
            Stream::Unix(s) => s.shutdown(Shutdown::Write),
            Stream::Tcp(s) => s.shutdown(Shutdown::Write),
        };
    }

    /// The same connection once more, to write in one thread and read in another.
    #[must_use]
    pub fn again(&self) -> Stream {
        match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone().unwrap()),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone().unwrap()),
        }
    }

    /// How the peer ended the connection, or that it did not within `time`; bytes that come before are dropped.
    #[must_use]
    pub fn ending(&mut self, time: Duration) -> Ending {
        self.deadline(time);
        let end = Instant::now() + time;
        let mut bytes = [0; 4096];
        loop {
            match self.read(&mut bytes) {
                Ok(0) => return Ending::Closed,
                Ok(_) if Instant::now() > end => return Ending::Open,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ending::Reset,
                Err(_) => return Ending::Open,
            }
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Closed,
    /// With a reset: bytes that were on their way may be lost.
    Reset,
    /// Not at all.
    Open,
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(buf),
            Stream::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(buf),
            Stream::Tcp(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
