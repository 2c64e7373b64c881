//! The `fastcgi` runtime with a program that breaks its part of the protocol: it costs the request in hand, at most, and
//! the next one is served.

use hostler_tests::{
    fcgi,
    place::{self, Place},
    relay::{program, relay},
};
use hostler_worker::control::{Fastcgi, Protocol};
use std::io::Write;

/// Speaks FastCGI by hand; what it does wrong is in the request's query.
const PROGRAM: &str = r#"
import os, socket, struct, sys, time
listener = socket.socket(fileno=0)
def record(kind, content=b'', id=None):
    return struct.pack('>BBHHBx', 1, kind, id or rid, len(content), 0) + content
def end(): return record(3, bytes(8))
def whole(conn, count):
    data = b''
    while len(data) < count:
        part = conn.recv(count - len(data))
        if not part: raise EOFError
        data += part
    return data
def pairs(data):
    found = {}
    while data:
        lengths = []
        for _ in range(2):
            if data[0] < 128: lengths.append(data[0]); data = data[1:]
            else: lengths.append(struct.unpack('>I', data[:4])[0] & 0x7fffffff); data = data[4:]
        name, value = data[:lengths[0]], data[lengths[0]:sum(lengths)]
        found[name] = value; data = data[sum(lengths):]
    return found
OK = b'Content-Type: text/plain\r\n\r\nfine'
def answer(conn, query):
    if query == 'after': conn.sendall(record(6, OK) + end() + record(6, b'more') + b'\x09junk')
    elif query == 'other': conn.sendall(record(6, b'not ours', 77) + record(6, OK) + record(3, bytes(8), 77) + end())
    elif query == 'stderr':
        for _ in range(40): conn.sendall(record(7, b'x' * 30000 + b'\n'))
        conn.sendall(record(6, OK) + end())
    elif query == 'part': conn.sendall(record(6, OK)[:20]); os._exit(3)
    elif query == 'held':
        if os.fork() == 0: time.sleep(60)
        os._exit(3)
    elif query == 'junk': conn.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
    elif query == 'deaf': listener.close(); conn.sendall(record(6, OK) + end()); conn.close(); time.sleep(600)
    else: conn.sendall(record(6, OK) + end())
while True:
    conn = listener.accept()[0]
    try:
        params, query = b'', None
        while True:
            _, kind, rid, length, padding = struct.unpack('>BBHHBx', whole(conn, 8))
            content = whole(conn, length + padding)[:length]
            if kind == 9: conn.sendall(struct.pack('>BBHHBx', 1, 10, 0, 0, 0))
            if kind == 1: params = b''
            if kind == 4 and content: params += content
            if kind == 4 and not content:
                query = pairs(params)[b'QUERY_STRING'].decode()
                if query == 'early': conn.sendall(record(6, OK) + end())
            if kind == 5 and not content and query != 'early': answer(conn, query)
    except (EOFError, OSError):
        conn.close()
"#;

fn unruly(place: &Place) -> Fastcgi {
    let path = place.file("unruly.py", PROGRAM);
    program(&["/usr/bin/python3", path.to_str().unwrap()])
}

/// What a request for `query` is answered, and that the next one is served.
fn ask(query: &str, body: usize) -> Result<(u16, String), String> {
    let place = Place::new();
    let worker = relay(Protocol::Fastcgi, unruly(&place));
    let fine = |path: &str| {
        let mut client = worker.connect();
        client.stream().write_all(&fcgi::Request::get(path).to_bytes()).unwrap();
        client.answer(1, "GET").map(|answer| (answer.status, answer.text())).map_err(|e| format!("{e:?}"))
    };
    assert_eq!(fine("/?"), Ok((200, "fine".into())));
    let outcome = if body > 0 {
        let mut client = worker.connect();
        let bytes = fcgi::Request::post(&format!("/?{query}"), &place::bytes(body, 3)).to_bytes();
        let mut writer = client.stream().again();
        std::thread::scope(|scope| {
            // The answer may come before the body is read, and the connection may close.
            scope.spawn(move || drop(writer.write_all(&bytes)));
            client
                .answer(1, "POST")
                .map(|answer| (answer.status, answer.text()))
                .map_err(|e| format!("{e:?}"))
        })
    } else {
        fine(&format!("/?{query}"))
    };
    for _ in 0..3 {
        assert_eq!(fine("/?"), Ok((200, "fine".into())), "after {query}");
    }
    outcome
}

#[test]
fn what_a_program_says_besides_its_answer_does_no_harm() {
    for query in ["after", "other", "stderr"] {
        assert_eq!(ask(query, 0), Ok((200, "fine".into())), "{query}");
    }
}

#[test]
fn a_program_that_ends_a_request_before_its_body_was_read_has_answered() {
    assert_eq!(ask("early", 400 * 1024), Ok((200, "fine".into())));
}

#[test]
fn a_program_that_dies_in_a_record_or_leaves_a_child_with_the_connection_is_a_whole_502() {
    for query in ["part", "held", "junk"] {
        assert_eq!(ask(query, 0).unwrap().0, 502, "{query}");
    }
}

#[test]
fn a_program_that_closes_its_listener_is_started_anew() {
    assert_eq!(ask("deaf", 0), Ok((200, "fine".into())));
}
