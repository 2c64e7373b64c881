//! `hostler-bench`: measures Hostler beside its peers. README.md here says how.

#![forbid(unsafe_code)]

mod compare;
mod ground;
mod hostler;
mod limit;
mod nginx;
mod options;
mod peers;
mod prefork;
mod report;
mod rounds;

use clap::{Parser, Subcommand};
use hostler_bench::load::Error;
use std::process::ExitCode;

/// Measures Hostler beside its peers
#[derive(Debug, Parser)]
#[command(name = "hostler-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put load on a FastCGI or HTTP server and say what came of it
    Load(Box<options::Load>),
    /// Serve a fixed answer with the least work that a FastCGI server can do
    Limit(options::Limit),
    /// Start copies of a program that share one listener as descriptor 0
    Prefork(options::Prefork),
    /// Measure Hostler beside the limit and the peers of Debian 12
    Compare(compare::Compare),
    /// One process of `limit`; the listener is descriptor 0
    #[command(hide = true)]
    LimitWorker,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hostler-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all that was measured is as it should be.
fn run(command: Command) -> Result<bool, Error> {
    match command {
        Command::Load(load) => load.run(),
        Command::Limit(limit) => limit::serve(&limit.address, limit.processes).map(|()| true),
        Command::Prefork(it) => prefork::serve(&it.address, it.processes, &it.program).map(|()| true),
        Command::Compare(compare) => compare.run(),
        Command::LimitWorker => limit::worker().map(|()| true),
    }
}
