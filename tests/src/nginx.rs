//! The real nginx, in the foreground, in front of a FastCGI or HTTP server.
//!
//! Always holds: it listens on a Unix socket in its own directory, so that no port is taken; it is up when
//! [`Nginx::start`] returns; it ends with the value.

use crate::{
    http::Connection,
    net::Address,
    place::{Place, root},
    program::Program,
};
use std::process::Command;

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    /// Its process.
    pub program: Program,
    /// Where it listens.
    pub address: Address,
    place: Place,
}

impl Nginx {
    /// In front of a FastCGI server at `upstream`, to which it holds `kept` connections open (0: a fresh one for
    /// each request), with more directives for its one location.
    #[must_use]
    pub fn start(upstream: &Address, kept: u32, directives: &str) -> Nginx {
        let pool = if kept > 0 { format!("keepalive {kept};") } else { String::new() };
        let keep = if kept > 0 { "fastcgi_keep_conn on;" } else { "" };
        let pass = "include /etc/nginx/fastcgi_params; fastcgi_pass app;";
        Nginx::with(
            &format!("upstream app {{ server {upstream}; {pool} }}"),
            &format!("location / {{ {pass} {keep} {directives} }}"),
        )
    }

    /// With directives of the `http` block and of its one `server`.
    #[must_use]
    pub fn with(http: &str, server: &str) -> Nginx {
        let place = Place::new();
        std::fs::create_dir(place.path("tmp")).unwrap();
        let user = if root() { "user www-data;" } else { "" };
        let socket = place.path("front.sock");
        let temporary: String = ["client_body", "fastcgi", "proxy", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path tmp/{name};"))
            .concat();
        place.file(
            "nginx.conf",
            format!(
                "worker_processes 1; {user} error_log stderr notice; pid nginx.pid;\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{\n access_log off; client_max_body_size 0; {temporary}\n {http}\n \
                 server {{ listen unix:{}; server_name localhost; keepalive_requests 100000;\n {server}\n }}\n}}\n",
                socket.display()
            ),
        );
        let mut command = Command::new("nginx");
        command.arg("-p").arg(place.path("")).args(["-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"]);
        let program = Program::start(&mut command);
        let _ = program.line("start worker process ");
        Nginx { program, address: Address::Unix(socket), place }
    }

    /// A connection of a client.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection::to(&self.address)
    }

    /// `curl` with these arguments; URLs are `http://localhost/…`. Its standard output.
    #[must_use]
    pub fn curl(&self, arguments: &[&str]) -> Vec<u8> {
        let socket = self.place.path("front.sock");
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "120", "--unix-socket"]).arg(socket);
        let output = command.args(arguments).output().expect("start curl");
        assert!(output.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Lines of its log that tell of errors.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        self.program.lines().into_iter().filter(|l| l.contains("[error]") || l.contains("[crit]")).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.program.dismiss();
    }
}
