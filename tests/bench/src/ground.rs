//! Where a measurement takes place: a directory of its own for sockets, configs and logs, the programs that
//! are there, and how many processes each server gets.
//!
//! Always holds: the directory is gone afterwards; a program of Debian that is missing is named with its package.

use hostler_bench::{address::Address, load::Error, still::raise_descriptor_limit};
use nix::unistd::Uid;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// A directory, and what is known of the surroundings.
#[derive(Debug)]
pub(crate) struct Ground {
    directory: TempDir,
    /// Processes of each server.
    pub(crate) processes: usize,
    /// Install what is missing with apt-get.
    install: bool,
}

impl Ground {
    /// A fresh directory; the limit of open descriptors is raised for all that starts from here.
    pub(crate) fn new(processes: usize, install: bool) -> Result<Self, Error> {
        raise_descriptor_limit()?;
        let error = |source| Error::system("making a directory for sockets and configs", source);
        let directory = tempfile::Builder::new().prefix("hostler-bench.").tempdir().map_err(error)?;
        // Peers drop to another user, who must reach sockets and scripts.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).map_err(error)?;
        Ok(Self { directory, processes, install })
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The Unix socket `NAME.sock` in it.
    pub(crate) fn socket(&self, name: &str) -> Address {
        Address::Unix(self.path(&format!("{name}.sock")))
    }

    /// Writes a file that all may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.path(name);
        fs::write(&path, text)
            .map_err(|source| Error::system(format!("writing {}", path.display()), source))?;
        Ok(path)
    }

    /// Compiles a C program.
    pub(crate) fn compile(&self, name: &str, source: &str, libraries: &[&str]) -> Result<PathBuf, Error> {
        let cc = self.program("cc", "gcc")?;
        let (from, to) = (self.write(&format!("{name}.c"), source)?, self.path(name));
        let status = Command::new(cc).args(["-O2", "-o"]).arg(&to).arg(from).args(libraries).status();
        match status {
            Ok(status) if status.success() => Ok(to),
            Ok(status) => Err(Error::new(format!("cc of {name} ended with {status}"))),
            Err(source) => Err(Error::system("starting cc", source)),
        }
    }

    /// Where a program of the Debian package `package` lies; installs it first where that was asked for.
    pub(crate) fn program(&self, name: &str, package: &str) -> Result<PathBuf, Error> {
        let here =
            || found(name).ok_or_else(|| Error::new(format!("{name} is not here: apt install {package}")));
        if here().is_err() {
            self.install(package)?;
        }
        here()
    }

    /// Checks that a file of the Debian package `package` is there, and installs it where that was asked for.
    pub(crate) fn file(&self, path: &str, package: &str) -> Result<(), Error> {
        if !Path::new(path).exists() {
            self.install(package)?;
        }
        if Path::new(path).exists() {
            return Ok(());
        }
        Err(Error::new(format!("{path} is not here: apt install {package}")))
    }

    fn install(&self, package: &str) -> Result<(), Error> {
        if !self.install {
            return Ok(());
        }
        let mut apt = Command::new("apt-get");
        apt.args(["install", "-y", "-q", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive");
        match apt.stdin(Stdio::null()).stdout(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::new(format!("apt-get install {package} ended with {status}"))),
            Err(source) => Err(Error::system("starting apt-get", source)),
        }
    }
}

/// Whether servers can and must be told a user to become.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

fn found(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|directory| directory.join(name)).find(|path| path.is_file())
}
