//! A request as an app sees it, whichever protocol brought it.
//!
//! Always holds: the head is whole; parameters are borrowed from the connection's bytes; the body streams.

use crate::{Error, body::Body, control::Protocol, params::Params};
use hostler_proto::{Header, Kind, Role};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, recv},
};
use std::{
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
};

/// A request; see the module.
pub struct Request<'a> {
    pub(crate) params: Params<'a>,
    /// Decoded, dot segments removed.
    pub(crate) path: &'a [u8],
    /// Bytes of `path` that are the app's mount.
    pub(crate) mount: usize,
    pub(crate) protocol: Protocol,
    pub(crate) role: Role,
    pub(crate) id: u16,
    pub(crate) body: Body<'a>,
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) bytes: &'a [u8],
    pub(crate) data: &'a [Range<usize>],
    /// It was served again after a program had died in it.
    pub(crate) retried: bool,
}

impl<'a> Request<'a> {
    /// REQUEST_METHOD: `GET`.
    #[must_use]
    pub fn method(&self) -> &'a [u8] {
        self.params.get("REQUEST_METHOD").unwrap_or(b"GET")
    }

    /// A meta-variable (RFC 3875, section 4.1). `SCRIPT_NAME` and `PATH_INFO` are those of the routing.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'a [u8]> {
        match name {
            "SCRIPT_NAME" => Some(self.script_name()),
            "PATH_INFO" => Some(self.path_info()),
            _ => self.params.get(name),
        }
    }

    /// All meta-variables. `SCRIPT_NAME` and `PATH_INFO` are those of the routing.
    pub fn params(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let routed = [(&b"SCRIPT_NAME"[..], self.script_name()), (b"PATH_INFO", self.path_info())];
        let sent = self.params.iter().filter(|(name, _)| !matches!(*name, b"SCRIPT_NAME" | b"PATH_INFO"));
        routed.into_iter().chain(sent)
    }

    /// The meta-variables as the web server sent them, or as an HTTP head gives them: then without `SCRIPT_NAME`
    /// and `PATH_INFO`.
    #[must_use]
    pub fn sent(&self) -> Params<'a> {
        self.params
    }

    /// A header field by its name in lower case: `if-none-match`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.params.header(name)
    }

    /// The whole path, percent-decoded, without dot segments: `/app/page`.
    #[must_use]
    pub fn path(&self) -> &'a [u8] {
        self.path
    }

    /// The app's part of the path, without a slash at its end: `/app`, or empty.
    #[must_use]
    pub fn script_name(&self) -> &'a [u8] {
        self.path.get(..self.mount).unwrap_or_default()
    }

    /// What follows the app's part: `/page`, or empty.
    #[must_use]
    pub fn path_info(&self) -> &'a [u8] {
        self.path.get(self.mount..).unwrap_or_default()
    }

    /// QUERY_STRING: `a=b&c`, not decoded.
    #[must_use]
    pub fn query(&self) -> &'a [u8] {
        self.params.get("QUERY_STRING").unwrap_or_default()
    }

    /// REQUEST_URI: the target as the client sent it.
    #[must_use]
    pub fn uri(&self) -> &'a [u8] {
        self.params.get("REQUEST_URI").unwrap_or(self.path)
    }

    /// What the web server asks the app to be (FastCGI 6); Responder over HTTP.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The protocol that brought the request.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The head in the types of the `http` crate. It copies; [`Request::param`] and [`Request::header`] do not.
    ///
    /// # Errors
    /// Method, target or a field cannot stand in these types.
    pub fn head(&self) -> Result<http::Request<()>, Error> {
        let mut builder = http::Request::builder().method(self.method()).uri(self.uri());
        for (name, value) in self.params.iter() {
            let name = match name {
                b"CONTENT_TYPE" | b"CONTENT_LENGTH" if !value.is_empty() => name,
                _ => match name.strip_prefix(b"HTTP_") {
                    Some(name) => name,
                    None => continue,
                },
            };
            let name: Vec<u8> =
                name.iter().map(|b| if *b == b'_' { b'-' } else { b.to_ascii_lowercase() }).collect();
            builder = builder.header(name, value);
        }
        Ok(builder.body(())?)
    }

    /// The body; see [`Body`].
    pub fn body(&mut self) -> &mut Body<'a> {
        &mut self.body
    }

    /// The file that a Filter works on (FastCGI 6.4), in the pieces in which it came. It is gathered whole: with the
    /// body it must stay within the limit of what is gathered.
    pub fn data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.data.iter().map(move |piece| bytes.get(piece.clone()).unwrap_or_default())
    }

    /// The client has left or taken the request back, so that an answer is of no use. One or two system calls.
    ///
    /// An HTTP client that has closed its sending side counts as gone, as at most web servers.
    #[must_use]
    pub fn client_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.fd, PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n == 0) {
            return false;
        }
        let events = fds.first().and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return true;
        }
        let mut bytes = [0; Header::LEN];
        match recv(self.fd.as_raw_fd(), &mut bytes, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Ok(0) => true,
            Ok(Header::LEN) if self.protocol == Protocol::Fastcgi && !self.body.has_buffered() => {
                Header::from_bytes(bytes).is_ok_and(|h| h.kind == Kind::AbortRequest && h.id == self.id)
            }
            _ => false,
        }
    }

    /// Writes a line to the worker's log, with the request that it belongs to.
    pub fn log(&self, line: &[u8]) {
        let (method, uri) = (printable(self.method()), printable(self.uri()));
        eprintln!("{} [{method} {uri}]", String::from_utf8_lossy(line).trim_end());
    }
}

/// What a peer sent, as text that cannot end a line or pass for another.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
