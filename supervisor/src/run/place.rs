//! What the shell holds of a pool: its name, settings by revision, listening sockets, hand-over queue, and the
//! counts of workers that are gone.
//!
//! Always holds: a socket that two revisions name is the same socket, so that a reload refuses nobody; a
//! revision lives as long as a worker may be started with it.

use super::link::Queue;
use crate::{
    listeners::{self, Bound, FileId, KEPT, Passed},
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

impl Socket {
    /// The name under which systemd keeps it.
    pub(crate) fn kept_as(&self) -> String {
        kept_as(&self.listen.address, self.bound.file)
    }
}

/// The name of a listener in systemd's store, where no `:` may stand: FNV-1a of the address, and which file it has, so
/// that one whose file somebody removed is never taken for its successor.
pub(crate) fn kept_as(address: &Address, file: Option<FileId>) -> String {
    let hash = fnv1a(&address.to_string());
    match file {
        Some(file) => format!("{KEPT}{hash:016x}-{:x}", file.inode()),
        None => format!("{KEPT}{hash:016x}"),
    }
}

/// The names under which systemd keeps the two ends of a pool's hand-over queue: connections that wait in it outlive a
/// restart.
pub(crate) fn queue_kept_as(pool: &str) -> [String; 2] {
    let hash = fnv1a(pool);
    ["in", "out"].map(|end| format!("{KEPT}{end}-{hash:016x}"))
}

fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What came of settings that were taken into force.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    pub(crate) faults: Vec<String>,
    /// Sockets that are held no more, by their names in systemd's store.
    pub(crate) closed: Vec<String>,
    /// Sockets that had to be made again.
    pub(crate) made: Vec<Rc<Socket>>,
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
    pub(crate) fn adopt(&mut self, revision: u64) -> Adopted {
        self.current = revision;
        let later = self.revisions.split_off(&revision);
        let older = std::mem::replace(&mut self.revisions, later);
        let mut adopted = Adopted::default();
        if let Some(now) = self.revisions.get_mut(&revision) {
            for socket in &mut now.sockets {
                let Some(wanted) = now.settings.listen.iter().find(|l| l.address == socket.listen.address)
                else {
                    continue;
                };
                match socket.bound.refresh(wanted) {
                    Ok(None) => {}
                    Ok(Some(bound)) => {
                        adopted.closed.push(socket.kept_as());
                        *socket = Rc::new(Socket { listen: wanted.clone(), bound });
                        adopted.made.push(Rc::clone(socket));
                    }
                    Err(e) => adopted.faults.push(e.to_string()),
                }
            }
        }
        adopted.closed.extend(older.into_values().flat_map(|revision| self.close_unused(revision)));
        adopted
    }

    /// Forgets a revision that was not adopted. Gives the sockets that were closed, by their names in systemd's store.
    pub(crate) fn forget(&mut self, revision: u64) -> Vec<String> {
        match self.revisions.remove(&revision).filter(|_| revision != self.current) {
            Some(revision) => self.close_unused(revision),
            None => Vec::new(),
        }
    }

    fn close_unused(&self, revision: Revision) -> Vec<String> {
        let mut closed = Vec::new();
        for socket in revision.sockets {
            let name = socket.kept_as();
            if !self.sockets().any(|s| s.kept_as() == name) {
                closed.push(name);
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

    /// Closes all sockets and removes their files. Gives the names in systemd's store, that of the queue too.
    pub(crate) fn close(&mut self) -> Vec<String> {
        let mut names: Vec<String> = self.sockets().map(|socket| socket.kept_as()).collect();
        names.extend(queue_kept_as(&self.name));
        for revision in self.revisions.values_mut() {
            revision.sockets.drain(..).for_each(close);
        }
        names
    }
}

/// Closes a socket that no other revision and no other pool holds.
pub(crate) fn close(socket: Rc<Socket>) {
    if let Ok(socket) = Rc::try_unwrap(socket) {
        socket.bound.remove_file(&socket.listen);
    }
}

/// The sockets for these entries of `listen`: those that `known` finds, and new ones for the rest.
///
/// # Errors
/// Where one cannot be listened on; those that were new are closed again, those that systemd kept go back to `passed`.
pub(crate) fn sockets(
    entries: &[Listen],
    passed: &mut Passed,
    known: impl Fn(&Address) -> Vec<Rc<Socket>>,
) -> Result<Vec<Rc<Socket>>, listeners::Error> {
    let mut all = Vec::new();
    let mut new = Vec::new();
    for listen in entries {
        match socket(listen, passed, known(&listen.address), &mut new) {
            Ok(mut sockets) => all.append(&mut sockets),
            Err(e) => {
                drop(all);
                for (socket, from_store) in new {
                    match Rc::try_unwrap(socket) {
                        Ok(socket) if from_store => passed.put_back(socket.kept_as(), socket.bound.fd),
                        Ok(socket) => socket.bound.remove_file(&socket.listen),
                        Err(_) => {}
                    }
                }
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
    new: &mut Vec<(Rc<Socket>, bool)>,
) -> Result<Vec<Rc<Socket>>, listeners::Error> {
    // A socket whose file somebody removed is reached by nobody: workers are to have a new one.
    if known.iter().all(|socket| is_lost(socket)) {
        let stored = stored(listen, passed)?;
        let from_store = stored.is_some();
        let bound = match stored {
            Some(bound) => vec![bound],
            None => listeners::bind(listen, passed)?,
        };
        let sockets: Vec<_> =
            bound.into_iter().map(|bound| Rc::new(Socket { listen: listen.clone(), bound })).collect();
        new.extend(sockets.iter().map(|socket| (Rc::clone(socket), from_store)));
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

/// The socket that systemd kept for us over a restart or a crash. One whose file is gone is of no use any more.
fn stored(listen: &Listen, passed: &mut Passed) -> Result<Option<Bound>, listeners::Error> {
    let file = match &listen.address {
        Address::Unix(path) if listeners::abstract_name(path).is_none() => match FileId::of(path) {
            None => return Ok(None),
            file => file,
        },
        _ => None,
    };
    let kept = passed.take(&kept_as(&listen.address, file)).pop();
    kept.map(|fd| listeners::adopt(fd, listen, file)).transpose()
}

/// The same socket under an entry that speaks another protocol or lets others in.
fn again(socket: &Socket, listen: &Listen) -> Result<Rc<Socket>, listeners::Error> {
    let fd = socket.bound.fd.try_clone().map_err(|e| {
        listeners::Error::Failed(format!("listen on {}: copy the descriptor: {e}", listen.address))
    })?;
    let bound = Bound { lent: socket.bound.lent, ..listeners::adopt(fd, listen, socket.bound.file)? };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::net::UnixListener, path::Path};

    fn listen(path: &Path) -> Listen {
        Listen::new(Address::Unix(path.to_owned()))
    }

    fn kept(listener: UnixListener, path: &Path) -> (String, std::os::fd::OwnedFd) {
        (kept_as(&Address::Unix(path.to_owned()), FileId::of(path)), listener.into())
    }

    #[test]
    fn a_name_in_the_store_has_nothing_that_systemd_refuses_and_differs_by_address_and_file() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (place.path().join("a"), place.path().join("b"));
        fs::write(&one, "").unwrap();
        let address = |path: &Path| Address::Unix(path.to_owned());
        let name = kept_as(&address(&one), FileId::of(&one));
        assert_ne!(name, kept_as(&address(&other), None));
        assert_ne!(name, kept_as(&address(&one), None));
        assert!(name.len() < 256 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }

    #[test]
    fn of_two_kept_listeners_of_one_path_the_one_that_has_the_file_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        // That the file of the older one lives on keeps its inode from being given to the newer one.
        let old = kept(UnixListener::bind(&path).unwrap(), &path);
        fs::rename(&path, place.path().join("away")).unwrap();
        let new = kept(UnixListener::bind(&path).unwrap(), &path);
        for order in [[0, 1], [1, 0]] {
            let all = [&old, &new];
            let copy = |i: usize| (all[i].0.clone(), all[i].1.try_clone().unwrap());
            let mut passed = Passed::from(order.map(copy).into_iter().collect::<Vec<_>>());
            let bound = stored(&listen(&path), &mut passed).unwrap().unwrap();
            let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
            assert!(UnixListener::from(bound.fd).accept().is_ok(), "{order:?}");
            drop(client);
            assert_eq!(passed.take_unclaimed().len(), 1, "the other is given up");
        }
    }

    #[test]
    fn a_kept_listener_goes_back_where_its_pool_cannot_be_set_up() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let (name, fd) = kept(UnixListener::bind(&path).unwrap(), &path);
        let mut passed = Passed::from(vec![(name, fd)]);
        let entries = [listen(&path), listen(Path::new("/no/such/directory/s"))];
        sockets(&entries, &mut passed, |_| Vec::new()).unwrap_err();
        assert!(path.exists());
        let taken = sockets(&entries[..1], &mut passed, |_| Vec::new()).unwrap();
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert!(UnixListener::from(taken[0].bound.fd.try_clone().unwrap()).accept().is_ok());
    }
}
