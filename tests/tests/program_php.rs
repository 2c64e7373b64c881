//! php-cgi under a real worker: behind a web server that names the script, and over HTTP, where the worker finds it.

use hostler_tests::{
    fcgi,
    place::{self, Place},
    relay::{program, relay},
};
use hostler_worker::{
    control::{Fastcgi, Protocol},
    page,
};
use std::io::Write;

const PHP: &str = "/usr/bin/php-cgi";

fn php(place: &Place) -> Fastcgi {
    Fastcgi {
        root: Some(place.path("site").to_str().unwrap().into()),
        index: vec!["index.php".into()],
        env: vec![("PHP_FCGI_CHILDREN".into(), "0".into()), ("PHP_FCGI_MAX_REQUESTS".into(), "0".into())],
        ..program(&[PHP])
    }
}

fn site(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for (name, text) in files {
        place.file(&format!("site/{name}"), text);
    }
    place
}

const SHOW: &str = "<?php header('Content-Type: text/plain'); foreach (['SCRIPT_NAME', 'PATH_INFO', 'REQUEST_URI', \
                    'QUERY_STRING', 'DOCUMENT_ROOT', 'PHP_SELF'] as $n) echo $n, '=', $_SERVER[$n] ?? 'none', \"\\n\";";

#[test]
fn php_is_run_over_http_with_its_script_found_on_disk() {
    let place =
        site(&[("index.php", SHOW), ("sub/page.php", SHOW), ("style.css", "body {}"), ("up/a.jpg", SHOW)]);
    let worker = relay(Protocol::Http, php(&place));
    let mut client = worker.http();
    let root = place.path("site");
    for (path, name, info) in [
        ("/", "/index.php", "none"),
        ("/sub/page.php?a=b", "/sub/page.php", "none"),
        ("/sub/page.php/more/x?a=b", "/sub/page.php", "/more/x"),
        ("/pretty/url?a=b", "/index.php", "none"),
    ] {
        let answer = client.get(path);
        let text = answer.text();
        assert_eq!(answer.status, 200, "{path}: {text}");
        for line in [
            format!("SCRIPT_NAME={name}\n"),
            format!("PATH_INFO={info}\n"),
            format!("REQUEST_URI={path}\n"),
            format!("DOCUMENT_ROOT={}\n", root.display()),
        ] {
            assert!(text.contains(&line), "{path}: {line:?} in {text}");
        }
    }
    let css = client.get("/style.css");
    assert_eq!(
        (css.text().as_str(), css.field("content-type")),
        ("body {}", Some("text/css; charset=utf-8"))
    );
    assert_eq!(client.get("/up/a.jpg").text(), SHOW, "a file that is no script is not run");
    assert_eq!(client.get("/up/a.jpg/x.php").status, 404, "and not by a script's name behind it either");
    assert_eq!(client.get("/none.php").status, 404);
    assert_eq!(client.get("/sub").status, 301);
}

#[test]
fn php_reads_bodies_and_uploads() {
    let text = "<?php header('Content-Type: text/plain'); echo strlen(file_get_contents('php://input')), ' ', \
                crc32(file_get_contents('php://input')), ' ', $_FILES['f']['size'] ?? '', ' ', $_POST['t'] ?? '';";
    let place = site(&[("index.php", text)]);
    let worker = relay(Protocol::Http, php(&place));
    let body = place::bytes(400 * 1024, 3);
    let sum = place::checksum(&body[..]).unwrap();
    assert_eq!(worker.http().post("/", &body).text(), format!("{} {sum}  ", body.len()));
    let mut client = worker.http();
    client.ask("POST", "/", &["Transfer-Encoding: chunked"]);
    client.send("5\r\nhello\r\n0\r\n\r\n");
    assert!(client.answer("POST").unwrap().text().starts_with("5 "), "a chunked body is not lost");
    let form = [
        &b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n"[..],
        &body,
        b"\r\n--b\r\nContent-Disposition: form-data; name=\"t\"\r\n\r\ntext\r\n--b--\r\n",
    ]
    .concat();
    let length = format!("Content-Length: {}", form.len());
    let mut client = worker.http();
    client.ask("POST", "/", &["Content-Type: multipart/form-data; boundary=b", &length]);
    client.send(&form);
    assert!(client.answer("POST").unwrap().text().ends_with(&format!(" {} text", body.len())));
}

#[test]
fn php_behind_a_web_server_runs_the_script_that_it_names_on_one_connection() {
    let place = site(&[("a.php", "<?php header('X-Pid: ' . getmypid()); echo $_GET['n'];")]);
    let worker = relay(Protocol::Fastcgi, Fastcgi { root: None, index: Vec::new(), ..php(&place) });
    let mut client = worker.connect();
    let mut pids = Vec::new();
    for n in 0..50 {
        let request = fcgi::Request::get(&format!("/a.php?n={n}"))
            .with("SCRIPT_FILENAME", place.path("site/a.php").to_str().unwrap());
        client.stream().write_all(&request.to_bytes()).unwrap();
        let answer = client.answer(1, "GET").unwrap();
        assert_eq!(answer.text(), n.to_string());
        pids.extend(answer.field("x-pid").map(str::to_owned));
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "one process serves all");
}

/// What php-fpm loses or closes the connection at.
#[test]
fn php_gets_a_body_without_a_length_and_parameters_cut_anywhere() {
    let text = "<?php echo strlen(file_get_contents('php://input')), ' ', $_SERVER['CONTENT_LENGTH'] ?? 'none', ' ', \
                strlen($_SERVER['LONG'] ?? '');";
    let place = site(&[("a.php", text)]);
    let worker = relay(Protocol::Fastcgi, Fastcgi { root: None, index: Vec::new(), ..php(&place) });
    let mut client = worker.connect();
    for (id, padding, cut) in [(1, 0, false), (3, 255, true), (300, 7, true), (32_767, 0, true)] {
        let mut request = fcgi::Request::post("/a.php", &[b'x'; 1000])
            .without("CONTENT_LENGTH")
            .with("SCRIPT_FILENAME", place.path("site/a.php").to_str().unwrap())
            .with("LONG", "y".repeat(300))
            .id(id);
        request.shape.padding = fcgi::Padding::Fixed(padding);
        (request.shape.cut_pairs, request.shape.params_record) = (cut, if cut { 50 } else { 0xffff });
        client.stream().write_all(&request.to_bytes()).unwrap();
        assert_eq!(client.answer(id, "POST").unwrap().text(), "1000 1000 300", "{id}");
    }
}

#[test]
fn php_that_ends_after_each_request_loses_none() {
    let place = site(&[("index.php", "<?php echo getmypid();")]);
    let mut settings = php(&place);
    settings.env = vec![("PHP_FCGI_MAX_REQUESTS".into(), "1".into())];
    let worker = relay(Protocol::Http, settings);
    let mut client = worker.http();
    let mut pids: Vec<String> = (0..10)
        .map(|_| {
            let answer = client.get("/");
            assert_eq!(answer.status, 200, "{:?}", worker.program.lines());
            answer.text()
        })
        .collect();
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 10, "each by a fresh process");
    assert_eq!(worker.counters().word(page::WORD_ERRORS), 0);
}

#[test]
fn a_fatal_error_of_php_is_its_own_500_and_the_next_request_is_served() {
    let place = site(&[("index.php", "<?php if (isset($_GET['x'])) nothing(); echo 'fine';")]);
    let worker = relay(Protocol::Http, php(&place));
    let mut client = worker.http();
    assert_eq!(client.get("/?x").status, 500);
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(worker.counters().word(page::WORD_RETRIED), 0);
}
