//! The log: the supervisor's own events and the lines of its workers, as text, JSON or for systemd's journal.
//!
//! Always holds: one event is one line and one write, so that lines of several processes that share the file
//! stay whole; form, level and file can change at a reload; a log that cannot be written never stops anything.
//!
//! Limitation: standard error, where that is the log, blocks while its reader does not read.

use crate::settings::{Log, LogFormat};
use serde_json::{Map, Value};
use std::{
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    sync::{Mutex, OnceLock},
    time::SystemTime,
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer, Registry,
    fmt::{
        format::Writer,
        time::{FormatTime, SystemTime as Stamp},
    },
    layer::{Context, SubscriberExt},
};

static LOG: OnceLock<Mutex<State>> = OnceLock::new();

struct State {
    settings: Log,
    file: Option<File>,
}

/// Starts to log as `settings` say, or from now on as they say where the log was started before.
///
/// # Errors
/// Where the file cannot be opened; the log then goes on as before, or to standard error.
pub(crate) fn set(settings: &Log) -> io::Result<()> {
    let opened = open(settings);
    match LOG.get() {
        None => {
            let (file, error) = match opened {
                Ok(file) => (file, None),
                Err(e) => (None, Some(e)),
            };
            let _ = LOG.set(Mutex::new(State { settings: settings.clone(), file }));
            // It fails only where a test set one before.
            let _ = tracing::subscriber::set_global_default(Registry::default().with(Lines));
            error.map_or(Ok(()), Err)
        }
        Some(log) => {
            let file = opened?;
            if let Ok(mut state) = log.lock() {
                *state = State { settings: settings.clone(), file };
            }
            Ok(())
        }
    }
}

/// Opens the file again: after it was moved away by who rotates logs.
///
/// # Errors
/// Where it cannot be opened; the log then goes on into the old file.
pub(crate) fn reopen() -> io::Result<()> {
    let Some(Ok(mut state)) = LOG.get().map(Mutex::lock) else { return Ok(()) };
    let file = open(&state.settings)?;
    state.file = file;
    Ok(())
}

/// Opens a log file to append to.
///
/// # Errors
/// As the system says.
pub(crate) fn append(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

fn open(settings: &Log) -> io::Result<Option<File>> {
    settings.file.as_deref().map(append).transpose()
}

/// Turns events into lines.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        match LOG.get().map(Mutex::lock) {
            Some(Ok(state)) => *metadata.level() <= state.settings.level,
            _ => false,
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some(Ok(state)) = LOG.get().map(Mutex::lock) else { return };
        let level = *event.metadata().level();
        let mut line = match state.settings.format {
            LogFormat::Text => text(level, &fields, &now()),
            LogFormat::Json => json(level, fields, &now()),
            LogFormat::Journal => journal(level, &fields),
        };
        line.push('\n');
        let _ = match &state.file {
            Some(file) => (&*file).write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.push((field.name(), Value::String(format!("{value:?}"))));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.others.push((field.name(), Value::String(value.to_owned())));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.into()));
    }
}

/// `2026-01-02T03:04:05.000006Z INFO  pool=shop worker=12 what happened`
fn text(level: Level, fields: &Fields, time: &str) -> String {
    format!("{time} {level:<5} {}{}", pairs(fields), one_line(&fields.message))
}

fn json(level: Level, fields: Fields, time: &str) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), time.into());
    object.insert("level".to_owned(), level.to_string().to_lowercase().into());
    object.extend(fields.others.into_iter().map(|(name, value)| (name.to_owned(), value)));
    object.insert("message".to_owned(), fields.message.into());
    Value::Object(object).to_string()
}

/// The journal has the time and the process already; it wants a priority (sd-daemon(3)).
fn journal(level: Level, fields: &Fields) -> String {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    format!("<{priority}>{}{}", pairs(fields), one_line(&fields.message))
}

fn pairs(fields: &Fields) -> String {
    let mut out = String::new();
    for (name, value) in &fields.others {
        let value = match value {
            Value::String(text) if text.contains([' ', '"', '=']) || text.is_empty() => format!("{text:?}"),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let _ = write!(out, "{name}={} ", one_line(&value));
    }
    out
}

/// Whatever stands in a message, it stays one line.
fn one_line(text: &str) -> String {
    super::lines::escaped(text.as_bytes())
}

fn now() -> String {
    let mut out = String::new();
    let _ = Stamp.format_time(&mut Writer::new(&mut out));
    if out.is_empty() {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let _ = write!(out, "{}", since.as_secs());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &str) -> Fields {
        Fields {
            message: message.to_owned(),
            others: vec![("pool", "shop".into()), ("worker", 12.into()), ("why", "two words".into())],
        }
    }

    #[test]
    fn text_names_what_it_is_about_before_what_happened() {
        let line = text(Level::INFO, &fields("a worker is ready"), "T");
        assert_eq!(line, "T INFO  pool=shop worker=12 why=\"two words\" a worker is ready");
    }

    #[test]
    fn json_is_one_object() {
        let line = json(Level::WARN, fields("say \"it\"\n"), "T");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["message"], "say \"it\"\n");
        assert_eq!(value["worker"], 12);
        assert_eq!(value["level"], "warn");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn the_journal_gets_a_priority_and_one_line() {
        assert_eq!(journal(Level::ERROR, &fields("a\nb")), "<3>pool=shop worker=12 why=\"two words\" a\\nb");
    }
}
