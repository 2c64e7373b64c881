//! What whoever runs a site relies on: settings of the supervisor itself at a reload, what a check tries, how long a
//! worker that leaves may take, what is told of a slow request, and deaths of all kinds.

use hostler_tests::{
    net::Address,
    place::{Place, program, root},
    pools::{count, get, http, pool, state, until},
    program::{Program, eventually, lives},
    site::{Site, run, write_config},
};
use nix::{sys::signal::Signal, unistd::Pid};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// `hostler ARGUMENTS --control NAME` in the site's directory.
fn by(site: &Site, control: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program("hostler"));
    command.args(arguments).arg("--control").arg(site.place.path(control)).output().unwrap()
}

/// The site's config with the control socket under another name.
fn with_control(site: &Site, name: &str) {
    let path = site.place.path("hostler.toml");
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().find(|line| line.starts_with("control = ")).unwrap();
    let new = format!("control = \"unix:{}\"", site.place.path(name).display());
    fs::write(path, text.replace(line, &new)).unwrap();
}

#[test]
fn a_control_socket_with_a_new_path_is_at_that_path_after_the_reload() {
    let site = Site::start(&pool("shop", "", &count(1)));
    with_control(&site, "other.sock");
    // The answer comes to who asked on the old one.
    let reload = by(&site, "control.sock", &["reload"]);
    assert!(reload.status.success() && said(&reload).contains("serves as generation 2"), "{reload:?}");
    assert!(!site.place.path("control.sock").exists());
    assert_eq!(by(&site, "control.sock", &["status"]).status.code(), Some(69));
    assert!(by(&site, "other.sock", &["status"]).status.success());
    // It stays there over an upgrade, which may bring another path as well.
    with_control(&site, "third.sock");
    site.program.signal(Signal::SIGUSR2);
    let _ = site.program.line("the new program goes on");
    eventually("the third path", || by(&site, "third.sock", &["status"]).status.success().then_some(()));
    assert!(!site.place.path("other.sock").exists());
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_control_socket_or_log_that_cannot_be_had_is_refused_and_all_stays_as_it_is() {
    let site = Site::start(&("{supervisor}\n".to_owned() + &pool("shop", "", &count(1))));
    let good = fs::read_to_string(site.place.path("hostler.toml")).unwrap();
    site.place.file("taken", "no socket");
    with_control(&site, "taken");
    let refused = site.command(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = said(&refused);
    assert!(text.contains("the control socket stays where it is") && text.contains("taken"), "{text}");
    assert!(text.contains("every pool stays as it is"), "{text}");
    assert_eq!(fs::read_to_string(site.place.path("taken")).unwrap(), "no socket");
    let log = "log = { file = \"/no/such/directory/log\" }\n[pool.shop]";
    fs::write(site.place.path("hostler.toml"), good.replacen("[pool.shop]", log, 1)).unwrap();
    let refused = site.command(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("open the new log /no/such/directory/log"), "{}", said(&refused));
    assert_eq!(state(&site, "shop")["generation"], 1);
    fs::write(site.place.path("hostler.toml"), good).unwrap();
    assert!(site.command(&["reload"]).status.success());
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_check_boots_a_worker_of_each_pool_and_tells_at_its_pool_why_one_does_not() {
    let place = Place::new();
    let app = place.file("app", "#!/bin/sh\necho 'no module named shop' >&2\nexit 3\n");
    fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).unwrap();
    let bad = pool("bad", "", &count(2)).replace("{probe}", "{dir}/app");
    let idle = pool("idle", "", &format!("{}\nboot_timeout = \"300ms\"", count(1)));
    let idle = idle.replace("[\"{probe}\"]", "[\"/bin/sleep\", \"1000\"]");
    let absent = pool("absent", "", &count(1)).replace("{probe}", "{dir}/absent");
    write_config(&place, &(pool("good", "", &count(2)) + &bad + &idle + &absent));
    let text = fs::read_to_string(place.path("hostler.toml")).unwrap();
    let config = place.path("hostler.toml");
    let mut command = Command::new(program("hostler"));
    let output = command.arg("check").arg("--config").arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    let out = said(&output);
    let at = |name: &str| {
        let line = text.lines().position(|line| line == format!("[pool.{name}]")).unwrap() + 1;
        format!("{}:{line}:7: [pool.{name}] does not boot: ", config.display())
    };
    assert!(out.contains(&(at("bad") + "exit code 3; it said: no module named shop")), "{out}");
    assert!(out.contains(&(at("idle") + "it was not ready within 300ms")), "{out}");
    assert!(!out.contains("[pool.good]"), "{out}");
    // What is not there is a fault already, and is not tried.
    assert!(out.contains("absent: No such file") && !out.contains("[pool.absent] does not"), "{out}");
    assert!(out.contains("3 faults"), "{out}");
    for name in ["good.sock", "bad.sock"] {
        assert!(!place.path(name).exists(), "{name} is left");
    }
    let sleeps = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line == b"/bin/sleep\x001000\x00"
    };
    assert!(!fs::read_dir("/proc").unwrap().flatten().any(|entry| sleeps(&entry)), "a worker is left");
}

#[test]
fn a_check_beside_the_site_that_serves_disturbs_nobody() {
    let site = Site::start(&pool("shop", "access_log = { file = \"{dir}/access.log\" }", &count(1)));
    let worker = http(&site, "shop").get("/pid").text();
    let mut check = Command::new(program("hostler"));
    let output = check.arg("check").arg("--config").arg(site.place.path("hostler.toml")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(http(&site, "shop").get("/pid").text(), worker);
    assert_eq!(state(&site, "shop")["generation"], 1);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_replaced_worker_has_stop_timeout_for_its_request_where_the_pool_says_so() {
    let site = Site::start(&pool("shop", "stop_timeout = \"1s\"", &count(1)));
    let old: i32 = http(&site, "shop").get("/pid").text().trim().parse().unwrap();
    let mut spins = http(&site, "shop");
    spins.ask("GET", "/spin", &[]);
    until(&site, "shop", 1, "busy");
    assert!(site.command(&["reload"]).status.success());
    assert!(lives(Pid::from_raw(old)), "it has its time");
    eventually("the stuck worker is ended", || (!lives(Pid::from_raw(old))).then_some(()));
    assert!(spins.answer("GET").is_err());
    assert_eq!(http(&site, "shop").get("/pid").status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_slow_request_is_logged_with_where_its_worker_and_its_children_wait() {
    let place = Place::new();
    fs::create_dir(place.path("cgi")).unwrap();
    let script =
        place.file("cgi/slow", "#!/bin/sh\nsleep 2\nprintf 'Content-Type: text/plain\\n\\nslept\\n'\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let slow = "slow_log = \"300ms\"";
    let cgi = "runtime = \"cgi\"\nroot = \"{dir}/cgi\"\n";
    let scripts = pool("scripts", slow, &count(1)).replace("runtime = \"native\"\n", cgi);
    let scripts = scripts.replace("command = [\"{probe}\"]\n", "");
    let site = Site::start_in(place, &(pool("shop", slow, &count(1)) + &scripts));
    assert_eq!(http(&site, "shop").get("/sleep?ms=1000").text(), "slept\n");
    let line = site.program.line("slow: GET /sleep?ms=1000");
    // The stack where we may read it, or the function alone.
    assert!(line.contains("kernel=") && line.contains("nanosleep") && line.contains("ms="), "{line}");
    assert!(!line.contains("below="), "{line}");
    assert_eq!(http(&site, "scripts").get("/slow").text(), "slept\n");
    let line = site.program.line("slow: GET /slow");
    let below = line.split_once("below=").unwrap_or_else(|| panic!("{line}")).1;
    assert!(below.contains("slow ") && below.contains("sleep ") && below.contains("nanosleep"), "{line}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_worker_killed_by_a_signal_without_a_name_is_replaced_and_holds_up_no_other() {
    let site = Site::start(&pool("shop", "", &count(2)));
    let _ = site.program.nth_line("a worker is ready", 2);
    for n in 1..=3 {
        let worker = site.workers()[0];
        // Signal 40 is a real-time signal.
        let kill = Command::new("sh").args(["-c", &format!("kill -40 {worker}")]).status().unwrap();
        assert!(kill.success());
        let _ = site.program.nth_line("a worker died: a real-time signal", n);
        assert!(!lives(worker));
        until(&site, "shop", 2, "idle");
    }
    nix::sys::signal::kill(site.workers()[0], Signal::SIGKILL).unwrap();
    let _ = site.program.line("a worker died: signal SIGKILL");
    until(&site, "shop", 2, "idle");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_stop_while_workers_boot_waits_for_none_of_them() {
    let config = pool("shop", "", &count(3)).replace("[\"{probe}\"]", "[\"/bin/sleep\", \"1000\"]");
    let place = Place::new();
    write_config(&place, &config);
    let mut hostler = Program::start(&mut run(&place));
    eventually("three that boot", || {
        (hostler_tests::program::descendants(hostler.pid()).len() == 3).then_some(())
    });
    hostler.signal(Signal::SIGTERM);
    assert_eq!(hostler.code(), 0);
}

#[test]
fn a_stop_ends_though_a_worker_and_the_program_below_it_stand_still() {
    let config = "{supervisor}\nstop_timeout = \"1s\"\n".to_owned() + &pool("shop", "", &count(2));
    let site = Site::start(&config);
    for worker in site.workers_from(2) {
        nix::sys::signal::kill(worker, Signal::SIGSTOP).unwrap();
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_dynamic_pool_grows_with_what_is_asked_of_it_and_shrinks_when_it_rests() {
    let dynamic = "model = \"dynamic\"\nmin = 1\nmax = 6\nspare = 1\nidle_timeout = \"500ms\"";
    let site = Site::start(&pool("shop", "", dynamic));
    let alive = || state(&site, "shop")["workers"].as_array().unwrap().len();
    eventually("its fewest and one to spare", || (alive() == 1).then_some(()));
    let address: Address = site.address("shop.sock");
    let over = &AtomicBool::new(false);
    let grown = std::thread::scope(|scope| {
        for _ in 0..4 {
            let address = &address;
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    assert_eq!(get(address, "/sleep?ms=200").unwrap().status, 200);
                }
            });
        }
        // Four are busy, and one more is to be ready.
        let grown = eventually("five workers", || Some(alive()).filter(|n| *n >= 5));
        over.store(true, Relaxed);
        grown
    });
    assert!(grown <= 6, "{grown}");
    eventually("it has shrunk", || (alive() == 1).then_some(()));
    let totals = state(&site, "shop")["totals"].clone();
    assert_eq!((&totals["errors"], &totals["crashes"]), (&0.into(), &0.into()));
    site.stop(Signal::SIGTERM);
}

#[test]
fn at_rest_no_system_call_is_made_by_supervisor_or_workers_of_twenty_pools() {
    if !root() {
        return; // only root may trace what runs as another user
    }
    let config: String = (0..20)
        .map(|n| {
            let ondemand = "model = \"ondemand\"\nmax = 4\nidle_timeout = \"300ms\"".to_owned();
            pool(&format!("p{n}"), "", &if n % 2 == 0 { count(1) } else { ondemand })
        })
        .collect();
    let site = Site::start(&config);
    eventually("ondemand pools rest", || {
        let status = site.status();
        let pools = status["pools"].as_array().unwrap();
        let workers: usize = pools.iter().map(|pool| pool["workers"].as_array().unwrap().len()).sum();
        (workers == 10).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_secs(1)); // what the last connections left to do
    let all: Vec<String> =
        [site.program.pid()].into_iter().chain(site.workers()).map(|pid| format!("--attach={pid}")).collect();
    let trace = site.place.path("trace");
    let mut strace = Command::new("timeout");
    strace.args(["--signal=INT", "10", "strace", "--follow-forks", "--output"]).arg(&trace).args(&all);
    let _ = strace.output().unwrap();
    let calls = fs::read_to_string(&trace).unwrap();
    assert!(calls.contains("epoll_wait("), "nothing was traced: {calls}");
    // The waits that go on all the time are told as such; whatever ended or began meanwhile is told with a result.
    let waits = |line: &&str| line.ends_with("<unfinished ...>") || line.ends_with("<detached ...>");
    let calls: Vec<&str> = calls.lines().filter(|line| !waits(line)).collect();
    assert_eq!(calls, Vec::<&str>::new());
    site.stop(Signal::SIGTERM);
}
