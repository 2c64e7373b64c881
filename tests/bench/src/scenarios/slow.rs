//! 8 workers, 32 kept connections, 1 request in 2,000 takes 100 ms: what the others feel of it.

use super::{HEAD, no_errors, row};
use crate::{
    ground::Ground,
    hostler::Hostler,
    report::{Report, Wanted},
    rounds::{Entry, Extent, alternate},
};
use hostler_bench::{
    load::{Error, Plan},
    request::{Protocol, Request},
};

/// Whether the others' 99.9th percentile and the rate hold.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(8, false)?;
    let hostler = Hostler::native(&ground, "probe", 8, "probe")?;
    let asks = |uri: &str| {
        let mut request = Request::new(Protocol::Fastcgi, true);
        request.uri = uri.into();
        request
    };
    let mut without = Plan::new(hostler.server.address().clone(), asks("/pid"), 32, extent.seconds);
    (without.tree, without.expect) = (Some(hostler.server.pid()), String::new());
    let mut with = without.clone();
    with.slow = Some((1.0 / 2000.0, asks("/sleep?ms=100")));
    let entries = [Entry::new("without slow ones", without), Entry::new("1 in 2,000 slow", with)];
    let series = alternate(&entries, extent.rounds)?;
    let mut report = Report::default();
    report.line("32 kept connections on 8 workers; slow requests take 100 ms.\n");
    report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
    if let [without, with] = series.as_slice() {
        let others = with.median(|outcome| outcome.quick.percentile_us(0.999)) / 1000.0;
        report.check("99.9th percentile of the others, in ms", others, Wanted::AtMost(25.0));
        report.check("rate, with slow ones to without", with.rate() / without.rate(), Wanted::AtLeast(0.5));
    }
    no_errors(&mut report, &series);
    report.finish("slow", &extent.command("slow"), extent.write)
}
