//! A server started as a child: waited for until it takes connections, ended by its process id.
//!
//! Always holds: a dropped [`Server`] is gone, TERM first and KILL after five seconds; only processes that
//! were started here are signalled.

use crate::{address::Address, load::Error};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// How long a server may take until it takes connections.
const BOOT: Duration = Duration::from_secs(15);
/// How long it may take from TERM to its end.
const GRACE: Duration = Duration::from_secs(5);

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: Address,
    log: PathBuf,
}

impl Server {
    /// Starts `command`, with its output to the file `log`, and waits until `address` takes connections.
    ///
    /// # Errors
    /// Where it cannot be started, ends at once, or does not listen in time; with the end of its log.
    pub fn start(command: &mut Command, address: Address, log: &Path) -> Result<Self, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let error = |source| Error::system(format!("starting {name}"), source);
        let output = File::create(log).map_err(error)?;
        command.stdout(output.try_clone().map_err(error)?).stderr(output);
        let child = command.spawn().map_err(error)?;
        let mut server = Self { child, address, log: log.into() };
        server.wait_for_listener(&name)?;
        Ok(server)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The last lines that it wrote.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// Where it is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        kill(Pid::from_raw(pid), signal)
            .map_err(|errno| Error::system(format!("signalling process {pid}"), errno))
    }

    fn wait_for_listener(&mut self, name: &str) -> Result<(), Error> {
        let began = Instant::now();
        while self.address.connect().is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::new(format!(
                    "{name} ended at its start with {status}: {}",
                    self.last_words()
                )));
            }
            if began.elapsed() > BOOT {
                return Err(Error::new(format!(
                    "{name} does not listen on {}: {}",
                    self.address,
                    self.last_words()
                )));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.signal(Signal::SIGTERM);
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > GRACE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
