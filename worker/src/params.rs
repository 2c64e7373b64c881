//! CGI meta-variables (RFC 3875, section 4.1) as spans over the bytes that a web server sent.
//!
//! Always holds: nothing is copied but repeated header fields, which are joined; `HTTP_PROXY` is not there (a
//! client's `Proxy` field must never look like a proxy setting); each name stands once.
//!
//! Repeated names: `HTTP_*` are joined with ", " (`HTTP_COOKIE` with "; "), as RFC 9110, section 5.2 allows for
//! fields; of `HTTP_HOST` the first counts; of any other name the last, since web servers write the
//! administrator's own settings last and clients cannot choose such names.

use hostler_proto::{Error, Pairs};
use std::cell::{OnceCell, RefCell};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Span {
    at: u32,
    /// Bytes; with [`SIDE`] set they stand in `Entries::side`, not in the bytes that were sent.
    len: u32,
}

const SIDE: u32 = 1 << 31;

impl Span {
    /// Where `part` stands in `stream`.
    #[inline]
    fn of(part: &[u8], stream: &[u8]) -> Span {
        let at = part.as_ptr().addr().wrapping_sub(stream.as_ptr().addr());
        Span { at: u32::try_from(at).unwrap_or(0), len: u32::try_from(part.len()).unwrap_or(0) }
    }

    #[inline]
    fn bytes<'a>(self, stream: &'a [u8], side: &'a [u8]) -> &'a [u8] {
        let from = if self.len & SIDE != 0 { side } else { stream };
        from.get(self.at as usize..)
            .and_then(|from| from.get(..(self.len & !SIDE) as usize))
            .unwrap_or_default()
    }
}

/// Variables that the worker itself asks for with each request: found without a search. Its number is its place among
/// the [`Known::NAMES`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    RequestMethod = 0,
    RequestUri = 1,
    PathInfo = 2,
    ServerName = 3,
    ScriptName = 5,
    HttpHost = 6,
    ContentLength = 7,
}

impl Known {
    const PLACES: usize = 8;
    /// Each name, none over sixteen bytes, with its last eight, which tell it from most others in one comparison.
    const NAMES: [(&[u8], u64); Known::PLACES] = [
        with_end(b"REQUEST_METHOD"),
        with_end(b"REQUEST_URI"),
        with_end(b"PATH_INFO"),
        with_end(b"SERVER_NAME"),
        (b"", 0),
        with_end(b"SCRIPT_NAME"),
        with_end(b"HTTP_HOST"),
        with_end(b"CONTENT_LENGTH"),
    ];
    /// Found by trying: times this, the ends of the names differ in their first three bits, which are the place.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7d8d;

    /// The place of a variable with this name, where there is one.
    #[inline]
    fn named(name: &[u8]) -> Option<usize> {
        let end = u64::from_le_bytes(*name.last_chunk()?);
        let place = (end.wrapping_mul(Known::FACTOR) >> 61) as usize;
        let (known, known_end) = *Known::NAMES.get(place)?;
        if end != known_end {
            return None;
        }
        (name.len() == known.len() && name.first_chunk::<8>() == known.first_chunk()).then_some(place)
    }
}

/// A name and its last eight bytes.
const fn with_end(name: &[u8]) -> (&[u8], u64) {
    match name.last_chunk() {
        Some(end) => (name, u64::from_le_bytes(*end)),
        None => (name, 0),
    }
}

/// Where names and values stand in a stream of pairs; its memory is used again for each request.
///
/// The few variables that the worker needs are noted when the stream is read; all of them, when an app asks for
/// another for the first time.
#[derive(Debug, Default)]
pub(crate) struct Index {
    known: [Option<Span>; Known::PLACES],
    entries: OnceCell<Entries>,
    spare: RefCell<Entries>,
}

/// All variables, each name once.
#[derive(Debug, Default)]
struct Entries {
    all: Vec<(Span, Span)>,
    /// Joined values.
    side: Vec<u8>,
    /// A name whose bit is not set here has not been seen.
    seen: [u64; 8],
    repeated: bool,
}

impl Index {
    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.known = [None; Known::PLACES];
        if let Some(mut entries) = self.entries.take() {
            entries.all.clear();
            entries.side.clear();
            entries.seen = [0; 8];
            entries.repeated = false;
            self.spare.replace(entries);
        }
    }

    /// Reads a stream of pairs.
    ///
    /// # Errors
    /// A pair overruns the stream.
    pub(crate) fn read(&mut self, stream: &[u8]) -> Result<(), Error> {
        self.clear();
        for pair in Pairs::new(stream) {
            let (name, value) = pair?;
            if let Some(place) = Known::named(name)
                && let Some(slot) = self.known.get_mut(place)
                && (slot.is_none() || place != Known::HttpHost as usize)
            {
                *slot = Some(Span::of(value, stream));
            }
        }
        Ok(())
    }

    fn entries(&self, stream: &[u8]) -> &Entries {
        self.entries.get_or_init(|| {
            let mut entries = self.spare.take();
            for (name, value) in Pairs::new(stream).map_while(Result::ok) {
                entries.push(stream, name, value);
            }
            entries
        })
    }
}

impl Entries {
    #[inline]
    fn push(&mut self, stream: &[u8], name: &[u8], value: &[u8]) {
        // In any letters: programs look for http_proxy, too.
        if name.eq_ignore_ascii_case(b"HTTP_PROXY") {
            return;
        }
        if self.may_be_there(name)
            && let Some(at) = self.all.iter().position(|(n, _)| n.bytes(stream, &[]) == name)
        {
            self.repeat(stream, at, name, Span::of(value, stream));
            return;
        }
        self.all.push((Span::of(name, stream), Span::of(value, stream)));
    }

    /// A set of 512 bits: says no for most names that are new, and marks the name as seen.
    fn may_be_there(&mut self, name: &[u8]) -> bool {
        // The ends of names differ: HTTP_ACCEPT, HTTP_ACCEPT_ENCODING.
        let end = match name.last_chunk::<8>() {
            Some(end) => u64::from_le_bytes(*end),
            None => name.iter().fold(0, |hash, b| hash << 8 | u64::from(*b)),
        };
        let hash = (end ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
        let Some(word) = self.seen.get_mut(usize::try_from(hash >> 6).unwrap_or(0)) else { return true };
        let there = *word & (1 << (hash & 63)) != 0;
        *word |= 1 << (hash & 63);
        there
    }

    fn repeat(&mut self, stream: &[u8], at: usize, name: &[u8], value: Span) {
        self.repeated = true;
        let Some((_, old)) = self.all.get(at).copied() else { return };
        let new = if name == b"HTTP_HOST" {
            old
        } else if name.starts_with(b"HTTP_") {
            let start = self.side.len();
            let joint: &[u8] = if name == b"HTTP_COOKIE" { b"; " } else { b", " };
            let joined = [old.bytes(stream, &self.side), joint, value.bytes(stream, &[])].concat();
            self.side.extend_from_slice(&joined);
            let len = u32::try_from(joined.len()).unwrap_or(0) | SIDE;
            Span { at: u32::try_from(start).unwrap_or(0), len }
        } else {
            value
        };
        if let Some(entry) = self.all.get_mut(at) {
            entry.1 = new;
        }
    }
}

/// The variables of one request.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a> {
    index: &'a Index,
    stream: &'a [u8],
}

impl<'a> Params<'a> {
    /// `index` has read `stream`.
    pub(crate) fn new(index: &'a Index, stream: &'a [u8]) -> Params<'a> {
        Params { index, stream }
    }

    /// The value of one of the variables that need no search.
    #[inline]
    pub(crate) fn known(&self, known: Known) -> Option<&'a [u8]> {
        self.at(known as usize)
    }

    #[inline]
    fn at(&self, place: usize) -> Option<&'a [u8]> {
        let span = *self.index.known.get(place)?;
        span.map(|span| span.bytes(self.stream, &[]))
    }

    /// Some name was there twice, as far as an app has asked.
    pub(crate) fn repeated(&self) -> bool {
        self.index.entries.get().is_some_and(|entries| entries.repeated)
    }

    /// The value of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        match Known::named(name.as_bytes()) {
            Some(place) => self.at(place),
            None => self.find(|n| n == name.as_bytes()),
        }
    }

    /// The value of a header field, by its name in lower case: `if-none-match`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        match name {
            "content-type" => self.get("CONTENT_TYPE").filter(|v| !v.is_empty()),
            "content-length" => self.get("CONTENT_LENGTH").filter(|v| !v.is_empty()),
            _ => self.find(|n| n.strip_prefix(b"HTTP_").is_some_and(|n| is_variable_of(n, name.as_bytes()))),
        }
    }

    fn find(&self, is_it: impl Fn(&[u8]) -> bool) -> Option<&'a [u8]> {
        self.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value)
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let Params { index, stream } = *self;
        let Entries { all, side, .. } = index.entries(stream);
        all.iter().map(move |(name, value)| (name.bytes(stream, side), value.bytes(stream, side)))
    }
}

/// `ACCEPT_ENCODING` is the variable of `accept-encoding`.
fn is_variable_of(variable: &[u8], field: &[u8]) -> bool {
    variable.len() == field.len()
        && variable
            .iter()
            .zip(field)
            .all(|(v, f)| *v == if *f == b'-' { b'_' } else { f.to_ascii_uppercase() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostler_proto::pairs::write_pair;

    fn with<T>(pairs: &[(&str, &str)], look: impl FnOnce(Params<'_>, bool) -> T) -> T {
        let mut stream = Vec::new();
        for (name, value) in pairs {
            write_pair(&mut stream, name.as_bytes(), value.as_bytes());
        }
        let mut index = Index::default();
        index.read(&stream).unwrap();
        let params = Params::new(&index, &stream);
        params.iter().count();
        look(params, params.repeated())
    }

    #[test]
    fn each_variable_is_found_by_its_name_and_each_field_by_its_own() {
        let pairs =
            [("REQUEST_METHOD", "GET"), ("HTTP_IF_NONE_MATCH", "x"), ("CONTENT_TYPE", "a/b"), ("E", "")];
        with(&pairs, |params, repeated| {
            assert_eq!(params.get("REQUEST_METHOD"), Some(&b"GET"[..]));
            assert_eq!(params.get("E"), Some(&b""[..]));
            assert_eq!(params.get("request_method"), None);
            assert_eq!(params.header("if-none-match"), Some(&b"x"[..]));
            assert_eq!(params.header("content-type"), Some(&b"a/b"[..]));
            assert_eq!(params.iter().count(), 4);
            assert!(!repeated);
        });
    }

    #[test]
    fn each_variable_that_needs_no_search_stands_at_its_place() {
        for (known, name) in [
            (Known::RequestMethod, "REQUEST_METHOD"),
            (Known::RequestUri, "REQUEST_URI"),
            (Known::PathInfo, "PATH_INFO"),
            (Known::ServerName, "SERVER_NAME"),
            (Known::ScriptName, "SCRIPT_NAME"),
            (Known::HttpHost, "HTTP_HOST"),
            (Known::ContentLength, "CONTENT_LENGTH"),
        ] {
            assert_eq!(Known::named(name.as_bytes()), Some(known as usize), "{name}");
            for other in [&name[1..], &format!("X{name}"), &name.to_lowercase()] {
                assert_eq!(Known::named(other.as_bytes()), None, "{other}");
            }
            let pairs = [(name, "a"), ("X_PATH_INFO", "b"), ("", "c"), (name, "d")];
            let counts = if name == "HTTP_HOST" { "a" } else { "d" };
            with(&pairs, |params, _| assert_eq!(params.known(known), Some(counts.as_bytes()), "{name}"));
        }
    }

    #[test]
    fn repeated_names_have_a_rule_each() {
        let pairs = [
            ("HTTP_X_A", "1"),
            ("HTTP_COOKIE", "a=1"),
            ("HTTP_HOST", "first"),
            ("SCRIPT_FILENAME", "/client"),
            ("HTTP_X_A", "2"),
            ("HTTP_COOKIE", "b=2"),
            ("HTTP_HOST", "second"),
            ("SCRIPT_FILENAME", "/admin"),
            ("HTTP_X_A", "3"),
        ];
        with(&pairs, |params, repeated| {
            assert!(repeated);
            assert_eq!(params.get("HTTP_X_A"), Some(&b"1, 2, 3"[..]));
            assert_eq!(params.get("HTTP_COOKIE"), Some(&b"a=1; b=2"[..]));
            assert_eq!(params.get("HTTP_HOST"), Some(&b"first"[..]));
            assert_eq!(params.get("SCRIPT_FILENAME"), Some(&b"/admin"[..]));
            assert_eq!(params.iter().count(), 4);
        });
    }

    #[test]
    fn a_proxy_field_of_the_client_is_no_proxy_setting() {
        with(&[("HTTP_PROXY", "http://evil"), ("A", "b")], |params, _| {
            assert_eq!(params.get("HTTP_PROXY"), None);
            assert_eq!(params.header("proxy"), None);
            assert_eq!(params.iter().count(), 1);
        });
    }

    #[test]
    fn many_names_are_all_kept() {
        let names: Vec<String> = (0..500).map(|n| format!("HTTP_X_{n:03}")).collect();
        let pairs: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
        with(&pairs, |params, repeated| {
            assert!(!repeated);
            for name in &names {
                assert_eq!(params.get(name), Some(name.as_bytes()));
            }
        });
    }
}
