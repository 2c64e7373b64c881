//! One request and its answer, from the judged head to the last byte, whichever protocol brought it.
//!
//! Always holds: there is one answer and it is whole, or the connection is cut; a panic of the app is answered with
//! 500 and marks the worker as [`Desk::faulty`]; the clock is read once, at the end.

use crate::{
    Answer, Body, Error, Request,
    answer::{End, Wire},
    body::{Framing, Parts, Raw},
    control::{AccessLogFormat, Limits, Protocol},
    counters::{Counters, now},
    date::Date,
    hand::HAND,
    page,
    params::{Known, Params},
    paths,
    routes::Routes,
};
use hostler_proto::{
    Role,
    length::{Length, content_length},
    token::is_token,
};
use http::StatusCode;
use std::{
    fs::File,
    io::Write,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A request that is about to be served.
pub(crate) struct Ask<'a> {
    pub(crate) params: Params<'a>,
    pub(crate) protocol: Protocol,
    pub(crate) id: u16,
    pub(crate) role: Role,
    pub(crate) wire: Wire,
    /// The connection's bytes, of which `pieces` are body, and which from `rest` on are not judged yet.
    pub(crate) bytes: &'a [u8],
    pub(crate) pieces: &'a [Range<usize>],
    pub(crate) rest: usize,
    /// Filter: which of `bytes` are its file.
    pub(crate) data: &'a [Range<usize>],
    /// How the rest of the body is marked off; `Over` where it is gathered whole.
    pub(crate) framing: Framing,
    pub(crate) fd: BorrowedFd<'a>,
    /// Refused with this status, whatever the app would say.
    pub(crate) refused: Option<u16>,
    /// When the worker took it, and for how long it had waited then; in nanoseconds.
    pub(crate) began: u64,
    pub(crate) waited: u64,
}

/// What became of it.
pub(crate) struct Served {
    pub(crate) end: End,
    /// When it ended.
    pub(crate) ended: u64,
    /// After a body that was streamed: bytes of the connection to skip, then bytes for the next request. `None`
    /// where the rest of the body can only be drained by closing.
    pub(crate) behind: Option<(usize, Vec<u8>)>,
}

/// What a worker needs for its exchanges; its buffers are used again.
pub(crate) struct Desk {
    pub(crate) routes: Routes,
    pub(crate) limits: Limits,
    pub(crate) access_log: Option<(AccessLogFormat, File)>,
    /// A panic has left the process in doubt.
    pub(crate) faulty: bool,
    path: Vec<u8>,
    raw: Raw,
    out: Vec<u8>,
    date: Date,
    repeated_said: bool,
}

impl Desk {
    /// A desk for these apps.
    pub(crate) fn new(routes: Routes, limits: Limits, access_log: Option<(AccessLogFormat, File)>) -> Desk {
        Desk {
            routes,
            limits,
            access_log,
            faulty: false,
            path: Vec::new(),
            raw: Raw::default(),
            out: Vec::new(),
            date: Date::new(),
            repeated_said: false,
        }
    }

    /// Serves one request.
    pub(crate) fn serve(&mut self, counters: &Counters, mut ask: Ask<'_>) -> Served {
        let method = ask.params.known(Known::RequestMethod).unwrap_or(b"GET");
        let uri = ask
            .params
            .known(Known::RequestUri)
            .or_else(|| ask.params.known(Known::ScriptName))
            .unwrap_or(b"/");
        counters.begin(ask.began, ask.waited, method, uri);
        let Desk { routes, limits, out, path, raw, date, .. } = self;
        let head_only = method == b"HEAD";
        HAND.open(ask.fd.as_raw_fd(), ask.protocol, ask.id, head_only);
        let streamed = !matches!(ask.framing, Framing::Over);
        raw.begin(if streamed { ask.bytes.get(ask.rest..).unwrap_or_default() } else { &[] });
        let verdict = judge(&ask, limits, streamed, path);
        let mut answer =
            Answer::new(ask.fd, ask.wire, out, head_only, date.at(ask.began), limits.write_timeout);
        if streamed {
            answer.close_after();
        }
        let host = ask
            .params
            .known(Known::HttpHost)
            .or_else(|| ask.params.known(Known::ServerName))
            .unwrap_or_default();
        let framing = std::mem::replace(&mut ask.framing, Framing::Over);
        let body = Body::new(Parts {
            gathered: ask.bytes,
            pieces: ask.pieces,
            framing,
            raw,
            declared: verdict.as_ref().copied().unwrap_or(None),
            max: limits.max_body,
            read_timeout: limits.read_timeout,
            fd: ask.fd,
        });
        let Ask { params, protocol, role, id, fd, bytes, data, .. } = ask;
        let mut request =
            Request { params, path, mount: 0, protocol, role, id, body, fd, bytes, data, retried: false };
        let served = verdict.map(|_| ()).and_then(|()| match routes.find(host, path) {
            Some((mount, app)) => {
                request.mount = mount;
                let called = catch_unwind(AssertUnwindSafe(|| app.serve(&mut request, &mut answer)));
                called.unwrap_or_else(|_| {
                    self.faulty = true;
                    Err(Error::App("it panicked; this worker is replaced".into()))
                })
            }
            None => Err(Error::Client(404, "a host and path that no app answers for")),
        });
        let end = conclude(&request, &mut answer, served, streamed);
        if request.retried {
            counters.add(page::WORD_RETRIED, 1);
        }
        let status = answer.status();
        let sent = answer.written();
        let behind = streamed.then(|| request.body.behind().map(|(skip, rest)| (skip, rest.to_vec())));
        let (end, status) = if HAND.close(end == End::Cut) { (End::Cut, 504) } else { (end, status) };
        let ended = now();
        counters.end(ask.began, ended, status);
        if params.repeated() && !std::mem::replace(&mut self.repeated_said, true) {
            eprintln!(
                "hostler: a web server sends parameters twice; said once a worker [{}]",
                counters.request()
            );
        }
        if let Some((format, file)) = &mut self.access_log {
            log_access(*format, file, &params, status, sent, ended - ask.began);
        }
        Served { end, ended, behind: behind.unwrap_or(Some((0, Vec::new()))) }
    }
}

/// The length of the body, as told, once path and length are sound.
fn judge(ask: &Ask<'_>, limits: &Limits, streamed: bool, path: &mut Vec<u8>) -> Result<Option<u64>, Error> {
    if let Some(status) = ask.refused {
        return Err(Error::Client(status, "what is refused"));
    }
    match ask.params.known(Known::RequestMethod) {
        Some(method) if is_method(method) => {}
        Some(_) => return Err(Error::Client(400, "a method that is none")),
        None => return Err(Error::Client(400, "no REQUEST_METHOD (nginx: include fastcgi_params)")),
    }
    let script_name = ask.params.known(Known::ScriptName).unwrap_or_default();
    let path_info = ask.params.known(Known::PathInfo).unwrap_or_default();
    let known = if script_name.is_empty() && path_info.is_empty() {
        paths::of_target(ask.params.known(Known::RequestUri).unwrap_or(b"/"), path)
    } else {
        paths::of_variables(script_name, path_info, path)
    };
    known.map_err(|_| Error::Client(400, "a path that is none"))?;
    if ask.role == Role::Authorizer {
        // It is asked about a request whose body stays with the web server.
        return Ok(None);
    }
    let declared = declared(&ask.params, limits.max_body)?;
    let gathered: u64 = ask.pieces.iter().map(|piece| piece.len() as u64).sum();
    if gathered > limits.max_body {
        return Err(Error::Client(413, "a body over max_body"));
    }
    if !streamed && declared.is_some_and(|n| n != gathered) {
        return Err(Error::Client(400, "a body that is not of its CONTENT_LENGTH"));
    }
    Ok(declared)
}

/// The length of the body as the head tells it.
pub(crate) fn declared(params: &Params<'_>, max_body: u64) -> Result<Option<u64>, Error> {
    match content_length(params.known(Known::ContentLength)) {
        Length::Known(n) if n > max_body => Err(Error::Client(413, "a body over max_body")),
        Length::Known(n) => Ok(Some(n)),
        Length::Unknown => Ok(None),
        Length::Invalid => Err(Error::Client(400, "a CONTENT_LENGTH that is none")),
    }
}

/// RFC 9110, section 9.1: a token.
fn is_method(method: &[u8]) -> bool {
    !method.is_empty() && method.iter().all(|b| is_token(*b))
}

/// Ends the answer, or makes it an error answer.
fn conclude(
    request: &Request<'_>,
    answer: &mut Answer<'_>,
    served: Result<(), Error>,
    streamed: bool,
) -> End {
    let error = match served.and_then(|()| answer.finish()) {
        Ok(end) => return end,
        Err(error) => error,
    };
    let Some(status) = error.status() else { return End::Cut };
    if !matches!(error, Error::Client(404, _)) {
        request.log(format!("hostler: {error}").as_bytes());
    }
    if !answer.take_back() {
        return End::Cut;
    }
    // Behind a FastCGI request that was not streamed the next record begins at a known place, whatever is wrong
    // with the request: a web server's kept connection is not closed for what its client sent.
    let framed = request.protocol() == Protocol::Fastcgi && !streamed;
    let close = !framed && matches!(status, 400 | 408 | 413);
    if close {
        answer.close_after();
    }
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = format!("{} {}\n", code.as_str(), code.canonical_reason().unwrap_or(""));
    let retry: (&str, &[u8]) = ("Retry-After", b"1");
    let fields: [(&str, &[u8]); 2] = [("Content-Type", b"text/plain"), retry];
    let fields = if status == 503 { &fields[..] } else { fields.get(..1).unwrap_or_default() };
    let sent =
        answer.head(code, fields).and_then(|()| answer.write(text.as_bytes())).and_then(|()| answer.finish());
    match sent {
        Ok(End::Whole) if close => End::Close,
        Ok(end) => end,
        Err(_) => End::Cut,
    }
}

/// One line a request, in one write, so that lines of several workers do not mix.
fn log_access(
    format: AccessLogFormat,
    file: &mut File,
    params: &Params<'_>,
    status: u16,
    sent: u64,
    ns: u64,
) {
    let text = |name: &str| String::from_utf8_lossy(params.get(name).unwrap_or(b"-")).into_owned();
    let time = httpdate::fmt_http_date(std::time::SystemTime::now());
    let ms = ns / 1_000_000;
    let line = match format {
        AccessLogFormat::Json => {
            let line = serde_json::json!({
                "time": time, "remote_addr": text("REMOTE_ADDR"), "method": text("REQUEST_METHOD"),
                "uri": text("REQUEST_URI"), "protocol": text("SERVER_PROTOCOL"), "status": status, "bytes": sent,
                "us": ns / 1000, "host": text("HTTP_HOST"), "referer": text("HTTP_REFERER"),
                "user_agent": text("HTTP_USER_AGENT"),
            });
            format!("{line}\n")
        }
        AccessLogFormat::Text => format!(
            "{} - {} [{time}] \"{} {} {}\" {status} {sent} \"{}\" \"{}\" {ms}\n",
            plain(&text("REMOTE_ADDR")),
            plain(&text("REMOTE_USER")),
            plain(&text("REQUEST_METHOD")),
            plain(&text("REQUEST_URI")),
            plain(&text("SERVER_PROTOCOL")),
            plain(&text("HTTP_REFERER")),
            plain(&text("HTTP_USER_AGENT")),
        ),
    };
    let _ = file.write_all(line.as_bytes());
}

/// Without what would end a field or a line.
fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() || c == '"' || c == '\\' { c.escape_default().collect() } else { vec![c] }
        })
        .collect()
}
