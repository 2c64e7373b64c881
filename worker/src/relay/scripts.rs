//! Which script beneath `root` a request means, where the web server has not named one that is there: what it would
//! look up itself.
//!
//! A script is a file whose name ends as one of `index` does (`index.php`: `.php`). Any other file is sent as it is;
//! a directory is its index; what is not there is for the index of the root, as a front controller, unless it names
//! a script itself: then it is a 404.
//!
//! Always holds: only a file with a script's ending is given to the program (`/upload/a.jpg/x.php` is the file
//! `a.jpg`, not a script); nothing outside the root is looked at; no segment of a script's name begins with a dot.

use crate::{
    beneath::{Refusal, Root},
    cgi::script::{Stop, walk},
    control::{self, Symlinks},
    files::{self, Files},
};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// See the module.
pub(super) struct Scripts {
    root: Root,
    path: PathBuf,
    index: Vec<String>,
    /// What sends the other files.
    pub files: Files,
}

/// A script for the program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Absolute path.
    pub file: Vec<u8>,
    /// The part of the request's path that names the script, the app's mount included.
    pub script_name: Vec<u8>,
    /// What follows it; empty or begins with `/`.
    pub path_info: Vec<u8>,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A script.
    Script(Script),
    /// A file, or what [`Files`] makes of the path.
    File,
    /// A directory that was asked for without its `/`: where to ask instead.
    Redirect(Vec<u8>),
    /// A script that is not there.
    Absent,
}

impl Scripts {
    /// Opens the root.
    ///
    /// # Errors
    /// A phrase for the log: what cannot be used and why.
    pub(super) fn new(root: &str, index: &[String]) -> Result<Scripts, String> {
        if let Some(name) = index.iter().find(|name| name.is_empty() || name.contains(['/', '\0'])) {
            return Err(format!("the index {name:?} is no file name"));
        }
        let files = Files::new(&control::Files {
            root: root.to_owned(),
            index: vec!["index.html".to_owned()],
            listing: false,
            symlinks: Symlinks::Beneath,
            dot_files: false,
            precompressed: false,
            cache_control: None,
        })?;
        Ok(Scripts {
            root: Root::open(root, Symlinks::Beneath)?,
            path: root.into(),
            index: index.to_vec(),
            files,
        })
    }

    /// The directory.
    pub(super) fn root(&self) -> &Path {
        &self.path
    }

    /// Whether a web server's SCRIPT_FILENAME counts: it is a script, a regular file beneath the root. A name with
    /// more behind it, such as `/srv/site/a.jpg/x.php`, is none.
    pub(super) fn is_named(&mut self, file: &[u8]) -> bool {
        let root = self.path.as_os_str().as_bytes();
        let below = file.strip_prefix(root.strip_suffix(b"/").unwrap_or(root));
        let Some(relative) = below.and_then(|below| below.strip_prefix(b"/")) else { return false };
        let relative = relative.to_vec();
        if !self.index.is_empty() && !self.is_script(&relative) {
            return false;
        }
        self.root.refresh();
        self.root.metadata(&relative).is_ok_and(|metadata| metadata.is_file())
    }

    /// What `path`, which follows the mount, leads to.
    pub(super) fn find(&mut self, mount: &[u8], path: &[u8], query: &[u8]) -> Found {
        self.root.refresh();
        let path = if path.is_empty() && mount.is_empty() { b"/" } else { path };
        if self.index.is_empty() {
            return Found::Script(self.script(path.strip_prefix(b"/").unwrap_or(path), mount, path, b""));
        }
        match walk(&self.root, path) {
            Ok(Stop::File { relative, end, .. }) if self.is_script(&relative) => {
                let (name, path_info) = path.split_at_checked(end).unwrap_or((path, &[]));
                Found::Script(self.script(&relative, mount, name, path_info))
            }
            Ok(Stop::File { end, .. }) if end == path.len() => Found::File,
            Ok(Stop::File { .. }) => Found::Absent,
            Ok(Stop::Directory { relative }) if path.ends_with(b"/") => {
                self.index_of(&relative, mount, path).unwrap_or(Found::File)
            }
            Ok(Stop::Directory { relative }) => Found::Redirect(files::with_slash(mount, &relative, query)),
            Err(Refusal::Absent) if !path.windows(2).any(|two| two == b"/.") => self.front(mount, path),
            Err(_) => Found::File,
        }
    }

    /// The front controller of a path that is not there.
    fn front(&self, mount: &[u8], path: &[u8]) -> Found {
        if self.is_script(path) {
            return Found::Absent;
        }
        self.index_of(b"", mount, b"/").unwrap_or(Found::File)
    }

    fn index_of(&self, relative: &[u8], mount: &[u8], path: &[u8]) -> Option<Found> {
        self.index.iter().find_map(|name| {
            let relative = match relative {
                b"" => name.as_bytes().to_vec(),
                _ => [relative, b"/", name.as_bytes()].concat(),
            };
            self.root.metadata(&relative).ok().filter(|metadata| metadata.is_file())?;
            let name = [path, name.as_bytes()].concat();
            Some(Found::Script(self.script(&relative, mount, &name, b"")))
        })
    }

    fn is_script(&self, name: &[u8]) -> bool {
        self.index.iter().any(|index| {
            let ending = index.rfind('.').and_then(|at| index.get(at..)).unwrap_or(index);
            name.ends_with(ending.as_bytes())
        })
    }

    fn script(&self, relative: &[u8], mount: &[u8], name: &[u8], path_info: &[u8]) -> Script {
        let root = self.path.as_os_str().as_bytes();
        Script {
            file: [root.strip_suffix(b"/").unwrap_or(root), b"/", relative].concat(),
            script_name: [mount, name].concat(),
            path_info: path_info.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Site(PathBuf);

    impl Site {
        fn new(name: &str) -> Site {
            let path = std::env::temp_dir().join(format!("hostler-relay-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("sub")).unwrap();
            fs::create_dir_all(path.join("plain")).unwrap();
            for file in ["index.php", "a.php", "sub/index.php", "a.jpg", "style.css", ".env.php"] {
                fs::write(path.join(file), "").unwrap();
            }
            Site(path)
        }

        fn find(&self, index: &[&str], mount: &str, path: &str) -> Found {
            let index: Vec<String> = index.iter().map(|name| (*name).to_owned()).collect();
            let mut scripts = Scripts::new(self.0.to_str().unwrap(), &index).unwrap();
            scripts.find(mount.as_bytes(), path.as_bytes(), b"q=1")
        }

        fn script(&self, file: &str, name: &str, info: &str) -> Found {
            let file = self.0.join(file).to_str().unwrap().into();
            Found::Script(Script { file, script_name: name.into(), path_info: info.into() })
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_path_leads_to_a_script_a_file_or_the_front_controller() {
        let site = Site::new("find");
        for (mount, path, found) in [
            ("", "/a.php", site.script("a.php", "/a.php", "")),
            ("/m", "/a.php/more/x", site.script("a.php", "/m/a.php", "/more/x")),
            ("", "/", site.script("index.php", "/index.php", "")),
            ("", "", site.script("index.php", "/index.php", "")),
            ("", "/sub/", site.script("sub/index.php", "/sub/index.php", "")),
            ("", "/pretty/url", site.script("index.php", "/index.php", "")),
            ("/m", "/sub", Found::Redirect(b"/m/sub/?q=1".to_vec())),
            ("", "/plain/", Found::File),
            ("", "/style.css", Found::File),
            ("", "/none.php", Found::Absent),
            ("", "/.env.php", Found::File),
            ("", "/.git/config", Found::File),
        ] {
            assert_eq!(site.find(&["index.php"], mount, path), found, "{mount} {path}");
        }
    }

    #[test]
    fn a_file_that_is_no_script_is_never_run_as_one() {
        let site = Site::new("upload");
        for path in ["/a.jpg/x.php", "/a.jpg/.php", "/style.css/a.php"] {
            assert_eq!(site.find(&["index.php"], "", path), Found::Absent, "{path}");
        }
    }

    #[test]
    fn a_script_that_the_web_server_names_must_be_one_beneath_the_root() {
        let site = Site::new("named");
        let root = site.0.to_str().unwrap();
        let mut scripts = Scripts::new(root, &["index.php".to_owned()]).unwrap();
        for (file, named) in [
            ("/sub/index.php", true),
            ("/a.jpg", false),
            ("/a.jpg/x.php", false),
            ("/none.php", false),
            ("/../elsewhere.php", false),
            ("-other/a.php", false),
        ] {
            assert_eq!(scripts.is_named(format!("{root}{file}").as_bytes()), named, "{file}");
        }
        assert!(!scripts.is_named(b"/etc/passwd"));
        assert!(!scripts.is_named(format!("proxy:fcgi://localhost{root}/a.php").as_bytes()));
    }

    #[test]
    fn without_an_index_every_path_is_the_programs() {
        let site = Site::new("all");
        assert_eq!(site.find(&[], "", "/x/y"), site.script("x/y", "/x/y", ""));
        assert_eq!(site.find(&[], "/m", "/a.jpg"), site.script("a.jpg", "/m/a.jpg", ""));
    }
}
