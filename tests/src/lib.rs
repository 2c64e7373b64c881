//! Drives the real programs from outside: the clients, process stories and web servers that the tests in
//! `tests/` are told with.
//!
//! Always holds: every wait has a deadline and waits on a descriptor or a line, never on a bare sleep; every
//! process that a story starts ends with it; the clients ([`fcgi`], [`http`]) share no code with `hostler-proto`
//! and `hostler-worker`, so that a shared mistake shows. The one thing taken from there is the control
//! protocol's types, since [`worker`] plays the supervisor's part in it.
//!
//! Does not build the programs: `./test` does, or `cargo build --workspace --bins --examples`.

pub mod fcgi;
pub mod fronts;
pub mod http;
pub mod load;
pub mod malformed;
pub mod net;
pub mod nginx;
pub mod place;
pub mod pools;
pub mod program;
pub mod reader;
pub mod relay;
pub mod site;
pub mod web;
pub mod worker;
