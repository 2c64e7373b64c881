//! Every key of the config: name, type, default, meaning, example. The check, its messages, the tests and the
//! manual page hostler.toml(5) come from here and from nowhere else.
//!
//! Always holds: each example passes the check; each default is what a config without the key means.

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

/// The runtimes of this version.
pub(crate) const RUNTIMES: &[&str] = &["files", "cgi", "fastcgi", "native"];
/// The runtimes that are reserved.
pub(crate) const RUNTIMES_LATER: &[&str] = &["python", "mono"];

const FILES: &[&str] = &["files"];
const CGI: &[&str] = &["cgi"];
const FASTCGI: &[&str] = &["fastcgi"];

const RUNTIME: Key = key(
    "runtime",
    Kind::Word(RUNTIMES),
    None,
    "How a worker runs the app: files (static files), cgi (one process a request), fastcgi (a FastCGI program \
     of someone else's, one a worker), native (your own program that is a worker itself).",
    "\"files\"",
);
const ROOT: Key = of(
    &["files", "cgi", "fastcgi"],
    key(
        "root",
        Kind::Path,
        None,
        "Directory that nothing leaves. Needed with files and cgi. With fastcgi, directory of the scripts: a \
         request that names no SCRIPT_FILENAME, as over HTTP, gets the one along its path.",
        "\"/srv/shop/static\"",
    ),
);
const INDEX: Key = of(
    &["files", "cgi", "fastcgi"],
    key(
        "index",
        Kind::Words,
        None,
        "Names tried in a directory, in order. Where absent: index.html with files, none elsewhere.",
        "[\"index.html\", \"index.htm\"]",
    ),
);
const LISTING: Key =
    of(FILES, key("listing", Kind::Bool, Some("false"), "List a directory that has no index.", "true"));
const SYMLINKS: Key = of(
    FILES,
    key(
        "symlinks",
        Kind::Word(&["never", "beneath"]),
        Some("\"beneath\""),
        "Which symbolic links are followed: none, or those that stay beneath root.",
        "\"never\"",
    ),
);
const DOT_FILES: Key =
    of(FILES, key("dot_files", Kind::Bool, Some("false"), "Serve names that begin with a dot.", "true"));
const PRECOMPRESSED: Key = of(
    FILES,
    key(
        "precompressed",
        Kind::Bool,
        Some("true"),
        "Send x.br or x.gz in place of x, where it is there and the client takes it.",
        "false",
    ),
);
const CACHE_CONTROL: Key = of(
    FILES,
    key("cache_control", Kind::Text, None, "Value of the Cache-Control header.", "\"public, max-age=3600\""),
);
const SCRIPT_FILENAME: Key = of(
    CGI,
    key(
        "script_filename",
        Kind::Bool,
        Some("false"),
        "Run what the web server names in SCRIPT_FILENAME, which must lie beneath root, instead of looking for \
         the script along the path.",
        "true",
    ),
);
const OWNER: Key = of(
    CGI,
    key("owner", Kind::Account, None, "The user that must own a script for it to be run.", "\"shop\""),
);
const COMMAND: Key = of(
    &["fastcgi", "native"],
    key(
        "command",
        Kind::Words,
        None,
        "Program and arguments. Needed. With native it is the worker, one for the whole pool.",
        "[\"/usr/bin/php-cgi\"]",
    ),
);
const LISTEN_BY: Key = of(
    FASTCGI,
    key(
        "listen_by",
        Kind::Word(&["fd0", "path", "argument"]),
        Some("\"fd0\""),
        "How the program learns where to listen: its descriptor 0 is the listener; FCGI_LISTEN in its \
         environment is the path of a Unix socket that it binds; or that path stands in place of {listen} in \
         its arguments.",
        "\"argument\"",
    ),
);
const CONCURRENCY: Key = of(
    FASTCGI,
    key(
        "concurrency",
        Kind::Number { min: 1, max: 10_000 },
        Some("1"),
        "Requests that one program may have at once.",
        "4",
    ),
);
const READY_PATH: Key = of(
    FASTCGI,
    key(
        "ready_path",
        Kind::Prefix,
        None,
        "Path to ask for until it answers; where absent, the program is ready as soon as it can be connected to.",
        "\"/health\"",
    ),
);
const MODULE: Key = of(&["python"], key("module", Kind::Later, None, LATER, "\"shop.wsgi:application\""));

/// `[pool.NAME]`.
pub(crate) static POOL: Table = Table {
    title: "[pool.NAME]",
    meaning: "A set of like workers behind one or more listeners, under one user. The name is made of letters, \
              digits, \"-\", \"_\" and \".\". What a runtime needs (root, command and so on) stands here or, \
              where a pool has several apps, at each app; an app takes from here what it does not say itself.",
    keys: &[
        key(
            "listen",
            Kind::Listen,
            None,
            "Where requests come from. Needed. One address, or a list of addresses and of tables as below.",
            "[\"unix:/run/hostler/shop.sock\"]",
        ),
        key(
            "user",
            Kind::Account,
            None,
            "Whom the workers become, with all groups of that user. Needed where Hostler is started by root; \
             elsewhere it is whoever started Hostler.",
            "\"www-data\"",
        ),
        key("group", Kind::Account, None, "Primary group in place of the user's own.", "\"www-data\""),
        key("directory", Kind::Path, None, "Working directory of the workers.", "\"/srv\""),
        key("umask", Kind::Mode, Some("\"0022\""), "File mode creation mask of the workers.", "\"0027\""),
        key(
            "env",
            Kind::Map,
            Some("{}"),
            "Environment of the workers, besides PATH, HOME, USER, LOGNAME and keep_env. Nothing else of the \
             supervisor's environment reaches them.",
            "{ LANG = \"C.UTF-8\" }",
        ),
        key(
            "keep_env",
            Kind::Words,
            Some("[]"),
            "Names of variables to take from the supervisor's own environment.",
            "[\"LANG\"]",
        ),
        RUNTIME,
        ROOT,
        INDEX,
        LISTING,
        SYMLINKS,
        DOT_FILES,
        PRECOMPRESSED,
        CACHE_CONTROL,
        SCRIPT_FILENAME,
        OWNER,
        COMMAND,
        LISTEN_BY,
        CONCURRENCY,
        READY_PATH,
        MODULE,
        key(
            "request_timeout",
            Kind::Duration { zero: true },
            Some("\"0s\""),
            "How long a request may take once a worker has it; its client then gets 504. \"0s\": as long as it \
             likes. A connection at rest does not count.",
            "\"60s\"",
        ),
        key(
            "queue_timeout",
            Kind::Duration { zero: true },
            Some("\"30s\""),
            "How long a request may wait for a worker; its client then gets 503. \"0s\": as long as it likes.",
            "\"10s\"",
        ),
        key(
            "read_timeout",
            Kind::Duration { zero: false },
            Some("\"30s\""),
            "How long the next byte of a request may take.",
            "\"10s\"",
        ),
        key(
            "write_timeout",
            Kind::Duration { zero: false },
            Some("\"30s\""),
            "How long the peer may take to accept the next byte of an answer.",
            "\"10s\"",
        ),
        key(
            "keepalive_timeout",
            Kind::Duration { zero: false },
            Some("\"75s\""),
            "How long a kept HTTP connection may rest. Kept FastCGI connections rest for as long as the web \
             server likes.",
            "\"15s\"",
        ),
        key(
            "max_connections",
            Kind::Number { min: 1, max: 1_000_000 },
            Some("16384"),
            "Connections that one worker holds, most of them at rest.",
            "1000",
        ),
        key(
            "max_body",
            Kind::Size { zero: true },
            Some("\"64MiB\""),
            "Largest body of a request; over it the client gets 413.",
            "\"1GiB\"",
        ),
        key(
            "max_params",
            Kind::Size { zero: false },
            Some("\"256KiB\""),
            "Largest set of FastCGI parameters, or HTTP head.",
            "\"64KiB\"",
        ),
        key(
            "stop_timeout",
            Kind::Duration { zero: false },
            None,
            "How long a worker that leaves may take to finish its request before it is ended. Where absent, as \
             in [supervisor].",
            "\"5m\"",
        ),
        key(
            "watch",
            Kind::Globs,
            Some("[]"),
            "Files whose change reloads the pool, as absolute globs; ** stands for any directories.",
            "[\"/srv/shop/**/*.py\"]",
        ),
        key(
            "access_log",
            Kind::Table(&ACCESS_LOG),
            None,
            "Log of all requests; none where absent.",
            "{ file = \"/var/log/hostler/shop.access.log\" }",
        ),
        key(
            "slow_log",
            Kind::Duration { zero: true },
            Some("\"0s\""),
            "A request that takes longer is logged. \"0s\": none is.",
            "\"2s\"",
        ),
        key("limits", Kind::Table(&LIMITS), None, "Resource limits of each worker.", "{ core = \"0\" }"),
        key("sandbox", Kind::Later, None, LATER, "{}"),
        key("workers", Kind::Table(&WORKERS), None, "How many workers.", "{ model = \"dynamic\" }"),
        key("memory", Kind::Table(&MEMORY), None, "Limits of private memory.", "{ soft = \"256MiB\" }"),
        key("app", Kind::Tables(&APP), None, "Which app answers what.", "[]"),
    ],
};

/// One entry of `listen`.
pub(crate) static LISTEN: Table = Table {
    title: "an entry of listen",
    meaning: "Where requests come from.",
    keys: &[
        key(
            "address",
            Kind::Text,
            None,
            "unix:/path, unix:@name (abstract), tcp:127.0.0.1:9000, tcp:[::1]:9000, or systemd:NAME for the \
             sockets that systemd passes under this FileDescriptorName. Needed.",
            "\"unix:/run/hostler/shop.sock\"",
        ),
        key(
            "protocol",
            Kind::Word(&["fastcgi", "http"]),
            Some("\"fastcgi\""),
            "What is spoken there.",
            "\"http\"",
        ),
        key(
            "allow",
            Kind::Words,
            Some("[]"),
            "TCP alone: networks that may connect, such as 10.0.0.0/8 or ::1; where absent, all. IPv4 clients \
             of an IPv6 listener count by their IPv4 address.",
            "[\"127.0.0.0/8\"]",
        ),
        key("mode", Kind::Mode, Some("\"0660\""), "Mode of a Unix socket's file.", "\"0666\""),
        key("owner", Kind::Account, None, "Owner of a Unix socket's file.", "\"www-data\""),
        key(
            "group",
            Kind::Account,
            None,
            "Group of a Unix socket's file: the web server's, as a rule.",
            "\"www-data\"",
        ),
        key(
            "backlog",
            Kind::Number { min: 1, max: 1 << 31 },
            Some("4096"),
            "Connections that the kernel holds until a worker takes them; never more than net.core.somaxconn.",
            "1024",
        ),
        key(
            "v6only",
            Kind::Bool,
            Some("false"),
            "An IPv6 listener takes no IPv4 clients. Where false, tcp:[::]:PORT takes both.",
            "true",
        ),
    ],
};

/// `access_log`.
pub(crate) static ACCESS_LOG: Table = Table {
    title: "access_log of [pool.NAME]",
    meaning: "One line a request.",
    keys: &[
        key(
            "file",
            Kind::Path,
            None,
            "File to append to, reopened at SIGUSR1. Needed.",
            "\"/var/log/hostler/shop.access.log\"",
        ),
        key(
            "format",
            Kind::Word(&["text", "json"]),
            Some("\"text\""),
            "The combined form with the request's milliseconds, or one JSON object.",
            "\"json\"",
        ),
    ],
};

/// `limits`.
pub(crate) static LIMITS: Table = Table {
    title: "limits of [pool.NAME]",
    meaning: "Resource limits of each worker, as in setrlimit(2). Where absent, the supervisor's own.",
    keys: &[
        key(
            "open_files",
            Kind::Number { min: 64, max: 1 << 30 },
            None,
            "Descriptors (RLIMIT_NOFILE).",
            "4096",
        ),
        key("core", Kind::Size { zero: true }, None, "Core dumps (RLIMIT_CORE).", "\"0\""),
    ],
};

/// `[pool.NAME.workers]`.
pub(crate) static WORKERS: Table = Table {
    title: "[pool.NAME.workers]",
    meaning: "How many workers, and for how long each.",
    keys: &[
        key(
            "model",
            Kind::Word(&["static", "dynamic", "ondemand"]),
            Some("\"dynamic\""),
            "static: always count. dynamic: between min and max, spare of them idle where possible. ondemand: \
             none at rest, up to max.",
            "\"static\"",
        ),
        key("count", Kind::Number { min: 1, max: 10_000 }, None, "Workers (static). Needed there.", "4"),
        key("min", Kind::Number { min: 1, max: 10_000 }, Some("1"), "Fewest workers (dynamic).", "2"),
        key(
            "max",
            Kind::Number { min: 1, max: 10_000 },
            Some("8"),
            "Most workers (dynamic, ondemand).",
            "16",
        ),
        key(
            "spare",
            Kind::Number { min: 0, max: 10_000 },
            Some("1"),
            "Idle workers to hold ready for the next request (dynamic).",
            "2",
        ),
        key(
            "idle_timeout",
            Kind::Duration { zero: false },
            Some("\"30s\""),
            "A worker that is not needed leaves after this time without a request (dynamic, ondemand).",
            "\"2m\"",
        ),
        key(
            "max_requests",
            Kind::Number { min: 0, max: ANY },
            Some("0"),
            "A worker is replaced after this many requests; none is lost by it. 0: never.",
            "10000",
        ),
        key(
            "max_requests_jitter",
            Kind::Number { min: 0, max: ANY },
            Some("0"),
            "Up to this many are taken off max_requests, by chance, so that workers do not leave together.",
            "500",
        ),
        key(
            "boot_timeout",
            Kind::Duration { zero: false },
            Some("\"30s\""),
            "How long a worker may take until it is ready.",
            "\"2m\"",
        ),
    ],
};

/// `[pool.NAME.memory]`.
pub(crate) static MEMORY: Table = Table {
    title: "[pool.NAME.memory]",
    meaning: "Limits of private memory: of a worker with the processes that it started; shared pages do not \
              count. Where absent, there is no limit.",
    keys: &[
        key(
            "soft",
            Kind::Size { zero: false },
            None,
            "A worker over it after a request is replaced: the new one starts first, and nothing is lost.",
            "\"256MiB\"",
        ),
        key(
            "hard",
            Kind::Size { zero: false },
            None,
            "A worker over it at any time is killed, by the kernel where it gave us cgroups.",
            "\"512MiB\"",
        ),
        key(
            "pool",
            Kind::Size { zero: false },
            None,
            "All workers together: over it the fattest is replaced first.",
            "\"4GiB\"",
        ),
    ],
};

/// `[[pool.NAME.app]]`.
pub(crate) static APP: Table = Table {
    title: "[[pool.NAME.app]]",
    meaning: "Which app of a pool answers what. Chosen by host (the exact one, then *.domain, then any), then by \
              the longest path that ends at a \"/\". A pool without an app serves its runtime at / for any host.",
    keys: &[
        key("path", Kind::Prefix, Some("\"/\""), "Path prefix.", "\"/static\""),
        key(
            "host",
            Kind::Text,
            None,
            "Host, or *.domain for all below it; any where absent. Without port.",
            "\"shop.example\"",
        ),
        RUNTIME,
        ROOT,
        INDEX,
        LISTING,
        SYMLINKS,
        DOT_FILES,
        PRECOMPRESSED,
        CACHE_CONTROL,
        SCRIPT_FILENAME,
        OWNER,
        of(
            &["cgi", "fastcgi"],
            key(
                "env",
                Kind::Map,
                Some("{}"),
                "Environment of this app, besides the pool's.",
                "{ A = \"b\" }",
            ),
        ),
        COMMAND,
        LISTEN_BY,
        CONCURRENCY,
        READY_PATH,
        MODULE,
    ],
};

/// All tables, in the order of the manual.
pub(crate) static ALL: &[&Table] =
    &[&FILE, &SUPERVISOR, &LOG, &POOL, &LISTEN, &ACCESS_LOG, &LIMITS, &WORKERS, &MEMORY, &APP];

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
