//! Golden files: each of `golden/valid` loads without a fault; each of `golden/invalid` has exactly the faults that
//! stand beside it in the file that ends in `.faults` (written anew with `BLESS=1`, then to be read by a person).
//! And the table of keys is held against what the check does.

use super::{
    check::{self, Check},
    keys::{self, Kind},
    users::{Account, System},
    *,
};
use std::fmt::Write as _;

/// A machine with three users: root, shop (1001, also in www-data) and www-data (33).
struct Machine {
    caller: u32,
}

impl System for Machine {
    fn caller(&self) -> u32 {
        self.caller
    }

    fn account(&self, name: &str) -> Option<Account> {
        let known = [("root", 0, vec![0]), ("www-data", 33, vec![33]), ("shop", 1001, vec![1001, 33])];
        for (known, uid, groups) in known {
            if name == known || name.parse() == Ok(uid) {
                let (name, home) = (known.to_owned(), Some(format!("/home/{known}")));
                return Some(Account { name, uid, gid: Some(uid), groups, home });
            }
        }
        let uid = name.parse().ok()?;
        Some(Account { name: name.to_owned(), uid, gid: None, groups: Vec::new(), home: None })
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.account(name)?.gid
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "LANG").then(|| "C.UTF-8".to_owned())
    }
}

fn golden(kind: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/golden").join(kind);
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn load_golden(path: &Path) -> Result<Loaded, Vec<Fault>> {
    let text = fs::read_to_string(path).unwrap();
    let caller = text.strip_prefix("# caller: ").and_then(|rest| rest.lines().next()).map_or("0", str::trim);
    load_on(path, &Machine { caller: caller.parse().unwrap() })
}

fn machine(text: &str) -> Result<Loaded, Vec<Fault>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostler.toml");
    fs::write(&path, text).unwrap();
    load_on(&path, &Machine { caller: 0 })
}

/// One pool that is whole but for `more`.
fn pool(more: &str) -> Result<Loaded, Vec<Fault>> {
    machine(&format!("[pool.p]\nlisten = \"unix:/run/p\"\nuser = \"shop\"\n{more}"))
}

fn faults_of(loaded: &Result<Loaded, Vec<Fault>>) -> &[Fault] {
    match loaded {
        Ok(loaded) => &loaded.faults,
        Err(faults) => faults,
    }
}

#[test]
fn what_is_valid_loads_without_a_fault() {
    for path in golden("valid") {
        let loaded = load_golden(&path).unwrap_or_else(|faults| panic!("{faults:#?}"));
        assert_eq!(loaded.faults, [], "{}", path.display());
        assert_eq!(loaded.broken, []);
        assert!(!loaded.pools.is_empty());
    }
}

#[test]
fn what_is_invalid_has_the_faults_that_it_should() {
    for path in golden("invalid") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut found = String::new();
        for fault in faults_of(&load_golden(&path)) {
            let Place { line, column, .. } = fault.place;
            writeln!(found, "{name}:{line}:{column}: {}", fault.message).unwrap();
        }
        let found = found.replace(&format!("{}/", path.parent().unwrap().display()), "");
        let expected = path.with_extension("faults");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        assert!(!found.is_empty(), "{name} has no fault");
        assert_eq!(found, fs::read_to_string(&expected).unwrap_or_default(), "{name}");
    }
}

#[test]
fn the_example_of_every_key_passes_the_check() {
    for table in keys::ALL {
        for key in table.keys.iter().filter(|key| !matches!(key.kind, Kind::Later)) {
            let source = Source::new(Path::new("f"), format!("{} = {}", key.name, key.example));
            let (tree, errors) = parse(&source);
            assert_eq!(errors, [], "{} of {}", key.name, table.title);
            let mut check = Check::new(&source);
            let section = check.section(table, table.title, 0, tree.get_ref());
            assert_eq!(check.faults, [], "{} of {}", key.name, table.title);
            assert!(section.written(key.name).is_some());
        }
    }
}

#[test]
fn every_default_is_of_its_own_kind() {
    for key in keys::ALL.iter().flat_map(|table| table.keys).filter(|key| key.default.is_some()) {
        assert!(check::default(key).is_some(), "{}", key.name);
    }
}

#[test]
fn every_key_has_a_meaning_that_is_a_sentence() {
    for key in keys::ALL.iter().flat_map(|table| table.keys) {
        assert!(key.meaning.ends_with('.') && !key.meaning.contains("  "), "{}: {}", key.name, key.meaning);
        assert!(!key.kind.wanted().is_empty());
    }
}

#[test]
fn every_key_of_a_pool_changes_what_is_meant() {
    let usual = |runtime: &str| match runtime {
        "files" | "cgi" => "root = \"/srv\"\n",
        _ => "command = [\"/bin/app\"]\n",
    };
    let listed = ["listen", "user", "runtime", "root", "command", "app", "workers"];
    for key in keys::POOL.keys.iter().filter(|key| !matches!(key.kind, Kind::Later)) {
        if listed.contains(&key.name) {
            continue;
        }
        let runtime = key.of.first().copied().unwrap_or("files");
        let base = format!("runtime = \"{runtime}\"\n{}", usual(runtime));
        // `{listen}` must stand in the command together with its key.
        let more = if key.name == "listen_by" { "\"path\"" } else { key.example };
        let with = pool(&format!("{base}{} = {more}\n", key.name)).unwrap();
        let without = pool(&base).unwrap();
        assert_eq!(with.faults, [], "{}", key.name);
        let (with, mut without) = (with.pools[0].clone(), without.pools[0].clone());
        without.file.clone_from(&with.file);
        assert_ne!(with, without, "{} = {more} changes nothing", key.name);
    }
}

#[test]
fn a_pool_has_what_is_written() {
    let loaded = load_golden(&golden("valid")[0]).unwrap();
    let pool = &loaded.pools[0];
    assert_eq!((pool.name.as_str(), pool.runtime.as_str(), pool.umask), ("shop", "fastcgi+files", 0o027));
    let user = pool.user.as_ref().unwrap();
    assert_eq!((user.uid, user.gid, user.groups.as_slice()), (1001, 1001, &[1001, 33][..]));
    let env: Vec<&str> = pool.env.keys().map(String::as_str).collect();
    assert_eq!(env, ["DJANGO_SETTINGS_MODULE", "HOME", "LANG", "LOGNAME", "PATH", "USER"]);
    assert_eq!(pool.listen.len(), 5);
    assert_eq!(
        (pool.listen[2].owner, pool.listen[2].group, pool.listen[2].backlog),
        (Some(1001), Some(33), 1024)
    );
    assert_eq!(pool.apps[0].host.as_deref(), Some("shop.example"));
    assert_eq!(pool.apps[1].path, "/static");
    assert_eq!(pool.memory.hard, Some(512 << 20));
    assert_eq!(pool.limits.queue_timeout, Some(Duration::from_secs(10)));
}

#[test]
fn a_fault_stops_its_own_pool_alone() {
    let loaded = machine(
        "[pool.good]\nlisten = \"unix:/run/g\"\nuser = \"shop\"\nruntime = \"files\"\nroot = \"/srv\"\n\
         [pool.bad]\nlisten = \"unix:/run/b\"\nuser = \"shop\"\nruntime = \"filse\"\nroot = \"/srv\"\n",
    )
    .unwrap();
    assert_eq!(loaded.pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(loaded.broken[0].name, "bad");
    assert!(loaded.fault_of("bad", Path::new("")).unwrap().contains("did you mean \"files\"?"));
    assert_eq!(loaded.fault_of("gone", Path::new("")), None);
}

#[test]
fn included_files_stop_alone_and_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let pool = |name: &str| {
        format!(
            "[pool.{name}]\nlisten = \"unix:/run/{name}\"\nuser = \"shop\"\nruntime = \"files\"\nroot = \"/srv\"\n"
        )
    };
    write(
        "hostler.toml",
        "[supervisor]\ninclude = [\"*.pool\", \"a.pool\", \"none.pool\", \"none-*.pool\"]\n",
    );
    write("a.pool", &pool("a"));
    write("b.pool", &format!("{}broken", pool("b")));
    write("c.pool", &format!("user = \"shop\"\n{}", pool("c")));
    write("d.pool", &pool("a"));
    write(".e.pool", "not read");
    write("f.pool", &pool("f"));
    let loaded = load_on(&directory.path().join("hostler.toml"), &Machine { caller: 0 }).unwrap();
    assert_eq!(loaded.pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["f"]);
    let broken: Vec<&str> = loaded.broken.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(broken, ["a", "b", "c"]);
    let faults: Vec<String> = loaded.faults.iter().map(Fault::to_string).collect();
    let at = |name: &str| directory.path().join(name).display().to_string();
    for expected in [
        format!("{}:2:32: there is no file \"none.pool\"", at("hostler.toml")),
        format!("{}:1:1: \"user\" stands before any [pool.NAME]", at("c.pool")),
        format!("{}:1:7: there are two pools named \"a\": here and at {}:1:7", at("a.pool"), at("d.pool")),
        format!("{}:1:7: there are two pools named \"a\": here and at {}:1:7", at("d.pool"), at("a.pool")),
    ] {
        assert!(faults.contains(&expected), "{expected}\nis not in\n{faults:#?}");
    }
    assert!(faults.iter().any(|fault| fault.starts_with(&format!("{}:6:", at("b.pool")))), "{faults:#?}");
    assert_eq!(faults.len(), 5, "{faults:#?}");
    // A pool that ran before its file broke is known to be broken, not gone, even where its name is not found.
    assert!(loaded.fault_of("unheard-of", &directory.path().join("b.pool")).is_some());
}

#[test]
fn a_file_that_is_not_there_or_not_utf8_is_a_fault_with_a_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostler.toml");
    let expected = format!("{}:1:1: there is no such file", path.display());
    assert_eq!(load_on(&path, &Machine { caller: 0 }).unwrap_err()[0].to_string(), expected);
    fs::write(&path, b"[supervisor]\n# \xff").unwrap();
    let expected = format!("{}:2:3: the file is not UTF-8 from here on", path.display());
    assert_eq!(load_on(&path, &Machine { caller: 0 }).unwrap_err()[0].to_string(), expected);
}

#[test]
fn root_is_allowed_and_warned_of() {
    let loaded = machine(
        "[pool.p]\nlisten = \"unix:/run/p\"\nuser = \"root\"\nruntime = \"files\"\nroot = \"/srv\"\n",
    )
    .unwrap();
    assert_eq!(loaded.faults, []);
    assert_eq!(
        loaded.warnings[0].message,
        "this pool's apps run as root and can do anything to this machine"
    );
}

#[test]
fn a_thousand_pools_load_without_a_quadratic_step() {
    let time = |pools: u32| {
        let text: String = (0..pools)
            .map(|n| format!("[pool.p{n}]\nlisten = \"unix:/run/p{n}\"\nuser = \"shop\"\nruntime = \"files\"\nroot = \"/s\"\n"))
            .collect();
        let start = std::time::Instant::now();
        assert_eq!(machine(&text).unwrap().pools.len(), pools as usize);
        start.elapsed()
    };
    time(100);
    let (few, many) = (time(100), time(3000));
    // Thirty times the pools; a quadratic step would take nine hundred times as long.
    assert!(many < few * 300, "{few:?} for 100 pools, {many:?} for 3000");
}
