//! A request's body on its way to a script: straight through, or, where the script answers before it has read all,
//! by way of a file.
//!
//! nginx sends nothing more of a body once it has the head of the answer, and many a client reads no answer before
//! it has sent its body. So an answer must not begin before the body is here; and since a script may wait until
//! its output is taken before it reads on, the rest of the body has to be put somewhere: in a file without a name.
//!
//! Always holds: memory is bounded by one piece; the file holds no more than the body, which `max_body` bounds.

use crate::{Body, Error};
use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    time::{Duration, Instant},
};

/// Bytes moved at once: what a pipe holds.
const PIECE: usize = 64 * 1024;

/// See the module.
pub(super) struct Intake {
    /// Bytes for the script, from `taken` on.
    front: Vec<u8>,
    taken: usize,
    /// Bytes for the script behind `front`.
    spool: Option<Spool>,
    /// The client has sent all.
    over: bool,
    /// When the client last sent some.
    heard: Instant,
}

struct Spool {
    file: File,
    read: u64,
    written: u64,
}

impl Intake {
    /// Nothing has come yet.
    pub(super) fn new() -> Intake {
        Intake { front: Vec::new(), taken: 0, spool: None, over: false, heard: Instant::now() }
    }

    /// The client has sent all of the body.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// More from the client can be taken in.
    pub(super) fn listens(&self) -> bool {
        !self.over && (self.spool.is_some() || self.taken == self.front.len())
    }

    /// Bytes are here that the script has not taken.
    pub(super) fn has_more(&self) -> bool {
        self.taken < self.front.len() || self.spool.as_ref().is_some_and(|spool| spool.read < spool.written)
    }

    /// Lets the rest of the body come in whether or not the script takes it. `false` where that was so before: else
    /// what is here already has to be heard, since no descriptor will tell of it.
    pub(super) fn divert(&mut self) -> Result<bool, Error> {
        let begins = self.spool.is_none() && !self.over;
        if begins {
            let mut options = File::options();
            let unnamed =
                options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).mode(0o600);
            let directory = std::env::temp_dir();
            let file = unnamed.open(&directory).map_err(|e| {
                let why = format!("make a file in {} for a body: {e}", directory.display());
                Error::System(io::Error::new(e.kind(), why))
            })?;
            self.spool = Some(Spool { file, read: 0, written: 0 });
        }
        Ok(begins)
    }

    /// Takes in what the client has sent. `false` where nothing is there yet.
    pub(super) fn hear(&mut self, body: &mut Body<'_>) -> Result<bool, Error> {
        // What is taken in goes behind the front: to the file, or, where there is none, in the place of a front that
        // the script has taken whole.
        let mut piece = match &self.spool {
            Some(_) => Vec::new(),
            None => {
                self.taken = 0;
                std::mem::take(&mut self.front)
            }
        };
        piece.resize(PIECE, 0);
        let count = match body.try_read(&mut piece) {
            Ok(count) => count,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(e) => return Err(e.into()),
        };
        piece.truncate(count);
        self.heard = Instant::now();
        self.over = count == 0;
        match &mut self.spool {
            Some(spool) => {
                spool.file.write_all_at(&piece, spool.written)?;
                spool.written += count as u64;
            }
            None => self.front = piece,
        }
        Ok(true)
    }

    /// Bytes for the script; empty where none are here.
    pub(super) fn front(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.front.len()
            && let Some(spool) = self.spool.as_mut().filter(|spool| spool.read < spool.written)
        {
            self.front.resize(PIECE, 0);
            let count = spool.file.read_at(&mut self.front, spool.read)?;
            self.front.truncate(count);
            self.taken = 0;
            spool.read += count as u64;
        }
        Ok(self.front.get(self.taken..).unwrap_or_default())
    }

    /// The script has taken `count` bytes of the front.
    pub(super) fn take(&mut self, count: usize) {
        self.taken = self.front.len().min(self.taken + count);
    }

    /// How much of `limit` is left until the client has been silent for that long.
    pub(super) fn patience(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.heard.elapsed())
    }
}
