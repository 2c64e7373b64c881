//! `hostler serve`: a config made from the command line.
//!
//! What is served is written as a config first and read like any other, so that a served directory means the same
//! as its config; `--print-config` shows it.

use crate::{
    cli::{Runtime, Serve},
    config::{self, Fault, Loaded, listen, users},
    guess::{self, Guess, Programs},
    print,
    run::{self, Source},
    scratch::Scratch,
};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use toml::{Table, Value};

/// Where HTTP is spoken unless told otherwise.
pub(crate) const USUAL: &str = "127.0.0.1:8080";

/// Serves until it is told to stop.
pub(crate) fn serve(options: &Serve) -> ExitCode {
    match set_up(options, &guess::path()) {
        Ok(set_up) if options.print_config => {
            set_up.said.iter().for_each(|said| eprintln!("hostler: {said}"));
            print(&set_up.config(None));
            ExitCode::SUCCESS
        }
        Ok(set_up) => start(&set_up),
        Err(message) => fail(&message),
    }
}

fn start(set_up: &SetUp) -> ExitCode {
    let scratch = match Scratch::new() {
        Ok(scratch) => scratch,
        Err(message) => return fail(&message),
    };
    let loaded = match load(set_up.config(Some(&scratch.control()))) {
        Ok(loaded) => loaded,
        Err(message) => return fail(&message),
    };
    if let Err(message) = can_listen(&loaded) {
        return fail(&message);
    }
    for said in &set_up.said {
        eprintln!("hostler: {said}");
    }
    for (address, protocol) in &set_up.listen {
        eprintln!("hostler: serves {}", shown(address, protocol));
    }
    eprintln!(
        "hostler: \"hostler status --control {}\" shows how it does; Ctrl-C ends it",
        scratch.control().display()
    );
    run::run(Source::Made(Box::new(loaded)))
}

/// Reads a config that was made here.
///
/// # Errors
/// Its faults, without places: there is no file that the user could look into.
pub(crate) fn load(text: String) -> Result<Loaded, String> {
    let all = |faults: &[Fault]| faults.iter().map(|f| f.message.clone()).collect::<Vec<_>>().join("; ");
    let loaded = config::made(text).map_err(|faults| all(&faults))?;
    if loaded.faults.is_empty() { Ok(loaded) } else { Err(all(&loaded.faults)) }
}

/// Finds out before anything is started whether the addresses are free.
///
/// # Errors
/// Which one is not, and what to do.
pub(crate) fn can_listen(loaded: &Loaded) -> Result<(), String> {
    for listen in loaded.pools.iter().flat_map(|pool| &pool.listen) {
        config::Trial::Listen(listen.clone())
            .run(false)
            .map_err(|message| format!("{message}; --listen chooses, as in --listen 127.0.0.1:8081"))?;
    }
    Ok(())
}

/// An address as the user types it elsewhere: a URL where that is one.
pub(crate) fn shown(address: &str, protocol: &str) -> String {
    match (address.strip_prefix("tcp:"), protocol) {
        (Some(host), "http") => format!("http://{host}/"),
        (_, "http") => format!("HTTP on {address}"),
        _ => format!("FastCGI on {address}"),
    }
}

/// Says why it did not work.
pub(crate) fn fail(message: &str) -> ExitCode {
    eprintln!("hostler: {message}");
    ExitCode::FAILURE
}

/// What is to be served.
#[derive(Debug, PartialEq)]
struct SetUp {
    /// Addresses with their protocols, as in the config.
    listen: Vec<(String, &'static str)>,
    /// Keys of each app.
    apps: Vec<Table>,
    workers: Option<u32>,
    /// For the user.
    said: Vec<String>,
}

impl SetUp {
    /// As a config file; with a control socket, to be used at once by whoever calls.
    fn config(&self, control: Option<&Path>) -> String {
        let mut pool = Table::new();
        let listen = self.listen.iter().map(|(address, protocol)| {
            let entry = [("address", address.as_str()), ("protocol", protocol)];
            Value::Table(entry.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect())
        });
        pool.insert("listen".into(), Value::Array(listen.collect()));
        if users::myself().0 == 0 {
            pool.insert("user".into(), "root".into());
        }
        let mut apps = self.apps.clone();
        // What only a pool can say, and what reads better there.
        if let [app] = apps.as_mut_slice()
            && app.len() > 1
            && !app.contains_key("path")
        {
            pool.extend(std::mem::take(app));
            apps.clear();
        }
        if let Some(workers) = self.workers {
            let keys =
                [("model".to_owned(), "static".into()), ("count".to_owned(), i64::from(workers).into())];
            pool.insert("workers".into(), Value::Table(keys.into_iter().collect()));
        }
        if !apps.is_empty() {
            pool.insert("app".into(), Value::Array(apps.into_iter().map(Value::Table).collect()));
        }
        let mut file = Table::new();
        if let Some(control) = control {
            let control = ("control".to_owned(), format!("unix:{}", control.display()).into());
            file.insert("supervisor".into(), Value::Table(Table::from_iter([control])));
        }
        file.insert("pool".into(), Value::Table(Table::from_iter([("site".to_owned(), Value::Table(pool))])));
        file.to_string()
    }
}

fn set_up(options: &Serve, path: &[PathBuf]) -> Result<SetUp, String> {
    let programs = Programs(path);
    let mut listen = Vec::new();
    for text in &options.listen {
        listen.push(listen_at(text)?);
    }
    for text in &options.socket {
        listen.push((mono_socket(text)?, "fastcgi"));
    }
    if listen.is_empty() {
        listen.push((format!("tcp:{USUAL}"), "http"));
    }
    let (mut apps, mut said) = (Vec::new(), Vec::new());
    let mut add = |place: &Path, prefix: &str, host: Option<&str>| {
        let place = place.canonicalize().map_err(|e| format!("look at {}: {e}", place.display()))?;
        let guess = find(options.runtime, &place, prefix, &programs)?;
        let mut keys = Table::new();
        if prefix != "/" {
            keys.insert("path".into(), prefix.into());
        }
        if let Some(host) = host {
            keys.insert("host".into(), host.into());
            keys.insert("path".into(), prefix.into());
        }
        keys.extend(guess.keys);
        apps.push(keys);
        said.push(guess.said);
        Ok::<(), String>(())
    };
    match &options.applications {
        Some(list) => {
            for app in list.split(',').filter(|app| !app.is_empty()) {
                let app = mono_application(app)?;
                add(Path::new(app.place), app.prefix, app.host)?;
            }
        }
        None => add(options.dir.as_deref().unwrap_or(Path::new(".")), "/", None)?,
    }
    Ok(SetUp { listen, apps, workers: options.workers, said })
}

fn find(
    runtime: Option<Runtime>,
    place: &Path,
    prefix: &str,
    programs: &Programs<'_>,
) -> Result<Guess, String> {
    let word = match runtime {
        None => return guess::guess(place, prefix, programs),
        Some(Runtime::Files) => "files",
        Some(Runtime::Cgi) => "cgi",
        Some(Runtime::Fastcgi) => "fastcgi",
        Some(Runtime::Native) => "native",
    };
    guess::as_told(word, place, prefix, programs)
}

/// An address of `--listen`, as in the config, with its protocol.
pub(crate) fn listen_at(text: &str) -> Result<(String, &'static str), String> {
    let (told, rest) = match (text.strip_prefix("http:"), text.strip_prefix("fastcgi:")) {
        (Some(rest), _) => (Some("http"), rest),
        (_, Some(rest)) => (Some("fastcgi"), rest),
        _ => (None, text),
    };
    let unix = rest.starts_with("unix:") || rest.starts_with('/');
    let address = match rest {
        _ if rest.starts_with('/') => format!("unix:{rest}"),
        _ if unix || rest.starts_with("tcp:") || rest.starts_with("systemd:") => rest.to_owned(),
        _ if rest.parse::<u16>().is_ok() => format!("tcp:127.0.0.1:{rest}"),
        _ => format!("tcp:{rest}"),
    };
    let address = listen::address(&address)?.to_string();
    Ok((address, told.unwrap_or(if unix { "fastcgi" } else { "http" })))
}

/// An address as mono's servers write it.
fn mono_socket(text: &str) -> Result<String, String> {
    let address = match text.split_once(':') {
        _ if text == "pipe" => {
            return Err(
                "--socket=pipe is for a web server that starts its app itself; say tcp:… or unix:…".into()
            );
        }
        Some(("tcp", port)) if port.parse::<u16>().is_ok() => format!("tcp:127.0.0.1:{port}"),
        Some(("tcp" | "unix", _)) => text.to_owned(),
        _ => {
            return Err(format!(
                "\"{text}\" is no socket such as tcp:9000, tcp:127.0.0.1:9000 or unix:/path"
            ));
        }
    };
    Ok(listen::address(&address)?.to_string())
}

/// One application as mono's servers write it: `[host:[port:]]vpath:realpath`.
#[derive(Debug, PartialEq)]
struct Application<'a> {
    host: Option<&'a str>,
    prefix: &'a str,
    place: &'a str,
}

fn mono_application(text: &str) -> Result<Application<'_>, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (host, prefix, place) = match parts.as_slice() {
        [prefix, place] => (None, *prefix, *place),
        // What is a number is a port: which one a request came to decides nothing here.
        [port, prefix, place] if port.parse::<u16>().is_ok() => (None, *prefix, *place),
        [host, prefix, place] | [host, _, prefix, place] => (Some(*host), *prefix, *place),
        _ => return Err(format!("\"{text}\" is not [host:[port:]]vpath:realpath")),
    };
    if !prefix.starts_with('/') || place.is_empty() {
        return Err(format!("\"{text}\" is not [host:[port:]]vpath:realpath, where vpath begins with /"));
    }
    Ok(Application { host: host.filter(|host| !host.is_empty() && *host != "*"), prefix, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> Serve {
        Serve {
            dir: Some(dir.to_owned()),
            listen: Vec::new(),
            runtime: None,
            workers: None,
            print_config: false,
            applications: None,
            socket: Vec::new(),
        }
    }

    #[test]
    fn an_address_is_http_on_tcp_and_fastcgi_on_unix_unless_told_otherwise() {
        for (text, address, protocol) in [
            ("8080", "tcp:127.0.0.1:8080", "http"),
            ("0.0.0.0:80", "tcp:0.0.0.0:80", "http"),
            ("[::1]:80", "tcp:[::1]:80", "http"),
            ("tcp:127.0.0.1:1", "tcp:127.0.0.1:1", "http"),
            ("unix:/run/x", "unix:/run/x", "fastcgi"),
            ("/run/x", "unix:/run/x", "fastcgi"),
            ("http:unix:/run/x", "unix:/run/x", "http"),
            ("fastcgi:9000", "tcp:127.0.0.1:9000", "fastcgi"),
        ] {
            assert_eq!(listen_at(text), Ok((address.to_owned(), protocol)), "{text}");
        }
        for text in ["", "x", "70000", "localhost:80", "unix:x"] {
            assert!(listen_at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_served_is_a_config_that_loads() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.cgi"), "").unwrap();
        let options =
            Serve { workers: Some(3), listen: vec!["8080".into(), "/run/x".into()], ..options(place.path()) };
        let set_up = set_up(&options, &[]).unwrap();
        let loaded = load(set_up.config(Some(Path::new("/run/c")))).unwrap();
        let pool = &loaded.pools[0];
        assert_eq!((pool.runtime.as_str(), pool.listen.len()), ("cgi", 2));
        assert_eq!(pool.model, crate::settings::Model::Static { count: 3 });
        assert_eq!(loaded.supervisor.control, Path::new("/run/c"));
        assert_eq!(set_up.said.len(), 1);
        assert!(load(set_up.config(None)).is_ok());
    }

    #[test]
    fn a_program_serves_all_of_its_pool() {
        let set_up = set_up(&options(Path::new("/bin/sh")), &[]).unwrap();
        let loaded = load(set_up.config(None)).unwrap();
        assert_eq!(loaded.pools[0].runtime, "native");
        assert!(loaded.pools[0].apps.is_empty());
    }

    #[test]
    fn php_and_mono_set_ups_load() {
        let place = tempfile::tempdir().unwrap();
        let (site, bin) = (place.path().join("site"), place.path().join("bin"));
        for (directory, name) in [(&site, "index.php"), (&bin, "php-cgi")] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join(name), "").unwrap();
        }
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(bin.join("php-cgi"), mode).unwrap();
        let set_up = set_up(&options(&site), &[bin]).unwrap();
        let loaded = load(set_up.config(None)).unwrap();
        let hostler_worker::control::Runtime::Fastcgi(php) = &loaded.pools[0].apps[0].runtime else {
            panic!()
        };
        assert_eq!(php.root.as_deref(), site.canonicalize().unwrap().to_str());
        assert!(php.env.contains(&("PHP_FCGI_MAX_REQUESTS".into(), "0".into())));
    }

    #[test]
    fn applications_of_mono_become_apps_by_host_and_path() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().display();
        let list =
            format!("/:{at},shop.example:/forum:{at},shop.example:8080:/x:{at},80:/y:{at},*:80:/z:{at}");
        let options = Serve { dir: None, applications: Some(list), ..options(place.path()) };
        let set_up = set_up(&options, &[]).unwrap();
        let loaded = load(set_up.config(None)).unwrap();
        let apps = &loaded.pools[0].apps;
        let found: Vec<_> = apps.iter().map(|app| (app.host.as_deref(), app.path.as_str())).collect();
        let shop = Some("shop.example");
        assert_eq!(found, [(None, "/"), (shop, "/forum"), (shop, "/x"), (None, "/y"), (None, "/z")]);
        for bad in ["/srv", "a:b", "/:", "x:/srv/a", "a:b:c:d:e"] {
            assert!(mono_application(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sockets_of_mono_are_fastcgi() {
        assert_eq!(mono_socket("tcp:9000"), Ok("tcp:127.0.0.1:9000".into()));
        assert_eq!(mono_socket("tcp:0.0.0.0:9000"), Ok("tcp:0.0.0.0:9000".into()));
        assert_eq!(mono_socket("unix:/run/x"), Ok("unix:/run/x".into()));
        assert!(mono_socket("pipe").unwrap_err().contains("web server"));
        assert!(mono_socket("9000").is_err());
    }
}
