//! A pool's listener in a worker, and who may connect to it.

use crate::{
    control::{Listener, Protocol},
    http1::Ends,
};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockaddrLike, SockaddrStorage, accept4, getpeername, getsockname, setsockopt,
    sockopt,
};
use std::{
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// A network: an address and the bits of it that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads `10.0.0.0/8`, `::1`; `None` where it is neither.
    pub(crate) fn parse(text: &str) -> Option<Network> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address.parse::<IpAddr>().ok()?, Some(bits.parse::<u32>().ok()?)),
            None => (text.parse::<IpAddr>().ok()?, None),
        };
        let width = if address.is_ipv4() { 32 } else { 128 };
        bits.is_none_or(|bits| bits <= width).then(|| Network { address, bits: bits.unwrap_or(width) })
    }

    /// Whether an address is in it. An IPv4 address that arrives mapped into IPv6 is an IPv4 address.
    fn holds(self, address: IpAddr) -> bool {
        let number = |a: IpAddr| match a {
            IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
            IpAddr::V6(a) => u128::from(a),
        };
        let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && (number(address) ^ number(self.address)) & mask == 0
    }
}

/// See the module.
pub(crate) struct Listening {
    fd: OwnedFd,
    pub(crate) protocol: Protocol,
    tcp: bool,
    allow: Vec<Network>,
}

impl Listening {
    /// The listener on a descriptor that the supervisor bound.
    ///
    /// # Errors
    /// A network that is none, as a phrase.
    pub(crate) fn new(fd: OwnedFd, listener: &Listener) -> Result<Listening, String> {
        let allow = listener.allow.iter().map(|text| {
            Network::parse(text).ok_or_else(|| format!("{}: \"{text}\" is no network", listener.address))
        });
        let tcp = getsockname::<SockaddrStorage>(fd.as_raw_fd())
            .is_ok_and(|a| matches!(a.family(), Some(AddressFamily::Inet | AddressFamily::Inet6)));
        if tcp {
            // Connections inherit it: a small answer must not wait for an acknowledgement.
            let _ = setsockopt(&fd, sockopt::TcpNoDelay, &true);
        }
        let allow = allow.collect::<Result<_, _>>()?;
        // Several workers wake for one connection now and then: the loser must not wait in accept.
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        let _ = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(flags));
        Ok(Listening { fd, protocol: listener.protocol, tcp, allow })
    }

    /// Takes a connection; `None` where none waits or the peer may not connect.
    ///
    /// # Errors
    /// No descriptors or memory are left.
    pub(crate) fn accept(&self) -> nix::Result<Option<(OwnedFd, Option<Box<Ends>>)>> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = match accept4(&self.fd, flags) {
            Ok(fd) => fd,
            Err(e @ (nix::Error::EMFILE | nix::Error::ENFILE | nix::Error::ENOBUFS | nix::Error::ENOMEM)) => {
                return Err(e);
            }
            Err(_) => return Ok(None),
        };
        if self.tcp && !self.allow.is_empty() {
            let peer = peer_address(fd.as_fd());
            if !peer.is_some_and(|peer| self.allow.iter().any(|network| network.holds(peer))) {
                return Ok(None);
            }
        }
        let ends = (self.protocol == Protocol::Http).then(|| Box::new(ends(fd.as_fd())));
        Ok(Some((fd, ends)))
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<std::net::SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|a| std::net::SocketAddr::from((a.ip(), a.port())));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| std::net::SocketAddr::from((a.ip(), a.port()))))
}

fn peer_address(fd: BorrowedFd<'_>) -> Option<IpAddr> {
    let peer = getpeername::<SockaddrStorage>(fd.as_raw_fd()).ok()?;
    Some(socket_address(&peer)?.ip())
}

/// Both ends of a connection, for the meta-variables of HTTP. Over a Unix socket they are empty.
pub(crate) fn ends(fd: BorrowedFd<'_>) -> Ends {
    let peer = getpeername::<SockaddrStorage>(fd.as_raw_fd()).ok().as_ref().and_then(socket_address);
    let Some(peer) = peer else { return Ends { server_port: "80".into(), ..Ends::default() } };
    let own = getsockname::<SockaddrStorage>(fd.as_raw_fd()).ok().as_ref().and_then(socket_address);
    Ends {
        remote_addr: peer.ip().to_canonical().to_string(),
        remote_port: peer.port().to_string(),
        server_addr: own.map(|own| own.ip().to_canonical().to_string()).unwrap_or_default(),
        server_port: own.map(|own| own.port().to_string()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_ipv4_address_is_an_ipv4_address() {
        let local = Network::parse("127.0.0.0/8").unwrap();
        for (address, held) in [
            ("127.0.0.1", true),
            ("::ffff:127.9.9.9", true),
            ("128.0.0.1", false),
            ("::1", false),
            ("7f00::", false),
        ] {
            assert_eq!(local.holds(address.parse().unwrap()), held, "{address}");
        }
    }

    #[test]
    fn networks_have_borders() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.1.2.3/31", "10.1.2.2", "10.1.2.4"),
            ("fe80::/10", "febf::1", "fec0::"),
            ("::1", "::1", "::2"),
        ] {
            let network = Network::parse(network).unwrap();
            assert!(network.holds(inside.parse().unwrap()) && !network.holds(outside.parse().unwrap()));
        }
        assert!(Network::parse("0.0.0.0/0").unwrap().holds("9.9.9.9".parse().unwrap()));
        for none in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.0/-1", "10.0.0.0/"] {
            assert_eq!(Network::parse(none), None, "{none}");
        }
    }
}
