//! The parameters that a program is given: those that the web server sent, but for what the worker knows better.
//!
//! Always holds: each name once (as [`crate::Params`] has it); CONTENT_LENGTH is the body's true length or as sent;
//! SCRIPT_FILENAME is the web server's or one that was found beneath the root. Does no I/O.

use super::{Redirected, View, outgoing::Outgoing, scripts::Script};
use crate::{control::Protocol, request::Request};
use hostler_proto::Role;
use std::{io::Write, os::unix::ffi::OsStrExt, path::Path};

const SOFTWARE: &str = concat!("Hostler/", env!("CARGO_PKG_VERSION"));

/// Writes the beginning of the request and all its parameters.
pub(super) fn write(
    out: &mut Outgoing,
    (id, keep): (u16, bool),
    request: &mut Request<'_>,
    view: &View,
    root: Option<&Path>,
) {
    out.begin(id, request.role(), keep);
    let length = view.gathered.or_else(|| request.body().known_length());
    let mut none = true;
    for (name, value) in request.sent().iter() {
        if is_replaced(name, view) {
            continue;
        }
        if name == b"CONTENT_LENGTH" {
            // nginx says by an empty one that there is no body, Caddy by -1 that it does not know.
            none = false;
            match (length, view.redirected.is_some() || request.role() == Role::Authorizer) {
                (_, true) => {}
                (Some(length), _) => number(out, length),
                (None, _) if value.iter().all(u8::is_ascii_digit) => out.pair(name, value),
                (None, _) => {}
            }
            continue;
        }
        out.pair(name, value);
    }
    if let Some(length) = length.filter(|&length| none && length > 0 && view.redirected.is_none()) {
        number(out, length);
    }
    if request.protocol() == Protocol::Http {
        out.pair(b"GATEWAY_INTERFACE", b"CGI/1.1");
        out.pair(b"SERVER_SOFTWARE", SOFTWARE.as_bytes());
        out.pair(b"REDIRECT_STATUS", b"200");
    }
    match (&view.script, &view.redirected) {
        (Some(script), _) => located(&mut |name, value| out.pair(name.as_bytes(), value), script, root),
        (None, Some(to)) => {
            out.pair(b"SCRIPT_NAME", request.script_name());
            out.pair(b"PATH_INFO", &to.path);
        }
        (None, None) if request.protocol() == Protocol::Http => {
            out.pair(b"SCRIPT_NAME", request.script_name());
            out.pair(b"PATH_INFO", request.path_info());
        }
        (None, None) => {}
    }
    if let Some(to) = &view.redirected {
        redirected(out, request, to);
    }
    out.end_params();
}

/// The parameters of a request for `ready_path`.
pub(super) fn of_ready_path(
    path: &str,
    script: Option<&Script>,
    root: Option<&Path>,
) -> Vec<(&'static str, Vec<u8>)> {
    let (name, query) = path.split_once('?').unwrap_or((path, ""));
    let mut params: Vec<(&'static str, Vec<u8>)> = [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", SOFTWARE),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "0"),
        ("HTTP_HOST", "localhost"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", path),
        ("QUERY_STRING", query),
        ("CONTENT_LENGTH", ""),
        ("REDIRECT_STATUS", "200"),
    ]
    .map(|(name, value)| (name, value.as_bytes().to_vec()))
    .into();
    match script {
        Some(script) => located(&mut |name, value| params.push((name, value.to_vec())), script, root),
        None => params.extend([("SCRIPT_NAME", name.into()), ("PATH_INFO", Vec::new())]),
    }
    params
}

/// Whether something else stands in the place of a parameter.
fn is_replaced(name: &[u8], view: &View) -> bool {
    let by_script: [&[u8]; 5] =
        [b"SCRIPT_NAME", b"PATH_INFO", b"SCRIPT_FILENAME", b"DOCUMENT_ROOT", b"PATH_TRANSLATED"];
    let by_redirect: [&[u8]; 7] = [
        b"REQUEST_METHOD",
        b"REQUEST_URI",
        b"QUERY_STRING",
        b"CONTENT_TYPE",
        b"SCRIPT_NAME",
        b"PATH_INFO",
        b"PATH_TRANSLATED",
    ];
    (view.script.is_some() && by_script.contains(&name))
        || (view.redirected.is_some() && by_redirect.contains(&name))
}

fn located(pair: &mut dyn FnMut(&'static str, &[u8]), script: &Script, root: Option<&Path>) {
    let root = root.map_or(&b""[..], |root| root.as_os_str().as_bytes());
    pair("SCRIPT_NAME", &script.script_name);
    pair("SCRIPT_FILENAME", &script.file);
    pair("DOCUMENT_ROOT", root);
    if !script.path_info.is_empty() {
        pair("PATH_INFO", &script.path_info);
        pair("PATH_TRANSLATED", &[root, &script.path_info].concat());
    }
}

fn redirected(out: &mut Outgoing, request: &Request<'_>, to: &Redirected) {
    let method: &[u8] = if request.method() == b"HEAD" { b"HEAD" } else { b"GET" };
    out.pair(b"REQUEST_METHOD", method);
    out.pair(b"REQUEST_URI", &to.target);
    out.pair(b"QUERY_STRING", to.query());
}

fn number(out: &mut Outgoing, length: u64) {
    let mut digits = [0; 20];
    let mut rest = &mut digits[..];
    let _ = write!(rest, "{length}");
    let left = rest.len();
    out.pair(b"CONTENT_LENGTH", digits.get(..digits.len() - left).unwrap_or_default());
}
