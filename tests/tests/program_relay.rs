//! The `fastcgi` runtime with a real program (Perl with FCGI.pm): how it starts and ends, and what becomes of
//! requests when it, or the client, does not keep to its part.

use hostler_tests::{
    fcgi,
    place::{self, Place},
    program::{descendants, eventually, lives},
    reader::Fault,
    relay::{apps, begun, perl, program, relay, shell},
    worker::{self, Worker, short_limits},
};
use hostler_worker::{
    control::{Fastcgi, Limits, ListenBy, Protocol, Report},
    page,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::{Read, Write},
    time::Duration,
};

const HEAD: &str = "print \"Content-Type: text/plain\\r\\n\\r\\n\";";
const ECHO: &str = "print \"Content-Type: application/octet-stream\\r\\n\\r\\n\"; my $piece; my $left = \
                    $ENV{CONTENT_LENGTH} || 0; while ($left > 0 && (my $n = read STDIN, $piece, 8192)) { print \
                    $piece; $left -= $n }";

/// The process whose id the program wrote to `name`.
fn noted(place: &Place, name: &str) -> Pid {
    Pid::from_raw(eventually(name, || fs::read_to_string(place.path(name)).ok()?.trim().parse().ok()))
}

fn gone(what: &str, pid: Pid) {
    eventually(&format!("{what} {pid} is gone"), || (!lives(pid)).then_some(()));
}

#[test]
fn a_program_answers_with_its_status_fields_and_body_over_both_protocols() {
    let place = Place::new();
    let text = "print \"Status: 404 Nope\\r\\nContent-Type: text/x-a\\r\\nX-One: 1\\r\\n\\r\\n$ENV{REQUEST_METHOD} \
                $ENV{QUERY_STRING} \".($ENV{HTTP_X_TWO}//'none').\" $ENV{SCRIPT_NAME}|$ENV{PATH_INFO}\"; print STDERR \
                \"a complaint\\n\";";
    let worker = relay(Protocol::Http, perl(&place, text));
    let mut client = worker.http();
    for _ in 0..3 {
        client.ask("GET", "/a/b?c=d", &["X-Two: two"]);
        let answer = client.answer("GET").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (404, "GET c=d two |/a/b"));
        assert_eq!((answer.field("content-type"), answer.field("x-one")), (Some("text/x-a"), Some("1")));
    }
    client.ask("HEAD", "/", &[]);
    assert_eq!(client.answer("HEAD").unwrap().status, 404);
    let line = worker.program.line("a complaint");
    assert!(line.contains("[GET /a/b?c=d]"), "{line}");

    let worker = relay(Protocol::Fastcgi, perl(&place, text));
    let mut client = worker.connect();
    for _ in 0..3 {
        let request = fcgi::Request::get("/x?y").with("HTTP_PROXY", "http://evil").with("PATH_INFO", "/i");
        client.stream().write_all(&request.to_bytes()).unwrap();
        let answer = client.answer(1, "GET").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (404, "GET y none /x|/i"));
    }
}

#[test]
fn a_program_gets_its_own_environment_and_nothing_of_the_workers() {
    let place = Place::new();
    let text = format!(
        "{HEAD} open(my $f, '<', \"/proc/$$/environ\"); local $/; print join \"\\n\", split /\\0/, <$f>;"
    );
    let mut settings = perl(&place, &text);
    settings.env = vec![("MINE".into(), "1".into())];
    let worker = relay(Protocol::Fastcgi, settings);
    let mut client = worker.connect();
    let request = fcgi::Request::get("/").with("HTTP_PROXY", "http://evil");
    client.stream().write_all(&request.to_bytes()).unwrap();
    let text = client.answer(1, "GET").unwrap().text();
    assert!(text.contains("MINE=1") && text.contains("PATH=/usr/local/bin:/usr/bin:/bin"), "{text}");
    assert!(!text.contains("CARGO") && !text.contains("HTTP_PROXY") && !text.contains("HOSTLER"), "{text}");
}

#[test]
fn a_body_is_echoed_without_a_deadlock_however_long_it_is() {
    let place = Place::new();
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let worker = relay(protocol, perl(&place, ECHO));
        for size in [0, 1, 70_000, 400 * 1024, 3 << 20] {
            let body = place::bytes(size, 7);
            let echoed = match protocol {
                Protocol::Http => {
                    let mut client = worker.http();
                    let mut writer = client.stream().again();
                    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
                    std::thread::scope(|scope| {
                        scope.spawn(|| writer.write_all(&[head.as_bytes(), &body].concat()).unwrap());
                        client.answer("POST").unwrap().body
                    })
                }
                Protocol::Fastcgi => {
                    let mut client = worker.connect();
                    let mut writer = client.stream().again();
                    std::thread::scope(|scope| {
                        let bytes = fcgi::Request::post("/", &body).to_bytes();
                        scope.spawn(move || writer.write_all(&bytes).unwrap());
                        client.answer(1, "POST").unwrap().body
                    })
                }
            };
            assert!(echoed == body, "{} of {size} bytes", echoed.len());
        }
        assert_eq!(worker.counters().word(page::WORD_ERRORS), 0);
    }
}

#[test]
fn a_body_without_a_length_comes_with_one() {
    let place = Place::new();
    let worker =
        relay(Protocol::Http, perl(&place, &format!("{ECHO} print \" of $ENV{{CONTENT_LENGTH}}\";")));
    let mut client = worker.http();
    client.ask("POST", "/", &["Transfer-Encoding: chunked"]);
    client.send("5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.answer("POST").unwrap().text(), "helloabc of 8");
    let body = place::bytes(200_000, 1);
    let mut client = worker.http();
    client.ask("POST", "/", &["Transfer-Encoding: chunked"]);
    client.send([b"30d40\r\n", &body[..], b"\r\n0\r\n\r\n"].concat());
    assert!(client.answer("POST").unwrap().body == [&body[..], b" of 200000"].concat());
}

#[test]
fn output_is_sent_as_it_is_made() {
    let place = Place::new();
    let text = format!(
        "{HEAD} print \"first\\n\"; $request->Flush(); select(undef, undef, undef, 0.01) until -e \"$place/go\"; \
         print \"second\\n\";"
    );
    let worker = relay(Protocol::Http, perl(&place, &text));
    let mut client = worker.http();
    client.ask("GET", "/", &[]);
    let mut seen = String::new();
    let mut piece = [0; 4096];
    while !seen.contains("first\n") {
        let n = client.stream().read(&mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    assert!(!seen.contains("second"));
    place.file("go", "");
    while !seen.ends_with("0\r\n\r\n") {
        let n = client.stream().read(&mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    assert!(seen.contains("second\n"), "{seen}");
}

#[test]
fn a_program_that_dies_in_a_request_is_tried_once_more_and_counted() {
    let place = Place::new();
    let text = format!(
        "if (!-e \"$place/died\") {{ note('died', $$); kill 'SEGV', $$; sleep 60 }} {HEAD} print 'alive';"
    );
    let worker = relay(Protocol::Http, perl(&place, &text));
    let answer = worker.http().get("/x");
    assert_eq!((answer.status, answer.text().as_str()), (200, "alive"));
    worker.counted(page::WORD_RETRIED, 1);
    let line = worker.program.line("tried once more");
    assert!(line.contains("signal 11") && line.contains("[GET /x]"), "{line}");
}

#[test]
fn a_program_that_always_dies_and_one_that_dies_with_a_body_are_a_whole_502() {
    let place = Place::new();
    let worker = relay(Protocol::Fastcgi, perl(&place, "require POSIX; POSIX::_exit(3);"));
    let mut client = worker.connect();
    for (request, retried) in
        [(fcgi::Request::get("/"), 1), (fcgi::Request::post("/", b"body"), 1), (fcgi::Request::get("/"), 2)]
    {
        client.stream().write_all(&request.to_bytes()).unwrap();
        let answer = client.answer(1, "GET").unwrap();
        assert_eq!(answer.status, 502, "{:?}", worker.program.lines());
        worker.counted(page::WORD_RETRIED, retried);
    }
    let _ = worker.program.line("exit status 3");
}

#[test]
fn a_program_that_dies_in_its_answer_cuts_the_connection() {
    let place = Place::new();
    let text = format!("{HEAD} print 'x' x 100000; $request->Flush(); note('said', $$); sleep 60;");
    let worker = relay(Protocol::Http, perl(&place, &text));
    let mut client = worker.http();
    client.ask("GET", "/", &[]);
    let program = noted(&place, "said");
    kill(program, Signal::SIGKILL).unwrap();
    assert!(matches!(client.answer("GET"), Err(Fault::Cut)));
    assert_eq!(worker.counters().word(page::WORD_RETRIED), 0);
}

#[test]
fn what_a_dead_program_has_started_is_gone_too() {
    let place = Place::new();
    let text = format!(
        "if (!-e \"$place/child\") {{ my $pid = fork(); if (!$pid) {{ require POSIX; POSIX::setsid(); \
         note('child', $$); sleep 1000; exit }} select(undef, undef, undef, 0.01) until -e \"$place/child\"; \
         POSIX::_exit(1) if require POSIX; }} {HEAD} print 'fresh';"
    );
    let worker = relay(Protocol::Http, perl(&place, &text));
    assert_eq!(worker.http().get("/").text(), "fresh");
    gone("the child that made a session of its own", noted(&place, "child"));
}

#[test]
fn a_killed_worker_takes_its_program_and_all_below_it_along() {
    let place = Place::new();
    let text = format!(
        "my $pid = fork(); if (!$pid) {{ require POSIX; POSIX::setsid(); note('child', $$); sleep 1000; exit }} \
         select(undef, undef, undef, 0.01) until -e \"$place/child\"; {HEAD} print $$;"
    );
    let worker = relay(Protocol::Http, perl(&place, &text));
    let program = Pid::from_raw(worker.http().get("/").text().parse().unwrap());
    let all = descendants(worker.pid());
    assert!(all.contains(&program) && all.contains(&noted(&place, "child")), "{all:?}");
    worker.program.signal(Signal::SIGKILL);
    for pid in all {
        gone("a process below the worker", pid);
    }
}

#[test]
fn a_retired_worker_ends_its_program() {
    let place = Place::new();
    let mut worker = relay(Protocol::Http, perl(&place, &format!("{HEAD} print $$;")));
    let program = Pid::from_raw(worker.http().get("/").text().parse().unwrap());
    worker.let_go();
    assert_eq!(worker.program.code(), 0);
    assert!(!lives(program), "the worker waits for its program");
}

#[test]
fn a_client_that_leaves_frees_program_and_worker() {
    let place = Place::new();
    let text = format!(
        "if ($ENV{{QUERY_STRING}} eq 'on') {{ {HEAD} print 'on'; next }} $SIG{{PIPE}} = 'IGNORE'; {HEAD} note('began', \
         $$); for (1..100000) {{ print 'x' x 8000; last unless $request->Flush() || 1; last if $!{{EPIPE}}; \
         select(undef, undef, undef, 0.001) }} note('ended', $$);"
    );
    let worker = relay(Protocol::Http, perl(&place, &text));
    let mut client = worker.http();
    client.ask("GET", "/?off", &[]);
    let program = noted(&place, "began");
    drop(client);
    assert_eq!(noted(&place, "ended"), program, "it has seen that nobody listens");
    let answer = worker.http().get("/?on");
    assert_eq!((answer.status, answer.text().as_str()), (200, "on"));
    assert!(lives(program), "and was not ended for it");
}

/// A program that hangs where it is asked to, and heeds no SIGTERM then.
fn hangs(place: &Place) -> Fastcgi {
    let text = format!(
        "if ($ENV{{QUERY_STRING}} eq 'hang') {{ $SIG{{TERM}} = 'IGNORE'; $SIG{{PIPE}} = 'IGNORE'; note('hangs', $$); \
         sleep 1 while 1 }} {HEAD} print $$;"
    );
    perl(place, &text)
}

#[test]
fn a_program_over_its_requests_time_is_given_up_and_a_fresh_one_serves() {
    let place = Place::new();
    for protocol in [Protocol::Http, Protocol::Fastcgi] {
        let limits = Limits { request_timeout: Some(Duration::from_millis(500)), ..short_limits() };
        let worker = worker::own(protocol, apps(hangs(&place)), limits);
        let status = match protocol {
            Protocol::Http => worker.http().get("/?hang").status,
            Protocol::Fastcgi => {
                let mut client = worker.connect();
                client.stream().write_all(&fcgi::Request::get("/?hang").to_bytes()).unwrap();
                client.answer(1, "GET").unwrap().status
            }
        };
        assert_eq!(status, 504, "{protocol:?}");
        let hung = noted(&place, "hangs");
        gone("the program that hung", hung);
        let _ = worker.program.line("started anew");
        served_by_another(&worker, protocol, hung);
        fs::remove_file(place.path("hangs")).unwrap();
    }
}

#[test]
fn a_program_that_does_not_notice_that_its_client_left_is_given_up() {
    let place = Place::new();
    let worker = relay(Protocol::Http, hangs(&place));
    let mut client = worker.http();
    client.ask("GET", "/?hang", &[]);
    let hung = noted(&place, "hangs");
    drop(client);
    gone("the program that hung", hung);
    served_by_another(&worker, Protocol::Http, hung);
    assert_eq!(worker.counters().word(page::WORD_RETRIED), 0);
}

fn served_by_another(worker: &Worker, protocol: Protocol, before: Pid) {
    let answer = match protocol {
        Protocol::Http => worker.http().get("/").text(),
        Protocol::Fastcgi => {
            let mut client = worker.connect();
            client.stream().write_all(&fcgi::Request::get("/").to_bytes()).unwrap();
            client.answer(1, "GET").unwrap().text()
        }
    };
    let pid: i32 = answer.parse().unwrap_or_else(|e| panic!("{answer}: {e}"));
    assert_ne!(pid, before.as_raw());
    assert!(worker.program.runs(), "the same worker");
}

#[test]
fn a_program_starts_with_no_signal_blocked_or_ignored() {
    let place = Place::new();
    let text =
        format!("{HEAD} open(my $f, '<', \"$place/status\") or die; print grep {{ /^Sig(Blk|Ign)/ }} <$f>;");
    // Before Perl and FCGI.pm have set any signal themselves.
    let mut settings = perl(&place, &text);
    let copies = "while read -r line; do echo \"$line\"; done < /proc/$$/status";
    let starts = format!("{copies} > {}; exec \"$@\"", place.path("status").display());
    settings.command.splice(0..0, ["/bin/sh", "-c", &starts, "sh"].map(String::from));
    let text = relay(Protocol::Http, settings).http().get("/").text();
    let sets: Vec<u64> =
        text.split_ascii_whitespace().filter_map(|set| u64::from_str_radix(set, 16).ok()).collect();
    // The C library keeps two real-time signals for itself, which no program may use; and there is no supervisor here,
    // which would take those that this test was started with, as by nohup.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let allowed = u64::from_str_radix(own.trim(), 16).unwrap() | 0b11 << 31;
    assert!(matches!(sets[..], [0, ignored] if ignored & !allowed == 0), "{text}");
}

#[test]
fn an_answer_without_a_head_is_a_500_and_a_local_redirect_is_followed() {
    let place = Place::new();
    let text = "if ($ENV{PATH_INFO} eq '/none') { next } if ($ENV{PATH_INFO} eq '/bad') { print '<html>' x 100; next }\n\
                if ($ENV{PATH_INFO} eq '/from') { print \"Location: /to?a=b\\r\\n\\r\\n\"; next }\n\
                if ($ENV{PATH_INFO} eq '/circle') { print \"Location: /circle\\r\\n\\r\\n\"; next }\n\
                print \"Content-Type: text/plain\\r\\n\\r\\n$ENV{REQUEST_METHOD} $ENV{PATH_INFO} $ENV{QUERY_STRING}\";";
    let worker = relay(Protocol::Http, perl(&place, text));
    for (path, status) in [("/none", 500), ("/bad", 500), ("/circle", 500), ("/fine", 200)] {
        assert_eq!(worker.http().get(path).status, status, "{path}");
    }
    assert_eq!(worker.http().get("/from").text(), "GET /to a=b");
    assert_eq!(worker.http().post("/from", b"body").text(), "GET /to a=b");
}

#[test]
fn a_filter_gets_its_body_and_its_file() {
    let place = Place::new();
    let text = format!(
        "local $/; my $body = <STDIN>; $request->StartFilterData(); my $file = <STDIN>; {HEAD} print \
         \"$ENV{{FCGI_ROLE}} $body of $ENV{{FCGI_DATA_LENGTH}}: $file\";"
    );
    let worker = relay(Protocol::Fastcgi, perl(&place, &text));
    let mut client = worker.connect();
    for body in ["", "body"] {
        let request = fcgi::Request { role: fcgi::FILTER, ..fcgi::Request::post("/", body.as_bytes()) };
        let bytes = request.with("FCGI_DATA_LENGTH", "4").with("FCGI_DATA_LAST_MOD", "0").to_bytes();
        let file = [fcgi::record(fcgi::DATA, 1, b"file", 4), fcgi::record(fcgi::DATA, 1, b"", 0)].concat();
        client.stream().write_all(&[bytes, file].concat()).unwrap();
        assert_eq!(client.answer(1, "POST").unwrap().text(), format!("FILTER {body} of 4: file"));
    }
}

/// A program without a library: it tells for each request its connection's number, its id and its flags.
const BARE: &str = r#"
my $number = 0;
while (accept(my $conn, STDIN)) {
  $number++;
  my ($told, $flags) = ('', 0);
  while ((sysread($conn, my $head, 8) // 0) == 8) {
    my (undef, $type, $id, $length, $padding) = unpack 'CCnnC', $head;
    my $left = $length + $padding;
    my $content = '';
    $left -= sysread($conn, $content, $left, length $content) while $left > 0;
    last if $type == 9;
    $flags = unpack 'x2C', $content if $type == 1;
    next unless $type == 5 && !$length;
    my $text = "Content-Type: text/plain

connection $number id $id flags $flags";
    syswrite $conn, pack('CCnnCC', 1, 6, $id, length $text, 0, 0) . $text . pack('CCnnCCNN', 1, 3, $id, 8, 0, 0, 0, 0);
    last unless $flags;
  }
}
"#;

#[test]
fn a_kept_connection_has_another_id_for_each_request_and_one_that_is_not_to_be_kept_serves_one() {
    let place = Place::new();
    let path = place.file("bare.pl", BARE);
    // The first connection is that of GET_VALUES.
    for (keep_connections, told) in [
        (true, ["connection 2 id 1 flags 1", "connection 2 id 2 flags 1", "connection 2 id 1 flags 1"]),
        (false, ["connection 2 id 1 flags 0", "connection 3 id 1 flags 0", "connection 4 id 1 flags 0"]),
    ] {
        let settings = program(&["/usr/bin/perl", path.to_str().unwrap()]);
        let worker = relay(Protocol::Http, Fastcgi { keep_connections, ..settings });
        let mut client = worker.http();
        assert_eq!([(); 3].map(|()| client.get("/").text()), told);
    }
}

#[test]
fn a_program_may_bind_its_socket_itself() {
    let place = Place::new();
    let text = |address: &str| {
        format!(
            "use FCGI; my $s = FCGI::OpenSocket({address}, 5); my $r = FCGI::Request(\\*STDIN, \\*STDOUT, \\*STDERR, \
             \\%ENV, $s); while ($r->Accept() >= 0) {{ {HEAD} print 'bound' }}"
        )
    };
    for (listen_by, address) in [(ListenBy::Path, "$ENV{FCGI_LISTEN}"), (ListenBy::Argument, "$ARGV[0]")] {
        let path = place.file("own.pl", text(address));
        let mut command = vec!["/usr/bin/perl", path.to_str().unwrap()];
        if listen_by == ListenBy::Argument {
            command.push("{listen}");
        }
        let worker = relay(Protocol::Http, Fastcgi { listen_by, ..program(&command) });
        assert_eq!(worker.http().get("/").text(), "bound", "{listen_by:?}");
    }
}

#[test]
fn a_program_that_does_not_get_ready_is_told_with_its_last_words() {
    let place = Place::new();
    let dies = shell(&place, "dies", "echo first >&2; echo 'no database' >&2; exit 7");
    let hangs = shell(&place, "hangs", "echo 'waiting for godot'; exec sleep 1000");
    let short = Duration::from_millis(700);
    for (settings, told) in [
        (program(&[&dies]), vec!["did not get ready", "exit status 7", "no database"]),
        (program(&["/nowhere/to/be/found"]), vec!["/nowhere/to/be/found", "No such file"]),
        (
            Fastcgi { boot_timeout: short, ..program(&[&hangs]) },
            vec!["it listens and takes no request", "waiting for godot"],
        ),
        (
            Fastcgi { boot_timeout: short, listen_by: ListenBy::Path, ..program(&[&hangs]) },
            vec!["it does not listen", "waiting for godot"],
        ),
        (Fastcgi { concurrency: 2, ..program(&[&dies]) }, vec!["exit status 7", "no database"]),
    ] {
        let mut worker = begun(settings);
        let Report::BootFailed { message } = worker.news() else { panic!("{:?}", worker.program.lines()) };
        assert!(told.iter().all(|part| message.contains(part)), "{message:?}: {told:?}");
        assert_ne!(worker.program.code(), 0);
        assert!(descendants(worker.pid()).is_empty());
    }
}

#[test]
fn a_ready_path_is_asked_until_it_is_answered() {
    let place = Place::new();
    let text = "my $n = ($main::n // 0) + 1; $main::n = $n; print \"Status: \".($n < 3 ? 503 : 200).\"\\r\\n\\r\\n\
                $ENV{REQUEST_URI} $n\";";
    let text = text.replace(
        "Status: \".($n < 3 ? 503 : 200).\"\\r\\n",
        "Status: \".($n < 3 ? 503 : 200).\"\\r\\nX: y\\r\\n",
    );
    let worker = relay(Protocol::Http, Fastcgi { ready_path: Some("/health".into()), ..perl(&place, &text) });
    assert_eq!(worker.http().get("/first").text(), "/first 4");
}

#[test]
fn the_memory_of_the_program_counts_as_the_workers() {
    let place = Place::new();
    let text = format!("{HEAD} $main::held = 'x' x (64 << 20); print length $main::held;");
    let worker = relay(Protocol::Http, perl(&place, &text));
    assert_eq!(worker.http().get("/").text(), (64 << 20).to_string());
    eventually("its memory is seen", || (worker.counters().word(page::WORD_MEMORY) > 64 << 20).then_some(()));
}
