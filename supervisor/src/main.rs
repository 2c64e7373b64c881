//! The `hostler` command: supervisor, worker program and client in one.
#![forbid(unsafe_code)]
mod settings;
fn main() {}
