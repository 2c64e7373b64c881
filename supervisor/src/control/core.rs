//! What the control socket answers: a function of the request and of a view of the supervisor. No I/O.

use super::http::{Reply, Request};
use crate::status::{Pool, Status};
use serde::{Deserialize, Serialize};

/// What there is to be seen of the supervisor.
pub(crate) trait View {
    /// Everything.
    fn status(&self) -> Status;

    /// One pool.
    fn pool(&self, name: &str) -> Option<Pool> {
        self.status().pools.into_iter().find(|pool| pool.name == name)
    }
}

/// What takes time: its client waits for the [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Read the config again and reload these pools; all where there are none.
    Reload {
        /// Names; each is one of the running pools or of the config, which is for the caller to find out.
        pools: Vec<String>,
        /// Those alone whose config changed.
        changed: bool,
    },
    /// Stop gracefully: one pool, or all and the supervisor itself.
    Stop {
        /// Its name.
        pool: Option<String>,
    },
    /// Start a stopped pool.
    Start {
        /// Its name.
        pool: String,
    },
    /// Stop and start a pool: its old workers are gone before the new ones come.
    Restart {
        /// Its name.
        pool: String,
    },
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// What is wrong apart from any pool: the main config file, a name that no pool has.
    pub error: Option<String>,
    /// One a pool.
    pub pools: Vec<Line>,
}

/// How a command ended for one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// The pool's name.
    pub name: String,
    /// It did what was asked.
    pub ok: bool,
    /// `serves as generation 4`, `keeps generation 3: …`.
    pub message: String,
}

impl Answer {
    /// Whether all of it did what was asked.
    pub(crate) fn ok(&self) -> bool {
        self.error.is_none() && self.pools.iter().all(|line| line.ok)
    }

    /// An answer for a command that could not be begun.
    pub(crate) fn refused(error: impl Into<String>) -> Answer {
        Answer { error: Some(error.into()), pools: Vec::new() }
    }
}

/// What comes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This, at once.
    Reply(Reply),
    /// An answer later.
    Deferred(Command),
}

/// The body of a POST; what it leaves out may stand in the query.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    pools: Vec<String>,
    pool: Option<String>,
    changed: bool,
}

/// What a request gets.
pub(super) fn reply(request: &Request, view: &dyn View) -> Outcome {
    let path = request.path.trim_end_matches('/');
    let (first, name) = match path.trim_start_matches('/').split_once('/') {
        Some((first, name)) => (first, Some(name)),
        None => (path.trim_start_matches('/'), None),
    };
    let get = matches!(request.method.as_str(), "GET" | "HEAD");
    let reads = matches!((first, name), ("status", _) | ("health" | "", None));
    let acts = matches!((first, name), ("reload" | "stop" | "start" | "restart", None));
    match (first, name) {
        _ if !reads && !acts => Outcome::Reply(Reply::error(
            404,
            "there is /status, /health, /reload, /stop, /start and /restart",
        )),
        _ if reads && !get => Outcome::Reply(Reply::error(405, "use GET")),
        _ if acts && request.method != "POST" => Outcome::Reply(Reply::error(405, "use POST")),
        ("status" | "", None) => Outcome::Reply(Reply::json(200, &view.status())),
        ("status", Some(name)) => Outcome::Reply(match view.pool(name) {
            Some(pool) => Reply::json(200, &pool),
            None => Reply::error(404, &format!("there is no pool {name}")),
        }),
        ("health", _) => Outcome::Reply(health(&view.status())),
        _ => match wanted(request) {
            Ok(wanted) => act(first, wanted),
            Err(message) => Outcome::Reply(Reply::error(400, &message)),
        },
    }
}

/// The answer of a command that has ended.
pub(super) fn answered(answer: &Answer) -> Reply {
    Reply::json(if answer.ok() { 200 } else { 500 }, answer)
}

fn health(status: &Status) -> Reply {
    let why = |pool: &Pool| match &pool.last_error {
        Some(error) => format!("{} is {}: {error}", pool.name, pool.state),
        None => format!("{} is {}", pool.name, pool.state),
    };
    let wrong: Vec<String> = status.pools.iter().filter(|pool| !pool.state.serves()).map(why).collect();
    let code = if wrong.is_empty() { 200 } else { 503 };
    Reply::json(code, &serde_json::json!({ "ok": wrong.is_empty(), "wrong": wrong }))
}

fn wanted(request: &Request) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    if !request.body.iter().all(u8::is_ascii_whitespace) {
        wanted = serde_json::from_slice(&request.body).map_err(|e| format!("read the body: {e}"))?;
    }
    for (name, value) in &request.query {
        match (name.as_str(), value.as_str()) {
            ("pool", pool) => wanted.pools.push(pool.to_owned()),
            ("changed", "" | "1" | "true") => wanted.changed = true,
            ("changed", "0" | "false") => {}
            (name, value) => {
                return Err(format!("there is no {name}={value}; there is pool=NAME and changed=1"));
            }
        }
    }
    wanted.pools.extend(wanted.pool.take());
    Ok(wanted)
}

fn act(what: &str, wanted: Wanted) -> Outcome {
    let bad = |message: &str| Outcome::Reply(Reply::error(400, message));
    if what == "reload" {
        return Outcome::Deferred(Command::Reload { pools: wanted.pools, changed: wanted.changed });
    }
    if wanted.changed {
        return bad("\"changed\" is for /reload alone");
    }
    let mut pools = wanted.pools.into_iter();
    match (what, pools.next(), pools.next()) {
        (_, _, Some(_)) => bad("name one pool"),
        ("stop", pool, None) => Outcome::Deferred(Command::Stop { pool }),
        ("start", Some(pool), None) => Outcome::Deferred(Command::Start { pool }),
        ("restart", Some(pool), None) => Outcome::Deferred(Command::Restart { pool }),
        _ => bad("name a pool"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{PoolState, tests::sample};

    struct Still(Status);

    impl View for Still {
        fn status(&self) -> Status {
            self.0.clone()
        }
    }

    fn ask(method: &str, target: &str, body: &str) -> Outcome {
        ask_of(sample(), method, target, body)
    }

    fn ask_of(status: Status, method: &str, target: &str, body: &str) -> Outcome {
        let bytes = format!("{method} {target} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        match super::super::http::parse(bytes.as_bytes()) {
            super::super::http::Parsed::Request(request) => reply(&request, &Still(status)),
            other => panic!("{other:?}"),
        }
    }

    fn status_of(outcome: &Outcome) -> u16 {
        match outcome {
            Outcome::Reply(reply) => reply.status,
            Outcome::Deferred(command) => panic!("{command:?}"),
        }
    }

    #[test]
    fn status_is_the_whole_or_one_pool() {
        let Outcome::Reply(reply) = ask("GET", "/status", "") else { panic!() };
        assert_eq!(serde_json::from_str::<Status>(&reply.body).unwrap(), sample());
        let Outcome::Reply(reply) = ask("GET", "/status/shop", "") else { panic!() };
        assert_eq!(serde_json::from_str::<Pool>(&reply.body).unwrap(), sample().pools[0]);
        assert_eq!(status_of(&ask("GET", "/status/none", "")), 404);
    }

    #[test]
    fn health_is_good_while_every_pool_serves() {
        let with = |state: PoolState| {
            let mut status = sample();
            status.pools[0].state = state;
            status.pools[0].last_error = Some("exit 3".to_owned());
            ask_of(status, "GET", "/health", "")
        };
        assert_eq!(status_of(&with(PoolState::Running)), 200);
        assert_eq!(status_of(&with(PoolState::Degraded)), 200);
        for state in [PoolState::Starting, PoolState::Failed, PoolState::Stopped] {
            let Outcome::Reply(reply) = with(state) else { panic!() };
            assert_eq!(reply.status, 503);
            assert!(reply.body.contains(&format!("shop is {state}: exit 3")), "{}", reply.body);
        }
    }

    #[test]
    fn a_reload_takes_pools_from_body_and_query() {
        let command = |pools: &[&str], changed| {
            let pools = pools.iter().map(|p| (*p).to_owned()).collect();
            Outcome::Deferred(Command::Reload { pools, changed })
        };
        assert_eq!(ask("POST", "/reload", ""), command(&[], false));
        assert_eq!(ask("POST", "/reload", r#"{"pools":["a"],"changed":true}"#), command(&["a"], true));
        assert_eq!(ask("POST", "/reload?pool=a&pool=b&changed=1", ""), command(&["a", "b"], true));
        assert_eq!(status_of(&ask("POST", "/reload", r#"{"pool"#)), 400);
        assert_eq!(status_of(&ask("POST", "/reload", r#"{"poools":[]}"#)), 400);
        assert_eq!(status_of(&ask("POST", "/reload?poool=a", "")), 400);
    }

    #[test]
    fn stop_takes_the_whole_and_start_needs_a_name() {
        assert_eq!(ask("POST", "/stop", ""), Outcome::Deferred(Command::Stop { pool: None }));
        assert_eq!(
            ask("POST", "/stop?pool=a", ""),
            Outcome::Deferred(Command::Stop { pool: Some("a".into()) })
        );
        assert_eq!(
            ask("POST", "/start", r#"{"pool":"a"}"#),
            Outcome::Deferred(Command::Start { pool: "a".into() })
        );
        assert_eq!(
            ask("POST", "/restart?pool=a", ""),
            Outcome::Deferred(Command::Restart { pool: "a".into() })
        );
        assert_eq!(status_of(&ask("POST", "/start", "")), 400);
        assert_eq!(status_of(&ask("POST", "/stop?pool=a&pool=b", "")), 400);
        assert_eq!(status_of(&ask("POST", "/stop?changed=1", "")), 400);
    }

    #[test]
    fn nothing_acts_on_a_get_and_nothing_else_is_there() {
        for path in ["/reload", "/stop", "/start", "/restart"] {
            assert_eq!(status_of(&ask("GET", path, "")), 405);
        }
        for path in ["/status", "/health"] {
            assert_eq!(status_of(&ask("POST", path, "")), 405);
        }
        for path in ["/nothing", "/reload/x", "/health/x", "/.."] {
            assert_eq!(status_of(&ask("GET", path, "")), 404);
        }
    }
}
