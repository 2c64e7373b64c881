//! Troubles of a site that is live, under constant load through real nginx: reloads, deploys of a changed and of a
//! broken app, upgrades, requests counted out, an app that leaks, workers killed. No request may fail, but those
//! on a connection of a process that was killed.
//!
//! Half of the requests are GETs on connections that nginx keeps to Hostler, half are POSTs on fresh ones.

use crate::{
    ground::Ground,
    hostler::{self, Hostler},
    nginx::{self, Site},
    peers::path,
    report::{Report, Wanted},
    rounds::progress,
};
use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, real},
    request::{Protocol, Request},
    server::Server,
    tree,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    cell::Cell,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// How long to hold out.
#[derive(Debug, clap::Args)]
pub(crate) struct Trouble {
    /// Seconds of each trouble
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Only these troubles, by name, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Put the result into BENCHMARKS.md
    #[arg(long)]
    write: bool,
}

/// What happens again and again.
struct Kind {
    name: &'static str,
    every: Duration,
    /// More lines of the pool's config.
    config: &'static str,
    /// What half of the requests ask for.
    uri: &'static str,
    act: fn(&Scene<'_>) -> Result<(), Error>,
}

struct Scene<'a> {
    ground: &'a Ground,
    hostler: &'a Hostler,
    acts: Cell<u64>,
}

const CONNECTIONS: usize = 16;
const SECOND: Duration = Duration::from_secs(1);
const KINDS: [Kind; 7] = [
    Kind { name: "SIGHUP every second", every: SECOND, config: "", uri: "/pid", act: hang_up },
    Kind {
        name: "deploy of a changed app every second",
        every: SECOND,
        config: "",
        uri: "/pid",
        act: deploy,
    },
    Kind {
        name: "deploy of a broken app every second",
        every: SECOND,
        config: "",
        uri: "/pid",
        act: break_app,
    },
    Kind {
        name: "SIGUSR2 every two seconds",
        every: Duration::from_secs(2),
        config: "",
        uri: "/pid",
        act: upgrade,
    },
    Kind { name: "max_requests=50", every: SECOND, config: "max_requests = 50\n", uri: "/pid", act: nothing },
    Kind {
        name: "leak of 1 MiB a request under soft=64MiB",
        every: SECOND,
        config: "",
        uri: "/leak?kib=1024",
        act: nothing,
    },
    Kind {
        name: "SIGKILL of a worker ten times a second",
        every: Duration::from_millis(100),
        config: "",
        uri: "/pid",
        act: kill_one,
    },
];

impl Trouble {
    /// Whether no request failed that need not.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        let mut report = Report::default();
        report.line(format!(
            "{CONNECTIONS} HTTP clients of one nginx, {} s of each trouble: GETs on kept and POSTs of 2,000 bytes on fresh FastCGI connections to 4 workers.\n",
            self.seconds
        ));
        let wanted =
            |kind: &&Kind| self.only.is_empty() || self.only.iter().any(|name| kind.name.contains(name));
        for kind in KINDS.iter().filter(wanted) {
            progress(kind.name);
            let (outcome, acts) = suffer(kind, self.seconds)?;
            // Those in hand, or on their way, on the connections of the process that was killed.
            let may_fail = if kind.name.starts_with("SIGKILL") { acts } else { 0 };
            let what = format!(
                "{}: failed of {} requests, {acts} times",
                kind.name,
                outcome.requests + outcome.errors
            );
            report.check(&what, real(outcome.errors), Wanted::AtMost(real(may_fail)));
            for complaint in outcome.complaints {
                report.line(format!("  - {complaint}"));
            }
        }
        progress("");
        report.finish("trouble", "cargo run --release -p hostler-bench -- trouble --write", self.write)
    }
}

fn suffer(kind: &Kind, seconds: f64) -> Result<(Outcome, u64), Error> {
    let ground = Ground::new(4, false)?;
    let app = hostler::example("probe")?;
    for version in ["probe-a", "probe-b"] {
        fs::copy(&app, ground.path(version)).map_err(|source| Error::system("copying the app", source))?;
    }
    put_app(&ground, &ground.path("probe-a"))?;
    let serving = format!(
        "runtime = \"native\"\ncommand = [\"{}\"]\n[pool.app.memory]\nsoft = \"64MiB\"\n",
        ground.path("app").display()
    );
    let hostler = Hostler::start_with(&ground, "app", 4, &serving, kind.config)?;
    let front = front(&ground, hostler.server.address())?;
    let request = |method: &str, uri: String, body| {
        let mut request = Request::new(Protocol::Http, true);
        (request.method, request.uri, request.body) = (method.into(), uri, body);
        request
    };
    let get = request("GET", format!("/kept{}", kind.uri), 0);
    let mut plan = Plan::new(front.address().clone(), get, CONNECTIONS, seconds);
    plan.slow = Some((0.5, request("POST", format!("/fresh{}", kind.uri), 2000)));
    plan.expect = String::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let troubles = scope.spawn(|| {
            let scene = Scene { ground: &ground, hostler: &hostler, acts: Cell::new(0) };
            let mut next = Instant::now() + kind.every;
            while !over.load(Relaxed) {
                thread::sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
                if Instant::now() >= next {
                    next += kind.every;
                    (kind.act)(&scene)?;
                    scene.acts.set(scene.acts.get() + 1);
                }
            }
            Ok(scene.acts.get())
        });
        let outcome = driver::run(&plan);
        over.store(true, Relaxed);
        let acts = troubles.join().map_err(|_| Error::new("what makes the trouble panicked"))??;
        Ok((outcome?, acts))
    })
}

/// nginx in front: `/kept/…` on kept connections, `/fresh/…` on fresh ones. It tries nothing twice.
fn front(ground: &Ground, backend: &hostler_bench::address::Address) -> Result<Server, Error> {
    let socket = path(backend).display();
    let http = format!("upstream kept {{ server unix:{socket}; keepalive 32; }}\n");
    let location = |name: &str, more: &str, pass: &str| {
        format!(
            "location /{name}/ {{ rewrite ^/{name}(/.*)$ $1 break; include /etc/nginx/fastcgi_params; {more} \
             fastcgi_next_upstream off; fastcgi_pass {pass}; }}\n"
        )
    };
    let locations =
        location("kept", "fastcgi_keep_conn on;", "kept") + &location("fresh", "", &format!("unix:{socket}"));
    let site = Site {
        name: "front",
        address: ground.socket("front"),
        processes: 1,
        http: &http,
        locations: &locations,
    };
    nginx::start(ground, site)
}

/// A deploy as people do it: a link is put in the place of the old one.
fn put_app(ground: &Ground, program: &Path) -> Result<(), Error> {
    let fresh = ground.path("app.new");
    let linked = symlink(program, &fresh).and_then(|()| fs::rename(&fresh, ground.path("app")));
    linked.map_err(|source| Error::system("deploying the app", source))
}

fn nothing(_: &Scene<'_>) -> Result<(), Error> {
    Ok(())
}

fn hang_up(scene: &Scene<'_>) -> Result<(), Error> {
    scene.hostler.server.signal(Signal::SIGHUP)
}

fn upgrade(scene: &Scene<'_>) -> Result<(), Error> {
    scene.hostler.server.signal(Signal::SIGUSR2)
}

fn deploy(scene: &Scene<'_>) -> Result<(), Error> {
    let version = scene.ground.path(if scene.acts.get().is_multiple_of(2) { "probe-b" } else { "probe-a" });
    put_app(scene.ground, &version)?;
    scene.hostler.reload().map(|_| ())
}

/// The broken app ends at once. The reload must say so, and the old generation must serve on.
fn break_app(scene: &Scene<'_>) -> Result<(), Error> {
    let broken = scene.ground.write("broken", "#!/bin/sh\nexit 3\n")?;
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755))
        .map_err(|source| Error::system("making the broken app executable", source))?;
    put_app(scene.ground, &broken)?;
    match scene.hostler.reload() {
        Ok(_) => Err(Error::new("a reload to a broken app said that all is well")),
        Err(_) => Ok(()),
    }
}

fn kill_one(scene: &Scene<'_>) -> Result<(), Error> {
    let workers = tree::workers(scene.hostler.server.pid());
    let nth = usize::try_from(scene.acts.get().wrapping_mul(7919)).unwrap_or(0) % workers.len().max(1);
    if let Some(pid) = workers.get(nth).and_then(|pid| i32::try_from(*pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    Ok(())
}
