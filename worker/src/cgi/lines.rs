//! Whole lines out of pieces: what a script writes to its standard error.
//!
//! Always holds: no more than [`LINE_LIMIT`] bytes are kept; a longer line comes in pieces of that length.
//! Does no I/O.

/// The longest line, in bytes.
const LINE_LIMIT: usize = 64 * 1024;

/// The line that is not whole yet.
#[derive(Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Takes `bytes` in and gives each line that they end to `line`, without its end.
    pub(crate) fn push(&mut self, bytes: &[u8], line: &mut dyn FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let mut piece = piece;
            while self.0.len() + piece.len() > LINE_LIMIT {
                let (fits, rest) = piece.split_at(LINE_LIMIT - self.0.len());
                self.0.extend_from_slice(fits);
                self.end(line);
                piece = rest;
            }
            self.0.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end(line);
            }
        }
    }

    /// Gives what is left, where there is something, to `line`.
    pub(crate) fn finish(&mut self, line: &mut dyn FnMut(&[u8])) {
        if !self.0.is_empty() {
            self.end(line);
        }
    }

    fn end(&mut self, line: &mut dyn FnMut(&[u8])) {
        let whole = self.0.strip_suffix(b"\n").unwrap_or(&self.0);
        line(whole.strip_suffix(b"\r").unwrap_or(whole));
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, &mut |line| out.push(line.to_vec()));
        }
        lines.finish(&mut |line| out.push(line.to_vec()));
        out
    }

    #[test]
    fn lines_are_whole_wherever_they_are_torn() {
        let text = b"one\r\n\ntwo\nlast";
        let want = [&b"one"[..], b"", b"two", b"last"];
        for cut in 0..text.len() {
            assert_eq!(read(&[&text[..cut], &text[cut..]]), want, "{cut}");
        }
        assert!(read(&[b""]).is_empty());
    }

    #[test]
    fn a_line_over_the_limit_comes_in_pieces() {
        let long = vec![b'x'; LINE_LIMIT * 2 + 5];
        let lengths: Vec<usize> = read(&[b"abc", &long, b"\n"]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [LINE_LIMIT, LINE_LIMIT, 8]);
    }
}
