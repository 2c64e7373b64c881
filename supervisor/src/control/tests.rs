//! The server with real sockets, and the client against it.

use super::*;
use crate::status::{Status, tests::sample};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{fs, path::PathBuf, thread};

struct Still;

impl View for Still {
    fn status(&self) -> Status {
        sample()
    }
}

fn server() -> (tempfile::TempDir, PathBuf, Server) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/control.sock");
    let server = Server::open(&path).unwrap();
    (directory, path, server)
}

/// Turns the server until `done`; fails after a generous time.
fn turn_until(server: &mut Server, mut done: impl FnMut(&mut Server, Vec<(Token, Command)>) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let commands = server.turn(Instant::now(), &Still);
        if done(server, commands) {
            return;
        }
        assert!(Instant::now() < end, "the server did not come to the end");
        let mut fds = [PollFd::new(server.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(1000u16)).unwrap();
    }
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, path, server) = server();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    server.remove_file();
    assert!(!path.exists());
}

#[test]
fn a_control_socket_that_somebody_removed_is_there_again_after_a_reload() {
    let (_directory, path, mut server) = server();
    fs::remove_file(&path).unwrap();
    server.refresh().unwrap();
    let client = {
        let path = path.clone();
        thread::spawn(move || client::get::<Status>(&path, "/status"))
    };
    turn_until(&mut server, |_, _| client.is_finished());
    assert!(client.join().unwrap().is_ok());
    server.remove_file();
    assert!(!path.exists());
}

#[test]
fn a_second_supervisor_is_refused() {
    let (_directory, path, _server) = server();
    assert!(matches!(Server::open(&path), Err(listeners::Error::InUse(_))));
}

#[test]
fn the_client_gets_what_the_view_shows() {
    let (_directory, path, mut server) = server();
    let client = thread::spawn(move || client::get::<Status>(&path, "/status"));
    turn_until(&mut server, |_, _| client.is_finished());
    assert_eq!(client.join().unwrap().unwrap(), sample());
}

#[test]
fn a_command_is_answered_when_it_has_ended_and_others_meanwhile() {
    let (_directory, path, mut server) = server();
    let reload = {
        let path = path.clone();
        thread::spawn(move || client::post(&path, "/reload", &serde_json::json!({ "pools": ["shop"] })))
    };
    let mut token = None;
    turn_until(&mut server, |_, commands| {
        token = commands.first().cloned();
        token.is_some()
    });
    let (token, command) = token.unwrap();
    assert_eq!(command, Command::Reload { pools: vec!["shop".into()], changed: false });
    assert_eq!(server.deadline(), None);
    let status = thread::spawn(move || client::get::<Status>(&path, "/status"));
    turn_until(&mut server, |_, _| status.is_finished());
    assert!(status.join().unwrap().is_ok());
    assert!(!reload.is_finished());
    let line = Line { name: "shop".into(), ok: false, message: "keeps generation 3".into() };
    let answer = Answer { error: None, pools: vec![line] };
    server.answer(token, &answer, Instant::now());
    turn_until(&mut server, |_, _| reload.is_finished());
    assert_eq!(reload.join().unwrap().unwrap(), answer);
}

#[test]
fn a_client_that_left_is_forgotten_and_its_answer_with_it() {
    let (_directory, path, mut server) = server();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"POST /reload HTTP/1.1\r\n\r\n").unwrap();
    let mut token = None;
    turn_until(&mut server, |_, commands| {
        token = commands.first().map(|(token, _)| *token);
        token.is_some()
    });
    drop(client);
    turn_until(&mut server, |server, _| server.connections.is_empty());
    server.answer(token.unwrap(), &Answer::refused("late"), Instant::now());
}

#[test]
fn a_silent_client_is_closed_at_its_deadline_and_not_before() {
    let (_directory, path, mut server) = server();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"GET /sta").unwrap();
    let start = Instant::now();
    server.turn(start, &Still);
    assert_eq!(server.deadline(), Some(start + PATIENCE));
    server.turn(start + PATIENCE - Duration::from_millis(1), &Still);
    assert_eq!(server.connections.len(), 1);
    server.turn(start + PATIENCE, &Still);
    assert_eq!(server.connections.len(), 0);
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn more_connections_than_the_bound_are_refused() {
    let (_directory, path, mut server) = server();
    let waiting: Vec<UnixStream> = (0..CONNECTIONS).map(|_| UnixStream::connect(&path).unwrap()).collect();
    server.turn(Instant::now(), &Still);
    let mut over = UnixStream::connect(&path).unwrap();
    server.turn(Instant::now(), &Still);
    let mut text = String::new();
    over.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert_eq!(server.connections.len(), waiting.len());
    drop(waiting);
    server.turn(Instant::now(), &Still);
    assert_eq!(server.connections.len(), 0);
}

#[test]
fn root_and_the_owner_may_ask_and_nobody_else() {
    for (peer, expected) in [(Some(0), true), (Some(1000), true), (Some(1001), false), (None, false)] {
        assert_eq!(may_ask(peer, 1000), expected, "{peer:?}");
    }
}

#[test]
fn who_may_not_ask_gets_403_whatever_the_request() {
    for request in ["GET /status HTTP/1.1\r\n\r\n", "POST /stop HTTP/1.1\r\n\r\n"] {
        let (_directory, path, mut server) = server();
        let mut client = UnixStream::connect(&path).unwrap();
        server.turn(Instant::now(), &Still);
        // As if the kernel had named another user: this process cannot become one and come back.
        server.connections.values_mut().for_each(|connection| connection.allowed = false);
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(server.turn(Instant::now(), &Still), []);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
    }
}

#[test]
fn a_large_answer_gets_through_to_a_slow_client() {
    struct Large;
    impl View for Large {
        fn status(&self) -> Status {
            let mut status = sample();
            status.pools[0].last_error = Some("x".repeat(2 << 20));
            status
        }
    }
    let (_directory, path, mut server) = server();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"GET /status HTTP/1.1\r\n\r\n").unwrap();
    client.set_nonblocking(true).unwrap();
    let (mut all, mut buffer) = (0, [0; 65_536]);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        server.turn(Instant::now(), &Large);
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => all += n,
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < end);
    }
    assert!(all > 2 << 20);
}
