//! fcgiwrap's systemd units, service and socket: CGI scripts that the web server names.

use super::{
    draft::Draft,
    ini::{self, Section},
};
use std::path::Path;
use toml::{Table, Value};

/// Reads a unit, with the other unit of the pair where it lies beside it.
pub(super) fn read(path: &Path, text: &str) -> Result<Vec<Draft>, String> {
    let mut sections = ini::read(text);
    let mut from = path.display().to_string();
    let socket_first = path.extension().is_some_and(|end| end == "socket");
    let other = path.with_extension(if socket_first { "service" } else { "socket" });
    if let Ok(text) = std::fs::read_to_string(&other) {
        sections.extend(ini::read(&text));
        from = format!("{from} and {}", other.display());
    }
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("fcgiwrap").replace('@', "");
    let mut draft = Draft::new(&name, &from);
    let service = sections.iter().find(|section| section.name == "Service");
    if service
        .is_none_or(|service| !service.last("ExecStart").is_some_and(|start| start.contains("fcgiwrap")))
    {
        return Err(format!(
            "{from}: there is no ExecStart= of fcgiwrap; give the .service, its .socket beside it"
        ));
    }
    let mut addresses = Vec::new();
    for section in sections.iter().filter(|section| section.name == "Socket") {
        socket(&mut draft, section, &mut addresses);
    }
    for section in &sections {
        if section.name == "Service" {
            service_section(&mut draft, section, &mut addresses);
        }
    }
    if addresses.is_empty() {
        return Err(format!("{from}: there is no ListenStream= and no -s; give the .socket too"));
    }
    draft.set("listen", Value::Array(addresses.into_iter().map(Value::Table).collect()));
    draft.set("runtime", "cgi");
    draft.set("script_filename", true);
    draft.set_with(
        "root",
        "/",
        "fcgiwrap runs whatever the web server names; a directory here keeps it to that one.",
    );
    Ok(vec![draft])
}

fn socket(draft: &mut Draft, section: &Section, addresses: &mut Vec<Table>) {
    for (key, value) in &section.entries {
        match key.as_str() {
            "ListenStream" if !value.is_empty() => addresses.push(address(value)),
            "SocketUser" | "SocketGroup" | "SocketMode" | "Backlog" | "Accept" if key != "Accept" => {}
            _ => draft.note(&format!("[Socket] {key}={value}"), "is systemd's business"),
        }
    }
    for (key, to) in [("SocketUser", "owner"), ("SocketGroup", "group"), ("SocketMode", "mode")] {
        let Some(value) = section.last(key) else { continue };
        for entry in addresses.iter_mut().filter(|entry| is_file(entry)) {
            let value = if to == "mode" && value.len() == 3 { format!("0{value}") } else { value.to_owned() };
            entry.insert(to.to_owned(), value.into());
        }
    }
    if let Some(backlog) = section.last("Backlog").and_then(|value| value.parse::<i64>().ok()) {
        addresses.iter_mut().for_each(|entry| drop(entry.insert("backlog".to_owned(), backlog.into())));
    }
}

fn service_section(draft: &mut Draft, section: &Section, addresses: &mut Vec<Table>) {
    for (key, value) in &section.entries {
        match key.as_str() {
            "User" => draft.set("user", value.as_str()),
            "Group" => draft.set("group", value.as_str()),
            "WorkingDirectory" => draft.set("directory", value.as_str()),
            "UMask" => draft.set("umask", if value.len() == 3 { format!("0{value}") } else { value.clone() }),
            "Environment" => {
                let of_command =
                    |name: &str| section.last("ExecStart").is_some_and(|line| line.contains(&braced(name)));
                let kept = pairs(value).filter(|(name, _)| !of_command(name));
                kept.for_each(|(name, value)| draft.add_to_map("env", name, value));
            }
            "ExecStart" => exec_start(draft, &expanded(value, section), addresses),
            _ => draft.note(&format!("[Service] {key}={value}"), "is systemd's business"),
        }
    }
}

/// `A=b C=d`.
fn pairs(value: &str) -> impl Iterator<Item = (&str, &str)> {
    value.split_whitespace().filter_map(|pair| pair.trim_matches('"').split_once('='))
}

fn braced(name: &str) -> String {
    format!("${{{name}}}")
}

/// A command line with the variables that the unit itself sets; what an EnvironmentFile= sets stays as it is.
fn expanded(line: &str, section: &Section) -> String {
    let set = section.entries.iter().filter(|(key, _)| key == "Environment");
    set.flat_map(|(_, value)| pairs(value))
        .fold(line.to_owned(), |line, (name, value)| line.replace(&braced(name), value))
}

fn exec_start(draft: &mut Draft, line: &str, addresses: &mut Vec<Table>) {
    let mut words = line.split_whitespace().skip(1).map(|word| word.trim_matches(['"', '\'']));
    while let Some(word) = words.next() {
        match word {
            "-c" => match words.next().and_then(|n| n.parse::<i64>().ok()) {
                Some(number) => {
                    draft.worker("model", "static");
                    draft.worker("count", number.max(1));
                }
                None => draft.note("-c", "needs a number"),
            },
            "-s" => addresses.extend(words.next().map(address)),
            "-p" => {
                let script = words.next().unwrap_or("");
                draft.note(&format!("-p {script}"), "set root and owner, to say which scripts may run");
            }
            "-f" => draft.note("-f", "what scripts write to standard error is always logged"),
            other => draft.note(&format!("ExecStart= … {other}"), "set it by hand where it is needed"),
        }
    }
}

/// `/run/x`, `unix:/run/x`, `tcp:1.2.3.4:9000`, `tcp6:[::1]:9000`, `9000`, `1.2.3.4:9000`, `@name`.
fn address(text: &str) -> Table {
    let address = match text.split_once(':') {
        Some(("unix", _)) => text.to_owned(),
        Some(("tcp", rest)) => format!("tcp:{rest}"),
        Some(("tcp6", rest)) => format!("tcp:{rest}"),
        _ if text.starts_with(['/', '@']) => format!("unix:{text}"),
        _ if text.parse::<u16>().is_ok() => format!("tcp:[::]:{text}"),
        _ => format!("tcp:{text}"),
    };
    Table::from_iter([("address".to_owned(), Value::from(address))])
}

fn is_file(entry: &Table) -> bool {
    entry.get("address").and_then(Value::as_str).is_some_and(|address| address.starts_with("unix:/"))
}
