//! The built-in page and form of `hostler demo`: something to see, to send to and to stream from.
//!
//! Always holds: nothing is stored; every value of a request that is shown is escaped; the page needs nothing
//! from outside; secrets of a request (cookies, credentials) are not shown even to their sender.

mod cksum;
mod multipart;
mod upload;

use crate::{answer::Answer, app::App, error::Error, files, request::Request};
use http::StatusCode;
use std::{fmt::Write as _, thread, time::Duration};
use upload::{Fault, Field};

const PAGE: &str = include_str!("page.html");
const FRONT: &str = include_str!("front.html");
const TEXT: (&str, &[u8]) = ("Content-Type", b"text/plain; charset=utf-8");
const HTML: (&str, &[u8]) = ("Content-Type", b"text/html; charset=utf-8");
/// What the page may do: run no script, send its form here, be in no frame.
const POLICY: (&str, &[u8]) = (
    "Content-Security-Policy",
    b"script-src 'none'; object-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);
const FRESH: (&str, &[u8]) = ("Cache-Control", b"no-store");

/// Time between two lines of `/stream`.
const STREAM_PAUSE: Duration = Duration::from_millis(200);
/// The most lines of `/stream`.
const STREAM_LINES_LIMIT: u32 = 1_000;

/// Serves the demo's page.
#[derive(Debug, Default)]
pub(crate) struct Demo {
    answered: u64,
}

impl App for Demo {
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        self.answered += 1;
        let reading = matches!(request.method(), b"GET" | b"HEAD");
        match (request.path_info(), reading) {
            (b"", true) if !request.script_name().is_empty() => to_the_slash(request, answer),
            (b"" | b"/", true) => whole(answer, StatusCode::OK, &[HTML, POLICY, FRESH], &page(FRONT)),
            (b"/hello", true) => self.hello(answer),
            (b"/stream", true) => stream(request, answer),
            (b"/env", true) => whole(answer, StatusCode::OK, &[TEXT, FRESH], &environment(request.params())),
            (b"/upload", false) if request.method() == b"POST" => receive(request, answer),
            (b"/upload", _) => refuse(answer, "POST"),
            (b"" | b"/" | b"/hello" | b"/stream" | b"/env", false) => refuse(answer, "GET, HEAD"),
            _ => whole(answer, StatusCode::NOT_FOUND, &[TEXT], "404 Not Found\n"),
        }
    }
}

impl Demo {
    fn hello(&self, answer: &mut Answer<'_>) -> Result<(), Error> {
        let (pid, number) = (std::process::id(), self.answered);
        let text = format!("hello from worker {pid}, which has answered {number} requests\n");
        whole(answer, StatusCode::OK, &[TEXT, FRESH], &text)
    }
}

/// `/mount` itself: relative links need the slash.
fn to_the_slash(request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    let location = files::with_slash(request.script_name(), b"", request.query());
    whole(answer, StatusCode::MOVED_PERMANENTLY, &[TEXT, ("Location", &location)], "301 Moved Permanently\n")
}

/// Some lines, each sent as it is made.
fn stream(request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    let lines = query_number(request.query(), "lines").unwrap_or(10).min(STREAM_LINES_LIMIT);
    // The last header asks nginx to pass each line on at once.
    answer.head(StatusCode::OK, &[TEXT, FRESH, ("X-Accel-Buffering", b"no")])?;
    if request.method() == b"HEAD" {
        return Ok(());
    }
    for number in 1..=lines {
        if number > 1 {
            thread::sleep(STREAM_PAUSE);
        }
        if request.client_gone() {
            return Ok(());
        }
        answer.write(format!("line {number} of {lines}\n").as_bytes())?;
        answer.flush()?;
    }
    Ok(())
}

/// An upload: what came, counted and summed.
fn receive(request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    let content_type = request.header("content-type").unwrap_or_default().to_vec();
    let for_people = request.header("accept").is_some_and(|accept| accept.starts_with(b"text/html"));
    match upload::account(&content_type, request.body()) {
        Ok(fields) if for_people => {
            whole(answer, StatusCode::OK, &[HTML, POLICY, FRESH], &page(&fields_as_html(&fields)))
        }
        Ok(fields) => whole(answer, StatusCode::OK, &[TEXT, FRESH], &fields_as_text(&fields)),
        Err(Fault::Format(fault)) => {
            whole(answer, StatusCode::BAD_REQUEST, &[TEXT], &format!("400 Bad Request: {fault}\n"))
        }
        Err(Fault::Read(error)) => Err(error.into()),
    }
}

fn refuse(answer: &mut Answer<'_>, methods: &str) -> Result<(), Error> {
    let allow = ("Allow", methods.as_bytes());
    whole(answer, StatusCode::METHOD_NOT_ALLOWED, &[TEXT, allow], "405 Method Not Allowed\n")
}

/// An answer of known length.
fn whole(
    answer: &mut Answer<'_>,
    status: StatusCode,
    headers: &[(&str, &[u8])],
    body: &str,
) -> Result<(), Error> {
    let length = body.len().to_string();
    let headers = [headers, &[("Content-Length", length.as_bytes())]].concat();
    answer.head(status, &headers)?;
    answer.write(body.as_bytes())
}

fn page(content: &str) -> String {
    PAGE.replace("<!--pid-->", &std::process::id().to_string()).replace("<!--content-->", content)
}

/// A line a field: its bytes, checksum, name and file name, parted by tabs.
fn fields_as_text(fields: &[Field]) -> String {
    fields.iter().fold(String::new(), |mut text, field| {
        let file = field.file_name.as_deref().unwrap_or_default();
        let (name, file) = (field.name.escape_debug(), file.escape_debug());
        let _ = writeln!(text, "{}\t{}\t{name}\t{file}", field.sum.length, field.sum.value());
        text
    })
}

fn fields_as_html(fields: &[Field]) -> String {
    let mut html =
        "  <section>\n    <h2>Received</h2>\n    <table>\n      <tr><th>Field<th>File<th>Bytes<th>cksum\n"
            .to_owned();
    for field in fields {
        let (name, file) = (escape(&field.name), escape(field.file_name.as_deref().unwrap_or_default()));
        let (length, value) = (field.sum.length, field.sum.value());
        let _ =
            writeln!(html, "      <tr><td>{name}<td>{file}<td class=\"n\">{length}<td class=\"n\">{value}");
    }
    html.push_str(
        "    </table>\n    <p class=\"soft\">Kept nowhere. <a href=\"./\">Back</a></p>\n  </section>\n",
    );
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A line a parameter, sorted; the values of those that may hold a secret left out.
fn environment<'a>(params: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> String {
    let mut lines: Vec<String> = params
        .map(|(name, value)| {
            let value = if is_secret(name) { "(not shown)".into() } else { String::from_utf8_lossy(value) };
            format!("{}={}\n", String::from_utf8_lossy(name).escape_debug(), value.escape_debug())
        })
        .collect();
    lines.sort();
    lines.concat()
}

fn is_secret(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    ["COOKIE", "AUTH", "TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "SESSION", "CERT"]
        .iter()
        .any(|word| name.contains(word))
}

fn query_number(query: &[u8], wanted: &str) -> Option<u32> {
    std::str::from_utf8(query).ok()?.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name == wanted).then(|| value.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_request_are_not_shown() {
        let params: [(&[u8], &[u8]); 4] = [
            (b"HTTP_COOKIE", b"id=1"),
            (b"HTTP_AUTHORIZATION", b"Basic eA=="),
            (b"HTTP_X_API_KEY", b"k"),
            (b"REQUEST_URI", b"/a\r\nb"),
        ];
        assert_eq!(
            environment(params.into_iter()),
            "HTTP_AUTHORIZATION=(not shown)\nHTTP_COOKIE=(not shown)\nHTTP_X_API_KEY=(not shown)\nREQUEST_URI=/a\\r\\nb\n"
        );
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing_from_outside() {
        let page = page(FRONT);
        assert!(
            page.contains(&std::process::id().to_string())
                && page.contains("<form")
                && !page.contains("<!--")
        );
        for outside in ["http:", "https:", "//", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn names_of_fields_and_files_are_shown_as_text() {
        let field =
            Field { name: "<b>".into(), file_name: Some("\"'&\n".into()), sum: cksum::Cksum::default() };
        assert!(
            fields_as_html(std::slice::from_ref(&field)).contains("<td>&lt;b&gt;<td>&quot;&#39;&amp;\n<td")
        );
        assert_eq!(fields_as_text(&[field]), "0\t4294967295\t<b>\t\\\"\\'&\\n\n");
    }

    #[test]
    fn a_number_is_taken_from_the_query() {
        assert_eq!(query_number(b"a=1&lines=25", "lines"), Some(25));
        for query in [&b""[..], b"lines", b"lines=", b"lines=-1", b"xlines=2", b"\xff=1"] {
            assert_eq!(query_number(query, "lines"), None, "{query:?}");
        }
    }
}
