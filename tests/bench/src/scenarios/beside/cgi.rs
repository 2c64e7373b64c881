//! fcgiwrap and the `cgi` runtime with one process each: a body that is echoed, a client that leaves, a script that
//! leaves a background child.

use super::{Heard, PATIENCE, Seen, Story, ask, clear, ends, leave, noted};
use crate::{
    ground::Ground,
    hostler::Hostler,
    peers::{self, script},
    rounds::progress,
};
use hostler_bench::{
    address::Address,
    load::Error,
    request::{Protocol, Request},
    server::Server,
};
use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

const BODY: usize = 400 * 1024;
const HEAD: &str = "printf 'Content-Type: text/plain\\r\\n\\r\\n'";
/// How long a process may live on that nobody waits for any more.
const LEFT: Duration = Duration::from_secs(3);

/// A story told of one server.
type Tell = fn(&Ground, &Address, &str) -> Result<Seen, Error>;

pub(super) fn stories(ground: &Ground) -> Result<Vec<Story>, Error> {
    write(ground, "ok.sh", "echo hello")?;
    write(ground, "echo.sh", "exec cat")?;
    let note = |variable: &str| format!("echo {variable} > {}/$QUERY_STRING", ground.path("").display());
    write(ground, "stay.sh", &format!("echo on; {}; exec sleep 1000", note("$$")))?;
    write(ground, "back.sh", &format!("sleep 1000 & {}; echo done", note("$!")))?;
    let told: [(&str, Tell); 3] = [
        ("a POST of 400 KiB that the script echoes", echo),
        ("a client that leaves amid the answer", leaver),
        ("a script that leaves a background child", background),
    ];
    let mut stories = Vec::new();
    for (what, tell) in told {
        progress(what);
        let theirs = peers::fcgiwrap(ground)?;
        let today = of(theirs, ground, "today", tell)?;
        let serving = format!("runtime = \"cgi\"\nroot = \"{}\"\n", ground.path("").display());
        let ours = Hostler::start(ground, "ours", 1, &serving)?;
        let hostler = of(ours.server, ground, "ours", tell)?;
        stories.push(Story { what, today, hostler });
    }
    Ok(stories)
}

fn of(server: Server, ground: &Ground, whose: &str, tell: Tell) -> Result<Seen, Error> {
    let note = ground.path(whose);
    let seen = tell(ground, server.address(), whose);
    let left = note.exists().then(|| noted(ground, whose)).flatten();
    clear(server, left);
    let _ = fs::remove_file(note);
    seen
}

fn write(ground: &Ground, name: &str, text: &str) -> Result<(), Error> {
    let path = ground.write(name, &format!("#!/bin/sh\n{HEAD}\n{text}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|source| Error::system("making a script executable", source))
}

fn request(ground: &Ground, name: &str, whose: &str) -> Request {
    let mut request = Request::new(Protocol::Fastcgi, false);
    request.uri = format!("/{name}?{whose}");
    request.parameters = script(ground, name);
    request
}

fn next(ground: &Ground, address: &Address) -> Result<Heard, Error> {
    ask(address, &request(ground, "ok.sh", ""), PATIENCE)
}

fn echo(ground: &Ground, address: &Address, whose: &str) -> Result<Seen, Error> {
    let mut request = request(ground, "echo.sh", whose);
    (request.method, request.body) = ("POST".into(), BODY);
    let heard = ask(address, &request, PATIENCE)?;
    let right = heard.is_whole() && heard.bytes >= BODY as u64;
    Ok(Seen { words: format!("{heard}; {} KiB came", heard.bytes / 1024), right })
}

fn leaver(ground: &Ground, address: &Address, whose: &str) -> Result<Seen, Error> {
    let script = leave(ground, address, &request(ground, "stay.sh", whose), whose)?;
    let gone = ends(script, LEFT);
    let next = next(ground, address)?;
    let words = format!("the script {}; the next request: {next}", whether(gone));
    Ok(Seen { words, right: gone && next.is_whole() })
}

fn background(ground: &Ground, address: &Address, whose: &str) -> Result<Seen, Error> {
    let heard = ask(address, &request(ground, "back.sh", whose), PATIENCE)?;
    let child = noted(ground, whose).ok_or_else(|| Error::new("a script's child did not start"))?;
    let gone = ends(child, LEFT);
    Ok(Seen { words: format!("{heard}; the child {}", whether(gone)), right: heard.is_whole() && gone })
}

fn whether(gone: bool) -> &'static str {
    if gone { "is gone" } else { "lives on" }
}
