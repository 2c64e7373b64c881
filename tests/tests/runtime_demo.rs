//! The page and form of `hostler demo`, on a real worker.

use hostler_tests::{
    place::{self, Place},
    worker::{self, Worker, short_limits},
};
use hostler_worker::control::{App, Limits, Protocol, Runtime};
use std::{process::Command, time::Instant};

fn demo(path: &str) -> Worker {
    let limits = Limits { max_body: 256 << 20, ..short_limits() };
    worker::own(Protocol::Http, vec![App { host: None, path: path.into(), runtime: Runtime::Demo }], limits)
}

#[test]
fn the_page_comes_from_the_worker_that_it_names() {
    let worker = demo("/");
    let page = worker.http().get("/");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.text().contains(&format!("process {}", worker.pid())), "{}", page.text());
    assert!(worker.http().get("/hello").text().contains(&worker.pid().to_string()));
    assert_eq!(worker.http().get("/nothing").status, 404);
    assert_eq!(worker.http().post("/hello", b"x").status, 405);
    let redirect = demo("/try").http().get("/try?a");
    assert_eq!((redirect.status, redirect.field("location")), (301, Some("/try/?a")));
}

#[test]
fn an_upload_is_counted_and_summed_as_cksum_does() {
    let worker = demo("/");
    let place = Place::new();
    let content = place::bytes(20 << 20, 5);
    let path = place.file("upload", &content);
    let output = Command::new("cksum").arg(&path).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let (sum, length) =
        told.split_once(' ').map(|(sum, rest)| (sum, rest.split(' ').next().unwrap())).unwrap();
    let head = "--XX\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n<hello>\r\n\
        --XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n";
    let body = [head.as_bytes(), &content, b"\r\n--XX--\r\n"].concat();
    for (accept, wanted) in [
        ("*/*", format!("{length}\t{sum}\tfile\ta.bin\n")),
        ("text/html", format!("<td>file<td>a.bin<td class=\"n\">{length}<td class=\"n\">{sum}\n")),
    ] {
        let mut client = worker.http();
        let lengths = format!("Content-Length: {}", body.len());
        let fields =
            ["Content-Type: multipart/form-data; boundary=XX", &lengths, &format!("Accept: {accept}")];
        client.ask("POST", "/upload", &fields);
        client.send(&body);
        let answer = client.answer("POST").unwrap();
        assert!(answer.status == 200 && answer.text().contains(&wanted), "{wanted} in {}", answer.text());
    }
    let peak = hostler_tests::program::status(worker.pid(), "VmHWM").unwrap();
    assert!(peak < 16 * 1024, "{peak} KiB at most");
    let mut client = worker.http();
    client.ask("POST", "/upload", &["Content-Type: multipart/form-data; boundary=XX", "Content-Length: 4"]);
    client.send("--XX");
    assert_eq!(client.answer("POST").unwrap().status, 400);
}

#[test]
fn lines_stream_one_by_one() {
    let worker = demo("/");
    let mut client = worker.http();
    let begun = Instant::now();
    client.ask("GET", "/stream?lines=3", &[]);
    let mut first = None;
    let answer = client.answer_into("GET", &mut |_| {
        first.get_or_insert_with(|| begun.elapsed());
    });
    assert_eq!(answer.unwrap().body_len, 3 * "line 1 of 3\n".len() as u64);
    assert!(first.unwrap() * 2 < begun.elapsed(), "the first line came with the last");
}

#[test]
fn a_request_is_shown_without_its_secrets() {
    let worker = demo("/");
    let mut client = worker.http();
    client.ask("GET", "/env?q=%3Cb%3E", &["Cookie: id=mine", "Authorization: Basic eA==", "X-Shown: yes"]);
    let text = client.answer("GET").unwrap().text();
    assert!(text.contains("HTTP_X_SHOWN=yes\n") && text.contains("QUERY_STRING=q=%3Cb%3E\n"), "{text}");
    assert!(!text.contains("mine") && !text.contains("eA=="), "{text}");
}
