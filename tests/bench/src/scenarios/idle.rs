//! 10,000 kept connections at rest on 4 workers: what each costs in memory, what a load beside them costs in CPU,
//! and whether anything wakes up for them.
//!
//! Two Hostlers alike run; one of them has the connections at rest.

use super::{HEAD, no_errors, row};
use crate::{
    ground::Ground,
    hostler::Hostler,
    report::{Report, Wanted},
    rounds::{Entry, Extent, alternate, progress},
};
use hostler_bench::{
    load::{Error, Plan, real},
    request::{Protocol, Request},
    still::{Still, Stop, raise_descriptor_limit},
    tree,
};
use std::{thread, time::Duration};

const WANTED: u64 = 10_000;
/// Descriptors that this program needs for other things.
const SPARE: u64 = 200;

/// Whether memory, CPU and rest hold.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let count = WANTED.min(raise_descriptor_limit()?.saturating_sub(SPARE));
    let quiet = Hostler::native(&ground, "quiet", 4, "hello")?;
    let full = Hostler::native(&ground, "full", 4, "hello")?;
    let plan = |hostler: &Hostler| {
        let mut plan = Plan::new(
            hostler.server.address().clone(),
            Request::new(Protocol::Fastcgi, true),
            16,
            extent.seconds,
        );
        plan.tree = Some(hostler.server.pid());
        plan
    };
    // Both have served before memory is looked at, so that the connections alone make the difference.
    alternate(&[Entry::new("quiet", plan(&quiet)), Entry::new("full", plan(&full))], 1)?;
    let before = tree::private_memory(full.server.pid());
    progress("opening connections");
    let request = Request::new(Protocol::Fastcgi, true);
    let held =
        Still::open(full.server.address(), &request, Stop::AtRest, usize::try_from(count).unwrap_or(0))?;
    let after = tree::private_memory(full.server.pid());
    let entries = [Entry::new("alone", plan(&quiet)), Entry::new("beside those at rest", plan(&full))];
    let series = alternate(&entries, extent.rounds)?;
    let wake_ups = wake_ups_at_rest(&full, extent.seconds);

    let mut report = Report::default();
    report.line(format!(
        "{count} kept FastCGI connections at rest on 4 workers; a load of 16 kept ones beside them.\n"
    ));
    report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
    let each = real(after.saturating_sub(before)) / real(count.max(1));
    report.check("private memory of each, bytes", each, Wanted::AtMost(2048.0));
    if let [alone, beside] = series.as_slice() {
        report.check(
            "CPU a request, beside them to alone",
            beside.cpu_us() / alone.cpu_us(),
            Wanted::AtMost(1.1),
        );
    }
    report.check(&format!("wake-ups in {} s at rest", extent.seconds), real(wake_ups), Wanted::AtMost(0.0));
    let closed = real(count) - real(held.untouched() as u64);
    report.check("connections at rest that the server closed", closed, Wanted::AtMost(0.0));
    no_errors(&mut report, &series);
    report.finish("idle", &extent.command("idle"), extent.write)
}

fn wake_ups_at_rest(hostler: &Hostler, seconds: f64) -> u64 {
    // What ends soon after the last request may end first.
    thread::sleep(Duration::from_secs(1));
    let before = tree::wake_ups(hostler.server.pid());
    thread::sleep(Duration::from_secs_f64(seconds));
    tree::wake_ups(hostler.server.pid()).saturating_sub(before)
}
