//! FastCGI 1.0 at a worker: what web servers have got wrong, or applications for them, does not happen here.
//!
//! The client is the scripted one of the harness; each test has a worker of its own.

use hostler_tests::{
    fcgi::{
        ABORT, AUTHORIZER, CANT_MPX_CONN, DATA, END, FILTER, GET_VALUES, PARAMS, Padding, RESPONDER, Request,
        STDIN, UNKNOWN_ROLE, UNKNOWN_TYPE, begin, pair, record,
    },
    net::Stream,
    place::bytes,
    reader::{Answer, Fault, Reader},
    worker::{self, Worker, probe},
};
use hostler_worker::{
    control::{Limits, Protocol::Fastcgi},
    page,
};
use std::io::{Read, Write};

fn started() -> Worker {
    probe(Fastcgi, Limits::default())
}

fn send(connection: &mut Reader<Stream>, bytes: impl AsRef<[u8]>) {
    connection.stream().write_all(bytes.as_ref()).unwrap();
}

fn ask(connection: &mut Reader<Stream>, request: &Request) -> Answer {
    send(connection, request.to_bytes());
    let method = request.params.iter().find(|(name, _)| name == b"REQUEST_METHOD");
    let method = method.map_or("GET".into(), |(_, value)| String::from_utf8_lossy(value).into_owned());
    connection.answer(request.id, &method).unwrap()
}

/// The value of a parameter as the app saw it (`/env` prints a line for each).
fn seen<'a>(env: &'a str, name: &str) -> Option<&'a str> {
    env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn any_request_id_is_echoed() {
    let worker = started();
    let mut connection = worker.connect();
    for id in [1, 2, 3, 255, 256, 300, 32_767, 32_768, 65_535] {
        let answer = ask(&mut connection, &Request::post("/echo", b"here").id(id));
        assert_eq!((answer.status, answer.text().as_str()), (200, "here"), "id {id}");
    }
}

#[test]
fn ids_that_rise_on_one_connection_are_served() {
    let worker = started();
    let mut connection = worker.connect();
    for id in (1..2000).step_by(2) {
        assert_eq!(ask(&mut connection, &Request::get("/echo").id(id)).status, 200, "id {id}");
    }
    worker.counted(page::WORD_CONNECTIONS, 1);
}

#[test]
fn a_connection_lives_on_after_get_values() {
    let worker = started();
    let mut connection = worker.connect();
    let names = ["FCGI_MAX_CONNS", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS", "FCGI_DANCE"];
    let content: Vec<u8> = names.iter().flat_map(|name| pair(name.as_bytes(), b"", false)).collect();
    for _ in 0..3 {
        send(&mut connection, record(GET_VALUES, 0, &content, 5));
        let values = connection.values().unwrap();
        let named: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, &names[..3], "a name that is not known is left out");
        assert_eq!(values[2].1, "0", "FCGI_MPXS_CONNS");
        assert!(values[0].1.parse::<u32>().unwrap() >= 1);
        assert_eq!(ask(&mut connection, &Request::get("/echo")).status, 200);
    }
}

#[test]
fn get_values_inside_a_request_is_answered_or_passed_over_but_harms_nothing() {
    let worker = started();
    let mut connection = worker.connect();
    let request = Request::post("/echo", b"body");
    let question = record(GET_VALUES, 0, &pair(b"FCGI_MPXS_CONNS", b"", false), 0);
    send(&mut connection, request.head());
    send(&mut connection, &question);
    send(&mut connection, request.stdin(b"body"));
    send(&mut connection, record(STDIN, 1, b"", 0));
    assert_eq!(connection.values(), Ok(vec![("FCGI_MPXS_CONNS".into(), "0".into())]));
    assert_eq!(connection.answer(1, "POST").unwrap().text(), "body");
}

#[test]
fn an_unknown_management_record_is_named_in_the_answer() {
    let worker = started();
    let mut connection = worker.connect();
    send(&mut connection, record(77, 0, b"what?", 3));
    let answer = connection.record().unwrap();
    assert_eq!(
        (answer.kind, answer.id, answer.content.as_slice()),
        (UNKNOWN_TYPE, 0, &[77, 0, 0, 0, 0, 0, 0, 0][..])
    );
    assert_eq!(ask(&mut connection, &Request::get("/echo")).status, 200);
}

#[test]
fn end_request_is_sent_once_and_then_the_connection_closes_where_it_is_not_kept() {
    let worker = started();
    for uri in ["/echo", "/env", "/pid", "/stream?bytes=0", "/stream?bytes=1", "/stream?bytes=300000"] {
        let mut connection = worker.connect();
        let answer = ask(&mut connection, &Request::get(uri).closing());
        assert_eq!(answer.status, 200, "{uri}");
        assert_eq!(connection.record(), Err(Fault::End), "{uri}");
    }
}

#[test]
fn end_request_is_sent_once_where_the_app_answers_without_reading_the_body() {
    let worker = started();
    let mut connection = worker.connect();
    let answer = ask(&mut connection, &Request::post("/pid", &bytes(300_000, 1)));
    assert_eq!(answer.text().trim(), worker.pid().to_string());
    // A second END_REQUEST would be the first record of the next answer.
    assert_eq!(ask(&mut connection, &Request::get("/echo").id(2)).status, 200);
}

#[test]
fn requests_on_one_kept_connection_are_counted_one_by_one() {
    let worker = started();
    let mut connection = worker.connect();
    for _ in 0..50 {
        assert_eq!(ask(&mut connection, &Request::get("/echo")).status, 200);
    }
    worker.counted(page::WORD_REQUESTS, 50);
    worker.counted(page::WORD_CONNECTIONS, 1);
    drop(connection);
    worker.counted(page::WORD_CONNECTIONS, 0);
}

#[test]
fn names_and_values_of_128_bytes_and_more_arrive_whole() {
    let worker = started();
    let mut connection = worker.connect();
    for len in [126, 127, 128, 129, 255, 256, 4096, 60_000] {
        let (name, value) = (format!("HTTP_{}", "N".repeat(len - 5)), "v".repeat(len));
        let answer = ask(&mut connection, &Request::get("/env").with(&name, &value));
        assert_eq!(seen(&answer.text(), &name), Some(value.as_str()), "{len} bytes");
    }
}

#[test]
fn lengths_written_in_four_bytes_mean_the_same() {
    let worker = started();
    let mut request = Request::get("/env").with("HTTP_A", "b").with("HTTP_EMPTY", "");
    request.shape.long_lengths = true;
    let answer = ask(&mut worker.connect(), &request);
    assert_eq!(seen(&answer.text(), "HTTP_A"), Some("b"));
}

#[test]
fn pairs_may_be_cut_into_records_anywhere() {
    let worker = started();
    let mut connection = worker.connect();
    for size in [1, 2, 3, 5, 13, 100] {
        let mut request = Request::post("/env", b"body").with("HTTP_LONG", "x".repeat(1000));
        (request.shape.params_record, request.shape.cut_pairs) = (size, true);
        request.shape.stdin_record = 1;
        let text = ask(&mut connection, &request).text();
        assert_eq!(seen(&text, "HTTP_LONG").map(str::len), Some(1000), "records of {size}");
    }
}

#[test]
fn any_padding_is_passed_over() {
    let worker = started();
    let mut connection = worker.connect();
    for padding in 0..=255 {
        let mut request = Request::post("/echo", b"a body");
        request.shape.padding = Padding::Fixed(padding);
        assert_eq!(ask(&mut connection, &request).text(), "a body", "padding {padding}");
    }
}

#[test]
fn a_request_that_comes_byte_by_byte_is_served() {
    let worker = started();
    let mut connection = worker.connect();
    for byte in Request::post("/echo", b"slow").to_bytes() {
        send(&mut connection, [byte]);
    }
    assert_eq!(connection.answer(1, "POST").unwrap().text(), "slow");
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let worker = started();
    let mut connection = worker.connect();
    let ahead: Vec<u8> =
        (1..=20).flat_map(|id| Request::post("/echo", id.to_string().as_bytes()).id(id).to_bytes()).collect();
    send(&mut connection, ahead);
    for id in 1..=20 {
        assert_eq!(connection.answer(id, "POST").unwrap().text(), id.to_string());
    }
}

#[test]
fn an_authorizer_is_asked_without_any_stdin() {
    let worker = started();
    let mut connection = worker.connect();
    let request = Request { role: AUTHORIZER, body: None, ..Request::get("/env") };
    for _ in 0..2 {
        assert_eq!(ask(&mut connection, &request).status, 200);
    }
}

#[test]
fn an_authorizer_may_be_sent_an_empty_stdin_all_the_same() {
    let worker = started();
    let mut connection = worker.connect();
    for id in [1, 2] {
        assert_eq!(
            ask(&mut connection, &Request { role: AUTHORIZER, ..Request::get("/env") }.id(id)).status,
            200
        );
    }
}

#[test]
fn a_filter_is_served() {
    let worker = started();
    let mut connection = worker.connect();
    let request = Request { role: FILTER, ..Request::post("/echo", b"input") };
    send(&mut connection, request.to_bytes());
    send(&mut connection, record(DATA, 1, b"file", 4));
    send(&mut connection, record(DATA, 1, b"", 0));
    assert_eq!(connection.answer(1, "POST").unwrap().status, 200);
    assert_eq!(ask(&mut connection, &Request::get("/echo")).status, 200);
}

#[test]
fn a_responder_without_the_end_of_stdin_holds_no_worker() {
    let worker = probe(Fastcgi, worker::short_limits());
    let mut silent = worker.connect();
    send(&mut silent, Request { body: None, ..Request::get("/echo").without("CONTENT_LENGTH") }.to_bytes());
    assert_eq!(ask(&mut worker.connect(), &Request::get("/echo")).status, 200, "another client meanwhile");
    assert_eq!(silent.record(), Err(Fault::End), "closed at its time limit");
}

#[test]
fn an_unknown_role_is_refused_and_the_connection_lives_on() {
    let worker = started();
    let mut connection = worker.connect();
    send(&mut connection, Request { role: 9, ..Request::post("/echo", b"x") }.id(4).to_bytes());
    assert_eq!(connection.refusal(4), Ok(UNKNOWN_ROLE));
    assert_eq!(ask(&mut connection, &Request::get("/echo").id(5)).status, 200);
}

#[test]
fn a_second_request_beside_an_unfinished_one_is_refused() {
    let worker = started();
    let mut connection = worker.connect();
    let (first, second) = (Request::post("/echo", b"first"), Request::post("/echo", b"second").id(2));
    send(&mut connection, begin(1, RESPONDER, true));
    send(&mut connection, second.to_bytes());
    send(&mut connection, &first.to_bytes()[16..]);
    let answer = connection.answer(1, "POST").unwrap();
    assert_eq!((answer.text().as_str(), answer.refused.as_slice()), ("first", &[(2, CANT_MPX_CONN)][..]));
    assert_eq!(ask(&mut connection, &second).text(), "second", "the refused id may be used again");
}

#[test]
fn a_second_request_inside_a_large_body_is_refused() {
    let worker = started();
    let mut connection = worker.connect();
    let body = bytes(400_000, 2);
    let (first, second) = (Request::post("/echo", &body), Request::get("/echo").id(2));
    let mut out = connection.stream().again();
    let parts = [
        first.head(),
        first.stdin(&body[..200_000]),
        second.to_bytes(),
        first.stdin(&body[200_000..]),
        record(STDIN, 1, b"", 0),
    ];
    let sender = std::thread::spawn(move || out.write_all(&parts.concat()).unwrap());
    let answer = connection.answer(1, "POST").unwrap();
    sender.join().unwrap();
    assert!(answer.body == body, "the body came back changed");
    assert_eq!(answer.refused, [(2, CANT_MPX_CONN)]);
}

#[test]
fn a_web_server_that_is_answered_before_the_body_may_send_all_of_it() {
    let worker = started();
    let body = bytes(8_000_000, 2);
    let too_long =
        Request::post("/pid", &body).without("CONTENT_LENGTH").with("CONTENT_LENGTH", "99999999999999");
    for (request, status) in [(Request::post("/pid", &body), 200), (too_long, 413)] {
        let mut connection = worker.connect();
        let mut out = connection.stream().again();
        let sender = std::thread::spawn(move || out.write_all(&request.closing().to_bytes()));
        assert_eq!(connection.answer(1, "POST").unwrap().status, status);
        sender.join().unwrap().expect("the worker takes the body");
        assert_eq!(
            connection.stream().ending(hostler_tests::net::DEADLINE),
            hostler_tests::net::Ending::Closed,
            "{status}"
        );
    }
}

#[test]
fn an_aborted_request_ends_and_the_connection_lives_on() {
    let worker = started();
    let mut connection = worker.connect();
    let request = Request::post("/echo", b"never whole");
    send(&mut connection, request.head());
    send(&mut connection, record(ABORT, 1, b"", 0));
    let end = connection.record().unwrap();
    assert_eq!((end.kind, end.id), (END, 1));
    assert_eq!(ask(&mut connection, &Request::get("/echo").id(2)).status, 200);
}

#[test]
fn an_endless_answer_stops_at_abort_request() {
    let worker = started();
    let mut connection = worker.connect();
    send(&mut connection, Request::get("/stream?bytes=100000000000000").to_bytes());
    for _ in 0..10 {
        connection.record().unwrap();
    }
    send(&mut connection, record(ABORT, 1, b"", 0));
    // It ends with END_REQUEST or with the connection, but it ends, and the worker serves on.
    while connection.record().is_ok_and(|record| record.kind != END) {}
    assert_eq!(ask(&mut worker.connect(), &Request::get("/echo")).status, 200);
}

#[test]
fn an_answer_that_is_cut_ends_with_a_record_that_no_web_server_takes_for_its_end() {
    let worker = started();
    let mut connection = worker.connect();
    send(&mut connection, Request::get("/cut?bytes=100000").to_bytes());
    let mut bytes = Vec::new();
    connection.stream().read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > 100_000);
    assert_eq!(bytes[bytes.len() - 8..], [1, 255, 0, 1, 0, 0, 0, 0]);
    assert!(!bytes.windows(8).any(|w| w == [1, 3, 0, 1, 0, 8, 0, 0]), "no END_REQUEST");
}

#[test]
fn an_endless_answer_stops_when_the_client_leaves() {
    let worker = started();
    let mut connection = worker.connect();
    send(&mut connection, Request::get("/stream?bytes=100000000000000").to_bytes());
    connection.record().unwrap();
    drop(connection);
    assert_eq!(ask(&mut worker.connect(), &Request::get("/pid")).text().trim(), worker.pid().to_string());
    worker.counted(page::WORD_CONNECTIONS, 0);
}

#[test]
fn an_answer_without_a_body_has_its_head() {
    let worker = started();
    let mut connection = worker.connect();
    for request in [Request::post("/echo", b""), Request::get("/stream?bytes=0"), Request::get("/echo")] {
        let answer = ask(&mut connection, &request);
        assert_eq!((answer.status, answer.body_len), (200, 0));
    }
}

#[test]
fn head_is_answered_without_a_body_and_kills_nothing() {
    let worker = started();
    let mut connection = worker.connect();
    for uri in ["/echo", "/env", "/pid", "/stream?bytes=100000", "/nowhere", "/panic"] {
        let answer = ask(&mut connection, &Request::new("HEAD", uri));
        assert_eq!(answer.body_len, 0, "{uri}");
        // The worker may end a connection after a panic, but only after the whole answer.
        if uri != "/panic" {
            assert_eq!(ask(&mut connection, &Request::get("/echo")).status, 200, "after HEAD {uri}");
        }
    }
}

#[test]
fn http_proxy_never_reaches_the_app() {
    let worker = started();
    let mut connection = worker.connect();
    for name in ["HTTP_PROXY", "http_proxy", "Http_Proxy"] {
        let request = Request::get("/env").with(name, "http://evil.example/").with("HTTP_PROXY_X", "stays");
        let text = ask(&mut connection, &request).text();
        assert!(!text.contains("evil.example"), "{name}: {text}");
        assert_eq!(seen(&text, "HTTP_PROXY_X"), Some("stays"));
    }
}

#[test]
fn repeated_parameters_have_one_meaning() {
    let worker = started();
    let mut connection = worker.connect();
    for _ in 0..2 {
        let request = Request::get("/env")
            .with("HTTP_X_A", "1")
            .with("HTTP_COOKIE", "a=1")
            .with("HTTP_HOST", "evil.example")
            .with("HTTP_X_A", "2")
            .with("HTTP_COOKIE", "b=2")
            .with("REMOTE_USER", "first")
            .with("REMOTE_USER", "last");
        let text = ask(&mut connection, &request).text();
        assert_eq!(seen(&text, "HTTP_X_A"), Some("1, 2"));
        assert_eq!(seen(&text, "HTTP_COOKIE"), Some("a=1; b=2"));
        assert_eq!(seen(&text, "HTTP_HOST"), Some("localhost"), "the first wins");
        assert_eq!(seen(&text, "REMOTE_USER"), Some("last"));
        assert_eq!(text.matches("REMOTE_USER=").count(), 1);
    }
    worker.program.line("parameter");
    assert_eq!(worker.program.count("parameter"), 1, "said once: {:?}", worker.program.lines());
}

#[test]
fn a_length_that_is_not_told_means_all_of_stdin() {
    let worker = started();
    let mut connection = worker.connect();
    for body in [bytes(0, 1), bytes(10, 1), bytes(65_536, 1), bytes(300_000, 1)] {
        for length in [None, Some(""), Some("-1")] {
            let mut request = Request::post("/echo", &body).without("CONTENT_LENGTH");
            if let Some(length) = length {
                request = request.with("CONTENT_LENGTH", length);
            }
            let mut out = connection.stream().again();
            let sender = std::thread::spawn(move || out.write_all(&request.to_bytes()).unwrap());
            let answer = connection.answer(1, "POST").unwrap();
            sender.join().unwrap();
            assert!(answer.body == body, "{length:?} with {} bytes: got {}", body.len(), answer.body_len);
        }
    }
}

#[test]
fn a_large_body_longer_or_shorter_than_it_was_said_to_be_is_cut_but_never_mistaken() {
    let worker = started();
    let body = bytes(300_000, 3);
    for length in [200_000, 299_999, 300_001, 400_000] {
        let request = Request::post("/echo", &body)
            .without("CONTENT_LENGTH")
            .with("CONTENT_LENGTH", usize::to_string(&length))
            .closing();
        let mut connection = worker.connect();
        let mut out = connection.stream().again();
        // The worker may close before all of it is sent.
        let sender = std::thread::spawn(move || out.write_all(&request.to_bytes()));
        match connection.answer(1, "POST") {
            Ok(answer) if answer.status == 200 => {
                assert!(length < body.len(), "a body shorter than {length} was taken as whole");
                assert!(answer.body == body[..length], "{length}");
            }
            Ok(answer) => assert_eq!(answer.status, 400, "{length}"),
            Err(Fault::Cut | Fault::Reset) => {}
            Err(fault) => panic!("{length}: {fault}"),
        }
        drop(connection);
        let _ = sender.join().unwrap();
        assert_eq!(ask(&mut worker.connect(), &Request::get("/echo")).status, 200);
    }
}

#[test]
fn strange_paths_do_no_harm() {
    let worker = started();
    let mut connection = worker.connect();
    let paths = [
        "",
        "/",
        "//",
        "/a\nb",
        "/%0a",
        "/\r\n",
        "/%00",
        "/..",
        "/../..",
        "/a%2f..%2f..",
        "/\u{e9}",
        "/%",
        "/%zz",
        "?",
    ];
    for name in
        ["PATH_INFO", "SCRIPT_NAME", "REQUEST_URI", "DOCUMENT_URI", "SCRIPT_FILENAME", "DOCUMENT_ROOT"]
    {
        for path in paths {
            let request = Request::get("/env").without(name).with(name, path);
            let answer = ask(&mut connection, &request);
            assert!(matches!(answer.status, 200 | 400 | 404), "{name}={path:?}: {}", answer.status);
        }
        let answer = ask(&mut connection, &Request::get("/env").without(name));
        assert!(matches!(answer.status, 200 | 400 | 404), "no {name}: {}", answer.status);
    }
    assert_eq!(ask(&mut connection, &Request::get("/pid")).text().trim(), worker.pid().to_string());
}

#[test]
fn params_that_never_end_are_bounded() {
    let limits = Limits { max_params: 100_000, ..Limits::default() };
    let worker = probe(Fastcgi, limits);
    let mut connection = worker.connect();
    send(&mut connection, begin(1, RESPONDER, false));
    let pairs = pair(b"HTTP_X", &[b'x'; 60_000], false);
    let mut out = connection.stream().again();
    let sender = std::thread::spawn(move || while out.write_all(&record(PARAMS, 1, &pairs, 0)).is_ok() {});
    match connection.answer(1, "GET") {
        Ok(answer) => assert_eq!(answer.status, 431),
        Err(fault) => assert!(matches!(fault, Fault::End | Fault::Reset), "{fault}"),
    }
    drop(connection);
    sender.join().unwrap();
    assert_eq!(ask(&mut worker.connect(), &Request::get("/echo")).status, 200);
}
