//! php-fpm: its pool files and php-fpm.conf, with what that includes. PHP is then run by php-cgi, the same PHP with
//! the same php.ini syntax, one process a worker.

use super::{
    draft::Draft,
    ini::{self, Section},
    program,
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// What becomes of a setting.
enum Fate {
    /// It is looked at elsewhere, together with others.
    Seen,
    /// A function carries it over.
    Set(fn(&mut Draft, &str) -> Result<(), String>),
    /// It has no counterpart.
    Note(&'static str),
}

/// Each setting of a pool.
const FATES: &[(&str, Fate)] = &[
    ("listen", Fate::Seen),
    ("listen.owner", Fate::Seen),
    ("listen.group", Fate::Seen),
    ("listen.mode", Fate::Seen),
    ("listen.backlog", Fate::Seen),
    ("listen.allowed_clients", Fate::Seen),
    ("listen.acl_users", Fate::Note("there are no access lists; owner, group and mode decide")),
    ("listen.acl_groups", Fate::Note("there are no access lists; owner, group and mode decide")),
    ("listen.setfib", Fate::Note("is for FreeBSD")),
    ("user", Fate::Set(|draft, value| text(draft, "user", value))),
    ("group", Fate::Set(|draft, value| text(draft, "group", value))),
    ("chdir", Fate::Set(|draft, value| text(draft, "directory", value))),
    ("chroot", Fate::Note("there is no chroot")),
    ("prefix", Fate::Note("write absolute paths")),
    ("pm", Fate::Seen),
    ("pm.max_children", Fate::Seen),
    ("pm.start_servers", Fate::Seen),
    ("pm.min_spare_servers", Fate::Seen),
    ("pm.max_spare_servers", Fate::Seen),
    ("pm.process_idle_timeout", Fate::Seen),
    ("pm.max_spawn_rate", Fate::Note("the rate grows under load by itself")),
    (
        "pm.max_requests",
        Fate::Set(|draft, value| {
            let number = value.parse::<i64>().map_err(|_| "is no number".to_owned())?;
            draft.worker("max_requests", number);
            Ok(())
        }),
    ),
    ("request_terminate_timeout", Fate::Set(|draft, value| time(draft, "request_timeout", value))),
    ("request_terminate_timeout_track_finished", Fate::Note("the timeout is of the answer alone")),
    ("request_slowlog_timeout", Fate::Set(|draft, value| time(draft, "slow_log", value))),
    ("request_slowlog_trace_depth", Fate::Note("the log says request, age and where the kernel waits")),
    ("slowlog", Fate::Note("slow requests stand in Hostler's own log")),
    (
        "access.log",
        Fate::Set(|draft, value| {
            let log = Table::from_iter([("file".to_owned(), Value::from(value))]);
            draft.set("access_log", Value::Table(log));
            Ok(())
        }),
    ),
    ("access.format", Fate::Note("the form is \"text\" or \"json\"")),
    ("access.suppress_path", Fate::Note("all requests are logged")),
    (
        "rlimit_files",
        Fate::Set(|draft, value| {
            let number = value.parse::<i64>().map_err(|_| "is no number".to_owned())?;
            limit(draft, "open_files", number.into());
            Ok(())
        }),
    ),
    (
        "rlimit_core",
        Fate::Set(|draft, value| {
            let number = value.parse::<u64>().map_err(|_| "has no counterpart".to_owned())?;
            limit(draft, "core", if number == 0 { "0".to_owned() } else { format!("{number}B") }.into());
            Ok(())
        }),
    ),
    ("security.limit_extensions", Fate::Note("let the web server pass on .php alone")),
    ("catch_workers_output", Fate::Note("output is always logged")),
    ("decorate_workers_output", Fate::Note("each line is logged with pool and worker")),
    ("clear_env", Fate::Seen),
    ("pm.status_path", Fate::Note("\"hostler status\" shows more, and answers while all workers are busy")),
    ("pm.status_listen", Fate::Note("\"hostler status\" shows more, and answers while all workers are busy")),
    ("ping.path", Fate::Note("GET /health on the control socket tells")),
    ("ping.response", Fate::Note("GET /health on the control socket tells")),
    ("process.priority", Fate::Note("set Nice= in the systemd unit")),
    ("process.dumpable", Fate::Note("there is none")),
    ("apparmor_hat", Fate::Note("set AppArmorProfile= in the systemd unit")),
];

/// Reads a file and what it includes.
pub(super) fn read(path: &Path, text: &str, programs: &[PathBuf]) -> Result<Vec<Draft>, String> {
    let from = path.display().to_string();
    let mut drafts = Vec::new();
    let mut global = Vec::new();
    for section in ini::read(text) {
        for (_, pattern) in section.entries.iter().filter(|(key, _)| key == "include") {
            for file in glob::glob(pattern).map_err(|e| format!("{from}: include {pattern}: {e}"))?.flatten()
            {
                let text = fs::read_to_string(&file).map_err(|e| format!("read {}: {e}", file.display()))?;
                drafts.extend(read(&file, &text, programs)?);
            }
        }
        if section.name == "global" || section.name.is_empty() {
            global.extend(section.entries.into_iter().filter(|(key, _)| key != "include"));
        } else {
            drafts.push(pool(&section, &from, programs));
        }
    }
    // What is said of all pools is told at the first: [supervisor] is Hostler's own to say.
    if let Some(first) = drafts.first_mut() {
        for (key, value) in global {
            let why = match key.as_str() {
                "process_control_timeout" => "is stop_timeout, in [supervisor]",
                "error_log" | "log_level" | "log_limit" | "log_buffering" => "is log, in [supervisor]",
                "rlimit_files" | "rlimit_core" => "is limits, of each pool",
                _ => "is php-fpm's own business",
            };
            first.note(&format!("[global] {key} = {value}"), why);
        }
    }
    Ok(drafts)
}

fn pool(section: &Section, from: &str, programs: &[PathBuf]) -> Draft {
    let mut draft = Draft::new(&section.name, from);
    let value = |key: &str| section.last(key).map(|value| value.replace("$pool", &section.name));
    listen(&mut draft, &value);
    draft.set("runtime", "fastcgi");
    command(&mut draft, section, from, programs);
    draft.add_to_map("env", "PHP_FCGI_CHILDREN", "0");
    draft.add_to_map("env", "PHP_FCGI_MAX_REQUESTS", "0");
    for (key, raw) in &section.entries {
        let raw = raw.replace("$pool", &section.name);
        if let Some(name) = inside(key, "env") {
            variable(&mut draft, name, &raw);
        } else if key.starts_with("php_") || key == "include" {
            // In the command already.
        } else {
            let setting = format!("{key} = {raw}");
            match FATES.iter().find(|(known, _)| known == key).map(|(_, fate)| fate) {
                Some(Fate::Seen) => {}
                Some(Fate::Note(why)) => draft.note(&setting, why),
                Some(Fate::Set(set)) => {
                    if let Err(why) = set(&mut draft, &raw) {
                        draft.note(&setting, &why);
                    }
                }
                None => draft.note(&setting, "is not known"),
            }
        }
    }
    if value("clear_env").is_some_and(|value| matches!(value.as_str(), "no" | "off" | "0" | "false")) {
        draft.note("clear_env = no", "name the variables to keep in keep_env");
    }
    model(&mut draft, &value);
    draft
}

fn listen(draft: &mut Draft, value: &dyn Fn(&str) -> Option<String>) {
    let Some(written) = value("listen") else { return };
    let unix = written.starts_with('/');
    let address = match written.rsplit_once(':') {
        _ if unix => format!("unix:{written}"),
        // php-fpm listens on all addresses of both families then.
        None => format!("tcp:[::]:{written}"),
        Some(("*", port)) => format!("tcp:[::]:{port}"),
        Some(_) => format!("tcp:{written}"),
    };
    let mut entry = Table::from_iter([("address".to_owned(), Value::from(address))]);
    let mut put = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    for key in ["owner", "group", "mode"] {
        if let (Some(value), true) = (value(&format!("listen.{key}")), unix) {
            let value = if key == "mode" && value.len() == 3 { format!("0{value}") } else { value };
            put(key, value.into());
        }
    }
    if let Some(backlog) =
        value("listen.backlog").and_then(|value| value.parse::<i64>().ok()).filter(|n| *n > 0)
    {
        put("backlog", backlog.into());
    }
    if let (Some(clients), false) = (value("listen.allowed_clients").filter(|clients| clients != "any"), unix)
    {
        let clients = clients.split(',').map(|client| Value::from(client.trim()));
        put("allow", Value::Array(clients.collect()));
    }
    draft.set("listen", Value::Array(vec![Value::Table(entry)]));
}

/// php-cgi of the same version, told the pool's PHP settings.
fn command(draft: &mut Draft, section: &Section, from: &str, programs: &[PathBuf]) {
    let version = from.split('/').find(|part| part.parse::<f32>().is_ok() && part.contains('.'));
    let versioned = version.map(|version| format!("php-cgi{version}"));
    let names: Vec<&str> = versioned.as_deref().into_iter().chain(["php-cgi"]).collect();
    let (php, there) = program(&names, "/usr/bin/php-cgi", programs);
    let mut command: Vec<Value> = vec![php.into()];
    let mut admin = false;
    for (key, value) in &section.entries {
        for kind in ["php_value", "php_flag", "php_admin_value", "php_admin_flag"] {
            if let Some(name) = inside(key, kind) {
                admin |= kind.starts_with("php_admin");
                let value = value.replace("$pool", &section.name);
                command.push("-d".into());
                command.push(format!("{name}={value}").into());
            }
        }
    }
    let mut remarks = Vec::new();
    if !there {
        remarks.push("php-cgi is not installed here: apt install php-cgi.");
    }
    if admin {
        remarks.push("php_admin_value and php_admin_flag are set too, but ini_set() may change them.");
    }
    if remarks.is_empty() {
        draft.set("command", Value::Array(command));
    } else {
        draft.set_with("command", Value::Array(command), remarks.join(" "));
    }
}

fn model(draft: &mut Draft, value: &dyn Fn(&str) -> Option<String>) {
    let number = |key: &str| value(key).and_then(|value| value.parse::<i64>().ok());
    let most = number("pm.max_children").unwrap_or(5).max(1);
    match value("pm").as_deref() {
        Some("static") => {
            draft.worker("model", "static");
            draft.worker("count", most);
        }
        Some("ondemand") => {
            draft.worker("model", "ondemand");
            draft.worker("max", most);
            if let Some(time) = value("pm.process_idle_timeout").and_then(|value| seconds(&value)) {
                draft.worker("idle_timeout", time);
            }
        }
        _ => {
            let spare = number("pm.min_spare_servers").unwrap_or(1).clamp(1, most);
            draft.worker("model", "dynamic");
            draft.worker("min", spare);
            draft.worker("max", most);
            draft.worker("spare", spare);
            for (key, why) in [
                ("pm.start_servers", "workers start as they are needed, min of them at once"),
                ("pm.max_spare_servers", "what is over spare leaves after idle_timeout"),
            ] {
                if let Some(value) = value(key) {
                    draft.note(&format!("{key} = {value}"), why);
                }
            }
        }
    }
}

/// `env[NAME]`: the name.
fn inside<'k>(key: &'k str, table: &str) -> Option<&'k str> {
    key.strip_prefix(table)?.strip_prefix('[')?.strip_suffix(']')
}

/// `$NAME` means php-fpm's own variable.
fn variable(draft: &mut Draft, name: &str, value: &str) {
    match value.strip_prefix('$') {
        Some(own) if own == name => draft.add_to_list("keep_env", name),
        Some(_) => {
            draft.note(&format!("env[{name}] = {value}"), "keep_env keeps a variable under its own name")
        }
        None => draft.add_to_map("env", name, value),
    }
}

fn text(draft: &mut Draft, key: &'static str, value: &str) -> Result<(), String> {
    draft.set(key, value);
    Ok(())
}

fn time(draft: &mut Draft, key: &'static str, value: &str) -> Result<(), String> {
    draft.set(key, seconds(value).ok_or("is no time")?);
    Ok(())
}

/// `10`, `10s`, `2m`: php-fpm's unit is the second where it names none.
fn seconds(value: &str) -> Option<String> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse::<u64>().ok()?;
    match value.get(digits.len()..)? {
        "" => Some(format!("{digits}s")),
        "s" | "m" | "h" | "d" => Some(value.to_owned()),
        _ => None,
    }
}

fn limit(draft: &mut Draft, key: &str, value: Value) {
    let mut limits = match draft.value("limits") {
        Some(Value::Table(limits)) => limits.clone(),
        _ => Table::new(),
    };
    limits.insert(key.to_owned(), value);
    draft.set("limits", Value::Table(limits));
}
