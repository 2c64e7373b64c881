//! `hostler-bench`: measures Hostler beside its peers. README.md here says how.

#![forbid(unsafe_code)]

mod compare;
mod ground;
mod guard;
mod hostler;
mod limit;
mod lockstep;
mod nginx;
mod options;
mod peers;
mod prefork;
mod report;
mod rounds;
mod scenarios;

use clap::{Parser, Subcommand};
use hostler_bench::load::Error;
use rounds::Extent;
use scenarios::{
    beside, drift, fairness, files, idle, mono, pools, programs, reload, slow, stalled, through, trouble,
};
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
    /// 32 kept connections on 4 workers: each gets its share
    Fairness(Extent),
    /// 1 request in 2,000 takes 100 ms: what the others feel of it
    Slow(Extent),
    /// 1,500 silent and stalled connections beside a load, and a reload
    Stalled(Extent),
    /// 10,000 kept connections at rest beside a load
    Idle(Extent),
    /// 20 runs of 50,000 requests: CPU and memory stay what they were
    Drift(drift::Extent),
    /// Through nginx, against nginx with the limit
    ThroughNginx(Extent),
    /// A file of 32 KiB to 400 connections, against nginx
    Files(Extent),
    /// A CGI program, a shell script and php-cgi, against fcgiwrap and php-fpm
    Programs(Extent),
    /// What goes wrong in fcgiwrap and php-fpm, done to Hostler too: whether it is right, not how fast
    Beside(beside::Beside),
    /// 100,000 requests to ASP.NET on mono, which grows with each, under a soft limit of memory
    Mono(mono::Mono),
    /// 1,000 pools in one supervisor; 20 pools at rest
    Pools(Extent),
    /// Reloads beside a request of 30 s and 100 connections at rest
    Reload(Extent),
    /// Reloads, deploys, upgrades, leaks and kills under load: no request fails
    Trouble(trouble::Trouble),
    /// Count the instructions that a request costs the worker, and hold them against the record
    Guard(guard::Guard),
    /// One process of `limit`; the listener is descriptor 0
    #[command(hide = true)]
    LimitWorker {
        #[arg(long)]
        spread: bool,
    },
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
        Command::Limit(limit) => limit::serve(&limit).map(|()| true),
        Command::Prefork(it) => prefork::serve(&it.address, it.processes, &it.program).map(|()| true),
        Command::Compare(compare) => compare.run(),
        Command::Fairness(extent) => fairness::run(&extent),
        Command::Slow(extent) => slow::run(&extent),
        Command::Stalled(extent) => stalled::run(&extent),
        Command::Idle(extent) => idle::run(&extent),
        Command::Drift(extent) => drift::run(&extent),
        Command::ThroughNginx(extent) => through::run(&extent),
        Command::Files(extent) => files::run(&extent),
        Command::Programs(extent) => programs::run(&extent),
        Command::Beside(beside) => beside.run(),
        Command::Mono(mono) => mono.run(),
        Command::Pools(extent) => pools::run(&extent),
        Command::Reload(extent) => reload::run(&extent),
        Command::Trouble(trouble) => trouble.run(),
        Command::Guard(guard) => guard.run(),
        Command::LimitWorker { spread } => limit::worker(spread).map(|()| true),
    }
}
