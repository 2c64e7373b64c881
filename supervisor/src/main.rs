//! The `hostler` command: supervisor, worker program and client in one.
#![forbid(unsafe_code)]
#![allow(dead_code)] // Parts land one by one; goes when `run` uses them.
mod config;
mod control;
mod fleet;
mod listeners;
mod run;
mod settings;
mod status;
fn main() {}
