//! Reloads beside a request of 30 s and 100 kept connections at rest, on 4 workers: no other request feels them,
//! `hostler reload` comes back at once, and the long request gets its answer from its old worker.

use crate::{
    ground::Ground,
    hostler::Hostler,
    report::{Report, Wanted},
    rounds::{Extent, progress},
};
use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, real},
    request::{Protocol, Request},
    still::{Still, Stop, ask},
    tree,
};
use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

const AT_REST: usize = 100;
const LONG: Duration = Duration::from_secs(30);

/// What one round saw.
struct Seen {
    alone: Outcome,
    beside: Outcome,
    reload: Duration,
    /// Workers from before the reload that lived on after it, more than there were long requests.
    idle_left: usize,
}

/// Whether reloads are felt by nobody.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let hostler = Hostler::native(&ground, "app", 4, "probe")?;
    let held = Still::open(hostler.server.address(), &request("/pid"), Stop::AtRest, AT_REST)?;
    let (mut rounds, mut answered) = (Vec::new(), 0);
    thread::scope(|scope| {
        let mut long = Vec::new();
        for round in 0..extent.rounds {
            progress(&format!("round {} of {}", round + 1, extent.rounds));
            let address = hostler.server.address().clone();
            long.push(scope.spawn(move || {
                ask(&address, &request(&format!("/sleep?ms={}", LONG.as_millis())), LONG * 2)
            }));
            let busy = || long.iter().filter(|end| !end.is_finished()).count();
            rounds.push(one(&hostler, extent.seconds, busy)?);
        }
        progress("waiting for the long requests");
        for end in long {
            let end = end.join().map_err(|_| Error::new("who asks for long panicked"))?;
            answered += u64::from(end.inspect_err(|why| eprintln!("hostler-bench: {why}")).is_ok());
        }
        Ok::<_, Error>(())
    })?;
    progress("");
    told(&rounds, answered, &held, extent)
}

fn one(hostler: &Hostler, seconds: f64, busy: impl Fn() -> usize) -> Result<Seen, Error> {
    let mut plan = Plan::new(hostler.server.address().clone(), request("/pid"), 16, seconds);
    plan.expect = String::new();
    let alone = driver::run(&plan)?;
    let old = workers(hostler);
    let (beside, reload) = thread::scope(|scope| {
        let load = scope.spawn(|| driver::run(&plan));
        thread::sleep(plan.warm_up + Duration::from_secs_f64(seconds / 4.0));
        let reload = hostler.reload();
        let beside = load.join().map_err(|_| Error::new("the load panicked"))?;
        Ok::<_, Error>((beside?, reload?))
    })?;
    // Those that were idle leave in no time; what is left after a second is at work, for this round or one before.
    let began = Instant::now();
    let left = || old.intersection(&workers(hostler)).count().saturating_sub(busy());
    while left() > 0 && began.elapsed() < Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Seen { alone, beside, reload, idle_left: left() })
}

fn told(rounds: &[Seen], answered: u64, held: &Still, extent: &Extent) -> Result<bool, Error> {
    let mut report = Report::default();
    report.line(format!(
        "16 kept connections on 4 workers, of which one is busy with a request of {} s; {AT_REST} kept connections at \
         rest; {} reloads, one in each of as many loads of {} s, and as many loads without.\n",
        LONG.as_secs(),
        rounds.len(),
        extent.seconds
    ));
    let worst = |of: fn(&Seen) -> &Outcome| {
        rounds.iter().map(|seen| of(seen).all.percentile_us(1.0) / 1000.0).fold(0.0, f64::max)
    };
    let (alone, beside) = (worst(|seen| &seen.alone), worst(|seen| &seen.beside));
    report.line(format!("- the slowest request: {alone:.1} ms without a reload, {beside:.1} ms beside one"));
    report.check("ms that a reload adds to the slowest request", beside - alone, Wanted::AtMost(50.0));
    let reload = rounds.iter().map(|seen| seen.reload.as_secs_f64() * 1000.0).fold(0.0, f64::max);
    report.check("ms of the slowest hostler reload", reload, Wanted::AtMost(1000.0));
    let rounds_of = real(rounds.len() as u64);
    report.check("long requests that got their answer", real(answered), Wanted::AtLeast(rounds_of));
    let idle_left: usize = rounds.iter().map(|seen| seen.idle_left).sum();
    report.check(
        "old workers without a long request that were left after a second",
        real(idle_left as u64),
        Wanted::AtMost(0.0),
    );
    let closed = held.opened() - held.untouched();
    report.check("connections at rest that were closed", real(closed as u64), Wanted::AtMost(0.0));
    let errors: u64 = rounds.iter().map(|seen| seen.alone.errors + seen.beside.errors).sum();
    report.check("failed requests", real(errors), Wanted::AtMost(0.0));
    report.finish("reload", &extent.command("reload"), extent.write)
}

fn request(uri: &str) -> Request {
    let mut request = Request::new(Protocol::Fastcgi, true);
    uri.clone_into(&mut request.uri);
    request
}

fn workers(hostler: &Hostler) -> BTreeSet<u32> {
    tree::workers(hostler.server.pid()).into_iter().collect()
}
