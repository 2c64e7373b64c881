//! How far the request of an HTTP connection is: its head, then its body up to the limit of what is gathered.
//!
//! Always holds: no byte is judged twice, however small the pieces are that it comes in.

use super::{Chunked, Head, head::end_of_head};
use crate::body::Framing;
use hostler_proto::Piece;
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// Bytes in which no head ended.
    pub(crate) scanned: usize,
    /// The head, once it was there.
    pub(crate) head: Option<Head>,
    chunked: Chunked,
    /// Bytes that are judged.
    at: usize,
    /// Where body bytes lie.
    pub(crate) pieces: Vec<Range<usize>>,
    gathered: usize,
}

/// What is there of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Not all of it.
    More,
    /// All; the request has this many bytes.
    Whole(usize),
    /// More than is gathered.
    Large,
    /// A chunk that is none.
    Broken,
}

impl Gathering {
    /// Notes a head that has just been read.
    pub(crate) fn begin(&mut self, head: Head) {
        self.head = Some(head);
        self.at = head.len;
    }

    /// Notes that no head ended in these bytes.
    pub(crate) fn waiting_for_head(&mut self, bytes: &[u8]) {
        debug_assert!(end_of_head(bytes, 0).is_none());
        self.scanned = bytes.len();
    }

    /// Judges the body among `bytes`, all bytes of the request.
    pub(crate) fn body(&mut self, bytes: &[u8], limit: usize) -> Extent {
        let Some(head) = self.head else { return Extent::More };
        if !head.chunked {
            let here = bytes.len().saturating_sub(head.len);
            self.pieces.clear();
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            let taken = here.min(length);
            self.pieces.extend(Some(head.len..head.len + taken).filter(|piece| !piece.is_empty()));
            self.at = head.len + taken;
            return match (here >= length, here > limit) {
                (true, _) => Extent::Whole(self.at),
                (false, true) => Extent::Large,
                (false, false) => Extent::More,
            };
        }
        loop {
            match self.chunked.next(bytes.get(self.at..).unwrap_or_default()) {
                Ok(Piece::Content(n)) => {
                    self.pieces.push(self.at..self.at + n);
                    self.gathered += n;
                    self.at += n;
                }
                Ok(Piece::Skip(n)) => self.at += n,
                Ok(Piece::End) => return Extent::Whole(self.at),
                // Framing counts too: chunks of one byte must not grow the buffer sixfold.
                Ok(_) if self.gathered > limit || self.at > head.len + limit => return Extent::Large,
                Ok(_) => return Extent::More,
                Err(_) => return Extent::Broken,
            }
        }
    }

    /// Where the bytes begin that are not judged, and how the rest of a large body is marked off.
    pub(crate) fn rest(&self) -> (usize, Framing) {
        match self.head {
            Some(head) if head.chunked => (self.at, Framing::Chunked(self.chunked.clone())),
            Some(head) => (self.at, Framing::Length(head.length.saturating_sub((self.at - head.len) as u64))),
            None => (self.at, Framing::Over),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(chunked: bool, length: u64) -> Head {
        Head { len: 2, minor: 1, keep: true, head_only: false, chunked, length, expects_continue: false }
    }

    #[test]
    fn a_body_of_known_length_is_whole_at_its_last_byte() {
        let bytes = b"hhbodynext";
        for cut in 2..=bytes.len() {
            let mut gathering = Gathering::default();
            gathering.begin(head(false, 4));
            let extent = gathering.body(&bytes[..cut], 100);
            assert_eq!(extent, if cut < 6 { Extent::More } else { Extent::Whole(6) });
        }
        let mut gathering = Gathering::default();
        gathering.begin(head(false, 1000));
        assert_eq!(gathering.body(bytes, 5), Extent::Large);
        assert!(matches!(gathering.rest(), (10, Framing::Length(992))));
    }

    #[test]
    fn a_chunked_body_is_judged_once_whatever_its_pieces() {
        let bytes = b"hh3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nnext";
        let mut gathering = Gathering::default();
        gathering.begin(head(true, 0));
        for cut in 2..bytes.len() - 4 {
            assert_eq!(gathering.body(&bytes[..cut], 100), Extent::More, "{cut}");
        }
        assert_eq!(gathering.body(bytes, 100), Extent::Whole(bytes.len() - 4));
        let body: Vec<u8> = gathering.pieces.iter().flat_map(|p| bytes[p.clone()].to_vec()).collect();
        assert_eq!(body, b"abcde");
        let mut gathering = Gathering::default();
        gathering.begin(head(true, 0));
        assert_eq!(gathering.body(&bytes[..17], 3), Extent::Large);
        let mut gathering = Gathering::default();
        gathering.begin(head(true, 0));
        assert_eq!(gathering.body(b"hhx\r\n", 3), Extent::Broken);
    }
}
