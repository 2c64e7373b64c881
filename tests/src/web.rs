//! The real web servers of Debian 12 in front of Hostler, with the example configs of `packaging/examples/fronts`.
//!
//! Always holds: of an example config, paths and addresses alone are changed; the server is up when [`Front::start`]
//! returns; it ends with the value.

use crate::{
    http::Connection,
    net::{Address, free_port},
    place::{Place, root},
    program::{Program, eventually},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// A web server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// nginx.
    Nginx,
    /// Apache with mod_proxy_fcgi.
    Apache,
    /// lighttpd.
    Lighttpd,
    /// Caddy.
    Caddy,
    /// HAProxy.
    Haproxy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Nginx, Kind::Apache, Kind::Lighttpd, Kind::Caddy, Kind::Haproxy];

    /// Its name, as in docs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Apache => "Apache",
            Kind::Lighttpd => "lighttpd",
            Kind::Caddy => "Caddy",
            Kind::Haproxy => "HAProxy",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx.conf",
            Kind::Apache => "apache.conf",
            Kind::Lighttpd => "lighttpd.conf",
            Kind::Caddy => "Caddyfile",
            Kind::Haproxy => "haproxy.cfg",
        }
    }

    fn command(self, config: &Path, place: &Place) -> Command {
        let (program, arguments): (&str, &[&str]) = match self {
            Kind::Nginx => ("nginx", &["-e", "stderr", "-g", "daemon off;", "-c"]),
            Kind::Apache => ("/usr/sbin/apache2", &["-DFOREGROUND", "-f"]),
            Kind::Lighttpd => ("/usr/sbin/lighttpd", &["-D", "-f"]),
            Kind::Caddy => ("caddy", &["run", "--adapter", "caddyfile", "--config"]),
            Kind::Haproxy => ("/usr/sbin/haproxy", &["-db", "-f"]),
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(config);
        command
            .env("HOME", place.path(""))
            .env("XDG_DATA_HOME", place.path(""))
            .env("XDG_CONFIG_HOME", place.path(""));
        command
    }
}

/// A running web server.
#[derive(Debug)]
pub struct Front {
    /// Its process.
    pub program: Program,
    /// Where it listens.
    pub address: Address,
    _place: Place,
}

impl Front {
    /// A web server as its example config has it, in front of the pool at `socket`, for the site in `site`.
    #[must_use]
    pub fn start(kind: Kind, socket: &Path, site: &Path) -> Front {
        Front::with(kind, kind.example(), &[("/run/hostler/site.sock", text(socket))], site)
    }

    /// The example config `example`, with more texts to be replaced.
    #[must_use]
    pub fn with(kind: Kind, example: &str, changes: &[(&str, &str)], site: &Path) -> Front {
        let place = Place::new();
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o777)).unwrap();
        let port = free_port();
        let mut config = fs::read_to_string(examples().join("fronts").join(example)).unwrap();
        for (from, to) in changes {
            assert!(config.contains(from), "{from} in {example}");
            config = config.replace(from, to);
        }
        config =
            config.replace("/srv/site", text(site)).replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"));
        config = config.replace("localhost:8080", &format!("localhost:{port}"));
        config = config.replace("server.port = 8080", &format!("server.port = {port}"));
        for name in ["nginx", "apache", "lighttpd"] {
            config =
                config.replace(&format!("/run/{name}-site"), text(&place.path("")).trim_end_matches('/'));
        }
        config = config.replace("/dev/stderr", text(&place.path("error.log")));
        if root() && kind == Kind::Nginx {
            config.insert_str(0, "user www-data;\n");
        }
        let file = place.file("config", config);
        let program = Program::start(&mut kind.command(&file, &place));
        let address = Address::Tcp(([127, 0, 0, 1], port).into());
        eventually(&format!("{} listens", kind.name()), || {
            assert!(program.runs(), "{} ended: {:#?}", kind.name(), program.lines());
            address.try_connect().ok()
        });
        Front { program, address, _place: place }
    }

    /// A connection of a client.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection::to(&self.address)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.program.dismiss();
    }
}

/// The pool that the example config `programs/NAME.toml` describes, for [`crate::site::Site`]: at `NAME.sock`, with its
/// site in `{dir}/site`, and the user of the tests.
#[must_use]
pub fn pool(name: &str) -> String {
    let text = fs::read_to_string(examples().join("programs").join(format!("{name}.toml"))).unwrap();
    let text = text.replace("user = \"www-data\"\ngroup = \"www-data\"", "{user}");
    let text = if root() { text } else { text.replace(", group = \"www-data\"", "") };
    text.replace("/run/hostler/site.sock", &format!("{{dir}}/{name}.sock")).replace("/srv/site", "{dir}/site")
}

/// Copies a directory of files into a place, as `to` there.
pub fn copy(place: &Place, from: &Path, to: &str) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let name = format!("{to}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            copy(place, &entry.path(), &name);
        } else {
            let copied = place.file(&name, fs::read(entry.path()).unwrap());
            fs::set_permissions(copied, entry.metadata().unwrap().permissions()).unwrap();
        }
    }
}

/// The directory of the example configs.
#[must_use]
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("packaging/examples")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
