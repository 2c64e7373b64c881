//! The media type of a file, by its name.
//!
//! Does no I/O: the content is never looked at.

use std::borrow::Cow;

/// The value of Content-Type for a file of this name; text is said to be UTF-8.
pub(super) fn media_type(name: &[u8]) -> Cow<'static, str> {
    let base = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let extension = base.iter().rposition(|&b| b == b'.').and_then(|dot| base.get(dot + 1..));
    let guess = extension
        .and_then(|extension| std::str::from_utf8(extension).ok())
        .and_then(|extension| mime_guess::from_ext(extension).first_raw());
    match guess {
        Some("text/html") => Cow::Borrowed("text/html; charset=utf-8"),
        Some("text/css") => Cow::Borrowed("text/css; charset=utf-8"),
        Some("text/javascript") => Cow::Borrowed("text/javascript; charset=utf-8"),
        Some("text/plain") => Cow::Borrowed("text/plain; charset=utf-8"),
        Some(text) if text.starts_with("text/") => Cow::Owned(format!("{text}; charset=utf-8")),
        Some(other) => Cow::Borrowed(other),
        None => Cow::Borrowed("application/octet-stream"),
    }
}

#[cfg(test)]
mod tests {
    use super::media_type;

    #[test]
    fn the_last_extension_decides_and_text_is_utf_8() {
        for (name, want) in [
            (&b"a/index.html"[..], "text/html; charset=utf-8"),
            (b"A.HTML", "text/html; charset=utf-8"),
            (b"x.css", "text/css; charset=utf-8"),
            (b"x.min.js", "text/javascript; charset=utf-8"),
            (b"x.csv", "text/csv; charset=utf-8"),
            (b"x.json", "application/json"),
            (b"x.wasm", "application/wasm"),
            (b"x.svg", "image/svg+xml"),
            (b"x.woff2", "font/woff2"),
            (b"x.tar.gz", "application/gzip"),
        ] {
            assert_eq!(media_type(name), want, "{name:?}");
        }
    }

    #[test]
    fn a_name_that_says_nothing_is_bytes() {
        for name in [&b"README"[..], b"a.html/b", b"x.", b"x.nosuchtype", b"x.\xff", b""] {
            assert_eq!(media_type(name), "application/octet-stream", "{name:?}");
        }
    }
}
