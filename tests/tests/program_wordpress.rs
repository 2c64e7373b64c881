//! WordPress of Debian 12 with MariaDB under `hostler run` behind nginx, as its example config has it: a real PHP
//! application, from its own installation on.

use hostler_tests::{
    http::Answer,
    place::{Place, root},
    program::{Program, eventually},
    site::Site,
    web::{Front, Kind, copy, pool},
};
use nix::sys::signal::Signal;
use std::{
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

const CONFIG: &str = r#"<?php
define('DB_NAME', 'wordpress'); define('DB_USER', 'root'); define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:SOCKET'); define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');
foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY', 'AUTH_SALT', 'SECURE_AUTH_SALT',
    'LOGGED_IN_SALT', 'NONCE_SALT'] as $name) define($name, "not secret: $name");
$table_prefix = 'wp_';
define('WP_DEFAULT_THEME', basename(glob(__DIR__ . '/wp-content/themes/*', GLOB_ONLYDIR)[0]));
define('WP_HTTP_BLOCK_EXTERNAL', true); define('DISABLE_WP_CRON', true); define('AUTOMATIC_UPDATER_DISABLED', true);
define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"#;

/// MariaDB with an empty database, on a socket in a place of its own.
struct Database {
    program: Program,
    place: Place,
}

impl Database {
    fn start() -> Database {
        let place = Place::new();
        let (data, socket) = (place.path("data"), place.path("s.sock"));
        let user: &[&str] = if root() { &["--user=root"] } else { &[] };
        let mut install = Command::new("mariadb-install-db");
        install.arg("--no-defaults").arg(format!("--datadir={}", data.display())).args(user);
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]).stdout(Stdio::null());
        assert!(install.status().expect("start mariadb-install-db").success());
        let mut command = Command::new("/usr/sbin/mariadbd");
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display())).args(user);
        command.arg(format!("--socket={}", socket.display())).args(["--skip-networking", "--skip-log-bin"]);
        command.arg(format!("--pid-file={}", place.path("pid").display()));
        let program = Program::start(&mut command);
        eventually("MariaDB answers", || {
            let mut client = Command::new("mariadb");
            client
                .arg("--no-defaults")
                .arg(format!("--socket={}", socket.display()))
                .args(["-u", "root", "-e"]);
            let made = client.arg("create database wordpress").stderr(Stdio::null()).status();
            made.expect("start mariadb").success().then_some(())
        });
        Database { program, place }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.program.dismiss();
    }
}

fn start(database: &Database) -> (Site, Front) {
    let place = Place::new();
    copy(&place, Path::new("/usr/share/wordpress"), "site");
    place.file(
        "site/wp-config.php",
        CONFIG.replace("SOCKET", database.place.path("s.sock").to_str().unwrap()),
    );
    let site = Site::start_in(place, &pool("wordpress"));
    let front = Front::start(Kind::Nginx, &site.place.path("wordpress.sock"), &site.place.path("site"));
    (site, front)
}

fn submit(front: &Front, path: &str, form: &str, cookie: &str) -> Answer {
    let mut client = front.connect();
    let (cookie, length) = (format!("Cookie: {cookie}"), format!("Content-Length: {}", form.len()));
    client.ask("POST", path, &["Content-Type: application/x-www-form-urlencoded", &cookie, &length]);
    client.send(form);
    client.answer("POST").unwrap()
}

fn page(front: &Front, path: &str, holds: &str) {
    let answer = front.connect().get(path);
    assert!(
        answer.status == 200 && answer.text().contains(holds),
        "{path}: {} {}",
        answer.status,
        answer.text()
    );
}

#[test]
#[ignore = "needs wordpress, a wordpress-theme, mariadb-server and php-mysql besides what ./test installs"]
fn wordpress_is_installed_used_and_reloaded_without_a_lost_request() {
    let database = Database::start();
    let (site, front) = start(&database);
    assert_eq!(front.connect().get("/").status, 302, "to its installation");
    let form = "weblog_title=Hosted+here&user_name=admin&admin_password=pw&admin_password2=pw&pw_weak=on&\
                admin_email=admin%40example.com&blog_public=0&Submit=Install";
    let installed = submit(&front, "/wp-admin/install.php?step=2", form, "");
    assert!(installed.text().contains("Success!"), "{}", installed.text());
    page(&front, "/", "Hosted here");
    page(&front, "/?p=1", "Hello world!");
    page(&front, "/index.php/anything?rest_route=/wp/v2/posts", "Hello world!");
    let script = front.connect().get("/wp-includes/js/wp-embed.min.js");
    assert_eq!((script.status, script.field("content-type")), (200, Some("text/javascript; charset=utf-8")));
    assert_eq!(front.connect().get("/wp-includes/none.php").status, 404);
    let entered = submit(
        &front,
        "/wp-login.php",
        "log=admin&pwd=pw&testcookie=1",
        "wordpress_test_cookie=WP+Cookie+check",
    );
    assert_eq!(entered.status, 302, "{}", entered.text());
    let set = entered.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookies: Vec<&str> = set.filter_map(|(_, value)| value.split(';').next()).collect();
    let mut client = front.connect();
    client.ask("GET", "/wp-admin/", &[&format!("Cookie: {}", cookies.join("; "))]);
    let board = client.answer("GET").unwrap();
    assert!(board.status == 200 && board.text().contains("Dashboard"), "{}", board.text());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut count = 0;
                while !over.load(Relaxed) {
                    page(&front, "/?p=1", "Hello world!");
                    count += 1;
                }
                count
            })
        });
        for _ in 0..5 {
            let output = site.command(&["reload"]);
            assert!(output.status.success(), "{output:?}");
        }
        over.store(true, Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    site.stop(Signal::SIGTERM);
}
