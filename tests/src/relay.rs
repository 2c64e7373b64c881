//! Real FastCGI programs behind a real worker: what the tests of the `fastcgi` runtime start.

use crate::{
    net::Listener,
    place::{self, Place},
    worker::{self, Queue, Worker, short_limits},
};
use hostler_worker::control::{App, Fastcgi, Limits, ListenBy, Protocol, Runtime, Serve};
use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

/// Settings of a program that is given its listener as descriptor 0.
#[must_use]
pub fn program(command: &[&str]) -> Fastcgi {
    Fastcgi {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        listen_by: ListenBy::Fd0,
        root: None,
        index: Vec::new(),
        concurrency: 1,
        keep_connections: true,
        ready_path: None,
        boot_timeout: Duration::from_secs(30),
        env: Vec::new(),
    }
}

/// A Perl program with FCGI.pm around `text`, which sees `$request` and runs once for each request.
#[must_use]
pub fn perl(place: &Place, text: &str) -> Fastcgi {
    let whole = format!(
        "use strict; use warnings; use FCGI; $| = 1;\nmy $place = '{}';\nmy $request = FCGI::Request();\n\
         sub note {{ open(my $f, '>', \"$place/$_[0].new\") or die; print $f $_[1]; close $f;\n\
         rename \"$place/$_[0].new\", \"$place/$_[0]\" }}\n\
         while ($request->Accept() >= 0) {{\n{text}\n}}\n",
        place.path("").to_str().unwrap().trim_end_matches('/')
    );
    let path = place.file("program.pl", whole);
    program(&["/usr/bin/perl", path.to_str().unwrap()])
}

/// An executable shell script.
#[must_use]
pub fn shell(place: &Place, name: &str, text: &str) -> String {
    let path = place.file(name, format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A C program, compiled with libfcgi.
#[must_use]
pub fn compiled(place: &Place, source: &Path) -> String {
    let to = place.path("program");
    let mut cc = std::process::Command::new("cc");
    let status = cc.arg("-O1").arg("-o").arg(&to).arg(source).arg("-lfcgi").status().unwrap();
    assert!(status.success(), "compile {}", source.display());
    to.to_str().unwrap().to_owned()
}

/// The app at `/` that a program is.
#[must_use]
pub fn apps(settings: Fastcgi) -> Vec<App> {
    vec![App { host: None, path: "/".into(), runtime: Runtime::Fastcgi(settings) }]
}

/// A worker that relays to a program, ready.
#[must_use]
pub fn relay(protocol: Protocol, settings: Fastcgi) -> Worker {
    worker::own(protocol, apps(settings), short_limits())
}

/// A worker that relays to a program, whose first report is still to come.
#[must_use]
pub fn begun(settings: Fastcgi) -> Worker {
    let place = Place::new();
    let listener = Listener::unix(&place.path("w.sock"));
    let serve = Serve {
        limits: Limits::default(),
        apps: apps(settings),
        ..worker::serve(&[(&listener, Protocol::Fastcgi)])
    };
    worker::started(&place::program("hostler"), &[&listener], serve, &Queue::new(), place)
}

/// A worker that relays FastCGI from a listener to a program, ready.
#[must_use]
pub fn on(listener: &Listener, settings: Fastcgi) -> Worker {
    let serve = Serve {
        limits: short_limits(),
        apps: apps(settings),
        ..worker::serve(&[(listener, Protocol::Fastcgi)])
    };
    worker::served(&place::program("hostler"), &[listener], serve, &Queue::new(), Place::new())
}
