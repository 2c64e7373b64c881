//! A strict reader of what a FastCGI application sends: more strict than any web server, so that what some web
//! server chokes on shows here first.
//!
//! Always refused: a record of another version or type, a nonzero reserved byte, output after its stream's end,
//! output for a request that is not in hand, a stream that is not ended before END_REQUEST, a head that is not
//! whole in the first STDOUT record, does not begin with `Status:` or is no list of fields, a body where HTTP
//! has none (HEAD, 1xx, 204, 304), a Content-Length that is not the body's.
//!
//! Does not wait for ever: the stream's own timeout ends it ([`Fault::Late`]).

use crate::fcgi::{CANT_MPX_CONN, END, GET_VALUES_RESULT, STDERR, STDOUT, UNKNOWN_TYPE};
use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
};

/// Why there is no further record or answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection ended between records.
    End,
    /// The connection ended inside a record or an answer, or with the record of type 255 that shows such a cut.
    Cut,
    /// The connection was reset.
    Reset,
    /// Nothing came in time.
    Late,
    /// What came breaks the rules above.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

pub(crate) fn fault(e: &io::Error) -> Fault {
    match e.kind() {
        io::ErrorKind::ConnectionReset => Fault::Reset,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Fault::Late,
        _ => Fault::Broken(format!("read: {e}")),
    }
}

fn broken<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Broken(what.into()))
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Type.
    pub kind: u8,
    /// Request id.
    pub id: u16,
    /// Content.
    pub content: Vec<u8>,
    /// How many padding bytes followed.
    pub padding: u8,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// From `Status:`.
    pub status: u16,
    /// Fields in order, `Status:` first; names as sent.
    pub fields: Vec<(String, String)>,
    /// The bytes of the head, its empty line included.
    pub head_len: usize,
    /// The body, unless a sink took it.
    pub body: Vec<u8>,
    /// How long the body was.
    pub body_len: u64,
    /// All of STDERR.
    pub stderr: Vec<u8>,
    /// From END_REQUEST.
    pub app_status: u32,
    /// Type and length of content of each of its records.
    pub records: Vec<(u8, usize)>,
    /// Ids that were refused meanwhile, with their protocol status.
    pub refused: Vec<(u16, u8)>,
    /// Management records that came meanwhile.
    pub management: Vec<Record>,
}

impl Answer {
    /// The value of a field, by its name in any case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The reading half of a connection to a FastCGI application.
#[derive(Debug)]
pub struct Reader<R> {
    from: BufReader<R>,
}

impl<R: Read> Reader<R> {
    /// Reads from `from`.
    pub fn new(from: R) -> Self {
        Reader { from: BufReader::with_capacity(64 * 1024, from) }
    }

    /// The stream beneath.
    pub fn stream(&mut self) -> &mut R {
        self.from.get_mut()
    }

    /// The bytes that come next, at most `most`, left to be read; waits for the first.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn peek(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        match self.from.fill_buf() {
            Ok([]) => Err(Fault::End),
            Ok(bytes) => Ok(bytes[..bytes.len().min(most)].to_vec()),
            Err(e) => Err(fault(&e)),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        let mut at = 0;
        while at < bytes.len() {
            match self.from.read(&mut bytes[at..]) {
                Ok(0) if at == 0 => return Err(Fault::End),
                Ok(0) => return Err(Fault::Cut),
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(fault(&e)),
            }
        }
        Ok(())
    }

    fn rest(&mut self, len: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes).map_err(|f| if f == Fault::End { Fault::Cut } else { f })?;
        Ok(bytes)
    }

    /// The next record.
    ///
    /// # Errors
    /// A [`Fault`], also where the header is not that of a record from an application.
    pub fn record(&mut self) -> Result<Record, Fault> {
        let mut header = [0; 8];
        self.fill(&mut header)?;
        let [version, kind, id1, id0, len1, len0, padding, reserved] = header;
        if version != 1 || reserved != 0 {
            return broken(format!("header {header:?}"));
        }
        if [kind, len1, len0, padding] == [u8::MAX, 0, 0, 0] {
            return Err(Fault::Cut);
        }
        if !matches!(kind, END | STDOUT | STDERR | GET_VALUES_RESULT | UNKNOWN_TYPE) {
            return broken(format!("an application sent a record of type {kind}"));
        }
        let content = self.rest(usize::from(u16::from_be_bytes([len1, len0])))?;
        self.rest(usize::from(padding))?;
        Ok(Record { kind, id: u16::from_be_bytes([id1, id0]), content, padding })
    }

    /// The answer to request `id` made with `method`.
    ///
    /// # Errors
    /// A [`Fault`]; a refusal of this id is one, too.
    pub fn answer(&mut self, id: u16, method: &str) -> Result<Answer, Fault> {
        let mut body = Vec::new();
        let mut answer = self.answer_into(id, method, &mut |part| body.extend(part))?;
        answer.body = body;
        Ok(answer)
    }

    /// Like [`Reader::answer`], the body given to `sink` piece by piece.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn answer_into(
        &mut self,
        id: u16,
        method: &str,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Answer, Fault> {
        let mut answer = Answer::default();
        let (mut stdout_ended, mut stderr_ended) = (false, true);
        loop {
            let record = match self.record() {
                Err(Fault::End) if !answer.records.is_empty() => return Err(Fault::Cut),
                record => record?,
            };
            if answer.set_aside(id, &record)? {
                continue;
            }
            answer.records.push((record.kind, record.content.len()));
            match record.kind {
                STDOUT if stdout_ended => return broken("STDOUT after its end"),
                STDOUT if record.content.is_empty() => stdout_ended = true,
                STDOUT if answer.head_len == 0 => sink(answer.read_head(&record.content)?),
                STDOUT => {
                    answer.body_len += record.content.len() as u64;
                    sink(&record.content);
                }
                STDERR if record.content.is_empty() => stderr_ended = true,
                STDERR => {
                    stderr_ended = false;
                    answer.stderr.extend(&record.content);
                }
                _ => {
                    if !stdout_ended || !stderr_ended {
                        return broken("END_REQUEST before the end of STDOUT and STDERR");
                    }
                    answer.app_status = end_of_whole_answer(&record.content)?;
                    answer.judge(method)?;
                    return Ok(answer);
                }
            }
        }
    }

    /// The protocol status with which request `id` is refused without any output.
    ///
    /// # Errors
    /// A [`Fault`], also where anything but END_REQUEST comes.
    pub fn refusal(&mut self, id: u16) -> Result<u8, Fault> {
        let record = self.record()?;
        match (record.kind, record.id, record.content.as_slice()) {
            (END, i, &[_, _, _, _, status, 0, 0, 0]) if i == id && status != 0 => Ok(status),
            _ => broken(format!("not a refusal of {id}: {record:?}")),
        }
    }

    /// The pairs of a GET_VALUES_RESULT, as text, sorted.
    ///
    /// # Errors
    /// A [`Fault`], also where anything else comes.
    pub fn values(&mut self) -> Result<Vec<(String, String)>, Fault> {
        let record = self.record()?;
        if (record.kind, record.id) != (GET_VALUES_RESULT, 0) {
            return broken(format!("not a GET_VALUES_RESULT: {record:?}"));
        }
        short_pairs(&record.content)
    }
}

/// Reads pairs whose lengths are below 128.
fn short_pairs(mut bytes: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    let mut pairs = Vec::new();
    while let [name @ 0..=127, value @ 0..=127, rest @ ..] = bytes {
        let (name, value) = (usize::from(*name), usize::from(*value));
        if rest.len() < name + value {
            break;
        }
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        pairs.push((text(&rest[..name]), text(&rest[name..name + value])));
        bytes = &rest[name + value..];
    }
    pairs.sort();
    if bytes.is_empty() { Ok(pairs) } else { broken(format!("pairs end with {bytes:?}")) }
}

fn end_of_whole_answer(content: &[u8]) -> Result<u32, Fault> {
    match content {
        &[a, b, c, d, 0, 0, 0, 0] => Ok(u32::from_be_bytes([a, b, c, d])),
        _ => broken(format!("END_REQUEST {content:?} after output")),
    }
}

impl Answer {
    /// Takes what is no part of the answer to `id`: refusals of other ids and management records.
    fn set_aside(&mut self, id: u16, record: &Record) -> Result<bool, Fault> {
        match (record.kind, record.id, record.content.as_slice()) {
            (GET_VALUES_RESULT | UNKNOWN_TYPE, 0, _) => self.management.push(record.clone()),
            (_, 0, _) | (GET_VALUES_RESULT | UNKNOWN_TYPE, ..) => return broken(format!("{record:?}")),
            (_, i, _) if i == id => return Ok(false),
            (END, i, &[0, 0, 0, 0, CANT_MPX_CONN, 0, 0, 0]) => self.refused.push((i, CANT_MPX_CONN)),
            _ => return broken(format!("a record for {} in the answer to {id}", record.id)),
        }
        Ok(true)
    }

    /// Reads the head out of the first STDOUT record; what follows in it is body.
    fn read_head<'a>(&mut self, content: &'a [u8]) -> Result<&'a [u8], Fault> {
        let Some(end) = content.windows(4).position(|w| w == b"\r\n\r\n") else {
            return broken("the first STDOUT record holds no whole head");
        };
        let Ok(head) = std::str::from_utf8(&content[..end]) else { return broken("the head is not UTF-8") };
        for line in head.split("\r\n") {
            let Some((name, value)) = line.split_once(": ") else { return broken(format!("field {line:?}")) };
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(token) || value.contains(|c: char| c.is_control()) {
                return broken(format!("field {line:?}"));
            }
            self.fields.push((name.to_owned(), value.to_owned()));
        }
        self.head_len = end + 4;
        self.body_len = (content.len() - self.head_len) as u64;
        self.read_status()?;
        Ok(&content[self.head_len..])
    }

    fn read_status(&mut self) -> Result<(), Fault> {
        let Some((name, value)) = self.fields.first() else { return broken("an empty head") };
        let digits =
            value.split(' ').next().filter(|code| code.len() == 3).and_then(|code| code.parse().ok());
        match digits {
            Some(status @ 100..=599) if name == "Status" => self.status = status,
            _ => return broken(format!("the head begins with {name}: {value}")),
        }
        if self.fields.iter().skip(1).any(|(name, _)| name.eq_ignore_ascii_case("status")) {
            return broken("Status twice");
        }
        Ok(())
    }

    /// What can be told only at the end.
    fn judge(&self, method: &str) -> Result<(), Fault> {
        if self.head_len == 0 {
            return broken("END_REQUEST without any output");
        }
        let bodiless = method == "HEAD" || matches!(self.status, 100..=199 | 204 | 304);
        if bodiless && self.body_len > 0 {
            return broken(format!("a body of {} bytes where there is none", self.body_len));
        }
        match self.field("content-length") {
            Some(length) if !bodiless && length != self.body_len.to_string() => {
                broken(format!("Content-Length {length}, body {}", self.body_len))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fcgi::record;

    const HEAD: &[u8] = b"Status: 200 OK\r\nContent-Length: 2\r\n\r\nhi";

    /// Type, id and content.
    type Sent<'a> = (u8, u16, &'a [u8]);

    fn read(records: &[Sent<'_>], method: &str) -> Result<Answer, Fault> {
        let bytes: Vec<u8> = records.iter().flat_map(|(k, id, c)| record(*k, *id, c, 3)).collect();
        Reader::new(bytes.as_slice()).answer(1, method)
    }

    #[test]
    fn a_sound_answer_is_read_whole() {
        let answer = read(
            &[(STDERR, 1, b"oh"), (STDOUT, 1, HEAD), (STDOUT, 1, b""), (STDERR, 1, b""), (END, 1, &[0; 8])],
            "GET",
        )
        .unwrap();
        assert_eq!(
            (answer.status, answer.text().as_str(), answer.stderr.as_slice()),
            (200, "hi", &b"oh"[..])
        );
    }

    #[test]
    fn what_a_web_server_chokes_on_is_refused() {
        let end: Sent<'_> = (END, 1, &[0; 8]);
        let done: Sent<'_> = (STDOUT, 1, b"");
        let cases: &[(&str, &[Sent<'_>])] = &[
            ("no output", &[done, end]),
            ("no head", &[(STDOUT, 1, b"just text"), done, end]),
            ("head in two records", &[(STDOUT, 1, &HEAD[..9]), (STDOUT, 1, &HEAD[9..]), done, end]),
            ("no Status", &[(STDOUT, 1, b"A: b\r\n\r\n"), done, end]),
            ("stream not ended", &[(STDOUT, 1, HEAD), end]),
            ("STDERR not ended", &[(STDERR, 1, b"x"), (STDOUT, 1, HEAD), done, end]),
            ("output after the end", &[(STDOUT, 1, HEAD), done, (STDOUT, 1, b"x"), end]),
            ("another id", &[(STDOUT, 2, HEAD), done, end]),
            ("short body", &[(STDOUT, 1, &HEAD[..HEAD.len() - 1]), done, end]),
            ("not ended at all", &[(STDOUT, 1, HEAD), done]),
            ("refused after output", &[(STDOUT, 1, HEAD), done, (END, 1, &[0, 0, 0, 0, 2, 0, 0, 0])]),
            ("line feed alone", &[(STDOUT, 1, b"Status: 200 OK\nA: b\r\n\r\n"), done, end]),
            ("a record of a web server", &[(crate::fcgi::STDIN, 1, b""), done, end]),
        ];
        for (name, records) in cases {
            assert!(read(records, "GET").is_err(), "{name}");
        }
        assert!(read(&[(STDOUT, 1, HEAD), done, end], "HEAD").is_err(), "HEAD with a body");
    }

    #[test]
    fn an_end_inside_a_record_is_told_from_one_between() {
        let bytes = record(STDOUT, 1, HEAD, 0);
        assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).record(), Err(Fault::Cut));
        assert_eq!(Reader::new(&bytes[..0]).record(), Err(Fault::End));
    }
}
