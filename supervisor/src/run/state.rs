//! The state of a supervisor as its next program reads it: JSON, with descriptors by their number in the load.
//!
//! Always holds: what a later version adds has a default, so that it can go on from an earlier version's state.

use super::{link, place::Counts, worker};
use crate::{
    fleet::{Fleet, Kind, PoolId, WorkerId},
    listeners::FileId,
    settings::{self, Listen, LogFormat},
};
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) fleet: Fleet,
    pub(crate) settings: Settings,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) places: Vec<Place>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) control: Option<(usize, Option<FileId>)>,
    pub(crate) passed: Vec<(String, usize)>,
    pub(crate) last_output: u64,
    pub(crate) last_pool: u64,
    pub(crate) last_revision: u64,
    pub(crate) started: SystemTime,
    /// Where pools have their directories for temporary files.
    #[serde(default)]
    pub(crate) temporary: Option<PathBuf>,
}

/// `[supervisor]`, for where the config cannot be read at that moment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) control: PathBuf,
    stop_timeout: Duration,
    log_level: String,
    log_format: String,
    log_file: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Socket {
    pub(crate) fd: usize,
    pub(crate) listen: Listen,
    pub(crate) file: Option<FileId>,
    #[serde(default)]
    pub(crate) lent: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) id: PoolId,
    pub(crate) name: String,
    /// The config names it; it is not about to go.
    pub(crate) named: bool,
    pub(crate) current: u64,
    /// Number, settings, and which of the sockets.
    pub(crate) revisions: Vec<(u64, settings::Pool, Vec<usize>)>,
    pub(crate) queue: [usize; 2],
    pub(crate) gone: Counts,
    pub(crate) watched: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) pid: i32,
    pub(crate) pool: PoolId,
    pub(crate) kind: Kind,
    pub(crate) generation: u64,
    pub(crate) link: usize,
    pub(crate) page: usize,
    pub(crate) started: SystemTime,
    pub(crate) outputs: [u64; 2],
    pub(crate) mute: bool,
    pub(crate) over_hard: bool,
    #[serde(default)]
    pub(crate) grouped: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    pub(crate) id: u64,
    pub(crate) fd: usize,
    pub(crate) pool: String,
    pub(crate) pid: i32,
    pub(crate) error: bool,
    pub(crate) held: Vec<u8>,
}

impl State {
    /// # Errors
    /// A phrase for the log.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|e| format!("write the state: {e}"))
    }

    /// # Errors
    /// A phrase for the log, where it is no state that this program understands.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<State, String> {
        serde_json::from_slice(bytes).map_err(|e| format!("read the state: {e}"))
    }
}

impl Worker {
    pub(crate) fn into_worker(self, link: link::Link, page: link::Page) -> worker::Worker {
        worker::Worker {
            id: self.id,
            pid: self.pid,
            pool: self.pool,
            kind: self.kind,
            generation: self.generation,
            link,
            page,
            started: self.started,
            outputs: self.outputs,
            mute: self.mute,
            over_hard: self.over_hard,
            grouped: self.grouped,
        }
    }
}

impl Settings {
    pub(crate) fn supervisor(&self) -> settings::Supervisor {
        settings::Supervisor {
            control: self.control.clone(),
            stop_timeout: self.stop_timeout,
            log: self.into(),
        }
    }
}

impl From<&settings::Supervisor> for Settings {
    fn from(settings: &settings::Supervisor) -> Settings {
        let format = match settings.log.format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
            LogFormat::Journal => "journal",
        };
        Settings {
            control: settings.control.clone(),
            stop_timeout: settings.stop_timeout,
            log_level: settings.log.level.to_string(),
            log_format: format.to_owned(),
            log_file: settings.log.file.clone(),
        }
    }
}

impl From<&Settings> for settings::Log {
    fn from(settings: &Settings) -> settings::Log {
        settings::Log {
            level: settings.log_level.parse().unwrap_or(tracing::Level::INFO),
            format: match settings.log_format.as_str() {
                "json" => LogFormat::Json,
                "journal" => LogFormat::Journal,
                _ => LogFormat::Text,
            },
            file: settings.log_file.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by the program of that day: a new field that has no default is found here, and not at an upgrade.
    const EARLIER: &[u8] = include_bytes!("golden/state-2026-11-30.json");

    #[test]
    fn a_state_that_an_earlier_program_wrote_is_read() {
        let state = State::from_bytes(EARLIER).unwrap();
        let names: Vec<&str> = state.places.iter().map(|place| place.name.as_str()).collect();
        assert_eq!(names, ["www", "cgi", "fcgi"]);
        assert_eq!(state.workers.len(), 2);
        assert!(state.places[1].revisions[0].1.sandbox.is_some());
    }
}
