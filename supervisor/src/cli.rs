//! The command line: what `hostler` and its commands take, and the help that people read.
//!
//! Does nothing itself. Wrong usage ends with 2, as clap has it.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{ffi::OsString, path::PathBuf};

/// `hostler`.
#[derive(Debug, Parser)]
#[command(
    name = "hostler",
    version,
    about = "Hosts web apps over FastCGI and HTTP: stays up, stays small, loses nothing.",
    after_help = "New here? \"hostler demo\" needs no config; \"hostler serve DIR\" serves a directory.\n\
                  Exit codes: 0 done, 1 it did not work, 2 wrong usage, 69 no supervisor there,\n\
                  77 no permission, 78 bad config.",
    subcommand_required = true,
    arg_required_else_help = true,
    infer_subcommands = false,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a built-in site, to see Hostler at work
    ///
    /// Needs no config and no other program. Serves a page, files and a form that takes an upload, over HTTP and
    /// over FastCGI on a Unix socket, and prints the addresses and three things to try. Ctrl-C ends it.
    Demo(Demo),
    /// Serve one directory or program, without config
    ///
    /// Guesses the runtime from what lies there and says what it guessed: an executable program is native;
    /// index.php is PHP, run by php-cgi; *.cgi are CGI scripts; *.aspx is ASP.NET, run by fastcgi-mono-server4;
    /// anything else is static files. Ctrl-C ends it.
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Be the supervisor: read the config, start the workers, stay in the foreground
    ///
    /// SIGHUP reloads, SIGUSR1 reopens log files, SIGUSR2 goes on with the program that is now on disk, SIGTERM
    /// and SIGQUIT stop gracefully, SIGINT stops now.
    Run(Config),
    /// Check the config, and try what can be tried without serving
    ///
    /// Prints every fault as FILE:LINE:COLUMN: message. Looks whether users, directories and programs are there
    /// and whether the addresses can be listened on, and boots a worker of each pool, as its user, that serves
    /// nobody and is ended again. Ends with 0 where all is well, with 78 where not.
    Check(Config),
    /// Reload the config and the apps, without losing a request
    ///
    /// New workers start first, then the old ones leave. Waits until the new ones serve, or failed: then the old
    /// ones go on serving. Prints one line a pool; ends with 1 where a pool kept its old workers.
    Reload(Reload),
    /// Show how all pools do, or one pool with its workers
    Status(Status),
    /// Stop one pool, or the supervisor with all pools, gracefully
    ///
    /// Requests in hand are finished, within stop_timeout. A stopped pool answers 503.
    Stop(OnePoolOrAll),
    /// Start a pool that was stopped
    Start(OnePool),
    /// Stop a pool, then start it
    ///
    /// Its old workers are gone before the new ones come, so that the two never run side by side; meanwhile
    /// requests wait. "hostler reload" is the way that loses no time.
    Restart(OnePool),
    /// Print the set-up of another server as Hostler config
    ///
    /// Reads php-fpm's pool files (or php-fpm.conf with what it includes), uWSGI's ini files, fcgiwrap's systemd
    /// units, and mono's .webapp files, --applications lines and HyperFastCgi's XML. What cannot be carried over
    /// stands in a comment with the reason. Changes nothing.
    Import(Import),
    /// Say whether this program can go on from a running supervisor's state: what SIGUSR2 asks first
    #[command(hide = true)]
    Probe,
    /// Write the manual pages to a directory: for packages
    #[command(hide = true)]
    Man {
        /// Made where it is missing.
        directory: PathBuf,
    },
    /// Print what a shell needs to complete commands: for packages
    #[command(hide = true)]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Be a worker: what the supervisor starts
    #[command(hide = true)]
    Worker {
        /// For the list of processes alone.
        #[arg(hide = true)]
        pool: Option<OsString>,
    },
}

const SERVE_HELP: &str = "\
Addresses: 8080, 127.0.0.1:8080, [::1]:8080, tcp:…, unix:/path, unix:@name. HTTP is spoken on TCP,
FastCGI on a Unix socket; \"http:\" or \"fastcgi:\" in front says otherwise: fastcgi:127.0.0.1:9000.

The spellings of mono's servers are taken too, also with / in front:
  hostler serve --socket=tcp:9000 --applications=/:/srv/app,shop.example:/forum:/srv/forum";

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where to speak HTTP
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory, or the program; where absent, the current directory
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where to listen; may be given several times [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// How to run it, instead of a guess
    #[arg(long, value_name = "RUNTIME")]
    pub runtime: Option<Runtime>,
    /// Just so many workers, instead of as many as are needed up to 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub workers: Option<u32>,
    /// Print this set-up as a config file, and serve nothing
    #[arg(long)]
    pub print_config: bool,
    /// As mono's servers: [host:[port:]]vpath:realpath, several joined by commas
    #[arg(long, value_name = "LIST", conflicts_with = "dir", hide_short_help = true)]
    pub applications: Option<String>,
    /// As mono's servers: tcp:port, tcp:address:port or unix:/path, FastCGI
    #[arg(long, value_name = "SOCKET", hide_short_help = true)]
    pub socket: Vec<String>,
}

/// A runtime by its word in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    /// Static files
    Files,
    /// CGI scripts, one process a request
    Cgi,
    /// A FastCGI program of someone else's
    Fastcgi,
    /// A program that is a Hostler worker itself
    Native,
}

/// Options of `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Whose files they are
    #[arg(value_name = "SERVER")]
    pub server: Server,
    /// The files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
}

/// Another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    /// Pool files, or php-fpm.conf
    PhpFpm,
    /// Ini files
    Uwsgi,
    /// Its systemd units
    Fcgiwrap,
    /// .webapp files, lines of --applications, HyperFastCgi's XML
    Mono,
}

impl Server {
    /// As on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Server::PhpFpm => "php-fpm",
            Server::Uwsgi => "uwsgi",
            Server::Fcgiwrap => "fcgiwrap",
            Server::Mono => "mono",
        }
    }
}

/// Which config.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The config file
    #[arg(long, short, value_name = "FILE", default_value = crate::config::DEFAULT_FILE)]
    pub config: PathBuf,
}

/// Which supervisor.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// Control socket of the supervisor [default: as in /etc/hostler/hostler.toml]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Options of `reload`.
#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// The pools; all where none is named
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
    /// Those pools alone whose config changed
    #[arg(long)]
    pub changed: bool,
    #[command(flatten)]
    /// Which supervisor.
    pub control: Control,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// One pool, with its workers
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    /// For programs: JSON, with names that stay
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    /// Which supervisor.
    pub control: Control,
}

/// Options of `start` and `restart`.
#[derive(Debug, Args)]
pub(crate) struct OnePool {
    /// The pool
    #[arg(value_name = "POOL")]
    pub pool: String,
    #[command(flatten)]
    /// Which supervisor.
    pub control: Control,
}

/// Options of `stop`.
#[derive(Debug, Args)]
pub(crate) struct OnePoolOrAll {
    /// The pool; the supervisor with all of them where none is named
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    #[command(flatten)]
    /// Which supervisor.
    pub control: Control,
}

impl Cli {
    /// Reads the command line of this process; ends it with help or with 2.
    pub(crate) fn of_this_process() -> Cli {
        Cli::parse_from(with_dashes(std::env::args_os()))
    }
}

/// mono's servers take `/socket=…` for `--socket=…`: so does `serve`.
fn with_dashes(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|command| command == "serve") {
        for arg in args.iter_mut().skip(2) {
            let mono = arg.to_str().and_then(|text| text.strip_prefix('/'));
            let mono = mono.filter(|text| text.starts_with("applications=") || text.starts_with("socket="));
            if let Some(text) = mono.map(|text| format!("--{text}")) {
                *arg = text.into();
            }
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let args = line.split_whitespace().map(OsString::from);
        Cli::try_parse_from(with_dashes(args)).map(|cli| cli.command)
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_pinned_commands_are_understood() {
        for line in [
            "hostler demo",
            "hostler serve",
            "hostler serve /srv --listen 127.0.0.1:1 --listen unix:/x --runtime files --workers 3",
            "hostler run",
            "hostler run --config /x",
            "hostler check --config /x",
            "hostler reload",
            "hostler reload a b --changed --control /c",
            "hostler status --json shop",
            "hostler status",
            "hostler stop",
            "hostler stop shop --control /c",
            "hostler start shop",
            "hostler restart shop",
            "hostler import php-fpm a.conf b.conf",
            "hostler worker shop",
        ] {
            parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }

    #[test]
    fn wrong_usage_ends_with_2() {
        for line in
            ["hostler start", "hostler dance", "hostler run --colour", "hostler serve --workers 0", "hostler"]
        {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn the_spellings_of_mono_are_taken_with_a_slash_too() {
        let Ok(Command::Serve(serve)) = parse("hostler serve /applications=/:/srv/a /socket=tcp:9000") else {
            panic!();
        };
        assert_eq!(serve.applications.as_deref(), Some("/:/srv/a"));
        assert_eq!(serve.socket, ["tcp:9000"]);
        let Ok(Command::Serve(serve)) = parse("hostler serve /sockets") else { panic!() };
        assert_eq!(serve.dir, Some("/sockets".into()));
    }

    #[test]
    fn the_usual_config_is_the_pinned_one() {
        let Ok(Command::Run(config)) = parse("hostler run") else { panic!() };
        assert_eq!(config.config, PathBuf::from("/etc/hostler/hostler.toml"));
    }
}
