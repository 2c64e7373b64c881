//! An answer of the `files` runtime as a value, and how it is sent.
//!
//! Always holds: a body's length is known before its head leaves; a HEAD opens the same file and has the same
//! head as its GET.

use super::range::Span;
use crate::{answer::Answer, beneath::Refusal, error::Error};
use http::StatusCode;
use std::{
    borrow::Cow,
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
};

/// The methods that a file answers.
pub(super) const METHODS: &[u8] = b"GET, HEAD, OPTIONS";

/// An answer: its head and what its body is made of.
pub(super) struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers but Content-Length.
    pub headers: Vec<(&'static str, Cow<'static, [u8]>)>,
    /// Its body.
    pub body: Body,
    /// What the system refused, for the log.
    pub failure: Option<nix::errno::Errno>,
}

/// The body of an answer.
pub(super) enum Body {
    /// No body and no Content-Length.
    None,
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A stretch of a file.
    Span(File, Span),
    /// A `multipart/byteranges`: each span of the file after its part's head, then the end.
    Parts(File, Vec<(String, Span)>, String),
}

impl Reply {
    /// Without headers and body.
    pub(super) fn new(status: StatusCode) -> Reply {
        Reply { status, headers: Vec::with_capacity(8), body: Body::None, failure: None }
    }

    /// One line of text that says the status.
    pub(super) fn plain(status: StatusCode) -> Reply {
        let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or_default());
        Reply::new(status).with("Content-Type", &b"text/plain; charset=utf-8"[..]).bytes(text.into_bytes())
    }

    /// With one more header.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Reply {
        self.headers.push((name, value.into().0));
        self
    }

    /// With one more header where it has a value.
    pub(super) fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Reply {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// With a body of these bytes.
    pub(super) fn bytes(mut self, bytes: Vec<u8>) -> Reply {
        self.body = Body::Bytes(bytes);
        self
    }

    /// With the whole file of `size` bytes as its body.
    pub(super) fn file(mut self, file: File, size: u64) -> Reply {
        self.body = Body::Span(file, Span { start: 0, len: size });
        self
    }

    /// With these spans of a file of `size` bytes as its body: one by itself, several as parts.
    pub(super) fn spans(self, file: File, size: u64, spans: Vec<Span>, media_type: &str) -> Reply {
        if let [span] = spans[..] {
            let mut reply =
                self.with("Content-Type", media_type).with("Content-Range", span.content_range(size));
            reply.body = Body::Span(file, span);
            return reply;
        }
        let boundary = boundary();
        let parts = spans.into_iter().map(|span| {
            let range = span.content_range(size);
            let head =
                format!("\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {range}\r\n\r\n");
            (head, span)
        });
        let parts = parts.collect();
        let mut reply = self.with("Content-Type", format!("multipart/byteranges; boundary={boundary}"));
        reply.body = Body::Parts(file, parts, format!("\r\n--{boundary}--\r\n"));
        reply
    }

    /// Sends it; with `head_only` the head alone.
    pub(super) fn send(self, answer: &mut Answer<'_>, head_only: bool) -> Result<(), Error> {
        let length = self.body.len().map(|len| len.to_string());
        let length = length.iter().map(|len| ("Content-Length", len.as_bytes()));
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (*name, value.as_ref())).chain(length).collect();
        answer.head(self.status, &headers)?;
        if head_only {
            return Ok(());
        }
        match &self.body {
            Body::None => Ok(()),
            Body::Bytes(bytes) => answer.write(bytes),
            Body::Span(file, span) => answer.send_file(file, span.start, span.len),
            Body::Parts(file, parts, end) => {
                for (head, span) in parts {
                    answer.write(head.as_bytes())?;
                    answer.send_file(file, span.start, span.len)?;
                }
                answer.write(end.as_bytes())
            }
        }
    }
}

impl Body {
    /// Its length in bytes; `None` where the answer has no Content-Length.
    pub(super) fn len(&self) -> Option<u64> {
        let of = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        match self {
            Body::None => None,
            Body::Bytes(bytes) => Some(of(bytes.len())),
            Body::Span(_, span) => Some(span.len),
            Body::Parts(_, parts, end) => {
                Some(parts.iter().map(|(head, span)| of(head.len()) + span.len).sum::<u64>() + of(end.len()))
            }
        }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Absent => Reply::plain(StatusCode::NOT_FOUND),
            Refusal::Forbidden => Reply::plain(StatusCode::FORBIDDEN),
            Refusal::Failed(errno) => {
                Reply { failure: Some(errno), ..Reply::plain(StatusCode::INTERNAL_SERVER_ERROR) }
            }
        }
    }
}

/// A header's value, owned or static.
pub(super) struct Value(Cow<'static, [u8]>);

impl From<&'static [u8]> for Value {
    fn from(value: &'static [u8]) -> Self {
        Value(Cow::Borrowed(value))
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Value(Cow::Owned(value))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value(Cow::Owned(value.into_bytes()))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::from(value.to_owned())
    }
}

impl From<Cow<'static, str>> for Value {
    fn from(value: Cow<'static, str>) -> Self {
        match value {
            Cow::Borrowed(value) => Value::from(value.as_bytes()),
            Cow::Owned(value) => Value::from(value),
        }
    }
}

/// A boundary that no file can be made to hold: 128 bits from the seed of a random hasher, anew each time.
fn boundary() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}
