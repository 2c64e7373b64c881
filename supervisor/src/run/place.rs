//! What the shell holds of a pool: its name, settings by revision, listening sockets, hand-over queue, and the
//! counts of workers that are gone.
//!
//! Always holds: a socket that two revisions name is the same socket, so that a reload refuses nobody; a
//! revision lives as long as a worker may be started with it.

use super::{link::Queue, notify::store_name};
use crate::{
    listeners::{self, Bound, FileId, Passed},
    settings::{self, Address, Listen},
};
use hostler_worker::page::{self, Snapshot};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, rc::Rc};

/// A listening socket and the entry of the config that it was made for.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listen: Listen,
    pub(crate) bound: Bound,
}

/// Settings, and the sockets that they name in order.
#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) settings: settings::Pool,
    pub(crate) sockets: Vec<Rc<Socket>>,
}

/// A pool as the shell sees it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) queue: Queue,
    pub(crate) revisions: BTreeMap<u64, Revision>,
    /// The revision in force.
    pub(crate) current: u64,
    pub(crate) gone: Counts,
    /// The revision that the last reload was for, and its fault.
    pub(crate) last_reload: Option<(u64, Option<String>)>,
}

impl Place {
    pub(crate) fn new(name: String, queue: Queue) -> Place {
        Place {
            name,
            queue,
            revisions: BTreeMap::new(),
            current: 0,
            gone: Counts::default(),
            last_reload: None,
        }
    }

    /// The newest sockets under an address.
    pub(crate) fn with_address(&self, address: &Address) -> Vec<Rc<Socket>> {
        let with = |r: &Revision| -> Vec<Rc<Socket>> {
            r.sockets.iter().filter(|s| s.listen.address == *address).cloned().collect()
        };
        self.revisions.values().rev().map(with).find(|s| !s.is_empty()).unwrap_or_default()
    }

    pub(crate) fn current(&self) -> Option<&Revision> {
        self.revisions.get(&self.current)
    }

    /// Sockets of all revisions.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Rc<Socket>> {
        self.revisions.values().flat_map(|r| &r.sockets)
    }

    /// Takes settings into force and forgets older ones. Sockets that are named no more are closed, and their
    /// files removed; those that stay get their owner, group and mode again.
    /// Gives what went wrong, and the addresses that were closed.
    pub(crate) fn adopt(&mut self, revision: u64) -> (Vec<String>, Vec<Address>) {
        self.current = revision;
        let later = self.revisions.split_off(&revision);
        let older = std::mem::replace(&mut self.revisions, later);
        let mut faults = Vec::new();
        if let Some(now) = self.revisions.get_mut(&revision) {
            for socket in &mut now.sockets {
                let Some(wanted) = now.settings.listen.iter().find(|l| l.address == socket.listen.address)
                else {
                    continue;
                };
                match socket.bound.refresh(wanted) {
                    Ok(None) => {}
                    Ok(Some(bound)) => *socket = Rc::new(Socket { listen: wanted.clone(), bound }),
                    Err(e) => faults.push(e.to_string()),
                }
            }
        }
        let closed = older.into_values().flat_map(|revision| self.close_unused(revision)).collect();
        (faults, closed)
    }

    /// Forgets a revision that was not adopted.
    pub(crate) fn forget(&mut self, revision: u64) {
        if revision != self.current
            && let Some(revision) = self.revisions.remove(&revision)
        {
            self.close_unused(revision);
        }
    }

    fn close_unused(&self, revision: Revision) -> Vec<Address> {
        let used = |socket: &Rc<Socket>| self.sockets().any(|s| s.listen.address == socket.listen.address);
        let mut closed = Vec::new();
        for socket in revision.sockets {
            if !used(&socket) {
                closed.push(socket.listen.address.clone());
                close(socket);
            }
        }
        closed
    }

    /// Closes all sockets and leaves their files to whoever holds the sockets too.
    pub(crate) fn leave(&mut self) {
        for revision in self.revisions.values_mut() {
            revision.sockets.clear();
        }
    }

    /// Closes all sockets and removes their files.
    pub(crate) fn close(&mut self) {
        for revision in self.revisions.values_mut() {
            revision.sockets.drain(..).for_each(close);
        }
    }
}

/// Closes a socket that no other revision and no other pool holds.
pub(crate) fn close(socket: Rc<Socket>) {
    if let Ok(socket) = Rc::try_unwrap(socket) {
        socket.bound.remove_file(&socket.listen);
    }
}

/// The sockets for `settings`: those that `known` finds, and new ones for the rest.
///
/// # Errors
/// Where one cannot be listened on; those that were new are closed again.
pub(crate) fn sockets(
    settings: &settings::Pool,
    passed: &mut Passed,
    known: impl Fn(&Address) -> Vec<Rc<Socket>>,
) -> Result<Vec<Rc<Socket>>, listeners::Error> {
    let mut all = Vec::new();
    let mut new = Vec::new();
    for listen in &settings.listen {
        match socket(listen, passed, known(&listen.address), &mut new) {
            Ok(mut sockets) => all.append(&mut sockets),
            Err(e) => {
                drop(all);
                new.into_iter().for_each(close);
                return Err(e);
            }
        }
    }
    Ok(all)
}

fn socket(
    listen: &Listen,
    passed: &mut Passed,
    known: Vec<Rc<Socket>>,
    new: &mut Vec<Rc<Socket>>,
) -> Result<Vec<Rc<Socket>>, listeners::Error> {
    // A socket whose file somebody removed is reached by nobody: workers are to have a new one.
    if known.iter().all(|socket| is_lost(socket)) {
        let bound = match stored(listen, passed)? {
            Some(bound) => vec![bound],
            None => listeners::bind(listen, passed)?,
        };
        let sockets: Vec<_> =
            bound.into_iter().map(|bound| Rc::new(Socket { listen: listen.clone(), bound })).collect();
        new.extend(sockets.iter().cloned());
        return Ok(sockets);
    }
    let same = |s: &Rc<Socket>| s.listen.protocol == listen.protocol && s.listen.allow == listen.allow;
    known.into_iter().map(|s| if same(&s) { Ok(s) } else { again(&s, listen) }).collect()
}

fn is_lost(socket: &Socket) -> bool {
    match (&socket.listen.address, socket.bound.file) {
        (Address::Unix(path), Some(_)) => FileId::of(path).is_none(),
        _ => false,
    }
}

/// The socket that systemd kept for us over a crash. One whose file is gone is of no use any more.
fn stored(listen: &Listen, passed: &mut Passed) -> Result<Option<Bound>, listeners::Error> {
    let Some(fd) = passed.take(&store_name(&listen.address)).pop() else { return Ok(None) };
    let file = match &listen.address {
        Address::Unix(path) if listeners::abstract_name(path).is_none() => match FileId::of(path) {
            None => return Ok(None),
            file => file,
        },
        _ => None,
    };
    listeners::adopt(fd, listen, file).map(Some)
}

/// The same socket under an entry that speaks another protocol or lets others in.
fn again(socket: &Socket, listen: &Listen) -> Result<Rc<Socket>, listeners::Error> {
    let fd = socket.bound.fd.try_clone().map_err(|e| {
        listeners::Error::Failed(format!("listen on {}: copy the descriptor: {e}", listen.address))
    })?;
    let bound = listeners::adopt(fd, listen, socket.bound.file)?;
    Ok(Rc::new(Socket { listen: listen.clone(), bound }))
}

/// Counts and times of workers, added up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) timeouts: u64,
    pub(crate) rejected: u64,
    pub(crate) latency: Vec<u64>,
    pub(crate) queue: Vec<u64>,
}

impl Counts {
    pub(crate) fn add(&mut self, page: &Snapshot) {
        let sum = |to: &mut u64, word| *to = to.saturating_add(page.word(word));
        sum(&mut self.requests, page::WORD_REQUESTS);
        sum(&mut self.errors, page::WORD_ERRORS);
        sum(&mut self.timeouts, page::WORD_TIMEOUTS);
        sum(&mut self.rejected, page::WORD_REJECTED);
        add(&mut self.latency, page.histogram(page::WORD_LATENCY));
        add(&mut self.queue, page.histogram(page::WORD_QUEUE));
    }
}

fn add(to: &mut Vec<u64>, from: &[u64]) {
    to.resize(to.len().max(from.len()), 0);
    for (to, from) in to.iter_mut().zip(from) {
        *to = to.saturating_add(*from);
    }
}
