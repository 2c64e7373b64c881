//! What can go wrong while a request is served, by who erred.

use std::{fmt, io};

/// An error of serving a request.
///
/// Returned by an [`crate::App`] before its head is out, it becomes a whole error answer; after that, the
/// connection is cut so that the cut shows.
#[derive(Debug)]
pub enum Error {
    /// The client is gone: nothing to answer.
    Gone,
    /// The client sent something that is answered with this status; why, for the log.
    Client(u16, &'static str),
    /// Another has answered in the app's place: it took too long.
    Overtaken,
    /// The app failed: 500; why, for the log.
    App(String),
    /// The app cannot be reached or is overloaded: answered with this status; why, for the log.
    Upstream(u16, String),
    /// The system refused something to the app: 500.
    System(io::Error),
}

impl Error {
    /// The status that answers it; `None` where nobody is there to answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Gone | Error::Overtaken => None,
            Error::Client(status, _) | Error::Upstream(status, _) => Some(*status),
            Error::App(_) | Error::System(_) => Some(500),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Gone => f.write_str("the client is gone"),
            Error::Client(status, why) => write!(f, "the client sent {why} ({status})"),
            Error::Overtaken => f.write_str("the request was answered with 504 at its timeout"),
            Error::App(why) => write!(f, "the app failed: {why}"),
            Error::Upstream(status, why) => write!(f, "{why} ({status})"),
            Error::System(e) => write!(f, "the app met a system error: {e}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    /// An error that passed through `Read` or `Write` is taken out again.
    fn from(e: io::Error) -> Error {
        match e.downcast::<Error>() {
            Ok(error) => error,
            Err(e) => Error::System(e),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error {
            Error::Gone => io::ErrorKind::ConnectionAborted,
            Error::Client(413, _) => io::ErrorKind::FileTooLarge,
            Error::Client(408, _) | Error::Overtaken => io::ErrorKind::TimedOut,
            Error::Client(..) => io::ErrorKind::InvalidData,
            Error::System(e) => return e,
            Error::App(_) | Error::Upstream(..) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl From<nix::Error> for Error {
    fn from(e: nix::Error) -> Error {
        Error::System(e.into())
    }
}

impl From<String> for Error {
    fn from(why: String) -> Error {
        Error::App(why)
    }
}

impl From<&str> for Error {
    fn from(why: &str) -> Error {
        Error::App(why.to_owned())
    }
}

impl From<http::Error> for Error {
    fn from(e: http::Error) -> Error {
        Error::App(e.to_string())
    }
}
