//! How workers find a program that may have several requests at once, and how it is known that none is left in it.
//!
//! A shared program has a directory that only this user may enter, under a name that all workers of a generation can
//! tell: in it are its socket and a file of locks. The worker that made the directory owns the program; as many guests
//! as there are places use it beside the owner.
//!
//! Always holds: locks are of open files (`F_OFD_SETLK`), so whoever dies has let go of them; a request is sent to the
//! program under [`Share::hold`] alone; who has taken the file of locks away ([`Share::dismiss`]) and then finds it
//! free knows that no request is left in the program, and that none will come.

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
    unistd::{geteuid, getppid},
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Programs of one app and generation at most.
const PROGRAMS: u32 = 64;
/// Bytes of the file of locks: read-locked during a request; of the owner; of an owner who wants no more guests; of the
/// warden that runs the program. The guests' places follow.
const REQUESTS: i64 = 0;
const OWNER: i64 = 1;
const SHUT: i64 = 2;
const WARDEN: i64 = 3;
const PLACES: i64 = 4;
/// For how long a directory may be without its file of locks while it is made.
const MAKING: (u32, Duration) = (20, Duration::from_millis(5));
const LOCKS: &str = "locks";
const SOCKET: &str = "s";

/// A share in a program.
pub(super) struct Share {
    directory: PathBuf,
    locks: File,
}

/// What a worker is to the program that it was given.
pub(super) enum Entered {
    /// It starts the program, which ends with it.
    Owner(Share),
    /// The program is another worker's.
    Guest(Share),
}

/// A place in a program of the app that is called `name` here, which may have `concurrency` requests at once; held
/// for a first request ([`Share::hold`]), so that the program does not end before that.
///
/// # Errors
/// What the system refused.
pub(super) fn enter(name: &str, concurrency: u32) -> io::Result<Entered> {
    for number in 0..PROGRAMS {
        let directory = directory(name, number);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Share::make(directory).map(Entered::Owner),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        if let Some(share) = Share::join(&directory, concurrency) {
            return Ok(Entered::Guest(share));
        }
    }
    Err(io::Error::other(format!("{PROGRAMS} directories like {} are there", directory(name, 0).display())))
}

/// The number of the supervisor's process is in it, so that two Hostlers do not meet.
fn directory(name: &str, number: u32) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (name, geteuid().as_raw(), getppid().as_raw()).hash(&mut hasher);
    std::env::temp_dir().join(format!("hostler-{:016x}-{number}", hasher.finish()))
}

impl Share {
    fn make(directory: PathBuf) -> io::Result<Share> {
        // Under another name until it is locked: without its owner's lock it would be a dead one's.
        let making = directory.join("making");
        let locks = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&making)?;
        lock(&locks, OWNER, libc::F_WRLCK)?;
        fs::rename(&making, directory.join(LOCKS))?;
        let share = Share { directory, locks };
        share.hold();
        Ok(share)
    }

    /// A place in the program behind `directory`; `None` where it has none left, ends, or is not ours.
    fn join(directory: &Path, concurrency: u32) -> Option<Share> {
        let found = fs::symlink_metadata(directory).ok()?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return None;
        }
        let mut left = MAKING.0;
        let locks = loop {
            match open(directory) {
                Ok(locks) => break locks,
                // It has a socket when it is made, and no locks any more when it ends.
                Err(_) if left == 0 || directory.join(SOCKET).exists() || !directory.exists() => return None,
                Err(_) => thread::sleep(MAKING.1),
            }
            left -= 1;
        };
        let share = Share { directory: directory.to_path_buf(), locks };
        if !share.is_locked(OWNER) {
            if !share.is_locked(WARDEN) {
                // Both were killed.
                share.remove();
            }
            return None;
        }
        if share.is_locked(SHUT) {
            return None;
        }
        let mut places = PLACES..PLACES + i64::from(concurrency) - 1;
        places.find(|place| lock(&share.locks, *place, libc::F_WRLCK).is_ok())?;
        share.hold().then_some(share)
    }

    /// As the warden of the program.
    pub(super) fn watch(directory: &Path) -> io::Result<Share> {
        let share = Share { directory: directory.to_path_buf(), locks: open(directory)? };
        lock(&share.locks, WARDEN, libc::F_WRLCK)?;
        Ok(share)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the program listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// The program has ended, or will not begin.
    pub(super) fn is_gone(&self) -> bool {
        !self.is_locked(WARDEN) && (self.is_over() || !self.is_locked(OWNER))
    }

    /// The program has ended, or takes no more requests.
    fn is_over(&self) -> bool {
        self.locks.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Keeps the program from its end for a request, until [`Share::release`]; `false` where it is over.
    pub(super) fn hold(&self) -> bool {
        if lock(&self.locks, REQUESTS, libc::F_RDLCK).is_err() {
            return false;
        }
        let over = self.is_over();
        if over {
            self.release();
        }
        !over
    }

    pub(super) fn release(&self) {
        let _ = lock(&self.locks, REQUESTS, libc::F_UNLCK);
    }

    /// No guest comes any more; those that are there stay.
    pub(super) fn shut(&self) {
        let _ = lock(&self.locks, SHUT, libc::F_WRLCK);
    }

    /// No request is sent to the program from now on.
    pub(super) fn dismiss(&self) {
        let _ = fs::remove_file(self.directory.join(LOCKS));
    }

    /// No request is in the program; to be asked after [`Share::dismiss`].
    pub(super) fn is_free(&self) -> bool {
        lock(&self.locks, REQUESTS, libc::F_WRLCK).is_ok()
    }

    /// The program is gone: so is its directory.
    pub(super) fn remove(&self) {
        self.dismiss();
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.directory);
    }

    /// By somebody else.
    fn is_locked(&self, byte: i64) -> bool {
        let mut lock = region(byte, libc::F_WRLCK);
        let asked = fcntl(&self.locks, FcntlArg::F_OFD_GETLK(&mut lock));
        asked.is_ok() && libc::c_int::from(lock.l_type) != libc::F_UNLCK
    }
}

fn open(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(directory.join(LOCKS))
}

/// Sets or lifts a lock on one byte, or fails at once.
fn lock(file: &File, byte: i64, kind: libc::c_int) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&region(byte, kind)))?;
    Ok(())
}

fn region(byte: i64, kind: libc::c_int) -> libc::flock {
    // The constants are declared wider than the fields that take them.
    let short = |number| libc::c_short::try_from(number).unwrap_or_default();
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start: byte, l_len: 1, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(entered: io::Result<Entered>) -> Option<Share> {
        match entered.unwrap() {
            Entered::Guest(share) => {
                share.release();
                Some(share)
            }
            Entered::Owner(_) => None,
        }
    }

    fn owner(entered: io::Result<Entered>) -> Share {
        match entered.unwrap() {
            Entered::Owner(share) => {
                share.release();
                share
            }
            Entered::Guest(_) => panic!("a guest where an owner was expected"),
        }
    }

    #[test]
    fn a_program_has_as_many_users_as_it_may_have_requests_and_the_next_starts_another() {
        let own = owner(enter("places", 3));
        let guests = [(); 2].map(|()| guest(enter("places", 3)).unwrap());
        assert!(guests.iter().all(|guest| guest.directory() == own.directory()));
        let other = owner(enter("places", 3));
        assert_ne!(other.directory(), own.directory());
        let [gone, _stays] = guests;
        drop(gone);
        assert_eq!(guest(enter("places", 3)).unwrap().directory(), own.directory());
        own.remove();
        other.remove();
    }

    #[test]
    fn a_program_that_is_shut_keeps_its_guests_and_one_whose_owner_died_gets_none() {
        let own = owner(enter("shut", 3));
        let before = guest(enter("shut", 3)).unwrap();
        own.shut();
        let other = owner(enter("shut", 3));
        assert!(before.hold());
        let watch = Share::watch(own.directory()).unwrap();
        drop(own);
        let third = guest(enter("shut", 3)).unwrap();
        assert_eq!(third.directory(), other.directory());
        assert!(!before.is_gone(), "its warden has it");
        drop(watch);
        assert!(before.is_gone());
        other.remove();
        assert!(guest(enter("shut", 3)).is_none());
        assert!(!before.directory().exists(), "what the killed have left is taken away");
        Share::remove(&owner(enter("shut", 3)));
    }

    #[test]
    fn a_program_that_is_dismissed_ends_after_the_requests_in_it_and_takes_no_more() {
        let own = owner(enter("dismissed", 3));
        let (busy, idle) = (guest(enter("dismissed", 3)).unwrap(), guest(enter("dismissed", 3)).unwrap());
        let watch = Share::watch(own.directory()).unwrap();
        assert!(busy.hold() && !busy.is_over());
        watch.dismiss();
        assert!(!watch.is_free() && !idle.hold() && own.is_over());
        busy.release();
        assert!(watch.is_free() && !busy.hold());
        watch.remove();
        assert!(!own.directory().exists());
    }
}
