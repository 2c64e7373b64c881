//! The `cgi` runtime: one process a request, as RFC 3875 has it.
//!
//! Files to read first: `script` (what may run), `environment` (what it is told), `child` (how it starts and
//! ends), `pump` (how bytes flow).
//!
//! Always holds: only an executable regular file beneath the root runs; a script and its process group are gone
//! when its request is over, however it ended; memory does not grow with a body or an answer.
//!
//! # Limitations
//! - An indexed query (`?a+b`, section 4.4) is not split into arguments: it has let clients choose options of
//!   interpreters.
//! - A body of unknown length (chunked) comes without CONTENT_LENGTH and ends with the script's input.
//! - The output of a script that writes a status line of HTTP (NPH, section 5) is read as a head like any other,
//!   since a web server's protocol has no room for the script's own framing; with Transfer-Encoding it is refused.
//! - The answer begins when the body has come whole, or the script has closed its input: a script cannot converse
//!   with its client.
//! - A local redirect (section 6.2.2) to a path outside the app is sent to the client as a 302.
//! - A worker that is killed with SIGKILL takes the script's process group along; what had left the group is left, and
//!   so is all of it where the worker has no supervisor.

mod child;
mod environment;
mod family;
mod intake;
pub(crate) mod lines;
mod pump;
pub(crate) mod script;

use crate::{
    answer::Answer,
    app::App,
    beneath::{Refusal, Root},
    control::{self, Symlinks},
    error::Error,
    paths,
    request::Request,
};
use child::{Base, Child};
use environment::Surroundings;
use http::StatusCode;
use pump::{Outcome, Pump};
use script::{Denied, Found, Place, Script};
use std::{ffi::OsString, path::Path};

/// The most local redirects that one request follows.
const REDIRECTS_LIMIT: usize = 10;

/// Runs the scripts beneath one directory.
pub(crate) struct Cgi {
    root: Root,
    settings: control::Cgi,
    /// The worker's own PATH.
    path: Option<OsString>,
    base: Base,
}

/// The request as a local redirect has it: a GET (or HEAD) for another path of the same app, without a body.
struct Redirected {
    path: Vec<u8>,
    query: Vec<u8>,
}

impl Cgi {
    /// Opens the root.
    ///
    /// # Errors
    /// A phrase for the log: what of `settings` cannot be used and why.
    pub(crate) fn new(settings: &control::Cgi) -> Result<Cgi, String> {
        if let Some(name) = settings.index.iter().find(|name| name.is_empty() || name.contains(['/', '\0'])) {
            return Err(format!("the index {name:?} is no file name"));
        }
        let unfit = |(name, value): &&(String, String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if let Some((name, _)) = settings.env.iter().find(unfit) {
            return Err(format!("the environment variable {name:?} cannot be set"));
        }
        let root = Root::open(&settings.root, Symlinks::Beneath)?;
        Ok(Cgi { root, settings: settings.clone(), path: std::env::var_os("PATH"), base: Base::new()? })
    }

    /// Runs `script` for the request.
    fn run(
        &self,
        script: &Script,
        request: &mut Request<'_>,
        answer: &mut Answer<'_>,
        redirected: Option<&Redirected>,
    ) -> Result<Outcome, Error> {
        let (root, path) = (Path::new(&self.settings.root), self.path.as_deref());
        let given = Surroundings { script, root, path, env: &self.settings.env };
        let environment = match redirected {
            None => environment::variables(request.params(), &given),
            Some(redirected) => {
                environment::variables(after_redirect(request, redirected).into_iter(), &given)
            }
        };
        let with_body = redirected.is_none() && !request.body().at_end();
        let (child, pipes) = Child::start(script, &environment, with_body, &self.base)?;
        Pump::new(request, answer, pipes).run(child)
    }
}

impl App for Cgi {
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        self.root.refresh();
        let mut redirected: Option<Redirected> = None;
        for _ in 0..=REDIRECTS_LIMIT {
            let place = match &redirected {
                Some(to) => {
                    let (path, query) = (&to.path[..], &to.query[..]);
                    Place {
                        script_filename: None,
                        path_info: None,
                        mount: request.script_name(),
                        path,
                        query,
                    }
                }
                None => Place {
                    script_filename: request.sent().get("SCRIPT_FILENAME"),
                    path_info: request.sent().get("PATH_INFO"),
                    mount: request.script_name(),
                    path: request.path_info(),
                    query: request.query(),
                },
            };
            let script = match script::find(&self.root, &self.settings, &place) {
                Ok(Found::Script(script)) => script,
                Ok(Found::Redirect(to)) => return plain(answer, StatusCode::MOVED_PERMANENTLY, Some(&to)),
                Err(denied) => return deny(request, answer, &denied),
            };
            match self.run(&script, request, answer, redirected.as_ref())? {
                Outcome::Answered => return Ok(()),
                Outcome::LocalRedirect(target) => match within(request.script_name(), &target) {
                    Some(to) => redirected = Some(to),
                    None => return plain(answer, StatusCode::FOUND, Some(&target)),
                },
            }
        }
        Err(Error::App(format!("the script redirects in a circle, or over {REDIRECTS_LIMIT} times")))
    }
}

/// The request that a local redirect to `target` makes, where it is for this app.
fn within(mount: &[u8], target: &[u8]) -> Option<Redirected> {
    let mut path = Vec::new();
    paths::of_target(target, &mut path).ok()?;
    let rest = path.strip_prefix(mount).filter(|rest| rest.starts_with(b"/"))?.to_vec();
    let query = target.iter().position(|&byte| byte == b'?').and_then(|at| target.get(at + 1..));
    Some(Redirected { path: rest, query: query.unwrap_or_default().to_vec() })
}

/// The meta-variables after a local redirect.
fn after_redirect<'v>(request: &Request<'v>, to: &'v Redirected) -> Vec<(&'v [u8], &'v [u8])> {
    let method: &[u8] = if request.method() == b"HEAD" { b"HEAD" } else { b"GET" };
    let changed: [&[u8]; 4] = [b"REQUEST_METHOD", b"QUERY_STRING", b"CONTENT_LENGTH", b"CONTENT_TYPE"];
    let kept = request.params().filter(|(name, _)| !changed.contains(name));
    let new: [(&[u8], &[u8]); 2] = [(b"REQUEST_METHOD", method), (b"QUERY_STRING", &to.query)];
    kept.chain(new).collect()
}

fn deny(request: &Request<'_>, answer: &mut Answer<'_>, denied: &Denied) -> Result<(), Error> {
    match denied {
        Denied::Refused(Refusal::Absent) => plain(answer, StatusCode::NOT_FOUND, None),
        Denied::Refused(Refusal::Forbidden) => plain(answer, StatusCode::FORBIDDEN, None),
        Denied::Refused(Refusal::Failed(errno)) => Err(Error::from(*errno)),
        Denied::Unfit(why) => {
            request.log(why.as_bytes());
            plain(answer, StatusCode::FORBIDDEN, None)
        }
    }
}

/// One line of text that says the status.
fn plain(answer: &mut Answer<'_>, status: StatusCode, location: Option<&[u8]>) -> Result<(), Error> {
    let mut fields: Vec<(&str, &[u8])> = vec![("Content-Type", b"text/plain; charset=utf-8")];
    fields.extend(location.map(|to| ("Location", to)));
    answer.head(status, &fields)?;
    answer
        .write(format!("{} {}\n", status.as_str(), status.canonical_reason().unwrap_or_default()).as_bytes())
}
