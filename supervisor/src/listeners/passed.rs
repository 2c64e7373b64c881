//! Sockets that systemd passed (`LISTEN_FDS`, `LISTEN_FDNAMES`, `LISTEN_PID`; sd_listen_fds(3)): those of socket
//! units, and those that it kept for us in its descriptor store.
//!
//! Always holds: variables meant for another process (`LISTEN_PID`) are not believed; each socket closes on exec; what
//! was kept for us is never taken for a socket unit's.
//!
//! Takes stream sockets, Unix or TCP, and what else was kept for us.

use crate::settings::Address;
use nix::sys::socket::{AddressFamily, SockType, SockaddrStorage, getsockname};
use std::{
    env,
    net::{SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    process,
};

/// How the names begin under which systemd keeps our own sockets.
pub(crate) const KEPT: &str = "hostler-kept-";

/// What systemd passed, by name.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    sockets: Vec<(String, OwnedFd)>,
}

impl Passed {
    /// Takes what the environment tells of. Call it once, first of all: it owns the descriptors from then on.
    pub(crate) fn from_environment() -> Passed {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        // A process that some supervisor of ours started must not take for its own what was its parent's.
        let ours = env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(process::id()));
        if !ours {
            return Passed::default();
        }
        let mut fds = listenfd::ListenFd::from_env();
        let names = names.split(':').map(str::to_owned).chain(std::iter::repeat("unknown".to_owned()));
        let mut sockets = Vec::new();
        for (index, name) in (0..fds.len()).zip(names) {
            let unix = fds.take_unix_listener(index).ok().flatten().map(OwnedFd::from);
            let any = unix.or_else(|| fds.take_tcp_listener(index).ok().flatten().map(OwnedFd::from));
            // An end of a hand-over queue, which systemd kept.
            let any = any.or_else(|| {
                let (family, kind) = (AddressFamily::Unix as i32, SockType::SeqPacket as i32);
                fds.take_custom(index, family, kind, "SOCK_SEQPACKET").ok().flatten()
            });
            sockets.extend(any.map(|fd| (name, fd)));
        }
        Passed { sockets }
    }

    /// Copies of all sockets of socket units under this name, or with this address: a pool may drop its listener and
    /// take it again at a later reload.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub(crate) fn lent(&self, address: &Address) -> Result<Vec<OwnedFd>, String> {
        let meant = |name: &str, fd: &OwnedFd| match address {
            Address::Systemd(wanted) => name == wanted,
            address => local_address(fd).as_ref() == Some(address),
        };
        let lent = self.sockets.iter().filter(|(name, fd)| !name.starts_with(KEPT) && meant(name, fd));
        lent.map(|(_, fd)| fd.try_clone().map_err(|e| format!("copy the descriptor: {e}"))).collect()
    }

    /// All sockets with their names, to be kept over a re-exec.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &OwnedFd)> {
        self.sockets.iter().map(|(name, fd)| (name.as_str(), fd))
    }

    /// Takes out all sockets with this name.
    pub(crate) fn take(&mut self, name: &str) -> Vec<OwnedFd> {
        let (taken, left) = std::mem::take(&mut self.sockets).into_iter().partition(|(n, _)| n == name);
        self.sockets = left;
        let taken: Vec<_> = taken;
        taken.into_iter().map(|(_, fd)| fd).collect()
    }

    /// Puts back what was taken.
    pub(crate) fn put_back(&mut self, name: String, fd: OwnedFd) {
        self.sockets.push((name, fd));
    }

    /// Takes out what was kept for us and nobody took, with its names and addresses.
    pub(crate) fn take_unclaimed(&mut self) -> Vec<(String, Option<Address>)> {
        let (kept, left) =
            std::mem::take(&mut self.sockets).into_iter().partition(|(name, _)| name.starts_with(KEPT));
        self.sockets = left;
        let kept: Vec<_> = kept;
        kept.into_iter().map(|(name, fd)| (name, local_address(&fd))).collect()
    }

    /// Says why there is nothing under `name`.
    pub(super) fn what_there_is(&self, name: &str) -> String {
        let names = self.sockets.iter().map(|(n, _)| n.as_str()).filter(|name| !name.starts_with(KEPT));
        let mut names: Vec<&str> = names.collect();
        names.dedup();
        if names.is_empty() {
            "systemd passed no socket at all; is the socket unit started?".to_owned()
        } else {
            format!("systemd passed no socket named {name}, only {}", names.join(", "))
        }
    }
}

/// Where a socket listens.
fn local_address(fd: &OwnedFd) -> Option<Address> {
    let address: SockaddrStorage = getsockname(fd.as_raw_fd()).ok()?;
    if let Some(unix) = address.as_unix_addr() {
        let name = unix.as_abstract().and_then(|name| std::str::from_utf8(name).ok());
        let path =
            name.map(|name| PathBuf::from(format!("@{name}"))).or_else(|| unix.path().map(PathBuf::from));
        return path.map(Address::Unix);
    }
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4(SocketAddrV4::from(*v4)));
    let v6 = || address.as_sockaddr_in6().map(|v6| SocketAddr::V6(SocketAddrV6::from(*v6)));
    v4.or_else(v6).map(Address::Tcp)
}

/// After a re-exec.
impl From<Vec<(String, OwnedFd)>> for Passed {
    fn from(sockets: Vec<(String, OwnedFd)>) -> Passed {
        Passed { sockets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::unix::net::UnixListener};

    fn passed(names: &[&str]) -> Passed {
        let socket = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        Passed { sockets: names.iter().map(|n| ((*n).to_owned(), socket())).collect() }
    }

    #[test]
    fn all_sockets_of_a_name_are_found_and_stay() {
        let passed = passed(&["shop", "blog", "shop"]);
        let named = |name: &str| passed.lent(&Address::Systemd(name.to_owned())).unwrap().len();
        assert_eq!((named("shop"), named("shop"), named("none")), (2, 2, 0));
    }

    #[test]
    fn a_socket_unit_is_found_by_its_address_whatever_its_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp6 = TcpListener::bind("[::1]:0").unwrap();
        let wanted = [
            Address::Unix(path.clone()),
            Address::Tcp(tcp.local_addr().unwrap()),
            Address::Tcp(tcp6.local_addr().unwrap()),
        ];
        let unix = UnixListener::bind(&path).unwrap();
        let sockets = [OwnedFd::from(unix), tcp.into(), tcp6.into()];
        let passed =
            Passed::from(sockets.map(|fd| ("web.socket".to_owned(), fd)).into_iter().collect::<Vec<_>>());
        for address in wanted {
            assert_eq!(passed.lent(&address).unwrap().len(), 1, "{address}");
        }
        assert_eq!(passed.lent(&Address::Unix("/elsewhere".into())).unwrap().len(), 0);
    }

    #[test]
    fn what_was_kept_for_us_is_no_socket_unit_and_what_nobody_took_is_let_go() {
        let kept = format!("{KEPT}0");
        let mut passed = passed(&["shop", &kept]);
        assert_eq!(passed.lent(&Address::Systemd(kept.clone())).unwrap().len(), 0);
        let address = local_address(&passed.sockets[1].1).unwrap();
        assert_eq!(passed.lent(&address).unwrap().len(), 0);
        assert_eq!(passed.take_unclaimed(), [(kept.clone(), Some(address))]);
        assert_eq!(passed.take(&kept).len(), 0);
        assert_eq!(passed.all().count(), 1);
    }

    #[test]
    fn what_is_taken_is_gone() {
        let mut passed = passed(&["shop", "blog", "shop"]);
        assert_eq!(passed.take("shop").len(), 2);
        assert_eq!(passed.what_there_is("shop"), "systemd passed no socket named shop, only blog");
    }
}
