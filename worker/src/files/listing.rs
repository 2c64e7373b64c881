//! The page that lists a directory without an index.
//!
//! Always holds: every name in it is escaped for HTML and, in a link, percent-encoded; what the runtime would
//! not serve (dot files, links that lead out, devices) is not listed; its size is bounded.

use super::path::{Wanted, percent_encode};
use crate::beneath::Root;
use nix::{dir::Dir, errno::Errno};
use std::{fs::File, time::SystemTime};

/// The most entries that one page shows.
const ENTRIES_LIMIT: usize = 5_000;

/// One line of the page. Directories sort before files.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    is_file: bool,
    name: Vec<u8>,
    size: u64,
    modified: Option<SystemTime>,
}

/// The page for `directory`, which is `wanted` beneath `root`; `shown` is its path as the client knows it.
///
/// # Errors
/// What the system said when it was read.
pub(super) fn page(
    root: &Root,
    wanted: &Wanted,
    directory: File,
    shown: &[u8],
    dot_files: bool,
) -> Result<Vec<u8>, Errno> {
    let mut lines = Vec::new();
    let mut more = false;
    for entry in Dir::from_fd(directory.into())?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (name.starts_with(b".") && !dot_files) {
            continue;
        }
        if lines.len() == ENTRIES_LIMIT {
            more = true;
            break;
        }
        let mut path = wanted.join("");
        path.extend_from_slice(name);
        let Some(metadata) = root.metadata(&path).ok().filter(|m| m.is_file() || m.is_dir()) else {
            continue;
        };
        let modified = metadata.modified().ok();
        lines.push(Line { is_file: metadata.is_file(), name: name.to_vec(), size: metadata.len(), modified });
    }
    lines.sort();
    Ok(render(&lines, shown, !wanted.relative.is_empty(), more))
}

fn render(lines: &[Line], shown: &[u8], has_parent: bool, more: bool) -> Vec<u8> {
    let mut page = Vec::with_capacity(512 + lines.len() * 160);
    page.extend_from_slice(b"<!doctype html>\n<meta charset=\"utf-8\">\n<title>");
    escape(shown, &mut page);
    page.extend_from_slice(
        b"</title>\n<style>body{font:16px/1.5 system-ui,sans-serif;margin:2em}td{padding:0 2em 0 0}\
          td+td{text-align:right;font-variant-numeric:tabular-nums}</style>\n<h1>",
    );
    escape(shown, &mut page);
    page.extend_from_slice(b"</h1>\n<table>\n");
    if has_parent {
        page.extend_from_slice(b"<tr><td><a href=\"../\">../</a>\n");
    }
    for line in lines {
        let slash: &[u8] = if line.is_file { b"" } else { b"/" };
        page.extend_from_slice(b"<tr><td><a href=\"./");
        percent_encode(&line.name, &mut page);
        page.extend_from_slice(slash);
        page.extend_from_slice(b"\">");
        escape(&line.name, &mut page);
        page.extend_from_slice(slash);
        page.extend_from_slice(b"</a><td>");
        if line.is_file {
            page.extend_from_slice(line.size.to_string().as_bytes());
        }
        page.extend_from_slice(b"<td>");
        if let Some(modified) = line.modified {
            page.extend_from_slice(httpdate::fmt_http_date(modified).as_bytes());
        }
        page.push(b'\n');
    }
    page.extend_from_slice(b"</table>\n");
    if more {
        page.extend_from_slice(format!("<p>Only {ENTRIES_LIMIT} entries are shown.\n").as_bytes());
    }
    page
}

/// Appends `text` so that HTML shows it and takes nothing of it for markup; what is not UTF-8 shows as U+FFFD.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\'' => out.extend_from_slice(b"&#39;"),
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(is_file: bool, name: &[u8]) -> Line {
        Line { is_file, name: name.to_vec(), size: 5, modified: None }
    }

    #[test]
    fn a_name_is_text_and_a_link_and_never_markup() {
        let page = render(&[line(true, b"\"><script>alert('&')</script>")], b"/<b>/", false, false);
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(page.contains("href=\"./%22%3E%3Cscript%3Ealert%28%27%26%27%29%3C%2Fscript%3E\""), "{page}");
        assert!(page.contains("&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"), "{page}");
    }

    #[test]
    fn a_name_with_a_scheme_or_without_utf_8_stays_a_relative_link() {
        let page = render(&[line(true, b"javascript:x"), line(true, b"\xff")], b"/", false, false);
        let page = String::from_utf8(page).unwrap();
        assert!(
            page.contains("href=\"./javascript%3Ax\"") && page.contains("href=\"./%FF\">\u{fffd}<"),
            "{page}"
        );
    }

    #[test]
    fn directories_come_first_and_end_in_a_slash() {
        let mut lines = [line(true, b"a"), line(false, b"z")];
        lines.sort();
        let page = String::from_utf8(render(&lines, b"/", true, true)).unwrap();
        assert!(page.find("z/</a>").unwrap() < page.find(">a</a>").unwrap(), "{page}");
        assert!(page.contains("href=\"../\"") && page.contains("Only 5000"), "{page}");
    }
}
