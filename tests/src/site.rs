//! A whole site: `hostler run` with a configuration in a directory of its own.
//!
//! Always holds: it is up when [`Site::start`] returns (each of its Unix sockets accepts); when it is stopped, no
//! process of it and no socket file is left, or the test fails.

use crate::{
    net::{Address, Stream},
    place::{self, Place},
    program::{Program, all_below, descendants, eventually, lives},
    reader::Reader,
};
use nix::{sys::signal::Signal, unistd::Pid};
use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::Path,
    process::{Command, Output},
};

/// A running supervisor and where it lives.
#[derive(Debug)]
pub struct Site {
    /// The supervisor.
    pub program: Program,
    /// Its directory: `hostler.toml`, `control.sock`, and what the test puts there.
    pub place: Place,
}

impl Site {
    /// Starts `hostler run`. In `config`, `{dir}` is the site's directory, `{user}` a line that names the user that
    /// workers become where the tests run as root, `{probe}` and `{hello}` the paths of the example programs.
    #[must_use]
    pub fn start(config: &str) -> Site {
        Site::start_in(Place::new(), config)
    }

    /// Like [`Site::start`], in a place that holds files already.
    #[must_use]
    pub fn start_in(place: Place, config: &str) -> Site {
        write_config(&place, config);
        let site = Site { program: Program::start(&mut run(&place)), place };
        for path in site.sockets_of(config) {
            eventually(&format!("{} accepts", path.display()), || {
                assert!(site.program.runs(), "hostler ended: {:#?}", site.program.lines());
                Address::Unix(path.clone()).try_connect().ok()
            });
        }
        site
    }

    fn sockets_of(&self, config: &str) -> Vec<std::path::PathBuf> {
        let parts = config.split("unix:{dir}/").skip(1);
        parts.filter_map(|part| part.split('"').next()).map(|name| self.place.path(name)).collect()
    }

    /// Writes the configuration anew; SIGHUP or `hostler reload` makes it count.
    pub fn configure(&self, config: &str) {
        write_config(&self.place, config);
    }

    /// The address of a Unix socket in the site's directory.
    #[must_use]
    pub fn address(&self, name: &str) -> Address {
        Address::Unix(self.place.path(name))
    }

    /// A FastCGI connection to a Unix socket in the site's directory.
    #[must_use]
    pub fn connect(&self, name: &str) -> Reader<Stream> {
        Reader::new(self.address(name).connect())
    }

    /// Runs another `hostler` command with this site's control socket.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(place::program("hostler"));
        command.args(arguments).arg("--control").arg(self.place.path("control.sock"));
        command.output().unwrap()
    }

    /// `hostler status --json`.
    #[must_use]
    pub fn status(&self) -> serde_json::Value {
        let output = self.command(&["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Processes below the supervisor now.
    #[must_use]
    pub fn workers(&self) -> Vec<Pid> {
        descendants(self.program.pid())
    }

    /// Waits until there are at least `n` processes below the supervisor, and returns them.
    #[must_use]
    pub fn workers_from(&self, n: usize) -> Vec<Pid> {
        eventually(&format!("{n} workers"), || Some(self.workers()).filter(|workers| workers.len() >= n))
    }

    /// Ends it with `signal` and checks that it leaves nothing behind.
    ///
    /// # Panics
    /// Where the exit code is not 0, a process lives on, or a socket file is left.
    pub fn stop(mut self, signal: Signal) -> Place {
        let processes = all_below(self.program.pid());
        self.program.signal(signal);
        assert_eq!(self.program.code(), 0, "{:#?}", self.program.lines());
        for pid in processes {
            eventually(&format!("process {pid} is gone"), || (!lives(pid)).then_some(()));
        }
        assert_eq!(sockets(&self.place.path("")), Vec::<String>::new(), "left behind");
        self.place
    }
}

/// `hostler run` in `place`, not started yet.
#[must_use]
pub fn run(place: &Place) -> Command {
    let mut command = Command::new(place::program("hostler"));
    command.arg("run").arg("--config").arg(place.path("hostler.toml"));
    command
}

/// Writes `hostler.toml` as [`Site::start`] says.
pub fn write_config(place: &Place, config: &str) {
    let mut text = config.to_owned();
    for name in ["probe", "hello"] {
        let mark = format!("{{{name}}}");
        if text.contains(&mark) {
            let path = place.path(name);
            let path = if path.exists() { path } else { place.copy(&place::example(name)) };
            text = text.replace(&mark, path.to_str().unwrap());
        }
    }
    let user = if place::root() { "user = \"www-data\"\ngroup = \"www-data\"" } else { "" };
    let directory = place.path("");
    let directory = directory.to_str().unwrap().trim_end_matches('/');
    let body = text.replace("{user}", user).replace("{dir}", directory);
    let control = format!("[supervisor]\ncontrol = \"unix:{directory}/control.sock\"\n");
    // A test that sets more of [supervisor] writes `{supervisor}` where its own keys follow.
    let whole = if body.contains("{supervisor}") {
        body.replace("{supervisor}", control.trim_end())
    } else {
        format!("{control}\n{body}")
    };
    place.file("hostler.toml", whole);
}

/// Names of socket files in a directory.
#[must_use]
pub fn sockets(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
