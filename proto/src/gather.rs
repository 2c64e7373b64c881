//! Gathers one request from the bytes of a connection (FastCGI 3.3, 5, 6), resumable at any byte.
//!
//! The caller keeps the bytes and calls [`Gather::scan`] with all of them, again whenever more came. The scan
//! goes on where it stopped and copies nothing: it notes where the contents of records lie.
//!
//! Always holds: no record is looked at twice; [`Gather::scanned`] never passes the bytes given; records of
//! requests that are over, refused or never begun are skipped (FastCGI 3.3: an id may be reused at once).

use crate::{
    Error,
    record::{BeginRequest, Header, Kind, MANAGEMENT_ID, Role},
};
use std::ops::Range;

/// Limits that a peer cannot pass, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Content of all PARAMS records.
    pub params: usize,
    /// Content of STDIN and DATA records up to which the request is gathered whole.
    pub body: usize,
}

/// The request that a connection has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Its id, to be echoed.
    pub id: u16,
    /// What the app is asked to be.
    pub role: Role,
    /// The web server keeps the connection open after the answer.
    pub keep_conn: bool,
}

/// Where a scan stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// All bytes are read and the request is not whole.
    More,
    /// The parameters are whole: said once, before any body, so that its length can be judged; and not where the
    /// request is whole with them, as most are.
    Head,
    /// The request is whole.
    Whole,
    /// The body is larger than the limit: what follows is for a [`crate::Stream`].
    Large,
    /// A management record to answer at once (FastCGI 4); its content lies at the range.
    Management(Kind, Range<usize>),
    /// A second request, to be refused with CANT_MPX_CONN; its further records are skipped.
    Multiplexed(u16),
    /// A request of a role that is none, to be refused with UNKNOWN_ROLE; its further records are skipped.
    UnknownRole(Begun),
    /// The web server took the request back (FastCGI 5.4), to be answered with END_REQUEST.
    Aborted(Begun),
}

/// The scan of one request; see the module.
#[derive(Debug, Default)]
pub struct Gather {
    /// Bytes looked at: a record border, or inside a record that is skipped.
    at: usize,
    /// Bytes still to skip of a record that belongs to no request.
    skip: usize,
    begun: Option<Begun>,
    params: Vec<Range<usize>>,
    params_len: usize,
    params_whole: bool,
    body: Vec<Range<usize>>,
    body_len: usize,
    stdin_whole: bool,
    data: Vec<Range<usize>>,
    data_whole: bool,
}

impl Gather {
    /// The request that has begun.
    #[must_use]
    pub fn begun(&self) -> Option<Begun> {
        self.begun
    }

    /// Bytes that belong to this request or to none: what follows them is not looked at yet.
    #[must_use]
    pub fn scanned(&self) -> usize {
        self.at
    }

    /// Where the contents of the PARAMS records lie.
    #[must_use]
    pub fn params(&self) -> &[Range<usize>] {
        &self.params
    }

    /// Where the contents of the STDIN records lie, as far as they are gathered.
    #[must_use]
    pub fn stdin(&self) -> &[Range<usize>] {
        &self.body
    }

    /// Where the contents of the DATA records lie (Filter alone).
    #[must_use]
    pub fn data(&self) -> &[Range<usize>] {
        &self.data
    }

    /// Bytes of STDIN gathered.
    #[must_use]
    pub fn stdin_len(&self) -> usize {
        self.body_len
    }

    /// STDIN has ended.
    #[must_use]
    pub fn stdin_whole(&self) -> bool {
        self.stdin_whole
    }

    /// Forgets the request: the next scan is given the bytes after [`Gather::scanned`]. Keeps its memory.
    pub fn restart(&mut self) {
        self.at = 0;
        self.begun = None;
        self.params.clear();
        self.params_len = 0;
        self.params_whole = false;
        self.body.clear();
        self.body_len = 0;
        self.stdin_whole = false;
        self.data.clear();
        self.data_whole = false;
    }

    /// The rest of a record is still to be passed over.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.skip > 0
    }

    /// Passes over the next `n` bytes, the rest of a record of the request before.
    pub fn skip(&mut self, n: usize) {
        self.skip += n;
    }

    /// Forgets the connection: the next scan is of another one, from its first byte.
    pub fn forget(&mut self) {
        self.restart();
        self.skip = 0;
    }

    /// Goes on to read `bytes`, all of the connection's since the last [`Gather::restart`].
    ///
    /// After [`Step::Aborted`] or [`Step::UnknownRole`] the caller restarts; after [`Step::Whole`] and
    /// [`Step::Large`] it serves. After any other step it may call again at once.
    ///
    /// # Errors
    /// What the peer did wrong; the connection is to be closed.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Step, Error> {
        match self.plain(bytes, limits) {
            Some(()) => Ok(Step::Whole),
            None => self.scan_on(bytes, limits),
        }
    }

    /// Reads a request as most are: all of it there, its parameters in one record, without a body. It says no more
    /// than [`Gather::scan_on`] would, in far fewer steps. `None`, and nothing is read, where it is another.
    #[inline]
    fn plain(&mut self, bytes: &[u8], limits: &Limits) -> Option<()> {
        if self.at != 0 || self.skip != 0 || self.begun.is_some() {
            return None;
        }
        let empty = |kind, id| Header { kind, id, content_length: 0, padding_length: 0 }.to_bytes();
        let (begin, rest) = bytes.split_first_chunk()?;
        let Header { kind: Kind::BeginRequest, id: id @ 1.., content_length: 8, padding_length: 0 } =
            Header::from_bytes(*begin).ok()?
        else {
            return None;
        };
        let (begin, rest) = rest.split_first_chunk()?;
        let BeginRequest { role: Role::Responder, keep_conn } = BeginRequest::from_bytes(*begin) else {
            return None;
        };
        let (params, rest) = rest.split_first_chunk()?;
        let params = Header::from_bytes(*params).ok()?;
        let length = usize::from(params.content_length);
        let (params_end, rest) = rest.get(params.rest()..)?.split_first_chunk()?;
        let stdin_end = rest.first_chunk()?;
        let plain = (params.kind, params.id) == (Kind::Params, id)
            && (1..=limits.params).contains(&length)
            && *params_end == empty(Kind::Params, id)
            && *stdin_end == empty(Kind::Stdin, id);
        if !plain {
            return None;
        }
        let start = 2 * Header::LEN + BeginRequest::LEN;
        self.at = start + params.rest() + 2 * Header::LEN;
        self.begun = Some(Begun { id, role: Role::Responder, keep_conn });
        self.params.push(start..start + length);
        self.params_len = length;
        self.params_whole = true;
        self.stdin_whole = true;
        Some(())
    }

    /// One record after another.
    fn scan_on(&mut self, bytes: &[u8], limits: &Limits) -> Result<Step, Error> {
        loop {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len().saturating_sub(self.at));
                self.skip -= skipped;
                self.at += skipped;
            }
            if self.is_whole() {
                return Ok(Step::Whole);
            }
            let Some(rest) = bytes.get(self.at..) else { return Ok(Step::More) };
            let Some(head) = rest.first_chunk::<{ Header::LEN }>() else { return Ok(Step::More) };
            let header = Header::from_bytes(*head)?;
            if let Some(step) = self.record(header, rest, limits)? {
                return Ok(step);
            }
        }
    }

    /// One record; `None` to go on with the next.
    fn record(&mut self, header: Header, rest: &[u8], limits: &Limits) -> Result<Option<Step>, Error> {
        let ours = self.begun.filter(|begun| begun.id == header.id);
        match (header.kind, ours) {
            (Kind::BeginRequest, Some(_)) => Err(Error::Unexpected(header.kind)),
            (Kind::BeginRequest, None) if header.id == MANAGEMENT_ID => Err(Error::Unexpected(header.kind)),
            (Kind::BeginRequest, None) => self.begin(header, rest),
            (Kind::Params | Kind::Stdin | Kind::Data | Kind::AbortRequest, Some(begun)) => {
                if rest.len() < Header::LEN + header.rest() {
                    return Ok(Some(Step::More));
                }
                self.of_request(header, begun, limits)
            }
            (Kind::Params | Kind::Stdin | Kind::Data | Kind::AbortRequest, None) => {
                self.skip = Header::LEN + header.rest();
                self.bounded(limits).map(|()| None)
            }
            (Kind::GetValues | Kind::Other(_), _) if header.id == MANAGEMENT_ID => {
                if rest.len() < Header::LEN + header.rest() {
                    return Ok(Some(Step::More));
                }
                let content = self.take(header);
                self.bounded(limits)?;
                Ok(Some(Step::Management(header.kind, content)))
            }
            _ => Err(Error::Unexpected(header.kind)),
        }
    }

    fn begin(&mut self, header: Header, rest: &[u8]) -> Result<Option<Step>, Error> {
        if usize::from(header.content_length) != BeginRequest::LEN {
            return Err(Error::Length(header.kind, header.content_length));
        }
        if rest.len() < Header::LEN + header.rest() {
            return Ok(Some(Step::More));
        }
        let body = rest.get(Header::LEN..).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
        let BeginRequest { role, keep_conn } = BeginRequest::from_bytes(body);
        self.take(header);
        if self.begun.is_some() {
            return Ok(Some(Step::Multiplexed(header.id)));
        }
        let begun = Begun { id: header.id, role, keep_conn };
        if let Role::Other(_) = role {
            return Ok(Some(Step::UnknownRole(begun)));
        }
        self.begun = Some(begun);
        Ok(None)
    }

    /// One whole record of the request that has begun.
    fn of_request(&mut self, header: Header, begun: Begun, limits: &Limits) -> Result<Option<Step>, Error> {
        let content = self.take(header);
        match header.kind {
            Kind::AbortRequest => return Ok(Some(Step::Aborted(begun))),
            Kind::Params if self.params_whole => return Err(Error::Unexpected(header.kind)),
            Kind::Params if content.is_empty() => {
                self.params_whole = true;
                // A web server asks an authorizer without a body, and some without any STDIN record at all.
                self.stdin_whole = begun.role == Role::Authorizer;
                return Ok(Some(Step::Head));
            }
            Kind::Params => {
                self.params_len += content.len();
                if self.params_len > limits.params {
                    return Err(Error::ParamsTooLarge(limits.params));
                }
                self.params.push(content);
                return Ok(None);
            }
            Kind::Stdin if self.params_whole && !self.stdin_whole => {
                self.stdin_whole = content.is_empty();
                self.body_len += content.len();
                self.body.extend(Some(content).filter(|c| !c.is_empty()));
            }
            Kind::Data if self.params_whole && begun.role == Role::Filter && !self.data_whole => {
                self.data_whole = content.is_empty();
                self.body_len += content.len();
                self.data.extend(Some(content).filter(|c| !c.is_empty()));
            }
            _ => return Err(Error::Unexpected(header.kind)),
        }
        Ok(self.progress(limits))
    }

    fn progress(&self, limits: &Limits) -> Option<Step> {
        if self.is_whole() { Some(Step::Whole) } else { (self.body_len > limits.body).then_some(Step::Large) }
    }

    /// Also at the end of an authorizer's parameters, which no STDIN record follows.
    fn is_whole(&self) -> bool {
        let filter = self.begun.is_some_and(|begun| begun.role == Role::Filter);
        self.params_whole && self.stdin_whole && (self.data_whole || !filter)
    }

    /// Passes the whole record under the scan; where its content lies.
    fn take(&mut self, header: Header) -> Range<usize> {
        let start = self.at + Header::LEN;
        self.at = start + header.rest();
        start..start + usize::from(header.content_length)
    }

    /// Records of no request add up inside a request that has begun: they too have a limit.
    fn bounded(&self, limits: &Limits) -> Result<(), Error> {
        let limit = limits.params.saturating_add(limits.body).saturating_mul(2).saturating_add(1 << 16);
        if self.begun.is_some() && self.at > limit { Err(Error::TooMuch(limit)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::write_pair;

    const LIMITS: Limits = Limits { params: 4096, body: 1000 };

    fn record(kind: Kind, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let header = Header { kind, id, content_length: content.len() as u16, padding_length: padding };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + usize::from(padding), 0xaa);
        bytes
    }

    fn begin(id: u16, role: Role, keep_conn: bool) -> Vec<u8> {
        record(Kind::BeginRequest, id, &BeginRequest { role, keep_conn }.to_bytes(), 0)
    }

    fn request(id: u16, body: &[u8]) -> Vec<u8> {
        let mut params = Vec::new();
        write_pair(&mut params, b"REQUEST_METHOD", b"GET");
        let mut bytes = begin(id, Role::Responder, true);
        bytes.extend(record(Kind::Params, id, &params[..5], 3));
        bytes.extend(record(Kind::Params, id, &params[5..], 255));
        bytes.extend(record(Kind::Params, id, b"", 0));
        if !body.is_empty() {
            bytes.extend(record(Kind::Stdin, id, body, 1));
        }
        bytes.extend(record(Kind::Stdin, id, b"", 0));
        bytes
    }

    fn joined(bytes: &[u8], ranges: &[Range<usize>]) -> Vec<u8> {
        ranges.iter().flat_map(|range| bytes[range.clone()].to_vec()).collect()
    }

    #[test]
    fn a_request_is_whole_at_its_last_byte_wherever_it_is_torn() {
        let bytes = request(65535, b"body");
        for cut in 0..bytes.len() {
            let mut gather = Gather::default();
            let mut step = gather.scan(&bytes[..cut], &LIMITS).unwrap();
            if step == Step::Head {
                step = gather.scan(&bytes[..cut], &LIMITS).unwrap();
            }
            assert_eq!(step, Step::More, "{cut}");
            step = gather.scan(&bytes, &LIMITS).unwrap();
            if step == Step::Head {
                step = gather.scan(&bytes, &LIMITS).unwrap();
            }
            assert_eq!(step, Step::Whole, "{cut}");
            assert_eq!(gather.scanned(), bytes.len());
            assert_eq!(gather.begun(), Some(Begun { id: 65535, role: Role::Responder, keep_conn: true }));
            assert_eq!(joined(&bytes, gather.params()), b"\x0e\x03REQUEST_METHODGET");
            assert_eq!(joined(&bytes, gather.stdin()), b"body");
        }
    }

    #[test]
    fn a_plain_request_is_read_in_one_go_as_it_would_be_record_by_record() {
        let plain = |id, padding| {
            let mut bytes = begin(id, Role::Responder, true);
            bytes.extend(record(Kind::Params, id, b"\x01\x01Ab", padding));
            bytes.extend(record(Kind::Params, id, b"", 0));
            bytes.extend(record(Kind::Stdin, id, b"", 0));
            bytes
        };
        for bytes in [plain(1, 0), plain(65535, 4), [plain(2, 0), plain(3, 0)].concat()] {
            let (mut at_once, mut by_record) = (Gather::default(), Gather::default());
            assert_eq!(at_once.plain(&bytes, &LIMITS), Some(()));
            assert_eq!(by_record.scan_on(&bytes, &LIMITS), Ok(Step::Head));
            assert_eq!(by_record.scan_on(&bytes, &LIMITS), Ok(Step::Whole));
            assert_eq!(format!("{at_once:?}"), format!("{by_record:?}"));
        }
        // With any other byte in a header it is not plain, or something else altogether, which is for the scan.
        let bytes = plain(1, 0);
        for at in (0..24).chain(bytes.len() - 16..bytes.len()) {
            let mut odd = bytes.clone();
            odd[at] ^= 0x80;
            let (mut at_once, mut by_record) = (Gather::default(), Gather::default());
            if at_once.plain(&odd, &LIMITS).is_some() {
                assert_eq!(by_record.scan_on(&odd, &LIMITS), Ok(Step::Head), "{at}");
                assert_eq!(by_record.scan_on(&odd, &LIMITS), Ok(Step::Whole), "{at}");
            }
            assert_eq!(format!("{at_once:?}"), format!("{by_record:?}"), "{at}");
        }
        let small = Limits { params: 3, body: 0 };
        assert_eq!(Gather::default().scan(&bytes, &small), Err(Error::ParamsTooLarge(3)));
    }

    #[test]
    fn the_next_request_on_the_connection_is_left_alone() {
        let (one, two) = (request(1, b""), request(2, b"x"));
        let bytes = [one.clone(), two].concat();
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Head));
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Whole));
        assert_eq!(gather.scanned(), one.len());
        gather.restart();
        let bytes = &bytes[one.len()..];
        assert_eq!(gather.scan(bytes, &LIMITS), Ok(Step::Head));
        assert_eq!(gather.scan(bytes, &LIMITS), Ok(Step::Whole));
        assert_eq!(gather.begun().unwrap().id, 2);
    }

    #[test]
    fn an_authorizer_needs_no_stdin_and_a_filter_needs_data_too() {
        let mut bytes = begin(1, Role::Authorizer, false);
        bytes.extend(record(Kind::Params, 1, b"", 0));
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Head));
        assert!(gather.stdin_whole());

        let mut bytes = begin(1, Role::Filter, false);
        bytes.extend(record(Kind::Params, 1, b"", 0));
        bytes.extend(record(Kind::Stdin, 1, b"", 0));
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Head));
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::More));
        bytes.extend(record(Kind::Data, 1, b"file", 0));
        bytes.extend(record(Kind::Data, 1, b"", 0));
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Whole));
        assert_eq!(joined(&bytes, gather.data()), b"file");
    }

    #[test]
    fn management_records_are_told_wherever_they_stand() {
        let values = record(Kind::GetValues, 0, b"\x0f\x00FCGI_MPXS_CONNS", 0);
        let odd = record(Kind::Other(77), 0, b"", 0);
        let bytes = [values, begin(1, Role::Responder, true), odd].concat();
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Management(Kind::GetValues, 8..25)));
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Management(Kind::Other(77), 49..49)));
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::More));
    }

    #[test]
    fn what_belongs_to_no_request_is_skipped() {
        let stale = record(Kind::Stdin, 9, &[7; 3000], 5);
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&stale[..100], &LIMITS), Ok(Step::More));
        assert_eq!(gather.scanned(), 100);
        gather.restart();
        let rest = [&stale[100..], &request(9, b"")].concat();
        assert_eq!(gather.scan(&rest, &LIMITS), Ok(Step::Head));
        assert_eq!(gather.scan(&rest, &LIMITS), Ok(Step::Whole));
    }

    #[test]
    fn a_second_request_an_unknown_role_and_an_abort_are_told() {
        let bytes = [begin(1, Role::Responder, true), begin(2, Role::Responder, true)].concat();
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Multiplexed(2)));

        let mut gather = Gather::default();
        let begun = Begun { id: 3, role: Role::Other(9), keep_conn: false };
        assert_eq!(gather.scan(&begin(3, Role::Other(9), false), &LIMITS), Ok(Step::UnknownRole(begun)));

        let bytes = [begin(4, Role::Responder, false), record(Kind::AbortRequest, 4, b"", 0)].concat();
        let mut gather = Gather::default();
        assert!(matches!(gather.scan(&bytes, &LIMITS), Ok(Step::Aborted(Begun { id: 4, .. }))));
    }

    #[test]
    fn a_body_over_the_limit_is_large_and_parameters_over_theirs_are_an_error() {
        let mut bytes = begin(1, Role::Responder, false);
        bytes.extend(record(Kind::Params, 1, b"", 0));
        bytes.extend(record(Kind::Stdin, 1, &[1; 1001], 0));
        let mut gather = Gather::default();
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Head));
        assert_eq!(gather.scan(&bytes, &LIMITS), Ok(Step::Large));

        let mut bytes = begin(1, Role::Responder, false);
        bytes.extend(record(Kind::Params, 1, &[0; 4097], 0));
        assert_eq!(Gather::default().scan(&bytes, &LIMITS), Err(Error::ParamsTooLarge(4096)));
    }

    #[test]
    fn records_out_of_order_are_refused() {
        let open = begin(1, Role::Responder, false);
        let whole = [open.clone(), record(Kind::Params, 1, b"", 0)].concat();
        for (before, kind) in [
            (&open, Kind::Stdin),
            (&open, Kind::Data),
            (&open, Kind::BeginRequest),
            (&open, Kind::Stdout),
            (&open, Kind::EndRequest),
            (&whole, Kind::Params),
            (&whole, Kind::Data),
            (&whole, Kind::Stderr),
        ] {
            let bytes = [before.clone(), record(kind, 1, b"12345678", 0)].concat();
            let mut gather = Gather::default();
            let mut step = gather.scan(&bytes, &LIMITS);
            if step == Ok(Step::Head) {
                step = gather.scan(&bytes, &LIMITS);
            }
            assert_eq!(step, Err(Error::Unexpected(kind)), "{kind:?}");
        }
    }

    #[test]
    fn a_begin_of_the_wrong_length_or_on_id_zero_is_refused() {
        let bytes = record(Kind::BeginRequest, 1, b"1234567", 0);
        assert_eq!(Gather::default().scan(&bytes, &LIMITS), Err(Error::Length(Kind::BeginRequest, 7)));
        let bytes = record(Kind::BeginRequest, 0, b"12345678", 0);
        assert_eq!(Gather::default().scan(&bytes, &LIMITS), Err(Error::Unexpected(Kind::BeginRequest)));
    }

    #[test]
    fn strangers_inside_a_request_have_a_limit() {
        let mut bytes = begin(1, Role::Responder, false);
        for _ in 0..3 {
            bytes.extend(record(Kind::Stdin, 2, &[0; 65000], 0));
        }
        assert_eq!(Gather::default().scan(&bytes, &LIMITS), Err(Error::TooMuch(2 * 5096 + 65536)));
    }
}
