//! What `hostler check` tries beyond the text of the config, without serving: directories, programs, files to
//! append to, addresses.
//!
//! Leaves nothing behind and takes nothing away.

use crate::{
    listeners::{self, Passed, abstract_name},
    settings::{Address, Listen},
};
use nix::unistd::{AccessFlags, access};
use std::{fs, path::Path};

/// One thing to try.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Trial {
    /// It is a directory.
    Directory(String),
    /// It can be executed.
    Program(String),
    /// It is a file that can be appended to, or its directory is there to make it in.
    Append(String),
    /// It can be listened on.
    Listen(Listen),
}

impl Trial {
    /// Tries it. An address on which somebody listens is as it should be where `serving`: it is our own then.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub(crate) fn run(&self, serving: bool) -> Result<(), String> {
        match self {
            Trial::Directory(path) => directory(Path::new(path)),
            Trial::Program(path) => program(Path::new(path)),
            Trial::Append(path) => append(Path::new(path)),
            Trial::Listen(listen) => address(listen, serving),
        }
    }
}

fn directory(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is no directory", path.display())),
        Err(e) => Err(format!("look at the directory {}: {e}", path.display())),
    }
}

fn program(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(format!("{} is no file", path.display())),
        Ok(_) if access(path, AccessFlags::X_OK).is_err() => {
            Err(format!("{} is not executable; chmod +x makes it so", path.display()))
        }
        Ok(_) => Ok(()),
        Err(e) => Err(format!("look at the program {}: {e}", path.display())),
    }
}

fn append(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(format!("{} is a directory", path.display())),
        Ok(_) => {
            access(path, AccessFlags::W_OK).map_err(|e| format!("write to {}: {}", path.display(), e.desc()))
        }
        Err(_) => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            directory(parent)?;
            access(parent, AccessFlags::W_OK)
                .map_err(|e| format!("make {} in its directory: {}", path.display(), e.desc()))
        }
    }
}

fn address(listen: &Listen, serving: bool) -> Result<(), String> {
    match &listen.address {
        Address::Unix(path) if abstract_name(path).is_none() => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            directory(parent)?;
            if access(parent, AccessFlags::W_OK).is_err() {
                return Err(format!("no permission to make a file in {}", parent.display()));
            }
            listeners::free(path, listen).or_else(|e| in_use(e, serving))
        }
        // The sockets of systemd are passed to the service alone, not to a check.
        Address::Systemd(_) => Ok(()),
        _ => match listeners::bind(listen, &Passed::default()) {
            Ok(_) => Ok(()),
            Err(e) => in_use(e, serving),
        },
    }
}

fn in_use(error: listeners::Error, serving: bool) -> Result<(), String> {
    match error {
        listeners::Error::InUse(_) if serving => Ok(()),
        error => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_there_passes_and_what_is_not_is_named() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).display().to_string();
        fs::write(at("file"), "x").unwrap();
        for (trial, good) in [
            (Trial::Directory(at("")), true),
            (Trial::Directory(at("file")), false),
            (Trial::Directory(at("none")), false),
            (Trial::Program("/bin/sh".into()), true),
            (Trial::Program(at("file")), false),
            (Trial::Program(at("none")), false),
            (Trial::Program(at("")), false),
            (Trial::Append(at("file")), true),
            (Trial::Append(at("new")), true),
            (Trial::Append(at("none/new")), false),
            (Trial::Append(at("")), false),
        ] {
            let result = trial.run(false);
            assert_eq!(result.is_ok(), good, "{trial:?}: {result:?}");
            if let (Err(message), Trial::Directory(path) | Trial::Program(path)) = (result, &trial) {
                assert!(message.contains(path.as_str()), "{message}");
            }
        }
        assert!(!Path::new(&at("new")).exists());
    }

    #[test]
    fn a_socket_is_tried_and_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let trial = Trial::Listen(Listen::new(Address::Unix(path.clone())));
        assert_eq!(trial.run(false), Ok(()));
        assert!(!path.exists());
        let live = UnixListener::bind(&path).unwrap();
        assert!(trial.run(false).unwrap_err().contains("listens there"));
        assert_eq!(trial.run(true), Ok(()));
        drop(live);
        assert_eq!(trial.run(false), Ok(()));
        assert!(path.exists(), "a stale file is for the supervisor to replace");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x").unwrap();
        assert!(trial.run(true).unwrap_err().contains("no socket"));
    }
}
