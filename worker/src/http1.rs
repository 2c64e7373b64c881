//! HTTP/1.1 and 1.0 as a front end (RFC 9112): heads become CGI meta-variables, bodies are gathered or streamed.
//!
//! Always holds: what could be read in two ways (request smuggling) is refused and the connection closed.

mod chunked;
mod gathering;
mod head;

pub(crate) use chunked::Chunked;
pub(crate) use gathering::{Extent, Gathering};
pub(crate) use head::{Ends, Head, Scan, scan};
