//! `concurrency`: one program that several workers share. php-cgi with children of its own is such a program: its first
//! process is the program, and tells who it is by being the parent of who answers.

use hostler_tests::{
    http::Connection,
    net::Address,
    place::Place,
    program::{eventually, lives, status},
    site::Site,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

/// Answers with the process id of the program.
const WHO: &str = "<?php preg_match('/PPid:\\s*(\\d+)/', file_get_contents('/proc/self/status'), $m); \
                   usleep((int) ($_GET['us'] ?? 0)); header('Content-Type: text/plain'); echo $m[1];";

fn site(workers: u32, more: &str, about_workers: &str) -> Site {
    let place = Place::new();
    place.file("site/who.php", WHO);
    let config = format!(
        "[pool.app]
{{user}}
listen = [{{ address = \"unix:{{dir}}/http.sock\", protocol = \"http\" }}]
runtime = \"fastcgi\"
command = [\"/usr/bin/php-cgi\"]
root = \"{{dir}}/site\"
concurrency = 4
env = {{ PHP_FCGI_CHILDREN = \"5\", PHP_FCGI_MAX_REQUESTS = \"0\" }}
{more}
[pool.app.workers]
model = \"static\"
count = {workers}
{about_workers}
"
    );
    Site::start_in(place, &config)
}

fn who(site: &Site) -> Pid {
    Pid::from_raw(Connection::to(&site.address("http.sock")).get("/who.php").text().parse().unwrap())
}

/// The wardens of the programs that run.
fn wardens(site: &Site) -> Vec<Pid> {
    let is_warden = |pid: &Pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"hostler-warden"))
    };
    site.workers().into_iter().filter(is_warden).collect()
}

fn all_ready(site: &Site, count: usize) {
    eventually("all workers are ready", || {
        let status = site.status();
        let workers = status["pools"][0]["workers"].as_array().unwrap();
        (workers.iter().filter(|worker| worker["state"] == "idle").count() == count).then_some(())
    });
}

/// What requests one after another on some connections came to while `story` went on.
struct Tally {
    programs: BTreeSet<String>,
    failures: Vec<String>,
}

fn load(address: &Address, uri: &str, story: impl FnOnce(&dyn Fn(usize))) -> Tally {
    let (ended, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let tally = Mutex::new(Tally { programs: BTreeSet::new(), failures: Vec::new() });
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut kept = Connection::to(address);
                while !ended.load(Relaxed) {
                    kept.ask("GET", uri, &[]);
                    let answer = kept.answer("GET");
                    let mut tally = tally.lock().unwrap();
                    match answer {
                        Ok(answer) if answer.status == 200 => _ = tally.programs.insert(answer.text()),
                        Ok(answer) => tally.failures.push(format!("{} {}", answer.status, answer.text())),
                        Err(fault) => {
                            tally.failures.push(format!("{fault:?}"));
                            kept = Connection::to(address);
                        }
                    }
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        story(&|more| {
            let until = served.load(Relaxed) + more;
            eventually("so many requests more", || (served.load(Relaxed) >= until).then_some(()));
        });
        ended.store(true, Relaxed);
    });
    tally.into_inner().unwrap()
}

#[test]
fn four_workers_share_one_program_and_a_fifth_starts_another() {
    let four = site(4, "", "");
    all_ready(&four, 4);
    assert_eq!(wardens(&four).len(), 1);
    let tally = load(&four.address("http.sock"), "/who.php?us=2000", |serve| serve(400));
    assert_eq!((tally.programs.len(), tally.failures), (1, Vec::new()));
    let served = four.status()["pools"][0]["workers"].as_array().unwrap().clone();
    assert!(served.iter().all(|worker| worker["requests"].as_u64().unwrap() > 20), "{served:#?}");
    four.stop(Signal::SIGTERM);
    let five = site(5, "", "");
    all_ready(&five, 5);
    assert_eq!(wardens(&five).len(), 2);
    five.stop(Signal::SIGTERM);
}

#[test]
fn a_shared_program_is_reloaded_and_recycled_under_load_and_nothing_is_lost() {
    let site = site(4, "", "max_requests = 100");
    let first = who(&site);
    let tally = load(&site.address("http.sock"), "/who.php?us=1000", |serve| {
        for _ in 0..3 {
            serve(200);
            assert!(site.command(&["reload"]).status.success());
        }
        serve(500);
    });
    assert_eq!(tally.failures, Vec::<String>::new());
    assert!(
        tally.programs.len() >= 5,
        "three reloads and some owners that have served enough: {:?}",
        tally.programs
    );
    eventually("the first program is gone", || (!lives(first)).then_some(()));
    eventually("no more programs than there is work for", || (wardens(&site).len() <= 2).then_some(()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_shared_program_that_dies_is_started_once_and_requests_are_tried_again() {
    let site = site(4, "", "");
    let tally = load(&site.address("http.sock"), "/who.php?us=3000", |serve| {
        for _ in 0..3 {
            serve(100);
            let program = who(&site);
            kill(program, Signal::SIGKILL).unwrap();
            eventually("it is gone", || (!lives(program)).then_some(()));
        }
        serve(100);
    });
    assert_eq!(tally.failures, Vec::<String>::new());
    assert!(tally.programs.len() >= 4, "{:?}", tally.programs);
    eventually("one program", || (wardens(&site).len() == 1).then_some(()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_request_without_end_in_a_shared_program_is_answered_504_and_costs_no_other() {
    let site = site(4, "request_timeout = \"1s\"", "");
    let first = who(&site);
    let mut stuck = Connection::to(&site.address("http.sock"));
    let tally = load(&site.address("http.sock"), "/who.php?us=1000", |serve| {
        stuck.ask("GET", "/who.php?us=600000000", &[]);
        assert_eq!(stuck.answer("GET").unwrap().status, 504);
        serve(200);
    });
    assert_eq!(tally.failures, Vec::<String>::new());
    eventually("the program that has the request is gone", || (!lives(first)).then_some(()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn the_end_of_the_worker_that_owns_the_program_costs_its_own_request_alone() {
    let site = site(4, "", "");
    let address = site.address("http.sock");
    let tally = load(&address, "/who.php?us=5000", |serve| {
        for _ in 0..3 {
            serve(60);
            let warden = eventually("a program", || wardens(&site).first().copied());
            let owner = status(warden, "PPid").unwrap();
            kill(Pid::from_raw(i32::try_from(owner).unwrap()), Signal::SIGKILL).unwrap();
            eventually("its program is gone", || (!lives(warden)).then_some(()));
        }
        serve(60);
    });
    assert!(tally.failures.len() <= 3, "{:#?}", tally.failures);
    site.stop(Signal::SIGTERM);
}
