//! The runtime on real directories.

use super::{
    Files, Question, control,
    reply::{Body, Reply},
};
use http::StatusCode;
use std::{
    fs,
    io::Read,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

/// A directory of its own for a test, removed at its end: `site` in it is the root, beside it lies a secret.
struct Site(PathBuf);

impl Site {
    fn new() -> Site {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hostler-files-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("site/dir")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        let site = Site(path);
        site.write("index.html", "<p>front");
        site.write("a.txt", "0123456789");
        site.write("dir/b.txt", "b");
        site
    }

    fn root(&self) -> PathBuf {
        self.0.join("site")
    }

    /// Writes a file and lets it be old, so that its tag is a strong one.
    fn write(&self, name: &str, content: &str) {
        fs::write(self.root().join(name), content).unwrap();
        let file = fs::File::options().write(true).open(self.root().join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.root().join(name)).unwrap();
    }

    fn settings(&self) -> control::Files {
        control::Files {
            root: self.root().to_str().unwrap().into(),
            index: vec!["index.html".into()],
            listing: false,
            symlinks: control::Symlinks::Beneath,
            dot_files: false,
            precompressed: false,
            cache_control: None,
        }
    }

    fn files(&self) -> Files {
        Files::new(&self.settings()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn ask(files: &mut Files, method: &str, path: &[u8], headers: &[(&str, &str)]) -> Reply {
    ask_at(files, b"", method, path, headers)
}

fn ask_at(files: &mut Files, mount: &[u8], method: &str, path: &[u8], headers: &[(&str, &str)]) -> Reply {
    let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_bytes());
    files.reply(&Question { method: method.as_bytes(), mount, path, query: b"q=1", header: &header })
}

fn get(files: &mut Files, path: &str) -> Reply {
    ask(files, "GET", path.as_bytes(), &[])
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| *n == name).map(|(_, v)| std::str::from_utf8(v).unwrap())
    }

    /// The body as a client would get it, checked against its announced length.
    fn text(&self) -> String {
        let mut out = Vec::new();
        let span = |file: &fs::File, span: super::range::Span| {
            let mut bytes = vec![0; usize::try_from(span.len).unwrap()];
            file.read_exact_at(&mut bytes, span.start).unwrap();
            bytes
        };
        match &self.body {
            Body::None => {}
            Body::Bytes(bytes) => out.extend_from_slice(bytes),
            Body::Span(file, one) => out.extend(span(file, *one)),
            Body::Parts(file, parts, end) => {
                for (head, one) in parts {
                    out.extend_from_slice(head.as_bytes());
                    out.extend(span(file, *one));
                }
                out.extend_from_slice(end.as_bytes());
            }
        }
        assert_eq!(self.body.len().unwrap_or(0), out.len() as u64);
        String::from_utf8(out).unwrap()
    }
}

#[test]
fn a_file_is_served_with_its_type_tag_and_date() {
    let site = Site::new();
    let reply = get(&mut site.files(), "/a.txt");
    assert_eq!((reply.status, reply.text().as_str()), (StatusCode::OK, "0123456789"));
    assert_eq!(reply.header("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(reply.header("Last-Modified"), Some("Sun, 09 Sep 2001 01:46:40 GMT"));
    assert!(reply.header("ETag").unwrap().starts_with("\"3b9aca00-0-a-"));
    assert_eq!(reply.header("Accept-Ranges"), Some("bytes"));
    assert_eq!(reply.header("Vary"), None);
}

#[test]
fn the_bare_root_and_a_slash_serve_the_index() {
    let site = Site::new();
    assert_eq!(get(&mut site.files(), "/").text(), "<p>front");
    assert_eq!(get(&mut site.files(), "").text(), "<p>front");
    assert_eq!(ask_at(&mut site.files(), b"/static", "GET", b"/", &[]).text(), "<p>front");
}

#[test]
fn a_directory_without_its_slash_is_redirected_with_the_query() {
    let site = Site::new();
    let reply = ask_at(&mut site.files(), b"/static", "GET", b"/dir", &[]);
    assert_eq!(reply.status, StatusCode::MOVED_PERMANENTLY);
    assert_eq!(reply.header("Location"), Some("/static/dir/?q=1"));
    let reply = ask_at(&mut site.files(), b"/static", "GET", b"", &[]);
    assert_eq!(reply.header("Location"), Some("/static/?q=1"));
    let reply = get(&mut site.files(), "//dir");
    assert_eq!(reply.header("Location"), Some("/dir/?q=1"));
}

#[test]
fn a_file_is_no_directory() {
    let site = Site::new();
    assert_eq!(get(&mut site.files(), "/a.txt/").status, StatusCode::NOT_FOUND);
    assert_eq!(get(&mut site.files(), "/a.txt/x").status, StatusCode::NOT_FOUND);
}

#[test]
fn the_first_index_that_is_a_file_is_served() {
    let site = Site::new();
    fs::create_dir(site.root().join("dir/index.html")).unwrap();
    site.write("dir/default.htm", "second");
    let mut settings = site.settings();
    settings.index.push("default.htm".into());
    assert_eq!(get(&mut Files::new(&settings).unwrap(), "/dir/").text(), "second");
}

#[test]
fn a_directory_without_index_is_forbidden_or_listed() {
    let site = Site::new();
    assert_eq!(get(&mut site.files(), "/dir/").status, StatusCode::FORBIDDEN);
    assert_eq!(get(&mut site.files(), "/none/").status, StatusCode::NOT_FOUND);
    site.write("dir/.hidden", "");
    site.link("../a.txt", "dir/inside");
    site.link("/etc/passwd", "dir/outside");
    fs::create_dir(site.root().join("dir/sub")).unwrap();
    let mut files = Files::new(&control::Files { listing: true, ..site.settings() }).unwrap();
    let page = get(&mut files, "/dir/").text();
    for shown in ["b.txt", "inside", "sub/", "../", "<title>/dir/</title>"] {
        assert!(page.contains(shown), "{shown} in {page}");
    }
    for hidden in [".hidden", "outside"] {
        assert!(!page.contains(hidden), "{hidden} in {page}");
    }
}

#[test]
fn no_path_leads_out_of_the_root() {
    let site = Site::new();
    let absolute = site.0.join("secret");
    site.link(&absolute, "absolute");
    site.link("../secret", "relative");
    site.link("dir/../../secret", "winding");
    site.link("chain2", "chain1");
    site.link("chain3", "chain2");
    site.link("../secret", "chain3");
    site.link("circle", "circle");
    site.link("..", "up");
    site.link("/", "slash");
    site.link(format!("/proc/self/root{}", absolute.display()), "magic");
    site.link("/proc/self/cwd", "cwd");
    let out = absolute.display().to_string();
    let mut files = site.files();
    for path in [
        "/../secret",
        "/dir/../../secret",
        "/..",
        "/dir/..",
        "..",
        "/./../secret",
        "//../secret",
        "/absolute",
        "/relative",
        "/winding",
        "/chain1",
        "/chain2",
        "/circle",
        "/up/secret",
        "/up/",
        "/slash/etc/passwd",
        "/magic",
        "/cwd/Cargo.toml",
        "/a.txt\0",
        "/\0/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/dir\\..\\..\\secret",
        "/a.txt/../../secret",
        &out,
        &format!("/{out}"),
        &format!("/{}", "x".repeat(5000)),
        &"/x".repeat(3000),
    ] {
        let reply = get(&mut files, path);
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path:?}");
        assert_eq!(reply.text(), "404 Not Found\n");
    }
}

#[test]
fn magic_links_of_proc_lead_nowhere() {
    let site = Site::new();
    let held = fs::File::open(site.0.join("secret")).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
    let mut files = Files::new(&control::Files { root: "/proc/self".into(), ..site.settings() }).unwrap();
    assert_eq!(get(&mut files, "/status").status, StatusCode::OK);
    for path in ["/root/etc/passwd", "/cwd/Cargo.toml", "/exe", &format!("/fd/{fd}")] {
        assert_eq!(get(&mut files, path).status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn links_inside_the_root_are_followed_where_the_policy_says_so() {
    let site = Site::new();
    site.link("a.txt", "link");
    site.link("../a.txt", "dir/back");
    site.link("dir", "linked-dir");
    let (mut beneath, mut never) = (
        site.files(),
        Files::new(&control::Files { symlinks: control::Symlinks::Never, ..site.settings() }).unwrap(),
    );
    for path in ["/link", "/dir/back", "/linked-dir/b.txt"] {
        assert_eq!(get(&mut beneath, path).status, StatusCode::OK, "{path}");
        assert_eq!(get(&mut never, path).status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(get(&mut never, "/dir/b.txt").status, StatusCode::OK);
}

#[test]
fn a_link_that_is_switched_for_a_new_release_is_followed() {
    let site = Site::new();
    for release in ["one", "two"] {
        fs::create_dir(site.0.join(release)).unwrap();
        fs::write(site.0.join(release).join("v"), release).unwrap();
    }
    symlink("one", site.0.join("current")).unwrap();
    let root = site.0.join("current").to_str().unwrap().to_owned();
    let mut files = Files::new(&control::Files { root, ..site.settings() }).unwrap();
    assert_eq!(get(&mut files, "/v").text(), "one");
    fs::remove_file(site.0.join("current")).unwrap();
    files.root.expire();
    assert_eq!(get(&mut files, "/v").text(), "one", "while the link is gone");
    symlink("two", site.0.join("current")).unwrap();
    files.root.expire();
    assert_eq!(get(&mut files, "/v").text(), "two");
}

#[test]
fn what_is_no_regular_file_is_not_there_and_blocks_nobody() {
    let site = Site::new();
    nix::unistd::mkfifo(&site.root().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.root().join("socket")).unwrap();
    for path in ["/fifo", "/socket"] {
        assert_eq!(get(&mut site.files(), path).status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn a_file_that_the_worker_may_not_read_is_forbidden() {
    let site = Site::new();
    fs::set_permissions(site.root().join("a.txt"), fs::Permissions::from_mode(0o000)).unwrap();
    let readable = fs::File::open(site.root().join("a.txt")).is_ok(); // as root it is
    let want = if readable { StatusCode::OK } else { StatusCode::FORBIDDEN };
    assert_eq!(get(&mut site.files(), "/a.txt").status, want);
}

#[test]
fn dot_files_are_hidden_unless_allowed() {
    let site = Site::new();
    site.write(".env", "key");
    fs::create_dir(site.root().join(".well-known")).unwrap();
    site.write(".well-known/x", "x");
    assert_eq!(get(&mut site.files(), "/.env").status, StatusCode::NOT_FOUND);
    assert_eq!(get(&mut site.files(), "/.well-known/x").text(), "x");
    let mut all = Files::new(&control::Files { dot_files: true, ..site.settings() }).unwrap();
    assert_eq!(get(&mut all, "/.env").text(), "key");
}

#[test]
fn other_methods_are_told_which_there_are() {
    let site = Site::new();
    let options = ask(&mut site.files(), "OPTIONS", b"/a.txt", &[]);
    assert_eq!(
        (options.status, options.header("Allow")),
        (StatusCode::NO_CONTENT, Some("GET, HEAD, OPTIONS"))
    );
    for method in ["POST", "PUT", "DELETE", "get", "", "PROPFIND"] {
        let reply = ask(&mut site.files(), method, b"/a.txt", &[]);
        assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(reply.header("Allow"), Some("GET, HEAD, OPTIONS"));
    }
}

#[test]
fn a_client_that_has_the_file_gets_304_without_a_body() {
    let site = Site::new();
    let settings =
        control::Files { cache_control: Some("max-age=60".into()), precompressed: true, ..site.settings() };
    let mut files = Files::new(&settings).unwrap();
    let etag = get(&mut files, "/a.txt").header("ETag").unwrap().to_owned();
    let reply = ask(&mut files, "GET", b"/a.txt", &[("if-none-match", &etag)]);
    assert_eq!((reply.status, reply.body.len()), (StatusCode::NOT_MODIFIED, None));
    assert_eq!(reply.header("ETag"), Some(etag.as_str()));
    assert_eq!(reply.header("Cache-Control"), Some("max-age=60"));
    assert_eq!(reply.header("Vary"), Some("Accept-Encoding"));
    site.write("a.txt", "0123456789x");
    assert_eq!(ask(&mut files, "GET", b"/a.txt", &[("if-none-match", &etag)]).status, StatusCode::OK);
    assert_eq!(
        ask(&mut files, "GET", b"/a.txt", &[("if-match", &etag)]).status,
        StatusCode::PRECONDITION_FAILED
    );
}

#[test]
fn a_range_gets_206_and_a_wrong_one_416() {
    let site = Site::new();
    let mut files = site.files();
    let reply = ask(&mut files, "GET", b"/a.txt", &[("range", "bytes=2-4")]);
    assert_eq!((reply.status, reply.text().as_str()), (StatusCode::PARTIAL_CONTENT, "234"));
    assert_eq!(reply.header("Content-Range"), Some("bytes 2-4/10"));
    let reply = ask(&mut files, "GET", b"/a.txt", &[("range", "bytes=10-")]);
    assert_eq!(reply.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(reply.header("Content-Range"), Some("bytes */10"));
    let whole = ask(&mut files, "GET", b"/a.txt", &[("range", "bytes=2-4"), ("if-range", "\"other\"")]);
    assert_eq!((whole.status, whole.text().as_str()), (StatusCode::OK, "0123456789"));
    assert_eq!(ask(&mut files, "HEAD", b"/a.txt", &[("range", "bytes=2-4")]).status, StatusCode::OK);
    let etag = whole.header("ETag").unwrap();
    let resumed = ask(&mut files, "GET", b"/a.txt", &[("range", "bytes=8-"), ("if-range", etag)]);
    assert_eq!(resumed.text(), "89");
}

#[test]
fn several_ranges_come_as_parts() {
    let site = Site::new();
    let reply = ask(&mut site.files(), "GET", b"/a.txt", &[("range", "bytes=0-1,-2")]);
    let boundary =
        reply.header("Content-Type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
    let part = |range: &str, bytes: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{bytes}"
        )
    };
    assert_eq!(reply.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(reply.text(), format!("{}{}\r\n--{boundary}--\r\n", part("0-1", "01"), part("8-9", "89")));
    assert_eq!(reply.header("Content-Range"), None);
}

#[test]
fn a_compressed_form_that_lies_ready_is_sent_to_those_who_accept_it() {
    let site = Site::new();
    site.write("a.txt.gz", "gzip");
    let mut files = Files::new(&control::Files { precompressed: true, ..site.settings() }).unwrap();
    let reply = ask(&mut files, "GET", b"/a.txt", &[("accept-encoding", "br, gzip")]);
    assert_eq!((reply.text().as_str(), reply.header("Content-Encoding")), ("gzip", Some("gzip")));
    assert_eq!(reply.header("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(reply.header("Vary"), Some("Accept-Encoding"));
    let plain = get(&mut files, "/a.txt");
    assert_eq!((plain.text().as_str(), plain.header("Content-Encoding")), ("0123456789", None));
    assert_eq!(plain.header("Vary"), Some("Accept-Encoding"));
    assert_ne!(plain.header("ETag"), reply.header("ETag"));
    site.write("b.txt.gz", "orphan");
    assert_eq!(
        ask(&mut files, "GET", b"/b.txt", &[("accept-encoding", "gzip")]).status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(ask(&mut site.files(), "GET", b"/a.txt", &[("accept-encoding", "gzip")]).text(), "0123456789");
}

#[test]
fn an_open_file_is_served_as_it_was_when_replaced_by_rename() {
    let site = Site::new();
    let reply = get(&mut site.files(), "/a.txt");
    site.write("new", "other");
    fs::rename(site.root().join("new"), site.root().join("a.txt")).unwrap();
    assert_eq!(reply.text(), "0123456789");
}

#[test]
fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let site = Site::new();
    fs::write(site.root().join(std::ffi::OsStr::from_bytes(b"\xff \xc3\xa4")), "odd").unwrap();
    let mut content = String::new();
    let reply = ask(&mut site.files(), "GET", b"/\xff \xc3\xa4", &[]);
    let Body::Span(mut file, _) = reply.body else { panic!("no file") };
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "odd");
}

#[test]
fn settings_that_cannot_work_are_told_at_boot() {
    let site = Site::new();
    let fault = |settings: control::Files| Files::new(&settings).err().unwrap();
    assert!(
        fault(control::Files { root: "/nonexistent-root".into(), ..site.settings() })
            .contains("/nonexistent-root")
    );
    let file = site.root().join("a.txt").to_str().unwrap().to_owned();
    assert!(fault(control::Files { root: file, ..site.settings() }).contains("a.txt"));
    assert!(
        fault(control::Files { cache_control: Some("a\nb".into()), ..site.settings() })
            .contains("cache_control")
    );
    assert!(fault(control::Files { index: vec!["../x".into()], ..site.settings() }).contains("../x"));
}
