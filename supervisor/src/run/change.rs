//! From the config to pools: what is new, changed, gone or broken.
//!
//! Always holds: a pool whose config has a fault, or whose listeners cannot be had, stays as it is; a listener
//! that somebody else holds for the moment is tried again; no pool waits for another.

use super::{
    Error, Place, Shell, Source,
    link::Queue,
    log, now,
    place::{self, Revision, Socket},
};
use crate::{
    config::{self, Loaded},
    fleet::{Event, Plan, PoolId},
    listeners,
    settings::{Address, Pool, Supervisor},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    rc::Rc,
    time::Duration,
};

/// Until a listener that was in use is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Without a `request_timeout` and a `stop_timeout` of the pool, a worker that is replaced may finish what it has
/// in hand for so long.
const LONGEST_REQUEST: Duration = Duration::from_secs(3600);

/// Which pools a reload is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Which {
    /// These alone; `None`: all.
    pub(crate) names: Option<BTreeSet<String>>,
    /// Of them, those whose settings changed.
    pub(crate) changed: bool,
}

impl Which {
    fn names(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// What became of a pool, as far as it is known at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It starts or reloads; the fleet tells how it went.
    UnderWay(u64),
    /// Its settings are as they were.
    Unchanged,
    /// It stands in the config no more and ends.
    Dropped,
    /// It stays as it is, for this reason.
    Fault(String),
}

/// Sockets by address. To be dropped before any pool lets go of one.
type Known = HashMap<Address, Vec<Rc<Socket>>>;

/// A pool that could not be set up.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) message: String,
    /// Settings to try again, where that may help, and when.
    retry: Option<(Pool, Duration)>,
}

/// `[supervisor]` of the source, with all that is said against the config as the error.
pub(super) fn supervisor_settings(source: &Source) -> Result<Supervisor, Error> {
    match source {
        Source::Made(loaded) => Ok(loaded.supervisor.clone()),
        Source::File(path) => match config::load(path) {
            Ok(loaded) => Ok(loaded.supervisor),
            Err(faults) => {
                let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Err(Error::config(format!("the config has faults\n{}", lines.join("\n"))))
            }
        },
    }
}

/// What the fleet needs to know.
fn plan(settings: &Pool, revision: u64) -> Plan {
    let retire = match settings.limits.request_timeout {
        Some(limit) => limit + settings.stop_timeout,
        None if settings.own_stop_timeout => settings.stop_timeout,
        None => LONGEST_REQUEST,
    };
    Plan {
        revision,
        model: settings.model,
        boot_timeout: settings.boot_timeout,
        retire_timeout: retire,
        stop_timeout: settings.stop_timeout,
        memory: settings.memory.pool,
    }
}

impl Shell {
    /// Reads the config and brings the pools in line with it.
    ///
    /// # Errors
    /// Where there is nothing to go by; every pool then stays as it is.
    pub(crate) fn load(&mut self, which: &Which) -> Result<Vec<(String, Outcome)>, String> {
        if self.fleet.stopping().is_some() {
            return Err("everything is being stopped".to_owned());
        }
        self.notify.reload();
        if let Some(server) = &mut self.control
            && let Err(e) = server.refresh()
        {
            tracing::warn!("control socket: {e}");
        }
        let path = match &self.source {
            Source::Made(loaded) => {
                let pools = loaded.pools.clone();
                return Ok(self.configure_all(pools, which));
            }
            Source::File(path) => path.clone(),
        };
        match config::load(&path) {
            Ok(loaded) => {
                self.change_supervisor(&loaded.supervisor).map_err(|e| {
                    tracing::error!("{e}");
                    format!("{e}; every pool stays as it is")
                })?;
                let mut outcomes = self.take_over(loaded, which);
                outcomes.retain(|(name, _)| which.names(name));
                Ok(outcomes)
            }
            Err(faults) => {
                for fault in &faults {
                    tracing::error!("config: {fault}");
                }
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Err(format!("the config has faults; every pool stays as it is: {}", faults.join("; ")))
            }
        }
    }

    /// Takes `[supervisor]` into force.
    fn change_supervisor(&mut self, wanted: &Supervisor) -> Result<(), String> {
        if wanted.log != self.settings.log {
            let file = wanted.log.file.clone().unwrap_or_default();
            log::set(&wanted.log).map_err(|e| format!("open the new log {}: {e}", file.display()))?;
            self.settings.log = wanted.log.clone();
        }
        let moved = self.control.as_mut().map(|server| server.move_to(&wanted.control)).transpose();
        if moved.map_err(|e| format!("the control socket stays where it is: {e}"))? == Some(true) {
            tracing::info!("the control socket is at {} from now on", wanted.control.display());
        }
        self.settings = wanted.clone();
        Ok(())
    }

    fn take_over(&mut self, loaded: Loaded, which: &Which) -> Vec<(String, Outcome)> {
        let mut warnings = HashSet::with_capacity(loaded.warnings.len());
        for warning in loaded.warnings.iter().map(ToString::to_string) {
            if !self.warned.contains(&warning) {
                tracing::warn!("config: {warning}");
            }
            warnings.insert(warning);
        }
        self.warned = warnings;
        for fault in &loaded.faults {
            tracing::error!("config: {fault}");
        }
        let mut outcomes = Vec::new();
        for broken in loaded.broken.iter().chain(&loaded.unreadable) {
            outcomes.push((broken.name.clone(), Outcome::Fault(broken.message.clone())));
        }
        let present: BTreeSet<String> = loaded.pools.iter().map(|p| p.name.clone()).collect();
        let gone: Vec<(String, PoolId)> = self
            .names
            .iter()
            .filter(|(name, _)| !present.contains(*name) && which.names(name))
            .filter(|(name, id)| !self.stays(name, **id, &loaded))
            .map(|(name, id)| (name.clone(), *id))
            .collect();
        // Dropped pools give their listeners free only after others had a chance to take them over.
        outcomes.extend(self.configure_all(loaded.pools, which));
        for (name, id) in gone {
            self.names.remove(&name);
            let closed = self.places.get_mut(&id).map(Place::close);
            self.let_go(closed.unwrap_or_default());
            self.events.push_back(Event::Dropped { pool: id });
            outcomes.push((name, Outcome::Dropped));
        }
        self.broken.retain(|name, _| present.contains(name) || self.names.contains_key(name));
        for broken in loaded.broken.into_iter().chain(loaded.unreadable) {
            self.broken.insert(broken.name, Broken { message: broken.message, retry: None });
        }
        outcomes
    }

    /// Whether a pool that could not be read stays, since its config is merely faulty.
    fn stays(&self, name: &str, id: PoolId, loaded: &Loaded) -> bool {
        let file = self.places.get(&id).and_then(|p| p.current()).map(|r| r.settings.file.clone());
        loaded.fault_of(name, &file.unwrap_or_default()).is_some()
    }

    fn configure_all(&mut self, pools: Vec<Pool>, which: &Which) -> Vec<(String, Outcome)> {
        let mut outcomes = Vec::new();
        let mut sockets = None;
        for settings in pools {
            let name = settings.name.clone();
            let known = self.names.get(&name).and_then(|id| self.places.get(id));
            let newest = known.and_then(|place| place.revisions.values().next_back());
            let changed = newest.is_none_or(|newest| newest.settings != settings);
            if !which.names(&name) || (known.is_some() && which.changed && !changed) {
                outcomes.push((name, Outcome::Unchanged));
                continue;
            }
            let sockets = sockets.get_or_insert_with(|| self.known_sockets());
            let outcome = self.configure(settings, sockets);
            outcomes.push((name, outcome));
        }
        outcomes
    }

    /// All sockets by address: a pool may take one over that another had.
    fn known_sockets(&self) -> Known {
        let mut known = Known::new();
        for socket in self.places.values().flat_map(Place::sockets) {
            let same: &mut Vec<Rc<Socket>> = known.entry(socket.listen.address.clone()).or_default();
            if !same.iter().any(|known| Rc::ptr_eq(known, socket)) {
                same.push(Rc::clone(socket));
            }
        }
        known
    }

    /// Starts or reloads one pool.
    fn configure(&mut self, settings: Pool, known: &Known) -> Outcome {
        let name = settings.name.clone();
        let mut passed = std::mem::take(&mut self.passed);
        let own = self.names.get(&name).and_then(|id| self.places.get(id));
        let sockets = place::sockets(&settings.listen, &mut passed, |address| {
            let own = own.map(|place| place.with_address(address)).unwrap_or_default();
            if own.is_empty() { known.get(address).cloned().unwrap_or_default() } else { own }
        });
        self.passed = passed;
        let sockets = match sockets {
            Ok(sockets) => sockets,
            Err(e) => return self.cannot(settings, &e),
        };
        let id = match self.names.get(&name) {
            Some(id) => *id,
            None => match self.found(&name) {
                Ok(id) => id,
                Err(e) => return Outcome::Fault(e),
            },
        };
        self.broken.remove(&name);
        self.last_revision += 1;
        let revision = self.last_revision;
        let plan = plan(&settings, revision);
        self.notify.store(&sockets);
        self.notify.extend(settings.boot_timeout);
        if let Some(place) = self.places.get_mut(&id) {
            place.revisions.insert(revision, Revision { settings, sockets });
        }
        self.events.push_back(Event::Configured { pool: id, plan });
        Outcome::UnderWay(revision)
    }

    fn found(&mut self, name: &str) -> Result<PoolId, String> {
        let queue = self.queue(name).map_err(|e| format!("make the hand-over queue: {e}"))?;
        self.notify.store_queue(name, &queue);
        self.last_pool += 1;
        let id = PoolId(self.last_pool);
        self.names.insert(name.to_owned(), id);
        self.places.insert(id, Place::new(name.to_owned(), queue));
        Ok(id)
    }

    /// The queue that systemd kept for a pool, with those who wait in it, or a new one.
    fn queue(&mut self, pool: &str) -> nix::Result<Queue> {
        let kept = place::queue_kept_as(pool).map(|name| (self.passed.take(&name).pop(), name));
        match kept {
            [(Some(receiving), _), (Some(sending), _)] => Ok(Queue { receiving, sending }),
            halves => {
                // Of a half alone nobody could take, or nobody could give.
                halves.iter().filter(|(end, _)| end.is_some()).for_each(|(_, name)| self.notify.forget(name));
                Queue::new()
            }
        }
    }

    fn cannot(&mut self, settings: Pool, error: &listeners::Error) -> Outcome {
        let message = error.to_string();
        let name = settings.name.clone();
        let known = self.broken.get(&name).is_some_and(|b| b.message == message);
        if !known {
            tracing::error!(pool = name, "{message}");
        }
        // A running pool keeps its old settings; a new one waits until the address is free.
        let retry = match error {
            listeners::Error::InUse(_) if !self.names.contains_key(&name) => {
                Some((settings, now() + TRY_AGAIN))
            }
            _ => None,
        };
        self.broken.insert(name, Broken { message: message.clone(), retry });
        Outcome::Fault(message)
    }

    pub(super) fn retry_deadline(&self) -> Option<Duration> {
        self.broken.values().filter_map(|b| b.retry.as_ref().map(|(_, at)| *at)).min()
    }

    /// Tries again to set up pools whose listeners were in use.
    pub(super) fn retry_broken(&mut self) {
        let due: Vec<Pool> = self
            .broken
            .values()
            .filter_map(|b| b.retry.as_ref().filter(|(_, at)| *at <= now()).map(|(pool, _)| pool.clone()))
            .collect();
        if due.is_empty() {
            return;
        }
        let sockets = self.known_sockets();
        for settings in due {
            self.configure(settings, &sockets);
        }
    }

    pub(super) fn adopted(&mut self, pool: PoolId, revision: u64, generation: u64) {
        let Some(place) = self.places.get_mut(&pool) else { return };
        let adopted = place.adopt(revision);
        for fault in adopted.faults {
            tracing::error!(pool = place.name, "{fault}");
        }
        tracing::debug!(pool = place.name, generation, "new settings are in force");
        self.notify.store(&adopted.made);
        self.let_go(adopted.closed);
        self.watch_files(pool);
    }

    /// Takes sockets that were closed out of systemd's store: but for those that another pool took over.
    pub(super) fn let_go(&self, names: Vec<String>) {
        for name in names {
            let mut sockets = self.places.values().flat_map(Place::sockets);
            let is_queue = |pool: &String| place::queue_kept_as(pool).contains(&name);
            if !sockets.any(|socket| socket.kept_as() == name) && !self.names.keys().any(is_queue) {
                self.notify.forget(&name);
            }
        }
    }

    /// After the start: listeners that systemd kept and that no pool has any more are given up.
    pub(super) fn give_up_unclaimed(&mut self) {
        for (name, address) in self.passed.take_unclaimed() {
            if let Some(Address::Unix(path)) = &address
                && listeners::FileId::of(path)
                    .is_some_and(|file| name == place::kept_as(&Address::Unix(path.clone()), Some(file)))
            {
                // Nobody listens there any more, and who binds there again makes it anew.
                let _ = std::fs::remove_file(path);
            }
            self.notify.forget(&name);
        }
    }

    pub(super) fn reloaded(&mut self, pool: PoolId, revision: u64, generation: u64, fault: Option<String>) {
        let Some(place) = self.places.get_mut(&pool) else { return };
        self.notify.dirty = true;
        self.news.insert(pool);
        place.last_reload = Some((revision, fault.clone()));
        match &fault {
            None => tracing::info!(pool = place.name, generation, "reloaded"),
            Some(fault) => {
                let closed = place.forget(revision);
                tracing::error!(
                    pool = place.name,
                    generation,
                    "the reload failed, the old generation stays: {fault}"
                );
                self.let_go(closed);
            }
        }
    }
}
