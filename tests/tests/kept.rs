//! Kept connections pin no worker: they wait in all workers at once, and go to whichever is idle.

use hostler_tests::{
    fcgi::Request,
    http,
    net::Stream,
    program::{eventually, lives, waits},
    reader::Reader,
    site::Site,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    io::Write,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// More than a hand-over takes on a busy machine, and far less than a request that is slept through.
const SOON: Duration = Duration::from_secs(8);
/// A request that is slept through.
const LONG: &str = "/sleep?ms=12000";

fn config(workers: u32, more: &str) -> String {
    format!(
        "[pool.app]
{{user}}
listen = [\"unix:{{dir}}/app.sock\", {{ address = \"unix:{{dir}}/http.sock\", protocol = \"http\" }}]
runtime = \"native\"
command = [\"{{probe}}\"]
{more}
[pool.app.workers]
model = \"static\"
count = {workers}
"
    )
}

fn send(connection: &mut Reader<Stream>, uri: &str) {
    connection.stream().write_all(&Request::get(uri).to_bytes()).unwrap();
}

fn ask(connection: &mut Reader<Stream>, uri: &str) -> String {
    send(connection, uri);
    connection.answer(1, "GET").unwrap().text()
}

fn pid(connection: &mut Reader<Stream>) -> i32 {
    ask(connection, "/pid").trim().parse().unwrap()
}

/// Two kept connections that wait in the same worker.
fn two_of_one_worker(site: &Site) -> (Reader<Stream>, Reader<Stream>, i32) {
    let (its, mut two) = of_one_worker(site, 2);
    (two.remove(0), two.remove(0), its)
}

/// So many kept connections that wait in the same worker.
fn of_one_worker(site: &Site, count: usize) -> (i32, Vec<Reader<Stream>>) {
    let mut all: BTreeMap<i32, Vec<Reader<Stream>>> = BTreeMap::new();
    loop {
        let mut next = site.connect("app.sock");
        let its = pid(&mut next);
        let mut fellows = all.remove(&its).unwrap_or_default();
        fellows.push(next);
        if fellows.len() == count {
            return (its, fellows);
        }
        all.insert(its, fellows);
    }
}

/// Asks on all connections at once, again and again, until `over`.
fn load<T>(connections: Vec<Reader<Stream>>, uri: &str, over: impl FnOnce() -> T) -> T {
    let ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut connection in connections {
            scope.spawn(move || {
                while !ended.load(Relaxed) {
                    assert_eq!(ask(&mut connection, uri), "slept\n");
                }
            });
        }
        let result = over();
        ended.store(true, Relaxed);
        result
    })
}

/// What each worker has served.
fn served(site: &Site) -> BTreeMap<u64, u64> {
    let status = site.status();
    let workers = status["pools"][0]["workers"].as_array().cloned().unwrap_or_default();
    workers.iter().map(|w| (w["pid"].as_u64().unwrap(), w["requests"].as_u64().unwrap())).collect()
}

#[test]
fn four_workers_serve_beside_a_hundred_kept_connections_at_rest() {
    let site = Site::start(&config(4, ""));
    let mut rest: Vec<_> = (0..100).map(|_| site.connect("app.sock")).collect();
    let mut http: Vec<_> = (0..100).map(|_| http::Connection::to(&site.address("http.sock"))).collect();
    for (fastcgi, http) in rest.iter_mut().zip(&mut http) {
        assert_eq!(ask(fastcgi, "/"), "probe\n");
        assert_eq!(http.get("/").status, 200);
    }
    assert_eq!(ask(&mut site.connect("app.sock"), "/"), "probe\n");
    for (fastcgi, http) in rest.iter_mut().zip(&mut http) {
        assert_eq!(ask(fastcgi, "/"), "probe\n");
        assert_eq!(http.get("/").status, 200);
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_request_on_a_connection_of_a_busy_worker_is_served_by_another() {
    let site = Site::start(&config(2, ""));
    let (mut slow, mut quick, busy) = two_of_one_worker(&site);
    send(&mut slow, LONG);
    eventually("a busy worker", || (workers(&site, "busy") == 1).then_some(()));
    let began = Instant::now();
    for _ in 0..20 {
        assert_ne!(pid(&mut quick), busy);
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(slow.answer(1, "GET").unwrap().text(), "slept\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn equal_requests_spread_over_idle_workers_within_a_fifth() {
    let site = Site::start(&config(4, ""));
    eventually("four idle workers", || (workers(&site, "idle") == 4).then_some(()));
    let mut counts = BTreeMap::new();
    for _ in 0..400 {
        *counts.entry(pid(&mut site.connect("app.sock"))).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4, "{counts:?}");
    assert!(counts.values().all(|count| (80..=120).contains(count)), "{counts:?}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn requests_of_a_third_of_a_millisecond_do_not_wait_behind_each_other_while_workers_are_idle() {
    let site = Site::start(&config(4, ""));
    let (_, connections) = of_one_worker(&site, 4);
    let before = served(&site);
    let after = load(connections, "/sleep?us=300", || {
        eventually("some thousand requests", || {
            let now = served(&site);
            (now.values().sum::<u64>() > before.values().sum::<u64>() + 4000).then_some(now)
        })
    });
    let shares: Vec<u64> = before.iter().map(|(pid, count)| after[pid] - count).collect();
    // One worker has a fourth of the connections in the end, and had them all in the first few milliseconds.
    assert!(shares.iter().all(|share| *share > 400), "{shares:?}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_dynamic_pool_grows_for_short_requests_that_wait() {
    let dynamic = "model = \"dynamic\"\nmin = 1\nmax = 4\nspare = 0";
    let site = Site::start(&config(1, "").replace("model = \"static\"\ncount = 1", dynamic));
    let (_, connections) = of_one_worker(&site, 8);
    load(connections, "/sleep?us=400", || {
        eventually("all workers that there may be", || (served(&site).len() == 4).then_some(()));
    });
    site.stop(Signal::SIGTERM);
}

#[test]
fn an_http_request_in_two_pieces_travels_with_the_piece_that_is_there() {
    let site = Site::start(&config(1, ""));
    let mut halves: Vec<_> = (0..10).map(|_| http::Connection::to(&site.address("http.sock"))).collect();
    for half in &mut halves {
        half.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
    }
    assert_eq!(http::Connection::to(&site.address("http.sock")).get("/").status, 200);
    // The only worker retires, and its half requests go on in the next.
    assert!(site.command(&["reload"]).status.success());
    for half in &mut halves {
        half.send("56789");
        let answer = half.answer("POST").unwrap();
        assert_eq!((answer.status, answer.text()), (200, "0123456789".to_owned()));
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn connections_outlive_workers_that_reload_or_have_served_enough() {
    let site =
        Site::start(&config(2, "").replace("[pool.app.workers]", "[pool.app.workers]\nmax_requests = 20"));
    let mut kept: Vec<_> = (0..10).map(|_| site.connect("app.sock")).collect();
    let mut pids = BTreeMap::new();
    for _ in 0..20 {
        for connection in &mut kept {
            *pids.entry(pid(connection)).or_insert(0) += 1;
        }
    }
    assert!(pids.values().all(|served| *served <= 20), "{pids:?}");
    assert!(pids.len() >= 10, "{pids:?}");
    for _ in 0..3 {
        assert!(site.command(&["reload"]).status.success());
        for connection in &mut kept {
            assert_eq!(ask(connection, "/"), "probe\n");
        }
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_connection_in_flight_survives_the_workers_that_could_have_taken_it() {
    let site = Site::start(&config(2, ""));
    let (mut slow, mut quick, busy) = two_of_one_worker(&site);
    let other = site.workers().into_iter().find(|pid| pid.as_raw() != busy).unwrap();
    kill(other, Signal::SIGSTOP).unwrap();
    send(&mut slow, LONG);
    eventually("a busy worker", || (workers(&site, "busy") >= 1).then_some(()));
    send(&mut quick, "/pid");
    // The busy worker's keeper hands the connection on within milliseconds, of which nothing outside tells; the one
    // that is stopped cannot take it, and dies.
    std::thread::sleep(Duration::from_millis(200));
    kill(other, Signal::SIGKILL).unwrap();
    eventually("the other is gone", || (!lives(other)).then_some(()));
    let began = Instant::now();
    let served: i32 = quick.answer(1, "GET").unwrap().text().trim().parse().unwrap();
    assert!(served != busy && served != other.as_raw());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(slow.answer(1, "GET").unwrap().text(), "slept\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_wake_up_that_went_to_a_busy_worker_reaches_an_idle_one() {
    let site = Site::start(&config(2, ""));
    let (mut slow, _same, busy) = two_of_one_worker(&site);
    // Both events are there when it wakes: its own long request, and connections that it alone was woken for.
    kill(Pid::from_raw(busy), Signal::SIGSTOP).unwrap();
    send(&mut slow, LONG);
    let mut fresh: Vec<_> = (0..2).map(|_| site.connect("app.sock")).collect();
    for connection in &mut fresh {
        send(connection, "/pid");
    }
    kill(Pid::from_raw(busy), Signal::SIGCONT).unwrap();
    let began = Instant::now();
    for connection in &mut fresh {
        assert!(connection.answer(1, "GET").unwrap().status == 200);
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(slow.answer(1, "GET").unwrap().text(), "slept\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn who_waited_longest_is_served_first_when_all_are_busy() {
    let site = Site::start(&config(1, "queue_timeout = \"60s\""));
    let mut busy = site.connect("app.sock");
    send(&mut busy, "/sleep?ms=1500");
    eventually("a busy worker", || (workers(&site, "busy") == 1).then_some(()));
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let mut next = site.connect("app.sock");
            next.stream().write_all(&Request::get("/sleep?ms=30").to_bytes()).unwrap();
            // Their order is the order in which they came, not in which one machine's threads ran.
            std::thread::sleep(Duration::from_millis(20));
            next
        })
        .collect();
    let (tell, told) = std::sync::mpsc::channel();
    for (number, mut connection) in waiting.into_iter().enumerate() {
        let tell = tell.clone();
        std::thread::spawn(move || {
            assert_eq!(connection.answer(1, "GET").unwrap().status, 200);
            tell.send((Instant::now(), number)).unwrap();
        });
    }
    drop(tell);
    let mut order: Vec<_> = told.iter().collect();
    order.sort_unstable();
    let order: Vec<_> = order.into_iter().map(|(_, number)| number).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    site.stop(Signal::SIGTERM);
}

#[test]
fn who_waits_too_long_for_a_worker_is_told_503_and_when_to_come_back() {
    let site = Site::start(&config(1, "queue_timeout = \"500ms\""));
    let mut busy = site.connect("app.sock");
    send(&mut busy, "/sleep?ms=6000");
    eventually("a busy worker", || (workers(&site, "busy") == 1).then_some(()));
    let began = Instant::now();
    let mut late = site.connect("app.sock");
    send(&mut late, "/pid");
    let mut http = http::Connection::to(&site.address("http.sock"));
    http.ask("GET", "/pid", &[]);
    let answer = late.answer(1, "GET").unwrap();
    assert_eq!((answer.status, answer.field("Retry-After").is_some()), (503, true));
    let answer = http.answer("GET").unwrap();
    assert_eq!((answer.status, answer.field("Retry-After").is_some()), (503, true));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(busy.answer(1, "GET").unwrap().text(), "slept\n");
    assert_eq!(ask(&mut site.connect("app.sock"), "/"), "probe\n");
    site.stop(Signal::SIGTERM);
}

fn workers(site: &Site, state: &str) -> usize {
    let status = site.status();
    let workers = status["pools"][0]["workers"].as_array().cloned().unwrap_or_default();
    workers.iter().filter(|worker| worker["state"] == state).count()
}

#[test]
fn connections_outlive_a_worker_that_is_killed_and_so_do_requests_that_it_has_not_read() {
    let site = Site::start(&config(2, ""));
    let [first, second] = <[Pid; 2]>::try_from(site.workers_from(2)).unwrap();
    let mut kept: Vec<Reader<Stream>> = (0..40).map(|_| site.connect("app.sock")).collect();
    let mut http: Vec<http::Connection> =
        (0..10).map(|_| http::Connection::over(site.address("http.sock").connect())).collect();
    for connection in &mut kept {
        assert!(pid(connection) > 0);
    }
    for connection in &mut http {
        assert_eq!(connection.get("/pid").status, 200);
    }
    // An answer that is out is not yet a connection at rest.
    eventually("both workers wait", || (waits(first) && waits(second)).then_some(()));
    // Stopped, so that it reads nothing of what is sent now; the other takes what is its own.
    kill(first, Signal::SIGSTOP).unwrap();
    for connection in kept.iter_mut().take(20) {
        send(connection, "/pid");
    }
    kill(first, Signal::SIGKILL).unwrap();
    eventually("the first worker is gone", || (!lives(first)).then_some(()));
    for connection in kept.iter_mut().take(20) {
        let served_by: i32 = connection.answer(1, "GET").unwrap().text().trim().parse().unwrap();
        assert_ne!(served_by, first.as_raw());
    }
    eventually("the second worker waits", || waits(second).then_some(()));
    // The other too, after its own end: nothing is lost as long as some worker comes.
    kill(second, Signal::SIGKILL).unwrap();
    for connection in &mut kept {
        assert!(![first.as_raw(), second.as_raw()].contains(&pid(connection)));
    }
    for connection in &mut http {
        assert_eq!(connection.get("/pid").status, 200);
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_killed_worker_closes_what_it_had_in_hand() {
    let site = Site::start(&config(1, ""));
    let [worker] = <[Pid; 1]>::try_from(site.workers_from(1)).unwrap();
    let (mut busy, mut half, mut kept) =
        (site.connect("app.sock"), site.connect("app.sock"), site.connect("app.sock"));
    assert_eq!(pid(&mut kept), worker.as_raw());
    half.stream().write_all(&Request::get("/pid").to_bytes()[..20]).unwrap();
    assert_eq!(pid(&mut kept), worker.as_raw());
    send(&mut busy, LONG);
    eventually("the request is in hand", || {
        (site.status()["pools"][0]["workers"][0]["state"] == "busy").then_some(())
    });
    kill(worker, Signal::SIGKILL).unwrap();
    // What cannot be answered any more ends at once: nothing holds its descriptor.
    assert!(busy.answer(1, "GET").is_err());
    assert!(half.answer(1, "GET").is_err());
    assert_ne!(pid(&mut kept), worker.as_raw());
    site.stop(Signal::SIGTERM);
}
