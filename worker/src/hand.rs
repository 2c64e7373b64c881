//! The request in hand, as far as another thread or a signal handler must know it to answer in the worker's place.
//!
//! A request that is not answered yet may be answered by the keeper (504, over its time) or by the crash handler
//! (502, the process dies). Whoever [`Hand::claim`]s it first writes; the others keep silent. Atomics alone, so
//! that a signal handler may use it.
//!
//! Always holds: an answer made here is whole: a head, a body, and the end of the request.

use crate::control::Protocol;
use hostler_proto::{EndRequest, Header, Kind, ProtocolStatus};
use std::{
    os::fd::{BorrowedFd, RawFd},
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
};

/// The one request in hand of this process.
pub(crate) static HAND: Hand =
    Hand { state: AtomicU32::new(FREE), fd: AtomicI32::new(-1), wire: AtomicU32::new(0) };

const FREE: u32 = 0;
const OPEN: u32 = 1;
const CLAIMED: u32 = 2;
const ANSWERING: u32 = 3;
const ANSWERED: u32 = 4;

const HTTP: u32 = 1 << 16;
const HEAD_ONLY: u32 = 1 << 17;

/// See the module.
pub(crate) struct Hand {
    state: AtomicU32,
    fd: AtomicI32,
    /// The FastCGI id, or `HTTP`; `HEAD_ONLY` where the answer has no body.
    wire: AtomicU32,
}

impl Hand {
    /// A request is in hand, and nothing of its answer is out.
    pub(crate) fn open(&self, fd: RawFd, protocol: Protocol, id: u16, head_only: bool) {
        let http = if protocol == Protocol::Http { HTTP } else { u32::from(id) };
        self.fd.store(fd, Ordering::Relaxed);
        self.wire.store(http | if head_only { HEAD_ONLY } else { 0 }, Ordering::Relaxed);
        self.state.store(OPEN, Ordering::Release);
    }

    /// The worker is about to write the first byte: `false` where another has answered.
    pub(crate) fn claim(&self) -> bool {
        self.state.compare_exchange(OPEN, CLAIMED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The worker has written already.
    pub(crate) fn is_claimed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLAIMED
    }

    /// Another has answered or cut the request, or is about to.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), ANSWERING | ANSWERED)
    }

    /// The request is over, whole or `cut`: `true` where another has answered or cut it. Waits for that other to be done.
    pub(crate) fn close(&self, cut: bool) -> bool {
        if cut {
            self.break_off();
        }
        loop {
            let state = self.state.load(Ordering::Acquire);
            match state {
                OPEN | CLAIMED => {
                    if self.state.compare_exchange(state, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                        return false;
                    }
                }
                ANSWERING => std::thread::yield_now(),
                _ => {
                    self.state.store(FREE, Ordering::Release);
                    return state == ANSWERED;
                }
            }
        }
    }

    /// Ends the request in the worker's place: answers it, or, where part of the answer is out, cuts it and ends the
    /// connection. `false` where it is over or was ended before.
    pub(crate) fn end(&self, status: u16) -> bool {
        self.answer(status) || self.cut()
    }

    fn cut(&self) -> bool {
        if self.state.compare_exchange(CLAIMED, ANSWERING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        self.send_broken();
        let fd = self.fd.load(Ordering::Relaxed);
        if fd >= 0 {
            let _ = nix::sys::socket::shutdown(fd, nix::sys::socket::Shutdown::Both);
        }
        self.state.store(ANSWERED, Ordering::Release);
        true
    }

    /// Answers in the worker's place, where nothing of the answer is out, and ends the connection.
    pub(crate) fn answer(&self, status: u16) -> bool {
        if self.state.compare_exchange(OPEN, ANSWERING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        let fd = self.fd.load(Ordering::Relaxed);
        let wire = self.wire.load(Ordering::Relaxed);
        let protocol = if wire & HTTP != 0 { Protocol::Http } else { Protocol::Fastcgi };
        let mut answer = Ready::new();
        answer.fill(status, protocol, (wire & 0xffff) as u16, wire & HEAD_ONLY != 0);
        send(fd, answer.bytes());
        self.state.store(ANSWERED, Ordering::Release);
        true
    }
}

impl Hand {
    /// Shows the peer that the answer, of which the worker has sent a part, is cut.
    ///
    /// The end of the connection alone does not: nginx, on a connection that it does not keep, takes it for the end
    /// of the answer. A record of a type that there is not is a fault for nginx, Apache and HAProxy, which then cut
    /// their own answer; lighttpd and Caddy take both for the end, and have to be told by Content-Length.
    pub(crate) fn break_off(&self) {
        if self.is_claimed() {
            self.send_broken();
        }
    }

    fn send_broken(&self) {
        let wire = self.wire.load(Ordering::Relaxed);
        if wire & HTTP != 0 {
            return;
        }
        let kind = Kind::Other(u8::MAX);
        let id = (wire & 0xffff) as u16;
        let header = Header { kind, id, content_length: 0, padding_length: 0 };
        let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL | nix::sys::socket::MsgFlags::MSG_DONTWAIT;
        let _ = nix::sys::socket::send(self.fd.load(Ordering::Relaxed), &header.to_bytes(), flags);
    }
}

/// Writes without waiting, then lets the peer see the end; whoever owns the descriptor closes it.
fn send(fd: RawFd, bytes: &[u8]) {
    if fd < 0 {
        return;
    }
    // No SIGPIPE: a peer that is gone is no fault.
    let _ = nix::sys::socket::send(fd, bytes, nix::sys::socket::MsgFlags::MSG_NOSIGNAL);
    let _ = nix::sys::socket::shutdown(fd, nix::sys::socket::Shutdown::Both);
}

/// A whole answer on the stack: a signal handler must not allocate.
pub(crate) struct Ready {
    bytes: [u8; 384],
    len: usize,
}

impl Ready {
    /// Nothing yet.
    pub(crate) fn new() -> Ready {
        Ready { bytes: [0; 384], len: 0 }
    }

    /// The answer.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(bytes) {
            *to = *from;
        }
        self.len = (self.len + bytes.len()).min(self.bytes.len());
    }

    /// Makes the answer of this status.
    pub(crate) fn fill(&mut self, status: u16, protocol: Protocol, id: u16, head_only: bool) {
        let (line, retry, body) = words(status);
        let shown = if head_only { "" } else { body };
        match protocol {
            Protocol::Http => {
                for part in ["HTTP/1.1 ", line, "\r\nContent-Type: text/plain\r\n", retry, "Content-Length: "]
                {
                    self.push(part.as_bytes());
                }
                self.push_number(body.len());
                self.push(b"\r\nConnection: close\r\n\r\n");
                self.push(shown.as_bytes());
            }
            Protocol::Fastcgi => {
                self.push(&[0; Header::LEN]);
                for part in ["Status: ", line, "\r\nContent-Type: text/plain\r\n", retry, "\r\n", shown] {
                    self.push(part.as_bytes());
                }
                let content = self.len - Header::LEN;
                let header = Header::padded(Kind::Stdout, id, u16::try_from(content).unwrap_or(0));
                for (to, from) in self.bytes.iter_mut().zip(header.to_bytes()) {
                    *to = from;
                }
                self.len += usize::from(header.padding_length);
                self.push(&Header::padded(Kind::Stdout, id, 0).to_bytes());
                let end = EndRequest { app_status: 0, protocol_status: ProtocolStatus::RequestComplete };
                self.push(&end.to_record(id));
            }
        }
    }

    fn push_number(&mut self, n: usize) {
        let mut digits = [0; 20];
        let (mut at, mut n) = (digits.len(), n);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(n % 10).unwrap_or(0);
            n /= 10;
            at -= 1;
            if n == 0 {
                break;
            }
        }
        self.push(digits.get(at..).unwrap_or_default());
    }
}

/// Status line, further fields, and body.
fn words(status: u16) -> (&'static str, &'static str, &'static str) {
    match status {
        502 => ("502 Bad Gateway", "", "The app ended before it answered.\n"),
        503 => ("503 Service Unavailable", "Retry-After: 1\r\n", "All workers are busy. Try again.\n"),
        504 => ("504 Gateway Timeout", "", "The app did not answer in time.\n"),
        _ => ("500 Internal Server Error", "", "The app failed.\n"),
    }
}

/// Sends a ready-made answer on a connection that no request in hand belongs to.
pub(crate) fn send_ready(fd: BorrowedFd<'_>, status: u16, protocol: Protocol, id: u16, head_only: bool) {
    use std::os::fd::AsRawFd;
    let mut answer = Ready::new();
    answer.fill(status, protocol, id, head_only);
    send(fd.as_raw_fd(), answer.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: u16, protocol: Protocol, head_only: bool) -> Vec<u8> {
        let mut answer = Ready::new();
        answer.fill(status, protocol, 258, head_only);
        answer.bytes().to_vec()
    }

    #[test]
    fn a_ready_fastcgi_answer_is_whole() {
        for status in [500, 502, 503, 504] {
            let bytes = ready(status, Protocol::Fastcgi, false);
            assert_eq!(bytes.len() % 8, 0);
            let header = Header::from_bytes(*bytes.first_chunk().unwrap()).unwrap();
            assert_eq!((header.kind, header.id), (Kind::Stdout, 258));
            let content = &bytes[8..8 + usize::from(header.content_length)];
            let head = hostler_proto::cgi::Head::parse(content, 1000).unwrap().unwrap();
            assert_eq!(head.status, status);
            assert_eq!(head.fields.iter().any(|f| f.0 == "Retry-After"), status == 503);
            assert_eq!(&bytes[8 + header.rest()..16 + header.rest()], [1, 6, 1, 2, 0, 0, 0, 0]);
            assert_eq!(bytes[bytes.len() - 16..][..8], [1, 3, 1, 2, 0, 8, 0, 0]);
        }
    }

    #[test]
    fn a_ready_http_answer_tells_its_length_and_closes() {
        let text = String::from_utf8(ready(502, Protocol::Http, false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\nConnection: close", body.len())), "{text}");
        assert!(ready(504, Protocol::Http, true).ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn one_alone_answers() {
        let hand = Hand { state: AtomicU32::new(FREE), fd: AtomicI32::new(-1), wire: AtomicU32::new(0) };
        assert!(!hand.claim() && !hand.answer(504));
        hand.open(-1, Protocol::Http, 0, false);
        assert!(hand.claim() && !hand.claim() && !hand.answer(504) && !hand.close(false));
        hand.open(-1, Protocol::Fastcgi, 7, false);
        assert!(hand.answer(504) && !hand.claim() && hand.close(false));
        hand.open(-1, Protocol::Fastcgi, 7, false);
        assert!(!hand.close(false));
    }

    #[test]
    fn what_is_half_answered_is_cut_once() {
        let hand = Hand { state: AtomicU32::new(FREE), fd: AtomicI32::new(-1), wire: AtomicU32::new(0) };
        hand.open(-1, Protocol::Http, 0, false);
        assert!(hand.claim() && hand.end(504) && !hand.end(504) && !hand.is_claimed() && hand.close(true));
        hand.open(-1, Protocol::Http, 0, false);
        assert!(hand.end(504) && !hand.end(504) && !hand.claim() && hand.close(false));
        assert!(!hand.end(504));
    }
}
