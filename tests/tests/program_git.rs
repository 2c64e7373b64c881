//! git over HTTP, gitweb and cgit under `hostler run` behind nginx, as their example config has them: CGI programs
//! that people use, with large bodies both ways.

use hostler_tests::{
    place::{self, Place, root},
    site::Site,
    web::{Front, Kind, copy, examples, pool},
};
use nix::{
    sys::signal::Signal,
    unistd::{User, chown},
};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// A site with one bare repository that takes pushes, and nginx in front of it.
struct Git {
    site: Site,
    front: Front,
}

impl Git {
    fn start() -> Git {
        let place = Place::new();
        copy(&place, &examples().join("apps"), "site");
        let directory = place.path("git");
        for name in ["site/gitweb.conf", "site/cgitrc"] {
            let text = fs::read_to_string(place.path(name)).unwrap();
            place.file(name, text.replace("/srv/git", directory.to_str().unwrap()));
        }
        let bare = directory.join("project.git");
        succeeded(git(
            &place,
            &["init", "--quiet", "--bare", "--initial-branch=main", bare.to_str().unwrap()],
        ));
        succeeded(git(&place, &["-C", bare.to_str().unwrap(), "config", "http.receivepack", "true"]));
        give(&directory);
        let config = pool("git").replace("/srv/git", "{dir}/git");
        let site = Site::start_in(place, &config);
        let front = Front::start(Kind::Nginx, &site.place.path("git.sock"), &site.place.path("site"));
        Git { site, front }
    }

    fn url(&self) -> String {
        format!("http://{}/git/project.git", self.front.address.to_string().trim_start_matches("tcp:"))
    }

    /// Clones to `name`.
    fn clone(&self, name: &str) {
        let to = self.site.place.path(name);
        succeeded(git(&self.site.place, &["clone", "--quiet", &self.url(), to.to_str().unwrap()]));
    }

    /// Commits a file of `len` bytes in `clone` and pushes it.
    fn push(&self, clone: &str, subject: &str, len: usize) -> Vec<u8> {
        let place = &self.site.place;
        let bytes = place::bytes(len, 11);
        place.file(&format!("{clone}/file"), &bytes);
        let there = place.path(clone);
        for arguments in [&["add", "file"][..], &["commit", "--quiet", "-m", subject], &["push", "--quiet"]] {
            succeeded(git(place, &[&["-C", there.to_str().unwrap()], arguments].concat()));
        }
        bytes
    }
}

/// git with a configuration of its own, which asks nobody anything.
fn git(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.env("HOME", place.path("")).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    command.args(["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "push.default=current"]);
    command.args(arguments).output().expect("start git")
}

fn succeeded(output: Output) {
    assert!(output.status.success(), "{output:?}");
}

/// Gives a directory to whom workers become.
fn give(directory: &Path) {
    if !root() {
        return;
    }
    let user = User::from_name("www-data").unwrap().unwrap();
    chown(directory, Some(user.uid), Some(user.gid)).unwrap();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.path().is_dir() {
            give(&entry.path());
        } else {
            chown(&entry.path(), Some(user.uid), Some(user.gid)).unwrap();
        }
    }
}

#[test]
fn git_clones_and_pushes_over_http() {
    let git = Git::start();
    git.clone("first");
    // The second is over http.postBuffer: git sends it in chunks.
    for len in [10, 3 << 20] {
        let bytes = git.push("first", "a file", len);
        git.clone(&format!("clone-{len}"));
        assert!(fs::read(git.site.place.path(&format!("clone-{len}/file"))).unwrap() == bytes, "{len}");
    }
    git.site.stop(Signal::SIGTERM);
}

#[test]
fn gitweb_shows_what_was_pushed() {
    let git = Git::start();
    git.clone("first");
    git.push("first", "a subject to find", 10);
    let mut client = git.front.connect();
    let list = client.get("/gitweb/");
    assert!(list.status == 200 && list.text().contains("project.git"), "{} {}", list.status, list.text());
    let summary = client.get("/gitweb/?p=project.git;a=summary");
    assert!(summary.text().contains("a subject to find"), "{}", summary.text());
    let style = client.get("/gitweb/static/gitweb.css");
    assert_eq!((style.status, style.field("content-type")), (200, Some("text/css; charset=utf-8")));
    assert_eq!(client.get("/gitweb/?p=none.git").status, 404);
    git.site.stop(Signal::SIGTERM);
}

#[test]
#[ignore = "needs cgit besides what ./test installs"]
fn cgit_shows_what_was_pushed() {
    let git = Git::start();
    git.clone("first");
    git.push("first", "a subject to find", 10);
    let mut client = git.front.connect();
    let list = client.get("/cgit/");
    assert!(list.status == 200 && list.text().contains("project.git"), "{} {}", list.status, list.text());
    let log = client.get("/cgit/project.git/log/");
    assert!(log.text().contains("a subject to find"), "{}", log.text());
    assert_eq!(client.get("/cgit/none.git/").status, 404);
    git.site.stop(Signal::SIGTERM);
}
