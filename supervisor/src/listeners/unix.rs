//! Unix sockets with a file.
//!
//! Always holds: owner, group and mode are set through the very file that was made, never through a name that
//! somebody could have put something else under; nobody can connect before, because the socket does not listen
//! yet. The socket is bound under its own name, so that `ss -xl` shows it.

use super::{Bound, Error, backlog, failed, refused, stream_socket};
use crate::settings::Listen;
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open},
    sys::{
        socket::{
            AddressFamily, UnixAddr, bind as bind_socket, connect, getsockopt, listen as listen_on, sockopt,
        },
        stat::Mode,
    },
    unistd::{Gid, Uid, fchownat},
};
use std::{
    fs,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::Path,
};

/// Which file a path led to: a path whose file has another identity is no longer ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that `path` itself is, no symbolic link followed; `None` where there is none.
    pub(crate) fn of(path: &Path) -> Option<FileId> {
        fs::symlink_metadata(path).ok().map(|meta| FileId { device: meta.dev(), inode: meta.ino() })
    }

    /// What tells it from other files of its file system.
    pub(crate) fn inode(self) -> u64 {
        self.inode
    }
}

/// Binds, sets owner and mode, then listens.
pub(super) fn bind(path: &Path, listen: &Listen) -> Result<Bound, Error> {
    let address = address(path, listen)?;
    if free(path, &address, listen)? == Room::Stale {
        let what = "remove the stale socket file of a former process";
        fs::remove_file(path).map_err(|e| failed(listen, &format!("{what}: {e}")))?;
    }
    let fd = stream_socket(AddressFamily::Unix, listen)?;
    bind_socket(fd.as_raw_fd(), &address).map_err(|e| cannot_bind(path, listen, e))?;
    let made = FileId::of(path);
    let ready = set_owner_and_mode(path, made, listen)
        .and_then(|()| listen_on(&fd, backlog(listen.backlog)).map_err(|e| refused(listen, e)));
    if let (Err(_), Some(file)) = (&ready, made) {
        remove(path, file);
    }
    ready.map(|()| Bound { fd, file: made, lent: false })
}

/// The address of a path.
pub(super) fn address(path: &Path, listen: &Listen) -> Result<UnixAddr, Error> {
    UnixAddr::new(path).map_err(|_| failed(listen, "the path is longer than 107 bytes"))
}

/// See [`Bound::refresh`].
pub(super) fn refresh(path: &Path, file: FileId, listen: &Listen) -> Result<Option<Bound>, Error> {
    if FileId::of(path) == Some(file) {
        return set_owner_and_mode(path, Some(file), listen).map(|()| None);
    }
    bind(path, listen).map(Some)
}

/// Removes the file where it is still the one that was made here.
pub(super) fn remove(path: &Path, file: FileId) {
    if FileId::of(path) == Some(file) {
        // Somebody else may have been faster, which is as good.
        let _ = fs::remove_file(path);
    }
}

/// What is at a path that may be bound.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Nothing.
    Free,
    /// A socket file that nobody listens on any more.
    Stale,
}

/// Whether a path can be bound; refuses a live socket and whatever is no socket.
pub(super) fn free(path: &Path, address: &UnixAddr, listen: &Listen) -> Result<Room, Error> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(Room::Free) };
    if !meta.file_type().is_socket() {
        let what = if meta.is_dir() { "a directory" } else { "a file that is no socket" };
        return Err(failed(listen, &format!("there is {what} with that name; move it away")));
    }
    let probe = stream_socket(AddressFamily::Unix, listen)?;
    match connect(probe.as_raw_fd(), address) {
        Err(Errno::ECONNREFUSED) => Ok(Room::Stale),
        Err(Errno::ENOENT) => Ok(Room::Free),
        Ok(()) | Err(Errno::EAGAIN | Errno::EPROTOTYPE) => {
            let by = getsockopt(&probe, sockopt::PeerCredentials).map(|c| c.pid()).unwrap_or(0);
            let by = if by > 0 { format!("process {by}") } else { "another process".to_owned() };
            let what = "listens there; stop it, or choose another address";
            Err(Error::InUse(format!("listen on {}: {by} {what}", listen.address)))
        }
        Err(e) => Err(failed(listen, &format!("find out whether somebody listens there: {}", e.desc()))),
    }
}

fn set_owner_and_mode(path: &Path, made: Option<FileId>, listen: &Listen) -> Result<(), Error> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty())
        .map_err(|e| failed(listen, &format!("open the socket file to set its mode: {}", e.desc())))?;
    // A descriptor opened with O_PATH takes no fchmod; its name in /proc leads to the same file.
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let meta = fs::metadata(&same).map_err(|e| failed(listen, &format!("look at the socket file: {e}")))?;
    if made != Some(FileId { device: meta.dev(), inode: meta.ino() }) || !meta.file_type().is_socket() {
        return Err(failed(listen, "somebody replaced the socket file while it was made"));
    }
    if listen.owner.is_some() || listen.group.is_some() {
        let (owner, group) = (listen.owner.map(Uid::from_raw), listen.group.map(Gid::from_raw));
        fchownat(&file, "", owner, group, AtFlags::AT_EMPTY_PATH).map_err(|e| {
            failed(listen, &format!("give the socket file to its owner and group: {}", e.desc()))
        })?;
    }
    fs::set_permissions(&same, fs::Permissions::from_mode(listen.mode))
        .map_err(|e| failed(listen, &format!("set the socket file's mode: {e}")))
}

fn cannot_bind(path: &Path, listen: &Listen, errno: Errno) -> Error {
    let directory = path.parent().unwrap_or(Path::new("/")).display();
    match errno {
        Errno::ENOENT => failed(listen, &format!("there is no directory {directory}")),
        Errno::EACCES | Errno::EPERM => {
            failed(listen, &format!("no permission to make a file in {directory}"))
        }
        Errno::EROFS => failed(listen, &format!("{directory} is on a read-only file system")),
        errno => refused(listen, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Passed, bind};
    use super::*;
    use crate::settings::Address;
    use std::{
        io::Write,
        os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    };

    fn listen(path: &Path) -> Listen {
        Listen::new(Address::Unix(path.to_owned()))
    }

    fn one(listen: &Listen) -> Result<Bound, Error> {
        bind(listen, &Passed::default()).map(|mut bound| bound.remove(0))
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_mode_is_the_configured_one_whatever_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        for wanted in [0o600, 0o660, 0o666, 0o777] {
            let path = dir.path().join(format!("{wanted:o}.sock"));
            let _bound = one(&Listen { mode: wanted, ..listen(&path) }).unwrap();
            assert_eq!(mode(&path), wanted);
        }
    }

    #[test]
    fn owner_and_group_are_the_configured_ones() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _bound = one(&Listen { owner: Some(33), group: Some(34), ..listen(&path) }).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid(), mode(&path)), (33, 34, 0o660));
    }

    #[test]
    fn a_stale_socket_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let _bound = one(&listen(&path)).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_live_socket_is_refused_and_serves_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = one(&listen(&path)).unwrap();
        let error = one(&listen(&path)).unwrap_err();
        let expected = format!(
            "listen on unix:{}: process {} listens there; stop it, or choose another address",
            path.display(),
            std::process::id()
        );
        assert_eq!(error, Error::InUse(expected));
        UnixStream::connect(&path).unwrap();
        assert_eq!(FileId::of(&path), first.file);
    }

    #[test]
    fn a_live_socket_with_a_full_backlog_is_not_taken_for_stale() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _first = one(&Listen { backlog: 1, ..listen(&path) }).unwrap();
        let address = UnixAddr::new(&path).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = stream_socket(AddressFamily::Unix, &listen(&path)).unwrap();
            match connect(client.as_raw_fd(), &address) {
                Ok(()) => waiting.push(client),
                Err(e) => break assert_eq!(e, Errno::EAGAIN),
            }
        }
        assert!(matches!(one(&listen(&path)), Err(Error::InUse(_))));
    }

    #[test]
    fn a_datagram_socket_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _log = UnixDatagram::bind(&path).unwrap();
        assert!(matches!(one(&listen(&path)), Err(Error::InUse(_))));
    }

    #[test]
    fn what_is_no_socket_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::File::create(&path).unwrap().write_all(b"precious").unwrap();
        let error = one(&listen(&path)).unwrap_err().to_string();
        assert!(error.ends_with("there is a file that is no socket with that name; move it away"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        one(&listen(&link)).unwrap_err();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let error = one(&listen(dir.path())).unwrap_err().to_string();
        assert!(error.contains("there is a directory with that name"), "{error}");
    }

    #[test]
    fn a_missing_directory_and_a_long_path_are_named() {
        let error = one(&listen(Path::new("/no/such/s"))).unwrap_err().to_string();
        assert_eq!(error, "listen on unix:/no/such/s: there is no directory /no/such");
        let error = one(&listen(Path::new(&format!("/tmp/{}", "x".repeat(103))))).unwrap_err().to_string();
        assert!(error.ends_with("the path is longer than 107 bytes"), "{error}");
    }

    #[test]
    fn at_the_end_a_file_is_removed_only_where_it_is_still_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        let kept = one(&listen(&ours)).unwrap();
        let lost = one(&listen(&theirs)).unwrap();
        fs::rename(&theirs, dir.path().join("elsewhere")).unwrap();
        let _other = UnixListener::bind(&theirs).unwrap();
        kept.remove_file(&listen(&ours));
        lost.remove_file(&listen(&theirs));
        assert!(!ours.exists());
        assert!(theirs.exists());
    }

    #[test]
    fn a_reload_sets_the_mode_again_and_keeps_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let bound = one(&listen(&path)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let changed = Listen { mode: 0o600, ..listen(&path) };
        assert!(bound.refresh(&changed).unwrap().is_none());
        assert_eq!(mode(&path), 0o600);
        assert_eq!(FileId::of(&path), bound.file);
    }

    #[test]
    fn a_reload_makes_a_deleted_socket_file_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let bound = one(&listen(&path)).unwrap();
        fs::remove_file(&path).unwrap();
        let again = bound.refresh(&listen(&path)).unwrap().unwrap();
        UnixStream::connect(&path).unwrap();
        bound.remove_file(&listen(&path));
        assert_eq!(FileId::of(&path), again.file);
    }
}
