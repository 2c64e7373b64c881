//! Cuts what a worker writes into lines for the log.
//!
//! Always holds: a line is never mixed with another stream's, and not cut below [`LIMIT`]; a longer one is split
//! and each part says so; nothing that could move a terminal's cursor or forge another line comes out, since
//! control characters are escaped and bytes that are no UTF-8 are replaced.
//!
//! Does no I/O.

use std::fmt::Write as _;

/// Bytes of one line at most.
pub(crate) const LIMIT: usize = 64 * 1024;
/// Marks a part that another follows, and a part that follows another.
const GOES_ON: &str = " [line goes on]";
const WENT_ON: &str = "[line went on] ";

/// The bytes of one stream that are no whole line yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    held: Vec<u8>,
    split: bool,
}

impl Lines {
    /// Takes bytes as they come and gives each line that is whole.
    pub(crate) fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            self.hold(text, &mut line);
            if ends {
                self.give(&mut line);
            }
        }
        if self.held.is_empty() {
            self.held = Vec::new(); // a stream at rest costs nothing
        }
    }

    /// Gives what is left at the end of the stream.
    pub(crate) fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.held.is_empty() {
            self.give(&mut line);
        }
    }

    /// What is held back, for a successor.
    pub(crate) fn held(&self) -> &[u8] {
        &self.held
    }

    fn hold(&mut self, mut text: &[u8], line: &mut impl FnMut(&str)) {
        while self.held.len() + text.len() > LIMIT {
            let (now, later) = text.split_at(LIMIT.saturating_sub(self.held.len()).min(text.len()));
            self.held.extend_from_slice(now);
            let begun = begun_char(&self.held);
            let rest = self.held.split_off(self.held.len() - begun);
            let mut out = self.text();
            out.push_str(GOES_ON);
            line(&out);
            self.split = true;
            self.held = rest;
            text = later;
        }
        self.held.extend_from_slice(text);
    }

    fn give(&mut self, line: &mut impl FnMut(&str)) {
        if self.held.last() == Some(&b'\r') {
            self.held.pop();
        }
        line(&self.text());
        self.held.clear();
        self.split = false;
    }

    fn text(&self) -> String {
        let start = if self.split { WENT_ON } else { "" };
        format!("{start}{}", escaped(&self.held))
    }
}

/// Bytes at the end that begin a character but do not end it: 0 to 3.
fn begun_char(bytes: &[u8]) -> usize {
    for back in 1..=3.min(bytes.len()) {
        match bytes.get(bytes.len() - back) {
            Some(b) if *b >= 0xc0 => {
                let whole = if *b >= 0xf0 { 4 } else { 2 + usize::from(*b >= 0xe0) };
                return if whole > back { back } else { 0 };
            }
            Some(b) if *b >= 0x80 => {}
            _ => return 0,
        }
    }
    0
}

/// Text that is safe in a line of a log or on a terminal.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() && c != '\t' {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(parts: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for part in parts {
            lines.push(part, |l| out.push(l.to_owned()));
        }
        lines.finish(|l| out.push(l.to_owned()));
        out
    }

    #[test]
    fn a_line_comes_out_whole_however_it_was_torn() {
        assert_eq!(all(&[b"on", b"e\ntw", b"o\r\n", b"\nthree"]), ["one", "two", "", "three"]);
    }

    #[test]
    fn a_line_of_5_kb_is_not_cut_at_1024() {
        let long = "x".repeat(5000);
        assert_eq!(all(&[long.as_bytes(), b"\n"]), [long]);
    }

    #[test]
    fn a_line_over_the_limit_is_split_and_says_so() {
        let long = "é".repeat(LIMIT / 2 + 10);
        let out = all(&[b"a", long.as_bytes(), b"\nnext\n"]);
        assert_eq!(out.len(), 3);
        assert!(out[0].ends_with(GOES_ON) && out[1].starts_with(WENT_ON));
        let joined = format!("{}{}", out[0].trim_end_matches(GOES_ON), &out[1][WENT_ON.len()..]);
        assert_eq!(joined, format!("a{long}"));
        assert_eq!(out[2], "next");
    }

    #[test]
    fn what_would_move_a_cursor_or_forge_a_line_is_escaped() {
        assert_eq!(all(&[b"\x1b[2Jhi\x00\rfake\tok\xff\n"]), ["\\u{1b}[2Jhi\\u{0}\\rfake\tok\u{fffd}"]);
    }

    proptest! {
        #[test]
        fn tearing_changes_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..300) {
            let at = at.min(bytes.len());
            prop_assert_eq!(all(&[&bytes[..at], &bytes[at..]]), all(&[&bytes]));
        }
    }
}
