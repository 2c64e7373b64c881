//! Commands from the control socket: each waits until what it asked for has happened, or cannot.
//!
//! Always holds: every command gets an answer, if only that everything is being stopped.

use super::{Shell, change::Outcome, change::Which};
use crate::{
    control::{Answer, Command, Line, Token},
    fleet::{Event, Kind, PoolId, PoolState, Stop},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// A command that is under way.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) token: Token,
    open: BTreeMap<PoolId, Open>,
    done: Vec<Line>,
    /// It ends with the supervisor.
    until_end: bool,
}

/// What is not known yet of one pool.
#[derive(Debug)]
struct Open {
    name: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A reload to at least this revision.
    Reload(u64),
    /// Its first start, a start or a restart.
    Start,
    /// Its last app worker's end.
    Stop,
}

impl Shell {
    /// Does what can be done now on the control socket.
    pub(super) fn serve_control(&mut self) {
        let Some(mut server) = self.control.take() else { return };
        let commands = server.turn(Instant::now(), self);
        self.control = Some(server);
        for (token, command) in commands {
            self.command(token, command);
        }
    }

    fn command(&mut self, token: Token, command: Command) {
        tracing::info!("asked for: {command:?}");
        match command {
            Command::Reload { pools, changed } => self.reload_for(token, pools, changed),
            Command::Stop { pool: None } => {
                self.waiting.push(Waiting {
                    token,
                    open: BTreeMap::new(),
                    done: Vec::new(),
                    until_end: true,
                });
                self.stop(Stop::Graceful(self.settings.stop_timeout));
            }
            Command::Stop { pool: Some(name) } => {
                self.one_pool(token, name, What::Stop, |pool| Event::StopAsked { pool });
            }
            Command::Start { pool } => {
                self.one_pool(token, pool, What::Start, |pool| Event::StartAsked { pool });
            }
            Command::Restart { pool } => {
                self.one_pool(token, pool, What::Start, |pool| Event::RestartAsked { pool });
            }
        }
    }

    fn one_pool(&mut self, token: Token, name: String, what: What, event: impl FnOnce(PoolId) -> Event) {
        let Some(pool) = self.names.get(&name).copied() else {
            let why = self.broken.get(&name).map(|broken| format!(" that runs: {}", broken.message));
            let error = format!("there is no pool {name}{}", why.unwrap_or_default());
            return self.answer(token, &Answer::refused(error));
        };
        self.events.push_back(event(pool));
        self.news.insert(pool);
        let open = BTreeMap::from([(pool, Open { name, what })]);
        self.waiting.push(Waiting { token, open, done: Vec::new(), until_end: false });
    }

    fn reload_for(&mut self, token: Token, pools: Vec<String>, changed: bool) {
        let names: BTreeSet<String> = pools.into_iter().collect();
        let which = Which { names: (!names.is_empty()).then(|| names.clone()), changed };
        let before: BTreeSet<PoolId> = self.names.values().copied().collect();
        let outcomes = match self.load(&which) {
            Ok(outcomes) => outcomes,
            Err(error) => return self.answer(token, &Answer::refused(error)),
        };
        if let Some(unknown) = names.iter().find(|name| !outcomes.iter().any(|(known, _)| known == *name)) {
            return self.answer(token, &Answer::refused(format!("there is no pool {unknown}")));
        }
        let mut waiting = Waiting { token, open: BTreeMap::new(), done: Vec::new(), until_end: false };
        for (name, outcome) in outcomes {
            let pool = self.names.get(&name).copied();
            match (outcome, pool) {
                (Outcome::UnderWay(revision), Some(pool)) => {
                    let what = if before.contains(&pool) { What::Reload(revision) } else { What::Start };
                    self.news.insert(pool);
                    waiting.open.insert(pool, Open { name, what });
                }
                (outcome, pool) => {
                    let generation = pool.and_then(|id| self.fleet.pool(id)).map(|p| p.generation());
                    waiting.done.push(line(name, outcome, generation));
                }
            }
        }
        self.waiting.push(waiting);
    }

    /// Answers commands whose pools have all come to where they should, or cannot. Only pools of which there is
    /// news are looked at.
    pub(super) fn settle(&mut self) {
        let news = std::mem::take(&mut self.news);
        for mut waiting in std::mem::take(&mut self.waiting) {
            for pool in &news {
                let settled = waiting.open.get(pool).and_then(|open| self.settled(*pool, open));
                if let Some(line) = settled {
                    waiting.open.remove(pool);
                    waiting.done.push(line);
                }
            }
            if waiting.open.is_empty() && !waiting.until_end {
                waiting.done.sort_by(|a, b| a.name.cmp(&b.name));
                self.answer(waiting.token, &Answer { error: None, pools: waiting.done });
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    fn settled(&self, pool: PoolId, open: &Open) -> Option<Line> {
        let line = |ok, message| Some(Line { name: open.name.clone(), ok, message });
        let (Some(pool), Some(place)) = (self.fleet.pool(pool), self.places.get(&pool)) else {
            return line(matches!(open.what, What::Stop), "is gone".to_owned());
        };
        let generation = pool.generation();
        match open.what {
            What::Reload(revision) => {
                let (_, fault) = place.last_reload.as_ref().filter(|(done, _)| *done >= revision)?;
                match fault {
                    None => line(true, format!("serves as generation {generation}")),
                    Some(fault) => line(false, format!("keeps generation {generation}: {fault}")),
                }
            }
            What::Start => match pool.state() {
                PoolState::Starting => None,
                PoolState::Running => line(true, format!("serves as generation {generation}")),
                PoolState::Stopped => line(false, "was stopped".to_owned()),
                PoolState::Degraded | PoolState::Failed => {
                    let error = pool.last_error().unwrap_or("its workers do not boot");
                    line(false, format!("is {}: {error}", pool.state().word()))
                }
            },
            What::Stop => {
                let left = pool.workers().any(|(_, w)| w.kind() == Kind::App);
                if left { None } else { line(true, "is stopped".to_owned()) }
            }
        }
    }

    /// At the end: whoever waits still learns it, before the process is gone.
    pub(super) fn answer_all(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            let error = (!waiting.until_end).then(|| "everything is being stopped".to_owned());
            self.answer(waiting.token, &Answer { error, pools: waiting.done });
        }
        if let Some(mut server) = self.control.take() {
            server.flush(std::time::Duration::from_secs(1));
            server.remove_file();
        }
    }

    pub(super) fn answer(&mut self, token: Token, answer: &Answer) {
        if let Some(server) = &mut self.control {
            server.answer(token, answer, Instant::now());
        }
    }
}

fn line(name: String, outcome: Outcome, generation: Option<u64>) -> Line {
    let keeps = |why: &str| match generation {
        Some(generation) => format!("keeps generation {generation}: {why}"),
        None => format!("does not start: {why}"),
    };
    let (ok, message) = match &outcome {
        Outcome::Unchanged => (true, format!("unchanged, generation {}", generation.unwrap_or_default())),
        Outcome::Dropped => (true, "is in the config no more and ends".to_owned()),
        Outcome::Fault(fault) => (false, keeps(fault)),
        Outcome::UnderWay(_) => (false, keeps("it is gone")),
    };
    Line { name, ok, message }
}
