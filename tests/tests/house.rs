//! The rules of the house that no lint knows: who may import what, where unsafe code may stand, how a file opens
//! and how long it may be.
//!
//! Reads the sources; runs nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Lines that a source file may have before its tests.
const LINES: usize = 650;
/// Files that are one table, which is as long as it is.
const TABLES: [&str; 1] = ["supervisor/src/config/keys.rs"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files below `directory` whose name ends with `end`, except what was built.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_symlink() || matches!(name.as_str(), "target" | ".git" | "corpus" | "artifacts") {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
    found
}

/// Source files of a package, with their texts.
fn sources(package: &str) -> Vec<(PathBuf, String)> {
    let files = files(&repository().join(package), ".rs");
    assert!(!files.is_empty(), "no source in {package}");
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// `text` up to its module of tests.
fn before_tests(text: &str) -> &str {
    let opens = |at: &usize| text[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{'));
    let end = text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at).find(opens);
    &text[..end.unwrap_or(text.len())]
}

/// The lines of `text` before its tests that are no comment, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = before_tests(text).lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Names of modules that are tests as a whole: `#[cfg(test)] mod NAME;`.
fn test_modules(sources: &[(PathBuf, String)]) -> Vec<String> {
    let mut names = Vec::new();
    for (_, text) in sources {
        for after in text.split("#[cfg(test)]\nmod ").skip(1) {
            names.extend(after.split_once(';').map(|(name, _)| name.to_owned()).filter(|n| !n.contains(' ')));
        }
    }
    names
}

/// Fails with each line of the package's code, tests left out, that holds one of `words`.
fn forbid(package: &str, only: &str, words: &[&str], why: &str) {
    let mut found = Vec::new();
    let sources = sources(package);
    let tests = test_modules(&sources);
    for (path, text) in &sources {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !path.to_string_lossy().contains(only) || tests.contains(&stem) {
            continue;
        }
        for (number, line) in code(text) {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

#[test]
fn proto_does_no_input_or_output() {
    let words = ["std::fs", "std::net", "std::process", "std::os", "std::time", "std::thread", "std::env"];
    forbid("proto", "/src/", &words, "proto is bytes and values alone");
}

#[test]
fn proto_depends_on_nothing() {
    let manifest = fs::read_to_string(repository().join("proto/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or("");
    let dependencies = dependencies.split("\n[").next().unwrap();
    assert_eq!(dependencies.trim(), "", "proto needs std alone");
}

#[test]
fn the_supervisor_takes_from_the_worker_what_they_say_to_each_other_alone() {
    for (path, text) in sources("supervisor") {
        let code: String = code(&text).map(|(_, line)| line.trim()).collect();
        for after in code.split("hostler_worker::").skip(1) {
            // The one binary is the worker program, too: `program` is called, and never returns to the supervisor.
            let whole = ["control", "page", "program::main", "{control", "{page"];
            let use_ = after.split(';').next().unwrap_or_default();
            let others = ["program::", "run(", "run_app", "App,", "Answer", "Request"];
            let allowed = whole.iter().any(|part| use_.starts_with(part));
            assert!(allowed, "{}: hostler_worker::{use_}", path.display());
            let more = others.iter().any(|part| use_.contains(part) && !use_.starts_with("program::main"));
            assert!(!use_.starts_with('{') || !more, "{}: hostler_worker::{use_}", path.display());
        }
    }
    forbid("supervisor", "/src/", &["hostler_proto"], "the supervisor reads no request");
}

#[test]
fn the_supervisors_mind_reads_no_clock_and_touches_no_system() {
    let words = [
        "Instant::now",
        "SystemTime",
        "std::fs",
        "std::net",
        "std::process",
        "std::os",
        "std::thread",
        "nix::",
        "libc::",
    ];
    forbid("supervisor", "/src/fleet", &words, "fleet is (time, event) to actions, and no more");
}

#[test]
fn unsafe_code_stands_in_one_file() {
    let mut found = Vec::new();
    for package in ["proto", "worker", "supervisor", "tests"] {
        for (path, text) in sources(package) {
            if path.ends_with("worker/src/sys.rs") {
                continue;
            }
            for (number, line) in code(&text) {
                let uncommented = line.split("//").next().unwrap_or_default();
                let words: Vec<&str> =
                    uncommented.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
                // An attribute allows or forbids it; this file has the word in strings.
                if words.contains(&"unsafe") && !path.ends_with("house.rs") {
                    found.push(format!("{}:{number}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "unsafe outside worker/src/sys.rs:\n{}", found.join("\n"));
}

#[test]
fn each_unsafe_block_says_why_and_why_it_is_sound() {
    let path = repository().join("worker/src/sys.rs");
    let Ok(text) = fs::read_to_string(path) else { return };
    let blocks =
        code(&text).filter(|(_, line)| line.contains("unsafe {") || line.contains("unsafe impl")).count();
    for word in ["JUSTIFICATION", "SAFETY"] {
        let said = text.lines().filter(|l| l.trim_start().starts_with("//") && l.contains(word)).count();
        assert!(said >= blocks, "worker/src/sys.rs: {blocks} unsafe blocks, {said} times {word}");
    }
}

#[test]
fn each_source_file_says_first_what_it_is() {
    for (path, text) in sources("") {
        let first = text.lines().find(|line| !line.starts_with("#!["));
        let first = first.unwrap_or_default();
        assert!(first.starts_with("//!"), "{}: opens with {first:?}", path.display());
    }
}

#[test]
fn no_source_file_is_too_long() {
    for (path, text) in sources("") {
        if TABLES.iter().any(|table| path.ends_with(table)) {
            continue;
        }
        let lines = before_tests(&text).lines().count();
        assert!(lines <= LINES, "{}: {lines} lines, over {LINES}", path.display());
    }
}

#[test]
fn no_text_names_a_place_of_the_machine_that_it_was_written_on() {
    // Put together here, so that this file does not name one.
    let places = [["/", "work/"].concat(), ["/", "root/.cargo"].concat()];
    for end in [".rs", ".md", ".toml", "/test", ".sh", ".yml", ".yaml", ".service", ".conf"] {
        for path in files(&repository(), end.trim_start_matches('/')) {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for (number, line) in text.lines().enumerate() {
                let named = places.iter().any(|place| line.contains(place.as_str()));
                assert!(!named, "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}
