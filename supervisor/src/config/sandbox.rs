//! `[pool.NAME.sandbox]`: what a pool's workers may reach.

use super::check::{Check, Section};
use hostler_worker::control::{App, Runtime, Sandbox};

/// What the pool asks for; without that, what it needs if all that it serves is files.
pub(super) fn resolve(check: &mut Check<'_>, pool: &Section, apps: &[App]) -> Option<Sandbox> {
    let root = |app: &App| match &app.runtime {
        Runtime::Files(files) => Some(files.root.clone()),
        Runtime::Cgi(cgi) => Some(cgi.root.clone()),
        Runtime::Fastcgi(fastcgi) => fastcgi.root.clone(),
        Runtime::Demo | Runtime::Unavailable { .. } => None,
    };
    let files_alone = !apps.is_empty() && apps.iter().all(|app| matches!(app.runtime, Runtime::Files(_)));
    let sandbox = Sandbox {
        roots: apps.iter().filter_map(root).collect(),
        read: Vec::new(),
        write: Vec::new(),
        network: false,
        asked_for: false,
    };
    if pool.written("sandbox").is_none() {
        return files_alone.then_some(sandbox);
    }
    let section = pool.section("sandbox");
    for key in ["read", "write"] {
        for (at, path) in section.placed_words(key) {
            if path.contains(['*', '?', '[']) {
                check.fault(at, format!("\"{path}\" must name one file or directory, without wildcards"));
            }
        }
    }
    Some(Sandbox {
        read: section.words("read"),
        write: section.words("write"),
        network: section.bool("network"),
        asked_for: true,
        ..sandbox
    })
}
