//! `compare`: Hostler, the limit and the peers under the same three loads, in alternating rounds of one run.

use crate::{
    ground::Ground,
    peers::{PEERS, Peer},
    report::{Report, Wanted},
    rounds::{Entry, Extent, Series, alternate},
};
use hostler_bench::{
    load::{Error, Outcome, real},
    server::Server,
};

/// How to compare.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    pub(crate) extent: Extent,
    /// Only these servers, by name, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Install missing peers with apt-get
    #[arg(long)]
    install: bool,
}

/// One of the three loads, with its figures: CPU against the limit and against libfcgi.
struct Load {
    title: &'static str,
    connections: usize,
    keep: bool,
    cpu_to_limit: f64,
    cpu_to_libfcgi: f64,
}

const PROCESSES: usize = 4;
const LOADS: [Load; 3] = [
    Load {
        title: "kept, 4 connections",
        connections: 4,
        keep: true,
        cpu_to_limit: 1.35,
        cpu_to_libfcgi: 0.8,
    },
    Load {
        title: "kept, 32 connections",
        connections: 32,
        keep: true,
        cpu_to_limit: 1.35,
        cpu_to_libfcgi: 0.8,
    },
    Load {
        title: "fresh, 16 connections",
        connections: 16,
        keep: false,
        cpu_to_limit: 1.15,
        cpu_to_libfcgi: 0.95,
    },
];

impl Compare {
    /// Whether Hostler holds every figure.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        let ground = Ground::new(PROCESSES, self.install)?;
        let wanted = |peer: &&Peer| self.only.is_empty() || self.only.iter().any(|name| name == peer.name);
        let mut servers: Vec<(&Peer, Server)> = Vec::new();
        let mut report = Report::default();
        for peer in PEERS.iter().filter(wanted) {
            match peer.start(&ground) {
                Ok(server) => servers.push((peer, server)),
                Err(error) => report.line(format!("Skipped {}: {error}.\n", peer.name)),
            }
        }
        report.line(format!(
            "{PROCESSES} processes each, Unix sockets, an answer of 6 bytes; medians of {} alternating rounds of {} s.\n",
            self.extent.rounds, self.extent.seconds
        ));
        for load in &LOADS {
            let able = servers.iter().filter(|(peer, _)| peer.keeps || !load.keep);
            let entries: Vec<Entry> = able
                .map(|(peer, server)| {
                    let plan = peer.plan(&ground, server, load.keep, load.connections, self.extent.seconds);
                    Entry::new(peer.name, plan)
                })
                .collect();
            let series = alternate(&entries, self.extent.rounds)?;
            report.line(format!("### {}\n", load.title));
            table(&mut report, &series, load);
            checks(&mut report, &series, load);
            let closing = servers.iter().filter(|(peer, _)| load.keep && !peer.keeps);
            let names: Vec<&str> = closing.map(|(peer, _)| peer.name).collect();
            if !names.is_empty() {
                report.line(format!("- closes every connection, so no figure: {}", names.join(", ")));
            }
            report.line("");
        }
        report.finish("compare", &self.extent.command("compare"), self.extent.write)
    }
}

const HEAD: [&str; 12] = [
    "server",
    "req/s",
    "range",
    "of limit",
    "CPU us",
    "range",
    "of limit",
    "p50 us",
    "p99",
    "p99.9",
    "memory MiB",
    "served",
];

fn table(report: &mut Report, series: &[Series], load: &Load) {
    let limit = series.iter().find(|series| series.name == "limit");
    let ratio = |value: f64, of: fn(&Series) -> f64| {
        limit.map_or("–".into(), |limit| format!("{:.2}", value / of(limit)))
    };
    let row = |series: &Series| {
        let (slowest, fastest) = series.range(Outcome::rate);
        let (least, most) = series.range(|outcome| outcome.cpu_us().unwrap_or(0.0));
        let served = series.outcomes().iter().map(Outcome::connections_served).min().unwrap_or(0);
        let errors =
            if series.errors() > 0 { format!(", {} errors", series.errors()) } else { String::new() };
        vec![
            series.name.clone(),
            format!("{:.0}", series.rate()),
            format!("{slowest:.0}–{fastest:.0}"),
            ratio(series.rate(), Series::rate),
            format!("{:.2}", series.cpu_us()),
            format!("{least:.1}–{most:.1}"),
            ratio(series.cpu_us(), Series::cpu_us),
            format!("{:.0}", series.percentile_us(0.5)),
            format!("{:.0}", series.percentile_us(0.99)),
            format!("{:.0}", series.percentile_us(0.999)),
            format!("{:.1}", series.memory() / 1_048_576.0),
            format!("{served} of {}{errors}", load.connections),
        ]
    };
    report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
}

fn checks(report: &mut Report, series: &[Series], load: &Load) {
    let named = |name: &str| series.iter().find(|series| series.name == name);
    let Some(hostler) = named("hostler") else { return };
    report.check("errors of hostler", real(hostler.errors()), Wanted::AtMost(0.0));
    if let Some(complaint) = hostler.complaint() {
        report.line(format!("- hostler's first error: {complaint}"));
    }
    if let Some(limit) = named("limit") {
        let rate = hostler.rate() / limit.rate();
        report.check("requests a second, hostler to limit", rate, Wanted::AtLeast(0.8));
        let cpu = hostler.cpu_us() / limit.cpu_us();
        report.check("CPU a request, hostler to limit", cpu, Wanted::AtMost(load.cpu_to_limit));
    }
    if let Some(spread) = named("spread") {
        let (rate, cpu) = (hostler.rate() / spread.rate(), hostler.cpu_us() / spread.cpu_us());
        report
            .line(format!("- to the limit with connections spread alike: requests {rate:.2}, CPU {cpu:.2}"));
    }
    if let Some(libfcgi) = named("libfcgi") {
        let cpu = hostler.cpu_us() / libfcgi.cpu_us();
        report.check("CPU a request, hostler to libfcgi", cpu, Wanted::AtMost(load.cpu_to_libfcgi));
    }
}
