//! 500 connections that say nothing, 500 that stop inside the head and 500 that stop inside a body of 10 KB, on
//! 4 workers: the load beside them and a reload feel nothing of it.
//!
//! Always holds: one Hostler has the load alone and beside them by turns, the connections opened anew each time, so that
//! no timeout of theirs falls into it. Two Hostlers would differ by more than what is measured.

use super::{HEAD, SETTLED, no_errors, row};
use crate::{
    ground::Ground,
    hostler::Hostler,
    report::{Report, Wanted},
    rounds::{Extent, Series, median, progress},
};
use hostler_bench::{
    address::Address,
    driver,
    load::{Error, Outcome, Plan},
    request::{Protocol, Request},
    still::{Still, Stop},
};
use std::thread;

const EACH: usize = 500;
const STOPS: [Stop; 3] = [Stop::Silent, Stop::InHead, Stop::InBody];
const PROTOCOLS: [(Protocol, &str); 2] = [(Protocol::Fastcgi, "FastCGI"), (Protocol::Http, "HTTP")];

/// Whether rate and reload stay what they are without stalled connections.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let hostler = Hostler::native(&ground, "hello", 4, "hello")?;
    let mut report = Report::default();
    report.line(format!(
        "16 kept connections on 4 workers, alone and beside {EACH} silent ones, {EACH} stopped in the head and {EACH} \
         in a body of 10 KB.\n"
    ));
    for (protocol, name) in PROTOCOLS {
        let Measured { series, reloads, untouched } = measure(&hostler, protocol, name, extent)?;
        report.line(format!("### {name}\n"));
        report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
        let [alone, beside] = &series;
        report.check("rate beside them to rate alone", beside.rate() / alone.rate(), Wanted::AtLeast(0.9));
        let [before, after] = reloads.map(median);
        report.line(format!("- reload: {before:.0} ms alone, {after:.0} ms beside them"));
        report.check(
            "reload beside them, ms more than alone",
            after - before,
            Wanted::AtMost(before / 2.0 + 10.0),
        );
        report.line(format!(
            "- stalled connections that the server left open through the load: {untouched} of {}",
            3 * EACH
        ));
        no_errors(&mut report, &series);
        report.line("");
    }
    report.finish("stalled", &extent.command("stalled"), extent.write)
}

struct Measured {
    /// The load alone, and beside the stalled connections.
    series: [Series; 2],
    /// Milliseconds that a reload took, likewise.
    reloads: [Vec<f64>; 2],
    /// Stalled connections that the server left open, in the round with the fewest.
    untouched: usize,
}

fn measure(hostler: &Hostler, protocol: Protocol, name: &str, extent: &Extent) -> Result<Measured, Error> {
    let mut outcomes: [Vec<Outcome>; 2] = Default::default();
    let mut reloads: [Vec<f64>; 2] = Default::default();
    let mut untouched = 3 * EACH;
    for round in 0..extent.rounds {
        let mut turns = outcomes.iter_mut().zip(&mut reloads).zip([false, true]).collect::<Vec<_>>();
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((outcomes, reloads), beside) in turns {
            let how = if beside { "beside them" } else { "alone" };
            progress(&format!("{name}, round {} of {}: {how}", round + 1, extent.rounds));
            let stalled = if beside { stall(hostler, protocol)? } else { Vec::new() };
            thread::sleep(SETTLED);
            outcomes.push(drive(hostler, protocol, extent.seconds)?);
            if beside {
                untouched = untouched.min(stalled.iter().map(Still::untouched).sum());
            }
            reloads.push(hostler.reload()?.as_secs_f64() * 1000.0);
        }
    }
    progress("");
    let [alone, beside] = outcomes;
    let series = [Series::of("alone", alone), Series::of("beside stalled ones", beside)];
    Ok(Measured { series, reloads, untouched })
}

fn drive(hostler: &Hostler, protocol: Protocol, seconds: f64) -> Result<Outcome, Error> {
    let mut plan = Plan::new(address(hostler, protocol), Request::new(protocol, true), 16, seconds);
    plan.tree = Some(hostler.server.pid());
    driver::run(&plan)
}

fn stall(hostler: &Hostler, protocol: Protocol) -> Result<Vec<Still>, Error> {
    let request = Request::new(protocol, true);
    STOPS.iter().map(|stop| Still::open(&address(hostler, protocol), &request, *stop, EACH)).collect()
}

fn address(hostler: &Hostler, protocol: Protocol) -> Address {
    match protocol {
        Protocol::Fastcgi => hostler.server.address().clone(),
        Protocol::Http => hostler.http.clone(),
    }
}
