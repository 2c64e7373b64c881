//! What a program sends: records (FastCGI 3.3), given on in pieces as they come.
//!
//! Always holds: contents are handed out where they were read, without a copy; a record need not be whole; records
//! of other requests and management records are passed over. Does no I/O but [`Incoming::read`].

use hostler_proto::{EndRequest, Header, Kind};
use nix::sys::socket::{MsgFlags, recv};
use std::os::{fd::AsRawFd, unix::net::UnixStream};

/// Bytes that are read at once: a whole record of the largest kind with its header.
const ROOM: usize = 72 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
    /// Content of the record in hand that is still to come.
    left: usize,
    padding: usize,
    kind: Option<Kind>,
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'b> {
    /// Nothing more is there: read.
    More,
    /// Some of the answer.
    Stdout(&'b [u8]),
    /// Some of what is to be logged.
    Stderr(&'b [u8]),
    /// The answer to `GET_VALUES`, or that it is not known.
    Values,
    /// The end of the request.
    End(EndRequest),
    /// What the program sends is not FastCGI.
    Broken,
}

impl Incoming {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        (self.at, self.end, self.left, self.padding, self.kind) = (0, 0, 0, 0, None);
    }

    /// Nothing is here that was not handed out.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.end && self.left == 0 && self.padding == 0
    }

    /// Reads what is there, or waits for it as long as the socket's own timeout says.
    pub(super) fn read(&mut self, from: &UnixStream, wait: bool) -> nix::Result<usize> {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        } else {
            self.bytes.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        if self.bytes.is_empty() {
            self.bytes = vec![0; ROOM];
        }
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        let count = recv(from.as_raw_fd(), room, flags)?;
        self.end += count;
        Ok(count)
    }

    /// The next piece for the request `id`.
    pub(super) fn next(&mut self, id: u16) -> Piece<'_> {
        loop {
            let here = self.end - self.at;
            if self.left > 0 && self.kind == Some(Kind::EndRequest) {
                return self.end_request();
            }
            if self.left > 0 {
                let taken = self.left.min(here);
                if taken == 0 {
                    return Piece::More;
                }
                let start = self.at;
                self.at += taken;
                self.left -= taken;
                let content = start..self.at;
                match self.kind {
                    Some(Kind::Stdout) => return Piece::Stdout(self.bytes.get(content).unwrap_or_default()),
                    Some(Kind::Stderr) => return Piece::Stderr(self.bytes.get(content).unwrap_or_default()),
                    _ => continue,
                }
            }
            if self.padding > 0 {
                let passed = self.padding.min(here);
                self.at += passed;
                self.padding -= passed;
                if self.padding > 0 {
                    return Piece::More;
                }
            }
            let here = self.bytes.get(self.at..self.end).unwrap_or_default();
            let Some(head) = here.first_chunk::<{ Header::LEN }>() else { return Piece::More };
            let Ok(header) = Header::from_bytes(*head) else { return Piece::Broken };
            self.at += Header::LEN;
            self.left = usize::from(header.content_length);
            self.padding = usize::from(header.padding_length);
            self.kind = match header.kind {
                Kind::EndRequest if header.id == id && self.left != EndRequest::LEN => return Piece::Broken,
                kind @ (Kind::Stdout | Kind::Stderr | Kind::EndRequest) if header.id == id => Some(kind),
                Kind::GetValuesResult | Kind::UnknownType => {
                    self.kind = None;
                    return Piece::Values;
                }
                _ => None,
            };
        }
    }

    fn end_request(&mut self) -> Piece<'_> {
        let here = self.bytes.get(self.at..self.end).unwrap_or_default();
        let Some(body) = here.first_chunk::<{ EndRequest::LEN }>() else { return Piece::More };
        self.at += EndRequest::LEN;
        self.left = 0;
        Piece::End(EndRequest::from_bytes(*body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostler_proto::ProtocolStatus;
    use std::io::Write;

    fn record(kind: Kind, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let header = Header { kind, id, content_length: content.len() as u16, padding_length: padding };
        let mut bytes = [&header.to_bytes(), content].concat();
        bytes.resize(bytes.len() + usize::from(padding), 0);
        bytes
    }

    fn all(bytes: &[u8], step: usize) -> (Vec<u8>, Vec<u8>, bool) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (mut incoming, mut out, mut err) = (Incoming::default(), Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            theirs.write_all(part).unwrap();
            incoming.read(&ours, false).unwrap();
            loop {
                match incoming.next(1) {
                    Piece::More => break,
                    Piece::Stdout(part) => out.extend_from_slice(part),
                    Piece::Stderr(part) => err.extend_from_slice(part),
                    Piece::Values => {}
                    Piece::Broken => panic!("broken"),
                    Piece::End(end) => {
                        assert_eq!((end.app_status, end.protocol_status), (7, ProtocolStatus::Overloaded));
                        return (out, err, true);
                    }
                }
            }
        }
        (out, err, false)
    }

    #[test]
    fn an_answer_is_the_same_however_it_is_torn() {
        let end = EndRequest { app_status: 7, protocol_status: ProtocolStatus::Overloaded };
        let bytes = [
            record(Kind::GetValuesResult, 0, b"late", 4),
            record(Kind::Stdout, 1, b"hello ", 2),
            record(Kind::Stdout, 9, b"not ours", 0),
            record(Kind::Stderr, 1, b"oh", 255),
            record(Kind::Stdout, 1, b"world", 0),
            record(Kind::Stdout, 1, b"", 3),
            record(Kind::Stderr, 1, b"", 0),
            end.to_record(1).to_vec(),
        ]
        .concat();
        for step in 1..=bytes.len() {
            assert_eq!(all(&bytes, step), (b"hello world".to_vec(), b"oh".to_vec(), true), "{step}");
        }
    }

    #[test]
    fn what_is_no_fastcgi_is_told() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for bytes in [&b"HTTP/1.1 400 Bad"[..], &record(Kind::EndRequest, 1, b"short", 0)] {
            let mut incoming = Incoming::default();
            theirs.write_all(bytes).unwrap();
            incoming.read(&ours, false).unwrap();
            assert_eq!(incoming.next(1), Piece::Broken);
        }
    }
}
