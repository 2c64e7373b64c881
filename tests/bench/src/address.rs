//! Where a server listens, as one writes it on a command line: `unix:/path` or `tcp:ADDRESS:PORT`.

use std::{
    fmt, io,
    net::{SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    str::FromStr,
};

/// An address to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:/path`.
    Unix(PathBuf),
    /// `tcp:127.0.0.1:8080`.
    Tcp(SocketAddr),
}

impl Address {
    /// A new connection, in blocking mode; `TCP_NODELAY` is set.
    ///
    /// # Errors
    /// What `connect` says.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        text.strip_prefix("tcp:")
            .and_then(|address| address.parse().ok())
            .map(Self::Tcp)
            .ok_or_else(|| format!("{text}: an address is unix:PATH or tcp:ADDRESS:PORT"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for text in ["unix:/run/x.sock", "tcp:127.0.0.1:80", "tcp:[::1]:80"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert!("127.0.0.1:80".parse::<Address>().is_err());
    }
}
