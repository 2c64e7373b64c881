//! The commands that ask a running supervisor: reload, status, stop, start, restart.
//!
//! Prints what the supervisor says; ends with 0, or 1 where it did not work, 69 where there is no supervisor, 77
//! where it is not for this user.

use crate::{
    cli::{Control, OnePool, OnePoolOrAll, Reload, Status},
    config,
    control::{Answer, client},
    print,
    status::{self, table},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

/// EX_UNAVAILABLE: no supervisor there.
const NO_SUPERVISOR: u8 = 69;
/// EX_NOPERM.
const NO_PERMISSION: u8 = 77;

/// `hostler reload`.
pub(crate) fn reload(options: &Reload) -> ExitCode {
    let body = json!({ "pools": options.pools, "changed": options.changed });
    command(&socket(&options.control), "/reload", &body)
}

/// `hostler start`.
pub(crate) fn start(options: &OnePool) -> ExitCode {
    command(&socket(&options.control), "/start", &json!({ "pool": options.pool }))
}

/// `hostler restart`.
pub(crate) fn restart(options: &OnePool) -> ExitCode {
    command(&socket(&options.control), "/restart", &json!({ "pool": options.pool }))
}

/// `hostler stop`.
pub(crate) fn stop(options: &OnePoolOrAll) -> ExitCode {
    let socket = socket(&options.control);
    if options.pool.is_some() {
        return command(&socket, "/stop", &json!({ "pool": options.pool }));
    }
    match client::post(&socket, "/stop", &json!({})) {
        Ok(answer) => told(&answer),
        // A supervisor that was ended meanwhile by somebody else has stopped all the same.
        Err(client::Error::Failed(_)) if is_gone(&socket) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// `hostler status`.
pub(crate) fn status(options: &Status) -> ExitCode {
    let socket = socket(&options.control);
    let path = match &options.pool {
        Some(pool) => format!("/status/{}", escaped(pool)),
        None => "/status".to_owned(),
    };
    let text = if options.json {
        client::get::<serde_json::Value>(&socket, &path).map(|json| format!("{json:#}\n"))
    } else if options.pool.is_some() {
        client::get::<status::Pool>(&socket, &path).map(|pool| table::pool(&pool, now()))
    } else {
        client::get::<status::Status>(&socket, &path).map(|status| table::all(&status, now()))
    };
    match text {
        Ok(text) => print(&text),
        Err(error) => return failed(&error),
    }
    ExitCode::SUCCESS
}

/// Whether somebody answers on a control socket.
pub(crate) fn is_serving(socket: &Path) -> bool {
    !matches!(client::get::<serde_json::Value>(socket, "/health"), Err(client::Error::Absent(_)))
}

fn is_gone(socket: &Path) -> bool {
    !is_serving(socket)
}

fn socket(control: &Control) -> PathBuf {
    control.control.clone().unwrap_or_else(|| config::control_of(Path::new(config::DEFAULT_FILE)))
}

fn command(socket: &Path, path: &str, body: &serde_json::Value) -> ExitCode {
    match client::post(socket, path, body) {
        Ok(answer) => told(&answer),
        Err(error) => failed(&error),
    }
}

fn told(answer: &Answer) -> ExitCode {
    let lines: String =
        answer.pools.iter().map(|line| format!("{}: {}\n", line.name, line.message)).collect();
    print(&lines);
    if let Some(error) = &answer.error {
        eprintln!("hostler: {error}");
    }
    if answer.ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(error: &client::Error) -> ExitCode {
    eprintln!("hostler: {error}");
    ExitCode::from(match error {
        client::Error::Absent(_) => NO_SUPERVISOR,
        client::Error::Forbidden(_) => NO_PERMISSION,
        client::Error::Failed(_) => 1,
    })
}

/// A name of a pool as part of a path: what is no letter or digit is escaped.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(escape).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        assert_eq!(escaped("shop-1.x"), "shop-1.x");
        assert_eq!(escaped("a/b?c d"), "a%2Fb%3Fc%20d");
    }
}
