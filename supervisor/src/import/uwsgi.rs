//! uWSGI's ini files. The app is then run by uWSGI itself as a FastCGI program, one process a worker: uWSGI keeps
//! what concerns the app, Hostler takes over processes, limits, reloads and listeners.
//!
//! Always holds: only what is known to be an option of uWSGI, and known to take a value or none, goes on to it, since an
//! option that a file may hold for nothing ends uWSGI on the command line. What is not known is named in a comment.

use super::{draft::Draft, ini, program};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What becomes of an option.
enum Fate {
    /// It is looked at elsewhere, together with others.
    Seen,
    /// It goes on to uWSGI with its value.
    Pass,
    /// It goes on to uWSGI, unless it is off.
    Flag,
    /// It is done by Hostler, in the way that is said.
    Note(&'static str),
    /// It is set in the pool.
    Set(fn(&mut Draft, &str) -> Result<(), String>),
}

const PROCESSES: &str = "there is one process a worker, and Hostler is the master";
const PLACEHOLDER: &str = "holds a placeholder that uWSGI fills in: set it by hand";
const WORKERS: &str = "see [pool.NAME.workers]";
const HOSTLER: &str = "Hostler sees to it";
const ALONE: &str = "Hostler hosts the app alone";
const LOGS: &str = "see access_log, and log in [supervisor]";
const SHOWN: &str = "\"hostler status\" shows it";
const LOGIC: &str = "uWSGI decides by it as it starts: set by hand what it comes to";
const COMMANDS: &str = "is not run: do it once by hand, or in a unit of systemd";
const UNKNOWN: &str = "is not known here: where the app needs it, add it to command";
/// Values by which an option without a value is off.
const OFF: [&str; 4] = ["false", "off", "no", "0"];

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
        &[
            "logto",
            "logto2",
            "logger",
            "req-logger",
            "logformat",
            "disable-logging",
            "logdate",
            "show-config",
        ],
        Fate::Note(LOGS),
    ),
    (&["cheap", "idle", "die-on-idle"], Fate::Note(WORKERS)),
    (
        &["master", "lazy-apps", "lazy", "threads", "enable-threads", "thunder-lock", "async", "gevent"],
        Fate::Note(PROCESSES),
    ),
    (
        &[
            "vacuum",
            "pidfile",
            "pidfile2",
            "safe-pidfile",
            "daemonize",
            "daemonize2",
            "no-orphans",
            "die-on-term",
            "autoload",
            "reload-mercy",
            "worker-reload-mercy",
            "max-worker-lifetime",
            "listen",
            "need-app",
            "auto-procname",
            "procname",
            "procname-prefix",
            "socket-timeout",
            "harakiri-verbose",
            "so-keepalive",
            "map-socket",
            "reuse-port",
            "uwsgi-socket-modifier1",
        ],
        Fate::Note(HOSTLER),
    ),
    (&["memory-report", "carbon"], Fate::Note(SHOWN)),
    (&["https", "https-socket", "http-to"], Fate::Note("TLS is for the web server in front")),
    (
        &[
            "farm",
            "include",
            "inherit",
            "ini",
            "declare-option",
            "declare-option2",
            "set",
            "set-ph",
            "set-placeholder",
            "endif",
            "endfor",
            "for",
        ],
        Fate::Note(LOGIC),
    ),
    (
        &[
            "single-interpreter",
            "manage-script-name",
            "catch-exceptions",
            "ignore-sigpipe",
            "ignore-write-errors",
            "disable-write-exception",
            "write-errors-exception-only",
            "no-default-app",
            "no-site",
            "vhost",
            "vhost-host",
            "honour-range",
            "skip-atexit",
            "skip-atexit-teardown",
            "strict",
            "close-on-exec",
            "close-on-exec2",
            "paste-logger",
            "static-gzip-all",
            "py-call-osafterfork",
            "py-call-uwsgi-fork-hooks",
            "wsgi-accept-buffer",
            "wsgi-accept-buffers",
            "wsgi-disable-file-wrapper",
            "reload-on-exception",
        ],
        Fate::Flag,
    ),
    (
        &[
            "module",
            "file",
            "callable",
            "mount",
            "pp",
            "virtualenv",
            "venv",
            "home",
            "paste",
            "ini-paste",
            "ini-paste-logged",
            "pecan",
            "web3",
            "eval",
            "import",
            "shared-import",
            "post-pymodule-alias",
            "exception-handler",
            "check-static",
            "mime-file",
            "add-header",
            "del-header",
            "rem-header",
            "chdir2",
            "offload-threads",
            "post-buffering",
            "post-buffering-bufsize",
            "limit-as",
            "cache2",
            "sharedarea",
            "queue",
            "locks",
            "rack",
            "lua",
            "apparmor-profile",
        ],
        Fate::Pass,
    ),
];

/// The same for all options that begin so, where they are not in [`FATES`].
const FAMILIES: &[(&[&str], Fate)] = &[
    (&["log-", "logfile-"], Fate::Note(LOGS)),
    (&["cheaper-"], Fate::Note(WORKERS)),
    (&["stats", "snmp", "metric", "enable-metrics"], Fate::Note(SHOWN)),
    (
        &[
            "emperor",
            "vassal",
            "legion",
            "cron",
            "unique-cron",
            "spooler",
            "mule",
            "attach-",
            "smart-attach-",
            "subscri",
            "zerg",
            "touch-",
            "alarm",
        ],
        Fate::Note(ALONE),
    ),
    (&["exec-", "hook-", "call-"], Fate::Note(COMMANDS)),
    (&["if-", "end-", "for-"], Fate::Note(LOGIC)),
    (
        &[
            "route",
            "final-route",
            "error-route",
            "response-route",
            "error-page-",
            "static-",
            "wsgi",
            "py",
            "php-",
            "perl-",
            "psgi",
            "rb-",
            "ruby-",
        ],
        Fate::Pass,
    ),
];

/// Options whose values are addresses of HTTP.
const HTTP: [&str; 2] = ["http-socket", "http"];
/// Languages and more; they tell uWSGI which further options there are.
const PLUGINS: [&str; 2] = ["plugin", "plugins"];
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
    let plugins = section.entries.iter().filter(|(key, _)| PLUGINS.contains(&key.as_str()));
    command.extend(plugins.flat_map(|(key, value)| [format!("--{key}"), value.clone()]));
    for (key, value) in &section.entries {
        let value = magic(value);
        let written = if value.is_empty() { key.clone() } else { format!("{key} = {value}") };
        if SOCKETS.contains(&key.as_str()) || HTTP.contains(&key.as_str()) {
            listener(&mut draft, &mut listen, key, &value, path);
            continue;
        }
        match fate(key) {
            Fate::Seen => {}
            Fate::Flag if OFF.contains(&value.to_ascii_lowercase().as_str()) => {
                draft.note(&written, "so it is without the option");
            }
            Fate::Flag => command.push(format!("--{key}")),
            Fate::Pass | Fate::Set(_) if is_placeholder(&value) => draft.note(&written, PLACEHOLDER),
            Fate::Pass => command.extend([format!("--{key}"), value]),
            Fate::Note(why) => draft.note(&written, why),
            Fate::Set(set) => {
                if let Err(why) = set(&mut draft, &value) {
                    draft.note(&written, &why);
                }
            }
        }
    }
    for other in sections.iter().filter(|other| other.name != "uwsgi" && !other.name.is_empty()) {
        draft.note(
            &format!("[{}]", other.name),
            "is another set of options: import it from a file of its own",
        );
    }
    finish(&mut draft, section, listen, command, there);
    Ok(vec![draft])
}

fn fate(key: &str) -> &'static Fate {
    if PLUGINS.contains(&key) {
        return &Fate::Seen;
    }
    let known = FATES.iter().find(|(names, _)| names.contains(&key));
    let known = known
        .or_else(|| FAMILIES.iter().find(|(begins, _)| begins.iter().any(|begin| key.starts_with(begin))));
    // "umask 027" is no option with that name.
    known.filter(|_| !key.contains(char::is_whitespace)).map_or(&Fate::Note(UNKNOWN), |(_, fate)| fate)
}

/// A listener of the app's own protocol or of HTTP.
fn listener(draft: &mut Draft, listen: &mut Vec<Table>, key: &str, value: &str, ini: &Path) {
    let written = format!("{key} = {value}");
    if is_placeholder(value) {
        return draft.note(&written, PLACEHOLDER);
    }
    let mut entry = if value.starts_with(['/', '@']) || value.contains(':') {
        address(value)
    } else {
        draft.note(&written, "is taken to lie beside the file that was imported");
        let full = std::path::absolute(ini).unwrap_or_else(|_| ini.to_owned());
        address(&full.with_file_name(value).to_string_lossy())
    };
    if HTTP.contains(&key) {
        entry.insert("protocol".to_owned(), "http".into());
    } else if !key.starts_with("fastcgi") {
        draft.note(&written, "speaks FastCGI now: fastcgi_pass in place of uwsgi_pass");
    }
    listen.push(entry);
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
