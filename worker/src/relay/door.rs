//! Where a program listens: a Unix socket in a directory that only this user may enter, and which is gone from the
//! disk as soon as the socket can be reached without its name.
//!
//! Always holds: nobody but this user reaches the program; once [`Door::hide`] is done nothing is left behind on
//! the disk, however this process ends. The socket is then reached through a descriptor of its file (`O_PATH`, by
//! way of `/proc/self/fd`), for as long as the [`Door`] lives. The door of a program that workers share keeps its name
//! until the program has ended.
//!
//! Limitation: a worker that is killed before its program is ready leaves an empty socket in the directory for
//! temporary files.

use super::share::Share;
use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
    unistd::mkdtemp,
};
use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// See the module.
pub(super) struct Door {
    directory: PathBuf,
    socket: PathBuf,
    /// The socket's file, without a name.
    hidden: Option<OwnedFd>,
    /// Other workers reach it by its name, which somebody else takes away.
    shared: bool,
}

impl Door {
    /// A fresh directory, without a socket in it.
    pub(super) fn new() -> io::Result<Door> {
        let directory = mkdtemp(&std::env::temp_dir().join("hostler-XXXXXX"))?;
        Ok(Door { socket: directory.join("s"), directory, hidden: None, shared: false })
    }

    /// The door of a program that several workers share.
    pub(super) fn shared(share: &Share) -> Door {
        let (directory, socket) = (share.directory().to_path_buf(), share.socket());
        Door { directory, socket, hidden: None, shared: true }
    }

    /// The socket's path, for a program that binds it itself.
    pub(super) fn path(&self) -> &Path {
        &self.socket
    }

    /// Binds the socket, for a program that is given its listener.
    pub(super) fn listen(&mut self) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(&self.socket)?;
        self.hide()?;
        Ok(listener)
    }

    /// Takes the socket's name off the disk.
    pub(super) fn hide(&mut self) -> io::Result<()> {
        if self.hidden.is_none() {
            self.hidden = Some(open(&self.socket, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?);
            if !self.shared {
                self.remove();
            }
        }
        Ok(())
    }

    /// Connects; an error where nobody listens.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        match &self.hidden {
            Some(file) => UnixStream::connect(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => UnixStream::connect(&self.socket),
        }
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.hidden.is_none() && !self.shared {
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_hidden_socket_is_reached_and_leaves_nothing_on_the_disk() {
        let mut door = Door::new().unwrap();
        let mode = fs::metadata(&door.directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let listener = door.listen().unwrap();
        assert!(!door.directory.exists());
        let ours = door.connect().unwrap();
        listener.accept().unwrap();
        drop((listener, ours));
        assert_eq!(door.connect().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_door_that_no_program_has_opened_is_removed() {
        let door = Door::new().unwrap();
        let directory = door.directory.clone();
        assert_eq!(door.connect().unwrap_err().kind(), io::ErrorKind::NotFound);
        let _listener = UnixListener::bind(door.path()).unwrap();
        drop(door);
        assert!(!directory.exists());
    }
}
