//! Directories for temporary files of pools with a sandbox: one for each, which is the TMPDIR of its workers where the
//! config names no other.
//!
//! Always holds: what others have in /tmp is out of such a pool's reach, and what it has there is its user's alone; no
//! name in a directory that others may write to is taken on trust; all is removed at the end.
//!
//! Limitation: a supervisor that is killed leaves them. Under systemd they go with the service's own /tmp.

use crate::settings::Pool;
use nix::unistd::{Gid, Uid, chown, mkdtemp};
use std::{
    env,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The directory of them all, made when the first pool needs one; dropping it removes it.
#[derive(Debug, Default)]
pub(crate) struct Temporary {
    all: Option<PathBuf>,
    /// Directories that were taken away, for their names.
    emptied: u64,
}

impl Temporary {
    /// What a former program made.
    pub(crate) fn resumed(all: Option<PathBuf>) -> Temporary {
        Temporary { all, emptied: 0 }
    }

    /// For the next program.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.all.clone()
    }

    /// The directory of a pool, made where it is not there; `None` where the pool needs none.
    ///
    /// # Errors
    /// Where it cannot be made; names it.
    pub(crate) fn of(&mut self, pool: &Pool) -> io::Result<Option<PathBuf>> {
        let asked_for = pool.sandbox.as_ref().is_some_and(|sandbox| sandbox.asked_for);
        if !asked_for || pool.env.contains_key("TMPDIR") {
            return Ok(None);
        }
        let directory = self.all()?.join(&pool.name);
        make(&directory, pool)
            .map_err(|e| io::Error::new(e.kind(), format!("make its TMPDIR {}: {e}", directory.display())))?;
        Ok(Some(directory))
    }

    fn all(&mut self) -> io::Result<&Path> {
        // Whoever cleans /tmp up may have taken it away.
        let there = self.all.take().filter(|all| all.is_dir());
        let all = match there {
            Some(all) => all,
            None => {
                let template = env::temp_dir().join("hostler-tmp-XXXXXX");
                let all = mkdtemp(&template).map_err(|e| {
                    io::Error::other(format!(
                        "make a directory for temporary files as {}: {e}",
                        template.display()
                    ))
                })?;
                fs::set_permissions(&all, Permissions::from_mode(0o711))?;
                all
            }
        };
        Ok(self.all.insert(all))
    }

    /// Removes the directory of a pool that is gone. A program of its own does the work: there may be much in it.
    pub(crate) fn remove(&mut self, pool: &str) {
        let Some(all) = &self.all else { return };
        let away = all.join(format!(".{}", self.emptied));
        if fs::rename(all.join(pool), &away).is_err() {
            return; // it had none
        }
        self.emptied += 1;
        let mut remove = Command::new("rm");
        remove.args(["-rf", "--"]).arg(&away).stdin(Stdio::null()).stdout(Stdio::null());
        // It is reaped with all others that end.
        if let Err(e) = remove.spawn() {
            tracing::warn!(pool, "remove its TMPDIR {}: {e}", away.display());
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(all) = &self.all
            && let Err(e) = fs::remove_dir_all(all)
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("remove {}: {e}", all.display());
        }
    }
}

/// Makes a directory that is the pool's user's, and nobody else's.
fn make(directory: &Path, pool: &Pool) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // Also where it was there: the config may name another user by now.
    match &pool.user {
        Some(user) => Ok(chown(directory, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?),
        None => Ok(()),
    }
}
