//! The web servers of Debian 12, as their example configs have them, in front of a worker with a FastCGI program:
//! what each must carry through, and who may see what where a program decides it.

use hostler_tests::{
    http::Connection,
    net::{Address, Listener},
    place::{self, Place},
    program::{eventually, lives},
    relay::{on, perl, program},
    web::{Front, Kind, examples},
    worker::Worker,
};
use nix::unistd::Pid;
use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// A program for all that a front must carry through, by the path that is asked for.
const STORY: &str = r#"
$SIG{PIPE} = 'IGNORE';
my $path = ($ENV{SCRIPT_NAME} // '') . ($ENV{PATH_INFO} // '');
if ($path =~ /missing/) { print "Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\nnot here"; next }
print "Content-Type: text/plain\r\nX-Pid: $$\r\n\r\n";
if ($path =~ /slow/) {
  print "first\n"; $request->Flush();
  select(undef, undef, undef, 0.01) until -e "$place/go";
  print "second\n"; next;
}
if ($path =~ /endless/) {
  note('began', $$);
  for (1 .. 1000000) { print 'x' x 8000 or last; select(undef, undef, undef, 0.001) }
  note('ended', $$); next;
}
my ($sum, $piece) = (0, '');
my $left = $ENV{CONTENT_LENGTH} || 0;
while ($left > 0 && (my $n = read STDIN, $piece, 65536)) { $sum += unpack '%32C*', $piece; $left -= $n }
print "$ENV{REQUEST_METHOD} $ENV{QUERY_STRING} ", $sum % 2**32;
"#;

struct Story {
    front: Front,
    worker: Worker,
    place: Place,
}

fn story(kind: Kind) -> Story {
    story_with(|socket, site| Front::start(kind, socket, site))
}

fn story_with(front: impl FnOnce(&Path, &Path) -> Front) -> Story {
    let place = Place::new();
    place.file("site/index.html", "");
    // Programs here run as whoever runs the tests.
    let listener = Listener::unix(&place.path("site.sock"));
    let worker = on(&listener, perl(&place, STORY));
    let Address::Unix(socket) = &worker.address else { unreachable!() };
    let front = front(socket, &place.path("site"));
    Story { front, worker, place }
}

fn noted(place: &Place, name: &str) -> Pid {
    Pid::from_raw(eventually(name, || fs::read_to_string(place.path(name)).ok()?.trim().parse().ok()))
}

fn sum(body: &[u8]) -> u32 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}

/// Sends a body while the answer is read.
fn post(client: &mut Connection, path: &str, body: &[u8]) -> String {
    let mut writer = client.stream().again();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&[head.as_bytes(), body].concat()).unwrap());
        client.answer("POST").unwrap().text()
    })
}

fn carries(kind: Kind) {
    carries_through(kind.name(), story(kind));
}

fn carries_through(name: &str, Story { front, worker, place }: Story) {
    let mut client = front.connect();
    let said = || format!("{name} {:#?} {:#?}", front.program.lines(), worker.program.lines());
    for n in 0..5 {
        let answer = client.get(&format!("/app?n={n}"));
        assert_eq!((answer.status, answer.text()), (200, format!("GET n={n} 0")), "{}", said());
    }
    client.ask("HEAD", "/app?h", &[]);
    let answer = client.answer("HEAD").unwrap();
    assert_eq!(answer.status, 200, "HEAD {}", said());
    let mut client = front.connect();
    let answer = client.get("/missing");
    assert_eq!((answer.status, answer.text().as_str()), (404, "not here"), "{}", said());
    for size in [10, 100_000, 3 << 20] {
        let body = place::bytes(size, 5);
        let mut client = front.connect();
        assert_eq!(post(&mut client, "/app?p", &body), format!("POST p {}", sum(&body)), "{size} {}", said());
    }
    streams(&front, &place);
    aborts(&front, &place);
    let answer = front.connect().get("/app?after");
    assert_eq!(answer.text(), "GET after 0", "{}", said());
}

fn streams(front: &Front, place: &Place) {
    let mut client = front.connect();
    client.ask("GET", "/slow", &[]);
    let mut seen = Vec::new();
    let mut until = |text: &str| {
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(text) {
            let n = client.stream().read(&mut piece).unwrap_or_else(|e| panic!("{text} does not come: {e}"));
            assert!(n > 0, "{:?} ends without {text}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..n]);
        }
    };
    until("first\n");
    place.file("go", "");
    until("second\n");
}

fn aborts(front: &Front, place: &Place) {
    let mut client = front.connect();
    client.ask("GET", "/endless", &[]);
    let program = noted(place, "began");
    let mut piece = [0; 100];
    let _ = client.stream().read(&mut piece).unwrap();
    drop(client);
    assert_eq!(noted(place, "ended"), program);
    assert!(lives(program));
}

#[test]
fn nginx_carries_everything_through() {
    carries(Kind::Nginx);
}

#[test]
fn nginx_that_gathers_no_body_carries_everything_through() {
    let story = story_with(|socket, site| {
        let changes = [
            ("/run/hostler/site.sock", socket.to_str().unwrap()),
            ("fastcgi_buffering off;", "fastcgi_buffering off; fastcgi_request_buffering off;"),
        ];
        Front::with(Kind::Nginx, "nginx.conf", &changes, site)
    });
    carries_through("nginx, fastcgi_request_buffering off", story);
}

#[test]
fn apache_carries_everything_through() {
    carries(Kind::Apache);
}

#[test]
fn apache_that_keeps_no_connections_carries_everything_through() {
    let story = story_with(|socket, site| {
        let changes = [
            ("/run/hostler/site.sock", socket.to_str().unwrap()),
            ("enablereuse=on flushpackets", "enablereuse=off flushpackets"),
        ];
        Front::with(Kind::Apache, "apache.conf", &changes, site)
    });
    carries_through("Apache, enablereuse=off", story);
}

#[test]
fn lighttpd_carries_everything_through() {
    carries(Kind::Lighttpd);
}

#[test]
fn caddy_carries_everything_through() {
    carries(Kind::Caddy);
}

#[test]
fn haproxy_carries_everything_through() {
    carries(Kind::Haproxy);
}

fn authorizer() -> hostler_worker::control::Fastcgi {
    let script: PathBuf = examples().join("apps/authorizer.pl");
    program(&["/usr/bin/perl", script.to_str().unwrap()])
}

fn allows_alice_alone(front: &Front) {
    // alice:secret, alice:wrong
    for (field, status) in [
        (None, 401),
        (Some("Authorization: Basic YWxpY2U6c2VjcmV0"), 200),
        (Some("Authorization: Basic YWxpY2U6d3Jvbmc="), 401),
        (Some("Authorization: Basic YWxpY2U6c2VjcmV0"), 200),
    ] {
        let mut client = front.connect();
        client.ask("GET", "/secret.txt", &field.into_iter().collect::<Vec<_>>());
        let answer = client.answer("GET").unwrap();
        assert_eq!(answer.status, status, "{field:?} {:#?}", front.program.lines());
        assert_eq!(answer.text().contains("the secret"), status == 200);
    }
}

#[test]
fn a_program_decides_for_apache_who_may_see_a_file() {
    let place = Place::new();
    place.file("site/secret.txt", "the secret");
    let listener = Listener::tcp();
    let worker = on(&listener, authorizer());
    let changes = [("127.0.0.1:9000", worker.address.to_string())];
    let changes: Vec<(&str, &str)> = changes.iter().map(|(from, to)| (*from, &**to)).collect();
    let front = Front::with(Kind::Apache, "apache-authnz.conf", &changes, &place.path("site"));
    allows_alice_alone(&front);
}

#[test]
fn a_program_decides_for_lighttpd_who_may_see_a_file() {
    let place = Place::new();
    place.file("site/secret.txt", "the secret");
    let listener = Listener::unix(&place.path("site.sock"));
    let worker = on(&listener, authorizer());
    let Address::Unix(socket) = &worker.address else { unreachable!() };
    let changes = [("/run/hostler/site.sock", socket.to_str().unwrap())];
    let front = Front::with(Kind::Lighttpd, "lighttpd-authorizer.conf", &changes, &place.path("site"));
    allows_alice_alone(&front);
}
