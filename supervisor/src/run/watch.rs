//! `watch`: a change of a file that matches reloads its pool, a moment after the last change.
//!
//! Directories beneath the part of a pattern that has no wildcard are watched by inotify; so is the directory
//! above it, since a deploy often replaces that part as a whole (a symbolic link that is turned, a directory
//! that is renamed).
//!
//! Always holds: at rest nothing is looked at; a pattern without a directory waits for it to appear.
//!
//! Limitations: at most [`DIRECTORIES`] directories in all; changes made by another machine on a network file
//! system are not seen; symbolic links beneath are not followed.

use super::{Shell, Token, change::Which, now};
use crate::fleet::PoolId;
use glob::{MatchOptions, Pattern};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Component, Path, PathBuf},
    time::Duration,
};

/// Quiet time after the last change until the reload.
const SETTLED: Duration = Duration::from_millis(200);
/// Directories watched in all.
const DIRECTORIES: usize = 16_384;

/// Files that are watched.
#[derive(Default)]
pub(crate) struct Watches {
    inotify: Option<Inotify>,
    /// The patterns of each pool.
    wanted: BTreeMap<PoolId, Vec<Glob>>,
    directories: HashMap<WatchDescriptor, BTreeSet<PathBuf>>,
    /// Pools whose files changed, and when they count as settled.
    due: BTreeMap<PoolId, Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob {
    pattern: Pattern,
    /// The part without wildcards.
    base: PathBuf,
}

impl Glob {
    fn new(text: &str, directory: Option<&Path>) -> Result<Glob, String> {
        let path = directory.map_or_else(|| PathBuf::from(text), |directory| directory.join(text));
        let whole = path.to_string_lossy().into_owned();
        let pattern = Pattern::new(&whole).map_err(|e| format!("watch {text}: {e}"))?;
        let plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
        let base: PathBuf = path.components().take_while(plain).collect();
        // A pattern without wildcards names one file.
        let base = if base == path { base.parent().unwrap_or(Path::new("/")).to_owned() } else { base };
        Ok(Glob { pattern, base })
    }

    /// Whether a change at `path` is one of what the pattern names. A directory above counts: it was replaced.
    fn takes(&self, path: &Path) -> bool {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
        self.base.starts_with(path) || self.pattern.matches_path_with(path, options)
    }
}

impl Watches {
    /// What a pool watches from now on. Gives whether anything changed, and what is wrong with it.
    fn set(&mut self, pool: PoolId, patterns: &[String], directory: Option<&Path>) -> (bool, Vec<String>) {
        let mut faults = Vec::new();
        let globs: Vec<Glob> = patterns
            .iter()
            .filter_map(|text| Glob::new(text, directory).map_err(|e| faults.push(e)).ok())
            .collect();
        let before =
            if globs.is_empty() { self.wanted.remove(&pool) } else { self.wanted.insert(pool, globs) };
        (before.as_ref() != self.wanted.get(&pool), faults)
    }

    fn rebuild(&mut self) -> Result<(), String> {
        self.directories.clear();
        self.inotify = None;
        if self.wanted.is_empty() {
            return Ok(());
        }
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        let inotify = Inotify::init(flags).map_err(|e| format!("watch files: {e}"))?;
        self.inotify = Some(inotify);
        let bases: BTreeSet<PathBuf> = self.wanted.values().flatten().map(|glob| glob.base.clone()).collect();
        for base in bases {
            self.add_above(&base);
            self.add_beneath(&base)?;
        }
        Ok(())
    }

    /// The nearest directory above that is there.
    fn add_above(&mut self, base: &Path) {
        for above in base.ancestors().skip(1) {
            if self.add(above) {
                return;
            }
        }
    }

    fn add_beneath(&mut self, directory: &Path) -> Result<(), String> {
        let mut all = vec![directory.to_owned()];
        while let Some(directory) = all.pop() {
            if self.directories.len() >= DIRECTORIES {
                return Err(format!(
                    "watch files: more than {DIRECTORIES} directories; the rest is not watched"
                ));
            }
            if !self.add(&directory) {
                continue;
            }
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            all.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        Ok(())
    }

    fn add(&mut self, directory: &Path) -> bool {
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ONLYDIR;
        let added = self.inotify.as_ref().and_then(|inotify| inotify.add_watch(directory, flags).ok());
        if let Some(watch) = added {
            self.directories.entry(watch).or_default().insert(directory.to_owned());
        }
        added.is_some()
    }

    /// Notes what changed. Gives whether directories came or went, so that all is to be built anew.
    fn note(&mut self, events: &[InotifyEvent], now: Duration) -> bool {
        let mut rebuild = false;
        for event in events {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                self.due.extend(self.wanted.keys().map(|pool| (*pool, now + SETTLED)));
                rebuild = true;
            }
            let Some(name) = &event.name else { continue };
            let made = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            let is_directory = event.mask.contains(AddWatchFlags::IN_ISDIR);
            for directory in self.directories.get(&event.wd).into_iter().flatten() {
                let path = directory.join(name);
                for (pool, globs) in &self.wanted {
                    let moved =
                        event.mask.intersects(made) && globs.iter().any(|g| g.base.starts_with(&path));
                    let beneath = is_directory && globs.iter().any(|glob| path.starts_with(&glob.base));
                    rebuild |= moved || beneath;
                    // What was put into a new directory before it was watched is told by nobody.
                    if beneath && event.mask.intersects(made) && holds(&path, globs) {
                        self.due.insert(*pool, now + SETTLED);
                    }
                    // A file that is merely created is told of again when it is written and closed.
                    let whole = !event.mask.contains(AddWatchFlags::IN_CREATE) || moved;
                    if whole && globs.iter().any(|glob| glob.takes(&path)) {
                        self.due.insert(*pool, now + SETTLED);
                    }
                }
            }
        }
        rebuild
    }

    /// When a pool is settled.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.due.values().min().copied()
    }
}

/// Whether a file beneath a directory matches.
fn holds(directory: &Path, globs: &[Glob]) -> bool {
    let mut all = vec![directory.to_owned()];
    let mut seen = 0;
    while let Some(directory) = all.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            seen += 1;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if seen > DIRECTORIES || (!is_directory && globs.iter().any(|glob| glob.takes(&entry.path()))) {
                return true;
            }
            if is_directory {
                all.push(entry.path());
            }
        }
    }
    false
}

impl Shell {
    /// Watches what a pool's settings in force name.
    pub(super) fn watch_files(&mut self, pool: PoolId) {
        let settings = self.places.get(&pool).and_then(|place| place.current()).map(|r| &r.settings);
        let (changed, faults) = match settings {
            Some(settings) => self.watches.set(pool, &settings.watch, settings.directory.as_deref()),
            None => self.watches.set(pool, &[], None),
        };
        for fault in faults {
            tracing::error!(pool = self.name(pool), "{fault}");
        }
        if changed {
            self.watches_anew();
        }
    }

    fn watches_anew(&mut self) {
        if let Some(inotify) = &self.watches.inotify {
            self.poll.remove(inotify);
        }
        if let Err(e) = self.watches.rebuild() {
            tracing::error!("{e}");
        }
        if let Some(Err(e)) =
            self.watches.inotify.as_ref().map(|inotify| self.poll.add(inotify, Token::Files))
        {
            tracing::error!("watch files: {e}");
        }
    }

    /// Files changed.
    pub(super) fn read_changes(&mut self) {
        let mut rebuild = false;
        while let Some(Ok(events)) = self.watches.inotify.as_ref().map(Inotify::read_events) {
            rebuild |= self.watches.note(&events, now());
        }
        if rebuild {
            self.watches_anew();
        }
    }

    /// Reloads pools whose files changed and are quiet again.
    pub(super) fn reload_watched(&mut self) {
        let settled: Vec<PoolId> =
            self.watches.due.iter().filter(|(_, at)| **at <= now()).map(|(pool, _)| *pool).collect();
        for pool in settled {
            self.watches.due.remove(&pool);
            let name = self.name(pool);
            tracing::info!(pool = name, "its files changed");
            let _ = self.load(&Which { names: Some(BTreeSet::from([name])), changed: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_its_files_and_what_stands_above_them() {
        let glob = Glob::new("app/**/*.py", Some(Path::new("/srv/shop"))).unwrap();
        assert_eq!(glob.base, Path::new("/srv/shop/app"));
        for (path, takes) in [
            ("/srv/shop/app/a.py", true),
            ("/srv/shop/app/b/c.py", true),
            ("/srv/shop/app", true),
            ("/srv/shop", true),
            ("/srv/shop/app/a.pyc", false),
            ("/srv/shop/other.py", false),
        ] {
            assert_eq!(glob.takes(Path::new(path)), takes, "{path}");
        }
        let one = Glob::new("/srv/shop/restart.txt", None).unwrap();
        assert_eq!(one.base, Path::new("/srv/shop"));
        assert!(one.takes(Path::new("/srv/shop/restart.txt")));
    }

    #[test]
    fn a_write_a_rename_and_a_new_directory_are_seen() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("app");
        fs::create_dir(&base).unwrap();
        let mut watches = Watches::default();
        let pattern = base.join("**/*.py").to_string_lossy().into_owned();
        assert!(watches.set(PoolId(1), &[pattern], None).0);
        watches.rebuild().unwrap();
        let mut changed = |deed: &dyn Fn()| {
            watches.due.clear();
            deed();
            while let Ok(events) = watches.inotify.as_ref().unwrap().read_events() {
                if watches.note(&events, Duration::ZERO) {
                    watches.rebuild().unwrap();
                }
            }
            !watches.due.is_empty()
        };
        assert!(changed(&|| fs::write(base.join("a.py"), "1").unwrap()));
        assert!(!changed(&|| fs::write(base.join("a.log"), "1").unwrap()));
        assert!(changed(&|| fs::rename(base.join("a.log"), base.join("b.py")).unwrap()));
        assert!(!changed(&|| fs::create_dir(base.join("new")).unwrap()));
        assert!(changed(&|| fs::write(base.join("new/c.py"), "1").unwrap()));
        assert!(changed(&|| {
            fs::create_dir(base.join("full")).unwrap();
            fs::write(base.join("full/d.py"), "1").unwrap();
        }));
        assert!(changed(&|| fs::rename(&base, place.path().join("old")).unwrap()));
        assert!(changed(&|| fs::create_dir(&base).unwrap()));
        assert!(changed(&|| fs::write(base.join("a.py"), "1").unwrap()));
    }
}
