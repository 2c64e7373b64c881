//! Keys of an app, which a pool may have too ([`serving_keys`] lists them once), and `[[pool.NAME.app]]`.

use super::{Key, Kind, LATER, Table, key, of};

/// The runtimes of this version.
pub(crate) const RUNTIMES: &[&str] = &["files", "cgi", "fastcgi", "native"];
/// The runtimes that are reserved.
pub(crate) const RUNTIMES_LATER: &[&str] = &["python", "mono"];

const FILES: &[&str] = &["files"];
const CGI: &[&str] = &["cgi"];
const FASTCGI: &[&str] = &["fastcgi"];

pub(super) const RUNTIME: Key = key(
    "runtime",
    Kind::Word(RUNTIMES),
    None,
    "How a worker runs the app: files (static files), cgi (one process a request), fastcgi (a FastCGI program \
     of someone else's, one a worker), native (your own program that is a worker itself).",
    "\"files\"",
);
pub(super) const ROOT: Key = of(
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
pub(super) const INDEX: Key = of(
    &["files", "cgi", "fastcgi"],
    key(
        "index",
        Kind::Words,
        None,
        "Names tried in a directory, in order. Where absent: index.html with files, none elsewhere.",
        "[\"index.html\", \"index.htm\"]",
    ),
);
pub(super) const LISTING: Key =
    of(FILES, key("listing", Kind::Bool, Some("false"), "List a directory that has no index.", "true"));
pub(super) const SYMLINKS: Key = of(
    FILES,
    key(
        "symlinks",
        Kind::Word(&["never", "beneath"]),
        Some("\"beneath\""),
        "Which symbolic links are followed: none, or those that stay beneath root.",
        "\"never\"",
    ),
);
pub(super) const DOT_FILES: Key =
    of(FILES, key("dot_files", Kind::Bool, Some("false"), "Serve names that begin with a dot.", "true"));
pub(super) const PRECOMPRESSED: Key = of(
    FILES,
    key(
        "precompressed",
        Kind::Bool,
        Some("true"),
        "Send x.br or x.gz in place of x, where it is there and the client takes it.",
        "false",
    ),
);
pub(super) const CACHE_CONTROL: Key = of(
    FILES,
    key("cache_control", Kind::Text, None, "Value of the Cache-Control header.", "\"public, max-age=3600\""),
);
pub(super) const SCRIPT_FILENAME: Key = of(
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
pub(super) const OWNER: Key = of(
    CGI,
    key("owner", Kind::Account, None, "The user that must own a script for it to be run.", "\"shop\""),
);
pub(super) const COMMAND: Key = of(
    &["fastcgi", "native"],
    key(
        "command",
        Kind::Words,
        None,
        "Program and arguments. Needed. With native it is the worker, one for the whole pool.",
        "[\"/usr/bin/php-cgi\"]",
    ),
);
pub(super) const LISTEN_BY: Key = of(
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
pub(super) const CONCURRENCY: Key = of(
    FASTCGI,
    key(
        "concurrency",
        Kind::Number { min: 1, max: 10_000 },
        Some("1"),
        "Requests that one program may have at once: so many workers share it, one of which starts and ends it. For \
         programs with threads (Go, fastcgi-mono-server4); max_requests and memory count what goes through that one \
         worker, and its program is in its memory.",
        "4",
    ),
);
pub(super) const KEEP_CONNECTIONS: Key = of(
    FASTCGI,
    key(
        "keep_connections",
        Kind::Bool,
        Some("true"),
        "Ask the program to keep its connection open after an answer. false for fastcgi-mono-server4, which breaks \
         at that.",
        "false",
    ),
);
pub(super) const READY_PATH: Key = of(
    FASTCGI,
    key(
        "ready_path",
        Kind::Prefix,
        None,
        "Path to ask for until it answers; where absent, the program is ready as soon as it can be connected to.",
        "\"/health\"",
    ),
);
pub(super) const MODULE: Key =
    of(&["python"], key("module", Kind::Later, None, LATER, "\"shop.wsgi:application\""));

/// The keys of a table that says what serves: those of its own before, the ones that a pool and an app have in
/// common, and those of its own after.
macro_rules! serving_keys {
    ([$($before:expr),* $(,)?], [$($after:expr),* $(,)?]) => {{
        use $crate::config::keys::app as common;
        &[
            $($before,)*
            common::RUNTIME,
            common::ROOT,
            common::INDEX,
            common::LISTING,
            common::SYMLINKS,
            common::DOT_FILES,
            common::PRECOMPRESSED,
            common::CACHE_CONTROL,
            common::SCRIPT_FILENAME,
            common::OWNER,
            common::COMMAND,
            common::LISTEN_BY,
            common::CONCURRENCY,
            common::KEEP_CONNECTIONS,
            common::READY_PATH,
            common::MODULE,
            $($after,)*
        ]
    }};
}
pub(super) use serving_keys;

/// `[[pool.NAME.app]]`.
pub(crate) static APP: Table = Table {
    title: "[[pool.NAME.app]]",
    meaning: "Which app of a pool answers what. Chosen by host (the exact one, then *.domain, then any), then by \
              the longest path that ends at a \"/\". A pool without an app serves its runtime at / for any host.",
    keys: serving_keys!(
        [
            key("path", Kind::Prefix, Some("\"/\""), "Path prefix.", "\"/static\""),
            key(
                "host",
                Kind::Text,
                None,
                "Host, or *.domain for all below it; any where absent. Without port.",
                "\"shop.example\"",
            ),
        ],
        [of(
            &["cgi", "fastcgi"],
            key(
                "env",
                Kind::Map,
                Some("{}"),
                "Environment of this app, besides the pool's.",
                "{ A = \"b\" }",
            ),
        ),]
    ),
};
