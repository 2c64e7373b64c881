//! Every known program behind every web server, both as their example configs have them, under `hostler run`: the
//! table in docs/matrix.md is what this finds. `HOSTLER_MATRIX=write cargo test … --test front_matrix` writes it anew.

use hostler_tests::{
    http::Answer,
    net::Address,
    place::Place,
    reader::Fault,
    relay::compiled,
    site::Site,
    web::{Front, Kind, copy, examples, pool},
};
use nix::sys::signal::Signal;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A program with its example config and app.
struct Known {
    /// As the table calls it.
    title: &'static str,
    /// `packaging/examples/programs/NAME.toml`; the pool's name too.
    name: &'static str,
    /// What is asked for.
    path: &'static str,
    missing: &'static str,
    /// How its answer begins.
    hello: &'static str,
}

const PROGRAMS: [Known; 9] = [
    Known {
        title: "PHP (php-cgi)",
        name: "php-cgi",
        path: "/app.php",
        missing: "/app.php/missing",
        hello: "php",
    },
    Known { title: "Perl (FCGI.pm)", name: "perl", path: "/app", missing: "/missing", hello: "perl" },
    Known { title: "C (libfcgi)", name: "c", path: "/app", missing: "/missing", hello: "c" },
    Known { title: "Python (flup)", name: "flup", path: "/app", missing: "/missing", hello: "python" },
    Known { title: "Python (uWSGI)", name: "uwsgi", path: "/app", missing: "/missing", hello: "python" },
    Known { title: "Ruby (fcgi)", name: "ruby", path: "/app", missing: "/missing", hello: "ruby" },
    Known { title: "Go (net/http/fcgi)", name: "go", path: "/app", missing: "/missing", hello: "go" },
    Known {
        title: "mono, .aspx",
        name: "mono",
        path: "/hello.aspx",
        missing: "/missing.aspx",
        hello: "mono",
    },
    Known {
        title: "mono, .ashx",
        name: "mono",
        path: "/hello.ashx",
        missing: "/missing.ashx",
        hello: "mono",
    },
];

/// The package flup, as pip installs it beside what is built.
fn flup() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let package = test.ancestors().nth(3).unwrap().join("flup");
    let to = package.display();
    assert!(package.exists(), "flup is not there: pip install --target {to} flup");
    package
}

/// All pools, each at `NAME.sock`, with their apps in `site`.
fn start() -> Site {
    let place = Place::new();
    copy(&place, &examples().join("apps"), "site");
    copy(&place, &flup(), "site/lib");
    let mut go = Command::new("go");
    go.args(["build", "-o", "app-go", "app.go"]).current_dir(place.path("site"));
    go.env("GOCACHE", place.path("go")).env("GO111MODULE", "off");
    assert!(go.status().expect("start go").success(), "go build");
    fs::rename(compiled(&place, &place.path("site/app.c")), place.path("site/app")).unwrap();
    let mut names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
    names.dedup();
    let config: String = names.into_iter().map(pool).collect();
    Site::start_in(place, &config)
}

/// One request on a connection of its own.
fn ask(front: &Front, method: &str, path: &str, body: usize) -> Result<Answer, Fault> {
    let mut client = front.connect();
    let length = format!("Content-Length: {body}");
    let fields = [length.as_str()];
    client.ask(method, path, if body > 0 { &fields } else { &[] });
    client.send(vec![b'x'; body]);
    client.answer(method)
}

/// What works of a program behind a front; what does not goes to `faults`.
fn cell(front: &Front, known: &Known, faults: &mut Vec<String>) -> String {
    let hello = |method: &str, query: &str, body: usize| {
        // A page of ASP.NET has no line end at its end.
        Some(format!("hello from {}: {method} query={query} body={body}", known.hello))
    };
    let query = format!("{}?a=b", known.path);
    let checks = [
        ("GET", "GET", query.as_str(), 0, 200, hello("GET", "a=b", 0)),
        ("POST", "POST", known.path, 100_000, 200, hello("POST", "", 100_000)),
        ("HEAD", "HEAD", known.path, 0, 200, None),
        ("404", "GET", known.missing, 0, 404, None),
    ];
    let mut works = Vec::new();
    for (what, method, path, body, status, text) in checks {
        match ask(front, method, path, body) {
            Ok(answer)
                if answer.status == status && text.as_ref().is_none_or(|t| t == answer.text().trim_end()) =>
            {
                works.push(what);
            }
            other => faults.push(format!("{what} {}: {other:?}", known.title)),
        }
    }
    if works.is_empty() { "nothing".into() } else { works.join(" ") }
}

#[test]
#[ignore = "needs mono, uWSGI, Ruby, Go and flup besides what ./test installs; docs/matrix.md says how to run it"]
fn every_program_answers_behind_every_web_server_as_the_docs_say() {
    let site = start();
    let mut faults = Vec::new();
    let mut table = String::from(
        "# Programs and web servers\n\nMade by `tests/tests/front_matrix.rs`, with the example configs in \
         packaging/examples and the programs of\nDebian 12 (flup from PyPI). Not a part of `./test`, since it needs \
         mono, uWSGI, Ruby, Go and flup:\n\n    HOSTLER_MATRIX=write cargo test --workspace --test front_matrix -- \
         --ignored\n\nA cell names what was answered as it should be. POST is of 100,000 bytes; 404 is the program's \
         own.\n\n|",
    );
    Kind::ALL.iter().for_each(|kind| write!(table, " | {}", kind.name()).unwrap());
    writeln!(table, " |\n|---{} |", " | ---".repeat(Kind::ALL.len())).unwrap();
    for known in &PROGRAMS {
        write!(table, "| {}", known.title).unwrap();
        for kind in Kind::ALL {
            let Address::Unix(socket) = site.address(&format!("{}.sock", known.name)) else { unreachable!() };
            let front = Front::start(kind, &socket, &site.place.path("site"));
            let before = faults.len();
            eprintln!("{} behind {}", known.title, kind.name());
            let cell = cell(&front, known, &mut faults);
            faults[before..].iter_mut().for_each(|fault| *fault = format!("{}: {fault}", kind.name()));
            write!(table, " | {cell}").unwrap();
        }
        table.push_str(" |\n");
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/matrix.md");
    if std::env::var_os("HOSTLER_MATRIX").is_some_and(|what| what == "write") {
        fs::write(&docs, &table).unwrap();
    }
    let told = fs::read_to_string(&docs).unwrap_or_default();
    assert!(
        told == table,
        "docs/matrix.md is not what was found:\n{table}\n{faults:#?}\n{:#?}",
        site.program.lines()
    );
    site.stop(Signal::SIGTERM);
}
