//! Opening what lies beneath a root, and nothing else: the kernel resolves the whole path in one call
//! (`openat2` with `RESOLVE_BENEATH`), so that no `..`, no symbolic link, no rename in the middle and no magic
//! link of /proc leads out.
//!
//! Always holds: what is opened is a regular file or a directory beneath the root; nothing here blocks on a
//! FIFO or a terminal. Symbolic links are followed as the policy says, those that lead out never; the root's
//! own path may hold links, and is looked up anew every second, so that a deployment may switch such a link.
//!
//! Limitation: to learn that a name is a FIFO or a device, it is opened (for reading, without waiting).

use crate::control::Symlinks;
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2},
    sys::stat::{Mode, fstat},
};
use std::{
    fs::{File, Metadata},
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// How long the root's descriptor is used before its path is looked up again.
const ROOT_LIFETIME: Duration = Duration::from_secs(1);
/// How often a lookup is tried that a concurrent rename disturbed.
const ATTEMPTS: usize = 8;

/// The directory that nothing leaves.
pub(crate) struct Root {
    path: PathBuf,
    directory: OwnedFd,
    looked_up: Instant,
    resolve: ResolveFlag,
}

/// What a path beneath the root turned out to be.
pub(crate) enum Entry {
    /// A regular file.
    File(Opened),
    /// A directory.
    Directory(File),
}

/// An open regular file, as it was when it was opened.
pub(crate) struct Opened {
    /// Open for reading.
    pub file: File,
    /// Bytes.
    pub size: u64,
    /// Last change of its content.
    pub modified: SystemTime,
    /// Inode number.
    pub inode: u64,
}

/// Why nothing was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is nothing to serve under this name, or it leads out of the root.
    Absent,
    /// It is there, and the worker may not read it.
    Forbidden,
    /// The system could not: too many open files, an I/O error.
    Failed(Errno),
}

impl Root {
    /// Opens the root and tries that the kernel can hold requests inside.
    ///
    /// # Errors
    /// A phrase for the log: no such directory, no permission, or a kernel without `openat2`.
    pub(crate) fn open(path: &str, symlinks: Symlinks) -> Result<Root, String> {
        let directory =
            open_directory(Path::new(path)).map_err(|e| format!("open the root {path}: {}", e.desc()))?;
        let resolve = ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_MAGICLINKS
            | match symlinks {
                Symlinks::Never => ResolveFlag::RESOLVE_NO_SYMLINKS,
                Symlinks::Beneath => ResolveFlag::empty(),
            };
        let root = Root { path: path.into(), directory, looked_up: Instant::now(), resolve };
        match root.resolve(b"", OFlag::O_PATH) {
            Ok(_) => Ok(root),
            Err(Errno::ENOSYS | Errno::EPERM) => Err(format!(
                "hold requests inside the root {path}: this kernel (or its seccomp filter) has no openat2; \
                 Linux 5.6 or newer is needed"
            )),
            Err(e) => Err(format!("look into the root {path}: {}", e.desc())),
        }
    }

    /// Looks the root's path up again where that was not done for a while. A path that leads nowhere at this
    /// moment leaves the old directory in use.
    pub(crate) fn refresh(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.looked_up) >= ROOT_LIFETIME {
            self.looked_up = now;
            if let Ok(directory) = open_directory(&self.path) {
                self.tell_if_out_of_reach(&directory);
                self.directory = directory;
            }
        }
    }

    /// Says so where the root's path leads to another directory than before, and that one may not be read: by its
    /// mode, or since it lies outside of what the pool's sandbox allows. Clients see 403 alone.
    fn tell_if_out_of_reach(&self, directory: &OwnedFd) {
        if inode(directory) == inode(&self.directory) || readable(directory) || !readable(&self.directory) {
            return;
        }
        let (path, leads_to) = (self.path.display(), std::fs::canonicalize(&self.path));
        let leads_to = leads_to.unwrap_or_else(|_| self.path.clone());
        eprintln!(
            "hostler: the root {path} leads to {} now, which may not be read: its modes, or the pool's sandbox; after a \
             reload the sandbox allows what the root leads to then",
            leads_to.display()
        );
    }

    /// Opens `relative` for reading; empty is the root itself.
    pub(crate) fn entry(&self, relative: &[u8]) -> Result<Entry, Refusal> {
        let file = File::from(self.resolve(relative, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Ok(Entry::Directory(file));
        }
        if !metadata.is_file() {
            return Err(Refusal::Absent);
        }
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Entry::File(Opened { file, size: metadata.size(), modified, inode: metadata.ino() }))
    }

    /// What `relative` leads to, without opening it.
    pub(crate) fn metadata(&self, relative: &[u8]) -> Result<Metadata, Refusal> {
        File::from(self.resolve(relative, OFlag::O_PATH)?).metadata().map_err(Refusal::from)
    }

    fn resolve(&self, relative: &[u8], flags: OFlag) -> Result<OwnedFd, Errno> {
        let relative = if relative.is_empty() { b"." } else { relative };
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(self.resolve);
        let mut outcome = Err(Errno::EAGAIN);
        for _ in 0..ATTEMPTS {
            outcome = openat2(self.directory.as_fd(), relative, how);
            if !matches!(outcome, Err(Errno::EAGAIN | Errno::EINTR)) {
                break;
            }
        }
        outcome
    }
}

fn inode(directory: &OwnedFd) -> Option<(u64, u64)> {
    fstat(directory).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn readable(directory: &OwnedFd) -> bool {
    openat(directory, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).is_ok()
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal::from(Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EACCES | Errno::EPERM => Refusal::Forbidden,
            // EXDEV leads out; ELOOP is a link that the policy refuses, or a circle; ENXIO is a socket.
            Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::EXDEV
            | Errno::ELOOP
            | Errno::ENAMETOOLONG
            | Errno::EINVAL
            | Errno::ENXIO
            | Errno::ENODEV => Refusal::Absent,
            other => Refusal::Failed(other),
        }
    }
}

#[cfg(test)]
impl Root {
    /// As if the root had been looked up long ago.
    pub(crate) fn expire(&mut self) {
        self.looked_up -= ROOT_LIFETIME;
    }
}
