//! hostler-worker(7): how a program of one's own becomes a worker.
//!
//! Always holds: its example is the worker's own example `hello`, which is built and measured with each test run.

use roff::{Roff, bold, roman};

/// The smallest worker.
const HELLO: &str = include_str!("../../../worker/examples/hello.rs");

const ABOUT: &[&str] = &[
    "A worker is a process that serves one request at a time. A pool with runtime = \"native\" starts your own program as \
     its workers: it links the Rust library hostler-worker, whose run or run_app is all of its main function. The library \
     accepts connections, speaks FastCGI and HTTP, keeps connections open, gives those that wait to idle workers, and \
     answers for the app where it fails; the app sees whole requests and writes answers.",
    "The supervisor starts as many of them as the pool says, becomes the pool's user, replaces those that die, leak or hang, \
     and at a reload starts the program that is on disk then. The same program serves under any FastCGI process manager \
     that puts a listener on descriptor 0, such as spawn-fcgi(1).",
    "A program in another language needs no library: see runtime = \"fastcgi\" and runtime = \"cgi\" in hostler.toml(5).",
];

/// Name and meaning.
const CALLS: &[(&str, &str)] = &[
    (
        "run(function)",
        "Serves a function from a request to an http::Response. Its body is text, bytes, or a reader that is sent as it is read.",
    ),
    (
        "run_app(app)",
        "Serves an App: serve(request, answer) is called for each request, from one thread. An app may keep what it likes between requests; it lives as long as its worker.",
    ),
];

const REQUEST: &[(&str, &str)] = &[
    ("method, uri, path, query", "As the client sent them; path is decoded and has no dot segments."),
    (
        "script_name, path_info",
        "The app's part of the path and what follows it, by the routing of the config.",
    ),
    (
        "param(name), params",
        "Meta-variables of CGI (RFC 3875), over HTTP as well: REMOTE_ADDR, CONTENT_TYPE.",
    ),
    ("header(name)", "A header field by its name in lower case."),
    ("head", "Method, target and fields in the types of the http crate. It copies; the others do not."),
    (
        "body",
        "Read and BufRead. A body of up to 64 KiB is here before the app is called; a larger one is read as it comes. try_read does not wait.",
    ),
    ("client_gone", "Whether the client has left: to be asked in long work."),
    (
        "log(line)",
        "One line for the log, with the request that it belongs to. What the app writes to standard output and standard error is logged as well.",
    ),
];

const ANSWER: &[(&str, &str)] = &[
    (
        "head(status, fields)",
        "Once, and first. It is checked before its first byte leaves. Connection, Transfer-Encoding and the like are the worker's own.",
    ),
    ("write(bytes)", "Body bytes. They gather until they are worth a write; flush sends what is there."),
    ("send_file(file, offset, length)", "A part of a file, which is not copied through the program."),
    ("wants_no_body", "After a HEAD, or with a status that has none."),
];

const END: &[(&str, &str)] = &[
    (
        "an error before the head is out",
        "The client gets 500, or the status that the error names, as a whole answer; the log says why. A panic is the same.",
    ),
    ("an error after it", "The connection is cut, so that nobody takes half an answer for a page."),
    (
        "request_timeout",
        "The client gets 504 at that moment. An app that comes back goes on; one that does not is ended.",
    ),
    ("a fatal signal", "The client gets 502, and the worker is replaced."),
    (
        "memory",
        "Over memory.soft, the worker is replaced first and then retired. Over memory.hard it is killed.",
    ),
    (
        "a reload, an upgrade, max_requests",
        "The worker finishes the request in hand, gives its connections to others, and main returns.",
    ),
];

const POOL: &str = "[pool.hello]
listen = [{ address = \"unix:/run/hostler/hello.sock\", group = \"www-data\" }]
user = \"www-data\"
runtime = \"native\"
command = [\"/usr/local/bin/hello\"]
";

/// The page.
pub(super) fn page() -> String {
    let version = format!("hostler {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["hostler-worker", "7", "", version.as_str(), "Hostler"]);
    page.control("SH", ["NAME"]);
    page.text([roman("hostler-worker - apps in Rust that are workers of hostler(1)")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in ABOUT {
        page.control("PP", []);
        page.text([roman(*paragraph)]);
    }
    for (title, words) in [
        ("MAIN", CALLS),
        ("THE REQUEST", REQUEST),
        ("THE ANSWER", ANSWER),
        ("WHAT BECOMES OF A REQUEST THAT GOES WRONG, AND OF ITS WORKER", END),
    ] {
        page.control("SH", [title]);
        for (word, meaning) in words {
            page.control("TP", []);
            page.text([bold(*word)]);
            page.text([roman(*meaning)]);
        }
    }
    for (title, text) in [("EXAMPLE", HELLO), ("ITS POOL", POOL)] {
        page.control("SH", [title]);
        page.control("nf", []);
        for line in text.lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("hostler"), roman("(1), "), bold("hostler.toml"), roman("(5)")]);
    page.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_tells_of_what_the_library_has() {
        let source = |file: &str| {
            std::fs::read_to_string(format!("{}/../worker/src/{file}.rs", env!("CARGO_MANIFEST_DIR")))
                .unwrap()
        };
        for (words, file) in [(CALLS, "start"), (REQUEST, "request"), (ANSWER, "answer")] {
            let source = source(file);
            for (names, _) in words {
                // `send_file(file, offset, length)`, or `path, query`.
                let names = names.split_once('(').map_or(*names, |(name, _)| name);
                for name in names.split(", ") {
                    let there =
                        ["(", "<"].iter().any(|open| source.contains(&format!("pub fn {name}{open}")));
                    assert!(there, "{name} is not in {file}.rs");
                }
            }
        }
    }

    #[test]
    fn the_example_is_shown_whole_and_no_line_of_it_is_a_request_of_roff() {
        let page = page().replace("\\-", "-");
        assert!(page.contains("fn main() -> std::process::ExitCode {"), "{page}");
        let known = ["TH", "SH", "PP", "TP", "br", "nf", "fi", "ie", "el"];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            let request = line.trim_start_matches(['.', '\'']).split_whitespace().next().unwrap_or("");
            assert!(known.contains(&request), "{line}");
        }
    }
}
