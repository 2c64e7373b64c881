//! The `cgi` runtime of a real worker with real scripts: RFC 3875, and what other runners of CGI scripts get wrong.

use hostler_tests::{
    fcgi,
    net::Stream,
    nginx::Nginx,
    place::{self, Place},
    program::{all_below, descendants, eventually, lives, status},
    reader::{Fault, Reader},
    worker::{self, Worker, short_limits},
};
use hostler_worker::control::{App, Cgi, Limits, Protocol, Runtime};
use nix::{sys::signal::Signal, unistd::Pid};
use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

/// Scripts by name; each becomes an executable `sh` script.
fn scripts(scripts: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for (name, text) in scripts {
        let path = place.file(&format!("bin/{name}"), format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    place
}

fn apps(place: &Place) -> Vec<App> {
    let cgi = Cgi {
        root: place.path("bin").to_str().unwrap().into(),
        script_filename: true,
        index: vec!["index.cgi".into()],
        owner: None,
        env: vec![("PLACE".into(), place.path("").to_str().unwrap().into())],
    };
    vec![App { host: None, path: "/cgi".into(), runtime: Runtime::Cgi(cgi) }]
}

fn http(place: &Place) -> Worker {
    worker::own(Protocol::Http, apps(place), short_limits())
}

fn fastcgi(place: &Place) -> Worker {
    worker::own(Protocol::Fastcgi, apps(place), short_limits())
}

/// Waits until the process whose id a script wrote to `name` is gone.
fn gone(place: &Place, name: &str) {
    let pid = eventually(name, || {
        fs::read_to_string(place.path(name)).ok()?.trim().parse().ok().map(Pid::from_raw)
    });
    eventually(&format!("{name} {pid} is gone"), || (!lives(pid)).then_some(()));
}

const HEAD: &str = "printf 'Content-Type: text/plain\\n\\n'";

#[test]
fn a_script_answers_with_its_status_fields_and_body() {
    let place = scripts(&[(
        "a.cgi",
        "printf 'Status: 404 Nope\\r\\nContent-Type: text/x-a\\r\\nX-One: 1\\r\\n\\r\\nbody of %s' \"$REQUEST_METHOD\"",
    )]);
    let worker = http(&place);
    let answer = worker.http().get("/cgi/a.cgi");
    assert_eq!((answer.status, answer.text().as_str()), (404, "body of GET"));
    assert_eq!((answer.field("content-type"), answer.field("x-one")), (Some("text/x-a"), Some("1")));
    let mut client = worker.http();
    client.ask("HEAD", "/cgi/a.cgi", &[]);
    assert_eq!(client.answer("HEAD").unwrap().status, 404);
    assert_eq!(client.get("/cgi/a.cgi").status, 404, "on the same connection");
}

#[test]
fn a_script_is_told_of_the_request_and_of_nothing_else() {
    let place = scripts(&[("env.cgi", &format!("{HEAD}; pwd; env; ls /proc/self/fd | tr '\\n' ' '"))]);
    let worker = fastcgi(&place);
    let mut client = worker.connect();
    let request = fcgi::Request::get("/cgi/env.cgi/extra%20path?a=b")
        .without("SCRIPT_NAME")
        .with("SCRIPT_NAME", "/cgi/env.cgi/extra path")
        .with("HTTP_PROXY", "http://evil")
        .with("HTTP_X_TWO", "two");
    client.stream().write_all(&request.to_bytes()).unwrap();
    let text = client.answer(1, "GET").unwrap().text();
    let lines: Vec<&str> = text.lines().collect();
    let root = place.path("bin");
    assert_eq!(lines[0], root.to_str().unwrap());
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1",
        "REQUEST_METHOD=GET",
        "SCRIPT_NAME=/cgi/env.cgi",
        "PATH_INFO=/extra path",
        "QUERY_STRING=a=b",
        "HTTP_X_TWO=two",
        "SERVER_PROTOCOL=HTTP/1.1",
        &format!("SCRIPT_FILENAME={}", root.join("env.cgi").display()),
        &format!("PATH_TRANSLATED={}/extra path", root.display()),
    ] {
        assert!(lines.contains(&line), "{line} in {text}");
    }
    for name in ["HTTP_PROXY", "CARGO", "HOME=", "CONTENT_LENGTH"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert_eq!(lines.last(), Some(&"0 1 2 3 "), "3 is of ls itself: {text}");
}

#[test]
fn a_post_of_any_size_is_echoed_without_a_deadlock() {
    let early = format!("{HEAD}; exec cat");
    let late = format!("cat > \"$PLACE/body.$$\"; {HEAD}; cat \"$PLACE/body.$$\"");
    let place = scripts(&[("early.cgi", &early), ("late.cgi", &late)]);
    let (http, fastcgi) = (http(&place), fastcgi(&place));
    for len in [0, 1, 65_535, 65_536, 65_537, 130_000, 200_000, 400 * 1024, 5 << 20] {
        let body = place::bytes(len, 7);
        for script in ["/cgi/early.cgi", "/cgi/late.cgi"] {
            let answer = http.http().post(script, &body);
            assert!(answer.body == body, "http {script}: {} of {len} bytes", answer.body.len());
            let mut client = fastcgi.connect();
            client.stream().write_all(&fcgi::Request::post(script, &body).to_bytes()).unwrap();
            let answer = client.answer(1, "POST").unwrap();
            assert!(answer.body == body, "fastcgi {script}: {} of {len} bytes", answer.body.len());
        }
    }
    for worker in [http, fastcgi] {
        let peak = status(worker.pid(), "VmHWM").unwrap();
        assert!(peak < 16 * 1024, "{peak} KiB at most");
    }
}

#[test]
fn an_answer_that_streams_does_not_wait_for_a_script_that_leaves_its_body() {
    let script =
        format!("{HEAD}; echo first; while [ ! -e \"$PLACE/go\" ]; do sleep 0.01; done; echo second");
    let place = scripts(&[("deaf.cgi", &script)]);
    let worker = fastcgi(&place);
    let mut client = worker.connect();
    let body = place::bytes(300_000, 3);
    client.stream().write_all(&fcgi::Request::post("/cgi/deaf.cgi", &body).to_bytes()).unwrap();
    let mut text = String::new();
    let answer = client.answer_into(1, "POST", &mut |part| {
        text.push_str(std::str::from_utf8(part).unwrap());
        if text == "first\n" {
            place.file("go", "");
        }
    });
    assert_eq!((answer.unwrap().status, text.as_str()), (200, "first\nsecond\n"));
}

#[test]
fn a_chunked_body_ends_the_scripts_input() {
    let place =
        scripts(&[("count.cgi", &format!("{HEAD}; wc -c; echo \"length ${{CONTENT_LENGTH-none}}\""))]);
    let worker = http(&place);
    let mut client = worker.http();
    client.ask("POST", "/cgi/count.cgi", &["Transfer-Encoding: chunked"]);
    client.send("5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.answer("POST").unwrap().text(), "8\nlength none\n");
}

#[test]
fn a_script_that_ignores_its_input_answers() {
    let place = scripts(&[("deaf.cgi", &format!("exec <&-; {HEAD}; echo heard nothing"))]);
    let worker = fastcgi(&place);
    let mut client = worker.connect();
    let body = place::bytes(300_000, 3);
    client.stream().write_all(&fcgi::Request::post("/cgi/deaf.cgi", &body).to_bytes()).unwrap();
    assert_eq!(client.answer(1, "POST").unwrap().text(), "heard nothing\n");
    client.stream().write_all(&fcgi::Request::get("/cgi/deaf.cgi").to_bytes()).unwrap();
    assert_eq!(client.answer(1, "GET").unwrap().status, 200, "on the same connection");
}

#[test]
fn output_is_sent_as_it_is_made() {
    let place = scripts(&[(
        "slow.cgi",
        &format!("{HEAD}; echo first; while [ ! -e \"$PLACE/go\" ]; do sleep 0.01; done; echo second"),
    )]);
    let worker = http(&place);
    let mut client = worker.http();
    client.ask("GET", "/cgi/slow.cgi", &[]);
    let mut text = String::new();
    let whole = client.answer_into("GET", &mut |part| {
        text.push_str(std::str::from_utf8(part).unwrap());
        // Only the first line, come while the script still waits, makes it go on.
        if text == "first\n" {
            place.file("go", "");
        }
    });
    assert_eq!((whole.unwrap().status, text.as_str()), (200, "first\nsecond\n"));
}

#[test]
fn complaints_reach_the_log_in_whole_lines() {
    let place = scripts(&[(
        "loud.cgi",
        &format!("{HEAD}; head -c 5000 /dev/zero | tr '\\0' x >&2; echo ' long' >&2; printf 'no end' >&2"),
    )]);
    let worker = http(&place);
    assert_eq!(worker.http().get("/cgi/loud.cgi").status, 200);
    let line = worker.program.line(" long");
    assert!(line.contains(&"x".repeat(5000)), "{line}");
    assert!(worker.program.line("no end").contains("/cgi/loud.cgi"));
}

#[test]
fn fault_54_a_background_child_does_not_hold_the_answer_and_is_gone_after_it() {
    let place =
        scripts(&[("back.cgi", &format!("{HEAD}; sleep 1000 & echo $! > \"$PLACE/sleeper\"; echo done"))]);
    let worker = http(&place);
    let begun = Instant::now();
    assert_eq!(worker.http().get("/cgi/back.cgi").text(), "done\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
    gone(&place, "sleeper");
    assert_eq!(worker.http().get("/cgi/back.cgi").text(), "done\n");
}

#[test]
fn a_script_starts_with_no_signal_blocked_or_ignored() {
    let place = scripts(&[("signals.cgi", &format!("{HEAD}; grep -E '^Sig(Blk|Ign)' /proc/self/status"))]);
    let text = http(&place).http().get("/cgi/signals.cgi").text();
    // The C library keeps two real-time signals for itself, which no program may use.
    let sets: Vec<u64> =
        text.split_ascii_whitespace().filter_map(|set| u64::from_str_radix(set, 16).ok()).collect();
    assert!(matches!(sets[..], [0, ignored] if ignored & !(0b11 << 31) == 0), "{text}");
}

#[test]
fn a_process_that_left_the_scripts_group_is_gone_after_the_answer_too() {
    let hides =
        "setsid sh -c 'echo $$ > \"$PLACE/hidden\"; sleep 1000 & echo $! > \"$PLACE/deeper\"; wait' &";
    let wait = "while [ ! -s \"$PLACE/deeper\" ]; do sleep 0.01; done";
    let place = scripts(&[("hide.cgi", &format!("{HEAD}; {hides} {wait}; echo done"))]);
    let worker = http(&place);
    assert_eq!(worker.http().get("/cgi/hide.cgi").text(), "done\n");
    gone(&place, "hidden");
    gone(&place, "deeper");
    assert_eq!(descendants(worker.pid()), []);
}

#[test]
fn a_background_child_that_writes_for_ever_does_not_hold_the_answer() {
    let place =
        scripts(&[("yes.cgi", &format!("{HEAD}; echo done; yes & echo $! > \"$PLACE/yes\"; sleep 0.1"))]);
    let worker = http(&place);
    assert!(worker.http().get("/cgi/yes.cgi").text().starts_with("done\n"));
    gone(&place, "yes");
}

#[test]
fn a_client_that_leaves_ends_the_script_and_its_children() {
    let script = format!(
        "echo $$ > \"$PLACE/script\"; sleep 1000 & echo $! > \"$PLACE/child\"; {HEAD}; echo on; wait"
    );
    let place = scripts(&[("wait.cgi", &script), ("ok.cgi", &format!("{HEAD}; echo ok"))]);
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let worker = worker::own(protocol, apps(&place), short_limits());
        let request = match protocol {
            Protocol::Http => b"GET /cgi/wait.cgi HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            Protocol::Fastcgi => fcgi::Request::get("/cgi/wait.cgi").to_bytes(),
        };
        let mut stream = worker.address.connect();
        stream.write_all(&request).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        drop(stream);
        gone(&place, "script");
        gone(&place, "child");
        fs::remove_file(place.path("script")).unwrap();
        fs::remove_file(place.path("child")).unwrap();
        assert!(worker.program.runs());
    }
}

#[test]
fn a_killed_worker_takes_its_script_along() {
    let script = "echo $$ > \"$PLACE/script\"; sleep 1000 & echo $! > \"$PLACE/child\"; echo begun; wait";
    let place = scripts(&[("wait.cgi", &format!("{HEAD}; {script}"))]);
    let worker = http(&place);
    let mut client = worker.http();
    client.ask("GET", "/cgi/wait.cgi", &[]);
    // What it says comes by way of the worker, which thus knows of it.
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("begun") {
        let mut bytes = [0; 1000];
        let count = client.stream().read(&mut bytes).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&bytes[..count]);
    }
    worker.program.signal(Signal::SIGKILL);
    gone(&place, "script");
    gone(&place, "child");
}

#[test]
fn what_a_script_leaves_behind_is_ended_without_the_heir_of_the_worker() {
    let hides = "setsid sleep 1000 & echo done";
    let place = scripts(&[("hide.cgi", &format!("{HEAD}; {hides}"))]);
    let worker = http(&place);
    let heirs = all_below(worker.pid());
    assert_eq!(heirs.len(), 1);
    for _ in 0..3 {
        assert_eq!(worker.http().get("/cgi/hide.cgi").text(), "done\n");
    }
    assert_eq!(all_below(worker.pid()), heirs);
}

#[test]
fn a_web_server_that_takes_the_request_back_ends_the_script() {
    let script = format!("echo $$ > \"$PLACE/script\"; {HEAD}; echo on; exec sleep 1000");
    let place = scripts(&[("wait.cgi", &script), ("ok.cgi", &format!("{HEAD}; echo ok"))]);
    let worker = fastcgi(&place);
    let mut client = worker.connect();
    client.stream().write_all(&fcgi::Request::get("/cgi/wait.cgi").to_bytes()).unwrap();
    let _ = client.record().unwrap();
    client.stream().write_all(&fcgi::record(fcgi::ABORT, 1, &[], 0)).unwrap();
    gone(&place, "script");
    let mut client = worker.connect();
    client.stream().write_all(&fcgi::Request::get("/cgi/ok.cgi").to_bytes()).unwrap();
    assert_eq!(client.answer(1, "GET").unwrap().text(), "ok\n");
}

#[test]
fn fault_54_a_script_over_its_time_is_answered_for_and_gone() {
    let script = "echo $$ > \"$PLACE/script\"; trap '' TERM; sleep 1000 & echo $! > \"$PLACE/child\"; while :; do wait; done";
    let place = scripts(&[("hang.cgi", script)]);
    let limits = Limits { request_timeout: Some(Duration::from_millis(300)), ..short_limits() };
    let worker = worker::own(Protocol::Http, apps(&place), limits);
    assert_eq!(worker.http().get("/cgi/hang.cgi").status, 504);
    gone(&place, "script");
    gone(&place, "child");
}

#[test]
fn a_script_over_its_time_amid_its_answer_is_cut_and_gone() {
    let place =
        scripts(&[("half.cgi", &format!("echo $$ > \"$PLACE/script\"; {HEAD}; echo half; exec sleep 1000"))]);
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let limits = Limits { request_timeout: Some(Duration::from_millis(500)), ..short_limits() };
        let worker = worker::own(protocol, apps(&place), limits);
        let cut = match protocol {
            Protocol::Http => {
                let mut client = worker.http();
                client.ask("GET", "/cgi/half.cgi", &[]);
                client.answer("GET").unwrap_err()
            }
            Protocol::Fastcgi => {
                let mut client = worker.connect();
                client.stream().write_all(&fcgi::Request::get("/cgi/half.cgi").to_bytes()).unwrap();
                client.answer(1, "GET").unwrap_err()
            }
        };
        assert!(matches!(cut, Fault::Cut | Fault::Reset), "{protocol:?}: {cut:?}");
        gone(&place, "script");
        fs::remove_file(place.path("script")).unwrap();
    }
}

#[test]
fn a_script_without_a_head_is_a_500_and_one_that_dies_amid_its_body_is_cut() {
    let place = scripts(&[
        ("silent.cgi", "exit 0"),
        ("fails.cgi", "echo oops >&2; exit 3"),
        ("killed.cgi", "kill -9 $$"),
        ("html.cgi", "echo '<html>no head</html>'"),
        ("dies.cgi", &format!("{HEAD}; echo half; sleep 0.1; kill -9 $$")),
        ("nothere.cgi", ""),
        ("ok.cgi", &format!("{HEAD}; echo ok; exit 4")),
    ]);
    fs::write(place.path("bin/nothere.cgi"), "#!/no/such/interpreter\n").unwrap();
    let worker = http(&place);
    for name in ["silent", "fails", "killed", "html", "nothere"] {
        assert_eq!(worker.http().get(&format!("/cgi/{name}.cgi")).status, 500, "{name}");
    }
    let mut client = worker.http();
    client.ask("GET", "/cgi/dies.cgi", &[]);
    let cut = client.answer("GET");
    assert!(matches!(cut, Err(Fault::Cut | Fault::Reset)), "{cut:?}");
    assert_eq!(worker.http().get("/cgi/ok.cgi").text(), "ok\n");
    let _ = worker.program.line("oops");
    let _ = worker.program.line("the interpreter in its #! line is not there");
}

#[test]
fn a_location_redirects_here_or_there() {
    let place = scripts(&[
        ("remote.cgi", "printf 'Location: http://example.org/x\\n\\n'"),
        ("local.cgi", "cat > /dev/null; printf 'Location: /cgi/target.cgi/%%41/info?q=1\\n\\n'"),
        ("elsewhere.cgi", "printf 'Location: /other/app\\n\\n'"),
        ("circle.cgi", "printf 'Location: /cgi/circle.cgi\\n\\n'"),
        (
            "target.cgi",
            &format!(
                "{HEAD}; echo \"$REQUEST_METHOD $PATH_INFO $QUERY_STRING ${{CONTENT_LENGTH-none}}\"; cat"
            ),
        ),
    ]);
    let worker = http(&place);
    let answer = worker.http().get("/cgi/remote.cgi");
    assert_eq!((answer.status, answer.field("location")), (302, Some("http://example.org/x")));
    assert_eq!(worker.http().post("/cgi/local.cgi", b"body").text(), "GET /A/info q=1 none\n");
    let answer = worker.http().get("/cgi/elsewhere.cgi");
    assert_eq!((answer.status, answer.field("location")), (302, Some("/other/app")));
    assert_eq!(worker.http().get("/cgi/circle.cgi").status, 500);
}

#[test]
fn real_nginx_passes_requests_to_scripts_and_back() {
    let place = scripts(&[
        ("echo.cgi", &format!("{HEAD}; exec cat")),
        ("where.cgi", &format!("{HEAD}; echo \"$SCRIPT_NAME|$PATH_INFO|$QUERY_STRING|$CONTENT_LENGTH\"")),
        ("wait.cgi", &format!("echo $$ > \"$PLACE/script\"; {HEAD}; echo on; exec sleep 1000")),
        (
            "stream.cgi",
            &format!("{HEAD}; i=0; while [ $i -lt 200000 ]; do echo 0123456789abcdef; i=$((i+1)); done"),
        ),
    ]);
    let worker = fastcgi(&place);
    let root = place.path("bin");
    let location = format!(
        "location /cgi/ {{ include /etc/nginx/fastcgi_params; fastcgi_split_path_info ^(/cgi/[^/]+)(.*)$; \
         fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_buffering off; \
         if ($fastcgi_script_name ~ ^/cgi/(.*)$) {{ set $script $1; }} \
         fastcgi_param SCRIPT_FILENAME {}/$script; fastcgi_pass {}; }}",
        root.display(),
        worker.address
    );
    let nginx = Nginx::with("", &location);
    let mut client = nginx.connect();
    assert_eq!(client.get("/cgi/where.cgi/a%20b?q=1").text(), "/cgi/where.cgi|/a b|q=1|\n");
    assert_eq!(client.get("/cgi/where.cgi").text(), "/cgi/where.cgi|||\n");
    let body = place::bytes(400 * 1024, 9);
    let echoed = client.post("/cgi/echo.cgi", &body);
    assert!(echoed.body == body, "{} with {} of {} bytes", echoed.status, echoed.body_len, body.len());
    assert_eq!(client.get("/cgi/stream.cgi").body_len, 200_000 * 17);
    assert_eq!(client.get("/cgi/none.cgi").status, 404);
    client.ask("HEAD", "/cgi/where.cgi", &[]);
    assert_eq!(client.answer("HEAD").unwrap().status, 200);
    client.ask("GET", "/cgi/wait.cgi", &[]);
    let mut byte = [0];
    client.stream().read_exact(&mut byte).unwrap();
    drop(client);
    gone(&place, "script");
    assert_eq!(nginx.connect().get("/cgi/where.cgi").status, 200);
}

#[test]
fn a_script_that_frames_its_answer_itself_is_framed_anew_or_refused() {
    const NPH: [(&str, u16, &str); 6] = [
        ("HTTP/1.0 203 Odd\\r\\nContent-Type: text/plain\\r\\nConnection: close\\r\\n\\r\\nraw", 203, "raw"),
        ("HTTP/1.1 200 OK\\nContent-Type: text/plain\\nContent-Length: 3\\n\\nraw", 200, "raw"),
        ("HTTP/1.1 302 Found\\r\\nLocation: /cgi/nph-0.cgi\\r\\n\\r\\n", 302, ""),
        (
            "HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n1\\r\\na\\r\\n0\\r\\n\\r\\n",
            500,
            "500",
        ),
        ("HTTP/1.1 100 Continue\\r\\n\\r\\nHTTP/1.1 200 OK\\r\\n\\r\\n", 500, "500"),
        ("HTTP/1.1 200 OK\\nContent-Length: 3\\n\\nlonger", 500, "500"),
    ];
    let named: Vec<_> = NPH
        .iter()
        .enumerate()
        .map(|(at, nph)| (format!("nph-{at}.cgi"), format!("printf '{}'", nph.0)))
        .collect();
    let place = scripts(&named.iter().map(|(name, text)| (&name[..], &text[..])).collect::<Vec<_>>());
    let worker = http(&place);
    let mut client = worker.http();
    for (at, (_, status, body)) in NPH.iter().enumerate() {
        let answer = client.get(&format!("/cgi/nph-{at}.cgi"));
        assert_eq!(answer.status, *status, "{at}");
        assert!(answer.text().starts_with(body), "{at}: {}", answer.text());
    }
}

#[test]
fn only_executable_files_beneath_the_root_run() {
    let place = scripts(&[
        ("a.cgi", &format!("{HEAD}; echo ran")),
        ("sub/index.cgi", &format!("{HEAD}; echo index")),
    ]);
    fs::write(place.path("bin/data"), "").unwrap();
    let outside = place.file("out.cgi", format!("#!/bin/sh\n{HEAD}; echo out\n"));
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("../out.cgi", place.path("bin/link.cgi")).unwrap();
    let worker = http(&place);
    let mut client = worker.http();
    for (target, status) in [
        ("/cgi/a.cgi", 200),
        ("/cgi/sub/", 200),
        ("/cgi/sub", 301),
        ("/cgi/data", 403),
        ("/cgi/", 403),
        ("/cgi/none.cgi", 404),
        ("/cgi/link.cgi", 404),
        ("/cgi/..%2fout.cgi", 404),
        ("/a.cgi", 404),
    ] {
        assert_eq!(client.get(target).status, status, "{target}");
    }
    let worker = fastcgi(&place);
    let mut client: Reader<Stream> = worker.connect();
    for (name, status) in
        [("bin/a.cgi", 200), ("bin/a.cgi/more", 200), ("out.cgi", 403), ("bin/../out.cgi", 404)]
    {
        let name = format!("{}/{name}", place.path("").to_str().unwrap().trim_end_matches('/'));
        let request = fcgi::Request::get("/cgi/anything").with("SCRIPT_FILENAME", name.as_bytes());
        client.stream().write_all(&request.to_bytes()).unwrap();
        assert_eq!(client.answer(1, "GET").unwrap().status, status, "{name}");
    }
}
