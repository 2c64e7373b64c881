//! A real site: the real nginx of the system in front of `hostler run`, over Unix and TCP sockets, with and
//! without kept connections.

use hostler_tests::{
    net::{Address, Ending, free_port},
    nginx::Nginx,
    place::{self, Place, checksum},
    reader::Fault,
    site::Site,
};
use std::{sync::Arc, thread, time::Duration};

/// A pool of the probe app on a Unix and a TCP socket, and one of files.
fn config(port: u16) -> String {
    format!(
        r#"
[pool.app]
listen = [{{ address = "unix:{{dir}}/app.sock", mode = "0666" }}, "tcp:127.0.0.1:{port}"]
{{user}}
runtime = "native"
command = ["{{probe}}"]
max_body = "1GiB"
[pool.app.workers]
model = "static"
count = 3

[pool.files]
listen = [{{ address = "unix:{{dir}}/files.sock", mode = "0666" }}]
{{user}}
[pool.files.workers]
model = "static"
count = 1
[[pool.files.app]]
path = "/"
runtime = "files"
root = "{{dir}}/www"
"#
    )
}

struct Whole {
    site: Site,
    fronts: Vec<(&'static str, Nginx)>,
}

/// The site, and an nginx for each way to reach it.
fn started() -> Whole {
    started_with("")
}

fn started_with(directives: &str) -> Whole {
    let place = Place::new();
    place.file("www/index.html", "<p>the page</p>\n");
    place.file("www/data.bin", place::bytes(100_000, 1));
    place.file("www/sub/index.html", "<p>below</p>\n");
    let port = free_port();
    let site = Site::start_in(place, &config(port));
    let (unix, tcp) = (site.address("app.sock"), Address::Tcp(([127, 0, 0, 1], port).into()));
    let fronts = vec![
        ("Unix, fresh", Nginx::start(&unix, 0, directives)),
        ("Unix, kept", Nginx::start(&unix, 8, directives)),
        ("TCP, fresh", Nginx::start(&tcp, 0, directives)),
        ("TCP, kept", Nginx::start(&tcp, 8, directives)),
    ];
    Whole { site, fronts }
}

impl Whole {
    fn files(&self) -> Nginx {
        Nginx::start(&self.site.address("files.sock"), 4, "")
    }

    fn end(self) {
        for (way, front) in &self.fronts {
            assert_eq!(front.errors(), Vec::<String>::new(), "{way}");
        }
        drop(self.fronts);
        self.site.stop(nix::sys::signal::Signal::SIGTERM);
    }
}

#[test]
fn get_head_and_form_post_pass() {
    let whole = started();
    for (way, front) in &whole.fronts {
        for _ in 0..3 {
            let mut client = front.connect();
            let answer = client.get("/env?a=b");
            assert_eq!(answer.status, 200, "{way}");
            assert!(answer.text().contains("QUERY_STRING=a=b"), "{way}: {}", answer.text());
            client.ask("HEAD", "/env", &[]);
            let head = client.answer("HEAD").unwrap();
            assert_eq!((head.status, head.body_len), (200, 0), "{way}");
            assert_eq!(client.post("/echo", b"name=value&x=y").text(), "name=value&x=y", "{way}");
        }
        let form = front.curl(&["--data-urlencode", "text=a=b&c", "http://localhost/echo"]);
        assert_eq!(String::from_utf8_lossy(&form), "text=a%3Db%26c", "{way}");
    }
    whole.end();
}

#[test]
fn a_body_of_100_mib_comes_back_as_it_went() {
    let whole = started();
    let place = Place::new();
    let upload = place.file("upload", place::bytes(100 << 20, 3));
    let sum = checksum(std::fs::File::open(&upload).unwrap()).unwrap();
    let data = format!("@{}", upload.display());
    for (way, front) in &whole.fronts {
        let body = front.curl(&["--data-binary", &data, "http://localhost/back"]);
        assert!(body.len() == 100 << 20, "{way}: {} bytes", body.len());
        assert_eq!(checksum(body.as_slice()).unwrap(), sum, "{way}");
    }
    whole.end();
}

#[test]
fn chunked_bodies_pass_with_and_without_buffering_in_nginx() {
    for directives in ["", "fastcgi_request_buffering off;"] {
        let whole = started_with(directives);
        let place = Place::new();
        for len in [0, 10, 70_000, 3_000_000] {
            let body = place::bytes(len, 5);
            let data = format!("@{}", place.file("upload", &body).display());
            for (way, front) in &whole.fronts {
                let chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect:", "--data-binary", &data];
                let came = front.curl(&[&chunked[..], &["http://localhost/back"]].concat());
                assert!(came == body, "{way}, {directives:?}: {len} bytes came back as {}", came.len());
            }
        }
        whole.end();
    }
}

#[test]
fn files_ranges_and_conditions_pass() {
    let whole = started();
    let front = whole.files();
    let data = place::bytes(100_000, 1);
    let mut client = front.connect();
    for _ in 0..2 {
        let page = client.get("/");
        assert_eq!((page.status, page.text().as_str()), (200, "<p>the page</p>\n"));
        assert!(page.field("content-type").unwrap().starts_with("text/html"));
        let all = client.get("/data.bin");
        assert!(all.status == 200 && all.body == data);
        let (tag, date) = (all.field("etag").unwrap(), all.field("last-modified").unwrap());

        client.ask("GET", "/data.bin", &["Range: bytes=10-19"]);
        let part = client.answer("GET").unwrap();
        assert_eq!((part.status, part.field("content-range")), (206, Some("bytes 10-19/100000")));
        assert_eq!(part.body, data[10..20]);
        client.ask("GET", "/data.bin", &["Range: bytes=-5"]);
        assert_eq!(client.answer("GET").unwrap().body, data[data.len() - 5..]);
        client.ask("GET", "/data.bin", &["Range: bytes=0-1,100-101"]);
        let parts = client.answer("GET").unwrap();
        assert_eq!(parts.status, 206);
        assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges"));
        client.ask("GET", "/data.bin", &["Range: bytes=200000-"]);
        assert_eq!(client.answer("GET").unwrap().status, 416);

        for condition in [format!("If-None-Match: {tag}"), format!("If-Modified-Since: {date}")] {
            client.ask("GET", "/data.bin", &[&condition]);
            let answer = client.answer("GET").unwrap();
            assert_eq!((answer.status, answer.body_len), (304, 0), "{condition}");
        }
        assert_eq!(client.get("/nowhere").status, 404);
        let redirect = client.get("/sub");
        assert_eq!(redirect.status, 301);
        assert!(redirect.field("location").unwrap().ends_with("/sub/"), "{redirect:?}");
        assert_eq!(client.get("/sub/").text(), "<p>below</p>\n");
    }
    whole.end();
}

#[test]
fn an_endless_answer_stops_when_the_client_leaves() {
    let whole = started();
    for (way, front) in &whole.fronts {
        // More clients than workers: each of them has to come free again.
        for _ in 0..8 {
            let mut client = front.connect();
            client.ask("GET", "/stream?bytes=100000000000000", &[]);
            assert_eq!(client.stream().ending(Duration::from_millis(20)), Ending::Open, "{way}");
            drop(client);
        }
        for _ in 0..8 {
            assert_eq!(front.connect().get("/echo").status, 200, "{way}");
        }
    }
    let Whole { site, fronts } = whole;
    drop(fronts);
    site.stop(nix::sys::signal::Signal::SIGTERM);
}

#[test]
fn an_answer_that_is_cut_does_not_pass_for_a_whole_one() {
    let whole = started();
    for (way, front) in &whole.fronts {
        let mut client = front.connect();
        client.ask("GET", "/cut?bytes=300000", &[]);
        assert_eq!(client.answer("GET"), Err(Fault::Cut), "{way}");
        assert_eq!(front.connect().get("/echo").status, 200, "{way}");
    }
    let Whole { site, fronts } = whole;
    drop(fronts);
    site.stop(nix::sys::signal::Signal::SIGTERM);
}

#[test]
fn a_thousand_requests_on_32_connections_get_their_own_bodies() {
    let whole = started();
    for (way, front) in &whole.fronts {
        let front = Arc::new(front.address.clone());
        let clients: Vec<_> = (0..32)
            .map(|seed| {
                let front = Arc::clone(&front);
                thread::spawn(move || {
                    let mut client = hostler_tests::http::Connection::to(&front);
                    let mut noise = place::Noise::new(seed);
                    for _ in 0..32 {
                        let body = place::bytes(noise.below(40_000), noise.number());
                        let answer = client.post("/echo", &body);
                        let (sent, came) = (checksum(body.as_slice()), checksum(answer.body.as_slice()));
                        assert_eq!((answer.status, came.unwrap()), (200, sent.unwrap()));
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap_or_else(|_| panic!("{way}"));
        }
    }
    whole.end();
}
