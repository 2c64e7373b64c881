//! Imports of real and of whole set-ups: each must load without a fault, and name what it leaves out.

use super::*;
use crate::config;
use std::path::PathBuf;

/// The config of an import, loaded; faults of this machine (no such user) are not of interest here.
fn loaded(text: &str) -> config::Loaded {
    let loaded = config::made(text.to_owned()).unwrap_or_else(|faults| panic!("{faults:#?}\n{text}"));
    let users = |fault: &&config::Fault| !fault.message.starts_with("there is no user");
    let faults: Vec<_> = loaded.faults.iter().filter(users).collect();
    assert!(faults.is_empty(), "{faults:#?}\n{text}");
    loaded
}

fn text(drafts: Result<Vec<Draft>, String>) -> String {
    whole(drafts.unwrap(), "test")
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

#[test]
fn the_pool_of_debians_php_fpm_loads_and_every_setting_of_it_is_accounted_for() {
    let source = include_str!("golden/www.conf");
    let path = Path::new("/etc/php/8.2/fpm/pool.d/www.conf");
    let text = text(php_fpm::read(path, source, &[]));
    has(
        &text,
        &[
            "[pool.www]",
            "address = \"unix:/run/php/php8.2-fpm.sock\"",
            "owner = \"www-data\"",
            "user = \"www-data\"",
            "model = \"dynamic\"",
            "max = 5",
            "pm.start_servers = 2: ",
            "php-cgi is not installed here",
        ],
    );
    loaded(&text);
}

#[test]
fn a_php_fpm_pool_with_everything_in_it_is_carried_over_or_named() {
    let source = "[global]\nerror_log = /var/log/x\nprocess_control_timeout = 10s\n[shop]\n\
        user = root\ngroup = root\nlisten = /run/$pool.sock\nlisten.owner = root\nlisten.group = root\n\
        listen.mode = 660\nlisten.backlog = 511\npm = ondemand\npm.max_children = 9\n\
        pm.process_idle_timeout = 10s;\npm.max_requests = 500\nrequest_terminate_timeout = 30\n\
        request_slowlog_timeout = 5s\nslowlog = log/$pool.slow\nrlimit_files = 1024\nrlimit_core = 0\n\
        chroot = /srv\nchdir = /\nenv[A] = b\nenv[PATH] = $PATH\nenv[B] = $A\nclear_env = no\n\
        php_admin_value[memory_limit] = 32M\nphp_flag[display_errors] = off\npm.status_path = /status\n\
        access.log = /var/log/$pool.access\nstrange = 1\n";
    let text = text(php_fpm::read(Path::new("x.conf"), source, &[]));
    has(
        &text,
        &[
            "unix:/run/shop.sock",
            "mode = \"0660\"",
            "backlog = 511",
            "max_requests = 500",
            "request_timeout = \"30s\"",
            "slow_log = \"5s\"",
            "idle_timeout = \"10s\"",
            "\"memory_limit=32M\"",
            "keep_env = [\"PATH\"]",
            "chroot = /srv: ",
            "pm.status_path = /status: ",
            "clear_env = no: ",
            "env[B] = $A: ",
            "strange = 1: is not known",
            "[global] error_log = /var/log/x: ",
        ],
    );
    let pool = &loaded(&text).pools[0];
    assert_eq!(pool.limits.request_timeout, Some(std::time::Duration::from_secs(30)));
    assert_eq!(pool.open_files, Some(1024));
}

#[test]
fn php_fpm_on_tcp_keeps_its_allowed_clients() {
    let source = "[a]\nuser = root\nlisten = 9000\nlisten.allowed_clients = 127.0.0.1, ::1\npm = static\npm.max_children = 3\n\
        [b]\nuser = root\nlisten = 127.0.0.1:9001\nlisten.allowed_clients = any\npm.max_children = 3\n";
    let loaded = loaded(&text(php_fpm::read(Path::new("x"), source, &[])));
    assert_eq!(loaded.pools[0].listen[0].address.to_string(), "tcp:[::]:9000");
    assert_eq!(loaded.pools[0].listen[0].allow, ["127.0.0.1", "::1"]);
    assert!(loaded.pools[1].listen[0].allow.is_empty());
}

#[test]
fn includes_of_php_fpm_are_followed() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("a.conf"), "[a]\nuser = root\nlisten = /run/a\n").unwrap();
    let source = format!("[global]\npid = /run/x\ninclude={}/*.conf\n", place.path().display());
    let text = text(php_fpm::read(Path::new("php-fpm.conf"), &source, &[]));
    has(&text, &["[pool.a]", "[global] pid = /run/x: "]);
}

#[test]
fn the_units_of_debians_fcgiwrap_load() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("fcgiwrap.service"), include_str!("golden/fcgiwrap.service")).unwrap();
    std::fs::write(at("fcgiwrap.socket"), include_str!("golden/fcgiwrap.socket")).unwrap();
    for name in ["fcgiwrap.service", "fcgiwrap.socket"] {
        let source = std::fs::read_to_string(at(name)).unwrap();
        let text = text(fcgiwrap::read(&at(name), &source));
        has(&text, &["runtime = \"cgi\"", "script_filename = true", "[pool.fcgiwrap]"]);
        has(&text, &["address = \"unix:/run/fcgiwrap.socket\"", "#   -f: ", "EnvironmentFile="]);
        assert!(!text.contains("DAEMON_OPTS"), "{text}");
        loaded(&text);
    }
}

#[test]
fn options_of_fcgiwrap_are_carried_over_or_named() {
    let source = "[Service]\nExecStart=/usr/sbin/fcgiwrap -c 4 -f -s tcp:127.0.0.1:9000 -p /srv/a.cgi\nUser=root\n\
        Environment=A=b C=d\nNice=5\n";
    let text = text(fcgiwrap::read(Path::new("/nowhere/w.service"), source));
    has(&text, &["count = 4", "tcp:127.0.0.1:9000", "A = \"b\"", "-p /srv/a.cgi: ", "Nice=5: "]);
    loaded(&text);
    let other = fcgiwrap::read(Path::new("/nowhere/w.service"), "[Service]\nExecStart=/bin/cat\n");
    assert!(other.unwrap_err().contains("no ExecStart= of fcgiwrap"));
}

#[test]
fn a_uwsgi_app_is_carried_over_or_named() {
    let source = "[uwsgi]\nplugins = python3\nmodule = shop.wsgi:application\nchdir = /\nsocket = /run/%n.sock\n\
        chmod-socket = 660\nchown-socket = root:root\nuid = root\nprocesses = 8\ncheaper = 2\nmaster = true\n\
        harakiri = 30\nmax-requests = 1000\nreload-on-rss = 200\nevil-reload-on-rss = 400\nenv = A=b\n\
        touch-reload = /srv/shop/reload\nvacuum = true\nstats = 127.0.0.1:1717\nstrict\nset = $(HOME)\n";
    let text = text(uwsgi::read(Path::new("/etc/uwsgi/shop.ini"), source, &[]));
    has(
        &text,
        &[
            "\"--fastcgi-socket\", \"{listen}\"",
            "\"--module\", \"shop.wsgi:application\"",
            "\"--strict\"",
            "unix:/run/shop.sock",
            "request_timeout = \"30s\"",
            "soft = \"200MiB\"",
            "hard = \"400MiB\"",
            "min = 2",
            "max = 8",
            "watch = [\"/srv/shop/reload\"]",
            "master = true: ",
            "stats = 127.0.0.1:1717: ",
            "set = $(HOME): ",
            "owner = \"root\", group = \"root\"",
            "fastcgi_pass in place of uwsgi_pass",
        ],
    );
    loaded(&text);
    assert!(!text.contains("processes = 8") && !text.contains("chown-socket"), "{text}");
    assert!(uwsgi::read(Path::new("x"), "[other]\n", &[]).is_err());
}

#[test]
fn what_uwsgi_would_end_for_on_its_command_line_is_not_put_there() {
    let source = "[uwsgi]\nwsgi-file = wsgi.py\nprocess = 2\nplugins = python3\nsingle-interpreter = True\n\
        py-call-osafterfork = 1 ; for signals\ncatch-exceptions = false\numask 027\nexec-as-root = mkdir -p /x\n\
        if-not-exists = /x\nendif =\nname = keystone-api\nlog-date = true\nsocket = app.sock\nhttp-socket = :8080\n\
        map-socket = 0:1\nuid = root\n";
    let text = text(uwsgi::read(Path::new("/etc/uwsgi/shop.ini"), source, &[]));
    has(
        &text,
        &[
            // Plugins first: they bring the options that follow.
            "\"{listen}\", \"--plugins\", \"python3\", \"--wsgi-file\", \"wsgi.py\", \"--single-interpreter\", \
             \"--py-call-osafterfork\"]",
            "process = 2: is not known here",
            "name = keystone-api: is not known here",
            "umask 027: is not known here",
            "catch-exceptions = false: so it is without the option",
            "exec-as-root = mkdir -p /x: is not run",
            "if-not-exists = /x: uWSGI decides by it",
            "endif: uWSGI decides by it",
            "log-date = true: see access_log",
            "map-socket = 0:1: Hostler sees to it",
            "unix:/etc/uwsgi/app.sock",
            "app.sock: is taken to lie beside the file",
            "{ address = \"tcp:0.0.0.0:8080\", protocol = \"http\" }",
        ],
    );
    loaded(&text);
}

#[test]
fn placeholders_of_uwsgi_are_named_and_not_taken_for_paths() {
    let source = "[uwsgi]\nsocket = /run/%(x)/socket\nmodule = a\nuid = root\nchown-socket = root\n";
    let text = text(uwsgi::read(Path::new("/etc/uwsgi/shop.ini"), source, &[]));
    has(
        &text,
        &["socket = /run/%(x)/socket: holds a placeholder", "Where to listen is not in what was imported"],
    );
    loaded(&text);
}

#[test]
fn applications_of_mono_are_carried_over_or_named() {
    let webapp = "<apps><web-application><name>a</name><vhost>a.example</vhost><vport>80</vport><vpath>/x</vpath>\
        <path>/srv/a</path><enabled>true</enabled></web-application><web-application><path>/srv/b</path>\
        <enabled>false</enabled></web-application></apps>";
    let out = text(mono::read(Path::new("a.webapp"), webapp, &[]));
    has(
        &out,
        &[
            "/applications=a.example:80:/x:/srv/a\"",
            "/socket=pipe",
            "keep_connections = false",
            "/srv/b: is not enabled",
        ],
    );
    loaded(&out);
    let out = text(mono::line("/applications=/:/srv/a,b.example:/y:/srv/b", &[]));
    has(&out, &["/applications=/:/srv/a,b.example:*:/y:/srv/b\""]);
    loaded(&out);
    assert!(mono::line("a", &[]).is_err());
    assert!(mono::read(Path::new("x"), "<apps/>", &[]).is_err());
    assert!(mono::read(Path::new("x"), "no xml", &[]).is_err());
}

#[test]
fn hyperfastcgi_keeps_its_listener_and_names_the_rest() {
    let xml = "<configuration><server type=\"x\"><threads min-worker=\"1\"/></server><listener type=\"y\">\
        <apphost-transport type=\"z\"/><protocol>InterNetwork</protocol><address>127.0.0.1</address>\
        <port>9000</port></listener><web-applications><web-application><vhost>*</vhost><vpath>/</vpath>\
        <path>/srv/a</path></web-application></web-applications></configuration>";
    let out = text(mono::read(Path::new("hyper.xml"), xml, &[]));
    has(&out, &["tcp:127.0.0.1:9000", "/applications=/:/srv/a\"", "<threads>: ", "<apphost-transport>: "]);
    loaded(&out);
}

#[test]
fn a_listener_that_is_no_address_gets_one_and_is_named() {
    let source = "[a]\nuser = root\nlisten = localhost:9001\n[b]\nuser = root\nlisten = wordpress:9002\n";
    let out = text(php_fpm::read(Path::new("x"), source, &[]));
    has(&out, &["tcp:127.0.0.1:9001", "tcp:127.0.0.1:9002", "wordpress:9002: is no address"]);
    assert!(!out.contains("localhost"), "{out}");
    loaded(&out);
    let xml = |listener: &str| {
        format!(
            "<configuration><listener type=\"y\">{listener}</listener><web-application><path>/srv/a</path>\
             </web-application></configuration>"
        )
    };
    let port = xml("<protocol>InterNetwork</protocol><address>127.0.0.1</address><port>${PORT}</port>");
    let out = text(mono::read(Path::new("x"), &port, &[]));
    has(&out, &["tcp:127.0.0.1:9000", "127.0.0.1:${PORT}: is no address"]);
    loaded(&out);
    let unix = xml("<protocol>Unix</protocol><address>unix:/run/hfc.sock</address>");
    let out = text(mono::read(Path::new("x"), &unix, &[]));
    has(&out, &["address = \"unix:/run/hfc.sock\""]);
    loaded(&out);
}

#[test]
fn of_two_pools_with_one_name_the_second_is_given_a_number() {
    let source = "[a]\nuser = root\nlisten = /run/a\n[a]\nuser = root\nlisten = /run/b\n";
    let loaded = loaded(&text(php_fpm::read(Path::new("x"), source, &[])));
    let names: Vec<&str> = loaded.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["a", "a-2"]);
}

#[test]
fn a_program_is_looked_for_by_its_version_first() {
    let place = tempfile::tempdir().unwrap();
    for name in ["php-cgi", "php-cgi8.2"] {
        std::fs::write(place.path().join(name), "").unwrap();
    }
    let path: Vec<PathBuf> = vec![place.path().to_owned()];
    let source = "[a]\nuser = root\nlisten = /run/a\n";
    let out = text(php_fpm::read(Path::new("/etc/php/8.2/fpm/pool.d/a.conf"), source, &path));
    has(&out, &["/php-cgi8.2\"]"]);
}
