//! The command as its user meets it: exit codes, where text goes, what a fault looks like. No worker is needed.

#![allow(clippy::unwrap_used, clippy::panic)] // Its helpers fail as tests fail.

use std::{
    fs,
    os::unix::{net::UnixListener, process::CommandExt},
    path::Path,
    process::{Command, Output},
};

fn hostler(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hostler")).args(args).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A config of one pool of files, for whoever runs the test.
fn config(directory: &Path, more: &str) -> String {
    let user = if nix::unistd::geteuid().is_root() { "user = \"root\"\n" } else { "" };
    let path = directory.join("hostler.toml");
    let at = directory.display();
    let text = format!(
        "[supervisor]\ncontrol = \"unix:{at}/control.sock\"\n[pool.site]\nlisten = \"unix:{at}/site.sock\"\n\
         {user}runtime = \"files\"\nroot = \"{at}\"\n{more}"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_good_config_ends_with_0_and_no_line_on_standard_output_but_warnings() {
    let place = tempfile::tempdir().unwrap();
    let output = hostler(&["check", "--config", &config(place.path(), "")]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(out(&output).lines().all(|line| line.contains(": warning: ")), "{}", out(&output));
    assert!(err(&output).contains("no fault in"), "{}", err(&output));
    assert!(!place.path().join("site.sock").exists(), "a check leaves nothing behind");
}

#[test]
fn each_fault_is_a_line_with_its_place_and_the_end_is_78() {
    let place = tempfile::tempdir().unwrap();
    let path = config(place.path(), "umsk = \"0022\"\ndirectory = \"/no/such\"\n");
    let output = hostler(&["check", "--config", &path]);
    assert_eq!(code(&output), 78);
    let text = out(&output);
    assert!(text.contains("unknown key \"umsk\" in [pool.site]; did you mean \"umask\"?"), "{text}");
    assert!(text.contains("look at the directory /no/such: No such file or directory"), "{text}");
    for line in text.lines() {
        let rest = line.strip_prefix(&format!("{path}:")).unwrap_or_else(|| panic!("{line}"));
        let numbers = rest.split(':').take(2).all(|number| number.parse::<u32>().is_ok());
        assert!(numbers, "{line}");
    }
}

#[test]
fn a_supervisor_does_not_start_on_a_bad_config() {
    let place = tempfile::tempdir().unwrap();
    let path = config(place.path(), "[supervisr]\n");
    let output = hostler(&["run", "--config", &path]);
    assert_eq!(code(&output), 78, "{output:?}");
    assert!(err(&output).contains("did you mean \"supervisor\"?"), "{}", err(&output));
}

#[test]
fn where_no_supervisor_answers_the_end_is_69() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("control.sock").display().to_string();
    for args in [&["status"][..], &["status", "shop", "--json"], &["reload"], &["stop"], &["start", "a"]] {
        let output = hostler(&[args, &["--control", &socket]].concat());
        assert_eq!(code(&output), 69, "{args:?}: {output:?}");
        assert!(err(&output).contains(&socket) && out(&output).is_empty(), "{output:?}");
    }
}

#[test]
fn a_socket_that_is_not_for_this_user_ends_with_77() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let socket = place.path().join("control.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    // The program itself may lie where nobody else gets at it.
    let program = place.path().join("hostler");
    fs::copy(env!("CARGO_BIN_EXE_hostler"), &program).unwrap();
    let output =
        Command::new(program).args(["status", "--control"]).arg(&socket).uid(65_534).output().unwrap();
    assert_eq!(code(&output), 77, "{output:?}");
}

#[test]
fn wrong_usage_ends_with_2_and_help_with_0() {
    for args in [&[][..], &["dance"], &["start"], &["run", "--colour"], &["serve", "--workers", "none"]] {
        assert_eq!(code(&hostler(args)), 2, "{args:?}");
    }
    for args in [&["--help"][..], &["--version"], &["serve", "--help"], &["reload", "-h"]] {
        let output = hostler(args);
        assert_eq!(code(&output), 0, "{args:?}");
        assert!(!out(&output).is_empty());
    }
}

#[test]
fn what_serve_guesses_is_said_and_can_be_had_as_a_config_that_passes_the_check() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.cgi"), "").unwrap();
    let at = place.path().display().to_string();
    let socket = place.path().join("s").display().to_string();
    let output = hostler(&["serve", &at, "--print-config", "--listen", &socket]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(err(&output).contains("CGI scripts (runtime cgi)"), "{}", err(&output));
    let path = place.path().join("hostler.toml");
    fs::write(&path, out(&output)).unwrap();
    assert_eq!(code(&hostler(&["check", "--config", &path.display().to_string()])), 0);
}

#[test]
fn a_taken_port_is_told_before_anything_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for args in [&["demo"][..], &["serve", "/"]] {
        let output = hostler(&[args, &["--listen", &address]].concat());
        assert_eq!(code(&output), 1, "{output:?}");
        assert!(err(&output).contains("--listen 127.0.0.1:8081"), "{}", err(&output));
    }
}

#[test]
fn what_import_prints_passes_the_check() {
    if !nix::unistd::geteuid().is_root() {
        return; // Units and pools name users, and only root may become one.
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/import/golden");
    // The same units and pool as Debian's, but for the place of their sockets: somebody may listen there.
    for name in ["fcgiwrap.service", "fcgiwrap.socket", "www.conf"] {
        let text = fs::read_to_string(golden.join(name)).unwrap();
        let text = text.replace("/run/php/", "/run/").replace("/run/", &at("run-"));
        fs::write(at(name), text).unwrap();
    }
    let mut sets = vec![("fcgiwrap", at("fcgiwrap.service"))];
    if Path::new("/usr/bin/php-cgi").exists() {
        sets.push(("php-fpm", at("www.conf")));
    }
    for (server, file) in sets {
        let output = hostler(&["import", server, &file]);
        assert_eq!(code(&output), 0, "{output:?}");
        fs::write(at("hostler.toml"), out(&output)).unwrap();
        let checked = hostler(&["check", "--config", &at("hostler.toml")]);
        assert_eq!(code(&checked), 0, "{}\n{}", out(&checked), out(&output));
    }
}

#[test]
fn a_file_that_cannot_be_imported_is_named_and_ends_with_1() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("empty").display().to_string();
    for server in ["php-fpm", "uwsgi", "fcgiwrap", "mono"] {
        assert_eq!(code(&hostler(&["import", server, &file])), 1);
    }
    fs::write(&file, "").unwrap();
    for server in ["php-fpm", "uwsgi", "fcgiwrap", "mono"] {
        let output = hostler(&["import", server, &file]);
        assert_eq!((code(&output), out(&output).as_str()), (1, ""), "{server}: {output:?}");
    }
}
