//! Which script a request means, and where in its path the script's name ends (RFC 3875, sections 3.2, 3.3).
//!
//! Always holds: a script is an executable regular file beneath the root, as the kernel resolved it
//! ([`crate::beneath`]), of the right owner where one is asked for; no segment of its name begins with a dot.
//! Whatever follows the name in the request's path is PATH_INFO, byte for byte.
//!
//! Limitation: the script is looked up, then executed by its path. Who may write beneath the root can put
//! another file there in between, as he could have before.

use crate::{
    beneath::{Refusal, Root},
    control, files,
};
use std::{
    ffi::OsStr,
    fs::Metadata,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// A script that may be executed, and how the request's path splits at it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Absolute path, beneath the root.
    pub file: PathBuf,
    /// The part of the request's path that names the script.
    pub script_name: Vec<u8>,
    /// What follows it; empty or begins with `/`.
    pub path_info: Vec<u8>,
}

/// What a request's path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A script.
    Script(Script),
    /// A directory that was asked for without its `/`: where to ask instead.
    Redirect(Vec<u8>),
}

/// Why nothing is executed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Nothing is opened.
    Refused(Refusal),
    /// A file is there and must not run: 403; why, for the log.
    Unfit(&'static str),
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Denied::Refused(refusal)
    }
}

/// Where a request points, after routing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// SCRIPT_FILENAME as the web server sent it.
    pub script_filename: Option<&'a [u8]>,
    /// PATH_INFO as the web server sent it.
    pub path_info: Option<&'a [u8]>,
    /// The app's mount, without a trailing slash.
    pub mount: &'a [u8],
    /// The rest of the path, decoded.
    pub path: &'a [u8],
    /// The query string.
    pub query: &'a [u8],
}

/// Finds the script that `place` means.
pub(super) fn find(root: &Root, settings: &control::Cgi, place: &Place<'_>) -> Result<Found, Denied> {
    match place.script_filename.filter(|name| settings.script_filename && !name.is_empty()) {
        Some(name) => find_by_name(root, settings, place, name).map(Found::Script),
        None => find_by_path(root, settings, place),
    }
}

fn find_by_path(root: &Root, settings: &control::Cgi, place: &Place<'_>) -> Result<Found, Denied> {
    let path = if place.path.is_empty() && place.mount.is_empty() { b"/" } else { place.path };
    match walk(root, path)? {
        Stop::File { relative, metadata, end } => {
            let (name, path_info) = path.split_at_checked(end).unwrap_or((path, &[]));
            let file = fit(settings, &relative, &metadata)?;
            let script_name = [place.mount, name].concat();
            Ok(Found::Script(Script { file, script_name, path_info: path_info.to_vec() }))
        }
        Stop::Directory { relative } if path.ends_with(b"/") => {
            let (file, name) = index(root, settings, &relative)?;
            let script_name = [place.mount, path, name.as_bytes()].concat();
            Ok(Found::Script(Script { file, script_name, path_info: Vec::new() }))
        }
        Stop::Directory { relative } => {
            Ok(Found::Redirect(files::with_slash(place.mount, &relative, place.query)))
        }
    }
}

fn find_by_name(
    root: &Root,
    settings: &control::Cgi,
    place: &Place<'_>,
    name: &[u8],
) -> Result<Script, Denied> {
    let name = without_proxy_prefix(name);
    let outside = Denied::Unfit("SCRIPT_FILENAME lies outside the root");
    let below = Path::new(OsStr::from_bytes(name)).strip_prefix(&settings.root).map_err(|_| outside)?;
    let below = [b"/", below.as_os_str().as_bytes()].concat();
    let (file, beyond) = match walk(root, &below)? {
        Stop::File { relative, metadata, end } => {
            (fit(settings, &relative, &metadata)?, below.get(end..).unwrap_or_default())
        }
        Stop::Directory { relative } => (index(root, settings, &relative)?.0, &[][..]),
    };
    let url = [place.mount, place.path].concat();
    let beyond = if beyond.is_empty() { place.path_info.unwrap_or_default() } else { beyond };
    let split = split_url(&url, beyond, file.file_name().unwrap_or_default().as_bytes());
    let (script_name, path_info) = url.split_at_checked(split).unwrap_or((&url, &[]));
    Ok(Script { file, script_name: script_name.to_vec(), path_info: path_info.to_vec() })
}

/// `mod_proxy_fcgi` writes `proxy:fcgi://127.0.0.1:9000/srv/x.cgi`.
fn without_proxy_prefix(name: &[u8]) -> &[u8] {
    let rest = name.strip_prefix(b"proxy:fcgi://").or_else(|| name.strip_prefix(b"proxy:unix:"));
    let path = rest.and_then(|rest| {
        let rest = match rest.iter().position(|&byte| byte == b'|') {
            Some(bar) => rest.get(bar + 1..)?.strip_prefix(b"fcgi://")?,
            None => rest,
        };
        rest.get(rest.iter().position(|&byte| byte == b'/')?..)
    });
    path.unwrap_or(name)
}

/// Where in `url` the script's name ends: before `beyond`, which follows the script on disk or in the web server's
/// eyes; else after the segment that is the name of its file; else at the end (an alias).
fn split_url(url: &[u8], beyond: &[u8], file: &[u8]) -> usize {
    if !beyond.is_empty() && url.ends_with(beyond) {
        return url.len() - beyond.len();
    }
    let mut end = url.len();
    loop {
        let segments = url.get(..end).unwrap_or_default();
        let Some(slash) = segments.iter().rposition(|&byte| byte == b'/') else { return url.len() };
        if !file.is_empty() && segments.get(slash + 1..) == Some(file) {
            return end;
        }
        end = slash;
    }
}

/// Where a walk along a path on disk stopped.
pub(crate) enum Stop {
    /// At a file, whose name ends at `end` in the path.
    File { relative: Vec<u8>, metadata: Metadata, end: usize },
    /// At the path's end, in a directory.
    Directory { relative: Vec<u8> },
}

/// Follows `path`, which begins with a `/`, down from the root until something is a file.
pub(crate) fn walk(root: &Root, path: &[u8]) -> Result<Stop, Refusal> {
    let mut relative = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(start) = path.iter().skip(at).position(|&byte| byte != b'/').map(|skip| at + skip) {
        let rest = path.get(start..).unwrap_or_default();
        let end = start + rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let segment = path.get(start..end).unwrap_or_default();
        if segment.starts_with(b".") || segment.contains(&0) {
            return Err(Refusal::Absent);
        }
        if !relative.is_empty() {
            relative.push(b'/');
        }
        relative.extend_from_slice(segment);
        let metadata = root.metadata(&relative)?;
        if metadata.is_file() {
            return Ok(Stop::File { relative, metadata, end });
        }
        if !metadata.is_dir() {
            return Err(Refusal::Absent);
        }
        at = end;
    }
    Ok(Stop::Directory { relative })
}

/// The first index script of a directory, with its name.
fn index<'a>(root: &Root, settings: &'a control::Cgi, relative: &[u8]) -> Result<(PathBuf, &'a str), Denied> {
    for name in &settings.index {
        let mut relative = relative.to_vec();
        if !relative.is_empty() {
            relative.push(b'/');
        }
        relative.extend_from_slice(name.as_bytes());
        match root.metadata(&relative) {
            Ok(metadata) if metadata.is_file() => return Ok((fit(settings, &relative, &metadata)?, name)),
            Ok(_) | Err(Refusal::Absent) => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    Err(Denied::Unfit("a directory without an index script"))
}

/// The absolute path of a file that may run.
fn fit(settings: &control::Cgi, relative: &[u8], metadata: &Metadata) -> Result<PathBuf, Denied> {
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(Denied::Unfit("the script is not executable"));
    }
    if settings.owner.is_some_and(|owner| owner != metadata.uid()) {
        return Err(Denied::Unfit("the script belongs to another user than `owner`"));
    }
    Ok(Path::new(&settings.root).join(OsStr::from_bytes(relative)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Symlinks;
    use std::{fs, os::unix::fs::symlink};

    /// A root of its own for a test, removed at its end.
    struct Site(PathBuf);

    impl Site {
        fn new(name: &str) -> Site {
            let path = std::env::temp_dir().join(format!("hostler-cgi-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("bin/sub")).unwrap();
            for script in ["bin/a.cgi", "bin/sub/index.cgi", "secret.cgi", "bin/.hidden.cgi"] {
                fs::write(path.join(script), "#!/bin/sh\n").unwrap();
                fs::set_permissions(path.join(script), fs::Permissions::from_mode(0o755)).unwrap();
            }
            fs::write(path.join("bin/data.txt"), "").unwrap();
            fs::set_permissions(path.join("bin/data.txt"), fs::Permissions::from_mode(0o644)).unwrap();
            symlink("../secret.cgi", path.join("bin/out.cgi")).unwrap();
            symlink("a.cgi", path.join("bin/in.cgi")).unwrap();
            nix::unistd::mkfifo(&path.join("bin/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            Site(path)
        }

        fn settings(&self) -> control::Cgi {
            let root = self.0.join("bin").to_str().unwrap().to_owned();
            let index = vec!["index.cgi".to_owned()];
            control::Cgi { root, script_filename: true, index, owner: None, env: vec![] }
        }

        fn find(&self, place: &Place<'_>) -> Result<Found, Denied> {
            let settings = self.settings();
            find(&Root::open(&settings.root, Symlinks::Beneath).unwrap(), &settings, place)
        }

        /// What the request path `path` below `mount` leads to: file, SCRIPT_NAME and PATH_INFO.
        fn by_path(&self, mount: &str, path: &str) -> Result<(String, String, String), Denied> {
            let place = Place {
                script_filename: None,
                path_info: None,
                mount: mount.as_bytes(),
                path: path.as_bytes(),
                query: b"q",
            };
            self.find(&place).map(|found| self.told(found))
        }

        fn by_name(&self, name: &str, mount: &str, path: &str) -> Result<(String, String, String), Denied> {
            let script_filename = Some(name.as_bytes());
            let place = Place {
                script_filename,
                path_info: None,
                mount: mount.as_bytes(),
                path: path.as_bytes(),
                query: b"",
            };
            self.find(&place).map(|found| self.told(found))
        }

        fn told(&self, found: Found) -> (String, String, String) {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            match found {
                Found::Redirect(to) => ("redirect".into(), text(to), String::new()),
                Found::Script(s) => {
                    let file = s.file.strip_prefix(self.0.join("bin")).unwrap().to_str().unwrap().to_owned();
                    (file, text(s.script_name), text(s.path_info))
                }
            }
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn told(file: &str, name: &str, info: &str) -> Result<(String, String, String), Denied> {
        Ok((file.into(), name.into(), info.into()))
    }

    #[test]
    fn the_path_is_split_where_a_file_lies_on_disk() {
        let site = Site::new("split");
        assert_eq!(site.by_path("", "/a.cgi"), told("a.cgi", "/a.cgi", ""));
        assert_eq!(site.by_path("", "/a.cgi/x/../y//z"), told("a.cgi", "/a.cgi", "/x/../y//z"));
        assert_eq!(site.by_path("/cgi-bin", "/a.cgi/"), told("a.cgi", "/cgi-bin/a.cgi", "/"));
        assert_eq!(
            site.by_path("/m", "//sub//index.cgi/i"),
            told("sub/index.cgi", "/m//sub//index.cgi", "/i")
        );
        assert_eq!(site.by_path("", "/in.cgi"), told("in.cgi", "/in.cgi", ""));
    }

    #[test]
    fn a_directory_is_its_index_script_or_a_redirect_to_its_slash() {
        let site = Site::new("index");
        assert_eq!(site.by_path("/m", "/sub/"), told("sub/index.cgi", "/m/sub/index.cgi", ""));
        assert_eq!(site.by_path("/m", "/sub"), told("redirect", "/m/sub/?q", ""));
        assert_eq!(site.by_path("/m", ""), told("redirect", "/m/?q", ""));
        assert_eq!(site.by_path("", "/"), Err(Denied::Unfit("a directory without an index script")));
    }

    #[test]
    fn nothing_but_an_executable_file_beneath_the_root_runs() {
        let site = Site::new("fit");
        let absent = Err(Denied::Refused(Refusal::Absent));
        for path in [
            "/none.cgi",
            "/out.cgi",
            "/fifo",
            "/.hidden.cgi",
            "/../secret.cgi",
            "/sub/../../secret.cgi",
            "/a.cg\0i",
        ] {
            assert_eq!(site.by_path("", path), absent, "{path:?}");
        }
        assert_eq!(site.by_path("", "/data.txt"), Err(Denied::Unfit("the script is not executable")));
    }

    #[test]
    fn a_script_of_another_owner_does_not_run() {
        let site = Site::new("owner");
        let root = Root::open(&site.settings().root, Symlinks::Beneath).unwrap();
        let place = Place { script_filename: None, path_info: None, mount: b"", path: b"/a.cgi", query: b"" };
        let mine = nix::unistd::geteuid().as_raw();
        let find_owned = |owner| find(&root, &control::Cgi { owner: Some(owner), ..site.settings() }, &place);
        assert!(find_owned(mine).is_ok());
        assert!(matches!(find_owned(mine + 1), Err(Denied::Unfit(_))));
    }

    #[test]
    fn script_filename_of_the_web_server_counts_and_must_lie_beneath_the_root() {
        let site = Site::new("name");
        let root = site.settings().root;
        let name = |rest: &str| format!("{root}{rest}");
        assert_eq!(
            site.by_name(&name("/a.cgi"), "", "/cgi-bin/a.cgi/i"),
            told("a.cgi", "/cgi-bin/a.cgi", "/i")
        );
        assert_eq!(
            site.by_name(&name("/a.cgi/i"), "", "/cgi-bin/alias/i"),
            told("a.cgi", "/cgi-bin/alias", "/i")
        );
        assert_eq!(site.by_name(&name("/a.cgi"), "/x", "/alias"), told("a.cgi", "/x/alias", ""));
        assert_eq!(site.by_name(&name("/sub/"), "", "/sub/"), told("sub/index.cgi", "/sub/", ""));
        let proxied = format!("proxy:fcgi://127.0.0.1:9000{root}/a.cgi");
        assert_eq!(site.by_name(&proxied, "", "/a.cgi"), told("a.cgi", "/a.cgi", ""));
        let outside = Err(Denied::Unfit("SCRIPT_FILENAME lies outside the root"));
        for elsewhere in ["/bin/sh", "a.cgi", &format!("{root}-other/a.cgi")] {
            assert_eq!(site.by_name(elsewhere, "", "/a.cgi"), outside, "{elsewhere}");
        }
        assert_eq!(site.by_name(&name("/../secret.cgi"), "", "/"), Err(Denied::Refused(Refusal::Absent)));
        assert_eq!(site.by_name("", "", "/a.cgi"), told("a.cgi", "/a.cgi", ""));
    }

    #[test]
    fn the_prefix_of_apache_is_taken_off() {
        for (sent, want) in [
            ("proxy:fcgi://localhost:9000/srv/x.cgi", "/srv/x.cgi"),
            ("proxy:unix:/run/h.sock|fcgi://localhost/srv/x.cgi", "/srv/x.cgi"),
            ("proxy:fcgi://localhost", "proxy:fcgi://localhost"),
            ("/srv/proxy:fcgi://x", "/srv/proxy:fcgi://x"),
        ] {
            assert_eq!(without_proxy_prefix(sent.as_bytes()), want.as_bytes(), "{sent}");
        }
    }
}
