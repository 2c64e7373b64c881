//! The configuration: from files to [`settings`](crate::settings).
//!
//! Two steps. [`check`] makes of each file the configuration as written, against the table of [`keys`]; [`pool`]
//! makes of that the configuration as meant. Every fault has a place, and all of them are found at once.
//!
//! Always holds: a fault in a pool, or in an included file, stops the pools that stand there and no other;
//! nothing that is written is silently ignored.
//!
//! Opens no file but those of the config itself: whether paths and programs exist is for `hostler check`.

mod check;
pub(crate) mod keys;
pub(crate) mod listen;
mod near;
mod pool;
mod sandbox;
mod source;
mod trial;
mod units;
pub(crate) mod users;

#[cfg(test)]
mod tests;

pub(crate) use source::{Fault, Place};
pub(crate) use trial::Trial;

use crate::settings::{Address, Log, LogFormat, Pool, Supervisor};
use check::{Check, Section};
use source::Source;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use users::System;

/// Where the config is unless told otherwise.
pub(crate) const DEFAULT_FILE: &str = "/etc/hostler/hostler.toml";

/// All that could be read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// `[supervisor]`.
    pub supervisor: Supervisor,
    /// The pools without a fault, in the order of the files.
    pub pools: Vec<Pool>,
    /// The pools with a fault.
    pub broken: Vec<Broken>,
    /// Included files of which not even the names of all pools are known.
    pub unreadable: Vec<Broken>,
    /// All faults, for `hostler check` and the log.
    pub faults: Vec<Fault>,
    /// What is allowed and yet doubtful.
    pub warnings: Vec<Fault>,
    /// What `hostler check` tries beyond the text, each with the pool that it is of.
    pub trials: Vec<(String, Place, Trial)>,
    /// Where each pool begins, by name.
    pub places: BTreeMap<String, Place>,
}

/// A pool, or a file, that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The pool's name; the file's for a file.
    pub name: String,
    /// Where it stands.
    pub file: PathBuf,
    /// Its first fault with its place, and how many more there are.
    pub message: String,
}

impl Loaded {
    /// Why a running pool that is not in `pools` must stay as it is: its config has a fault. `None` where it was
    /// taken out of the config and should stop.
    pub(crate) fn fault_of(&self, name: &str, file: &Path) -> Option<&str> {
        let broken = self.broken.iter().find(|broken| broken.name == name);
        let broken = broken.or_else(|| self.unreadable.iter().find(|broken| broken.file == file));
        broken.map(|broken| broken.message.as_str())
    }
}

/// Reads the config and all that it includes, on this system.
///
/// # Errors
/// Faults of the main file that leave nothing to go by: it cannot be read, or is no TOML, or `[supervisor]` is
/// wrong.
pub(crate) fn load(path: &Path) -> Result<Loaded, Vec<Fault>> {
    load_on(path, &users::ThisSystem::default())
}

/// A config that a command made.
///
/// # Errors
/// As [`load`].
pub(crate) fn made(text: String) -> Result<Loaded, Vec<Fault>> {
    load_source(&Source::new(Path::new("made"), text), &users::ThisSystem::default())
}

/// The control socket where the config names none.
pub(crate) fn default_control(system: &dyn System) -> PathBuf {
    match system.variable("XDG_RUNTIME_DIR").filter(|dir| system.caller() != 0 && dir.starts_with('/')) {
        Some(dir) => Path::new(&dir).join("hostler/control.sock"),
        None => PathBuf::from("/run/hostler/control.sock"),
    }
}

/// The control socket that a config names, if it can be read, or else the usual one: for commands that ask.
pub(crate) fn control_of(path: &Path) -> PathBuf {
    let system = users::ThisSystem::default();
    let Ok(source) = read(path) else { return default_control(&system) };
    let (tree, _) = parse(&source);
    let mut check = Check::new(&source);
    let section = supervisor_section(&mut check, tree.get_ref());
    supervisor(&mut check, &section, &system).control
}

/// As [`load`], on any system.
///
/// # Errors
/// As [`load`].
fn load_on(path: &Path, system: &dyn System) -> Result<Loaded, Vec<Fault>> {
    load_source(&read(path).map_err(|fault| vec![fault])?, system)
}

fn load_source(main: &Source, system: &dyn System) -> Result<Loaded, Vec<Fault>> {
    let (tree, faults) = parse(main);
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut check = Check::new(main);
    let section = supervisor_section(&mut check, tree.get_ref());
    let supervisor = supervisor(&mut check, &section, system);
    let mut found = Found { outer_stop: supervisor.stop_timeout, ..Found::new(system) };
    found.pools(main, tree.get_ref());
    found.top_level(&mut check, tree.get_ref(), true);
    if !check.faults.is_empty() {
        check.faults.sort_by_key(Fault::order);
        return Err(check.faults);
    }
    for (at, pattern) in section.placed_words("include") {
        found.include(main, at, &pattern);
    }
    Ok(found.finish(supervisor))
}

fn read(path: &Path) -> Result<Source, Fault> {
    let fault = |message: String| Source::new(path, String::new()).fault(0, message);
    let bytes = fs::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => fault("there is no such file".to_owned()),
        _ => fault(format!("read the file: {e}")),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(path, text)),
        Err(e) => {
            let valid = e.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(e.as_bytes().get(..valid).unwrap_or(&[])).into_owned();
            Err(Source::new(path, text).fault(valid, "the file is not UTF-8 from here on"))
        }
    }
}

/// The tree of a file, as far as it can be made out, and its faults against TOML.
fn parse(source: &Source) -> (Spanned<DeTable<'_>>, Vec<Fault>) {
    let (tree, errors) = DeTable::parse_recoverable(source.text());
    let fault = |e: &toml::de::Error| {
        let at = e.span().map_or(0, |span| span.start);
        let mut message = e.message().lines().collect::<Vec<_>>().join(", ");
        let first = first_heading(source.text(), at).filter(|_| message == "duplicate key");
        if let Some(first) = first {
            message = format!("{message}; the first is at {}", source.place(first));
        }
        source.fault(at, message)
    };
    let faults = errors.iter().map(fault).collect();
    (tree, faults)
}

/// Where the table heading that stands at the byte `at` stood before.
fn first_heading(text: &str, at: usize) -> Option<usize> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let heading = text.get(start..)?.lines().next()?.trim();
    let before = text.get(..start)?;
    let mut begins = std::iter::once(0).chain(before.match_indices('\n').map(|(end, _)| end + 1));
    let same = |begin: &usize| {
        text.get(*begin..).and_then(|rest| rest.lines().next()).map(str::trim) == Some(heading)
    };
    begins.find(|begin| heading.starts_with('[') && *begin < start && same(begin))
}

fn supervisor_section(check: &mut Check<'_>, tree: &DeTable<'_>) -> Section {
    let title = keys::SUPERVISOR.title;
    match tree.get("supervisor").map(|value| (value.span().start, value.get_ref())) {
        Some((at, DeValue::Table(tree))) => check.section(&keys::SUPERVISOR, title, at, tree),
        Some((at, _)) => {
            check.fault(at, "\"supervisor\" must be a table");
            Section::new(&keys::SUPERVISOR, title, at)
        }
        None => Section::new(&keys::SUPERVISOR, title, 0),
    }
}

fn supervisor(check: &mut Check<'_>, section: &Section, system: &dyn System) -> Supervisor {
    let mut control = default_control(system);
    if let Some(text) = section.text("control") {
        match listen::address(&text) {
            Ok(Address::Unix(path)) if crate::listeners::abstract_name(&path).is_none() => control = path,
            Ok(_) => check.fault(section.place("control"), "\"control\" must be a Unix socket with a path"),
            Err(message) => check.fault(section.place("control"), message),
        }
    }
    let log = section.section("log");
    Supervisor {
        control,
        stop_timeout: section.duration("stop_timeout").unwrap_or(Duration::from_secs(30)),
        log: Log {
            level: log.text("level").and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::INFO),
            format: match log.text("format").as_deref() {
                Some("json") => LogFormat::Json,
                Some("journal") => LogFormat::Journal,
                _ => LogFormat::Text,
            },
            file: log.text("file").filter(|file| file != "-").map(PathBuf::from),
        },
    }
}

/// What was found in the files so far.
struct Found<'s> {
    system: &'s dyn System,
    outer_stop: Duration,
    entries: Vec<Entry>,
    unreadable: Vec<Broken>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    trials: Vec<(String, Place, Trial)>,
    files: BTreeSet<PathBuf>,
}

/// A pool with its place, and with its listeners' places in order.
struct Entry {
    name: String,
    place: Place,
    listeners: Vec<Place>,
    result: Result<Pool, Vec<Fault>>,
}

impl Entry {
    fn fail(&mut self, fault: Fault) {
        match &mut self.result {
            Ok(_) => self.result = Err(vec![fault]),
            Err(faults) => faults.push(fault),
        }
    }
}

impl<'s> Found<'s> {
    fn new(system: &'s dyn System) -> Found<'s> {
        Found {
            system,
            outer_stop: Duration::ZERO,
            entries: Vec::new(),
            unreadable: Vec::new(),
            faults: Vec::new(),
            warnings: Vec::new(),
            trials: Vec::new(),
            files: BTreeSet::new(),
        }
    }

    /// All pools of a file.
    fn pools(&mut self, source: &Source, tree: &DeTable<'_>) {
        let Some(DeValue::Table(pools)) = tree.get("pool").map(Spanned::get_ref) else { return };
        for (name, value) in pools.iter() {
            let (mut check, mut warnings) = (Check::new(source), Check::new(source));
            let at = name.span().start;
            let name = name.get_ref();
            let title = format!("[pool.{name}]");
            if let Some(message) = wrong_name(name) {
                check.fault(at, message);
            }
            let (mut pool, mut listeners) = (None, Vec::new());
            if let DeValue::Table(tree) = value.get_ref() {
                let section = check.section(&keys::POOL, &title, at, tree);
                listeners = section.sections("listen").iter().map(|entry| source.place(entry.at)).collect();
                let (path, stop) = (source.path(), self.outer_stop);
                pool = pool::resolve(&mut check, &mut warnings, name, path, &section, stop, self.system);
            } else {
                check.fault(at, format!("\"{name}\" must be a table: a pool is written {title}"));
            }
            self.warnings.append(&mut warnings.faults);
            let trials = check.trials.drain(..);
            self.trials.extend(trials.map(|(at, trial)| (name.to_string(), source.place(at), trial)));
            let place = source.place(at);
            check.faults.sort_by_key(Fault::order);
            let result = pool.filter(|_| check.faults.is_empty()).ok_or(check.faults);
            self.entries.push(Entry { name: name.to_string(), place, listeners, result });
        }
    }

    /// What stands beside the pools.
    fn top_level(&mut self, check: &mut Check<'_>, tree: &DeTable<'_>, main: bool) {
        for (name, value) in tree.iter() {
            let at = name.span().start;
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("supervisor", _) if main => {}
                ("supervisor", _) => check.fault(at, "[supervisor] stands in the main file alone"),
                ("pool", DeValue::Table(_)) => {}
                ("pool", _) => check.fault(at, "\"pool\" must be a table: a pool is written [pool.NAME]"),
                (other, _) if keys::POOL.key(other).is_some() => {
                    check.fault(at, format!("\"{other}\" stands before any [pool.NAME]"));
                }
                (other, _) => {
                    let hint = near::hint(other, ["supervisor", "pool"]);
                    check.fault(at, format!("unknown key \"{other}\"{hint}"));
                }
            }
        }
    }

    /// All files of one entry of `include`.
    fn include(&mut self, main: &Source, at: usize, pattern: &str) {
        let directory = main.path().parent().unwrap_or(Path::new(""));
        let full = glob_beneath(directory, pattern);
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
        let paths = match glob::glob_with(&full, options) {
            Ok(paths) => paths,
            Err(e) => return self.faults.push(main.fault(at, format!("\"{pattern}\" is no glob: {e}"))),
        };
        let mut none = true;
        for path in paths {
            none = false;
            match path {
                Ok(path) => self.file(&path),
                Err(e) => self.faults.push(main.fault(at, format!("look for \"{pattern}\": {e}"))),
            }
        }
        if none && !pattern.contains(['*', '?', '[']) {
            self.faults.push(main.fault(at, format!("there is no file \"{pattern}\"")));
        }
    }

    /// One included file, once.
    fn file(&mut self, path: &Path) {
        if !self.files.insert(path.to_owned()) {
            return;
        }
        let source = match read(path) {
            Ok(source) => source,
            Err(fault) => return self.cannot_read(path, vec![fault]),
        };
        let (tree, mut faults) = parse(&source);
        let mut check = Check::new(&source);
        self.top_level(&mut check, tree.get_ref(), false);
        faults.append(&mut check.faults);
        let first = self.entries.len();
        self.pools(&source, tree.get_ref());
        if faults.is_empty() {
            return;
        }
        // The pools that can be made out are told of by name; whether there are more, nobody knows.
        for entry in self.entries.iter_mut().skip(first) {
            entry.result = Err(faults.clone());
        }
        self.cannot_read(path, faults);
    }

    fn cannot_read(&mut self, path: &Path, faults: Vec<Fault>) {
        self.unreadable.push(Broken {
            name: path.display().to_string(),
            file: path.to_owned(),
            message: first_of(&faults),
        });
        self.faults.extend(faults);
    }

    fn finish(mut self, supervisor: Supervisor) -> Loaded {
        self.refuse_double_names();
        self.refuse_double_addresses(&supervisor.control);
        let (mut pools, mut broken, mut places) = (Vec::new(), Vec::new(), BTreeMap::new());
        for entry in std::mem::take(&mut self.entries) {
            match entry.result {
                Ok(pool) => {
                    places.insert(entry.name, entry.place);
                    pools.push(pool);
                }
                Err(faults) => {
                    let (name, file) = (entry.name, entry.place.file.to_path_buf());
                    broken.push(Broken { name, file, message: first_of(&faults) });
                    let new = faults.into_iter().filter(|fault| !self.faults.contains(fault));
                    let new: Vec<Fault> = new.collect();
                    self.faults.extend(new);
                }
            }
        }
        let mut seen = BTreeSet::new();
        broken.retain(|broken: &Broken| seen.insert(broken.name.clone()));
        let Found { unreadable, faults, warnings, trials, .. } = self;
        Loaded { supervisor, pools, broken, unreadable, faults, warnings, trials, places }
    }

    /// Which of two pools with one name is meant, nobody can tell: neither is taken.
    fn refuse_double_names(&mut self) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for index in 0..self.entries.len() {
            let Some(name) = self.entries.get(index).map(|entry| entry.name.clone()) else { continue };
            let Some(first) = seen.get(&name).copied() else {
                seen.insert(name, index);
                continue;
            };
            let place = |at: usize| self.entries.get(at).map(|entry| entry.place.clone());
            if let (Some(one), Some(two)) = (place(first), place(index)) {
                let message = format!("there are two pools named \"{name}\": here and at");
                let faults = [(first, &one, &two), (index, &two, &one)];
                for (at, here, there) in faults {
                    let fault = Fault { place: here.clone(), message: format!("{message} {there}") };
                    self.entries.get_mut(at).into_iter().for_each(|entry| entry.fail(fault.clone()));
                }
            }
        }
    }

    /// Of two pools with one address the first is taken.
    fn refuse_double_addresses(&mut self, control: &Path) {
        let mut seen: HashMap<String, Vec<(crate::settings::Listen, Place)>> = HashMap::new();
        for entry in &mut self.entries {
            let Ok(pool) = &entry.result else { continue };
            let mut clash = None;
            for (listen, place) in pool.listen.iter().zip(&entry.listeners) {
                // Only listeners with the same key can be in each other's way.
                let key = match &listen.address {
                    Address::Tcp(address) => format!("tcp {}", address.port()),
                    other => other.to_string(),
                };
                let same = seen.entry(key).or_default();
                if let Some((_, other)) = same.iter().find(|(other, _)| listen::clash(listen, other)) {
                    let message = format!("{} is in the way of the listener at {other}", listen.address);
                    clash = Some(Fault { place: place.clone(), message });
                }
                if listen.address == Address::Unix(control.to_owned()) {
                    let message = format!("{} is the supervisor's own control socket", listen.address);
                    clash = Some(Fault { place: place.clone(), message });
                }
                same.push((listen.clone(), place.clone()));
            }
            if let Some(fault) = clash {
                entry.fail(fault);
            }
        }
    }
}

/// A glob relative to a directory whose own name may hold what a glob would take for a wildcard.
fn glob_beneath(directory: &Path, pattern: &str) -> String {
    if pattern.starts_with('/') || directory.as_os_str().is_empty() {
        return pattern.to_owned();
    }
    format!("{}/{pattern}", glob::Pattern::escape(&directory.to_string_lossy()))
}

fn wrong_name(name: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) || name.starts_with('.') {
        let rule = "is made of up to 64 letters, digits, \"-\", \"_\" and \".\", with no \".\" in front";
        return Some(format!("a pool's name {rule}, not \"{name}\""));
    }
    None
}

fn first_of(faults: &[Fault]) -> String {
    match faults {
        [] => String::new(),
        [one] => one.to_string(),
        [one, rest @ ..] => format!("{one} (and {} more)", rest.len()),
    }
}
