//! What a runtime is: something that answers requests, one at a time, in one process.

use crate::{Error, answer::Answer, request::Request};
use std::{borrow::Cow, io::Read};

/// Answers requests.
///
/// An app is called from one thread. It may keep what it likes between requests; it lives as long as its worker.
pub trait App {
    /// Answers one request: a head, then a body.
    ///
    /// # Errors
    /// Before the head is out, an error becomes a whole error answer; after it, the connection is cut.
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error>;
}

/// The body of an `http::Response` that a function returns.
pub enum Content {
    /// Bytes that are there.
    Bytes(Cow<'static, [u8]>),
    /// Bytes that are read while they are sent.
    Reader(Box<dyn Read>),
}

impl Content {
    /// A body that is read while it is sent. What one `read` gives is sent at once.
    pub fn reader(reader: impl Read + 'static) -> Content {
        Content::Reader(Box::new(reader))
    }
}

impl From<&'static str> for Content {
    fn from(text: &'static str) -> Content {
        Content::Bytes(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Bytes(Cow::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::Bytes(Cow::Owned(bytes))
    }
}

impl From<()> for Content {
    fn from((): ()) -> Content {
        Content::Bytes(Cow::Borrowed(b""))
    }
}

/// A function from a request to a response, as an app.
pub(crate) struct Function<F>(pub(crate) F);

impl<F, B> App for Function<F>
where
    F: FnMut(&mut Request<'_>) -> Result<http::Response<B>, Error>,
    B: Into<Content>,
{
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        let (head, body) = (self.0)(request)?.into_parts();
        let mut few: [(&str, &[u8]); 16] = [("", b""); 16];
        let named = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        match few.get_mut(..head.headers.len()) {
            Some(few) => {
                few.iter_mut().zip(named).for_each(|(slot, field)| *slot = field);
                answer.head(head.status, few)?;
            }
            None => answer.head(head.status, &named.collect::<Vec<_>>())?,
        }
        match body.into() {
            Content::Bytes(bytes) => answer.write(&bytes),
            Content::Reader(_) if answer.wants_no_body() => Ok(()),
            Content::Reader(mut reader) => {
                let mut piece = vec![0; 32 * 1024];
                loop {
                    let n = match reader.read(&mut piece) {
                        Ok(0) => return Ok(()),
                        Ok(n) => n,
                        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                        Err(e) => return Err(e.into()),
                    };
                    answer.write(piece.get(..n).unwrap_or_default())?;
                    if n < piece.len() {
                        answer.flush()?;
                    }
                }
            }
        }
    }
}
