//! 20 runs of 50,000 requests one after another: CPU a request and memory stay what they were.
//!
//! The limit is driven beside each run, so that a change of the machine shows as one.

use crate::{
    ground::Ground,
    hostler::Hostler,
    peers,
    report::{Report, Wanted},
    rounds::{Extent, median, progress},
};
use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, Until, real},
    request::{Protocol, Request},
    server::Server,
};
use std::time::Duration;

const RUNS: usize = 20;
const REQUESTS: u64 = 50_000;

/// Whether the last five runs cost what the first five did.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let limit = peers::limit(&ground)?;
    let hostler = Hostler::native(&ground, "hello", 4, "hello")?;
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        progress(&format!("run {} of {RUNS}", run + 1));
        own.push(drive(&hostler.server)?);
        theirs.push(drive(&limit)?);
    }
    progress("");
    let mut report = Report::default();
    report.line(format!(
        "{RUNS} runs of {REQUESTS} requests on 16 kept connections, 4 workers; the limit beside it.\n"
    ));
    let cells = |run: usize, own: &Outcome, theirs: &Outcome| {
        vec![
            (run + 1).to_string(),
            format!("{:.0}", own.rate()),
            format!("{:.2}", cpu(own)),
            format!("{:.2}", memory(own) / 1_048_576.0),
            format!("{:.2}", cpu(theirs)),
        ]
    };
    let rows: Vec<_> =
        own.iter().zip(&theirs).enumerate().map(|(run, (own, theirs))| cells(run, own, theirs)).collect();
    report.table(&["run", "req/s", "CPU us", "memory MiB", "CPU us of the limit"], &rows);
    report.check("CPU a request, last five runs to first five", drift(&own, cpu), Wanted::AtMost(1.05));
    report.line(format!("- the same of the limit: {:.2}", drift(&theirs, cpu)));
    let (before, after) = (first(&own, memory), last(&own, memory));
    report.check(
        "private memory, MiB more in the last five runs",
        (after - before) / 1_048_576.0,
        Wanted::AtMost(0.5),
    );
    let errors = own.iter().map(|outcome| outcome.errors).sum();
    report.check("failed requests", real(errors), Wanted::AtMost(0.0));
    report.finish("drift", "cargo run --release -p hostler-bench -- drift --write", extent.write)
}

fn drive(server: &Server) -> Result<Outcome, Error> {
    let mut plan = Plan::new(server.address().clone(), Request::new(Protocol::Fastcgi, true), 16, 0.0);
    (plan.until, plan.warm_up, plan.tree) = (Until::Answers(REQUESTS), Duration::ZERO, Some(server.pid()));
    driver::run(&plan)
}

fn cpu(outcome: &Outcome) -> f64 {
    outcome.cpu_us().unwrap_or(0.0)
}

fn memory(outcome: &Outcome) -> f64 {
    real(outcome.memory.unwrap_or(0))
}

fn drift(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    last(outcomes, of) / first(outcomes, of)
}

fn first(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    median(outcomes.iter().take(5).map(of).collect())
}

fn last(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    median(outcomes.iter().rev().take(5).map(of).collect())
}
