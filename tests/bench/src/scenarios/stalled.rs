//! 500 connections that say nothing, 500 that stop inside the head and 500 that stop inside a body of 10 KB, on
//! 4 workers: the load beside them and a reload feel nothing of it.
//!
//! Two Hostlers alike run; one of them has the stalled connections, opened afresh in each round so that no
//! timeout of theirs falls into it.

use super::{HEAD, no_errors, row};
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

const EACH: usize = 500;
const STOPS: [Stop; 3] = [Stop::Silent, Stop::InHead, Stop::InBody];
const PROTOCOLS: [(Protocol, &str); 2] = [(Protocol::Fastcgi, "FastCGI"), (Protocol::Http, "HTTP")];

/// Whether rate and reload stay what they are without stalled connections.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let quiet = Hostler::native(&ground, "quiet", 4, "hello")?;
    let beset = Hostler::native(&ground, "beset", 4, "hello")?;
    let mut report = Report::default();
    report.line(format!(
        "16 kept connections on 4 workers, alone and beside {EACH} silent ones, {EACH} stopped in the head and {EACH} \
         in a body of 10 KB.\n"
    ));
    for (protocol, name) in PROTOCOLS {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let (mut reloads_alone, mut reloads_beside, mut untouched) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..extent.rounds {
            progress(&format!("{name}, round {} of {}", round + 1, extent.rounds));
            alone.push(drive(&quiet, protocol, extent.seconds)?);
            reloads_alone.push(quiet.reload()?.as_secs_f64() * 1000.0);
            let stalled = stall(&beset, protocol)?;
            beside.push(drive(&beset, protocol, extent.seconds)?);
            untouched.push(stalled.iter().map(Still::untouched).sum::<usize>());
            reloads_beside.push(beset.reload()?.as_secs_f64() * 1000.0);
        }
        progress("");
        let series = [Series::of("alone", alone), Series::of("beside stalled ones", beside)];
        report.line(format!("### {name}\n"));
        report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
        let [alone, beside] = &series;
        report.check("rate beside them to rate alone", beside.rate() / alone.rate(), Wanted::AtLeast(0.9));
        let (before, after) = (median(reloads_alone), median(reloads_beside));
        report.line(format!("- reload: {before:.0} ms alone, {after:.0} ms beside them"));
        report.check(
            "reload beside them, ms more than alone",
            after - before,
            Wanted::AtMost(before / 2.0 + 10.0),
        );
        let least = untouched.iter().min().copied().unwrap_or(0);
        report.line(format!(
            "- stalled connections that the server left open through the load: {least} of {}",
            3 * EACH
        ));
        no_errors(&mut report, &series);
        report.line("");
    }
    report.finish("stalled", &extent.command("stalled"), extent.write)
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
