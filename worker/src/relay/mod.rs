//! The `fastcgi` runtime: runs somebody else's FastCGI program, one a worker, and relays requests to it record by
//! record, so that a program which can do none of it is recycled, timed out and reloaded without loss.
//!
//! Files to read first: `pump` (how bytes flow), `program` and `warden` (how the program starts and ends), `ready`
//! (when it may be asked), `scripts` (what a request over HTTP means).
//!
//! Always holds: the program has a listener of its own that nobody else reaches, and one request at a time of each worker
//! that uses it: one worker, or as many as `concurrency` says (`share`); it is gone, with all that it started, when
//! the worker that started it is; an answer is whole or the connection is cut.
//!
//! A program that dies in a request: 502; where nothing of its answer had come and the request has no body, the
//! request is tried once more on a fresh program, and counted. A client that leaves: the program is sent
//! ABORT_REQUEST, its connection closed, and the worker takes no other request until the program is free, or
//! [`ABORT_GRACE`] has passed and it is replaced. A request over its time: it is replaced at once.
//!
//! # Limitations
//! - With `concurrency` a program that no request comes back from is replaced, and killed when all others are out of it.
//! - That a program died while nothing was asked of it is noticed by the next request, which waits for a fresh one.
//! - A program that closes its connection of itself now and then (`PHP_FCGI_MAX_REQUESTS`) may do so at the moment
//!   at which a request is written to it: one with a body is answered 502 then.
//! - A local redirect (RFC 3875, section 6.2.2) to a path outside the app is sent to the client as a 302.

mod door;
mod incoming;
mod outgoing;
mod params;
mod program;
mod pump;
mod ready;
mod scripts;
mod share;
pub(crate) mod warden;

use crate::{
    Error, answer::Answer, app::App, control::Fastcgi, hand::HAND, link::is_worn, paths, request::Request,
    sys,
};
use hostler_proto::Role;
use http::StatusCode;
use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{MsgFlags, recv, send},
        stat::Mode,
    },
};
use outgoing::ID;
use program::{DYING, Program};
use pump::{Buffers, Outcome, Pump, Source};
use scripts::{Found, Script, Scripts};
use std::{
    fs::File,
    io::{self, Seek},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

/// The most local redirects that one request follows.
const REDIRECTS_LIMIT: usize = 10;
/// How long a program may be busy with a request that nobody waits for any more.
const ABORT_GRACE: Duration = Duration::from_secs(2);
/// How long a program that closes each connection after its request may take to do so.
const CLOSING: u8 = 3;

/// See the module.
pub(crate) struct Relay {
    settings: Fastcgi,
    /// Of this app, in all workers of its generation.
    name: String,
    scripts: Option<Scripts>,
    program: Option<Program>,
    /// Programs that were replaced, and in which other workers may still have requests.
    leaving: Vec<Program>,
    conn: Option<Conn>,
    /// Whether the program is known to be ready, and until when that is waited for where it is not.
    ready: Result<(), Instant>,
    /// It may still be busy with a request that nobody waits for.
    aborted: bool,
    /// It ends when it is asked `GET_VALUES`.
    mute: bool,
    /// Whether it keeps a connection open after an answer, where that is known.
    keeps: Option<bool>,
    buffers: Buffers,
}

/// A connection to the program.
struct Conn {
    stream: UnixStream,
    /// Of its next request.
    id: u16,
    /// It has carried a request.
    asked: bool,
}

impl Conn {
    fn fresh(stream: UnixStream) -> Conn {
        Conn { stream, id: ID, asked: false }
    }

    /// Still open, and nothing came on it that nobody asked for.
    fn is_open(&self) -> bool {
        let peeked = recv(self.stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        matches!(peeked, Err(Errno::EAGAIN))
    }
}

/// The request as a local redirect has it: a GET (or HEAD) for another path of the same app, without a body.
struct Redirected {
    path: Vec<u8>,
    target: Vec<u8>,
}

impl Redirected {
    fn query(&self) -> &[u8] {
        let at = self.target.iter().position(|&byte| byte == b'?');
        at.and_then(|at| self.target.get(at + 1..)).unwrap_or_default()
    }
}

/// What a request becomes for the program.
#[derive(Default)]
struct View {
    redirected: Option<Redirected>,
    script: Option<Script>,
    /// Bytes of a body that came without a length and was gathered here.
    gathered: Option<u64>,
}

impl Relay {
    /// Starts the program and waits until it is ready. With `concurrency` it is shared with the other workers whose
    /// app is called `name`.
    ///
    /// # Errors
    /// A phrase for the log: what of `settings` cannot be used, or why the program is not ready.
    pub(crate) fn new(settings: &Fastcgi, name: String) -> Result<Relay, String> {
        let unfit = |(name, value): &&(String, String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if let Some((name, _)) = settings.env.iter().find(unfit) {
            return Err(format!("the environment variable {name:?} cannot be set"));
        }
        let scripts = match &settings.root {
            Some(root) => Some(Scripts::new(root, &settings.index)?),
            None => None,
        };
        // What this process opens has the flag from the start; this is for what it was started with.
        let _ = sys::close_on_exec_from_3();
        let mut relay = Relay {
            settings: settings.clone(),
            name,
            scripts,
            program: None,
            leaving: Vec::new(),
            conn: None,
            ready: Ok(()),
            aborted: false,
            mute: false,
            keeps: None,
            buffers: Buffers::default(),
        };
        relay.start()?;
        relay.wait_ready()?;
        relay.ask_ready_path()?;
        relay.let_go();
        Ok(relay)
    }

    /// Starts a fresh program, which is not ready yet.
    fn start(&mut self) -> Result<(), String> {
        self.conn = None;
        self.keeps = (!self.settings.keep_connections).then_some(false);
        self.aborted = false;
        self.dismiss();
        let started = Program::get(&self.settings, &self.name);
        self.program = Some(started.map_err(|why| format!("start {}: {why}", program_name(&self.settings)))?);
        // Earlier than the supervisor's patience ends, so that the reason is told.
        self.ready = Err(Instant::now() + self.settings.boot_timeout.mul_f32(0.9));
        Ok(())
    }

    /// The program is not used any more; one that others may have requests in ends by itself.
    fn dismiss(&mut self) {
        self.leaving.retain_mut(|program| program.ended(Duration::ZERO).is_none());
        let Some(program) = self.program.take() else { return };
        if let (Some(share), false) = (program.share(), program.is_elsewhere()) {
            share.release();
            program.leave();
            self.leaving.push(program);
        }
    }

    /// A program that several workers share is kept from its end for a request; where it is over, there is another.
    fn hold(&mut self) -> Result<(), String> {
        if self.settings.concurrency < 2 {
            return Ok(());
        }
        if let Some(share) = self.program.as_ref().and_then(Program::share) {
            if is_worn() {
                // Who comes to replace this worker needs a program that stays.
                share.shut();
            }
            if share.hold() {
                return Ok(());
            }
        }
        self.start()?;
        self.wait_ready()
    }

    /// The request is over.
    fn let_go(&mut self) {
        if let Some(share) = self.program.as_ref().and_then(Program::share) {
            share.release();
        }
    }

    /// Waits until a program is there that takes requests.
    fn wait_ready(&mut self) -> Result<(), String> {
        let (Err(until), Some(program)) = (self.ready, &mut self.program) else { return Ok(()) };
        // Whose program it is has asked, and knows whether it ends at that.
        let mute = self.mute || program.is_elsewhere();
        let failed = match ready::wait(program, &mut self.buffers.incoming, mute, until) {
            Ok(conn) => {
                self.conn = conn.map(Conn::fresh);
                self.ready = Ok(());
                return Ok(());
            }
            Err(failed) => failed,
        };
        let words = program.kill();
        self.program = None;
        self.ready = Ok(());
        if failed.by_question && !std::mem::replace(&mut self.mute, true) {
            eprintln!(
                "hostler: {} ends when it is asked GET_VALUES, and is not asked any more",
                program_name(&self.settings)
            );
            self.start()?;
            return self.wait_ready();
        }
        let why = failed.why;
        let words = words.find("; its last line").and_then(|at| words.get(at..)).unwrap_or_default();
        let words = if why.contains("; its last line") { "" } else { words };
        Err(format!("{} did not get ready: {why}{words}", program_name(&self.settings)))
    }

    fn ask_ready_path(&mut self) -> Result<(), String> {
        let Some(path) = self.settings.ready_path.clone() else { return Ok(()) };
        let until = Instant::now() + self.settings.boot_timeout.mul_f32(0.9);
        let script = match &mut self.scripts {
            Some(scripts) => match scripts.find(b"", path.as_bytes(), b"") {
                Found::Script(script) => Some(script),
                _ => return Err(format!("ready_path {path} leads to no script beneath the root")),
            },
            None => None,
        };
        let root = self.scripts.as_ref().map(|scripts| scripts.root().to_path_buf());
        let params = params::of_ready_path(&path, script.as_ref(), root.as_deref());
        let params: Vec<(&str, &[u8])> = params.iter().map(|(name, value)| (*name, &value[..])).collect();
        self.conn = None;
        let Some(program) = &mut self.program else { return Ok(()) };
        let asked = ready::answers(program, &mut self.buffers.incoming, &params, until);
        asked.map_err(|why| format!("{} did not get ready: {why}", program_name(&self.settings)))
    }

    /// Sees to it that there is a program which takes requests, and a connection to it.
    fn reach(&mut self) -> Result<Conn, Error> {
        let refuse = |why: String| Error::Upstream(502, why);
        if let Some(conn) = self.conn.take() {
            if conn.is_open() {
                return Ok(conn);
            }
            if conn.asked {
                // It does not keep what it was asked to keep, or has ended.
                self.keeps = Some(false);
            }
        }
        self.free();
        for _ in 0..2 {
            let ended = self.program.as_mut().map(|program| program.ended(Duration::ZERO).map(str::to_owned));
            match ended {
                Some(None) => {}
                Some(Some(how)) => {
                    eprintln!("hostler: {} is started anew: {how}", program_name(&self.settings));
                    self.start().map_err(refuse)?;
                }
                None => self.start().map_err(refuse)?,
            }
            self.wait_ready().map_err(refuse)?;
            if let Some(conn) = self.conn.take() {
                return Ok(conn);
            }
            let Some(program) = &mut self.program else { continue };
            match program.connect() {
                Ok(conn) => {
                    ready::prepare(&conn);
                    return Ok(Conn::fresh(conn));
                }
                Err(_) if program.is_elsewhere() => {
                    // Its owner does not know yet.
                    if let Some(share) = program.share() {
                        share.dismiss();
                    }
                    self.start().map_err(refuse)?;
                }
                Err(why) if program.ended(DYING).is_none() => {
                    eprintln!("hostler: {} lives and cannot be reached: {why}", program_name(&self.settings));
                    program.kill();
                }
                Err(_) => {}
            }
        }
        Err(refuse(format!("{} ends as soon as it is started", program_name(&self.settings))))
    }

    /// Relays one request.
    fn ask(
        &mut self,
        request: &mut Request<'_>,
        answer: &mut Answer<'_>,
        view: &mut View,
    ) -> Result<Outcome, Error> {
        let body =
            view.redirected.is_none() && !request.body().at_end() && request.role() != Role::Authorizer;
        let mut spool = None;
        if body && request.body().known_length().is_none() {
            let (file, length) = gather(request)?;
            view.gathered = Some(length);
            spool = Some(file);
        }
        let mut again = !body;
        loop {
            let conn = self.reach()?;
            let root = self.scripts.as_ref().map(Scripts::root);
            let begin = (conn.id, self.keeps != Some(false));
            params::write(&mut self.buffers.out, begin, request, view, root);
            let source = match spool.take() {
                Some(file) => Source::File(file),
                None if body => Source::Request,
                None => Source::Over,
            };
            match Pump::new(request, answer, &conn.stream, &mut self.buffers, source).run() {
                Ok(Outcome::Lost { begun }) => {
                    let how = self.lost();
                    if begun || !std::mem::replace(&mut again, false) {
                        return Err(Error::Upstream(502, how));
                    }
                    request.log(format!("hostler: {how}; tried once more").as_bytes());
                    request.retried = true;
                }
                Ok(outcome) => {
                    self.keep(conn, &outcome);
                    return Ok(outcome);
                }
                Err(error) => {
                    self.abort(&conn.stream, &error);
                    return Err(error);
                }
            }
        }
    }

    /// The program has closed the connection in a request: says why, and starts a fresh one where it has ended.
    fn lost(&mut self) -> String {
        let name = program_name(&self.settings).to_owned();
        let ended = self.program.as_mut().and_then(|program| program.ended(DYING).map(str::to_owned));
        let Some(how) = ended else {
            return format!("{name} closed its connection in the request");
        };
        if let Err(why) = self.start() {
            eprintln!("hostler: {why}");
        }
        format!("{name} died in the request: {how}")
    }

    /// Keeps a connection for the next request, where it is fit for one.
    fn keep(&mut self, Conn { stream, id, .. }: Conn, outcome: &Outcome) {
        let clean =
            matches!(outcome, Outcome::Answered { clean: true } | Outcome::LocalRedirect { clean: true, .. });
        let keeps = *self.keeps.get_or_insert_with(|| {
            // Said by no program: whether it closes is seen once, after its first answer.
            let waited =
                poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], PollTimeout::from(CLOSING));
            waited.is_ok_and(|count| count == 0)
        });
        let next = Conn { stream, id: if id == ID { ID + 1 } else { ID }, asked: true };
        self.conn = (clean && keeps).then_some(next);
    }

    /// Nobody waits for the program's answer any more.
    fn abort(&mut self, conn: &UnixStream, error: &Error) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        if self.buffers.out.pending().is_empty() {
            let _ = send(conn.as_raw_fd(), &self.buffers.out.abort(), flags);
        }
        let _ = conn.shutdown(std::net::Shutdown::Both);
        if self.program.is_none() || self.ready.is_err() {
            return;
        }
        if let Some(share) = self.program.as_ref().and_then(Program::share) {
            if HAND.is_ended() {
                // What does not end is still in it, and would take a place for ever.
                share.dismiss();
                self.renew("has a request whose time is over");
            }
            return;
        }
        if HAND.is_ended() {
            // It has had its time.
            if let Some(program) = &mut self.program {
                program.kill();
            }
            return self.renew("was busy when the time of its request was over");
        }
        self.ready = Err(Instant::now() + ABORT_GRACE);
        self.aborted = true;
        // Who is gone waits for no answer; any other error is answered first.
        if matches!(error, Error::Gone) {
            self.free();
        }
    }

    /// Waits a moment for a program to be done with a request that nobody waits for; else a fresh one is started.
    fn free(&mut self) {
        if !std::mem::take(&mut self.aborted) {
            return;
        }
        // One that cannot be asked could be busy for ever.
        if self.mute || self.wait_ready().is_err() {
            self.renew("may still be busy with a request that nobody waits for");
        }
    }

    /// Starts a fresh program and waits for it: until it is ready, other workers are the better choice.
    fn renew(&mut self, why: &str) {
        eprintln!("hostler: {} {why}, and is started anew", program_name(&self.settings));
        if let Err(why) = self.start().and_then(|()| self.wait_ready()) {
            eprintln!("hostler: {why}");
        }
    }

    /// What the request is for, where it names no script itself; `None` where it is answered.
    fn find(
        &mut self,
        request: &mut Request<'_>,
        answer: &mut Answer<'_>,
        view: &mut View,
    ) -> Result<Option<()>, Error> {
        let Some(scripts) = &mut self.scripts else { return Ok(Some(())) };
        let named = request.sent().get("SCRIPT_FILENAME").is_some_and(|name| scripts.is_named(name));
        if named && view.redirected.is_none() {
            return Ok(Some(()));
        }
        let (path, query) = match &view.redirected {
            Some(to) => (&to.path[..], to.query()),
            None => (request.path_info(), request.query()),
        };
        match scripts.find(request.script_name(), path, query) {
            Found::Script(script) => {
                view.script = Some(script);
                Ok(Some(()))
            }
            Found::File => scripts.files.serve(request, answer).map(|()| None),
            Found::Redirect(to) => plain(answer, StatusCode::MOVED_PERMANENTLY, Some(&to)).map(|()| None),
            Found::Absent => Err(Error::Client(404, "the path of a script that is not there")),
        }
    }
}

impl App for Relay {
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        self.hold().map_err(|why| Error::Upstream(502, why))?;
        let served = self.answer(request, answer);
        self.let_go();
        served
    }
}

impl Relay {
    fn answer(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        let mut view = View::default();
        for _ in 0..=REDIRECTS_LIMIT {
            if self.find(request, answer, &mut view)?.is_none() {
                return Ok(());
            }
            match self.ask(request, answer, &mut view)? {
                Outcome::LocalRedirect { target, .. } => match within(request.script_name(), &target) {
                    Some(path) => {
                        view = View { redirected: Some(Redirected { path, target }), ..View::default() };
                    }
                    None => return plain(answer, StatusCode::FOUND, Some(&target)),
                },
                Outcome::Answered { .. } | Outcome::Lost { .. } => return Ok(()),
            }
        }
        Err(Error::App(format!("the program redirects in a circle, or over {REDIRECTS_LIMIT} times")))
    }
}

fn program_name(settings: &Fastcgi) -> &str {
    settings.command.first().map_or("", String::as_str)
}

/// Reads a body of unknown length into a file without a name, since programs believe in CONTENT_LENGTH alone.
fn gather(request: &mut Request<'_>) -> Result<(File, u64), Error> {
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let mut file = File::from(open(&std::env::temp_dir(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    let length = io::copy(request.body(), &mut file)?;
    file.rewind()?;
    Ok((file, length))
}

/// The path below the mount of a local redirect to `target`, where it is for this app.
fn within(mount: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    paths::of_target(target, &mut path).ok()?;
    path.strip_prefix(mount).filter(|rest| rest.starts_with(b"/")).map(<[u8]>::to_vec)
}

/// One line of text that says the status.
fn plain(answer: &mut Answer<'_>, status: StatusCode, location: Option<&[u8]>) -> Result<(), Error> {
    let mut fields: Vec<(&str, &[u8])> = vec![("Content-Type", b"text/plain; charset=utf-8")];
    fields.extend(location.map(|to| ("Location", to)));
    answer.head(status, &fields)?;
    answer
        .write(format!("{} {}\n", status.as_str(), status.canonical_reason().unwrap_or_default()).as_bytes())
}
