//! 20 runs of 50,000 requests one after another: CPU a request and memory stay what they were.
//!
//! The limit is driven beside each run, so that a change of the machine shows as one. A run takes half a second, in
//! which a shared machine differs from itself by more than the 5 % that are looked for; so the twenty runs are made
//! on several Hostlers, each started anew, and the n-th run is the median of theirs.

use super::no_errors;
use crate::{
    ground::Ground,
    hostler::Hostler,
    peers,
    report::{Report, Wanted},
    rounds::{Series, median, progress},
};
use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, Until},
    request::{Protocol, Request},
    server::Server,
};
use std::time::Duration;

const RUNS: usize = 20;
const REQUESTS: u64 = 50_000;
/// So that chance (which worker gets how many) has little to say: four kept connections may all fall on one worker.
const CONNECTIONS: usize = 32;

/// How often.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Extent {
    /// Servers started anew for all the runs, one after another; each figure is the median over them
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Put the result into BENCHMARKS.md
    #[arg(long)]
    write: bool,
}

/// Whether the last five runs cost what the first five did.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let (mut own, mut theirs) = (vec![Vec::new(); RUNS], vec![Vec::new(); RUNS]);
    for round in 0..extent.rounds {
        let ground = Ground::new(4, false)?;
        let limit = peers::limit(&ground)?;
        let hostler = Hostler::native(&ground, "hello", 4, "hello")?;
        for (run, (own, theirs)) in own.iter_mut().zip(&mut theirs).enumerate() {
            progress(&format!("round {} of {}: run {} of {RUNS}", round + 1, extent.rounds, run + 1));
            own.push(drive(&hostler.server)?);
            theirs.push(drive(&limit)?);
        }
    }
    progress("");
    let runs = |of: Vec<Vec<Outcome>>| -> Vec<Series> {
        of.into_iter().enumerate().map(|(run, of)| Series::of((run + 1).to_string(), of)).collect()
    };
    tell(&runs(own), &runs(theirs), extent)
}

fn drive(server: &Server) -> Result<Outcome, Error> {
    let request = Request::new(Protocol::Fastcgi, true);
    let mut plan = Plan::new(server.address().clone(), request, CONNECTIONS, 0.0);
    (plan.until, plan.warm_up, plan.tree) = (Until::Answers(REQUESTS), Duration::ZERO, Some(server.pid()));
    driver::run(&plan)
}

fn tell(own: &[Series], theirs: &[Series], extent: &Extent) -> Result<bool, Error> {
    let mut report = Report::default();
    report.line(format!(
        "{RUNS} runs of {REQUESTS} requests on {CONNECTIONS} kept connections, one after another on one Hostler of 4 \
         workers, the limit beside it; medians of {} such Hostlers.\n",
        extent.rounds
    ));
    let rows: Vec<_> = own.iter().zip(theirs).map(|(own, theirs)| cells(own, theirs)).collect();
    report.table(&["run", "req/s", "CPU us", "range", "memory MiB", "CPU us of the limit", "range"], &rows);
    let drift = |series: &[Series]| last(series, Series::cpu_us) / first(series, Series::cpu_us);
    report.check("CPU a request, last five runs to first five", drift(own), Wanted::AtMost(1.05));
    report.line(format!("- the same of the limit: {:.2}", drift(theirs)));
    let more = last(own, Series::memory) - first(own, Series::memory);
    report.check("private memory, MiB more in the last five runs", more / 1_048_576.0, Wanted::AtMost(0.5));
    no_errors(&mut report, own);
    let command = format!("cargo run --release -p hostler-bench -- drift --rounds {} --write", extent.rounds);
    report.finish("drift", &command, extent.write)
}

fn cells(own: &Series, theirs: &Series) -> Vec<String> {
    let range = |series: &Series| {
        let (least, most) = series.range(|outcome| outcome.cpu_us().unwrap_or(0.0));
        format!("{least:.1}–{most:.1}")
    };
    vec![
        own.name.clone(),
        format!("{:.0}", own.rate()),
        format!("{:.2}", own.cpu_us()),
        range(own),
        format!("{:.2}", own.memory() / 1_048_576.0),
        format!("{:.2}", theirs.cpu_us()),
        range(theirs),
    ]
}

fn first(runs: &[Series], of: fn(&Series) -> f64) -> f64 {
    median(runs.iter().take(5).map(of).collect())
}

fn last(runs: &[Series], of: fn(&Series) -> f64) -> f64 {
    median(runs.iter().rev().take(5).map(of).collect())
}
