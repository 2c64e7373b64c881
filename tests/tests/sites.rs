//! `hostler run` as a whole: sockets and their files, logs, signals, and that nothing is left behind.

use hostler_tests::{
    fcgi::Request,
    net::{Address, free_port},
    place::{self, Place, root},
    program::{Program, eventually, lives},
    reader::Reader,
    site::{self, Site},
};
use nix::sys::signal::Signal;
use std::{
    fs,
    io::Write,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
};

const PROBE: &str = r#"
[pool.app]
listen = ["unix:{dir}/app.sock"]
{user}
runtime = "native"
command = ["{probe}"]
[pool.app.workers]
model = "static"
count = 2
"#;

/// The status of `GET uri` at a socket of the site, and the body.
fn get(site: &Site, socket: &str, uri: &str) -> (u16, String) {
    let mut connection = site.connect(socket);
    connection.stream().write_all(&Request::get(uri).closing().to_bytes()).unwrap();
    let answer = connection.answer(1, "GET").unwrap();
    (answer.status, answer.text())
}

/// Waits until the site has reloaded: the pool's workers are others.
fn reload(site: &Site, socket: &str) {
    let before = get(site, socket, "/pid").1;
    site.program.signal(Signal::SIGHUP);
    eventually("new workers", || {
        // Whoever answers last is of the old or the new generation; three new ones in a row are enough.
        (0..3).all(|_| get(site, socket, "/pid").1 != before).then_some(())
    });
}

fn mode(place: &Place, name: &str) -> u32 {
    fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn each_way_to_stop_leaves_no_process_and_no_socket_file() {
    for signal in [Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGINT] {
        let site = Site::start(PROBE);
        assert_eq!(get(&site, "app.sock", "/echo").0, 200);
        let _ = site.workers_from(2);
        site.stop(signal);
    }
}

#[test]
fn a_stop_waits_for_the_request_in_hand() {
    let site = Site::start(PROBE);
    let mut connection = site.connect("app.sock");
    connection.stream().write_all(&Request::get("/sleep?ms=1500").closing().to_bytes()).unwrap();
    // The request is in a worker's hand when its status says so.
    eventually("a busy worker", || {
        site.status()["pools"][0]["workers"]
            .as_array()?
            .iter()
            .find(|worker| worker["state"] == "busy")
            .map(|_| ())
    });
    site.program.signal(Signal::SIGTERM);
    assert_eq!(connection.answer(1, "GET").unwrap().status, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_dead_worker_is_replaced() {
    let site = Site::start(PROBE);
    let (_, pid) = get(&site, "app.sock", "/pid");
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    eventually("another worker", || {
        let workers = site.workers();
        (workers.len() >= 2 && !workers.contains(&pid) && !lives(pid)).then_some(())
    });
    for _ in 0..10 {
        assert_eq!(get(&site, "app.sock", "/echo").0, 200);
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn workers_are_gone_soon_after_a_supervisor_that_was_killed() {
    let mut site = Site::start(PROBE);
    let workers = site.workers_from(2);
    site.program.signal(Signal::SIGKILL);
    let _ = site.program.end();
    for pid in workers {
        eventually(&format!("worker {pid} is gone"), || (!lives(pid)).then_some(()));
    }
    // Its socket file is stale now, and no trouble.
    let again = Site::start_in(site.place, PROBE);
    // The kernel may close the old listener a moment later; it is tried again then.
    let _ = again.program.line("the pool is running");
    assert_eq!(get(&again, "app.sock", "/echo").0, 200);
    again.stop(Signal::SIGTERM);
}

#[test]
fn a_socket_file_has_its_mode_and_owner_and_gets_new_ones_at_a_reload() {
    let text = |mode: &str, more: &str| {
        format!(
            "[pool.app]\nlisten = [{{ address = \"unix:{{dir}}/app.sock\", mode = \"{mode}\"{more} }}]\n{{user}}\n\
             runtime = \"native\"\ncommand = [\"{{probe}}\"]\n[pool.app.workers]\nmodel = \"static\"\ncount = 1\n"
        )
    };
    let site = Site::start(&text("0600", ""));
    assert_eq!(mode(&site.place, "app.sock"), 0o600);
    let others = if root() { ", owner = \"nobody\", group = \"nogroup\"" } else { "" };
    site.configure(&text("0666", others));
    reload(&site, "app.sock");
    assert_eq!(mode(&site.place, "app.sock"), 0o666);
    if root() {
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        let file = fs::metadata(site.place.path("app.sock")).unwrap();
        assert_eq!((file.uid(), file.gid()), (nobody.uid.as_raw(), nobody.gid.as_raw()));
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_socket_file_is_never_open_to_all_unless_told_so() {
    let site = Site::start(PROBE);
    assert_eq!(mode(&site.place, "app.sock") & 0o007, 0, "mode {:o}", mode(&site.place, "app.sock"));
    assert_eq!(mode(&site.place, "control.sock") & 0o077, 0, "mode {:o}", mode(&site.place, "control.sock"));
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_second_supervisor_does_not_steal_a_live_socket() {
    let first = Site::start(PROBE);
    let second = Place::new();
    let text = PROBE.replace("{dir}/app.sock", first.place.path("app.sock").to_str().unwrap());
    site::write_config(&second, &text);
    let mut program = Program::start(&mut site::run(&second));
    // The pool cannot start; that it was said is enough, whether the supervisor stays or goes.
    program.line("app.sock");
    assert_eq!(get(&first, "app.sock", "/echo").0, 200, "the first still serves");
    program.signal(Signal::SIGTERM);
    let _ = program.end();
    assert_eq!(get(&first, "app.sock", "/echo").0, 200, "and after the second's end");
    first.stop(Signal::SIGTERM);
}

#[test]
fn a_stale_socket_file_is_no_obstacle() {
    let place = Place::new();
    // A listener that is gone without unlinking its file.
    drop(std::os::unix::net::UnixListener::bind(place.path("app.sock")).unwrap());
    let site = Site::start_in(place, PROBE);
    assert_eq!(get(&site, "app.sock", "/echo").0, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_file_that_is_no_socket_is_not_deleted() {
    let place = Place::new();
    let path = place.file("app.sock", "precious");
    site::write_config(&place, PROBE);
    let program = Program::start(&mut site::run(&place));
    program.line("app.sock");
    assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    program.signal(Signal::SIGTERM);
}

#[test]
fn a_socket_file_that_was_deleted_is_there_again_after_a_reload() {
    let site = Site::start(PROBE);
    fs::remove_file(site.place.path("app.sock")).unwrap();
    site.program.signal(Signal::SIGHUP);
    eventually("the socket file", || {
        fs::metadata(site.place.path("app.sock")).ok().filter(|file| file.file_type().is_socket())
    });
    eventually("an answer", || site.address("app.sock").try_connect().ok());
    assert_eq!(get(&site, "app.sock", "/echo").0, 200);
    site.stop(Signal::SIGTERM);
}

#[test]
fn long_lines_of_a_worker_are_logged_whole_and_unmixed() {
    let config = r#"
[pool.app]
listen = ["unix:{dir}/app.sock"]
{user}
runtime = "native"
command = ["/bin/sh", "{dir}/start.sh", "{probe}"]
[pool.app.workers]
model = "static"
count = 2
"#;
    let place = Place::new();
    // Each worker writes 5,000 bytes of one letter as one line in small pieces, to both outputs.
    place.file(
        "start.sh",
        "long() { n=0; while [ $n -lt 50 ]; do printf '%s' \"$1$1$1$1$1$1$1$1$1$1\"; n=$((n + 1)); done; }\n\
         a=aaaaaaaaaa; b=bbbbbbbbbb\n\
         printf '{\"out\":\"'; long $a; echo '\"}'\n\
         { printf '{\"err\":\"'; long $b; echo '\"}'; } >&2\nexec \"$1\"\n",
    );
    let site = Site::start_in(place, config);
    for (mark, letter) in [("{\"out\":\"", "a"), ("{\"err\":\"", "b")] {
        for n in 1..=2 {
            let line = site.program.nth_line(mark, n);
            let whole = format!("{mark}{}\"}}", letter.repeat(5000));
            assert!(line.contains(&whole), "{} bytes: {line}", line.len());
            assert!(line.contains("app"), "the line names its pool: {line}");
        }
        assert_eq!(site.program.count(mark), 2);
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_v4_client_of_a_v6_listener_is_known_by_its_v4_address() {
    let port = free_port();
    let text = |allow: &str| {
        format!(
            "[pool.app]\nlisten = [{{ address = \"tcp:[::]:{port}\", allow = [{allow}] }}, \
             \"unix:{{dir}}/app.sock\"]\n{{user}}\n\
             runtime = \"native\"\ncommand = [\"{{probe}}\"]\n"
        )
    };
    for (allow, v4, v6) in [
        ("\"127.0.0.0/8\"", true, false),
        ("\"::1\"", false, true),
        ("\"127.0.0.1\", \"::1/128\"", true, true),
    ] {
        let site = Site::start(&text(allow));
        for (address, allowed) in [(format!("127.0.0.1:{port}"), v4), (format!("[::1]:{port}"), v6)] {
            let mut connection = Reader::new(Address::Tcp(address.parse().unwrap()).connect());
            // A refused connection may be closed before the request is sent.
            let _ = connection.stream().write_all(&Request::get("/echo").to_bytes());
            let answer = connection.answer(1, "GET");
            assert_eq!(answer.is_ok_and(|answer| answer.status == 200), allowed, "{address}, allow {allow}");
        }
        site.stop(Signal::SIGTERM);
    }
}

#[test]
fn workers_run_as_the_pools_user_without_what_root_had() {
    if !root() {
        return;
    }
    let site = Site::start(PROBE);
    let user = nix::unistd::User::from_name("www-data").unwrap().unwrap();
    for pid in site.workers_from(2) {
        // It drops what root had as its first act, but not in no time.
        let text = eventually(&format!("worker {pid} has dropped privileges"), || {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            text.contains("NoNewPrivs:\t1").then_some(text)
        });
        let field = |name: &str| -> Vec<String> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert!(field("Uid:").iter().all(|id| *id == user.uid.to_string()), "{text}");
        assert!(field("Gid:").iter().all(|id| *id == user.gid.to_string()), "{text}");
        assert!(field("Groups:").iter().all(|id| *id == user.gid.to_string()), "{text}");
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_worker_has_no_descriptor_but_its_own() {
    let site = Site::start(PROBE);
    let _ = site.program.nth_line("a worker is ready", 2);
    for pid in site.workers_from(2) {
        let mut listeners = 0;
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy().into_owned();
            listeners += usize::from(target.starts_with("socket:"));
            let regular =
                target.starts_with('/') && !target.starts_with("/dev/") && !target.starts_with("/memfd:");
            assert!(!regular, "{pid} has {target} open");
        }
        // Control, one listener, two ends of the hand-over queue, and standard output and error where they
        // are sockets; no other worker's.
        assert!(listeners <= 6, "{pid} has {listeners} sockets");
    }
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_broken_config_at_reload_keeps_what_serves() {
    let site = Site::start(PROBE);
    site.configure("[pool.app]\nlisten = [\"unix:{dir}/app.sock\"]\nnonsense = 1\n");
    site.program.signal(Signal::SIGHUP);
    site.program.line("nonsense");
    assert_eq!(get(&site, "app.sock", "/echo").0, 200);
    site.configure(PROBE);
    reload(&site, "app.sock");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_config_that_cannot_be_read_is_exit_code_78_with_its_place() {
    let place = Place::new();
    site::write_config(&place, "[pool.app]\nlisten = [\"unix:{dir}/app.sock\"]\nnonsense = 1\n");
    let mut check = std::process::Command::new(place::program("hostler"));
    check.arg("check").arg("--config").arg(place.path("hostler.toml"));
    let mut check = Program::start(&mut check);
    check.line("hostler.toml:6:1: ");
    assert_eq!(check.code(), 78);
}

#[test]
fn a_fault_in_one_pools_file_stops_that_pool_alone() {
    let place = Place::new();
    let file = |name: &str| {
        PROBE.replace("pool.app", &format!("pool.{name}")).replace("app.sock", &format!("{name}.sock"))
    };
    let user = if root() { "user = \"www-data\"" } else { "" };
    let probe = place.copy(&place::example("probe"));
    let write = |name: &str, more: &str| {
        let text = file(name)
            .replace("{user}", user)
            .replace("{probe}", probe.to_str().unwrap())
            .replace("{dir}", place.path("").to_str().unwrap().trim_end_matches('/'));
        place.file(&format!("pools.d/{name}.toml"), text + more);
    };
    write("good", "");
    write("bad", "[pool.bad.memory]\nsoft = \"many\"\n");
    let site =
        Site::start_in(place, "{supervisor}\ninclude = [\"pools.d/*.toml\"]\n# unix:{dir}/good.sock\"\n");
    assert_eq!(get(&site, "good.sock", "/echo").0, 200);
    site.program.line("bad.toml:");
    site.stop(Signal::SIGTERM);
}

#[test]
fn no_process_of_a_worker_outlives_the_site() {
    let site = Site::start(PROBE);
    let all = site.workers_from(2);
    site.stop(Signal::SIGINT);
    assert!(all.into_iter().all(|pid| !lives(pid)));
}
