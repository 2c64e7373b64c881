//! Bodies far larger than a worker: they stream through it in both directions, and it stays under 16 MiB.
//!
//! The whole measure of 4 GiB runs with `cargo test -p hostler-tests --test large -- --ignored`.

use hostler_tests::{
    fcgi::{Request, STDIN, record},
    http::Connection,
    net::{Listener, Stream},
    place::{Place, bytes, checksum, example},
    program::status,
    reader::Reader,
    worker::{Queue, Worker, serve, served},
};
use hostler_worker::control::{
    Limits, Protocol,
    Protocol::{Fastcgi, Http},
    Serve,
};
use std::{
    io::{self, Read, Write},
    thread,
};

/// What a worker's resident memory may have been at most, in KiB.
const MEMORY: u64 = 16 * 1024;
/// A length in `./test`, and over the 4 GiB that 32 bits hold.
const SHORT: u64 = 256 << 20;
const LONG: u64 = (4 << 30) + 12_345;

fn started(protocol: Protocol) -> Worker {
    let place = Place::new();
    let listener = Listener::tcp();
    let limits = Limits { max_body: u64::MAX, ..Limits::default() };
    let serve = Serve { limits, ..serve(&[(&listener, protocol)]) };
    served(&example("probe"), &[&listener], serve, &Queue::new(), place)
}

/// `len` bytes: one block of 1 MiB less one over and over, so that places differ.
struct Body {
    block: Vec<u8>,
    at: u64,
    len: u64,
}

impl Body {
    fn new(len: u64) -> Body {
        Body { block: bytes((1 << 20) - 1, 6), at: 0, len }
    }

    fn sum(len: u64) -> u32 {
        checksum(Body::new(len)).unwrap()
    }
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(self.at % self.block.len() as u64).unwrap();
        let left = usize::try_from(self.len - self.at).unwrap();
        let n = buf.len().min(left).min(self.block.len() - start);
        buf[..n].copy_from_slice(&self.block[start..start + n]);
        self.at += n as u64;
        Ok(n)
    }
}

fn send_http(mut out: Stream, len: u64) {
    let head = format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
    out.write_all(head.as_bytes()).unwrap();
    io::copy(&mut Body::new(len), &mut out).unwrap();
}

fn send_fastcgi(mut out: Stream, len: u64) {
    let request =
        Request::post("/echo", b"").without("CONTENT_LENGTH").with("CONTENT_LENGTH", len.to_string());
    out.write_all(&request.head()).unwrap();
    let (mut body, mut part) = (Body::new(len), vec![0; 32_768]);
    loop {
        let n = body.read(&mut part).unwrap();
        out.write_all(&record(STDIN, 1, &part[..n], 0)).unwrap();
        if n == 0 {
            return;
        }
    }
}

/// Sends `len` bytes up, takes them down again as they come, and compares them by checksum.
fn there_and_back(protocol: Protocol, len: u64) {
    let worker = started(protocol);
    let stream = worker.address.connect();
    let out = stream.again();
    let sender = thread::spawn(move || match protocol {
        Http => send_http(out, len),
        Fastcgi => send_fastcgi(out, len),
    });
    let mut sum = crc32fast::Hasher::new();
    let mut sink = |part: &[u8]| sum.update(part);
    let (status_code, came) = match protocol {
        Http => {
            let answer = Connection::over(stream).answer_into("POST", &mut sink).unwrap();
            (answer.status, answer.body_len)
        }
        Fastcgi => {
            let answer = Reader::new(stream).answer_into(1, "POST", &mut sink).unwrap();
            (answer.status, answer.body_len)
        }
    };
    sender.join().unwrap();
    assert_eq!((status_code, came), (200, len));
    assert_eq!(sum.finalize(), Body::sum(len), "the bytes are others");
    let peak = status(worker.pid(), "VmHWM").unwrap();
    assert!(peak < MEMORY, "the worker grew to {peak} KiB");
}

#[test]
fn a_quarter_of_a_gib_streams_through_over_fastcgi() {
    there_and_back(Fastcgi, SHORT);
}

#[test]
fn a_quarter_of_a_gib_streams_through_over_http() {
    there_and_back(Http, SHORT);
}

#[test]
#[ignore = "takes minutes; run it whole with --ignored"]
fn four_gib_stream_through_over_fastcgi() {
    there_and_back(Fastcgi, LONG);
}

#[test]
#[ignore = "takes minutes; run it whole with --ignored"]
fn four_gib_stream_through_over_http() {
    there_and_back(Http, LONG);
}
