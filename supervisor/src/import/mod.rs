//! `hostler import`: the set-up of another server as Hostler config.
//!
//! Always holds: what is printed is TOML that [`config`](crate::config) understands; each setting of the other server
//! is either in it, or named in a comment that says why not. Nothing is changed on the machine.
//!
//! Carries over what is written in the files; what the other server would have by default is not guessed, except
//! where Hostler's own default would mean something else.

mod draft;
mod fcgiwrap;
mod ini;
mod mono;
mod php_fpm;
mod uwsgi;

use crate::{cli::Import, cli::Server, guess, print, serve::fail};
use draft::Draft;
use std::{fs, path::Path, process::ExitCode};

/// Prints the config.
pub(crate) fn import(options: &Import) -> ExitCode {
    let programs = guess::path();
    let mut drafts = Vec::new();
    for file in &options.files {
        let path = Path::new(file);
        let name = path.display().to_string();
        // A line of mono's --applications may stand in place of a file.
        let line = options.server == Server::Mono && file.contains(':') && !path.exists();
        let text = if line { Ok(file.clone()) } else { fs::read_to_string(path) };
        let read = text.map_err(|e| format!("read {name}: {e}")).and_then(|text| match options.server {
            Server::PhpFpm => php_fpm::read(path, &text, &programs),
            Server::Uwsgi => uwsgi::read(path, &text, &programs),
            Server::Fcgiwrap => fcgiwrap::read(path, &text),
            Server::Mono if line => mono::line(&text, &programs),
            Server::Mono => mono::read(path, &text, &programs),
        });
        match read {
            Ok(found) => drafts.extend(found),
            Err(message) => return fail(&message),
        }
    }
    if drafts.is_empty() {
        return fail("there is nothing in these files that could be served");
    }
    print(&whole(drafts, options.server.word()));
    ExitCode::SUCCESS
}

/// All pools as one file; of two with one name the second is given a number.
fn whole(mut drafts: Vec<Draft>, server: &str) -> String {
    let mut text = format!(
        "# Made by \"hostler import {server}\". Read the comments, then: hostler check --config FILE\n\
         # Stop the old server before Hostler listens in its place.\n"
    );
    let mut seen: Vec<String> = Vec::new();
    for draft in &mut drafts {
        let name = draft.name.clone();
        let mut number = 2;
        while seen.contains(&draft.name) {
            draft.name = format!("{name}-{number}");
            number += 1;
        }
        seen.push(draft.name.clone());
        text.push('\n');
        draft.settle_addresses();
        text.push_str(&draft.text());
    }
    text
}

/// The program that is there, or else where it should be, and whether it is there.
fn program(names: &[&str], fallback: &str, path: &[std::path::PathBuf]) -> (String, bool) {
    let found = path.iter().flat_map(|directory| names.iter().map(move |name| directory.join(name)));
    let found = found.filter(|path| path.is_file()).find_map(|path| path.to_str().map(str::to_owned));
    match found {
        Some(program) => (program, true),
        None => (fallback.to_owned(), false),
    }
}

#[cfg(test)]
mod tests;
