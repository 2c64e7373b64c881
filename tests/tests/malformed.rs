//! Hundreds of malformed byte sequences: each gets its defined answer or close within its time limit, the worker
//! serves the next client, and its memory stays put.

use hostler_tests::{
    fcgi::Request,
    http,
    malformed::{self, Case, Due},
    net::Stream,
    program::{descriptors, private_kib},
    reader::{Fault, Reader},
    worker::{self, Worker, probe},
};
use hostler_worker::control::{
    Limits,
    Protocol::{Fastcgi, Http},
};
use std::{io::Write, thread, time::Duration};

/// Connections open at a time.
const BATCH: usize = 64;
/// What private memory may grow by while all are sent once more, in KiB.
const GROWTH: u64 = 1024;

/// What a sequence led to, as far as [`Due`] tells, and how the connection ended where it has to.
type Came = Result<(Due, Option<Fault>), Fault>;

/// How one of the protocols is read.
#[derive(Clone, Copy)]
struct Speech {
    read: fn(Stream) -> Came,
    serves: fn(&Worker) -> bool,
}

const FASTCGI: Speech = Speech { read: read_fastcgi, serves: serves_fastcgi };
const HTTP: Speech = Speech { read: read_http, serves: |worker| worker.http().get("/echo").status == 200 };

/// Sends a sequence, in a thread of its own since the worker may answer before it has read it all.
fn send(worker: &Worker, case: &Case, half_close: bool) -> Stream {
    let stream = worker.address.connect();
    let (mut out, bytes) = (stream.again(), case.bytes.clone());
    let sender = thread::spawn(move || {
        let _ = out.write_all(&bytes);
        if half_close {
            out.half_close();
        }
    });
    if case.bytes.len() < 100_000 {
        sender.join().unwrap();
    }
    stream
}

/// Sends all of them, many at a time, and says which did not lead to what is due.
fn wrong(worker: &Worker, cases: &[Case], half_close: bool, speech: Speech) -> Vec<String> {
    let mut wrong = Vec::new();
    for batch in cases.chunks(BATCH) {
        let streams: Vec<Stream> = batch.iter().map(|case| send(worker, case, half_close)).collect();
        for (case, stream) in batch.iter().zip(streams) {
            let came = (speech.read)(stream);
            if !matches!(&came, Ok((due, None | Some(Fault::End | Fault::Reset))) if *due == case.due) {
                wrong.push(format!("{}: {:?} is due, {came:?} came", case.name, case.due));
            }
        }
        assert!((speech.serves)(worker), "the next client is not served");
    }
    wrong
}

fn serves_fastcgi(worker: &Worker) -> bool {
    let mut connection = worker.connect();
    connection.stream().write_all(&Request::get("/echo").to_bytes()).unwrap();
    connection.answer(1, "GET").unwrap().status == 200
}

fn read_fastcgi(stream: Stream) -> Came {
    let mut reader = Reader::new(stream);
    let Some(first) = first_bytes(&mut reader)? else { return Ok((Due::Closed, None)) };
    if let [1, 3, 0, 1, 0, 8, _, 0, _, _, _, _, status] = first[..13] {
        return Ok((Due::Refused(status), None));
    }
    if let [1, 11, 0, 0, 0, 8, _, 0, kind, ..] = first[..] {
        return Ok((Due::UnknownType(kind), None));
    }
    let answer = reader.answer(1, "GET")?;
    Ok((Due::Status(answer.status), None))
}

/// The first bytes, left in place; `None` where the connection closes without any.
fn first_bytes(reader: &mut Reader<Stream>) -> Result<Option<Vec<u8>>, Fault> {
    match reader.peek(16) {
        Err(Fault::End | Fault::Reset) => Ok(None),
        bytes => bytes.map(Some),
    }
}

fn read_http(stream: Stream) -> Came {
    let mut connection = http::Connection::over(stream);
    match connection.answer("POST") {
        Ok(answer) => Ok((Due::Status(answer.status), connection.answer("POST").err())),
        Err(Fault::End | Fault::Reset) => Ok((Due::Closed, None)),
        Err(fault) => Err(fault),
    }
}

fn withstands(worker: &Worker, cases: &[Case], half_close: bool, speech: Speech) {
    let first = wrong(worker, cases, half_close, speech);
    assert!(first.is_empty(), "{} of {}:\n{}", first.len(), cases.len(), first.join("\n"));
    let second = wrong(worker, cases, half_close, speech);
    assert!(second.is_empty(), "the second time:\n{}", second.join("\n"));
    let (memory, open) = (private_kib(worker.pid()), descriptors(worker.pid()));
    let third = wrong(worker, cases, half_close, speech);
    assert!(third.is_empty(), "the third time:\n{}", third.join("\n"));
    let grown = private_kib(worker.pid()).saturating_sub(memory);
    assert!(grown <= GROWTH, "private memory grew by {grown} KiB over {} sequences", cases.len());
    // A connection that was closed last may still be on its way out.
    let now = descriptors(worker.pid());
    assert!(now <= open + 2, "{open} descriptors before, {now} after");
    assert!(worker.program.runs());
}

fn limits() -> Limits {
    Limits { read_timeout: Duration::from_secs(1), ..worker::short_limits() }
}

#[test]
fn malformed_fastcgi_gets_its_defined_end() {
    let worker = probe(Fastcgi, limits());
    withstands(&worker, &malformed::fastcgi::cases(), false, FASTCGI);
}

#[test]
fn fastcgi_torn_at_any_offset_is_closed_with_the_client() {
    let worker = probe(Fastcgi, limits());
    withstands(&worker, &malformed::torn(&malformed::fastcgi::sound(), Due::Closed), true, FASTCGI);
}

#[test]
fn fastcgi_that_stops_at_any_offset_is_closed_at_its_time_limit() {
    let worker = probe(Fastcgi, limits());
    let torn: Vec<Case> =
        malformed::torn(&malformed::fastcgi::sound(), Due::Closed).into_iter().step_by(7).collect();
    withstands(&worker, &torn, false, FASTCGI);
}

#[test]
fn malformed_http_gets_its_defined_end() {
    let worker = probe(Http, limits());
    withstands(&worker, &malformed::http::cases(), false, HTTP);
}

#[test]
fn http_torn_at_any_offset_is_closed_with_the_client() {
    let worker = probe(Http, limits());
    for sound in [malformed::http::sound(), malformed::http::sound_chunked()] {
        withstands(&worker, &malformed::torn(&sound, Due::Closed), true, HTTP);
    }
}

#[test]
fn http_that_stops_at_any_offset_is_told_so_at_its_time_limit() {
    let worker = probe(Http, limits());
    for sound in [malformed::http::sound(), malformed::http::sound_chunked()] {
        let torn: Vec<Case> = malformed::torn(&sound, Due::Status(408)).into_iter().step_by(4).collect();
        withstands(&worker, &torn, false, HTTP);
    }
}

#[test]
fn what_the_torn_ones_are_torn_from_is_sound() {
    let worker = probe(Fastcgi, limits());
    let mut connection = worker.connect();
    connection.stream().write_all(&malformed::fastcgi::sound()).unwrap();
    assert_eq!(connection.answer(1, "POST").unwrap().text(), "body");
    let worker = probe(Http, limits());
    for sound in [malformed::http::sound(), malformed::http::sound_chunked()] {
        let mut connection = worker.http();
        connection.send(sound);
        assert_eq!(connection.answer("POST").unwrap().text(), "body");
    }
}
