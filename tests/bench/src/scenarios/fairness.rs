//! 32 kept connections on 4 workers: each gets its share.

use super::{HEAD, no_errors, row};
use crate::{
    ground::Ground,
    hostler::Hostler,
    report::{Report, Wanted},
    rounds::{Entry, Extent, alternate},
};
use hostler_bench::{
    load::{Error, Outcome, Plan, real},
    request::{Protocol, Request},
};

const CONNECTIONS: usize = 32;

/// Whether no connection gets less than half of the mean, in the median round.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let hostler = Hostler::native(&ground, "hello", 4, "hello")?;
    let plan = |protocol, address: &_| {
        let mut plan =
            Plan::new(Clone::clone(address), Request::new(protocol, true), CONNECTIONS, extent.seconds);
        plan.tree = Some(hostler.server.pid());
        plan
    };
    let entries = [
        Entry::new("FastCGI", plan(Protocol::Fastcgi, hostler.server.address())),
        Entry::new("HTTP", plan(Protocol::Http, &hostler.http)),
    ];
    let series = alternate(&entries, extent.rounds)?;
    let mut report = Report::default();
    report.line(format!("{CONNECTIONS} kept connections on 4 workers.\n"));
    report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
    for series in &series {
        report.check(
            &format!("{}: answers of the connection with the fewest, to the mean", series.name),
            series.median(|outcome| share(outcome, outcome.fairness().0)),
            Wanted::AtLeast(0.5),
        );
        let most = series.median(|outcome| share(outcome, outcome.fairness().1));
        report.line(format!("- {}: of the connection with the most: {most:.2}", series.name));
    }
    no_errors(&mut report, &series);
    report.finish("fairness", &extent.command("fairness"), extent.write)
}

fn share(outcome: &Outcome, count: u64) -> f64 {
    real(count) * real(CONNECTIONS as u64) / real(outcome.requests.max(1))
}
