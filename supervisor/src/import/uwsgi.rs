//! uWSGI's ini files. The app is then run by uWSGI itself as a FastCGI program, one process a worker: uWSGI keeps
//! what concerns the app, Hostler takes over processes, limits, reloads and listeners.

use super::{draft::Draft, ini, program};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What becomes of an option.
enum Fate {
    /// It is looked at elsewhere, together with others.
    Seen,
    /// It goes on to uWSGI.
    Pass,
    /// It is done by Hostler, in the way that is said.
    Note(&'static str),
    /// It is set in the pool.
    Set(fn(&mut Draft, &str) -> Result<(), String>),
}

const PROCESSES: &str = "there is one process a worker, and Hostler is the master";
const PLACEHOLDER: &str = "holds a placeholder that uWSGI fills in: set it by hand";
const HOSTLER: &str = "Hostler sees to it";

/// The options that concern more than the app.
const FATES: &[(&[&str], Fate)] = &[
    (&["processes", "workers", "p", "cheaper", "chmod-socket", "chown-socket"], Fate::Seen),
    (&["uid", "user"], Fate::Set(|draft, value| put(draft, "user", value))),
    (&["gid", "group"], Fate::Set(|draft, value| put(draft, "group", value))),
    (&["chdir", "base"], Fate::Set(|draft, value| put(draft, "directory", value))),
    (&["umask"], Fate::Set(|draft, value| put(draft, "umask", &format!("{value:0>4}")))),
    (
        &["harakiri"],
        Fate::Set(|draft, value| number(value).map(|n| draft.set("request_timeout", format!("{n}s")))),
    ),
    (&["max-requests"], Fate::Set(|draft, value| number(value).map(|n| draft.worker("max_requests", n)))),
    (
        &["max-requests-delta"],
        Fate::Set(|draft, value| number(value).map(|n| draft.worker("max_requests_jitter", n))),
    ),
    (
        &["reload-on-rss", "reload-on-uss", "reload-on-pss"],
        Fate::Set(|draft, value| number(value).map(|n| draft.memory("soft", format!("{n}MiB")))),
    ),
    (
        &["evil-reload-on-rss", "evil-reload-on-uss", "evil-reload-on-pss"],
        Fate::Set(|draft, value| number(value).map(|n| draft.memory("hard", format!("{n}MiB")))),
    ),
    (
        &["limit-post"],
        Fate::Set(|draft, value| number(value).map(|n| draft.set("max_body", format!("{n}B")))),
    ),
    (
        &["buffer-size"],
        Fate::Set(|draft, value| number(value).map(|n| draft.set("max_params", format!("{n}B")))),
    ),
    (
        &["touch-reload", "fs-reload"],
        Fate::Set(|draft, value| {
            draft.add_to_list("watch", value);
            Ok(())
        }),
    ),
    (
        &["env"],
        Fate::Set(|draft, value| match value.split_once('=') {
            Some((name, value)) => {
                draft.add_to_map("env", name.trim(), value.trim());
                Ok(())
            }
            None => Err("is no NAME=value".to_owned()),
        }),
    ),
    (
        &["logto", "logto2", "logger", "req-logger", "log-format", "disable-logging", "log-maxsize"],
        Fate::Note("see access_log, and log in [supervisor]"),
    ),
    (
        &["cheaper-initial", "cheaper-step", "cheaper-algo", "cheap", "idle"],
        Fate::Note("see [pool.NAME.workers]"),
    ),
    (
        &["master", "lazy-apps", "lazy", "threads", "enable-threads", "thunder-lock", "async", "gevent"],
        Fate::Note(PROCESSES),
    ),
    (
        &[
            "vacuum",
            "pidfile",
            "safe-pidfile",
            "daemonize",
            "daemonize2",
            "no-orphans",
            "die-on-term",
            "autoload",
            "reload-mercy",
            "worker-reload-mercy",
            "listen",
            "need-app",
            "auto-procname",
            "procname-prefix",
            "socket-timeout",
            "harakiri-verbose",
            "so-keepalive",
        ],
        Fate::Note(HOSTLER),
    ),
    (&["stats", "stats-server", "memory-report", "carbon"], Fate::Note("\"hostler status\" shows it")),
    (
        &["http", "http-socket", "https", "http-to"],
        Fate::Note("a listener with protocol = \"http\" speaks HTTP; TLS is for the web server"),
    ),
    (
        &[
            "emperor",
            "vassals-dir",
            "legion",
            "cron",
            "spooler",
            "mule",
            "mules",
            "attach-daemon",
            "subscribe-to",
        ],
        Fate::Note("Hostler hosts the app alone"),
    ),
];

/// Options whose values are addresses of the app's own protocol.
const SOCKETS: [&str; 5] = ["socket", "s", "uwsgi-socket", "fastcgi-socket", "fastcgi-nph-socket"];

/// Reads the `[uwsgi]` section.
pub(super) fn read(path: &Path, text: &str, programs: &[PathBuf]) -> Result<Vec<Draft>, String> {
    let from = path.display().to_string();
    let sections = ini::read(text);
    let section = sections.iter().find(|section| section.name == "uwsgi");
    let section = section.ok_or_else(|| format!("{from}: there is no [uwsgi] in it"))?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("uwsgi");
    let mut draft = Draft::new(name, &from);
    let magic = |value: &str| magic(value, path, name);
    let (uwsgi, there) = program(&["uwsgi"], "/usr/bin/uwsgi", programs);
    let mut command: Vec<String> = vec![uwsgi, "--fastcgi-socket".into(), "{listen}".into()];
    let mut listen: Vec<Table> = Vec::new();
    for (key, value) in &section.entries {
        let value = magic(value);
        if SOCKETS.contains(&key.as_str()) {
            if is_placeholder(&value) {
                draft.note(&format!("{key} = {value}"), PLACEHOLDER);
                continue;
            }
            listen.push(address(&value));
            if !key.starts_with("fastcgi") {
                draft.note(
                    &format!("{key} = {value}"),
                    "speaks FastCGI now: fastcgi_pass in place of uwsgi_pass",
                );
            }
            continue;
        }
        let fate = FATES.iter().find(|(names, _)| names.contains(&key.as_str())).map(|(_, fate)| fate);
        match fate.unwrap_or(&Fate::Pass) {
            Fate::Seen => {}
            Fate::Pass if value.is_empty() => command.push(format!("--{key}")),
            Fate::Pass | Fate::Set(_) if is_placeholder(&value) => {
                draft.note(&format!("{key} = {value}"), PLACEHOLDER);
            }
            Fate::Pass => command.extend([format!("--{key}"), value]),
            Fate::Note(why) => draft.note(&format!("{key} = {value}"), why),
            Fate::Set(set) => {
                if let Err(why) = set(&mut draft, &value) {
                    draft.note(&format!("{key} = {value}"), &why);
                }
            }
        }
    }
    finish(&mut draft, section, listen, command, there);
    Ok(vec![draft])
}

/// `$(NAME)`, `%(name)`, `%n`: known to uWSGI alone.
fn is_placeholder(value: &str) -> bool {
    value.contains("$(") || value.contains('%')
}

fn finish(
    draft: &mut Draft,
    section: &ini::Section,
    mut listen: Vec<Table>,
    command: Vec<String>,
    there: bool,
) {
    for entry in &mut listen {
        let file =
            entry.get("address").and_then(Value::as_str).is_some_and(|address| address.starts_with("unix:/"));
        if let (Some(mode), true) = (section.last("chmod-socket"), file) {
            entry.insert(
                "mode".to_owned(),
                format!("{:0>4}", if mode.is_empty() { "666" } else { mode }).into(),
            );
        }
        let owners = section.last("chown-socket").filter(|_| file);
        let (owner, group) =
            owners.map_or((None, None), |own| (own.split(':').next(), own.split(':').nth(1)));
        for (key, name) in [("owner", owner), ("group", group)] {
            entry.extend(name.map(|name| (key.to_owned(), Value::from(name))));
        }
    }
    if listen.is_empty() {
        let listen = Value::Array(vec!["tcp:127.0.0.1:9000".into()]);
        draft.set_with("listen", listen, "Where to listen is not in what was imported: choose.");
    } else {
        draft.set("listen", Value::Array(listen.into_iter().map(Value::Table).collect()));
    }
    if draft.value("user").is_none() {
        draft.set_with("user", "www-data", "Whom the app ran as is not in what was imported: choose.");
    }
    let find =
        |names: &[&str]| names.iter().find_map(|name| section.last(name)).and_then(|n| n.parse::<i64>().ok());
    let most = find(&["processes", "workers", "p"]).unwrap_or(1).max(1);
    match find(&["cheaper"]).filter(|least| *least >= 1 && *least < most) {
        Some(least) => {
            draft.worker("model", "dynamic");
            draft.worker("min", least);
            draft.worker("max", most);
        }
        None => {
            draft.worker("model", "static");
            draft.worker("count", most);
        }
    }
    draft.set("runtime", "fastcgi");
    draft.set("listen_by", "argument");
    let command = Value::Array(command.into_iter().map(Value::from).collect());
    if there {
        draft.set("command", command);
    } else {
        draft.set_with("command", command, "uwsgi is not installed here: apt install uwsgi-core.");
    }
}

/// `%d`, `%n` and their like, as far as they say where the file is.
fn magic(value: &str, path: &Path, stem: &str) -> String {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = full.parent().map(|parent| format!("{}/", parent.display())).unwrap_or_default();
    let file = full.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    value
        .replace("%d", &directory)
        .replace("%n", stem)
        .replace("%s", &file)
        .replace("%p", &full.display().to_string())
}

/// `/run/x`, `:9000`, `127.0.0.1:9000`, `@name`.
fn address(text: &str) -> Table {
    let text = match text {
        _ if text.starts_with(['/', '@']) => format!("unix:{text}"),
        _ => match text.strip_prefix(':') {
            Some(port) => format!("tcp:0.0.0.0:{port}"),
            None => format!("tcp:{text}"),
        },
    };
    Table::from_iter([("address".to_owned(), Value::from(text))])
}

fn put(draft: &mut Draft, key: &'static str, value: &str) -> Result<(), String> {
    draft.set(key, value);
    Ok(())
}

fn number(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| "is no number".to_owned())
}
