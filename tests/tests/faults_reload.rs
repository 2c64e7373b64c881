//! Known faults of such systems around reloads, restarts and stops, by the numbers of the same list as in `faults`.

use hostler_tests::{
    fcgi::Request,
    http::Connection,
    load::Load,
    place::Place,
    pools::{count, get, http, pool, state, until, workers_in},
    program::eventually,
    site::Site,
};
use nix::sys::signal::{Signal, kill};
use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

#[test]
fn fault_7_a_storm_of_signals_among_many_timers_ends_nothing() {
    let dynamic = "model = \"dynamic\"\nmin = 1\nmax = 4\nspare = 1\nidle_timeout = \"20ms\"";
    let ondemand = "model = \"ondemand\"\nmax = 2\nidle_timeout = \"20ms\"";
    let broken = pool("bad", "", &count(2)).replace("command = [\"{probe}\"]", "command = [\"/bin/false\"]");
    let config = pool("shop", "request_timeout = \"100ms\"", dynamic) + &pool("blog", "", ondemand) + &broken;
    let site = Site::start(&config);
    for n in 0..60 {
        let storm = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGCHLD, Signal::SIGUSR2];
        site.program.signal(storm[n % storm.len()]);
        assert_eq!(http(&site, "shop").get("/pid").status, 200);
        assert_eq!(http(&site, "blog").get("/pid").status, 200);
    }
    // What was asked for last is done as well.
    eventually("a reload that works", || {
        site.command(&["reload", "shop", "blog"]).status.success().then_some(())
    });
    assert_eq!(state(&site, "bad")["state"], "failed");
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_9_the_access_log_stays_its_own_after_a_reload_and_a_rotation() {
    let log = "access_log = { file = \"{dir}/access.log\" }";
    let site = Site::start(&pool("shop", log, &count(1)));
    let lines = |name: &str| fs::read_to_string(site.place.path(name)).unwrap_or_default();
    assert_eq!(http(&site, "shop").get("/echo?n=1").status, 200);
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(http(&site, "shop").get("/echo?n=2").status, 200);
    eventually("two lines", || (lines("access.log").lines().count() == 2).then_some(()));
    fs::rename(site.place.path("access.log"), site.place.path("access.log.1")).unwrap();
    site.program.signal(Signal::SIGUSR1);
    // A worker that has something to do takes the new file before the next request.
    eventually("a line in the new file", || {
        assert_eq!(http(&site, "shop").get("/echo?n=3").status, 200);
        lines("access.log").contains("n=3").then_some(())
    });
    assert!(!lines("access.log").contains("n=2") && lines("access.log.1").contains("n=2"));
    assert_eq!(site.program.count("/echo?n="), 0, "{:#?}", site.program.lines());
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_45_an_app_that_cannot_start_keeps_its_config_and_serves_when_it_is_mended() {
    let config = pool("shop", "", &count(1)).replace("{probe}", "{dir}/app") + "# {probe}\n";
    let place = Place::new();
    let app = place.file("app", "#!/bin/sh\nexit 3\n");
    fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).unwrap();
    let site = Site::start_in(place, &config);
    let address = site.address("shop.sock");
    let refused = eventually("503", || get(&address, "/").ok().filter(|answer| answer.status == 503));
    assert!(refused.field("retry-after").is_some());
    fs::rename(site.place.path("probe"), &app).unwrap();
    // Nobody tells it: it tries on by itself.
    eventually("the mended app", || get(&address, "/pid").ok().filter(|answer| answer.status == 200));
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_48_a_reload_never_runs_twice_the_workers() {
    let site = Site::start(&pool("shop", "", &count(8)));
    let _ = site.program.nth_line("a worker is ready", 8);
    let site = &site;
    let most = std::thread::scope(|scope| {
        let reload = scope.spawn(|| site.command(&["reload"]));
        let mut most = 0;
        while !reload.is_finished() {
            let shop = state(site, "shop");
            let alive: usize = ["booting", "idle", "busy"].iter().map(|state| workers_in(&shop, state)).sum();
            most = most.max(alive);
        }
        assert!(reload.join().unwrap().status.success());
        most
    });
    // A quarter boots at a time.
    assert!(most <= 10, "{most}");
    site.program.signal(Signal::SIGTERM);
}

#[test]
fn fault_50_a_restart_under_load_fails_no_request_and_leaves_as_many_workers_as_there_may_be() {
    let site = Site::start(&pool("shop", "queue_timeout = \"0s\"", &count(2)));
    let load = Load::start(&site.address("shop.sock"), 6, "/pid");
    for _ in 0..4 {
        load.serve(50);
        let restart = site.command(&["restart", "shop"]);
        assert!(restart.status.success(), "{restart:?}");
    }
    load.serve(100);
    load.end().is_clean();
    until(&site, "shop", 2, "idle");
    assert_eq!(state(&site, "shop")["workers"].as_array().unwrap().len(), 2);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_68_a_kept_connection_is_not_closed_by_a_reload_while_requests_come_on_it() {
    let site = Site::start(&pool("shop", "", &count(3)));
    let site = &site;
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(move || {
                    let mut kept: Connection = http(site, "shop");
                    let mut served = 0;
                    while !over.load(Relaxed) || served == 0 {
                        assert_eq!(kept.get("/pid").status, 200);
                        assert_eq!(kept.post("/echo", b"a body").text(), "a body");
                        served += 1;
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            assert!(site.command(&["reload"]).status.success());
        }
        over.store(true, Relaxed);
        for client in clients {
            client.join().expect("a kept connection was closed");
        }
    });
    site.program.signal(Signal::SIGTERM);
}

#[test]
fn fault_69_a_worker_that_dies_while_its_output_is_read_harms_nobody() {
    let config = pool("shop", "", &count(2)).replace(".sock\", protocol = \"http\"", ".sock\"");
    let site = Site::start(&config);
    for n in 1..=6 {
        let before = site.program.count("[line goes on]");
        // It writes two megabytes in one line, and is killed somewhere in it.
        let mut talks = site.connect("shop.sock");
        talks.stream().write_all(&Request::get("/log?bytes=2000000").to_bytes()).unwrap();
        eventually("the beginning of the line", || {
            (site.program.count("[line goes on]") > before).then_some(())
        });
        for worker in site.workers() {
            let _ = kill(worker, Signal::SIGKILL);
        }
        let _ = site.program.nth_line("a worker died: signal SIGKILL", 2 * n);
        until(&site, "shop", 2, "idle");
    }
    eventually("it runs", || (state(&site, "shop")["state"] == "running").then_some(()));
    site.stop(Signal::SIGTERM);
}
