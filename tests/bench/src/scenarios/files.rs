//! The files runtime against nginx: a file of 32 KiB to 400 kept HTTP connections over TCP; and over FastCGI
//! behind nginx.

use super::no_errors;
use crate::{
    ground::Ground,
    hostler::{Hostler, free_port},
    nginx::{self, Site},
    peers::path,
    report::{Report, Wanted},
    rounds::{Entry, Extent, Series, alternate},
};
use hostler_bench::{
    address::Address,
    load::{Error, Plan},
    request::{Protocol, Request},
    server::Server,
};
use std::fs;

const CLIENTS: usize = 400;
const SIZE: usize = 32 * 1024;

/// Whether Hostler reaches 0.8 of nginx.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let root = ground.path("site");
    fs::create_dir(&root).map_err(|source| Error::system("making a directory of files", source))?;
    ground.write("site/file.txt", &"hello, file!\n".repeat(SIZE / 13 + 1)[..SIZE])?;
    let serving = format!("runtime = \"files\"\nroot = \"{}\"\n", root.display());
    let hostler = Hostler::start(&ground, "files", 4, &serving)?;
    let nginx = front(&ground, "direct", &format!("root {};", root.display()))?;
    let pass = format!(
        "location / {{ include /etc/nginx/fastcgi_params; fastcgi_pass unix:{}; }}",
        path(hostler.server.address()).display()
    );
    let behind = front(&ground, "behind", &pass)?;
    let entry = |name: &str, address: &Address, server: &Server, front: Option<u32>| {
        let mut request = Request::new(Protocol::Http, true);
        request.uri = "/file.txt".into();
        let mut plan = Plan::new(address.clone(), request, CLIENTS, extent.seconds);
        (plan.tree, plan.front) = (Some(server.pid()), front);
        Entry::new(name, plan)
    };
    let entries = [
        entry("nginx", nginx.address(), &nginx, None),
        entry("hostler, HTTP", &hostler.http, &hostler.server, None),
        entry("nginx, hostler behind it", behind.address(), &hostler.server, Some(behind.pid())),
    ];
    let series = alternate(&entries, extent.rounds)?;

    let mut report = Report::default();
    report.line(format!(
        "A file of {SIZE} bytes to {CLIENTS} kept HTTP connections over TCP, 4 processes each.\n"
    ));
    let head = ["server", "req/s", "of nginx", "CPU us", "nginx's CPU us in front", "p50 us", "p99"];
    let base = series.first().map_or(0.0, Series::rate);
    report.table(&head, &series.iter().map(|series| row(series, base)).collect::<Vec<_>>());
    if let [_, http, behind] = series.as_slice() {
        report.check(
            "requests a second over HTTP, hostler to nginx",
            http.rate() / base,
            Wanted::AtLeast(0.8),
        );
        report.line(format!("- over FastCGI through nginx, to nginx alone: {:.2}", behind.rate() / base));
    }
    no_errors(&mut report, &series);
    report.finish("files", &extent.command("files"), extent.write)
}

fn front(ground: &Ground, name: &str, locations: &str) -> Result<Server, Error> {
    nginx::start(ground, Site { name, address: free_port()?, processes: 4, http: "", locations })
}

fn row(series: &Series, base: f64) -> Vec<String> {
    vec![
        series.name.clone(),
        format!("{:.0}", series.rate()),
        format!("{:.2}", series.rate() / base),
        format!("{:.2}", series.cpu_us()),
        format!("{:.2}", series.median(|outcome| outcome.front_cpu_us().unwrap_or(0.0))),
        format!("{:.0}", series.percentile_us(0.5)),
        format!("{:.0}", series.percentile_us(0.99)),
    ]
}
