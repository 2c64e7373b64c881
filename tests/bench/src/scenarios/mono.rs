//! `mono`: fastcgi-mono-server4, which grows with each request, alone and under Hostler with a soft limit of memory:
//! no request fails, memory holds, and what it costs.
//!
//! Always holds: the same page and the same connections for both; private memory is looked at all the time, of each
//! worker with all below it.

use crate::{
    ground::Ground,
    hostler::Hostler,
    peers::{path, script},
    report::{Report, Wanted},
    rounds::progress,
};
use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, Until, real},
    request::{Protocol, Request},
    server::Server,
    tree,
};
use std::{
    fmt::Write,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

const MIB: f64 = 1_048_576.0;
const SOFT: u64 = 200;
const CONNECTIONS: usize = 8;
/// Between two looks at the memory.
const LOOK: Duration = Duration::from_millis(100);

/// How much, and where the result goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Mono {
    /// Requests to Hostler
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Requests to mono alone: for its rate, fewer do
    #[arg(long, default_value_t = 20_000)]
    alone: u64,
    /// Hostler's workers
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Install what is missing with apt-get
    #[arg(long)]
    install: bool,
    /// Put the result into BENCHMARKS.md
    #[arg(long)]
    write: bool,
}

/// What came of all requests to one of both.
struct Run {
    outcome: Outcome,
    /// The most private memory of one worker, or of the server alone, in MiB.
    peak: f64,
    /// Workers that served.
    programs: usize,
}

impl Mono {
    /// Whether nothing failed and memory held.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        let ground = Ground::new(self.workers, self.install)?;
        ground.write("hello.aspx", include_str!("../../../../packaging/examples/apps/hello.aspx"))?;
        let alone = self.alone(&ground)?;
        let hosted = self.hosted(&ground)?;
        progress("");
        let mut report = Report::default();
        report.line(format!(
            "hello.aspx on {CONNECTIONS} fresh connections: {} requests to fastcgi-mono-server4 alone (one process, \
             many threads), and {} to it under Hostler with {} workers and `memory.soft = \"{SOFT}MiB\"`.\n",
            self.alone, self.requests, self.workers
        ));
        let head = ["server", "req/s", "failed", "CPU us", "p50 us", "p99", "processes", "most MiB of one"];
        report.table(&head, &[row("alone", &alone), row("hostler", &hosted)]);
        report.check("failed requests", real(hosted.outcome.errors), Wanted::AtMost(0.0));
        report.check("MiB of the largest worker", hosted.peak, Wanted::AtMost(real(SOFT) + 1.0));
        let share = hosted.outcome.rate() / alone.outcome.rate();
        report.check("requests a second, hostler to alone", share, Wanted::AtLeast(0.9));
        for complaint in alone.outcome.complaints.iter().chain(&hosted.outcome.complaints) {
            report.line(format!("- {complaint}"));
        }
        report.finish("mono", &self.command(), self.write)
    }

    fn command(&self) -> String {
        let mut command = "cargo run --release -p hostler-bench -- mono --install".to_owned();
        let (requests, alone, workers) = (self.requests, self.alone, self.workers);
        let _ = write!(command, " --requests {requests} --alone {alone} --workers {workers} --write");
        command
    }

    fn alone(&self, ground: &Ground) -> Result<Run, Error> {
        progress("mono alone");
        let program = ground.program("fastcgi-mono-server4", "mono-fastcgi-server4")?;
        let address = ground.socket("mono");
        let mut command = Command::new(program);
        command.arg(format!("/applications=/:{}", ground.path("").display()));
        command.arg(format!("/socket=unix:{}", path(&address).display()));
        environment(ground).into_iter().for_each(|(name, value)| {
            command.env(name, value);
        });
        // Its own thread waits for a line on standard input otherwise.
        command.arg("/stopable=False");
        let server = Server::start(&mut command, address, &ground.path("mono.log"))?;
        Self::drive(ground, &server, self.alone, |pid| vec![pid])
    }

    fn hosted(&self, ground: &Ground) -> Result<Run, Error> {
        progress("mono under hostler");
        let program = ground.program("fastcgi-mono-server4", "mono-fastcgi-server4")?;
        let mut env = String::new();
        for (name, value) in environment(ground) {
            let _ = write!(env, "{name} = \"{value}\", ");
        }
        let serving = format!(
            "runtime = \"fastcgi\"\ncommand = [\"{}\", \"/applications=/:{}\", \"/socket=pipe\"]\nenv = {{ {} }}\n\
             ready_path = \"/hello.aspx\"\nkeep_connections = false\n[pool.ours.memory]\nsoft = \"{SOFT}MiB\"\n",
            program.display(),
            ground.path("").display(),
            env.trim_end_matches(", ")
        );
        let boot = "boot_timeout = \"120s\"\n";
        let ours = Hostler::start_with(ground, "ours", self.workers, &serving, boot)?;
        Self::drive(ground, &ours.server, self.requests, tree::children)
    }

    /// Warms up, then sends all requests while memory is looked at.
    fn drive(ground: &Ground, server: &Server, requests: u64, of: fn(u32) -> Vec<u32>) -> Result<Run, Error> {
        let mut request = Request::new(Protocol::Fastcgi, false);
        request.uri = "/hello.aspx".into();
        request.parameters = script(ground, "hello.aspx");
        let mut plan = Plan::new(server.address().clone(), request, CONNECTIONS, 0.0);
        plan.expect = "hello from mono: GET".into();
        (plan.until, plan.warm_up) = (Until::Answers(100), Duration::ZERO);
        driver::run(&plan)?;
        plan.until = Until::Answers(requests);
        plan.tree = Some(server.pid());
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| watch(server.pid(), of, &over));
            let outcome = driver::run(&plan);
            over.store(true, Relaxed);
            let (peak, programs) = watch.join().map_err(|_| Error::new("what looks at memory panicked"))?;
            Ok(Run { outcome: outcome?, peak, programs })
        })
    }
}

/// The most private memory in MiB of any of the processes that `of` names, with what is below it; and how many there
/// were.
fn watch(server: u32, of: fn(u32) -> Vec<u32>, over: &AtomicBool) -> (f64, usize) {
    let (mut most, mut seen) = (0, Vec::new());
    while !over.load(Relaxed) {
        for pid in of(server) {
            most = most.max(tree::private_memory(pid));
            if !seen.contains(&pid) {
                seen.push(pid);
            }
        }
        thread::sleep(LOOK);
    }
    (real(most) / MIB, seen.len())
}

/// What mono needs where nobody has a home.
fn environment(ground: &Ground) -> [(&'static str, String); 2] {
    let here = ground.path("").display().to_string();
    [("MONO_REGISTRY_PATH", here.clone()), ("HOME", here)]
}

fn row(name: &str, run: &Run) -> Vec<String> {
    let Run { outcome, peak, programs } = run;
    vec![
        name.into(),
        format!("{:.0}", outcome.rate()),
        outcome.errors.to_string(),
        format!("{:.0}", outcome.cpu_us().unwrap_or(0.0)),
        format!("{:.0}", outcome.all.percentile_us(0.5)),
        format!("{:.0}", outcome.all.percentile_us(0.99)),
        programs.to_string(),
        format!("{peak:.0}"),
    ]
}
