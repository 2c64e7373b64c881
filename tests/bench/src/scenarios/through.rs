//! Through real nginx, which keeps up to 32 connections to its backend, 30 clients: Hostler against the limit.

use super::no_errors;
use crate::{
    ground::Ground,
    hostler::Hostler,
    nginx::{self, Site},
    peers::{self, path},
    report::{Report, Wanted},
    rounds::{Entry, Extent, Series, alternate},
};
use hostler_bench::{
    load::{Error, Plan},
    request::{Protocol, Request},
    server::Server,
};

const CLIENTS: usize = 30;

/// Whether nginx reaches with Hostler what it reaches with the limit.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let limit = peers::limit(&ground)?;
    let hostler = Hostler::native(&ground, "hello", 4, "hello")?;
    let upstream = |name: &str, server: &Server| {
        format!("upstream {name} {{ server unix:{}; keepalive 32; }}\n", path(server.address()).display())
    };
    let location = |name: &str| {
        format!(
            "location /{name} {{ include /etc/nginx/fastcgi_params; fastcgi_keep_conn on; fastcgi_pass {name}; }}\n"
        )
    };
    let http = upstream("limit", &limit) + &upstream("hostler", &hostler.server);
    let locations = location("limit") + &location("hostler");
    let address = ground.socket("front");
    let site = Site { name: "front", address, processes: 1, http: &http, locations: &locations };
    let front = nginx::start(&ground, site)?;
    let entry = |name: &str, backend: &Server| {
        let mut request = Request::new(Protocol::Http, true);
        request.uri = format!("/{name}");
        let mut plan = Plan::new(front.address().clone(), request, CLIENTS, extent.seconds);
        (plan.tree, plan.front) = (Some(backend.pid()), Some(front.pid()));
        Entry::new(name, plan)
    };
    let series = alternate(&[entry("limit", &limit), entry("hostler", &hostler.server)], extent.rounds)?;

    let mut report = Report::default();
    report.line(format!(
        "{CLIENTS} kept HTTP clients of one nginx process, which keeps up to 32 FastCGI connections to 4 workers.\n"
    ));
    let head = ["behind nginx", "req/s", "its CPU us", "nginx's CPU us", "nginx's share", "p50 us", "p99"];
    report.table(&head, &series.iter().map(row).collect::<Vec<_>>());
    if let [limit, hostler] = series.as_slice() {
        report.check(
            "requests a second, hostler to limit",
            hostler.rate() / limit.rate(),
            Wanted::AtLeast(0.95),
        );
    }
    no_errors(&mut report, &series);
    report.finish("through-nginx", &extent.command("through-nginx"), extent.write)
}

fn row(series: &Series) -> Vec<String> {
    let front = series.median(|outcome| outcome.front_cpu_us().unwrap_or(0.0));
    vec![
        series.name.clone(),
        format!("{:.0}", series.rate()),
        format!("{:.2}", series.cpu_us()),
        format!("{front:.2}"),
        format!("{:.0} %", 100.0 * front / (front + series.cpu_us())),
        format!("{:.0}", series.percentile_us(0.5)),
        format!("{:.0}", series.percentile_us(0.99)),
    ]
}
