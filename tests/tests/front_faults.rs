//! Known faults between web servers and what is behind them, each as a test that Hostler passes, by the numbers of
//! the list that the project keeps of what went wrong elsewhere: more kept connections than workers, a backend that
//! is restarted, bodies and waits over what others take by default.

use hostler_tests::{
    http::Connection,
    load::Load,
    place,
    site::Site,
    web::{Front, Kind},
};
use nix::sys::signal::Signal;
use std::{fs, thread, time::Duration};

/// A site of the app `probe` with so many workers, and a web server in front of it.
fn behind(kind: Kind, workers: usize) -> (Site, Front) {
    let site = Site::start(&format!(
        "[pool.shop]\nlisten = [{{ address = \"unix:{{dir}}/shop.sock\", mode = \"0666\" }}]\n{{user}}\n\
         runtime = \"native\"\ncommand = [\"{{probe}}\"]\nqueue_timeout = \"30s\"\n\
         [pool.shop.workers]\nmodel = \"static\"\ncount = {workers}\n"
    ));
    fs::create_dir(site.place.path("site")).unwrap();
    let front = Front::start(kind, &site.place.path("shop.sock"), &site.place.path("site"));
    (site, front)
}

/// More clients at once than there are workers, on connections that are kept on both sides: each is served.
fn starves_nobody(kind: Kind, workers: usize, clients: usize) {
    let (site, front) = behind(kind, workers);
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = front.connect();
                for _ in 0..10 {
                    assert_eq!(client.get("/sleep?ms=5").text(), "slept\n");
                }
                // Kept open, and at rest: it must hold no worker.
                client
            });
        }
    });
    let load = Load::start(&front.address, clients, "/pid");
    load.serve(100);
    load.end().is_clean();
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_23_connections_that_apache_keeps_starve_no_pool() {
    starves_nobody(Kind::Apache, 2, 8);
}

#[test]
fn fault_24_three_clients_of_haproxy_on_two_workers_are_all_served() {
    starves_nobody(Kind::Haproxy, 2, 3);
}

#[test]
fn fault_25_more_kept_connections_of_nginx_than_workers_hang_nobody() {
    starves_nobody(Kind::Nginx, 1, 20);
}

#[test]
fn fault_26_a_restart_behind_caddy_under_load_fails_no_request() {
    let (site, front) = behind(Kind::Caddy, 2);
    let load = Load::start(&front.address, 4, "/pid");
    for _ in 0..3 {
        load.serve(50);
        let restart = site.command(&["restart", "shop"]);
        assert!(restart.status.success(), "{restart:?}");
    }
    load.serve(50);
    load.end().is_clean();
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_55_bodies_waits_and_a_graceful_apache_are_no_error_by_default() {
    let (site, front) = behind(Kind::Apache, 1);
    let body = place::bytes(200_000, 5);
    let echoed = front.connect().post("/echo", &body);
    assert!(echoed.status == 200 && echoed.body == body, "{} {}", echoed.status, echoed.body_len);
    // All workers are busy: who comes then waits.
    let ask = |mut client: Connection| client.get("/sleep?ms=300").status;
    thread::scope(|scope| {
        let asked: Vec<_> = (0..3).map(|_| scope.spawn(|| ask(front.connect()))).collect();
        assert!(asked.into_iter().all(|one| one.join().unwrap() == 200));
    });
    front.program.signal(Signal::SIGUSR1);
    let load = Load::start(&front.address, 2, "/pid");
    thread::sleep(Duration::from_millis(500));
    load.serve(50);
    assert!(load.end().served > 0);
    assert_eq!(front.connect().get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}
