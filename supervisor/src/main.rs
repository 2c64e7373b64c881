//! The `hostler` command: supervisor, worker program and client in one.
//!
//! Reads the command line and calls the part that does it; the files beside it are these parts. `run` is the
//! supervisor; `ask` are the commands that talk to a running one; `check`, `serve` and `demo` are what they say.
#![forbid(unsafe_code)]

mod ask;
mod check;
mod cli;
mod config;
mod control;
mod demo;
#[allow(dead_code)] // The simulator and the stories look at more than the shell does.
mod fleet;
mod guess;
mod import;
mod listeners;
mod manual;
mod run;
mod scratch;
mod serve;
mod settings;
mod status;

use clap::CommandFactory;
use cli::{Cli, Command};
use std::{
    io::{self, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    match Cli::of_this_process().command {
        Command::Demo(options) => demo::demo(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Run(options) => run::run(run::Source::File(options.config)),
        Command::Check(options) => check::check(&options.config),
        Command::Reload(options) => ask::reload(&options),
        Command::Status(options) => ask::status(&options),
        Command::Stop(options) => ask::stop(&options),
        Command::Start(options) => ask::start(&options),
        Command::Restart(options) => ask::restart(&options),
        Command::Probe => run::probe(),
        Command::Man { directory } => manual::write(&directory),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "hostler", &mut io::stdout());
            ExitCode::SUCCESS
        }
        Command::Import(options) => import::import(&options),
        Command::Worker { .. } => worker(),
    }
}

/// What the supervisor starts.
fn worker() -> ExitCode {
    hostler_worker::program::main()
}

/// Prints to standard output. That nobody reads it is no fault: `hostler status | head`.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
