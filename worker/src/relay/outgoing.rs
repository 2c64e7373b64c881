//! What a program is sent: the records of one request (FastCGI 5.1 to 5.3), in one buffer that is used again.
//!
//! Always holds: a pair is never cut in two by the end of a record where it fits into one, since some programs
//! (php-cgi, uWSGI) break at that; the buffer never grows with the body. Does no I/O.

use hostler_proto::{BeginRequest, Header, Kind, Role, pairs::write_pair, record::CONTENT_MAX};

/// The id of the first request on a connection. The one after it has the next id, and so on in turn: mono tells the end
/// of a request before it has forgotten its id, and breaks at one that comes again at once.
pub(super) const ID: u16 = 1;
/// Bytes from which on no more body is put into the buffer.
const FULL: usize = 64 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Outgoing {
    id: u16,
    bytes: Vec<u8>,
    sent: usize,
    /// Where the header of the PARAMS record stands that pairs are added to.
    record: usize,
}

impl Outgoing {
    /// Begins a request.
    pub(super) fn begin(&mut self, id: u16, role: Role, keep_conn: bool) {
        self.id = id;
        self.bytes.clear();
        self.sent = 0;
        self.header(Kind::BeginRequest, BeginRequest::LEN);
        self.bytes.extend_from_slice(&BeginRequest { role, keep_conn }.to_bytes());
        self.open();
    }

    /// Adds a parameter.
    pub(super) fn pair(&mut self, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        write_pair(&mut self.bytes, name, value);
        if self.bytes.len() - self.record - Header::LEN <= CONTENT_MAX {
            return;
        }
        let pair = self.bytes.split_off(start);
        self.close();
        self.open();
        for part in pair.chunks(CONTENT_MAX) {
            if self.bytes.len() > self.record + Header::LEN {
                self.close();
                self.open();
            }
            self.bytes.extend_from_slice(part);
        }
    }

    /// Ends the parameters.
    pub(super) fn end_params(&mut self) {
        self.close();
        self.header(Kind::Params, 0);
    }

    /// Adds a record of body, of what `fill` puts into the room that it is given; 0 is the end of the body, which is
    /// written too.
    pub(super) fn body<E>(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        if self.sent >= FULL {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        let at = self.bytes.len();
        self.bytes.resize(at + Header::LEN + FULL.min(CONTENT_MAX), 0);
        let room = self.bytes.get_mut(at + Header::LEN..).unwrap_or_default();
        let filled = fill(room);
        let count = *filled.as_ref().unwrap_or(&0);
        self.bytes.truncate(if filled.is_ok() { at + Header::LEN + count } else { at });
        if filled.is_ok() {
            self.patch(at, Kind::Stdin, count);
        }
        filled
    }

    /// Asks the program to stop (FastCGI 5.4), after what is begun.
    pub(super) fn abort(&self) -> [u8; Header::LEN] {
        Header { kind: Kind::AbortRequest, id: self.id, content_length: 0, padding_length: 0 }.to_bytes()
    }

    /// Writes the empty record that ends the body.
    pub(super) fn end_body(&mut self) {
        self.header(Kind::Stdin, 0);
    }

    /// Writes the second stream of a Filter (FastCGI 6.4), whole.
    pub(super) fn data<'d>(&mut self, pieces: impl Iterator<Item = &'d [u8]>) {
        for part in pieces.flat_map(|piece| piece.chunks(CONTENT_MAX)) {
            self.header(Kind::Data, part.len());
            self.bytes.extend_from_slice(part);
        }
        self.header(Kind::Data, 0);
    }

    /// The id of the request.
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// What is not sent yet.
    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// More body would be too much.
    pub(super) fn is_full(&self) -> bool {
        self.pending().len() >= FULL
    }

    /// So many bytes were sent.
    pub(super) fn pass(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }

    /// Drops what is not sent.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    fn open(&mut self) {
        self.record = self.bytes.len();
        self.header(Kind::Params, 0);
    }

    /// Writes the length of the open record; an empty one is taken back, since it would end the stream.
    fn close(&mut self) {
        let length = self.bytes.len() - self.record - Header::LEN;
        if length == 0 {
            self.bytes.truncate(self.record);
        } else {
            self.patch(self.record, Kind::Params, length);
        }
    }

    fn header(&mut self, kind: Kind, length: usize) {
        let content_length = u16::try_from(length).unwrap_or(u16::MAX);
        let header = Header { kind, id: self.id, content_length, padding_length: 0 };
        self.bytes.extend_from_slice(&header.to_bytes());
    }

    fn patch(&mut self, at: usize, kind: Kind, length: usize) {
        let content_length = u16::try_from(length).unwrap_or(u16::MAX);
        let header = Header { kind, id: self.id, content_length, padding_length: 0 };
        if let Some(slot) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<{ Header::LEN }>) {
            *slot = header.to_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostler_proto::{Gather, Limits, Pairs, Step};

    /// Parameters as a peer reads them, those of each record apart.
    fn read(out: &Outgoing) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut gather = Gather::default();
        let limits = Limits { params: 1 << 20, body: 1 << 20 };
        let mut step = gather.scan(out.pending(), &limits);
        if step == Ok(Step::Head) {
            step = gather.scan(out.pending(), &limits);
        }
        assert_eq!(step, Ok(Step::Whole));
        let of = |ranges: &[std::ops::Range<usize>]| -> Vec<Vec<u8>> {
            ranges.iter().map(|range| out.pending()[range.clone()].to_vec()).collect()
        };
        (of(gather.params()), of(gather.stdin()).concat())
    }

    #[test]
    fn each_record_of_parameters_holds_whole_pairs() {
        let mut out = Outgoing::default();
        out.begin(ID, Role::Responder, true);
        let values: Vec<Vec<u8>> = (0..9).map(|n| vec![b'a' + n; 20_000]).collect();
        values.iter().for_each(|value| out.pair(b"NAME", value));
        out.end_params();
        let mut bodies = vec![&b"body"[..], b""].into_iter();
        while out
            .body(|room| {
                let body = bodies.next().unwrap();
                room[..body.len()].copy_from_slice(body);
                Ok::<_, ()>(body.len())
            })
            .unwrap()
            > 0
        {}
        let (records, body) = read(&out);
        assert_eq!((records.len(), &body[..]), (3, &b"body"[..]));
        let pairs = records.iter().flat_map(|record| Pairs::new(record).map(|pair| pair.unwrap().1.to_vec()));
        assert_eq!(pairs.collect::<Vec<_>>(), values);
    }

    #[test]
    fn a_pair_larger_than_a_record_runs_over_and_no_parameters_are_none() {
        for len in [0, 1, CONTENT_MAX, 65_536, 200_000] {
            let mut out = Outgoing::default();
            out.begin(ID, Role::Responder, true);
            if len > 0 {
                out.pair(b"A", b"b");
                out.pair(b"LONG", &vec![b'x'; len]);
            }
            out.end_params();
            out.end_body();
            let stream = read(&out).0.concat();
            let pairs: Vec<_> = Pairs::new(&stream).map(Result::unwrap).collect();
            assert_eq!(pairs.len(), if len > 0 { 2 } else { 0 });
            assert!(pairs.iter().all(|(name, value)| *name == b"A" || value.len() == len));
        }
    }

    #[test]
    fn a_body_that_is_never_quite_sent_takes_no_more_room() {
        let mut out = Outgoing::default();
        for _ in 0..1000 {
            while !out.is_full() {
                out.body(|room| Ok::<_, ()>(room.len())).unwrap();
            }
            out.pass(out.pending().len() - 1);
        }
        assert!(out.bytes.capacity() < 8 * FULL, "{}", out.bytes.capacity());
    }

    #[test]
    fn a_body_that_has_nothing_yet_writes_nothing() {
        let mut out = Outgoing::default();
        assert_eq!(out.body(|_| Err::<usize, _>(())), Err(()));
        assert!(out.pending().is_empty());
    }
}
