//! Known faults of such systems, each as a test that Hostler passes: by the numbers of the list that the project
//! keeps of what went wrong elsewhere.

use hostler_tests::{
    net::Address,
    place::{Place, root},
    pools::{count, get, http, pool, state},
    program::{Program, descendants, descriptors, eventually, lives},
    site::{Site, run, write_config},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    time::Duration,
};

#[test]
fn faults_1_2_a_reload_accepts_while_old_workers_finish_what_they_have() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let mut slow = http(&site, "shop");
    slow.ask("GET", "/sleep?ms=2000", &[]);
    eventually("it is busy", || (state(&site, "shop")["workers"][0]["state"] == "busy").then_some(()));
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    assert_eq!(slow.answer("GET").unwrap().text(), "slept\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_3_22_71_a_broken_config_file_stops_its_pool_alone_and_a_reload_keeps_the_old() {
    let good = pool("shop", "", &count(1));
    let site = Site::start(&good);
    site.configure(&(good.clone() + &pool("bad", "no_such_key = 1", &count(1))));
    let reload = site.command(&["reload"]);
    assert_eq!(reload.status.code(), Some(1), "{reload:?}");
    assert!(String::from_utf8_lossy(&reload.stdout).contains("no_such_key"), "{reload:?}");
    assert_eq!(state(&site, "shop")["state"], "running");
    assert_eq!(state(&site, "bad")["state"], "failed");
    site.configure("[pool.shop\n");
    assert!(!site.command(&["reload"]).status.success());
    site.program.signal(Signal::SIGHUP);
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_4_6_a_worker_that_heeds_nothing_is_killed_and_stops_nothing() {
    let config = "{supervisor}\nstop_timeout = \"1s\"\n".to_owned() + &pool("shop", "", &count(1));
    let config = config.replace("command = [\"{probe}\"]", "command = [\"{dir}/deaf\"]");
    let place = Place::new();
    let _ = place.copy(&hostler_tests::place::example("probe"));
    let script = format!("#!/bin/sh\ntrap '' TERM\nexec {}\n", place.path("probe").display());
    let deaf = place.file("deaf", script);
    fs::set_permissions(deaf, fs::Permissions::from_mode(0o755)).unwrap();
    let site = Site::start_in(place, &config);
    let mut spins = http(&site, "shop");
    spins.ask("GET", "/spin", &[]);
    eventually("it is busy", || (state(&site, "shop")["workers"][0]["state"] == "busy").then_some(()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_8_signals_that_were_blocked_or_ignored_by_the_parent_are_heard() {
    let place = Place::new();
    write_config(&place, &pool("shop", "", &count(1)));
    let mut command = std::process::Command::new("sh");
    let program = hostler_tests::place::program("hostler");
    let line = format!(
        "trap '' HUP TERM USR1; exec {} run --config {}",
        program.display(),
        place.path("hostler.toml").display()
    );
    let mut hostler = Program::start(command.args(["-c", &line]));
    let _ = hostler.line("the pool is running");
    hostler.signal(Signal::SIGHUP);
    let _ = hostler.line("reloaded");
    hostler.signal(Signal::SIGTERM);
    assert_eq!(hostler.code(), 0);
}

#[test]
fn faults_10_29_a_long_line_of_a_worker_is_whole_and_forges_nothing() {
    let site = Site::start(&pool("shop", "", &count(2)));
    assert_eq!(http(&site, "shop").get("/log?bytes=5000").status, 200);
    let line = site.program.line("{\"line\":");
    assert!(line.contains(&"x".repeat(5000)) && line.contains("pool=shop"), "{}", line.len());
    assert_eq!(http(&site, "shop").get("/log?bytes=100000").status, 200);
    let _ = site.program.line("[line goes on]");
    let _ = site.program.line("[line went on]");
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_15_38_a_connection_at_rest_is_not_killed_by_a_requests_timeout() {
    let site = Site::start(&pool("shop", "request_timeout = \"300ms\"", &count(1)));
    let mut kept = http(&site, "shop");
    let pid = kept.get("/pid").text();
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1200) {
        // Another connection works meanwhile, so that time is passed by deeds.
        assert_eq!(http(&site, "shop").get("/sleep?ms=50").status, 200);
    }
    assert_eq!(kept.get("/pid").text(), pid);
    assert_eq!(state(&site, "shop")["totals"]["timeouts"], 0);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_42_a_request_over_its_time_gets_504_and_a_worker_that_does_not_come_back_is_replaced() {
    let site = Site::start(&pool("shop", "request_timeout = \"200ms\"\nstop_timeout = \"1s\"", &count(1)));
    let pid = http(&site, "shop").get("/pid").text();
    assert_eq!(get(&site.address("shop.sock"), "/spin").unwrap().status, 504);
    assert_ne!(http(&site, "shop").get("/pid").text(), pid);
    let _ = site.program.line("it did not come back from a request over its time");
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_14_status_under_load_shows_never_more_workers_than_there_may_be() {
    let workers = "model = \"dynamic\"\nmin = 1\nmax = 3\nspare = 1\nidle_timeout = \"1s\"";
    let site = Site::start(&pool("shop", "", workers));
    let address = site.address("shop.sock");
    let load: Vec<_> = (0..6)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || (0..10).all(|_| get(&address, "/sleep?ms=20").unwrap().status == 200))
        })
        .collect();
    for _ in 0..20 {
        let shop = state(&site, "shop");
        let alive = shop["workers"].as_array().unwrap().iter().filter(|w| w["state"] != "retiring").count();
        assert!(alive <= 3, "{shop:#}");
    }
    assert!(load.into_iter().all(|thread| thread.join().unwrap()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_17_53_nothing_turns_after_a_reload_a_killed_worker_and_a_stopped_pool() {
    let site = Site::start(&(pool("shop", "", &count(2)) + &pool("blog", "", &count(1))));
    assert!(site.command(&["reload"]).status.success());
    let serves: i32 = http(&site, "shop").get("/pid").text().trim().parse().unwrap();
    let _ = kill(Pid::from_raw(serves), Signal::SIGKILL);
    let _ = site.program.line("a worker died");
    assert!(site.command(&["stop", "blog"]).status.success());
    eventually("it runs again", || (state(&site, "shop")["state"] == "running").then_some(()));
    let ticks = |pid: Pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let all: Vec<Pid> = [site.program.pid()].into_iter().chain(site.workers()).collect();
    let before: Vec<u64> = all.iter().map(|pid| ticks(*pid)).collect();
    std::thread::sleep(Duration::from_secs(2)); // what is to be seen is that nothing happens
    let after: Vec<u64> = all.iter().map(|pid| ticks(*pid)).collect();
    assert!(before.iter().zip(&after).all(|(b, a)| a - b <= 2), "{before:?} {after:?}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_19_connections_that_wait_at_a_unix_socket_are_shown() {
    let site = Site::start(&pool("shop", "", &count(1)));
    assert_eq!(http(&site, "shop").get("/pid").status, 200); // whoever came before is taken
    kill(site.workers()[0], Signal::SIGSTOP).unwrap();
    let waiting: Vec<_> = (0..5).map(|_| site.address("shop.sock").connect()).collect();
    assert_eq!(state(&site, "shop")["listeners"][0]["queue"], 5);
    kill(site.workers()[0], Signal::SIGCONT).unwrap();
    eventually("they are taken", || (state(&site, "shop")["listeners"][0]["queue"] == 0).then_some(()));
    drop(waiting);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_28_a_worker_cannot_lie_the_supervisor_to_death() {
    let site = Site::start(&pool("shop", "", &count(2)));
    let _ = site.program.line("the pool is running");
    // It writes nonsense all over its own page of counters, again and again.
    for _ in 0..10 {
        assert_eq!(http(&site, "shop").get("/scribble").text(), "scribbled\n");
        let shop = state(&site, "shop");
        assert_eq!(shop["state"], "running");
        assert_eq!(shop["workers"].as_array().unwrap().len(), 2);
    }
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_30_owner_and_mode_of_a_socket_are_applied_again_at_a_reload() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let mode = || fs::metadata(site.place.path("shop.sock")).unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o660);
    let listen = "unix:{dir}/shop.sock\", mode = \"0622\"";
    site.configure(&pool("shop", "", &count(1)).replace("unix:{dir}/shop.sock\"", listen));
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(mode(), 0o622);
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_34_37_a_live_socket_is_refused_a_stale_one_replaced_and_a_removed_one_made_again() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let mut second = Program::start(&mut run(&site.place));
    assert_ne!(second.code(), 0);
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    fs::remove_file(site.place.path("shop.sock")).unwrap();
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_52_70_a_killed_supervisor_leaves_no_orphan_and_starts_again() {
    let mut site = Site::start(&pool("shop", "", &count(3)));
    let workers = site.workers();
    let mut slow = http(&site, "shop");
    slow.ask("GET", "/sleep?ms=500", &[]);
    eventually("it is busy", || {
        state(&site, "shop")["workers"].as_array().unwrap().iter().any(|w| w["state"] == "busy").then_some(())
    });
    site.program.signal(Signal::SIGKILL);
    let _ = site.program.end();
    assert_eq!(slow.answer("GET").unwrap().text(), "slept\n");
    for worker in workers {
        eventually("a worker leaves", || (!lives(worker)).then_some(()));
    }
    let again = Program::start(&mut run(&site.place));
    let _ = again.line("the pool is running");
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    again.signal(Signal::SIGTERM);
}

#[test]
fn fault_41_the_backlog_is_not_a_hundred() {
    let site = Site::start(&pool("shop", "", &count(1)));
    assert!(state(&site, "shop")["listeners"][0]["backlog"].as_u64().unwrap() >= 4096);
    kill(site.workers()[0], Signal::SIGSTOP).unwrap();
    let most: u64 = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    let burst = 1000.min(usize::try_from(most).unwrap());
    let waiting: Vec<_> = (0..burst).map(|_| site.address("shop.sock").try_connect().unwrap()).collect();
    kill(site.workers()[0], Signal::SIGCONT).unwrap();
    drop(waiting);
    site.stop(Signal::SIGTERM);
}

#[test]
fn faults_40_59_sigterm_lets_a_running_request_finish_also_as_process_1() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let mut slow = http(&site, "shop");
    slow.ask("GET", "/sleep?ms=700", &[]);
    eventually("it is busy", || (state(&site, "shop")["workers"][0]["state"] == "busy").then_some(()));
    site.program.signal(Signal::SIGTERM);
    assert_eq!(slow.answer("GET").unwrap().text(), "slept\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_59_as_process_1_of_a_container_it_reaps_strangers() {
    if !root() {
        return; // a namespace of process ids needs root
    }
    let place = Place::new();
    write_config(&place, &pool("shop", "", &count(1)));
    let mut command = std::process::Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    let hostler = hostler_tests::place::program("hostler");
    command.arg(hostler).arg("run").arg("--config").arg(place.path("hostler.toml"));
    let mut container = Program::start(&mut command);
    let _ = container.line("the pool is running");
    let first = descendants(container.pid())[0];
    // A process whose parent ends at once becomes a child of process 1, and ends.
    let mut enter = std::process::Command::new("nsenter");
    enter.args(["--target", &first.to_string(), "--pid", "--mount", "sh", "-c", "(sleep 0.2 &) ; exit 0"]);
    assert!(enter.status().unwrap().success());
    eventually("the stranger is reaped", || {
        let sleeps = descendants(container.pid()).into_iter().any(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
        });
        (!sleeps).then_some(())
    });
    kill(first, Signal::SIGTERM).unwrap();
    assert_eq!(container.code(), 0);
}

#[test]
fn fault_72_silent_connections_hold_up_no_reload() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let silent: Vec<_> = (0..20).map(|_| site.address("shop.sock").connect()).collect();
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    let begun = std::time::Instant::now();
    assert!(site.command(&["reload"]).status.success());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(silent);
    site.stop(Signal::SIGTERM);
}

#[test]
fn fault_21_a_worker_over_its_hard_limit_is_killed_and_counted() {
    let config = pool("shop", "", &count(1)) + "[pool.shop.memory]\nhard = \"64MiB\"\n";
    let site = Site::start(&config);
    let mut leaks = http(&site, "shop");
    for _ in 0..20 {
        leaks.ask("GET", "/leak?kib=8192", &[]);
        if leaks.answer("GET").is_err() {
            break;
        }
    }
    eventually("it is counted", || {
        (state(&site, "shop")["totals"]["killed_memory"].as_u64() >= Some(1)).then_some(())
    });
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_pool_that_cannot_boot_answers_503_at_once_tries_on_and_others_feel_nothing() {
    let bad = pool("bad", "", &count(2)).replace("command = [\"{probe}\"]", "command = [\"/bin/false\"]");
    let site = Site::start(&(pool("shop", "", &count(1)) + &bad));
    let refused = eventually("503", || get(&site.address("bad.sock"), "/").ok().filter(|a| a.status == 503));
    assert!(refused.field("retry-after").is_some());
    assert_eq!(state(&site, "bad")["state"], "failed");
    assert!(state(&site, "bad")["last_error"].as_str().unwrap().contains("exit code 1"));
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.configure(&(pool("shop", "", &count(1)) + &pool("bad", "", &count(2))));
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(get(&site.address("bad.sock"), "/pid").unwrap().status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_worker_has_no_descriptor_of_another_pool() {
    let site = Site::start(&(pool("shop", "", &count(2)) + &pool("blog", "", &count(2))));
    let _ = site.program.nth_line("a worker is ready", 4);
    let inode = |address: &str| {
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        let path = site.place.path(address).to_string_lossy().into_owned();
        // Connections at the listener bear its path too; the listener has the flag __SO_ACCEPTCON.
        let listens =
            |line: &&str| line.ends_with(&path) && line.split_whitespace().nth(3) == Some("00010000");
        let line = table.lines().find(listens).unwrap().to_owned();
        format!("socket:[{}]", line.split_whitespace().nth(6).unwrap())
    };
    let (shop, blog, control) = (inode("shop.sock"), inode("blog.sock"), inode("control.sock"));
    for worker in site.workers() {
        let held: Vec<String> = fs::read_dir(format!("/proc/{worker}/fd"))
            .unwrap()
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .map(|to| to.to_string_lossy().into_owned())
            .collect();
        assert!(held.contains(&shop) != held.contains(&blog), "{shop} {blog} {held:?}");
        assert!(!held.contains(&control), "{held:?}");
        assert!(descriptors(worker) <= 14, "{held:?}");
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_change_of_a_watched_file_reloads_and_a_broken_one_leaves_the_old() {
    let site = Site::start(&pool("shop", "watch = [\"{dir}/code/**/*.py\"]", &count(1)));
    let _ = site.program.line("the pool is running");
    fs::create_dir_all(site.place.path("code/deep")).unwrap();
    site.place.file("code/deep/a.py", "1");
    let _ = site.program.line("its files changed");
    let _ = site.program.line("reloaded");
    site.configure(&pool("shop", "nonsense = 1", &count(1)));
    site.place.file("code/deep/a.py", "2");
    let _ = site.program.nth_line("its files changed", 2);
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn an_ondemand_pool_rests_without_a_worker_and_a_bare_connect_does_not_spin_it() {
    let workers = "model = \"ondemand\"\nmax = 2\nidle_timeout = \"500ms\"";
    let place = Place::new();
    write_config(&place, &pool("shop", "", workers));
    let program = Program::start(&mut run(&place));
    let _ = program.line("the pool is running");
    assert_eq!(descendants(program.pid()), []);
    let address = Address::Unix(place.path("shop.sock"));
    let bare = address.try_connect().unwrap();
    let _ = program.line("a worker is ready");
    drop(bare);
    let _ = program.line("a worker left");
    assert_eq!(get(&address, "/pid").unwrap().status, 200);
    let _ = program.nth_line("a worker left", 2);
    assert_eq!(program.count("a worker is ready"), 2);
    program.signal(Signal::SIGTERM);
}

#[test]
fn a_new_binary_that_cannot_start_leaves_the_old_one_running() {
    let place = Place::new();
    let hostler = place.copy(&hostler_tests::place::program("hostler"));
    write_config(&place, &pool("shop", "", &count(1)));
    let mut command = std::process::Command::new(&hostler);
    command.arg("run").arg("--config").arg(place.path("hostler.toml")).process_group(0);
    let mut program = Program::start(&mut command);
    let _ = program.line("the pool is running");
    for (n, other) in ["/bin/false", "/bin/true", "/bin/echo"].into_iter().enumerate() {
        fs::remove_file(&hostler).unwrap();
        fs::copy(other, &hostler).unwrap();
        program.signal(Signal::SIGUSR2);
        let _ = program.nth_line("this supervisor goes on", n + 1);
    }
    assert_eq!(get(&Address::Unix(place.path("shop.sock")), "/pid").unwrap().status, 200);
    fs::remove_file(&hostler).unwrap();
    fs::copy(hostler_tests::place::program("hostler"), &hostler).unwrap();
    program.signal(Signal::SIGUSR2);
    let _ = program.line("the new program goes on");
    let _ = program.line("reloaded");
    assert_eq!(get(&Address::Unix(place.path("shop.sock")), "/pid").unwrap().status, 200);
    program.signal(Signal::SIGTERM);
    assert_eq!(program.code(), 0);
}

/// What systemd would listen on (`NOTIFY_SOCKET`).
fn notify_socket(place: &Place) -> (std::path::PathBuf, std::os::unix::net::UnixDatagram) {
    let path = place.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(hostler_tests::net::DEADLINE)).unwrap();
    (path, socket)
}

#[test]
fn fault_36_systemd_is_told_ready_reloading_and_stopping_also_after_an_upgrade() {
    let place = Place::new();
    write_config(&place, &pool("shop", "", &count(1)));
    let (path, socket) = notify_socket(&place);
    let mut program = Program::start(run(&place).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000"));
    let mut told = String::new();
    let mut until = |wanted: &str| {
        let mut buffer = [0; 4096];
        while !told.contains(wanted) {
            let n = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{wanted}: {e}, after {told}"));
            told.push_str(&String::from_utf8_lossy(&buffer[..n]));
            told.push('\n');
        }
        std::mem::take(&mut told)
    };
    let first = until("READY=1");
    assert!(first.contains("FDSTORE=1") && first.contains("EXTEND_TIMEOUT_USEC="), "{first}");
    until("WATCHDOG=1");
    program.signal(Signal::SIGHUP);
    let reloading = until("RELOADING=1");
    assert!((reloading + &until("READY=1")).contains("MONOTONIC_USEC="));
    program.signal(Signal::SIGUSR2);
    until("RELOADING=1");
    until("READY=1");
    until("WATCHDOG=1");
    program.signal(Signal::SIGTERM);
    until("STOPPING=1");
    assert_eq!(program.code(), 0);
}

#[test]
fn an_upgrade_beats_at_once_so_that_several_in_a_row_do_not_starve_the_watchdog() {
    let place = Place::new();
    write_config(&place, &pool("shop", "", &count(1)));
    let (path, socket) = notify_socket(&place);
    // A beat an hour.
    let mut program =
        Program::start(run(&place).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "7200000000"));
    let _ = program.line("the pool is running");
    for _ in 0..2 {
        program.signal(Signal::SIGUSR2);
        let mut told = [0; 4096];
        while !told.starts_with(b"WATCHDOG=1") {
            let _ = socket.recv(&mut told).expect("a beat");
        }
    }
    program.signal(Signal::SIGTERM);
    assert_eq!(program.code(), 0);
}

#[test]
fn after_an_upgrade_workers_block_no_other_signals_and_answer_a_crash_as_before() {
    let site = Site::start(&pool("shop", "", &count(1)));
    let blocked = || {
        // The one that answers, which may be the former one for a moment.
        let pid = eventually("one worker", || {
            let workers = state(&site, "shop")["workers"].clone();
            (workers.as_array()?.len() == 1 && workers[0]["state"] == "idle")
                .then(|| workers[0]["pid"].clone())
        });
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        text.lines().find(|line| line.starts_with("SigBlk:")).unwrap().to_owned()
    };
    let before = blocked();
    site.program.signal(Signal::SIGUSR2);
    let _ = site.program.line("the new program goes on");
    let _ = site.program.line("generation=2 reloaded");
    assert_eq!(blocked(), before);
    assert_eq!(http(&site, "shop").get("/crash").status, 502);
    site.stop(Signal::SIGTERM);
}

#[test]
fn at_rest_with_twenty_pools_nobody_wakes_up() {
    let config: String = (0..20)
        .map(|n| {
            let workers = match n % 3 {
                0 => count(1),
                1 => "model = \"dynamic\"\nmin = 1\nmax = 4\nspare = 1\nidle_timeout = \"1s\"".to_owned(),
                _ => "model = \"ondemand\"\nmax = 4\nidle_timeout = \"1s\"".to_owned(),
            };
            pool(&format!("p{n}"), "", &workers)
        })
        .collect();
    let site = Site::start(&config);
    for n in 0..20 {
        assert_eq!(get(&site.address(&format!("p{n}.sock")), "/pid").unwrap().status, 200);
    }
    let resting = || {
        let status = site.status();
        let pools = status["pools"].as_array().unwrap();
        let workers = pools.iter().map(|pool| pool["workers"].as_array().unwrap().len()).sum::<usize>();
        (workers == 14).then_some(())
    };
    eventually("the idle ones have left", resting);
    // Context switches that a thread made by itself: each wait that ended. Looked at over two seconds; the first
    // are for what the last answers left to do.
    let switches = || {
        let all = [site.program.pid()].into_iter().chain(site.workers());
        let tasks = all.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten());
        let of = |task: fs::DirEntry| {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        tasks.map(of).sum::<u64>()
    };
    std::thread::sleep(Duration::from_secs(1));
    let before = switches();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(switches(), before);
    site.stop(Signal::SIGTERM);
}

#[test]
fn two_hundred_pools_cost_little_and_a_reload_of_what_changed_touches_one() {
    let workers = "model = \"ondemand\"\nmax = 1\nidle_timeout = \"5s\"";
    let config: String = (0..200).map(|n| pool(&format!("p{n}"), "", workers)).collect();
    let site = Site::start(&config);
    // To see that they accept, `start` connected to each of them, and so woke each of them.
    let _ = site.program.nth_line("a worker is ready", 200);
    let kib = hostler_tests::program::private_kib(site.program.pid());
    assert!(kib < 16 * 1024, "{kib} KiB");
    site.configure(&config.replacen("\"5s\"", "\"6s\"", 1));
    let reload = site.command(&["reload", "--changed"]);
    assert!(reload.status.success(), "{reload:?}");
    let said = String::from_utf8_lossy(&reload.stdout).into_owned();
    assert_eq!(said.lines().filter(|line| line.contains("serves as generation 2")).count(), 1, "{said}");
    assert_eq!(site.program.count("a worker is ready"), 201);
    site.stop(Signal::SIGTERM);
}
