//! HTTP/1.1 and 1.0 at a worker: kept and closed connections, bodies of every kind, what a client may expect.

use hostler_tests::{
    http::{Answer, Connection},
    net::Listener,
    place::{Place, bytes, example},
    reader::Fault,
    worker::{self, Queue, Worker, probe, serve, served},
};
use hostler_worker::{
    control::{Limits, Protocol::Http, Serve},
    page,
};
use std::{io::Write, thread};

fn started() -> Worker {
    probe(Http, Limits::default())
}

/// Sends a request in one thread and reads its answer in another.
fn exchange(connection: &mut Connection, bytes: Vec<u8>, method: &str) -> Result<Answer, Fault> {
    let mut out = connection.stream().again();
    let sender = thread::spawn(move || {
        let _ = out.write_all(&bytes);
    });
    let answer = connection.answer(method);
    sender.join().unwrap();
    answer
}

fn in_chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut coded = Vec::new();
    for chunk in body.chunks(size) {
        coded.extend(format!("{:x}\r\n", chunk.len()).bytes());
        coded.extend(chunk);
        coded.extend(b"\r\n");
    }
    coded.extend(b"0\r\n\r\n");
    coded
}

#[test]
fn a_connection_is_kept_unless_the_client_says_otherwise() {
    let worker = started();
    let mut connection = worker.http();
    for _ in 0..100 {
        assert_eq!(connection.get("/echo").status, 200);
    }
    worker.counted(page::WORD_CONNECTIONS, 1);
    connection.ask("GET", "/echo", &["Connection: close"]);
    let answer = connection.answer("GET").unwrap();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    assert_eq!(connection.answer("GET"), Err(Fault::End));
}

#[test]
fn http_1_0_is_closed_unless_the_client_wants_it_kept() {
    let worker = started();
    let mut connection = worker.http();
    connection.send("GET /echo HTTP/1.0\r\n\r\n");
    assert_eq!(connection.answer("GET").unwrap().status, 200);
    assert_eq!(connection.answer("GET"), Err(Fault::End));
    let mut connection = worker.http();
    for _ in 0..3 {
        connection.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = connection.answer("GET").unwrap();
        assert_eq!((answer.status, answer.field("connection")), (200, Some("keep-alive")));
    }
}

#[test]
fn http_1_0_is_never_answered_in_chunks() {
    let worker = started();
    let mut connection = worker.http();
    connection.send("GET /stream?bytes=1000000 HTTP/1.0\r\n\r\n");
    let answer = connection.answer("GET").unwrap();
    assert_eq!((answer.field("transfer-encoding"), answer.body_len), (None, 1_000_000));
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let worker = started();
    let mut connection = worker.http();
    let ahead: String = (0..50)
        .map(|n| format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n{n:03}"))
        .collect();
    connection.send(ahead);
    for n in 0..50 {
        assert_eq!(connection.answer("POST").unwrap().text(), format!("{n:03}"));
    }
}

#[test]
fn bodies_in_chunks_arrive_whole() {
    let worker = started();
    let mut connection = worker.http();
    for (len, size) in [(0, 1), (1, 1), (100, 1), (65_536, 4096), (65_537, 65_537), (1_000_000, 1000)] {
        let body = bytes(len, 4);
        let head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = [&head[..], &in_chunks(&body, size)].concat();
        let answer = exchange(&mut connection, request, "POST").unwrap();
        assert!(answer.body == body, "{len} bytes in chunks of {size} came back as {}", answer.body_len);
    }
}

#[test]
fn chunk_extensions_and_trailers_are_passed_over() {
    let worker = started();
    let mut connection = worker.http();
    for _ in 0..2 {
        connection.ask("POST", "/echo", &["Transfer-Encoding: chunked"]);
        connection.send("4;a=b;c=\"d e\"\r\nbody\r\n0;last\r\nX-Sum: 1\r\nY: z\r\n\r\n");
        assert_eq!(connection.answer("POST").unwrap().text(), "body");
    }
}

#[test]
fn a_chunked_body_that_breaks_off_in_the_middle_of_a_stream_is_cut_and_no_request_is_read_out_of_it() {
    let worker = started();
    let mut connection = worker.http();
    let body = bytes(200_000, 4);
    let mut coded = in_chunks(&body, 10_000);
    coded.truncate(coded.len() - 5);
    coded.extend(b"xyz\r\nGET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    match exchange(&mut connection, [&head[..], &coded].concat(), "POST") {
        Ok(answer) => {
            assert_eq!(answer.status, 400);
            assert!(matches!(connection.answer("GET"), Err(Fault::End | Fault::Reset)));
        }
        Err(fault) => assert!(matches!(fault, Fault::Cut | Fault::Reset | Fault::End), "{fault}"),
    }
}

#[test]
fn a_client_that_expects_to_be_told_to_go_on_is_told() {
    let worker = started();
    let mut connection = worker.http();
    for len in [4, 200_000] {
        let body = bytes(len, 9);
        connection.ask("POST", "/echo", &["Expect: 100-continue", &format!("Content-Length: {len}")]);
        assert_eq!(connection.answer("POST").unwrap().status, 100);
        let answer = exchange(&mut connection, body.clone(), "POST").unwrap();
        assert!(answer.status == 200 && answer.body == body);
    }
}

#[test]
fn a_client_that_expects_to_be_told_is_refused_before_it_sends_too_much() {
    let worker = started();
    let mut connection = worker.http();
    connection.ask("POST", "/echo", &["Expect: 100-continue", "Content-Length: 999999999999"]);
    assert_eq!(connection.answer("POST").unwrap().status, 413);
}

#[test]
fn head_has_no_body_and_the_next_request_is_not_mistaken() {
    let worker = started();
    let mut connection = worker.http();
    for uri in ["/echo", "/env", "/stream?bytes=100000", "/nowhere"] {
        connection.ask("HEAD", uri, &[]);
        let head = connection.answer("HEAD").unwrap();
        assert_eq!(head.body_len, 0);
        assert_eq!(connection.get("/echo").status, 200, "after HEAD {uri}");
    }
}

#[test]
fn answers_without_a_known_length_come_in_chunks() {
    let worker = started();
    let mut connection = worker.http();
    for _ in 0..2 {
        let answer = connection.get("/stream?bytes=500000");
        assert_eq!((answer.status, answer.body_len), (200, 500_000));
    }
}

#[test]
fn every_answer_has_a_date_and_one_length() {
    let worker = started();
    let mut connection = worker.http();
    for uri in ["/echo", "/env", "/nowhere", "/stream?bytes=10"] {
        let answer = connection.get(uri);
        assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")), "{uri}: {answer:?}");
        assert!(
            answer.field("content-length").is_some() != answer.field("transfer-encoding").is_some(),
            "{uri}"
        );
    }
}

#[test]
fn an_absolute_target_counts_more_than_the_host_field() {
    let worker = started();
    let mut connection = worker.http();
    connection.send("GET http://example.org/env?q HTTP/1.1\r\nHost: other\r\n\r\n");
    let answer = connection.answer("GET").unwrap();
    let text = answer.text();
    assert!(answer.status == 200 && text.contains("HTTP_HOST=example.org"), "{text}");
}

#[test]
fn the_proxy_field_never_reaches_the_app() {
    let worker = started();
    let mut connection = worker.http();
    connection.ask(
        "GET",
        "/env",
        &["Proxy: http://evil.example/", "proxy: http://evil.example/", "X-Proxy: stays"],
    );
    let text = connection.answer("GET").unwrap().text();
    assert!(!text.contains("evil.example"), "{text}");
    assert!(text.contains("HTTP_X_PROXY=stays"), "{text}");
}

#[test]
fn fields_with_an_underscore_are_not_taken_for_those_with_a_dash() {
    let worker = started();
    let mut connection = worker.http();
    connection.ask("GET", "/env", &["X-Real: good", "X_Real: evil"]);
    let text = connection.answer("GET").unwrap().text();
    let value = text.lines().find_map(|line| line.strip_prefix("HTTP_X_REAL="));
    assert_eq!(value, Some("good"), "{text}");
}

#[test]
fn a_body_that_the_app_leaves_unread_does_not_reset_the_connection() {
    let place = Place::new();
    let listener = Listener::tcp();
    let serve = Serve { limits: Limits::default(), ..serve(&[(&listener, Http)]) };
    let worker = served(&example("probe"), &[&listener], serve, &Queue::new(), place);
    for len in [67_000, 1_000_000] {
        let head = format!("POST /pid HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
        let mut connection = worker.http();
        // All of it is sent before the answer is read: a reset would take the answer with it.
        connection.send([head.as_bytes(), &bytes(len, 1)].concat());
        let answer = connection.answer("POST").unwrap();
        assert_eq!((answer.status, answer.text().trim()), (200, worker.pid().to_string().as_str()));
    }
}

#[test]
fn a_body_over_max_body_is_refused_without_a_reset() {
    let place = Place::new();
    let listener = Listener::tcp();
    let limits = Limits { max_body: 100_000, ..Limits::default() };
    let serve = Serve { limits, ..serve(&[(&listener, Http)]) };
    let worker = served(&example("probe"), &[&listener], serve, &Queue::new(), place);
    for fields in ["Content-Length: 400000", "Transfer-Encoding: chunked"] {
        let head = format!("POST /echo HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n");
        let body = bytes(400_000, 1);
        let body = if fields.contains("chunked") { in_chunks(&body, 50_000) } else { body };
        let mut connection = worker.http();
        connection.send([head.as_bytes(), &body].concat());
        assert_eq!(connection.answer("POST").unwrap().status, 413, "{fields}");
        assert!(matches!(connection.answer("GET"), Err(Fault::End)), "{fields}: closed in order");
    }
}

#[test]
fn a_client_that_is_answered_before_its_body_may_send_all_of_it() {
    let worker = started();
    let mut connection = worker.http();
    let mut out = connection.stream().again();
    let head = b"POST /pid HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n";
    let sender = thread::spawn(move || out.write_all(&[&head[..], &bytes(8_000_000, 1)].concat()));
    assert_eq!(connection.answer("POST").unwrap().status, 200);
    sender.join().unwrap().expect("the worker takes the body");
    assert!(matches!(connection.answer("GET"), Err(Fault::End)), "closed in order");
}

#[test]
fn an_endless_answer_stops_when_the_client_leaves() {
    let worker = started();
    let mut connection = worker.http();
    connection.ask("GET", "/stream?bytes=100000000000000", &[]);
    assert!(
        connection.stream().ending(std::time::Duration::from_millis(1)) != hostler_tests::net::Ending::Closed
    );
    drop(connection);
    assert_eq!(worker.http().get("/pid").text().trim(), worker.pid().to_string());
    worker.counted(page::WORD_CONNECTIONS, 0);
}

#[test]
fn a_worker_of_hostlers_own_without_apps_answers_404() {
    let worker = worker::own(Http, Vec::new(), Limits::default());
    let answer = worker.http().get("/");
    assert!(answer.status == 404 && answer.body_len > 0);
}
