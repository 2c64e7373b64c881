//! The manual pages: hostler(1) and its commands from the definitions of the command line, hostler.toml(5) from the
//! table of keys that the check itself uses, hostler-worker(7) with the worker's own example.
//!
//! Always holds: pages have no date and no machine in them, so that they are the same wherever they are made.

mod worker;

use crate::{
    cli::Cli,
    config::keys::{self, Key, Kind, Table},
    serve::fail,
};
use clap::CommandFactory;
use roff::{Roff, bold, italic, roman};
use std::{fs, path::Path, process::ExitCode};

/// A config to begin with, shown whole in hostler.toml(5).
const EXAMPLE: &str = include_str!("config/golden/valid/everything.toml");

/// Writes all pages to a directory.
pub(crate) fn write(directory: &Path) -> ExitCode {
    let commands = Cli::command();
    let pages = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(commands, directory))
        .and_then(|()| fs::write(directory.join("hostler.toml.5"), config_page()))
        .and_then(|()| fs::write(directory.join("hostler-worker.7"), worker::page()));
    match pages {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&format!("write the manual to {}: {e}", directory.display())),
    }
}

/// hostler.toml(5).
fn config_page() -> String {
    let version = format!("hostler {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["hostler.toml", "5", "", version.as_str(), "Hostler"]);
    page.control("SH", ["NAME"]);
    page.text([roman("hostler.toml - configuration of hostler(1)")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([roman("/etc/hostler/hostler.toml, and the files that it includes")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in [
        "TOML. The main file holds [supervisor] and may hold pools; the files that it includes hold pools alone. A \
         key that is not known, a value without its unit or a name that stands twice is a fault with its file, line \
         and column. A fault in a pool stops that pool alone; a pool that runs keeps its old settings until a reload \
         finds the new ones good. hostler check prints all faults.",
        "Times are written with units (ms, s, m, h, d), as in \"250ms\" or \"1m30s\"; sizes too (B, KiB, MiB, GiB, \
         TiB, or kB, MB, GB, TB), as in \"64MiB\"; modes are octal, as in \"0660\".",
    ] {
        page.control("PP", []);
        page.text([roman(paragraph)]);
    }
    for table in keys::ALL.iter().filter(|table| table.title != keys::FILE.title) {
        table_section(&mut page, table);
    }
    page.control("SH", ["EXAMPLE"]);
    page.control("nf", []);
    for line in EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("hostler"),
        roman("(1), "),
        bold("hostler-check"),
        roman("(1), "),
        bold("hostler-reload"),
        roman("(1), "),
        bold("hostler-worker"),
        roman("(7)"),
    ]);
    page.render()
}

fn table_section(page: &mut Roff, table: &Table) {
    page.control("SH", [table.title]);
    page.text([roman(table.meaning)]);
    for key in table.keys {
        page.control("TP", []);
        page.text([bold(key.name), roman(" = "), italic(shape(key))]);
        page.text([roman(key.meaning)]);
        let mut facts = Vec::new();
        if !key.of.is_empty() {
            facts.push(format!("For runtime {}.", key.of.join(", ")));
        }
        if let Some(default) = key.default {
            facts.push(format!("Default: {default}."));
        }
        if !matches!(key.kind, Kind::Table(_) | Kind::Tables(_) | Kind::Later) {
            facts.push(format!("Example: {} = {}", key.name, key.example));
        }
        for fact in facts {
            page.control("br", []);
            page.text([roman(fact)]);
        }
    }
}

/// What stands behind the `=`.
fn shape(key: &Key) -> String {
    match key.kind {
        Kind::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" | "),
        Kind::Number { min, max: keys::ANY } => format!("a whole number, at least {min}"),
        Kind::Number { min, max } => format!("a whole number between {min} and {max}"),
        kind => kind.wanted().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(page: &str) -> String {
        page.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")
    }

    #[test]
    fn the_page_has_every_key_with_its_default_and_example() {
        let page = plain(&config_page());
        for table in keys::ALL.iter().filter(|table| table.title != keys::FILE.title) {
            assert!(page.contains(table.title), "{}", table.title);
            for key in table.keys {
                assert!(page.contains(&format!("{} = ", key.name)), "{} of {}", key.name, table.title);
                if let Some(default) = key.default {
                    assert!(
                        page.contains(&format!("Default: {default}.")),
                        "{} of {}",
                        key.name,
                        table.title
                    );
                }
            }
        }
    }

    #[test]
    fn each_command_has_a_page_and_hidden_ones_have_none() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(write(&place.path().join("man")), ExitCode::SUCCESS);
        let names = fs::read_dir(place.path().join("man")).unwrap();
        let mut names: Vec<String> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let commands = Cli::command();
        let shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
        let mut expected: Vec<String> =
            shown.map(|command| format!("hostler-{}.1", command.get_name())).collect();
        expected.extend(["hostler.1", "hostler.toml.5", "hostler-worker.7"].map(str::to_owned));
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_line_of_the_example_cannot_be_taken_for_a_request_of_roff() {
        let page = config_page();
        let known = ["TH", "SH", "PP", "TP", "br", "nf", "fi", "ie", "el"];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            let request = line.trim_start_matches(['.', '\'']).split_whitespace().next().unwrap_or("");
            assert!(known.contains(&request), "{line}");
        }
    }
}
