//! Every key of the config: name, type, default, meaning, example. The check, its messages, the tests and the
//! manual page hostler.toml(5) come from here and from nowhere else.
//!
//! Always holds: each example passes the check; each default is what a config without the key means.

mod app;
mod pool;

pub(crate) use app::{APP, RUNTIMES_LATER};
pub(crate) use pool::{ACCESS_LOG, LIMITS, LISTEN, MEMORY, POOL, SANDBOX, WORKERS};

/// A table of the config and its keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// As a heading in the manual: `[pool.NAME]`.
    pub title: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// In the order of the manual.
    pub keys: &'static [Key],
}

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name.
    pub name: &'static str,
    /// What may stand behind it.
    pub kind: Kind,
    /// What stands for it where it is absent, in TOML; `None`: nothing, or as `meaning` says.
    pub default: Option<&'static str>,
    /// For the manual, in a sentence or three.
    pub meaning: &'static str,
    /// In TOML, what stands behind the `=`.
    pub example: &'static str,
    /// The runtimes that it is for; empty: all.
    pub of: &'static [&'static str],
}

/// What may stand behind a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// `"30s"`.
    Duration {
        /// `"0s"` is allowed.
        zero: bool,
    },
    /// `"64MiB"`.
    Size {
        /// `"0"` is allowed.
        zero: bool,
    },
    /// `"0660"`.
    Mode,
    /// Any text that is not empty.
    Text,
    /// An absolute path.
    Path,
    /// A path of a URL, from `/`.
    Prefix,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts.
    Words,
    /// A list of absolute paths, `*` and the like allowed.
    Globs,
    /// Names with texts.
    Map,
    /// A user or group: its name or number.
    Account,
    /// An address, a table with one, or a list of these.
    Listen,
    /// A table.
    Table(&'static Table),
    /// A list of tables.
    Tables(&'static Table),
    /// Known, and refused: a later version brings it.
    Later,
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    meaning: &'static str,
    example: &'static str,
) -> Key {
    Key { name, kind, default, meaning, example, of: &[] }
}

const fn of(runtimes: &'static [&'static str], key: Key) -> Key {
    Key { of: runtimes, ..key }
}

const LATER: &str = "Reserved for a later version, and refused by this one.";
/// No upper bound: the largest number of TOML.
pub(crate) const ANY: u64 = i64::MAX as u64;

/// The whole file.
pub(crate) static FILE: Table = Table {
    title: "the file",
    meaning: "hostler.toml holds [supervisor] and may hold pools; the files that it includes hold pools alone.",
    keys: &[
        key("supervisor", Kind::Table(&SUPERVISOR), None, "The supervisor itself.", "{}"),
        key("pool", Kind::Table(&POOLS), None, "The pools, each under its name.", "{}"),
    ],
};

/// `[pool]`: its keys are names.
pub(crate) static POOLS: Table = Table { title: "[pool]", meaning: "The pools, by name.", keys: &[] };

/// `[supervisor]`.
pub(crate) static SUPERVISOR: Table = Table {
    title: "[supervisor]",
    meaning: "The one parent process. Not in included files.",
    keys: &[
        key(
            "control",
            Kind::Text,
            None,
            "Unix socket on which the supervisor takes commands, for root and its own user alone. Where absent: \
             unix:/run/hostler/control.sock for root, $XDG_RUNTIME_DIR/hostler/control.sock for others.",
            "\"unix:/run/hostler/control.sock\"",
        ),
        key("admin", Kind::Later, None, LATER, "\"tcp:127.0.0.1:9180\""),
        key(
            "include",
            Kind::Words,
            Some("[]"),
            "More files to read, as globs; relative to the directory of this file. They are read in the order \
             of the list, those of one glob by name.",
            "[\"pools.d/*.toml\"]",
        ),
        key(
            "stop_timeout",
            Kind::Duration { zero: false },
            Some("\"30s\""),
            "How long a graceful stop may take before what still runs is ended; the default of each pool's own.",
            "\"60s\"",
        ),
        key("log", Kind::Table(&LOG), None, "Where and how the supervisor logs.", "{ level = \"info\" }"),
    ],
};

/// `log` of `[supervisor]`.
pub(crate) static LOG: Table = Table {
    title: "log of [supervisor]",
    meaning: "The supervisor's own log, into which the workers' output goes too, each line with its pool.",
    keys: &[
        key(
            "level",
            Kind::Word(&["error", "warn", "info", "debug", "trace"]),
            Some("\"info\""),
            "The least that is logged.",
            "\"debug\"",
        ),
        key(
            "format",
            Kind::Word(&["text", "json", "journal"]),
            Some("\"text\""),
            "Form of a line: for people, one JSON object, or for systemd's journal with a priority in front and \
             no time.",
            "\"json\"",
        ),
        key(
            "file",
            Kind::Text,
            Some("\"-\""),
            "File to append to, reopened at SIGUSR1; \"-\" is standard error.",
            "\"/var/log/hostler/hostler.log\"",
        ),
    ],
};

/// All tables, in the order of the manual.
pub(crate) static ALL: &[&Table] =
    &[&FILE, &SUPERVISOR, &LOG, &POOL, &LISTEN, &ACCESS_LOG, &LIMITS, &SANDBOX, &WORKERS, &MEMORY, &APP];

impl Table {
    /// The key with this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// What must stand there: the end of a sentence that begins with "must be".
    pub(crate) fn wanted(&self) -> &'static str {
        match self {
            Kind::Bool => "true or false",
            Kind::Number { .. } => "a whole number",
            Kind::Duration { .. } => "a time such as \"30s\"",
            Kind::Size { .. } => "a size such as \"64MiB\"",
            Kind::Mode => "octal such as \"0660\", in quotes",
            Kind::Text | Kind::Word(_) => "text in quotes",
            Kind::Path => "an absolute path in quotes",
            Kind::Prefix => "a path in quotes that begins with /",
            Kind::Words => "a list such as [\"a\", \"b\"]",
            Kind::Globs => "a list of absolute paths such as [\"/srv/app/*.py\"]",
            Kind::Map => "a table such as { NAME = \"value\" }",
            Kind::Account => "a name or a number",
            Kind::Listen => "an address, a table with an address, or a list of these",
            Kind::Table(_) => "a table",
            Kind::Tables(_) => "a list of tables",
            Kind::Later => "absent",
        }
    }
}
