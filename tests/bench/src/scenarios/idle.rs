//! 10,000 kept connections at rest on 4 workers: what each costs in memory, what a load beside them costs in CPU,
//! and whether anything wakes up for them.
//!
//! Always holds: one Hostler has the load alone and beside them by turns, the connections opened anew each time. Two
//! Hostlers, one of them with the connections, would differ by more than what is measured: by which worker runs where.

use super::{HEAD, SETTLED, no_errors, row};
use crate::{
    ground::Ground,
    hostler::Hostler,
    report::{Report, Wanted},
    rounds::{Extent, Series, progress},
};
use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, real},
    request::{Protocol, Request},
    still::{Still, Stop, raise_descriptor_limit},
    tree,
};
use std::{thread, time::Duration};

const WANTED: usize = 10_000;
/// Descriptors that this program needs for other things.
const SPARE: u64 = 200;

/// Whether memory, CPU and rest hold.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let room = usize::try_from(raise_descriptor_limit()?.saturating_sub(SPARE)).unwrap_or(usize::MAX);
    let count = WANTED.min(room);
    let hostler = Hostler::native(&ground, "hello", 4, "hello")?;
    let measured = measure(&hostler, count, extent)?;

    let mut report = Report::default();
    report.line(format!(
        "{count} kept FastCGI connections at rest on 4 workers; a load of 16 kept ones beside them.\n"
    ));
    let [alone, beside] = &measured.series;
    report.table(&HEAD, &[row(alone), row(beside)]);
    let each = real(measured.memory) / real(count.max(1) as u64);
    report.check("private memory of each, bytes", each, Wanted::AtMost(2048.0));
    let ratio = beside.cpu_us() / alone.cpu_us();
    report.check("CPU a request, beside them to alone", ratio, Wanted::AtMost(1.1));
    let wake_ups = real(measured.wake_ups);
    report.check(&format!("wake-ups in {} s at rest", extent.seconds), wake_ups, Wanted::AtMost(0.0));
    let closed = real(measured.closed as u64);
    report.check("connections at rest that the server closed", closed, Wanted::AtMost(0.0));
    no_errors(&mut report, &measured.series);
    report.finish("idle", &extent.command("idle"), extent.write)
}

struct Measured {
    /// The load alone, and beside the connections at rest.
    series: [Series; 2],
    /// Bytes that the connections took when they first came.
    memory: u64,
    wake_ups: u64,
    /// Connections at rest that the server closed in any round.
    closed: usize,
}

fn measure(hostler: &Hostler, count: usize, extent: &Extent) -> Result<Measured, Error> {
    let request = Request::new(Protocol::Fastcgi, true);
    let (address, pid) = (hostler.server.address(), hostler.server.pid());
    let mut plan = Plan::new(address.clone(), request.clone(), 16, extent.seconds);
    plan.tree = Some(pid);
    // It has served before memory is looked at, so that the connections alone make the difference.
    driver::run(&plan)?;
    let before = tree::private_memory(pid);
    let held = Still::open(address, &request, Stop::AtRest, count)?;
    let memory = tree::private_memory(pid).saturating_sub(before);
    thread::sleep(SETTLED);
    let wake_ups = wake_ups(pid, extent.seconds);
    let mut closed = count - held.untouched();
    drop(held);

    let mut outcomes: [Vec<Outcome>; 2] = Default::default();
    for round in 0..extent.rounds {
        let [alone, beside] = &mut outcomes;
        let mut turns = [(alone, 0), (beside, count)];
        if round % 2 == 1 {
            turns.reverse();
        }
        for (outcomes, at_rest) in turns {
            progress(&format!("round {} of {}: {at_rest} at rest", round + 1, extent.rounds));
            let held = Still::open(address, &request, Stop::AtRest, at_rest)?;
            thread::sleep(SETTLED);
            outcomes.push(driver::run(&plan)?);
            closed += at_rest - held.untouched();
        }
    }
    progress("");
    let [alone, beside] = outcomes;
    let series = [Series::of("alone", alone), Series::of("beside those at rest", beside)];
    Ok(Measured { series, memory, wake_ups, closed })
}

fn wake_ups(pid: u32, seconds: f64) -> u64 {
    let before = tree::wake_ups(pid);
    thread::sleep(Duration::from_secs_f64(seconds));
    tree::wake_ups(pid).saturating_sub(before)
}
