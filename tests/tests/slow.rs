//! Slow and silent clients hold no worker, and only until their time limit.

use hostler_tests::{
    fcgi::Request,
    http::Connection,
    net::{Ending, Stream},
    place::bytes,
    program::private_kib,
    reader::{Fault, Reader},
    worker::{probe, short_limits},
};
use hostler_worker::{
    control::{
        Limits,
        Protocol::{Fastcgi, Http},
    },
    page,
};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// More than any time limit of [`short_limits`], on a busy machine too.
const LONG: Duration = Duration::from_secs(25);

fn served_fastcgi(worker: &hostler_tests::worker::Worker) {
    let mut connection = worker.connect();
    connection.stream().write_all(&Request::get("/echo").to_bytes()).unwrap();
    assert_eq!(connection.answer(1, "GET").unwrap().status, 200);
}

#[test]
fn a_silent_http_client_is_let_go_at_its_time_limit_and_holds_no_worker() {
    let worker = probe(Http, short_limits());
    let mut silent = worker.address.connect();
    let began = Instant::now();
    assert_eq!(worker.http().get("/echo").status, 200);
    assert_eq!(silent.ending(LONG), Ending::Closed);
    assert!(began.elapsed() >= Duration::from_secs(1), "not at once");
    worker.counted(page::WORD_CONNECTIONS, 0);
}

#[test]
fn a_client_that_stops_inside_its_head_holds_no_worker() {
    for (protocol, bytes) in
        [(Http, b"GET /echo HT".to_vec()), (Fastcgi, Request::get("/echo").head()[..40].to_vec())]
    {
        let worker = probe(protocol, short_limits());
        let mut stopped: Vec<Stream> = (0..20).map(|_| worker.address.connect()).collect();
        for stream in &mut stopped {
            stream.write_all(&bytes).unwrap();
        }
        for _ in 0..50 {
            match protocol {
                Http => assert_eq!(worker.http().get("/echo").status, 200),
                Fastcgi => served_fastcgi(&worker),
            }
        }
        for mut stream in stopped {
            assert_eq!(stream.ending(LONG), Ending::Closed);
        }
        worker.counted(page::WORD_CONNECTIONS, 0);
    }
}

#[test]
fn a_client_that_stops_inside_a_small_body_holds_no_worker() {
    let worker = probe(Fastcgi, short_limits());
    let request = Request::post("/echo", &bytes(10_000, 1));
    let all = request.to_bytes();
    let mut stopped: Vec<Stream> = (0..20).map(|_| worker.address.connect()).collect();
    for stream in &mut stopped {
        stream.write_all(&all[..all.len() - 5000]).unwrap();
    }
    for _ in 0..50 {
        served_fastcgi(&worker);
    }
    for mut stream in stopped {
        assert_eq!(stream.ending(LONG), Ending::Closed);
    }
}

#[test]
fn a_client_that_stops_inside_a_large_body_holds_the_worker_only_until_its_time_limit() {
    let worker = probe(Fastcgi, short_limits());
    let request = Request::post("/echo", &bytes(200_000, 1));
    let all = request.to_bytes();
    let mut stopped = worker.address.connect();
    stopped.write_all(&all[..100_000]).unwrap();
    // There is one worker alone: this waits until the other has been let go.
    served_fastcgi(&worker);
    assert_ne!(stopped.ending(LONG), Ending::Open);
}

#[test]
fn a_client_of_a_byte_now_and_then_is_served_within_the_time_limit_of_its_request() {
    let worker = probe(Http, Limits::default());
    let mut slow = worker.http();
    for byte in b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody" {
        // A pace, not a wait for anything.
        std::thread::sleep(Duration::from_millis(10));
        slow.send([*byte]);
        if byte.is_ascii_uppercase() {
            assert_eq!(worker.http().get("/echo").status, 200, "another client meanwhile");
        }
    }
    assert_eq!(slow.answer("POST").unwrap().text(), "body");
}

#[test]
fn a_client_of_a_byte_now_and_then_does_not_stay_for_ever() {
    let worker = probe(Http, short_limits());
    let mut slow = worker.address.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    let mut reader = slow.again();
    let began = Instant::now();
    let sender = std::thread::spawn(move || {
        while slow.write_all(b"x").is_ok() && began.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    // Each byte comes well within the time limit; all of them together do not.
    assert_ne!(reader.ending(LONG), Ending::Open);
    sender.join().unwrap();
    assert!(began.elapsed() < LONG);
}

#[test]
fn a_client_that_does_not_read_its_answer_is_let_go_at_its_time_limit() {
    for protocol in [Fastcgi, Http] {
        let worker = probe(protocol, short_limits());
        let mut deaf = worker.address.connect();
        match protocol {
            Fastcgi => deaf.write_all(&Request::get("/stream?bytes=1000000000").to_bytes()).unwrap(),
            Http => deaf.write_all(b"GET /stream?bytes=1000000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(),
        }
        match protocol {
            Fastcgi => served_fastcgi(&worker),
            Http => assert_eq!(worker.http().get("/echo").status, 200),
        }
        // What was on its way is read, and then the cut shows.
        match protocol {
            Fastcgi => assert!(matches!(Reader::new(deaf).answer(1, "GET"), Err(Fault::Cut | Fault::Reset))),
            Http => {
                assert!(matches!(Connection::over(deaf).answer("GET"), Err(Fault::Cut | Fault::Reset)));
            }
        }
    }
}

#[test]
fn a_kept_http_connection_at_rest_is_closed_at_its_own_time_limit() {
    let worker = probe(Http, Limits { keepalive_timeout: Duration::from_secs(1), ..Limits::default() });
    let mut kept = worker.http();
    assert_eq!(kept.get("/echo").status, 200);
    assert_eq!(kept.stream().ending(LONG), Ending::Closed);
}

#[test]
fn a_kept_fastcgi_connection_rests_for_as_long_as_the_web_server_likes() {
    let worker = probe(Fastcgi, Limits { keepalive_timeout: Duration::from_millis(200), ..short_limits() });
    let mut kept = worker.connect();
    for _ in 0..2 {
        kept.stream().write_all(&Request::get("/echo").to_bytes()).unwrap();
        assert_eq!(kept.answer(1, "GET").unwrap().status, 200);
        assert_eq!(
            kept.stream().ending(Duration::from_secs(3)),
            Ending::Open,
            "longer than every time limit"
        );
        kept.stream().deadline(LONG);
    }
}

/// Eight connections of a worker that has room for no more: four begin a request, after which `pause` passes; four have
/// had an answer and rest.
fn crowded(pause: Duration) -> (hostler_tests::worker::Worker, Vec<Stream>, Vec<Connection>) {
    let worker = probe(Http, Limits { max_connections: 8, ..Limits::default() });
    let mut begun: Vec<Stream> = (0..4).map(|_| worker.address.connect()).collect();
    for stream in &mut begun {
        stream.write_all(b"GET /echo HTTP/1.1\r\n").unwrap();
    }
    std::thread::sleep(pause);
    let mut resting: Vec<Connection> = (0..4).map(|_| worker.http()).collect();
    for connection in &mut resting {
        assert_eq!(connection.get("/echo").status, 200);
    }
    worker.counted(page::WORD_CONNECTIONS, 8);
    (worker, begun, resting)
}

#[test]
fn where_there_is_no_room_a_connection_at_rest_goes_before_a_request_on_its_way() {
    let (_worker, begun, mut resting) = loop {
        let asked = Instant::now();
        let (worker, begun, resting) = crowded(Duration::ZERO);
        assert_eq!(worker.http().get("/echo").status, 200);
        // After a second they are not young any more: on a machine as slow as that, once more.
        if asked.elapsed() < Duration::from_millis(900) {
            break (worker, begun, resting);
        }
    };
    for mut stream in begun {
        stream.write_all(b"Host: localhost\r\n\r\n").unwrap();
        assert_eq!(Connection::over(stream).answer("GET").unwrap().status, 200);
    }
    let ends = |c: &mut Connection| c.stream().ending(Duration::from_millis(100)) == Ending::Closed;
    assert_eq!(resting.iter_mut().map(ends).filter(|ended| *ended).count(), 1);
}

#[test]
fn where_there_is_no_room_who_was_silent_inside_a_request_goes_before_who_rests() {
    let (worker, mut begun, mut resting) = crowded(Duration::from_millis(1500));
    assert_eq!(worker.http().get("/echo").status, 200);
    let ends = |stream: &mut Stream| stream.ending(Duration::from_millis(100)) != Ending::Open;
    assert_eq!(begun.iter_mut().map(ends).filter(|ended| *ended).count(), 1);
    assert!(resting.iter_mut().all(|connection| connection.get("/echo").status == 200));
}

#[test]
fn five_hundred_silent_connections_cost_bounded_memory() {
    let worker = probe(Fastcgi, Limits::default());
    served_fastcgi(&worker);
    let before = private_kib(worker.pid());
    let mut silent: Vec<Stream> = (0..500).map(|_| worker.address.connect()).collect();
    for stream in &mut silent {
        stream.write_all(&Request::get("/echo").head()[..100]).unwrap();
    }
    served_fastcgi(&worker);
    worker.counted(page::WORD_CONNECTIONS, 500);
    let grown = private_kib(worker.pid()).saturating_sub(before);
    assert!(grown < 500 * 8, "{grown} KiB for 500 connections");
}
