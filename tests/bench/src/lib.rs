//! A closed-loop load driver for FastCGI and HTTP, and what it takes to measure a server with it.
//!
//! Written apart from `hostler-proto` and `hostler-worker`, so that a mistake there shows here.
//! The `hostler-bench` command in this package measures Hostler beside its peers; tests may use the
//! driver as a library: a [`load::Plan`] in, a [`load::Outcome`] out.
//!
//! # Limitations
//! One thread, so at most about 300,000 requests a second on a small machine; one request in flight on a
//! connection; no TLS; HTTP answers by content-length, chunked or until close, and nothing else.

#![forbid(unsafe_code)]

pub mod address;
pub mod answer;
pub mod driver;
pub mod load;
pub mod request;
pub mod server;
pub mod still;
pub mod times;
pub mod tree;
