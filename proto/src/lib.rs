//! FastCGI 1.0 and the CGI response head (RFC 3875, section 6): bytes to values and back.
//!
//! Names are those of the FastCGI specification without `FCGI_`. Sections cited as "FastCGI 3.3" are those of
//! the FastCGI Specification of 29 April 1996.
//!
//! Always holds: no I/O, no clock, no dependency but `std`; input is borrowed where it can be, never copied; each
//! limit is an argument; any bytes at all lead to a value or an [`Error`], never to a panic.
//!
//! # Limitations
//! - The server's side alone: a client of FastCGI programs finds what it needs in [`record`] and [`pairs`].
//! - One request at a time on a connection: a second one is refused with `CANT_MPX_CONN` (FastCGI 5.5), which
//!   `GET_VALUES` announces by `FCGI_MPXS_CONNS=0`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::type_complexity))]

pub mod cgi;
pub mod gather;
pub mod length;
pub mod pairs;
pub mod record;
pub mod stream;
pub mod token;
pub mod values;

pub use gather::{Begun, Gather, Limits, Step};
pub use pairs::Pairs;
pub use record::{BeginRequest, EndRequest, Header, Kind, ProtocolStatus, Role};
pub use stream::{Piece, Stream};

use std::fmt;

/// What a peer did wrong. Each ends the peer's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// A record of a version other than 1.
    Version(u8),
    /// A record that this side or this moment does not allow.
    Unexpected(Kind),
    /// A record body of a length that its type does not have.
    Length(Kind, u16),
    /// A name or value that runs past the end of its stream.
    Pair,
    /// Parameters over the limit, in bytes.
    ParamsTooLarge(usize),
    /// More bytes around a request than its limits allow.
    TooMuch(usize),
    /// A CGI response head that is none; why, in a phrase.
    Head(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Version(v) => write!(f, "record of FastCGI version {v}, not 1"),
            Error::Unexpected(kind) => {
                write!(f, "record of type {kind:?} at a moment that does not allow it")
            }
            Error::Length(kind, n) => write!(f, "record of type {kind:?} with a body of {n} bytes"),
            Error::Pair => f.write_str("name or value that runs past the end of its stream"),
            Error::ParamsTooLarge(limit) => write!(f, "parameters over the limit of {limit} bytes"),
            Error::TooMuch(limit) => write!(f, "over {limit} bytes before the request was whole"),
            Error::Head(why) => write!(f, "response head with {why}"),
        }
    }
}

impl std::error::Error for Error {}
