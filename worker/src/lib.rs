//! The serving loop of a Hostler worker, its runtimes, and the library for apps in Rust.
//!
//! A program of ten lines is a worker:
//!
//! ```no_run
//! use hostler_worker::{Error, Request, run};
//!
//! fn main() -> std::process::ExitCode {
//!     run(|request: &mut Request<'_>| {
//!         let who = String::from_utf8_lossy(request.path_info()).into_owned();
//!         Ok::<_, Error>(http::Response::builder().header("content-type", "text/plain").body(format!("hello {who}\n"))?)
//!     })
//! }
//! ```
//!
//! It runs under `hostler run` (`runtime = "native"`, `command = ["…"]`), and under any FastCGI process manager that
//! puts a listener on descriptor 0.
//!
//! # Limitations
//! - One request at a time in a process, by design: more workers serve more requests.
//! - FastCGI connections are not multiplexed (FastCGI 5.5, CANT_MPX_CONN).
//! - HTTP without TLS: a web server belongs in front where clients are strangers.
#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::type_complexity))]
#![deny(unsafe_code)]

mod answer;
mod app;
mod beneath;
mod body;
mod cgi;
pub mod control;
mod counters;
mod date;
mod demo;
mod error;
mod exchange;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hand;
mod heir;
mod http1;
mod keeper;
mod link;
mod listening;
mod memory;
pub mod page;
mod params;
mod paths;
pub mod program;
mod queue;
mod relay;
mod request;
mod routes;
mod runtimes;
mod sandbox;
mod serve;
mod shared;
mod socket;
mod start;
#[allow(unsafe_code)] // the one file with unsafe code
mod sys;
mod table;
mod wait;

pub use answer::Answer;
pub use app::{App, Content};
pub use body::Body;
pub use error::Error;
pub use params::Params;
pub use request::Request;
pub use start::{run, run_app};
