//! SIGUSR2: the supervisor executes the program that lies at its path now, under its own process id.
//!
//! First the new program is started as a probe that reads the state and says whether it can go on from it; then
//! descriptors and state are packed (`carry`) and the program is executed. It takes everything up, workers serve
//! on all the time, and then it reloads.
//!
//! Always holds: signals that come in between wait, blocked; a program that cannot start, or cannot read the
//! state, leaves this one running.
//!
//! Limitation: whoever waits at the control socket for a command is told to ask again.

use super::{
    Error, Shell, Source, Token,
    carry::{Cargo, Load},
    change, link, log, now,
    place::{Place, Revision, Socket},
    state::{self, State},
    temporary::Temporary,
    worker::{Output, Worker},
};
use crate::{
    control::{Answer, Server},
    fleet::Event,
    listeners::{self, Passed},
};
use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        signal::{SigSet, Signal, kill},
    },
    unistd::{Pid, dup2_stdin, execve},
};
use std::{
    collections::BTreeMap,
    ffi::{CString, OsString},
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStringExt, fs::FileExt},
    },
    process::{Command, ExitCode},
    rc::Rc,
    time::Duration,
};

/// Set for a program that is to go on from what descriptor 0 holds.
const MARK: &str = "HOSTLER_RESUME";
/// What a probe may take.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// What a probe says where it can go on: an end without a fault alone might be any other program's.
const YES: &str = "hostler can go on";

/// A probe that runs.
#[derive(Debug)]
pub(crate) struct Probe {
    pid: i32,
    until: Duration,
    /// What it writes to standard output.
    said: File,
}

/// Whether this process goes on from another's state.
pub(super) fn is_resumed() -> bool {
    std::env::var_os(MARK).is_some()
}

/// `hostler probe`: reads a state from standard input and says whether it could go on from it.
pub(crate) fn probe() -> ExitCode {
    let mut text = Vec::new();
    match io::stdin().read_to_end(&mut text).map_err(|e| e.to_string()).and_then(|_| State::from_bytes(&text))
    {
        Ok(_) => {
            println!("{YES}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("hostler: cannot go on from the running supervisor's state: {e}");
            ExitCode::FAILURE
        }
    }
}

impl Shell {
    /// Starts the probe; its end decides.
    pub(super) fn upgrade(&mut self) {
        if self.probe.is_some() || self.fleet.stopping().is_some() {
            return;
        }
        if matches!(self.source, Source::Made(_)) {
            tracing::error!("only \"hostler run\" can be upgraded while it runs");
            return;
        }
        match self.start_probe() {
            Ok((pid, said)) => self.probe = Some(Probe { pid, until: now() + PROBE_TIME, said }),
            Err(e) => tracing::error!("upgrade: {e}; this supervisor goes on"),
        }
    }

    fn start_probe(&self) -> io::Result<(i32, File)> {
        let (state, said) = (empty_file()?, empty_file()?);
        write_state(&state, &self.state(&mut Load::default()))?;
        let program = self.program.display();
        let child = Command::new(&self.program)
            .arg("probe")
            .stdin(state)
            .stdout(said.try_clone()?)
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("start {program}: {e}")))?;
        Ok((i32::try_from(child.id()).map_err(io::Error::other)?, said))
    }

    /// A process ended: whether it was the probe.
    pub(super) fn probed(&mut self, pid: i32, ok: bool) -> bool {
        let Some(probe) = self.probe.take_if(|probe| probe.pid == pid) else { return false };
        let mut start = [0; YES.len()];
        let said = probe.said.read_exact_at(&mut start, 0);
        if ok && said.is_ok() && start == *YES.as_bytes() {
            self.replace();
        } else {
            tracing::error!(
                "upgrade: {} cannot go on from here; this supervisor goes on",
                self.program.display()
            );
        }
        true
    }

    pub(super) fn probe_deadline(&self) -> Option<Duration> {
        self.probe.as_ref().map(|probe| probe.until)
    }

    /// Ends a probe that takes too long.
    pub(super) fn end_probe(&mut self) {
        if let Some(probe) = self.probe.as_ref().filter(|probe| probe.until <= now()) {
            let _ = kill(Pid::from_raw(probe.pid), Signal::SIGKILL);
            tracing::error!("upgrade: the new program did not answer in time");
        }
    }

    /// Becomes the new program. Comes back only where that failed.
    fn replace(&mut self) {
        if self.fleet.stopping().is_some() {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            let answer = Answer::refused("the supervisor is being replaced by a new program: ask again");
            self.answer(waiting.token, &answer);
        }
        if let Some(server) = &mut self.control {
            server.flush(Duration::from_secs(1));
        }
        self.drive();
        self.start_all();
        tracing::info!("upgrade: executes {}", self.program.display());
        let _ = SigSet::all().thread_block();
        let error = self.execute();
        let _ = SigSet::all().thread_unblock();
        tracing::error!("upgrade: {error}; this supervisor goes on");
    }

    fn execute(&self) -> io::Error {
        match self.pack().and_then(|end| dup2_stdin(end).map_err(io::Error::from)) {
            Err(e) => io::Error::new(e.kind(), format!("pack the descriptors: {e}")),
            Ok(()) => match execve(&text(self.program.clone().into()), &arguments(), &environment()) {
                Err(e) => io::Error::other(format!("execute {}: {e}", self.program.display())),
                Ok(never) => match never {},
            },
        }
    }

    fn pack(&self) -> io::Result<OwnedFd> {
        let file = empty_file()?;
        let mut load = Load::default();
        let state = self.state(&mut load);
        write_state(&file, &state)?;
        load.put(&file);
        load.pack()
    }

    /// All that the next program needs; `load` gets the descriptors.
    fn state<'a>(&'a self, load: &mut Load<'a>) -> State {
        let mut sockets: Vec<(&Rc<Socket>, state::Socket)> = Vec::new();
        let mut places = Vec::new();
        for (id, place) in &self.places {
            let mut revisions = Vec::new();
            for (number, revision) in &place.revisions {
                let mut indices = Vec::new();
                for socket in &revision.sockets {
                    let known = sockets.iter().position(|(known, _)| Rc::ptr_eq(known, socket));
                    indices.push(known.unwrap_or_else(|| {
                        let fd = load.put(&socket.bound.fd);
                        let listen = socket.listen.clone();
                        let (file, lent) = (socket.bound.file, socket.bound.lent);
                        sockets.push((socket, state::Socket { fd, listen, file, lent }));
                        sockets.len() - 1
                    }));
                }
                revisions.push((*number, revision.settings.clone(), indices));
            }
            places.push(state::Place {
                id: *id,
                name: place.name.clone(),
                current: place.current,
                named: self.names.get(&place.name) == Some(id),
                revisions,
                queue: [load.put(&place.queue.receiving), load.put(&place.queue.sending)],
                gone: place.gone.clone(),
                watched: self.watched.contains(id),
            });
        }
        let workers = self.workers.values().map(|worker| worker_state(worker, load)).collect();
        let outputs = self.outputs.iter().map(|(id, output)| output_state(*id, output, load)).collect();
        State {
            fleet: self.fleet.clone(),
            settings: (&self.settings).into(),
            sockets: sockets.into_iter().map(|(_, socket)| socket).collect(),
            places,
            workers,
            outputs,
            control: self.control.as_ref().map(|server| (load.put(&server.bound().fd), server.bound().file)),
            passed: self.passed.all().map(|(name, fd)| (name.to_owned(), load.put(fd))).collect(),
            last_output: self.last_output,
            last_pool: self.last_pool,
            last_revision: self.last_revision,
            started: self.started,
            temporary: self.temporary.path(),
        }
    }

    /// Goes on from what the former program left.
    pub(super) fn resume(source: Source) -> Result<Shell, Error> {
        let system = |e: io::Error| Error::system("go on from the former program's state", e);
        let mut cargo = Cargo::unpack().map_err(system)?;
        let mut text = Vec::new();
        let mut file = File::from(cargo.take_last().map_err(system)?);
        file.rewind().and_then(|()| file.read_to_end(&mut text)).map_err(system)?;
        let state = State::from_bytes(&text).map_err(|e| system(io::Error::other(e)))?;
        let log = (&state.settings).into();
        log::set(&log).map_err(|e| Error::system("open the log", e))?;
        let passed = state
            .passed
            .iter()
            .map(|(name, fd)| Ok((name.clone(), cargo.take(*fd)?)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(system)?;
        // What the config says now comes with the reload that follows.
        let settings = state.settings.supervisor();
        let mut shell = Shell::with(source, Passed::from(passed), settings)?;
        shell.take_up(state, &mut cargo).map_err(system)?;
        shell.notify = std::mem::take(&mut shell.notify).resumed();
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "upgrade: the new program goes on");
        Ok(shell)
    }

    fn take_up(&mut self, state: State, cargo: &mut Cargo) -> io::Result<()> {
        self.fleet = state.fleet;
        (self.last_output, self.last_pool) = (state.last_output, state.last_pool);
        (self.last_revision, self.started) = (state.last_revision, state.started);
        self.temporary = Temporary::resumed(state.temporary);
        let mut sockets = Vec::new();
        for socket in state.sockets {
            let fd = cargo.take(socket.fd)?;
            let bound = listeners::adopt(fd, &socket.listen, socket.file)
                .map_err(|e| io::Error::other(e.to_string()))?;
            let bound = listeners::Bound { lent: socket.lent, ..bound };
            sockets.push(Rc::new(Socket { listen: socket.listen, bound }));
        }
        for place in state.places {
            self.take_up_place(place, &sockets, cargo)?;
        }
        for output in state.outputs {
            let fd = cargo.take(output.fd)?;
            self.poll.add(&fd, Token::Output(output.id))?;
            let mut lines = super::lines::Lines::default();
            lines.push(&output.held, |_| {});
            let stream = if output.error { "stderr" } else { "stdout" };
            self.outputs.insert(output.id, Output { fd, pool: output.pool, pid: output.pid, stream, lines });
        }
        for worker in state.workers {
            let link = link::Link(cargo.take(worker.link)?);
            if !worker.mute {
                self.poll.add(&link.0, Token::Worker(worker.id))?;
            }
            let page = link::Page(cargo.take(worker.page)?.into());
            self.pids.insert(worker.pid, worker.id);
            self.workers.insert(worker.id, worker.into_worker(link, page));
        }
        if let Some((fd, file)) = state.control {
            let bound = listeners::Bound { fd: cargo.take(fd)?, file, lent: false };
            let path = state.settings.control;
            let server = Server::over(bound, &path).map_err(|e| io::Error::other(e.to_string()))?;
            self.poll.add(server.as_fd(), Token::Control)?;
            self.control = Some(server);
        }
        Ok(())
    }

    fn take_up_place(
        &mut self,
        place: state::Place,
        sockets: &[Rc<Socket>],
        cargo: &mut Cargo,
    ) -> io::Result<()> {
        let [receiving, sending] = place.queue;
        let queue = link::Queue { receiving: cargo.take(receiving)?, sending: cargo.take(sending)? };
        let mut held = Place::new(place.name.clone(), queue);
        held.current = place.current;
        held.gone = place.gone;
        let of = |index: &usize| sockets.get(*index).cloned();
        held.revisions = place
            .revisions
            .into_iter()
            .map(|(n, settings, indices)| {
                (n, Revision { settings, sockets: indices.iter().filter_map(of).collect() })
            })
            .collect::<BTreeMap<_, _>>();
        if place.named {
            self.names.insert(place.name, place.id);
        }
        self.places.insert(place.id, held);
        if place.watched {
            self.watch(place.id);
        }
        Ok(())
    }

    /// After a resume: what ended meanwhile, and the reload that an upgrade is for.
    pub(super) fn go_on(&mut self) {
        self.reap();
        for pool in self.places.keys().copied().collect::<Vec<_>>() {
            self.watch_files(pool);
        }
        for place in self.places.values().filter(|place| self.names.contains_key(&place.name)) {
            // The former program may not have done it.
            self.notify.store_queue(&place.name, &place.queue);
        }
        self.events.push_back(Event::Tick);
        let _ = self.load(&change::Which::default());
        self.drive();
    }
}

fn worker_state<'a>(worker: &'a Worker, load: &mut Load<'a>) -> state::Worker {
    state::Worker {
        id: worker.id,
        pid: worker.pid,
        pool: worker.pool,
        kind: worker.kind,
        generation: worker.generation,
        link: load.put(&worker.link.0),
        page: load.put(&worker.page.0),
        started: worker.started,
        outputs: worker.outputs,
        mute: worker.mute,
        over_hard: worker.over_hard,
        grouped: worker.grouped,
    }
}

fn output_state<'a>(id: u64, output: &'a Output, load: &mut Load<'a>) -> state::Output {
    state::Output {
        id,
        fd: load.put(&output.fd),
        pool: output.pool.clone(),
        pid: output.pid,
        error: output.stream == "stderr",
        held: output.lines.held().to_vec(),
    }
}

/// A file in memory.
fn empty_file() -> io::Result<File> {
    Ok(File::from(memfd_create("hostler-state", MFdFlags::MFD_CLOEXEC)?))
}

/// Writes a state, to be read from the start.
fn write_state(mut file: &File, state: &State) -> io::Result<()> {
    file.write_all(&state.to_bytes().map_err(io::Error::other)?)?;
    file.rewind()
}

fn text(text: OsString) -> CString {
    CString::new(text.into_vec()).unwrap_or_default()
}

fn arguments() -> Vec<CString> {
    std::env::args_os().map(text).collect()
}

/// Our own environment with the mark; sockets that systemd passed are in the state now.
fn environment() -> Vec<CString> {
    let passing = |name: &OsString| name.to_string_lossy().starts_with("LISTEN_") || name == MARK;
    let own = std::env::vars_os().filter(|(name, _)| !passing(name));
    own.chain([(MARK.into(), "1".into())])
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            text(name)
        })
        .collect()
}
