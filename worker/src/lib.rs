//! The serving loop of a Hostler worker, its runtimes, and the library for apps in Rust.
pub mod control;
pub mod page;
