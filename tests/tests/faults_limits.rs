//! Known faults of such systems around limits, counts and clients that leave, by the numbers of the same list as in
//! `faults`.

use hostler_tests::{
    http::Connection,
    place::root,
    pools::{count, get, http, pool, state, until},
    program::eventually,
    site::Site,
};
use nix::sys::signal::Signal;
use std::{collections::BTreeMap, fs, time::Duration};

#[test]
fn fault_16_kept_connections_do_not_drive_a_worker_far_over_max_requests() {
    let (max, clients) = (20, 8);
    let site = Site::start(&pool("shop", "", &format!("{}\nmax_requests = {max}", count(2))));
    let address = site.address("shop.sock");
    let served: Vec<String> = std::thread::scope(|scope| {
        let client = || {
            let mut kept = Connection::to(&address);
            (0..100).map(|_| kept.get("/pid").text()).collect::<Vec<_>>()
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let mut by_worker: BTreeMap<String, usize> = BTreeMap::new();
    for pid in served {
        *by_worker.entry(pid).or_default() += 1;
    }
    // A request that was read together with the last one of a worker is served by it, and no second one.
    let most = by_worker.values().max().copied().unwrap();
    assert!(most <= max + clients, "{by_worker:?}");
    assert!(by_worker.len() >= 800 / (max + clients), "{by_worker:?}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_18_who_waits_too_long_for_a_worker_is_told_so() {
    let site = Site::start(&pool("shop", "queue_timeout = \"300ms\"", &count(1)));
    let mut slow = http(&site, "shop");
    slow.ask("GET", "/sleep?ms=5000", &[]);
    until(&site, "shop", 1, "busy");
    let refused = get(&site.address("shop.sock"), "/pid").unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.field("retry-after").is_some());
    assert_eq!(state(&site, "shop")["workers"][0]["state"], "busy", "it was told before a worker was free");
    assert_eq!(state(&site, "shop")["totals"]["rejected"], 1);
    drop(slow);
    site.stop(Signal::SIGINT);
}

#[test]
fn fault_20_status_tells_how_many_workers_there_may_be() {
    let dynamic = "model = \"dynamic\"\nmin = 1\nmax = 7\nspare = 1";
    let ondemand = "model = \"ondemand\"\nmax = 5";
    let site = Site::start(&(pool("a", "", &count(3)) + &pool("b", "", dynamic) + &pool("c", "", ondemand)));
    let most = |name: &str| state(&site, name)["workers_max"].as_u64();
    assert_eq!([most("a"), most("b"), most("c")], [Some(3), Some(7), Some(5)]);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_32_a_user_named_by_number_has_the_groups_of_its_name() {
    if !root() {
        return; // only root can become another user
    }
    let uid = nix::unistd::User::from_name("www-data").unwrap().unwrap().uid;
    let by = |user: &str| {
        let site = Site::start(&pool("shop", "", &count(1)).replace("{user}", &format!("user = {user}")));
        assert_eq!(http(&site, "shop").get("/pid").status, 200);
        let status = fs::read_to_string(format!("/proc/{}/status", site.workers()[0])).unwrap();
        site.stop(Signal::SIGTERM);
        let ids = ["Uid:", "Gid:", "Groups:"];
        let line = |id: &&str| status.lines().find(|line| line.starts_with(*id)).unwrap().to_owned();
        ids.iter().map(line).collect::<Vec<_>>()
    };
    let named = by("\"www-data\"");
    assert_eq!(by(&uid.to_string()), named);
    assert_eq!(by(&format!("\"{uid}\"")), named);
}

#[test]
fn faults_39_49_a_worker_over_its_soft_limit_finishes_what_it_has_and_gives_its_connections_on() {
    let site = Site::start(&(pool("shop", "", &count(1)) + "[pool.shop.memory]\nsoft = \"24MiB\"\n"));
    let mut rests = http(&site, "shop");
    let first = rests.get("/pid").text();
    let leaker: u64 = first.trim().parse().unwrap();
    // Over the limit, and then busy for long enough to be seen so and to be replaced.
    let mut leaks = http(&site, "shop");
    for _ in 0..4 {
        assert_eq!(leaks.get("/leak?kib=10240").status, 200);
    }
    assert_eq!(leaks.get("/sleep?ms=1500").text(), "slept\n");
    eventually("the worker that leaked is gone", || {
        let shop = state(&site, "shop");
        shop["workers"].as_array()?.iter().all(|worker| worker["pid"] != leaker).then_some(())
    });
    // The same connections, in another worker.
    assert_ne!(rests.get("/pid").text(), first);
    assert_eq!(leaks.get("/pid").status, 200);
    let totals = state(&site, "shop")["totals"].clone();
    assert!(totals["recycled_memory"].as_u64() >= Some(1) && totals["crashes"] == 0, "{totals}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_51_clients_that_leave_in_a_row_eat_no_worker() {
    let site = Site::start(&pool("shop", "request_timeout = \"2s\"", &count(2)));
    for n in 0..100 {
        let mut leaves = http(&site, "shop");
        leaves.ask("GET", if n % 10 == 0 { "/sleep?ms=100" } else { "/stream?bytes=1000000" }, &[]);
    }
    until(&site, "shop", 2, "idle");
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    assert_eq!(state(&site, "shop")["totals"]["crashes"], 0);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_61_an_app_can_learn_that_its_client_has_left() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let mut leaves = http(&site, "shop");
    leaves.ask("GET", "/gone?ms=30000", &[]);
    until(&site, "shop", 1, "busy");
    let begun = std::time::Instant::now();
    drop(leaves);
    until(&site, "shop", 1, "idle");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    site.stop(Signal::SIGTERM);
}
