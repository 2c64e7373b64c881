//! mono's web servers: `.webapp` files, lines of `--applications`, and HyperFastCgi's XML. The apps are then run by
//! fastcgi-mono-server4, one process a worker, until Hostler runs them itself.

use super::{draft::Draft, program};
use roxmltree::{Document, Node};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// One application: host, port, virtual path, directory.
struct Application {
    host: String,
    port: String,
    vpath: String,
    path: String,
}

/// Reads an XML file of either kind.
pub(super) fn read(path: &Path, text: &str, programs: &[PathBuf]) -> Result<Vec<Draft>, String> {
    let from = path.display().to_string();
    let document = Document::parse(text).map_err(|e| format!("{from}: {e}"))?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("mono");
    let mut draft = Draft::new(name, &from);
    let mut applications = Vec::new();
    for node in document.descendants().filter(Node::is_element) {
        match node.tag_name().name() {
            "web-application" => applications.extend(application(&mut draft, node)),
            "listener" => listener(&mut draft, node),
            _ => {}
        }
    }
    for node in document.descendants().filter(|node| node.is_element() && !is_known(*node)) {
        let name = node.tag_name().name();
        let value = node.text().unwrap_or("").trim();
        draft.note(&format!("<{name}>{value}"), "has no counterpart");
    }
    finish(draft, &applications, programs).map(|draft| vec![draft]).ok_or(format!(
        "{from}: there is no <web-application>; a line of --applications can stand in place of the file"
    ))
}

/// Reads a line of `--applications`.
pub(super) fn line(text: &str, programs: &[PathBuf]) -> Result<Vec<Draft>, String> {
    let list = text.trim_start_matches(['-', '/']);
    let list = list.strip_prefix("applications=").unwrap_or(text);
    let mut applications = Vec::new();
    for part in list.split([',', ';']).filter(|part| !part.is_empty()) {
        let fields: Vec<&str> = part.split(':').collect();
        let (host, port, vpath, path) = match fields.as_slice() {
            [vpath, path] => ("", "", *vpath, *path),
            [port, vpath, path] if port.parse::<u16>().is_ok() => ("", *port, *vpath, *path),
            [host, vpath, path] => (*host, "", *vpath, *path),
            [host, port, vpath, path] => (*host, *port, *vpath, *path),
            _ => return Err(format!("\"{part}\" is not [host:[port:]]vpath:realpath")),
        };
        let [host, port, vpath, path] = [host, port, vpath, path].map(str::to_owned);
        applications.push(Application { host, port, vpath, path });
    }
    let draft = Draft::new("mono", "a line of --applications");
    finish(draft, &applications, programs)
        .map(|draft| vec![draft])
        .ok_or("there is no application in it".to_owned())
}

const KNOWN: &[&str] = &[
    "apps",
    "configuration",
    "web-application",
    "web-applications",
    "name",
    "vhost",
    "vport",
    "vpath",
    "path",
    "enabled",
    "server",
    "listener",
    "protocol",
    "address",
    "port",
];

fn is_known(node: Node<'_, '_>) -> bool {
    KNOWN.contains(&node.tag_name().name())
}

fn child<'d>(node: Node<'d, '_>, name: &str) -> Option<&'d str> {
    let child = node.children().find(|child| child.tag_name().name() == name)?;
    child.text().map(str::trim).filter(|text| !text.is_empty())
}

fn application(draft: &mut Draft, node: Node<'_, '_>) -> Option<Application> {
    let field = |name: &str| child(node, name).unwrap_or("").to_owned();
    let application = Application {
        host: field("vhost"),
        port: field("vport"),
        vpath: field("vpath"),
        path: field("path"),
    };
    if field("enabled").eq_ignore_ascii_case("false") {
        draft.note(&format!("<web-application> {}", application.path), "is not enabled");
        return None;
    }
    if application.path.is_empty() {
        draft.note("<web-application> without <path>", "there is nothing to serve");
        return None;
    }
    Some(application)
}

/// A listener of HyperFastCgi.
fn listener(draft: &mut Draft, node: Node<'_, '_>) {
    let unix = child(node, "protocol").is_some_and(|protocol| protocol.eq_ignore_ascii_case("unix"));
    let host = child(node, "address").unwrap_or("127.0.0.1");
    let address = match child(node, "port") {
        _ if unix => format!("unix:{}", host.trim_start_matches("unix:")),
        Some(port) if host.contains(':') => format!("tcp:[{host}]:{port}"),
        Some(port) => format!("tcp:{host}:{port}"),
        None => return draft.note("<listener> without <port>", "there is no address in it"),
    };
    draft.add_to_list(
        "listen",
        Value::Table(Table::from_iter([("address".to_owned(), Value::from(address))])),
    );
}

fn finish(mut draft: Draft, applications: &[Application], programs: &[PathBuf]) -> Option<Draft> {
    if applications.is_empty() {
        return None;
    }
    if draft.value("listen").is_none() {
        draft.set_with(
            "listen",
            Value::Array(vec!["tcp:127.0.0.1:9000".into()]),
            "Where to listen is not in what was imported: choose.",
        );
    }
    draft.set_with("user", "www-data", "Whom the apps ran as is not in what was imported: choose.");
    draft.set("runtime", "fastcgi");
    let names = ["fastcgi-mono-server4", "fastcgi-mono-server"];
    let (mono, there) = program(&names, "/usr/bin/fastcgi-mono-server4", programs);
    let list: Vec<String> = applications.iter().map(Application::argument).collect();
    let command = vec![mono, "/socket=pipe".to_owned(), format!("/applications={}", list.join(","))];
    let command = Value::Array(command.into_iter().map(Value::from).collect());
    if there {
        draft.set("command", command);
    } else {
        let remark = "fastcgi-mono-server4 is not installed here: apt install mono-fastcgi-server4.";
        draft.set_with("command", command, remark);
    }
    draft.set_with("keep_connections", false, "It breaks at connections that are kept.");
    Some(draft)
}

impl Application {
    fn argument(&self) -> String {
        let vpath = if self.vpath.is_empty() { "/" } else { &self.vpath };
        match (self.host.as_str(), self.port.as_str()) {
            ("" | "*", "" | "*") => format!("{vpath}:{}", self.path),
            (host, "" | "*") => format!("{host}:*:{vpath}:{}", self.path),
            ("" | "*", port) => format!("*:{port}:{vpath}:{}", self.path),
            (host, port) => format!("{host}:{port}:{vpath}:{}", self.path),
        }
    }
}
