//! Listening sockets: from an entry of `listen` to a descriptor that workers can be given.
//!
//! Always holds: a descriptor that leaves here listens, is non-blocking and closes on exec; a Unix socket has
//! its owner, group and mode before anybody can connect to it; a socket that another process answers on is
//! never taken away, and a file that is no socket is never removed; at the end a file is removed only where
//! it is still the one that was made here.
//!
//! Does not accept, does not match `allow` (workers do), and keeps no list: the caller owns what it gets. Two
//! supervisors that bind the same path in the same instant are not told apart.

mod passed;
mod unix;

pub(crate) use passed::{KEPT, Passed};
pub(crate) use unix::FileId;

use crate::settings::{Address, Listen};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, UnixAddr,
        bind as bind_socket, getsockopt, listen as listen_on, setsockopt, socket, sockopt,
    },
};
use std::{
    fmt,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

/// Why an address cannot be listened on; the message names the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// Another process has the address. Soon after a crash this may pass: old workers still leave.
    InUse(String),
    /// Anything else.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InUse(message) | Error::Failed(message) => f.write_str(message),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Listens, non-blocking, closes on exec.
    pub fd: OwnedFd,
    /// The socket file that was made for it; `None` for TCP, abstract sockets and what a socket unit has.
    pub file: Option<FileId>,
    /// A socket unit of systemd has it: it listens on without us, and its file is none of our business.
    pub lent: bool,
}

/// Listens as `listen` says. One socket, or for `systemd:NAME` all that systemd passed under the name. An address that
/// a socket unit has is taken from there.
///
/// # Errors
/// See [`Error`].
pub(crate) fn bind(listen: &Listen, passed: &Passed) -> Result<Vec<Bound>, Error> {
    let lent = passed.lent(&listen.address).map_err(|e| failed(listen, &e))?;
    if !lent.is_empty() {
        return lent.into_iter().map(|fd| Ok(Bound { lent: true, ..adopt(fd, listen, None)? })).collect();
    }
    match &listen.address {
        Address::Unix(path) => match abstract_name(path) {
            Some(name) => Ok(vec![bind_abstract(name, listen)?]),
            None => Ok(vec![unix::bind(path, listen)?]),
        },
        Address::Tcp(address) => Ok(vec![bind_tcp(*address, listen)?]),
        Address::Systemd(name) => Err(failed(listen, &passed.what_there_is(name))),
    }
}

/// Whether a Unix socket could be bound at a path, a stale file there replaced. Changes nothing.
///
/// # Errors
/// See [`Error`].
pub(crate) fn free(path: &Path, listen: &Listen) -> Result<(), Error> {
    unix::free(path, &unix::address(path, listen)?, listen).map(|_| ())
}

/// Takes over a socket that listens already: one that systemd kept for us, or our own after a re-exec, with the
/// file that was made for it.
///
/// # Errors
/// Where it does not listen.
pub(crate) fn adopt(fd: OwnedFd, listen: &Listen, file: Option<FileId>) -> Result<Bound, Error> {
    match getsockopt(&fd, sockopt::AcceptConn) {
        Ok(true) => {}
        Ok(false) => return Err(failed(listen, "the descriptor that was passed does not listen")),
        Err(e) => return Err(failed(listen, &format!("the descriptor that was passed is no socket: {e}"))),
    }
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .and_then(|_| fcntl(&fd, FcntlArg::F_GETFL))
        .and_then(|flags| fcntl(&fd, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK)))
        .map_err(|e| failed(listen, &format!("make the descriptor non-blocking: {e}")))?;
    Ok(Bound { fd, file, lent: false })
}

impl Bound {
    /// At a reload: sets owner, group and mode again as `listen` says and makes the socket file again where
    /// somebody removed it. Then a new socket is returned, to be used from now on; clients still queued on the
    /// old one are served for as long as a worker holds it.
    ///
    /// # Errors
    /// Where the path now belongs to somebody else, or cannot be changed; the old socket stays as it is.
    pub(crate) fn refresh(&self, listen: &Listen) -> Result<Option<Bound>, Error> {
        let backlog = listen_on(&self.fd, backlog(listen.backlog));
        backlog.map_err(|e| failed(listen, &format!("set the backlog: {e}")))?;
        match (&listen.address, self.file) {
            (Address::Unix(path), Some(file)) => unix::refresh(path, file, listen),
            _ => Ok(None),
        }
    }

    /// At the end: removes the socket file, where it is still ours.
    pub(crate) fn remove_file(&self, listen: &Listen) {
        if let (Address::Unix(path), Some(file)) = (&listen.address, self.file) {
            unix::remove(path, file);
        }
    }
}

/// The name in `unix:@name`.
pub(crate) fn abstract_name(path: &Path) -> Option<&str> {
    path.to_str().and_then(|path| path.strip_prefix('@'))
}

fn bind_abstract(name: &str, listen: &Listen) -> Result<Bound, Error> {
    let address = UnixAddr::new_abstract(name.as_bytes())
        .map_err(|_| failed(listen, "the name is longer than 107 bytes"))?;
    let fd = stream_socket(AddressFamily::Unix, listen)?;
    bind_socket(fd.as_raw_fd(), &address).map_err(|e| refused(listen, e))?;
    listen_on(&fd, backlog(listen.backlog)).map_err(|e| refused(listen, e))?;
    Ok(Bound { fd, file: None, lent: false })
}

fn bind_tcp(address: SocketAddr, listen: &Listen) -> Result<Bound, Error> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = stream_socket(family, listen)?;
    // Connections of a former process that still linger must not keep us from starting.
    setsockopt(&fd, sockopt::ReuseAddr, &true).map_err(|e| refused(listen, e))?;
    if address.is_ipv6() {
        // Said either way, so that net.ipv6.bindv6only does not decide.
        setsockopt(&fd, sockopt::Ipv6V6Only, &listen.v6only).map_err(|e| refused(listen, e))?;
    }
    bind_socket(fd.as_raw_fd(), &SockaddrStorage::from(address)).map_err(|e| refused(listen, e))?;
    listen_on(&fd, backlog(listen.backlog)).map_err(|e| refused(listen, e))?;
    Ok(Bound { fd, file: None, lent: false })
}

fn stream_socket(family: AddressFamily, listen: &Listen) -> Result<OwnedFd, Error> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(family, SockType::Stream, flags, None::<SockProtocol>).map_err(|e| refused(listen, e))
}

/// The kernel takes the smaller of this and net.core.somaxconn; over 4096 we ask for all that it gives.
fn backlog(wanted: u32) -> Backlog {
    i32::try_from(wanted).ok().and_then(|n| Backlog::new(n).ok()).unwrap_or(Backlog::MAXALLOWABLE)
}

fn failed(listen: &Listen, what: &str) -> Error {
    Error::Failed(format!("listen on {}: {what}", listen.address))
}

fn refused(listen: &Listen, errno: Errno) -> Error {
    let what = match errno {
        Errno::EADDRINUSE => {
            let message = "another process listens there; stop it, or choose another address";
            return Error::InUse(format!("listen on {}: {message}", listen.address));
        }
        Errno::EACCES => "not permitted; a port below 1024 needs root or CAP_NET_BIND_SERVICE",
        Errno::EADDRNOTAVAIL => "no network interface of this machine has that address (yet)",
        Errno::EAFNOSUPPORT => "this machine has no IPv6",
        errno => return failed(listen, errno.desc()),
    };
    failed(listen, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn tcp(address: &str) -> Listen {
        Listen::new(Address::Tcp(address.parse().unwrap()))
    }

    fn port(bound: &Bound) -> u16 {
        TcpListener::from(bound.fd.try_clone().unwrap()).local_addr().unwrap().port()
    }

    #[test]
    fn a_tcp_listener_is_non_blocking_and_closes_on_exec() {
        let bound = bind(&tcp("127.0.0.1:0"), &Passed::default()).unwrap().remove(0);
        let flags = OFlag::from_bits_retain(fcntl(&bound.fd, FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
        assert_eq!(fcntl(&bound.fd, FcntlArg::F_GETFD).unwrap(), FdFlag::FD_CLOEXEC.bits());
        TcpStream::connect(("127.0.0.1", port(&bound))).unwrap();
    }

    #[test]
    fn a_tcp_address_in_use_is_said_to_be_in_use() {
        let first = bind(&tcp("127.0.0.1:0"), &Passed::default()).unwrap().remove(0);
        let again = tcp(&format!("127.0.0.1:{}", port(&first)));
        let error = bind(&again, &Passed::default()).unwrap_err();
        assert!(matches!(&error, Error::InUse(m) if m.starts_with("listen on tcp:127.0.0.1:")), "{error}");
    }

    #[test]
    fn the_v6_any_address_takes_v4_clients_unless_told_otherwise() {
        let mut listen = tcp("[::]:0");
        let both = bind(&listen, &Passed::default()).unwrap().remove(0);
        TcpStream::connect(("127.0.0.1", port(&both))).unwrap();
        listen.v6only = true;
        let one = bind(&listen, &Passed::default()).unwrap().remove(0);
        assert!(TcpStream::connect(("127.0.0.1", port(&one))).is_err());
        TcpStream::connect(("::1", port(&one))).unwrap();
    }

    #[test]
    fn an_abstract_socket_is_bound_once() {
        let listen = Listen::new(Address::Unix(format!("@hostler-test-{}", std::process::id()).into()));
        let _first = bind(&listen, &Passed::default()).unwrap();
        assert!(matches!(bind(&listen, &Passed::default()), Err(Error::InUse(_))));
    }

    #[test]
    fn a_backlog_over_what_the_kernel_names_is_not_refused() {
        for wanted in [0, 1, 4096, 65_535, u32::MAX] {
            let listen = Listen { backlog: wanted, ..tcp("127.0.0.1:0") };
            bind(&listen, &Passed::default()).unwrap();
        }
    }

    #[test]
    fn a_name_that_systemd_did_not_pass_is_named() {
        let listen = Listen::new(Address::Systemd("shop".into()));
        let error = bind(&listen, &Passed::default()).unwrap_err().to_string();
        assert_eq!(
            error,
            "listen on systemd:shop: systemd passed no socket at all; is the socket unit started?"
        );
    }

    #[test]
    fn a_descriptor_that_does_not_listen_is_not_adopted() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let error = adopt(one.into(), &tcp("127.0.0.1:0"), None).unwrap_err().to_string();
        assert_eq!(error, "listen on tcp:127.0.0.1:0: the descriptor that was passed does not listen");
    }
}
