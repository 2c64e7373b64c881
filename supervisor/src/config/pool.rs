//! A pool as meant, from the pool as written.
//!
//! Looks up users and Hostler's own environment through [`System`] and nothing else; opens no file.

use super::{
    check::{Check, Section},
    listen, sandbox,
    trial::Trial,
    users::{Account, System},
};
use crate::{
    listeners::abstract_name,
    settings::{AccessLog, Address, Listen, Memory, Model, Pool},
};
use hostler_worker::control::{
    AccessLogFormat, App, Cgi, Fastcgi, Files, Limits, ListenBy, Runtime, Symlinks,
};
use std::{collections::BTreeMap, path::Path, time::Duration};

/// What the PATH of a worker is; its app may say otherwise in `env`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What `section` means, or `None` where something in it is wrong: the faults are in `check` then. `warnings`
/// gets what is allowed and yet doubtful.
pub(crate) fn resolve(
    check: &mut Check<'_>,
    warnings: &mut Check<'_>,
    name: &str,
    file: &Path,
    section: &Section,
    outer_stop: Duration,
    system: &dyn System,
) -> Option<Pool> {
    let listen: Vec<_> =
        section.sections("listen").iter().filter_map(|entry| listen::resolve(check, entry, system)).collect();
    if !section.mentions("listen") {
        check.fault(section.at, format!("{} needs \"listen\"", section.title));
    } else if section.written("listen").is_some() && section.sections("listen").is_empty() {
        check.fault(section.place("listen"), "\"listen\" must not be empty");
    }
    let account = account(check, warnings, section, system);
    let group = group(check, section, system);
    let user = user(check, section, account.as_ref(), group, system);
    let env = environment(section, account.as_ref(), system);
    let workers = section.section("workers");
    let boot_timeout = workers.duration("boot_timeout").unwrap_or(Duration::from_secs(30));
    let runtimes = Runtimes { env: &env, boot_timeout, system };
    let (command, apps, runtime) = runtimes.resolve(check, section);
    note_trials(check, section, &listen);
    warn_of_lonely_sockets(warnings, section, &listen, system);
    let limits = section.section("limits");
    let max_requests = workers.number("max_requests").unwrap_or(0);
    let sandbox = sandbox::resolve(check, section, &apps);
    let pool = Pool {
        name: name.to_owned(),
        file: file.to_owned(),
        listen,
        user,
        directory: section.text("directory").map(Into::into),
        umask: section.number32("umask").unwrap_or(0o022),
        command,
        runtime,
        limits: request_limits(section),
        model: model(check, &workers),
        max_requests,
        max_requests_jitter: jitter(check, &workers, max_requests),
        boot_timeout,
        stop_timeout: section.duration("stop_timeout").unwrap_or(outer_stop),
        own_stop_timeout: section.written("stop_timeout").is_some(),
        memory: memory(check, &section.section("memory")),
        watch: section.words("watch"),
        slow_log: nonzero(section.duration("slow_log")),
        access_log: access_log(check, section),
        sandbox,
        apps,
        open_files: limits.number("open_files"),
        core: limits.number("core"),
        env,
    };
    check.faults.is_empty().then_some(pool)
}

/// What `hostler check` tries.
fn note_trials(check: &mut Check<'_>, section: &Section, listen: &[Listen]) {
    for (entry, listen) in section.sections("listen").iter().zip(listen) {
        check.trials.push((entry.place("address"), Trial::Listen(listen.clone())));
    }
    let apps = section.sections("app").iter();
    for part in std::iter::once(section).chain(apps) {
        if let (Some(root), Some(item)) = (part.text("root"), part.written("root")) {
            check.trials.push((item.at, Trial::Directory(root)));
        }
        if let Some((at, program)) = part.placed_words("command").into_iter().next() {
            check.trials.push((at, Trial::Program(program)));
        }
    }
    if let Some(directory) = section.text("directory") {
        check.trials.push((section.place("directory"), Trial::Directory(directory)));
    }
    let log = section.section("access_log");
    if let Some(file) = log.text("file") {
        check.trials.push((log.place("file"), Trial::Append(file)));
    }
}

/// A socket of root's with the usual mode lets no web server in.
fn warn_of_lonely_sockets(
    warnings: &mut Check<'_>,
    section: &Section,
    listen: &[Listen],
    system: &dyn System,
) {
    if system.caller() != 0 {
        return;
    }
    for (entry, listen) in section.sections("listen").iter().zip(listen) {
        let file = matches!(&listen.address, Address::Unix(path) if abstract_name(path).is_none());
        if file && listen.owner.is_none() && listen.group.is_none() && listen.mode & 0o002 == 0 {
            let address = &listen.address;
            let message = format!(
                "only root can connect to {address}; for a web server write {{ address = \"{address}\", group = \"www-data\" }}"
            );
            warnings.fault(entry.at, message);
        }
    }
}

fn account(
    check: &mut Check<'_>,
    warnings: &mut Check<'_>,
    section: &Section,
    system: &dyn System,
) -> Option<Account> {
    let caller = system.caller();
    let Some(name) = section.text("user") else {
        if caller == 0 && !section.mentions("user") {
            check.fault(
                section.at,
                format!("{} needs \"user\", since Hostler is started by root", section.title),
            );
        }
        return system.account(&caller.to_string());
    };
    let at = section.place("user");
    let Some(account) = system.account(&name) else {
        check.fault(at, format!("there is no user \"{name}\""));
        return None;
    };
    if caller != 0 && account.uid != caller {
        let me = system.account(&caller.to_string()).map_or(caller.to_string(), |me| me.name);
        check.fault(at, format!("only root can become another user: leave \"user\" out, or start Hostler by root instead of {me}"));
    } else if caller == 0 && account.uid == 0 {
        warnings.fault(at, "this pool's apps run as root and can do anything to this machine");
    }
    Some(account)
}

fn group(check: &mut Check<'_>, section: &Section, system: &dyn System) -> Option<u32> {
    let name = section.text("group")?;
    let group = system.group(&name);
    if group.is_none() {
        check.fault(section.place("group"), format!("there is no group \"{name}\""));
    }
    group
}

/// Whom workers become: `None` where there is nobody to become.
fn user(
    check: &mut Check<'_>,
    section: &Section,
    account: Option<&Account>,
    group: Option<u32>,
    system: &dyn System,
) -> Option<hostler_worker::control::Identity> {
    let account = account?;
    if system.caller() != 0 {
        if group.is_some() && group != account.gid {
            check.fault(section.place("group"), "only root can change the group: leave \"group\" out");
        }
        return None;
    }
    let identity = account.identity(group);
    if identity.is_none() && section.text("group").is_none() {
        let message =
            format!("user {} has no entry and so no group of its own: name one with \"group\"", account.uid);
        check.fault(section.place("user"), message);
    }
    identity
}

/// The whole environment of the workers.
fn environment(
    section: &Section,
    account: Option<&Account>,
    system: &dyn System,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
    if let Some(account) = account {
        env.insert("USER".to_owned(), account.name.clone());
        env.insert("LOGNAME".to_owned(), account.name.clone());
        env.extend(account.home.iter().map(|home| ("HOME".to_owned(), home.clone())));
    }
    for name in section.words("keep_env") {
        if let Some(value) = system.variable(&name) {
            env.insert(name, value);
        }
    }
    env.extend(section.map("env"));
    env
}

/// "0s" means that there is no such limit.
fn nonzero(time: Option<Duration>) -> Option<Duration> {
    time.filter(|time| !time.is_zero())
}

fn request_limits(section: &Section) -> Limits {
    let usual = Limits::default();
    let size = |name: &str, usual: usize| {
        section.number(name).and_then(|n| usize::try_from(n).ok()).unwrap_or(usual)
    };
    Limits {
        request_timeout: nonzero(section.duration("request_timeout")),
        queue_timeout: nonzero(section.duration("queue_timeout")),
        read_timeout: section.duration("read_timeout").unwrap_or(usual.read_timeout),
        write_timeout: section.duration("write_timeout").unwrap_or(usual.write_timeout),
        keepalive_timeout: section.duration("keepalive_timeout").unwrap_or(usual.keepalive_timeout),
        max_body: section.number("max_body").unwrap_or(usual.max_body),
        max_params: size("max_params", usual.max_params),
        gather: usual.gather,
        max_connections: size("max_connections", usual.max_connections),
    }
}

fn model(check: &mut Check<'_>, workers: &Section) -> Model {
    let model = workers.text("model").unwrap_or_default();
    let fits: &[&str] = match model.as_str() {
        "static" => &["count"],
        "ondemand" => &["max", "idle_timeout"],
        _ => &["min", "max", "spare", "idle_timeout"],
    };
    for name in ["count", "min", "max", "spare", "idle_timeout"] {
        if let (Some(item), false) = (workers.written(name), fits.contains(&name)) {
            check.fault(item.at, format!("\"{name}\" has no meaning with model = \"{model}\""));
        }
    }
    let number = |name: &str| workers.number32(name).unwrap_or(1);
    let idle_timeout = workers.duration("idle_timeout").unwrap_or(Duration::from_secs(30));
    match model.as_str() {
        "static" => {
            if workers.written("count").is_none() {
                check.fault(workers.place("model"), "model = \"static\" needs \"count\"");
            }
            Model::Static { count: number("count") }
        }
        "ondemand" => Model::Ondemand { max: number("max"), idle_timeout },
        _ => dynamic(check, workers, idle_timeout),
    }
}

fn dynamic(check: &mut Check<'_>, workers: &Section, idle_timeout: Duration) -> Model {
    let number = |name: &str| workers.number32(name).unwrap_or(1);
    let (min, max, spare) = (number("min"), number("max"), number("spare"));
    if min > max {
        check.fault(workers.place("min"), format!("\"min\" ({min}) is more than \"max\" ({max})"));
    }
    if spare > max {
        check.fault(workers.place("spare"), format!("\"spare\" ({spare}) is more than \"max\" ({max})"));
    }
    Model::Dynamic { min, max, spare, idle_timeout }
}

fn jitter(check: &mut Check<'_>, workers: &Section, max_requests: u64) -> u64 {
    let jitter = workers.number("max_requests_jitter").unwrap_or(0);
    if jitter > 0 && jitter >= max_requests {
        let message =
            format!("\"max_requests_jitter\" ({jitter}) must be less than \"max_requests\" ({max_requests})");
        check.fault(workers.place("max_requests_jitter"), message);
    }
    jitter
}

fn memory(check: &mut Check<'_>, section: &Section) -> Memory {
    let memory =
        Memory { soft: section.number("soft"), hard: section.number("hard"), pool: section.number("pool") };
    if let (Some(soft), Some(hard)) = (memory.soft, memory.hard)
        && soft >= hard
    {
        check.fault(section.place("soft"), "\"soft\" must be less than \"hard\"");
    }
    memory
}

fn access_log(check: &mut Check<'_>, section: &Section) -> Option<AccessLog> {
    section.written("access_log")?;
    let log = section.section("access_log");
    let Some(file) = log.text("file") else {
        check.fault(log.at, "\"access_log\" needs \"file\"");
        return None;
    };
    let format = match log.text("format").as_deref() {
        Some("json") => AccessLogFormat::Json,
        _ => AccessLogFormat::Text,
    };
    Some(AccessLog { file: file.into(), format })
}

/// What the apps of a pool have in common.
struct Runtimes<'p> {
    env: &'p BTreeMap<String, String>,
    boot_timeout: Duration,
    system: &'p dyn System,
}

impl Runtimes<'_> {
    /// The program to execute, the apps, and the word for status.
    fn resolve(&self, check: &mut Check<'_>, pool: &Section) -> (Option<Vec<String>>, Vec<App>, String) {
        let runtime = pool.text("runtime");
        let mut apps = pool.sections("app").to_vec();
        if runtime.as_deref() == Some("native") {
            if let Some(app) = apps.first() {
                check.fault(app.at, "runtime = \"native\" serves all of a pool: it has no [[app]]");
            }
            foreign_keys(check, pool, &["native"]);
            return (command(check, pool), Vec::new(), "native".to_owned());
        }
        if apps.is_empty() {
            let mut all = Section::new(&super::keys::APP, &pool.title, pool.at);
            all.inherit(pool);
            foreign_keys(check, pool, runtime.as_slice());
            let app = self.app(check, &all);
            return (None, app.into_iter().collect(), runtime.unwrap_or_default());
        }
        let mut words: Vec<String> = runtime.into_iter().collect();
        let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
        for app in &mut apps {
            let own = app.text("runtime").or_else(|| pool.text("runtime"));
            foreign_keys(check, app, own.as_slice());
            app.inherit(pool);
            words.extend(own.into_iter().filter(|own| !words.contains(own)).collect::<Vec<_>>());
            let key =
                (app.text("host").unwrap_or_default().to_lowercase(), app.text("path").unwrap_or_default());
            if seen.insert(key, app.at).is_some() {
                check.fault(app.at, "another [[app]] of this pool has the same host and path");
            }
        }
        foreign_keys(check, pool, &words);
        let resolved = apps.iter().filter_map(|app| self.app(check, app)).collect();
        (None, resolved, words.join("+"))
    }

    fn app(&self, check: &mut Check<'_>, section: &Section) -> Option<App> {
        let runtime = match section.text("runtime").as_deref() {
            Some("files") => Runtime::Files(files(check, section)?),
            Some("cgi") => Runtime::Cgi(self.cgi(check, section)?),
            Some("fastcgi") => Runtime::Fastcgi(self.fastcgi(check, section)?),
            Some("native") => {
                let message = "runtime = \"native\" serves all of a pool: write it there, not at an [[app]]";
                check.fault(section.place("runtime"), message);
                return None;
            }
            _ => {
                if !section.mentions("runtime") {
                    check.fault(section.at, format!("{} needs \"runtime\"", section.title));
                }
                return None;
            }
        };
        let host = section.text("host").map(|host| host.to_lowercase());
        if let Some(host) = &host {
            let name = host.strip_prefix("*.").unwrap_or(host);
            if name.is_empty() || name.contains(['*', '/', ':', ' ']) {
                check.fault(
                    section.place("host"),
                    format!("\"{host}\" is no host such as \"shop.example\" or \"*.example\", without port"),
                );
            }
        }
        let path = section.text("path").unwrap_or_else(|| "/".to_owned());
        let trimmed = path.trim_end_matches('/');
        let path = if trimmed.is_empty() { "/" } else { trimmed }.to_owned();
        Some(App { host, path, runtime })
    }

    fn cgi(&self, check: &mut Check<'_>, section: &Section) -> Option<Cgi> {
        let owner = section.text("owner").map(|name| (self.system.account(&name), name));
        let owner = match owner {
            Some((None, name)) => {
                check.fault(section.place("owner"), format!("there is no user \"{name}\""));
                None
            }
            other => other.and_then(|(account, _)| account).map(|account| account.uid),
        };
        Some(Cgi {
            root: needed(check, section, "root")?,
            script_filename: section.bool("script_filename"),
            index: section.words("index"),
            owner,
            env: self.env_of(section),
        })
    }

    fn fastcgi(&self, check: &mut Check<'_>, section: &Section) -> Option<Fastcgi> {
        let command = command(check, section)?;
        let listen_by = match section.text("listen_by").as_deref() {
            Some("path") => ListenBy::Path,
            Some("argument") => ListenBy::Argument,
            _ => ListenBy::Fd0,
        };
        let named = command.iter().any(|argument| argument.contains("{listen}"));
        if named != (listen_by == ListenBy::Argument) {
            let message = "\"{listen}\" in an argument and listen_by = \"argument\" belong together";
            check.fault(section.place("command"), message);
        }
        Some(Fastcgi {
            command,
            listen_by,
            root: section.text("root"),
            index: section.words("index"),
            concurrency: section.number32("concurrency").unwrap_or(1),
            keep_connections: section.bool("keep_connections"),
            ready_path: section.text("ready_path"),
            boot_timeout: self.boot_timeout,
            env: self.env_of(section),
        })
    }

    fn env_of(&self, section: &Section) -> Vec<(String, String)> {
        let mut env = self.env.clone();
        env.extend(section.map("env"));
        env.into_iter().collect()
    }
}

fn files(check: &mut Check<'_>, section: &Section) -> Option<Files> {
    let index = match section.written("index") {
        Some(_) => section.words("index"),
        None => vec!["index.html".to_owned()],
    };
    Some(Files {
        root: needed(check, section, "root")?,
        index,
        listing: section.bool("listing"),
        symlinks: match section.text("symlinks").as_deref() {
            Some("never") => Symlinks::Never,
            _ => Symlinks::Beneath,
        },
        dot_files: section.bool("dot_files"),
        precompressed: section.bool("precompressed"),
        cache_control: section.text("cache_control"),
    })
}

fn needed(check: &mut Check<'_>, section: &Section, name: &str) -> Option<String> {
    let text = section.text(name);
    if !section.mentions(name) {
        let runtime = section.text("runtime").unwrap_or_default();
        check.fault(section.at, format!("{} needs \"{name}\" with runtime = \"{runtime}\"", section.title));
    }
    text
}

fn command(check: &mut Check<'_>, section: &Section) -> Option<Vec<String>> {
    let words = section.words("command");
    match words.first() {
        None => {
            let runtime = section.text("runtime").unwrap_or_default();
            check.fault(
                section.at,
                format!("{} needs \"command\" with runtime = \"{runtime}\"", section.title),
            );
            None
        }
        Some(program) if !program.starts_with('/') => {
            let message = format!("the program of \"command\" must be an absolute path, not \"{program}\"");
            check.fault(section.place("command"), message);
            None
        }
        Some(_) => Some(words),
    }
}

/// A key that none of these runtimes reads is a fault.
fn foreign_keys<S: AsRef<str>>(check: &mut Check<'_>, section: &Section, runtimes: &[S]) {
    if runtimes.is_empty() {
        return;
    }
    for (key, item) in section.names() {
        if !key.of.is_empty() && !runtimes.iter().any(|runtime| key.of.contains(&runtime.as_ref())) {
            let all: Vec<&str> = runtimes.iter().map(AsRef::as_ref).collect();
            let message =
                format!("\"{}\" has no meaning with runtime = \"{}\"", key.name, all.join("\" or \""));
            check.fault(item.at, message);
        }
    }
}
