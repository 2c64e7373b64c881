//! The sandbox of a pool, seen from inside: by scripts that reach for what they may and what they may not.

use hostler_tests::{
    http::{Answer, Connection},
    place::Place,
    program::{eventually, status},
    site::Site,
};
use nix::sys::signal::Signal;
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::Path, process::Command};

const POOL: &str = "[pool.app]
{user}
listen = { address = \"unix:{dir}/http.sock\", protocol = \"http\" }
runtime = \"cgi\"
root = \"{dir}/site/cgi\"
env = { TMPDIR = \"{dir}/tmp\" }
";

/// A site of scripts, a secret that anybody may read, and a directory that anybody may write to.
fn site(sandbox: &str) -> Site {
    let place = Place::new();
    for name in ["site", "site/cgi", "tmp", "var"] {
        fs::create_dir(place.path(name)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    place.file("secret", "told");
    let directory = place.path("").display().to_string();
    let script = |name: &str, line: &str| script(&place, name, line);
    script("secret", &format!("cat {directory}/secret"));
    script("var", &format!("echo kept > {directory}/var/file && cat {directory}/var/file"));
    script("tmp", "echo kept > $TMPDIR/file && cat $TMPDIR/file");
    script("connect", "bash -c \"exec 3<>/dev/tcp/127.0.0.1/$QUERY_STRING && echo connected\"");
    script("usual", "ls /usr/bin/env /proc/self/status && cat /etc/passwd > /dev/null");
    Site::start_in(place, &format!("{POOL}{sandbox}"))
}

/// A script that says what `line` says, errors included.
fn script(place: &Place, name: &str, line: &str) {
    let path = place.path("site/cgi").join(name);
    fs::write(&path, format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n({line}) 2>&1\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn get(site: &Site, target: &str) -> Answer {
    Connection::over(site.address("http.sock").connect()).get(target)
}

fn is_denied(site: &Site, target: &str) {
    let text = get(site, target).text();
    assert!(text.contains("ermission denied"), "{target}: {text}");
}

#[test]
fn a_sandbox_allows_what_it_names_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("/connect?{}", listener.local_addr().unwrap().port());
    let site = site("sandbox = { write = [\"{dir}/var\"], network = false }\n");
    for target in ["/var", "/tmp"] {
        assert_eq!(get(&site, target).text(), "kept\n");
    }
    assert!(get(&site, "/usual").text().contains("/usr/bin/env"));
    is_denied(&site, "/secret");
    is_denied(&site, &connect);
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_pool_without_a_sandbox_reaches_what_its_user_may() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site("");
    assert_eq!(get(&site, "/secret").text(), "told");
    let connect = format!("/connect?{}", listener.local_addr().unwrap().port());
    assert_eq!(get(&site, &connect).text(), "connected\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn what_is_readable_is_not_writable_and_the_network_is_there_until_it_is_taken_away() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site("sandbox = { read = [\"{dir}/secret\", \"{dir}/var\"] }\n");
    assert_eq!(get(&site, "/secret").text(), "told");
    is_denied(&site, "/var");
    let connect = format!("/connect?{}", listener.local_addr().unwrap().port());
    assert_eq!(get(&site, &connect).text(), "connected\n");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_path_that_is_not_there_fails_the_pool_by_name() {
    let site = site("sandbox = { read = [\"{dir}/nowhere\"] }\n");
    let line = site.program.line("sandbox.read");
    assert!(line.contains("/nowhere") && line.contains("No such file"), "{line}");
    let told = eventually("status says why", || {
        Some(site.status()["pools"][0].to_string()).filter(|pool| pool.contains("sandbox.read"))
    });
    assert!(told.contains("/nowhere"), "{told}");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_pool_of_files_makes_no_connection_and_serves() {
    let place = Place::new();
    fs::create_dir(place.path("www")).unwrap();
    place.file("www/index.html", "page");
    let site = Site::start_in(
        place,
        "[pool.app]\n{user}\nlisten = { address = \"unix:{dir}/http.sock\", protocol = \"http\" }\n\
         runtime = \"files\"\nroot = \"{dir}/www\"\n",
    );
    assert_eq!(get(&site, "/").text(), "page");
    // A deploy puts another directory in its place.
    fs::rename(site.place.path("www"), site.place.path("old")).unwrap();
    fs::create_dir(site.place.path("www")).unwrap();
    site.place.file("www/index.html", "another page");
    eventually("the new root is served", || {
        Some(get(&site, "/").text()).filter(|text| text == "another page")
    });
    // 2: a filter of system calls is in force.
    assert_eq!(status(site.workers()[0], "Seccomp"), Some(2));
    site.stop(Signal::SIGTERM);
}

/// Two pools with a sandbox and no TMPDIR, and the scripts of [`temporary`].
const TWO: &str = "[pool.app]
{user}
listen = { address = \"unix:{dir}/http.sock\", protocol = \"http\" }
runtime = \"cgi\"
root = \"{dir}/site/cgi\"
sandbox = { network = false }
";
const OTHER: &str = "[pool.other]
{user}
listen = { address = \"unix:{dir}/other.sock\", protocol = \"http\" }
runtime = \"cgi\"
root = \"{dir}/site/cgi\"
sandbox = { network = true }
[pool.granted]
{user}
listen = { address = \"unix:{dir}/granted.sock\", protocol = \"http\" }
runtime = \"cgi\"
root = \"{dir}/site/cgi\"
sandbox = { write = [\"/tmp\"] }
";

#[test]
fn a_pool_with_a_sandbox_has_temporary_files_of_its_own_and_leaves_none() {
    let place = Place::new();
    for name in ["site", "site/cgi"] {
        fs::create_dir(place.path(name)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    script(&place, "where", "echo $TMPDIR");
    script(&place, "mktemp", "f=$(mktemp) && echo kept > $f && dirname $f");
    let python =
        "import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b\"x\"); print(tempfile.gettempdir())";
    script(&place, "python", &format!("/usr/bin/python3 -c '{python}'"));
    script(&place, "count", "ls $TMPDIR | wc -l");
    script(&place, "look", "ls -d $QUERY_STRING/tmp.*");
    script(&place, "slash", "f=$(mktemp -p /tmp) && rm $f && echo made");
    let site = Site::start_in(place, &format!("{TWO}{OTHER}"));
    let of = |pool: &str, target: &str| {
        Connection::over(site.address(&format!("{pool}.sock")).connect()).get(target).text()
    };

    let own = get(&site, "/where").text();
    let own = Path::new(own.trim());
    assert!(own.ends_with("app") && own != Path::new(of("other", "/where").trim()), "{}", own.display());
    for target in ["/mktemp", "/python"] {
        assert_eq!(get(&site, target).text().trim(), own.to_str().unwrap());
    }
    is_denied(&site, "/slash");
    assert_eq!(of("granted", "/slash"), "made\n");
    // What one pool has there is out of the other's reach.
    let seen = of("other", &format!("/look?{}", own.display()));
    assert!(seen.contains("No such file") || seen.contains("ermission denied"), "{seen}");

    // It outlives workers, and the supervisor's program.
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(get(&site, "/count").text().trim(), "1");
    site.program.signal(Signal::SIGUSR2);
    site.program.line("the new program goes on");
    eventually("the reload after it", || {
        let generation = site.status()["pools"][0]["generation"].as_u64();
        generation.filter(|generation| *generation >= 3)
    });
    assert_eq!(get(&site, "/count").text().trim(), "1");
    assert_eq!(get(&site, "/where").text().trim(), own.to_str().unwrap());

    // With its pool it goes.
    site.configure(OTHER);
    assert!(site.command(&["reload"]).status.success());
    eventually("the dropped pool's is gone", || (!own.exists()).then_some(()));
    let all = own.parent().unwrap();
    assert!(all.exists());
    site.stop(Signal::SIGTERM);
    assert!(!all.exists(), "{} is left", all.display());
}

#[test]
fn a_root_that_leads_out_of_the_sandbox_is_told_of_by_its_path() {
    let place = Place::new();
    for name in ["www", "www/one", "elsewhere"] {
        fs::create_dir(place.path(name)).unwrap();
    }
    place.file("www/one/index.html", "page");
    place.file("elsewhere/index.html", "page of elsewhere");
    std::os::unix::fs::symlink("one", place.path("www/current")).unwrap();
    let site = Site::start_in(
        place,
        "[pool.app]\n{user}\nlisten = { address = \"unix:{dir}/http.sock\", protocol = \"http\" }\n\
         runtime = \"files\"\nroot = \"{dir}/www/current\"\n",
    );
    assert_eq!(get(&site, "/").text(), "page");
    fs::remove_file(site.place.path("www/current")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", site.place.path("www/current")).unwrap();
    eventually("it is refused", || (get(&site, "/").status == 403).then_some(()));
    let line = site.program.line("which may not be read");
    assert!(line.contains("/www/current leads to") && line.contains("/elsewhere now"), "{line}");
    assert!(site.command(&["reload"]).status.success());
    assert_eq!(get(&site, "/").text(), "page of elsewhere");
    site.stop(Signal::SIGTERM);
}

#[test]
fn a_program_outside_the_sandbox_is_named_by_reload_check_and_status() {
    let place = Place::new();
    let probe = place.copy(&hostler_tests::place::example("probe"));
    let config = format!(
        "[pool.app]\n{{user}}\nlisten = {{ address = \"unix:{{dir}}/http.sock\", protocol = \"http\" }}\n\
         runtime = \"native\"\ncommand = [\"{}\"]\n",
        probe.display()
    );
    let site = Site::start_in(place, &config);
    site.configure(&format!("{config}sandbox = {{ network = false }}\n"));
    let output = site.command(&["reload"]);
    let said = format!("{output:?}");
    assert!(!output.status.success(), "{said}");
    let check = Command::new(hostler_tests::place::program("hostler"))
        .args(["check", "--config"])
        .arg(site.place.path("hostler.toml"))
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(78), "{check:?}");
    for said in [said, format!("{check:?}"), site.status().to_string()] {
        assert!(said.contains(&format!("execute {}", probe.display())), "{said}");
        assert!(said.contains("sandbox.read"), "{said}");
    }
    assert!(get(&site, "/").status == 200, "the old generation serves");
    site.configure(&format!("{config}sandbox = {{ read = [\"{{dir}}\"] }}\n"));
    let output = site.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
    site.stop(Signal::SIGTERM);
}
