//! `multipart/form-data` (RFC 7578) as it streams by: what a form with a file in it sends.
//!
//! Always holds: it keeps at most one part's head and one boundary's length of data; a part's head is at most
//! [`HEAD_LIMIT`] bytes and there are at most [`PARTS_LIMIT`] parts; a body that breaks the format is refused.
//! Does no I/O. Does not decode names (RFC 2047, percent encoding): they are shown as they came.

/// The longest head of a part, in bytes.
pub(super) const HEAD_LIMIT: usize = 8 * 1024;
/// The most parts of a body.
pub(super) const PARTS_LIMIT: usize = 256;

/// Reads a body piece by piece.
pub(super) struct Multipart {
    /// CR LF, two dashes and the boundary.
    delimiter: Vec<u8>,
    /// What was taken in and not yet given out.
    buffer: Vec<u8>,
    state: State,
    parts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary, or within a part's data.
    Data { in_part: bool },
    /// Just after a boundary: two dashes, or a line's end.
    AfterBoundary,
    /// Within a part's head.
    Head,
    /// After the last boundary.
    End,
}

/// What was found in a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A part begins.
    Part {
        /// The field's name.
        name: String,
        /// The file's name, where the field holds a file.
        file_name: Option<String>,
    },
    /// More of the part's data.
    Data(&'a [u8]),
}

impl Multipart {
    /// For a body with this Content-Type; `None` where that is another.
    pub(super) fn new(content_type: &[u8]) -> Option<Multipart> {
        let text = std::str::from_utf8(content_type).ok()?;
        let (kind, parameters) = text.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameter(parameters, "boundary").filter(|b| (1..=70).contains(&b.len()))?;
        // The first boundary may stand at the very start: as if a line had ended before it.
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Some(Multipart {
            delimiter,
            buffer: b"\r\n".to_vec(),
            state: State::Data { in_part: false },
            parts: 0,
        })
    }

    /// Takes `bytes` in and tells `found` what they hold.
    ///
    /// # Errors
    /// A phrase for the client: how the body breaks the format.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        found: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        self.buffer.extend_from_slice(bytes);
        while let Some(used) = self.step(found)? {
            self.buffer.drain(..used);
        }
        Ok(())
    }

    /// To be called after the last byte.
    ///
    /// # Errors
    /// A phrase for the client: the body is not whole.
    pub(super) fn finish(&self) -> Result<(), &'static str> {
        if self.state == State::End { Ok(()) } else { Err("the form ends before its last boundary") }
    }

    /// One step; gives the bytes that it used up, or `None` where it needs more of them.
    fn step(&mut self, found: &mut dyn FnMut(Event<'_>)) -> Result<Option<usize>, &'static str> {
        match self.state {
            State::Data { in_part } => Ok(self.data(in_part, found)),
            State::AfterBoundary => self.after_boundary(),
            State::Head => self.head(found),
            State::End => Ok(Some(self.buffer.len()).filter(|&len| len > 0)),
        }
    }

    fn data(&mut self, in_part: bool, found: &mut dyn FnMut(Event<'_>)) -> Option<usize> {
        let boundary = position(&self.buffer, &self.delimiter);
        // Without a boundary in sight, its beginning may be the last bytes here.
        let end = boundary.unwrap_or_else(|| (self.buffer.len() + 1).saturating_sub(self.delimiter.len()));
        if in_part && end > 0 {
            found(Event::Data(self.buffer.get(..end).unwrap_or_default()));
        }
        if boundary.is_some() {
            self.state = State::AfterBoundary;
            return Some(end + self.delimiter.len());
        }
        Some(end).filter(|&end| end > 0)
    }

    fn after_boundary(&mut self) -> Result<Option<usize>, &'static str> {
        let spaces = self.buffer.iter().take_while(|byte| b" \t".contains(byte)).count();
        match self.buffer.get(spaces..).unwrap_or_default() {
            [b'-', b'-', ..] if spaces == 0 => {
                self.state = State::End;
                Ok(Some(2))
            }
            [b'\r', b'\n', ..] => {
                self.state = State::Head;
                self.parts += 1;
                if self.parts > PARTS_LIMIT { Err("the form has too many fields") } else { Ok(Some(spaces)) }
            }
            [] | [b'-' | b'\r'] if spaces < HEAD_LIMIT => Ok(None),
            _ => Err("a boundary of the form does not end its line"),
        }
    }

    /// The buffer begins with the CR LF after the boundary; the head ends at the first empty line.
    fn head(&mut self, found: &mut dyn FnMut(Event<'_>)) -> Result<Option<usize>, &'static str> {
        let Some(end) = position(&self.buffer, b"\r\n\r\n") else {
            return if self.buffer.len() > HEAD_LIMIT { Err("a field's head is too long") } else { Ok(None) };
        };
        if end > HEAD_LIMIT {
            return Err("a field's head is too long");
        }
        let head = String::from_utf8_lossy(self.buffer.get(..end).unwrap_or_default());
        let disposition = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then(|| value.to_owned())
        });
        let parameters = disposition.as_deref().and_then(|value| value.split_once(';')).map(|(_, rest)| rest);
        let Some(name) = parameters.and_then(|parameters| parameter(parameters, "name")) else {
            return Err("a field of the form has no name");
        };
        let file_name = parameters.and_then(|parameters| parameter(parameters, "filename"));
        found(Event::Part { name, file_name });
        self.state = State::Data { in_part: true };
        Ok(Some(end + 4))
    }
}

/// The value of `wanted` among `; name=value; name="value"` parameters.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, next) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), next)
            }
        };
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next;
    }
}

/// The text up to the closing quote, and what follows it. Browsers write a quote as `%22`, RFC 2045 as `\"`.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            // A backslash before anything but a quote is one of a Windows path.
            '\\' if quoted.get(at + 1..)?.starts_with('"') => value.extend(characters.next().map(|(_, c)| c)),
            other => value.push(other),
        }
    }
    None
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    loop {
        let rest = haystack.get(from..)?;
        let at = from + rest.iter().position(|&byte| byte == first)?;
        if haystack.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=XX";

    /// A part's name, file name and data.
    type Part = (String, Option<String>, Vec<u8>);

    /// Reads `body` in pieces of `piece` bytes.
    fn read(body: &[u8], piece: usize) -> Result<Vec<Part>, &'static str> {
        let mut multipart = Multipart::new(TYPE).unwrap();
        let mut parts: Vec<Part> = Vec::new();
        for bytes in body.chunks(piece) {
            multipart.push(bytes, &mut |event| match event {
                Event::Part { name, file_name } => parts.push((name, file_name, Vec::new())),
                Event::Data(data) => parts.last_mut().unwrap().2.extend_from_slice(data),
            })?;
        }
        multipart.finish().map(|()| parts)
    }

    #[test]
    fn a_form_is_read_the_same_wherever_it_is_torn() {
        let body = b"preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n--X\r\n\
            --XX  \r\ncontent-disposition: form-data; name=f; filename=\"a \\\"b\\\".txt\"\r\n\
            Content-Type: text/plain\r\n\r\n\r\n\r\n-\0\xff\r\n--XX\r\n\
            Content-Disposition: form-data; filename=\"C:\\x\"; name=\"e\"\r\n\r\n\r\n--XX--\r\nepilogue";
        let want = vec![
            ("note".to_owned(), None, b"hi\r\n--X".to_vec()),
            ("f".to_owned(), Some("a \"b\".txt".to_owned()), b"\r\n\r\n-\0\xff".to_vec()),
            ("e".to_owned(), Some("C:\\x".to_owned()), b"".to_vec()),
        ];
        for piece in 1..=body.len() {
            assert_eq!(read(body, piece).unwrap(), want, "in pieces of {piece}");
        }
    }

    #[test]
    fn an_empty_form_is_one() {
        assert_eq!(read(b"--XX--\r\n", 3).unwrap(), []);
    }

    #[test]
    fn a_body_that_breaks_the_format_is_refused() {
        for body in [
            &b""[..],
            b"hello",
            b"--XX\r\n",
            b"--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ndata",
            b"--XXY\r\n\r\n\r\n--XX--",
            b"--XX\r\n\r\ndata\r\n--XX--",
            b"--XX\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--XX--",
            b"--XX\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\n\r\n--XX--",
        ] {
            assert!(read(body, 7).is_err(), "{body:?}");
        }
    }

    #[test]
    fn a_head_and_the_number_of_parts_are_bounded() {
        let long = [b"--XX\r\nX: ".to_vec(), vec![b'x'; HEAD_LIMIT], b"\r\n\r\n".to_vec()].concat();
        assert_eq!(read(&long, 1000), Err("a field's head is too long"));
        assert_eq!(read(&long, long.len()), Err("a field's head is too long"));
        let part = b"--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
        let many = |n: usize| [part.repeat(n), b"--XX--".to_vec()].concat();
        assert_eq!(read(&many(PARTS_LIMIT), 4096).unwrap().len(), PARTS_LIMIT);
        assert_eq!(read(&many(PARTS_LIMIT + 1), 4096), Err("the form has too many fields"));
    }

    #[test]
    fn memory_does_not_grow_with_the_data() {
        let mut multipart = Multipart::new(TYPE).unwrap();
        multipart.push(b"--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n", &mut |_| {}).unwrap();
        let mut total = 0;
        for _ in 0..1000 {
            multipart
                .push(&[b'\r'; 1000], &mut |event| {
                    let Event::Data(data) = event else { panic!("{event:?}") };
                    total += data.len();
                })
                .unwrap();
            assert!(multipart.buffer.len() < multipart.delimiter.len());
        }
        assert!(total > 999_000);
    }

    #[test]
    fn only_a_form_with_a_sound_boundary_is_one() {
        assert!(Multipart::new(b"Multipart/Form-Data; charset=utf-8; boundary=\"a b\"").is_some());
        for content_type in [
            &b""[..],
            b"text/plain; boundary=x",
            b"multipart/form-data",
            b"multipart/form-data; boundary=",
            b"multipart/form-data; boundary=\"x",
            b"multipart/form-data; bound=x",
            b"multipart/form-data; boundary=\xff",
        ] {
            assert!(Multipart::new(content_type).is_none(), "{content_type:?}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        assert!(Multipart::new(long.as_bytes()).is_none());
    }
}
