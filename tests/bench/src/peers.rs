//! The servers that Hostler is measured beside: the limit and the peers of Debian 12, each as its own
//! documentation says, with as many processes, on a Unix socket, and the same tiny answer.
//!
//! Always holds: a peer that cannot be started is skipped with a plain line, never counted as slow.

use crate::{ground::Ground, hostler, nginx};
use hostler_bench::{
    address::Address,
    load::{Error, Plan},
    request::{Protocol, Request},
    server::Server,
};
use std::{path::Path, process::Command};

/// A server to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// Its name in tables and for `--only`.
    pub(crate) name: &'static str,
    /// What it speaks.
    protocol: Protocol,
    /// Whether it keeps a connection open.
    pub(crate) keeps: bool,
    start: fn(&Ground) -> Result<Server, Error>,
    /// CGI parameters of its own.
    parameters: fn(&Ground) -> Vec<(String, String)>,
}

/// All of them, the limit first. `spread` is the limit with its connections spread as Hostler's are, `bare` is Hostler's worker alone, without the supervisor.
pub(crate) const PEERS: [Peer; 9] = [
    Peer { name: "limit", protocol: Protocol::Fastcgi, keeps: true, start: limit, parameters: none },
    Peer { name: "spread", protocol: Protocol::Fastcgi, keeps: true, start: spread, parameters: none },
    Peer {
        name: "hostler",
        protocol: Protocol::Fastcgi,
        keeps: true,
        start: hostler::native,
        parameters: none,
    },
    Peer { name: "bare", protocol: Protocol::Fastcgi, keeps: true, start: hostler::bare, parameters: none },
    Peer { name: "libfcgi", protocol: Protocol::Fastcgi, keeps: true, start: libfcgi, parameters: none },
    Peer {
        name: "php-fpm",
        protocol: Protocol::Fastcgi,
        keeps: true,
        start: php_fpm,
        parameters: php_script,
    },
    Peer { name: "uwsgi", protocol: Protocol::Fastcgi, keeps: false, start: uwsgi, parameters: none },
    Peer {
        name: "fcgiwrap",
        protocol: Protocol::Fastcgi,
        keeps: false,
        start: fcgiwrap,
        parameters: cgi_script,
    },
    Peer { name: "nginx", protocol: Protocol::Http, keeps: true, start: nginx_alone, parameters: none },
];

impl Peer {
    /// Starts it and checks one answer.
    pub(crate) fn start(&self, ground: &Ground) -> Result<Server, Error> {
        let server = (self.start)(ground)?;
        let mut plan = self.plan(ground, &server, false, 1, 0.0);
        plan.until = hostler_bench::load::Until::Answers(1);
        plan.warm_up = std::time::Duration::ZERO;
        let outcome = hostler_bench::driver::run(&plan)?;
        match outcome.complaints.first() {
            None => Ok(server),
            Some(complaint) => {
                Err(Error::new(format!("{}: {complaint}; {}", self.name, server.last_words())))
            }
        }
    }

    /// A load on it.
    pub(crate) fn plan(
        &self,
        ground: &Ground,
        server: &Server,
        keep: bool,
        connections: usize,
        seconds: f64,
    ) -> Plan {
        let mut request = Request::new(self.protocol, keep);
        request.parameters = (self.parameters)(ground);
        let mut plan = Plan::new(server.address().clone(), request, connections, seconds);
        plan.tree = Some(server.pid());
        plan
    }
}

/// Starts the limit.
pub(crate) fn limit(ground: &Ground) -> Result<Server, Error> {
    limit_named(ground, "limit", &[])
}

/// Starts the limit that spreads its connections.
fn spread(ground: &Ground) -> Result<Server, Error> {
    limit_named(ground, "spread", &["--spread"])
}

fn limit_named(ground: &Ground, name: &str, options: &[&str]) -> Result<Server, Error> {
    let program = std::env::current_exe().map_err(|source| Error::system("finding this program", source))?;
    let address = ground.socket(name);
    let mut command = Command::new(program);
    command.arg("limit").arg(address.to_string()).args(["--processes", &ground.processes.to_string()]);
    Server::start(command.args(options), address, &ground.path(&format!("{name}.log")))
}

fn libfcgi(ground: &Ground) -> Result<Server, Error> {
    ground.file("/usr/include/fcgi_stdio.h", "libfcgi-dev")?;
    let program = ground.compile("hello", include_str!("../peers/hello.c"), &["-lfcgi"])?;
    spawn(ground, "libfcgi", &[&program])
}

/// Starts it; see [`PEERS`].
pub(crate) fn fcgiwrap(ground: &Ground) -> Result<Server, Error> {
    ground.compile("hello.cgi", include_str!("../peers/cgi.c"), &[])?;
    let program = ground.program("fcgiwrap", "fcgiwrap")?;
    spawn(ground, "fcgiwrap", &[&program])
}

/// spawn-fcgi binds the socket, multiwatch starts as many copies of the program on it.
fn spawn(ground: &Ground, name: &str, program: &[&Path]) -> Result<Server, Error> {
    let spawn_fcgi = ground.program("spawn-fcgi", "spawn-fcgi")?;
    let multiwatch = ground.program("multiwatch", "multiwatch")?;
    let address = ground.socket(name);
    let mut command = Command::new(spawn_fcgi);
    command.arg("-n").arg("-s").arg(path(&address)).args(["-b", "1024", "--"]).arg(multiwatch);
    command.args(["-f", &ground.processes.to_string(), "--"]).args(program);
    Server::start(&mut command, address, &ground.path(&format!("{name}.log")))
}

/// Starts it; see [`PEERS`].
pub(crate) fn php_fpm(ground: &Ground) -> Result<Server, Error> {
    let program = ground.program("php-fpm8.2", "php8.2-fpm")?;
    ground.write("hello.php", include_str!("../peers/hello.php"))?;
    let address = ground.socket("php-fpm");
    let user = if crate::ground::is_root() { "user = www-data\ngroup = www-data\n" } else { "" };
    let config = format!(
        "[global]\nerror_log = /dev/stderr\ndaemonize = no\n[www]\nlisten = {}\nlisten.backlog = 1024\n{user}\
         pm = static\npm.max_children = {}\n",
        path(&address).display(),
        ground.processes
    );
    let config = ground.write("php-fpm.conf", &config)?;
    let mut command = Command::new(program);
    command.args(["-F", "-c", "/dev/null", "-y"]).arg(config);
    Server::start(&mut command, address, &ground.path("php-fpm.log"))
}

fn uwsgi(ground: &Ground) -> Result<Server, Error> {
    let program = ground.program("uwsgi", "uwsgi-core")?;
    ground.file("/usr/lib/uwsgi/plugins/python311_plugin.so", "uwsgi-plugin-python3")?;
    let script = ground.write("app.py", include_str!("../peers/app.py"))?;
    let address = ground.socket("uwsgi");
    let mut command = Command::new(program);
    command
        .args(["--plugin", "python3", "--fastcgi-socket"])
        .arg(path(&address))
        .arg("--wsgi-file")
        .arg(script);
    command.args(["--processes", &ground.processes.to_string(), "--listen", "1024"]);
    command.args(["--master", "--die-on-term", "--need-app", "--disable-logging"]);
    if crate::ground::is_root() {
        command.args(["--uid", "www-data", "--gid", "www-data", "--chmod-socket=666"]);
        command.args(["--chown-socket", "www-data"]);
    }
    Server::start(&mut command, address, &ground.path("uwsgi.log"))
}

fn nginx_alone(ground: &Ground) -> Result<Server, Error> {
    let locations = "location / { default_type text/plain; return 200 \"hello\\n\"; }";
    let (address, processes) = (ground.socket("nginx"), ground.processes);
    nginx::start(ground, nginx::Site { name: "nginx", address, processes, http: "", locations })
}

fn none(_: &Ground) -> Vec<(String, String)> {
    Vec::new()
}

fn php_script(ground: &Ground) -> Vec<(String, String)> {
    script(ground, "hello.php")
}

fn cgi_script(ground: &Ground) -> Vec<(String, String)> {
    script(ground, "hello.cgi")
}

/// What tells a server which script to run.
pub(crate) fn script(ground: &Ground, name: &str) -> Vec<(String, String)> {
    let file = ground.path(name).to_string_lossy().into_owned();
    vec![("SCRIPT_FILENAME".into(), file), ("SCRIPT_NAME".into(), format!("/{name}"))]
}

/// The path of a Unix socket; empty for another address.
pub(crate) fn path(address: &Address) -> &Path {
    match address {
        Address::Unix(path) => path,
        Address::Tcp(_) => Path::new(""),
    }
}
