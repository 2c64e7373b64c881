//! What nginx, Apache, lighttpd, HAProxy and Caddy send is understood, and what they choke on is never sent:
//! the strict reader of the harness refuses it in every answer that is read here.

use hostler_tests::{
    fcgi::{Request, STDOUT},
    fronts::{self, Ask},
    place::bytes,
    reader::{Answer, Fault},
    worker::{self, Worker, probe},
};
use hostler_worker::control::{App, Limits, Protocol::Fastcgi, Runtime};
use std::io::Write;

/// Every form in which some web server sends `ask`.
fn forms(ask: &Ask<'_>) -> Vec<(&'static str, Request)> {
    vec![
        ("nginx", fronts::nginx(ask, false)),
        ("nginx, kept", fronts::nginx(ask, true)),
        ("Apache", fronts::apache(ask, false)),
        ("Apache, kept", fronts::apache(ask, true)),
        ("lighttpd", fronts::lighttpd(ask)),
        ("HAProxy", fronts::haproxy(ask, 1)),
        ("HAProxy, late in its connection", fronts::haproxy(ask, 0x7fff)),
        ("Caddy", fronts::caddy(ask, false)),
        ("Caddy, chunked", fronts::caddy(ask, true)),
    ]
}

/// Sends one request on a connection of its own and checks that this is kept or closed as asked for.
fn exchange(worker: &Worker, front: &str, request: &Request, method: &str) -> Answer {
    let mut connection = worker.connect();
    let mut out = connection.stream().again();
    let bytes = request.to_bytes();
    let sender = std::thread::spawn(move || out.write_all(&bytes));
    let answer = connection.answer(request.id, method).unwrap_or_else(|fault| panic!("{front}: {fault}"));
    sender.join().unwrap().unwrap_or_else(|e| panic!("{front}: send: {e}"));
    if request.keep {
        connection.stream().write_all(&request.to_bytes()).unwrap();
        assert_eq!(
            connection.answer(request.id, method).unwrap().status,
            answer.status,
            "{front}: once more"
        );
    } else {
        assert_eq!(connection.record(), Err(Fault::End), "{front}: closed after the answer");
    }
    answer
}

const GET: Ask<'_> =
    Ask { method: "GET", path: "/env", query: "a=b", fields: &[("HTTP_X_Y", "z")], body: b"" };

#[test]
fn each_web_servers_get_is_understood() {
    let worker = probe(Fastcgi, Limits::default());
    for (front, request) in forms(&GET) {
        let answer = exchange(&worker, front, &request, "GET");
        let text = answer.text();
        assert_eq!(answer.status, 200, "{front}");
        for line in ["REQUEST_METHOD=GET", "QUERY_STRING=a=b", "HTTP_X_Y=z"] {
            assert!(text.lines().any(|l| l == line), "{front}: no {line} in {text}");
        }
    }
}

#[test]
fn each_web_servers_head_is_answered_without_a_body() {
    let worker = probe(Fastcgi, Limits::default());
    for (front, request) in forms(&Ask { method: "HEAD", ..GET }) {
        assert_eq!(exchange(&worker, front, &request, "HEAD").body_len, 0, "{front}");
    }
}

#[test]
fn each_web_servers_post_arrives_whole() {
    let worker = probe(Fastcgi, Limits::default());
    for len in [0, 1, 8192, 65_535, 65_536, 65_537, 300_000] {
        let body = bytes(len, 7);
        for (front, request) in
            forms(&Ask { method: "POST", path: "/echo", query: "", fields: &[], body: &body })
        {
            let answer = exchange(&worker, front, &request, "POST");
            assert!(answer.body == body, "{front}: {len} bytes came back as {}", answer.body_len);
        }
    }
}

#[test]
fn apaches_authorizer_without_stdin_is_answered() {
    let worker = probe(Fastcgi, Limits::default());
    let request = fronts::apache_authorizer(&GET);
    assert_eq!(exchange(&worker, "Apache", &request, "GET").status, 200);
}

#[test]
fn every_failure_has_a_head_a_body_and_an_end() {
    let worker = worker::own(Fastcgi, Vec::new(), Limits { max_body: 1000, ..Limits::default() });
    let body = bytes(5000, 1);
    for (what, status, ask) in [
        ("no app", 404, GET),
        ("no app, a body", 404, Ask { method: "POST", body: &body[..10], ..GET }),
        ("too large", 413, Ask { method: "POST", body: &body, ..GET }),
        ("no method", 400, Ask { method: "", ..GET }),
    ] {
        for (front, request) in forms(&ask) {
            let answer = exchange(&worker, front, &request, ask.method);
            assert_eq!(answer.status, status, "{front}: {what}");
            assert!(answer.body_len > 0 && answer.field("content-type").is_some(), "{front}: {what}");
        }
    }
}

#[test]
fn a_pool_that_is_stopped_says_so_with_a_time_to_come_back() {
    let app = App {
        host: None,
        path: "/".into(),
        runtime: Runtime::Unavailable { message: "stopped for a test".into(), retry_after: 7 },
    };
    let worker = worker::own(Fastcgi, vec![app], Limits::default());
    for (front, request) in forms(&GET) {
        let answer = exchange(&worker, front, &request, "GET");
        assert_eq!((answer.status, answer.field("retry-after")), (503, Some("7")), "{front}");
    }
}

#[test]
fn a_panic_is_a_whole_answer() {
    let worker = probe(Fastcgi, Limits::default());
    let mut connection = worker.connect();
    connection.stream().write_all(&Request::get("/panic").to_bytes()).unwrap();
    let answer = connection.answer(1, "GET").unwrap();
    assert!(answer.status == 500 && answer.body_len > 0);
}

#[test]
fn heads_stay_below_the_4_kib_that_nginx_takes() {
    let worker = probe(Fastcgi, Limits::default());
    for uri in ["/echo", "/env", "/pid", "/stream?bytes=70000", "/nowhere"] {
        let mut connection = worker.connect();
        connection.stream().write_all(&Request::get(uri).to_bytes()).unwrap();
        let answer = connection.answer(1, "GET").unwrap();
        assert!(answer.head_len < 4096, "{uri}: {}", answer.head_len);
    }
}

#[test]
fn large_answers_come_in_few_large_records() {
    let worker = probe(Fastcgi, Limits::default());
    let body = bytes(2_000_000, 5);
    let mut connection = worker.connect();
    let mut out = connection.stream().again();
    let request = Request::post("/echo", &body).to_bytes();
    let sender = std::thread::spawn(move || out.write_all(&request).unwrap());
    let answer = connection.answer(1, "POST").unwrap();
    sender.join().unwrap();
    assert!(answer.body == body);
    let records = answer.records.iter().filter(|(kind, _)| *kind == STDOUT).count();
    assert!(records < 2_000_000 / 8192, "{records} records for 2 MB");
}
