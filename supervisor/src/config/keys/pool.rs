//! `[pool.NAME]` and the tables in it.

use super::{
    ANY, Kind, Table,
    app::{APP, serving_keys},
    key,
};

/// `[pool.NAME]`.
pub(crate) static POOL: Table = Table {
    title: "[pool.NAME]",
    meaning: "A set of like workers behind one or more listeners, under one user. The name is made of letters, \
              digits, \"-\", \"_\" and \".\". What a runtime needs (root, command and so on) stands here or, \
              where a pool has several apps, at each app; an app takes from here what it does not say itself.",
    keys: serving_keys!(
        [
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
        ],
        [
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
                "How long the workers of a stopped pool may take to finish their requests before they are ended; \
                 where absent, as in [supervisor]. A worker that is replaced, by a reload or since it is worn, has \
                 request_timeout and this time together; without a request_timeout, this time where it is written \
                 here, and an hour where it is not.",
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
                "A request that takes longer is logged, with where its worker and the programs that the worker \
                 started wait in the kernel: its whole stack where Hostler has CAP_SYS_ADMIN, which the packaged unit does not \
                 give; else the one function that each sleeps in. \"0s\": none is.",
                "\"2s\"",
            ),
            key("limits", Kind::Table(&LIMITS), None, "Resource limits of each worker.", "{ core = \"0\" }"),
            key(
                "sandbox",
                Kind::Table(&SANDBOX),
                None,
                "What the workers and all that they start may reach. Where absent, all that their user may; but \
                 the workers of a pool that serves nothing but files read nothing outside the directories in which their \
                 roots lie.",
                "{ write = [\"/var/lib/shop\"], network = false }",
            ),
            key("workers", Kind::Table(&WORKERS), None, "How many workers.", "{ model = \"dynamic\" }"),
            key("memory", Kind::Table(&MEMORY), None, "Limits of private memory.", "{ soft = \"256MiB\" }"),
            key("app", Kind::Tables(&APP), None, "Which app answers what.", "[]"),
        ]
    ),
};

/// `[pool.NAME.sandbox]`.
pub(crate) static SANDBOX: Table = Table {
    title: "[pool.NAME.sandbox]",
    meaning: "What the workers of the pool and all that they start may reach, within what their user may. Beside \
              what is named here they can read and execute what lies beneath /usr, /bin, /sbin, /lib, /lib64, /opt \
              and /etc, read /proc, use their directory for temporary files and the \
              devices null, zero, full, random and urandom, and read the directories in which the roots of the \
              pool's apps lie, since a deploy may put another root in the place of one. /tmp and /var/tmp they cannot \
              reach, unless \"write\" names them: TMPDIR names a directory of the pool's own, which \
              mktemp(1), Python's tempfile, PHP and all that goes by TMPDIR use. Its workers share it, also over \
              reloads and upgrades; it is removed when the pool is dropped and when Hostler ends. A TMPDIR of \"env\" is \
              used in its place, and left alone. An app that writes to \"/tmp/\" by that name needs either that in \
              \"write\", or hostler@.service, which has a /tmp of its own. Modes, owners, times and attributes of files \
              are not guarded. An app that \
              reaches for more is told \"permission denied\" (EACCES). Needs Landlock (Linux 5.13), and for \
              network = false seccomp; a kernel that lacks them lets no worker start.",
    keys: &[
        key(
            "read",
            Kind::Globs,
            Some("[]"),
            "Files and directories to read and execute from, as absolute paths without wildcards.",
            "[\"/srv/shop\"]",
        ),
        key(
            "write",
            Kind::Globs,
            Some("[]"),
            "Files and directories to read, write, make, remove and execute.",
            "[\"/var/lib/shop\"]",
        ),
        key(
            "network",
            Kind::Bool,
            Some("true"),
            "Where false, no socket but a Unix one can be made: no connection to anywhere by TCP or UDP.",
            "false",
        ),
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
