//! A private directory for the sockets of one `demo` or `serve`, gone at the end.

use nix::unistd::mkdtemp;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The directory; dropping it removes it with all that is in it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it beneath the directory for temporary files, for its owner alone.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(crate) fn new() -> Result<Scratch, String> {
        let template = env::temp_dir().join("hostler-XXXXXX");
        mkdtemp(&template)
            .map(Scratch)
            .map_err(|e| format!("make a directory for sockets as {}: {}", template.display(), e.desc()))
    }

    /// Lets others in, so that a web server finds a socket there; what is in it has modes of its own.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(crate) fn open_to_others(&self) -> Result<(), String> {
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755))
            .map_err(|e| format!("set the mode of {}: {e}", self.0.display()))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The control socket in it.
    pub(crate) fn control(&self) -> PathBuf {
        self.0.join("control.sock")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in the directory for temporary files, where it is found.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_until_opened_and_gone_when_dropped() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        scratch.open_to_others().unwrap();
        assert_eq!(mode(), 0o755);
        fs::write(scratch.control(), "").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
