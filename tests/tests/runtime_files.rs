//! The `files` runtime of a real worker, over both protocols: what a browser asks of files, what it must not get,
//! and files that change under the worker's hands.

use hostler_tests::{
    fcgi,
    http::Connection,
    net::DEADLINE,
    place::{self, Place},
    reader::Fault,
    worker::{self, Worker, short_limits},
};
use hostler_worker::control::{App, Files, Protocol, Runtime, Symlinks};
use std::{fs, path::Path, process::Command, time::Duration};

/// A directory with a site in it: what each test asks for.
fn site() -> Place {
    let place = Place::new();
    place.file("root/index.html", "<p>front");
    place.file("root/small.txt", "0123456789");
    place.file("root/dir/page.html", "<p>page");
    place.file("root/middle.bin", place::bytes(32 * 1024, 1));
    place.file("root/large.bin", place::bytes(3 << 20, 2));
    place.file("secret", "secret");
    // Old enough for a strong tag.
    for name in ["small.txt", "middle.bin", "large.bin"] {
        let file = fs::File::options().write(true).open(place.path("root").join(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
    place
}

fn settings(root: &Path) -> Files {
    Files {
        root: root.to_str().unwrap().into(),
        index: vec!["index.html".into()],
        listing: false,
        symlinks: Symlinks::Beneath,
        dot_files: false,
        precompressed: true,
        cache_control: None,
    }
}

fn serving(protocol: Protocol, place: &Place) -> Worker {
    let files = |path: &str| App {
        host: None,
        path: path.into(),
        runtime: Runtime::Files(settings(&place.path("root"))),
    };
    worker::own(protocol, vec![files("/"), files("/static")], short_limits())
}

#[test]
fn a_file_comes_whole_over_http_and_by_head_without_its_bytes() {
    let place = site();
    let worker = serving(Protocol::Http, &place);
    let mut client = worker.http();
    for name in ["small.txt", "middle.bin", "large.bin"] {
        let content = fs::read(place.path("root").join(name)).unwrap();
        let answer = client.get(&format!("/{name}"));
        assert_eq!((answer.status, answer.body == content), (200, true), "{name}");
        assert_eq!(answer.field("content-length"), Some(content.len().to_string().as_str()));
        client.ask("HEAD", &format!("/static/{name}"), &[]);
        let head = client.answer("HEAD").unwrap();
        assert_eq!((head.status, head.field("content-length")), (200, answer.field("content-length")));
        assert_eq!(head.field("etag"), answer.field("etag"));
    }
}

#[test]
fn a_file_comes_whole_over_fastcgi() {
    let place = site();
    let worker = serving(Protocol::Fastcgi, &place);
    let mut client = worker.connect();
    for name in ["small.txt", "middle.bin", "large.bin"] {
        let content = fs::read(place.path("root").join(name)).unwrap();
        for method in ["GET", "HEAD"] {
            use std::io::Write;
            client.stream().write_all(&fcgi::Request::new(method, &format!("/{name}")).to_bytes()).unwrap();
            let answer = client.answer(1, method).unwrap();
            assert_eq!(answer.status, 200, "{method} {name}");
            assert!(answer.body == if method == "GET" { &content[..] } else { b"" }, "{method} {name}");
        }
    }
}

#[test]
fn ranges_conditions_and_redirects_are_answered() {
    let place = site();
    let worker = serving(Protocol::Http, &place);
    let mut client = worker.http();
    let mut ask = |target: &str, fields: &[&str]| {
        client.ask("GET", target, fields);
        client.answer("GET").unwrap()
    };
    let whole = ask("/small.txt", &[]);
    let etag = whole.field("etag").unwrap().to_owned();
    let part = ask("/small.txt", &["Range: bytes=2-4"]);
    assert_eq!(
        (part.status, part.text().as_str(), part.field("content-range")),
        (206, "234", Some("bytes 2-4/10"))
    );
    let parts = ask("/large.bin", &["Range: bytes=0-9,2000000-2099999,-7"]);
    let content = fs::read(place.path("root/large.bin")).unwrap();
    assert_eq!((parts.status, parts.body.len() > 100_017), (206, true));
    for piece in [&content[..10], &content[2_000_000..2_100_000], &content[content.len() - 7..]] {
        assert!(parts.body.windows(piece.len()).any(|window| window == piece));
    }
    assert_eq!(ask("/small.txt", &["Range: bytes=10-"]).status, 416);
    assert_eq!(ask("/small.txt", &[&format!("If-None-Match: {etag}")]).status, 304);
    assert_eq!(ask("/small.txt", &["If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT"]).status, 304);
    assert_eq!(ask("/small.txt", &["If-Match: \"x\""]).status, 412);
    let redirect = ask("/static/dir?a=b", &[]);
    assert_eq!((redirect.status, redirect.field("location")), (301, Some("/static/dir/?a=b")));
    assert_eq!(ask("/static/dir/page.html", &[]).text(), "<p>page");
    assert_eq!(ask("//evil.example/..", &[]).status, 200, "it is the root, after dot segments");
    assert_eq!(ask("/small.txt", &[]), whole);
}

#[test]
fn no_request_leads_out_of_the_root() {
    let place = site();
    std::os::unix::fs::symlink(place.path("secret"), place.path("root/absolute")).unwrap();
    std::os::unix::fs::symlink("../secret", place.path("root/relative")).unwrap();
    std::os::unix::fs::symlink("/proc/self/root/etc/passwd", place.path("root/magic")).unwrap();
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let worker = serving(protocol, &place);
        for target in [
            "/../secret",
            "/static/../../secret",
            "/%2e%2e/secret",
            "/..%2fsecret",
            "/%2e%2e%2fsecret",
            "/dir/%2e%2e/%2e%2e/secret",
            "/.%2e/secret",
            "/static%2f..%2f..%2fsecret",
            "/%252e%252e/secret",
            "/..%5csecret",
            "/%00/../secret",
            "/small.txt%00.html",
            "/absolute",
            "/relative",
            "/magic",
            "/%2fetc/passwd",
            "//etc/passwd",
            "/..;/secret",
        ] {
            let (status, text) = match protocol {
                Protocol::Http => {
                    let answer = worker.http().get(target);
                    (answer.status, answer.text())
                }
                Protocol::Fastcgi => {
                    use std::io::Write;
                    let mut client = worker.connect();
                    // As web servers send it: REQUEST_URI raw, SCRIPT_NAME decoded.
                    let decoded = target
                        .replace("%2e", ".")
                        .replace("%2f", "/")
                        .replace("%00", "\0")
                        .replace("%25", "%");
                    let request =
                        fcgi::Request::get(target).without("SCRIPT_NAME").with("SCRIPT_NAME", decoded);
                    client.stream().write_all(&request.to_bytes()).unwrap();
                    let answer = client.answer(1, "GET").unwrap();
                    (answer.status, answer.text())
                }
            };
            assert!(matches!(status, 400 | 404), "{protocol:?} {target}: {status}");
            assert!(!text.contains("secret") && !text.contains("root:"), "{protocol:?} {target}: {text}");
        }
    }
}

#[test]
fn a_fifo_does_not_hold_the_worker() {
    let place = site();
    nix::unistd::mkfifo(&place.path("root/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let worker = serving(Protocol::Http, &place);
    let mut client = worker.http();
    assert_eq!(client.get("/fifo").status, 404);
    assert_eq!(client.get("/small.txt").status, 200);
}

/// Begins to take a large file, lets `change` happen to it, and takes the rest.
fn taken_while(worker: &Worker, name: &str, change: impl FnOnce()) -> Result<u64, Fault> {
    let mut client = worker.http();
    client.ask("GET", name, &[]);
    let mut change = Some(change);
    let mut taken = 0;
    let answer = client.answer_into("GET", &mut |part| {
        taken += part.len() as u64;
        if let Some(change) = change.take() {
            change();
        }
    });
    answer.map(|_| taken)
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_cuts_the_answer_and_leaves_the_worker_well() {
    let place = site();
    let path = place.path("root/huge.bin");
    let worker = serving(Protocol::Http, &place);
    fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let shrunk = taken_while(&worker, "/huge.bin", || {
        fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    });
    assert!(matches!(shrunk, Err(Fault::Cut | Fault::Reset)), "{shrunk:?}");
    assert_eq!(worker.http().get("/small.txt").text(), "0123456789");
    assert!(worker.program.runs());
}

#[test]
fn a_file_that_grows_or_is_replaced_while_it_is_sent_comes_as_it_was() {
    let place = site();
    let path = place.path("root/huge.bin");
    let worker = serving(Protocol::Http, &place);
    fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let grown = taken_while(&worker, "/huge.bin", || {
        fs::File::options().write(true).open(&path).unwrap().set_len(128 << 20).unwrap();
    });
    assert_eq!(grown, Ok(64 << 20));
    let replaced = taken_while(&worker, "/huge.bin", || fs::remove_file(&path).unwrap());
    assert_eq!(replaced, Ok(128 << 20));
    assert_eq!(worker.http().get("/huge.bin").status, 404);
}

#[test]
fn a_large_download_is_whole_and_takes_no_memory() {
    let place = site();
    let len: u64 = 600 << 20;
    fs::File::create(place.path("root/sparse.bin")).unwrap().set_len(len).unwrap();
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let worker = serving(protocol, &place);
        let mut zeros = true;
        let mut sink = |part: &[u8]| zeros &= part.first() == Some(&0) && part.last() == Some(&0);
        let taken = match protocol {
            Protocol::Http => {
                let mut client: Connection = worker.http();
                client.ask("GET", "/sparse.bin", &[]);
                client.answer_into("GET", &mut sink).unwrap().body_len
            }
            Protocol::Fastcgi => {
                use std::io::Write;
                let mut client = worker.connect();
                client.stream().write_all(&fcgi::Request::get("/sparse.bin").to_bytes()).unwrap();
                client.answer_into(1, "GET", &mut sink).unwrap().body_len
            }
        };
        assert_eq!((taken, zeros), (len, true), "{protocol:?}");
        let peak = hostler_tests::program::status(worker.pid(), "VmHWM").unwrap();
        assert!(peak < 16 * 1024, "{protocol:?}: {peak} KiB at most");
    }
}

#[test]
fn offsets_over_4_gib_are_offsets() {
    let place = site();
    let mut file = fs::File::create(place.path("root/sparse.bin")).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(5 << 30)).unwrap();
    std::io::Write::write_all(&mut file, b"the end").unwrap();
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let worker = serving(protocol, &place);
        let range = format!("bytes={}-", (5u64 << 30) - 2);
        let body = match protocol {
            Protocol::Http => {
                let mut client = worker.http();
                client.ask("GET", "/sparse.bin", &[&format!("Range: {range}")]);
                client.answer("GET").unwrap().body
            }
            Protocol::Fastcgi => {
                let mut client = worker.connect();
                let request = fcgi::Request::get("/sparse.bin").with("HTTP_RANGE", range);
                std::io::Write::write_all(client.stream(), &request.to_bytes()).unwrap();
                client.answer(1, "GET").unwrap().body
            }
        };
        assert_eq!(body, b"\0\0the end", "{protocol:?}");
    }
}

#[test]
fn a_compressed_form_is_what_gzip_made_of_the_file() {
    let place = site();
    place.file("root/page.css", "body{}\n".repeat(1000));
    let status = Command::new("gzip").arg("-k").arg(place.path("root/page.css")).status().unwrap();
    assert!(status.success());
    let worker = serving(Protocol::Http, &place);
    let mut client = worker.http();
    client.ask("GET", "/page.css", &["Accept-Encoding: gzip, deflate, br"]);
    let answer = client.answer("GET").unwrap();
    assert_eq!(answer.field("content-encoding"), Some("gzip"));
    assert_eq!(answer.field("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
    assert_eq!(answer.body, fs::read(place.path("root/page.css.gz")).unwrap());
    assert_eq!(client.get("/page.css").body_len, 7000);
}

#[test]
fn a_client_that_takes_nothing_is_left_after_the_write_timeout() {
    let place = site();
    let worker = serving(Protocol::Http, &place);
    let mut stuck = worker.http();
    fs::File::create(place.path("root/huge.bin")).unwrap().set_len(1 << 30).unwrap();
    stuck.ask("GET", "/huge.bin", &[]);
    let begun = std::time::Instant::now();
    assert_eq!(worker.http().get("/small.txt").status, 200);
    assert!(begun.elapsed() < DEADLINE);
}
