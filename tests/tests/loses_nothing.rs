//! What no client may notice: reloads, deploys good and broken, upgrades, worn and dying workers, under constant
//! load through the real nginx with kept and fresh connections.
//!
//! Short forms: seconds here; `tests/bench` does the same for a minute.

use hostler_tests::{
    http::Connection, load::Load, net::Address, nginx::Nginx, place::Place, program::eventually, site::Site,
};
use nix::sys::signal::{Signal, kill};
use std::{
    fs,
    process::Output,
    time::{Duration, Instant},
};

const POOL: &str = "
[pool.shop]
{user}
listen = [\"unix:{dir}/shop.sock\", { address = \"unix:{dir}/http.sock\", protocol = \"http\", mode = \"0666\" }]
runtime = \"native\"
command = [\"{dir}/app\"]
";

fn four() -> String {
    format!("{POOL}\n[pool.shop.workers]\nmodel = \"static\"\ncount = 4\n")
}

/// A place where nginx may connect, with the app in it.
fn place() -> Place {
    let place = Place::new();
    deploy(&place, "probe");
    place
}

/// Puts a program in the app's place, as a deploy does: a new file under the old name.
fn deploy(place: &Place, example: &str) {
    let new = place.path("app.new");
    fs::copy(hostler_tests::place::example(example), &new).unwrap();
    fs::rename(new, place.path("app")).unwrap();
}

fn break_app(place: &Place) {
    place.file("app.new", "#!/bin/sh\nexit 3\n");
    let new = place.path("app.new");
    fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::rename(new, place.path("app")).unwrap();
}

/// A site, nginx before it with kept connections, and load from eight clients.
struct Story {
    site: Site,
    _nginx: Nginx,
    load: Load,
}

impl Story {
    fn begin(config: &str) -> Story {
        Story::begin_with(config, "/pid")
    }

    fn begin_with(config: &str, get: &'static str) -> Story {
        let config = config
            .replace("shop.sock\"", "shop.sock\", mode = \"0666\" }")
            .replace("[\"unix:{dir}/shop", "[{ address = \"unix:{dir}/shop");
        let site = Site::start_in(place(), &config);
        let _nginx = Nginx::start(&site.address("shop.sock"), 8, "");
        let load = Load::start(&_nginx.address, 8, get);
        load.serve(200);
        Story { site, _nginx, load }
    }

    fn end(self) -> Site {
        self.load.serve(200);
        let tally = self.load.end();
        println!("{} served, the slowest in {:?}", tally.served, tally.slowest);
        if !tally.failures.is_empty() {
            println!("{:#?}", self._nginx.errors().iter().take(10).collect::<Vec<_>>());
            println!("{}", self.site.program.lines().join("\n"));
        }
        tally.is_clean();
        self.site
    }
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn faults_35_47_reloads_one_after_another_fail_no_request() {
    let story = Story::begin(&four());
    for _ in 0..8 {
        succeeded(&story.site.command(&["reload"]));
        story.load.serve(100);
    }
    let site = story.end();
    assert_eq!(site.status()["pools"][0]["generation"], 9);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_5_sighup_in_a_tight_loop_coalesces_and_fails_no_request() {
    let story = Story::begin(&four());
    for _ in 0..20 {
        story.site.program.signal(Signal::SIGHUP);
        story.load.serve(20);
    }
    succeeded(&story.site.command(&["reload"]));
    let site = story.end();
    let generation = site.status()["pools"][0]["generation"].as_u64().unwrap();
    assert!(generation <= 22, "{generation}");
    assert!(site.program.runs());
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_deploy_of_a_broken_app_is_refused_and_fails_no_request() {
    let story = Story::begin(&four());
    for _ in 0..4 {
        break_app(&story.site.place);
        let refused = story.site.command(&["reload"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stdout).into_owned();
        assert!(said.contains("keeps generation") && said.contains("exit code 3"), "{said}");
        story.load.serve(50);
        deploy(&story.site.place, "probe");
        succeeded(&story.site.command(&["reload"]));
        story.load.serve(50);
    }
    let site = story.end();
    let totals = site.status()["pools"][0]["totals"].clone();
    assert_eq!((&totals["reloads"], &totals["failed_reloads"]), (&4.into(), &4.into()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn upgrades_under_load_fail_no_request_and_keep_the_process_id() {
    let story = Story::begin(&four());
    let pid = story.site.program.pid();
    for n in 1..=3 {
        story.site.program.signal(Signal::SIGUSR2);
        let _ = story.site.program.nth_line("the new program goes on", n);
        story.load.serve(100);
    }
    let site = story.end();
    let status = site.status();
    assert_eq!(status["pid"], u64::try_from(pid.as_raw()).unwrap());
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_47_max_requests_fails_no_request() {
    let config = POOL.to_owned()
        + "[pool.shop.workers]\nmodel = \"static\"\ncount = 4\nmax_requests = 50\nmax_requests_jitter = 20\n";
    let story = Story::begin(&config);
    story.load.serve(2000);
    let site = story.end();
    let totals = site.status()["pools"][0]["totals"].clone();
    assert!(totals["recycled_requests"].as_u64().unwrap() >= 20, "{totals}");
    assert_eq!(totals["crashes"], 0);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_49_a_leak_under_a_soft_limit_fails_no_request_and_stays_bounded() {
    let config = four() + "[pool.shop.memory]\nsoft = \"24MiB\"\n";
    let story = Story::begin_with(&config, "/leak?kib=1024");
    story.load.serve(400);
    let site = story.end();
    let status = site.status();
    let totals = &status["pools"][0]["totals"];
    assert!(totals["recycled_memory"].as_u64().unwrap() >= 4, "{totals}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn workers_killed_in_a_row_fail_only_what_they_had_in_hand() {
    let story = Story::begin(&four());
    let mut killed = 0;
    for _ in 0..20 {
        let workers = story.site.workers();
        if let Some(worker) = workers.get(killed % workers.len().max(1)) {
            let _ = kill(*worker, Signal::SIGKILL);
            killed += 1;
        }
        story.load.serve(50);
    }
    story.load.serve(200);
    let tally = story.load.end();
    // nginx tells a request that died with a worker by 502: the one in its hand. Its other connections live on.
    assert!(tally.failures.len() <= killed, "{killed} killed: {:#?}", tally.failures);
    let status = story.site.status();
    let totals = &status["pools"][0]["totals"];
    assert!(totals["crashes"].as_u64().unwrap() >= killed as u64 / 2, "{totals}"); // others died booting
    story.site.stop(Signal::SIGTERM);
}

#[test]
fn a_reload_beside_a_long_request_and_a_hundred_kept_connections_ends_at_once_and_delays_nobody() {
    let site = Site::start_in(place(), &four());
    let address: Address = site.address("http.sock");
    let mut kept: Vec<_> = (0..100).map(|_| Connection::to(&address)).collect();
    for connection in &mut kept {
        assert_eq!(connection.get("/pid").status, 200);
    }
    let mut other = Connection::to(&address);
    // A machine that does other things too makes a round slow now and then, but not each.
    let mut rounds = Vec::new();
    let felt = |(at_once, added): &(bool, Duration)| !at_once || *added > Duration::from_millis(50);
    while rounds.iter().all(felt) {
        assert!(rounds.len() < 6, "{rounds:?}");
        let generation = rounds.len() as u64 + 1;
        let mut long = Connection::to(&address);
        long.ask("GET", "/sleep?ms=3000", &[]);
        eventually("the long request is in hand", || {
            (sleepers(&site) == [(generation, "busy")]).then_some(())
        });
        let before = slowest(&mut other, &mut |since| since.elapsed() > Duration::from_millis(300));
        let during = std::thread::scope(|scope| {
            let reload = scope.spawn(|| succeeded(&site.command(&["reload"])));
            let during = slowest(&mut other, &mut |_| reload.is_finished());
            reload.join().unwrap();
            during
        });
        // It has come back before the long request, whose worker is of the old generation.
        rounds.push((sleepers(&site) == [(generation, "retiring")], during.saturating_sub(before)));
        for connection in &mut kept {
            assert_eq!(connection.get("/pid").status, 200);
        }
        assert_eq!(long.answer("GET").unwrap().text(), "slept\n");
    }
    site.stop(Signal::SIGTERM);
}

/// Generation and state of the workers that have a request for /sleep in hand.
fn sleepers(site: &Site) -> Vec<(u64, &'static str)> {
    let status = site.status();
    let workers = status["pools"][0]["workers"].as_array().unwrap();
    let sleeps = |worker: &&serde_json::Value| {
        worker["request"]["uri"].as_str().is_some_and(|uri| uri.starts_with("/sleep"))
    };
    let told = |worker: &serde_json::Value| {
        let state = if worker["state"] == "busy" { "busy" } else { "retiring" };
        (worker["generation"].as_u64().unwrap(), state)
    };
    workers.iter().filter(sleeps).map(told).collect()
}

/// The slowest of the requests that are made until it is over.
fn slowest(connection: &mut Connection, over: &mut dyn FnMut(Instant) -> bool) -> Duration {
    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    while !over(begun) {
        let asked = Instant::now();
        assert_eq!(connection.get("/pid").status, 200);
        slowest = slowest.max(asked.elapsed());
    }
    slowest
}
