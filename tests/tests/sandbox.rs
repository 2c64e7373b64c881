//! The sandbox of a pool, seen from inside: by scripts that reach for what they may and what they may not.

use hostler_tests::{
    http::{Answer, Connection},
    place::Place,
    program::{eventually, status},
    site::Site,
};
use nix::sys::signal::Signal;
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};

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
