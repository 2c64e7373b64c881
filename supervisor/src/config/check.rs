//! The configuration as written: a TOML tree checked against the table of keys, every fault of it at once.
//!
//! Always holds: what is in a [`Section`] has the type, the unit and the range that its key asks for; an unknown
//! key is a fault; the default of a key is read by the same code as a written value.
//!
//! Does no I/O and knows no users: [`super::pool`] makes of it what is meant.

use super::{
    keys::{Key, Kind, LISTEN, RUNTIMES_LATER, Table},
    near,
    source::{Fault, Source},
    trial::Trial,
    units,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A table as written.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// Byte at which it begins.
    pub at: usize,
    /// Its name in messages: `[pool.shop.workers]`.
    pub title: String,
    table: &'static Table,
    items: BTreeMap<&'static str, Item>,
    /// Keys that are there with a wrong value, which is a fault already.
    wrong: BTreeSet<&'static str>,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Byte at which the value begins.
    pub at: usize,
    /// The value.
    pub value: Value,
}

/// A value of the type that its key asks for.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// [`Kind::Bool`].
    Bool(bool),
    /// [`Kind::Number`]; [`Kind::Size`] in bytes; [`Kind::Mode`].
    Number(u64),
    /// [`Kind::Duration`].
    Duration(Duration),
    /// [`Kind::Text`], [`Kind::Path`], [`Kind::Prefix`], [`Kind::Word`], [`Kind::Account`].
    Text(String),
    /// [`Kind::Words`], [`Kind::Globs`]: each with its place.
    Words(Vec<(usize, String)>),
    /// [`Kind::Map`].
    Map(Vec<(String, String)>),
    /// [`Kind::Table`].
    Section(Section),
    /// [`Kind::Tables`], [`Kind::Listen`].
    Sections(Vec<Section>),
}

/// Collects the faults of one part of a file.
pub(crate) struct Check<'s> {
    source: &'s Source,
    /// What was found so far.
    pub faults: Vec<Fault>,
    /// What can be tried beyond the text, each with its byte.
    pub trials: Vec<(usize, Trial)>,
}

impl<'s> Check<'s> {
    /// Nothing found yet.
    pub(crate) fn new(source: &'s Source) -> Check<'s> {
        Check { source, faults: Vec::new(), trials: Vec::new() }
    }

    /// Notes a fault at a byte of the file.
    pub(crate) fn fault(&mut self, at: usize, message: impl Into<String>) {
        self.faults.push(self.source.fault(at, message));
    }

    /// Checks all of a table.
    pub(crate) fn section(
        &mut self,
        table: &'static Table,
        title: &str,
        at: usize,
        tree: &DeTable<'_>,
    ) -> Section {
        let mut section = Section::new(table, title, at);
        for (name, value) in tree.iter() {
            let Some(key) = table.key(name.get_ref()) else {
                let message = unknown(table, title, name.get_ref());
                self.fault(name.span().start, message);
                continue;
            };
            if let Kind::Later = key.kind {
                let message = format!("\"{}\" is not there yet: a later version brings it", key.name);
                self.fault(name.span().start, message);
                continue;
            }
            if let Some(value) = self.value(key, title, value) {
                section.items.insert(key.name, value);
            } else {
                section.wrong.insert(key.name);
            }
        }
        section
    }

    fn value(&mut self, key: &'static Key, title: &str, value: &Spanned<DeValue<'_>>) -> Option<Item> {
        let at = value.span().start;
        let read = match (&key.kind, value.get_ref()) {
            (Kind::Table(table), DeValue::Table(tree)) => {
                let title = inner(title, key.name);
                return Some(Item { at, value: Value::Section(self.section(table, &title, at, tree)) });
            }
            (Kind::Tables(table), DeValue::Array(entries)) => {
                let title = format!("[{}]", inner(title, key.name));
                return self.sections(key, table, &title, at, entries.iter());
            }
            (Kind::Listen, DeValue::Array(entries)) => {
                return self.sections(key, &LISTEN, "an entry of \"listen\"", at, entries.iter());
            }
            (Kind::Listen, _) => {
                return self.sections(key, &LISTEN, "an entry of \"listen\"", at, std::iter::once(value));
            }
            (Kind::Words | Kind::Globs, DeValue::Array(entries)) => {
                let mut words = Vec::new();
                for entry in entries.iter() {
                    match text(entry.get_ref()).and_then(|word| one_word(key.kind, word)) {
                        Ok(word) => words.push((entry.span().start, word)),
                        Err(e) => self.fault(entry.span().start, format!("an entry of \"{}\" {e}", key.name)),
                    }
                }
                return Some(Item { at, value: Value::Words(words) });
            }
            (Kind::Map, DeValue::Table(tree)) => Ok(Value::Map(self.map(key, tree))),
            (kind, value) => scalar(*kind, value),
        };
        match read {
            Ok(value) => Some(Item { at, value }),
            Err(e) => {
                self.fault(at, format!("\"{}\" {e}", key.name));
                None
            }
        }
    }

    fn sections<'v>(
        &mut self,
        key: &'static Key,
        table: &'static Table,
        title: &str,
        at: usize,
        entries: impl Iterator<Item = &'v Spanned<DeValue<'v>>>,
    ) -> Option<Item> {
        let mut sections = Vec::new();
        for entry in entries {
            let at = entry.span().start;
            match (entry.get_ref(), key.kind) {
                (DeValue::Table(tree), _) => sections.push(self.section(table, title, at, tree)),
                (DeValue::String(address), Kind::Listen) => {
                    let mut section = Section::new(table, title, at);
                    let address = Value::Text(address.to_string());
                    section.items.insert("address", Item { at, value: address });
                    sections.push(section);
                }
                (value, kind) => {
                    let message = format!("\"{}\" must be {}, not {}", key.name, kind.wanted(), found(value));
                    self.fault(at, message);
                    return None;
                }
            }
        }
        Some(Item { at, value: Value::Sections(sections) })
    }

    fn map(&mut self, key: &'static Key, tree: &DeTable<'_>) -> Vec<(String, String)> {
        let mut map = Vec::new();
        for (name, value) in tree.iter() {
            let at = value.span().start;
            let wrong = name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']);
            match text(value.get_ref()) {
                _ if wrong => {
                    self.fault(name.span().start, format!("no name of a variable: {:?}", name.get_ref()))
                }
                Ok(text) if !text.contains('\0') => map.push((name.get_ref().to_string(), text.to_owned())),
                Ok(_) => {
                    self.fault(at, format!("\"{}\" of \"{}\" must not hold a NUL", name.get_ref(), key.name))
                }
                Err(e) => self.fault(at, format!("\"{}\" of \"{}\" {e}", name.get_ref(), key.name)),
            }
        }
        map
    }
}

impl Section {
    /// One in which nothing is written.
    pub(crate) fn new(table: &'static Table, title: &str, at: usize) -> Section {
        Section { at, title: title.to_owned(), table, items: BTreeMap::new(), wrong: BTreeSet::new() }
    }

    /// What is written.
    pub(crate) fn written(&self, name: &str) -> Option<&Item> {
        debug_assert!(self.table.key(name).is_some(), "no key {name} in {}", self.title);
        self.items.get(name)
    }

    /// Whether a key is there at all, if only with a wrong value.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.items.contains_key(name) || self.wrong.contains(name)
    }

    /// Names of all keys that are written.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static Key, &Item)> {
        self.items.iter().filter_map(|(name, item)| Some((self.table.key(name)?, item)))
    }

    /// What is written, or else the default.
    fn value(&self, name: &str) -> Option<Value> {
        if let Some(item) = self.written(name) {
            return Some(item.value.clone());
        }
        default(self.table.key(name)?)
    }

    /// A [`Kind::Bool`]; false where there is neither value nor default.
    pub(crate) fn bool(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }

    /// A number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        if let Some(Value::Number(n)) = self.value(name) { Some(n) } else { None }
    }

    /// A number that its kind keeps within 32 bits.
    pub(crate) fn number32(&self, name: &str) -> Option<u32> {
        self.number(name).and_then(|n| u32::try_from(n).ok())
    }

    /// A time.
    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        if let Some(Value::Duration(d)) = self.value(name) { Some(d) } else { None }
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        if let Some(Value::Text(text)) = self.value(name) { Some(text) } else { None }
    }

    /// A list of texts; empty where there is none.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        self.placed_words(name).into_iter().map(|(_, word)| word).collect()
    }

    /// A list of texts, each with its place.
    pub(crate) fn placed_words(&self, name: &str) -> Vec<(usize, String)> {
        if let Some(Value::Words(words)) = self.value(name) { words } else { Vec::new() }
    }

    /// Names with texts; empty where there are none.
    pub(crate) fn map(&self, name: &str) -> Vec<(String, String)> {
        if let Some(Value::Map(map)) = self.value(name) { map } else { Vec::new() }
    }

    /// A table; one in which nothing is written where it is absent.
    pub(crate) fn section(&self, name: &str) -> Section {
        match (self.written(name).map(|item| &item.value), self.table.key(name).map(|key| key.kind)) {
            (Some(Value::Section(section)), _) => section.clone(),
            (_, Some(Kind::Table(table))) => Section::new(table, &inner(&self.title, name), self.at),
            _ => Section::new(self.table, &self.title, self.at),
        }
    }

    /// Tables; none where they are absent.
    pub(crate) fn sections(&self, name: &str) -> &[Section] {
        match self.written(name).map(|item| &item.value) {
            Some(Value::Sections(sections)) => sections,
            _ => &[],
        }
    }

    /// Where the value of a key stands, or else the table.
    pub(crate) fn place(&self, name: &str) -> usize {
        self.written(name).map_or(self.at, |item| item.at)
    }

    /// Takes from `outer` each of these keys that is not written here.
    pub(crate) fn inherit(&mut self, outer: &Section) {
        for (name, item) in &outer.items {
            if self.table.key(name).is_some() && !matches!(*name, "env" | "path" | "host") {
                self.items.entry(name).or_insert_with(|| item.clone());
            }
        }
        self.wrong.extend(outer.wrong.iter().filter(|name| self.table.key(name).is_some()));
    }
}

/// The default of a key, read as if it were written: once, however many pools leave it out.
pub(crate) fn default(key: &'static Key) -> Option<Value> {
    thread_local! {
        static READ: RefCell<HashMap<*const Key, Option<Value>>> = RefCell::default();
    }
    READ.with_borrow_mut(|read| read.entry(key).or_insert_with(|| read_default(key)).clone())
}

fn read_default(key: &Key) -> Option<Value> {
    let parsed = DeValue::parse(key.default?).ok()?;
    match (key.kind, parsed.get_ref()) {
        (Kind::Words | Kind::Globs, DeValue::Array(_)) => Some(Value::Words(Vec::new())),
        (Kind::Map, DeValue::Table(_)) => Some(Value::Map(Vec::new())),
        (kind, value) => scalar(kind, value).ok(),
    }
}

/// A value that is neither list nor table. The error is the end of a sentence that begins with the key's name.
fn scalar(kind: Kind, value: &DeValue<'_>) -> Result<Value, String> {
    let mismatch = || format!("must be {}, not {}", kind.wanted(), found(value));
    match (kind, value) {
        (Kind::Bool, DeValue::Boolean(value)) => Ok(Value::Bool(*value)),
        (Kind::Number { min, max }, DeValue::Integer(value)) => {
            let number = i128::from_str_radix(value.as_str(), value.radix()).map_err(|_| mismatch())?;
            let number = u64::try_from(number).ok().filter(|n| (min..=max).contains(n));
            number.map(Value::Number).ok_or_else(|| match max {
                super::keys::ANY => format!("must be {min} or more, not {}", value.as_str()),
                _ => format!("must be between {min} and {max}, not {}", value.as_str()),
            })
        }
        (Kind::Account, DeValue::Integer(value)) => {
            let number = u32::from_str_radix(value.as_str(), value.radix()).map_err(|_| mismatch())?;
            Ok(Value::Text(number.to_string()))
        }
        (Kind::Size { zero: true }, DeValue::Integer(value)) if value.as_str() == "0" => Ok(Value::Number(0)),
        (Kind::Duration { .. } | Kind::Size { .. }, DeValue::Integer(value)) => {
            let unit = if matches!(kind, Kind::Size { .. }) { "MiB" } else { "s" };
            Err(format!("needs a unit, in quotes: \"{}{unit}\"", value.as_str()))
        }
        (_, DeValue::String(value)) => from_text(kind, value).unwrap_or_else(|| Err(mismatch())),
        _ => Err(mismatch()),
    }
}

/// A value that is written as text; `None` where the kind is not.
fn from_text(kind: Kind, value: &str) -> Option<Result<Value, String>> {
    Some(match kind {
        Kind::Duration { zero } => match units::duration(value) {
            Ok(time) if time.is_zero() && !zero => Err("must be more than nothing".to_owned()),
            other => other.map(Value::Duration),
        },
        Kind::Size { zero } => match units::size(value) {
            Ok(0) if !zero => Err("must be more than nothing".to_owned()),
            other => other.map(Value::Number),
        },
        Kind::Mode => units::mode(value).map(|mode| Value::Number(u64::from(mode))),
        Kind::Word(words) if words.contains(&value) => Ok(Value::Text(value.to_owned())),
        Kind::Word(words) => Err(no_such_word(words, value)),
        Kind::Text | Kind::Account | Kind::Path | Kind::Prefix => one_word(kind, value).map(Value::Text),
        _ => return None,
    })
}

fn one_word(kind: Kind, value: &str) -> Result<String, String> {
    if value.is_empty() || value.contains('\0') {
        return Err("must not be empty or hold a NUL".to_owned());
    }
    if matches!(kind, Kind::Path | Kind::Globs | Kind::Prefix) && !value.starts_with('/') {
        let what = if matches!(kind, Kind::Prefix) { "begin with /" } else { "be an absolute path" };
        return Err(format!("must {what}, not \"{value}\""));
    }
    Ok(value.to_owned())
}

fn no_such_word(words: &[&str], value: &str) -> String {
    if words.contains(&"files") && RUNTIMES_LATER.contains(&value) {
        return format!("= \"{value}\" is not there yet: a later version brings it");
    }
    let all: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let all = match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => all.concat(),
    };
    format!("must be {all}, not \"{value}\"{}", near::hint(value, words.iter().copied()))
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| format!("must be text in quotes, not {}", found(value)))
}

fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Says where an unknown key may belong.
fn unknown(table: &'static Table, title: &str, name: &str) -> String {
    for inside in table.keys {
        if let Kind::Table(t) | Kind::Tables(t) = inside.kind
            && t.key(name).is_some()
        {
            let place = inner(title, inside.name);
            let place = if let Kind::Tables(_) = inside.kind { format!("[{place}]") } else { place };
            return format!("\"{name}\" does not stand in {title} but in {place}");
        }
    }
    format!("unknown key \"{name}\" in {title}{}", near::hint(name, table.keys.iter().map(|key| key.name)))
}

/// `[pool.shop]` and `workers`: `[pool.shop.workers]`.
fn inner(title: &str, name: &str) -> String {
    match title.strip_suffix(']') {
        Some(start) => format!("{start}.{name}]"),
        None => format!("[{name}]"),
    }
}
