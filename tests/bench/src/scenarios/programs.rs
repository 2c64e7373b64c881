//! Programs that know nothing of Hostler, under it and under what people use today: a CGI program and a shell
//! script against fcgiwrap, php-cgi against php-fpm; as many processes each.

use super::{HEAD, no_errors, row};
use crate::{
    ground::Ground,
    hostler::Hostler,
    peers::{self, script},
    report::{Report, Wanted},
    rounds::{Entry, Extent, alternate},
};
use hostler_bench::{
    load::{Error, Plan},
    request::{Protocol, Request},
    server::Server,
};
use std::{fs, os::unix::fs::PermissionsExt};

/// Whether Hostler reaches its share of each.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let ground = Ground::new(4, false)?;
    let mut report = Report::default();
    report.line(
        "4 processes each, FastCGI on Unix sockets. fcgiwrap does not wait for its children, so that the kernel \
         counts no CPU of theirs for it.\n",
    );
    cgi(&ground, extent, &mut report)?;
    php(&ground, extent, &mut report)?;
    report.finish("programs", &extent.command("programs"), extent.write)
}

fn cgi(ground: &Ground, extent: &Extent, report: &mut Report) -> Result<(), Error> {
    let theirs = peers::fcgiwrap(ground)?;
    let shell =
        ground.write("hello.sh", "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nhello\\n'\n")?;
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755))
        .map_err(|source| Error::system("making a script executable", source))?;
    let serving = format!("runtime = \"cgi\"\nroot = \"{}\"\n", ground.path("").display());
    let ours = Hostler::start(ground, "cgi", 4, &serving)?;
    for (name, title, least) in [("hello.cgi", "a C program", 1.2), ("hello.sh", "a shell script", 1.0)] {
        compare(ground, extent, report, title, name, &[(false, 16, least)], [&theirs, &ours.server])?;
    }
    Ok(())
}

fn php(ground: &Ground, extent: &Extent, report: &mut Report) -> Result<(), Error> {
    let theirs = peers::php_fpm(ground)?;
    let program = ground.program("php-cgi8.2", "php8.2-cgi")?;
    // As php-fpm: without Debian's php.ini.
    let serving = format!(
        "runtime = \"fastcgi\"\ncommand = [\"{}\", \"-c\", \"/dev/null\"]\nenv = {{ PHP_FCGI_CHILDREN = \"0\", PHP_FCGI_MAX_REQUESTS = \"0\" }}\n",
        program.display()
    );
    let ours = Hostler::start(ground, "php", 4, &serving)?;
    let loads = [(false, 16, 0.85), (true, 4, 0.65)];
    compare(ground, extent, report, "php-cgi against php-fpm", "hello.php", &loads, [&theirs, &ours.server])
}

/// Each load: kept or not, connections, and the least share of the other's rate.
fn compare(
    ground: &Ground,
    extent: &Extent,
    report: &mut Report,
    title: &str,
    file: &str,
    loads: &[(bool, usize, f64)],
    servers: [&Server; 2],
) -> Result<(), Error> {
    for (keep, connections, least) in loads {
        let kind = if *keep { "kept" } else { "fresh" };
        report.line(format!("### {title}, {connections} {kind} connections\n"));
        let entry = |name: &str, server: &Server| {
            let mut request = Request::new(Protocol::Fastcgi, *keep);
            request.uri = format!("/{file}");
            request.parameters = script(ground, file);
            let mut plan = Plan::new(server.address().clone(), request, *connections, extent.seconds);
            plan.tree = Some(server.pid());
            Entry::new(name, plan)
        };
        let [theirs, ours] = servers;
        let series = alternate(&[entry("today's", theirs), entry("hostler", ours)], extent.rounds)?;
        report.table(&HEAD, &series.iter().map(row).collect::<Vec<_>>());
        if let [theirs, ours] = series.as_slice() {
            report.check(
                "requests a second, hostler to today's",
                ours.rate() / theirs.rate(),
                Wanted::AtLeast(*least),
            );
        }
        no_errors(report, &series);
        report.line("");
    }
    Ok(())
}
