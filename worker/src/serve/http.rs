//! HTTP as a front end: from a connection's bytes to requests that are served.

use super::{Fate, Worker};
use crate::{
    answer::Wire,
    body::Framing,
    control::Protocol,
    exchange::Ask,
    http1::{Ends, Extent, Head, Scan, scan},
    params::{Index, Params},
    table::{Conn, Partial},
};
use hostler_proto::{Role, pairs::write_pair};
use nix::sys::socket::{MsgFlags, send};
use std::os::fd::{AsFd, AsRawFd};

impl Worker {
    /// Looks at `bytes`, all of the connection's since its last request; serves one request at most.
    pub(crate) fn http(&mut self, conn: &mut Conn, bytes: &[u8], partial: &mut Partial) -> Fate {
        let limits = &self.shared.limits;
        let bytes_from = leading_line_ends(bytes);
        let bytes = bytes.get(bytes_from..).unwrap_or_default();
        if bytes.is_empty() {
            return Fate::Wait(bytes_from);
        }
        if bytes_from > 0 {
            // They are dropped with the next bytes; positions count from the first byte of the request.
            partial.http = crate::http1::Gathering::default();
        }
        // While a body comes, the head is not read again; its variables live in one arena for all connections, so it
        // is when all is there.
        let known = partial.http.head.map(|_| partial.http.body(bytes, limits.gather));
        if known == Some(Extent::More) {
            return Fate::Wait(bytes_from);
        }
        let no_ends = Ends::default();
        let ends = conn.ends.as_deref().unwrap_or(&no_ends);
        let from = partial.http.scanned;
        let head = match scan(bytes, from, limits.max_params, ends, &mut self.arena, &mut self.index) {
            Scan::More => {
                partial.http.waiting_for_head(bytes);
                return Fate::Wait(bytes_from);
            }
            Scan::Refused(status) => return self.refuse_http(conn, bytes, status),
            Scan::Whole(head) => head,
        };
        if known.is_none() {
            partial.http.begin(head);
            if head.length > limits.max_body {
                return self.refuse_http(conn, bytes, 413);
            }
        }
        let extent = known.unwrap_or_else(|| partial.http.body(bytes, limits.gather));
        if head.expects_continue && !partial.continued && extent == Extent::More && bytes.len() == head.len {
            let reply = b"HTTP/1.1 100 Continue\r\n\r\n";
            let _ = send(conn.fd.as_raw_fd(), reply, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        }
        partial.continued |= head.expects_continue;
        match extent {
            Extent::More => Fate::Wait(bytes_from),
            Extent::Broken => self.refuse_http(conn, bytes, 400),
            Extent::Whole(_) => self.answer_http(conn, bytes, partial, head, false, bytes_from),
            Extent::Large => self.answer_http(conn, bytes, partial, head, true, bytes_from),
        }
    }

    fn answer_http(
        &mut self,
        conn: &mut Conn,
        bytes: &[u8],
        partial: &Partial,
        head: Head,
        large: bool,
        before: usize,
    ) -> Fate {
        self.begin();
        let waited = self.waited(conn);
        let (rest, framing) =
            if large { partial.http.rest() } else { (partial.http.rest().0, Framing::Over) };
        let keep = head.keep && !large && !self.retiring;
        let Worker { desk, shared, index, arena, now, .. } = self;
        let ask = Ask {
            params: Params::new(index, arena),
            protocol: Protocol::Http,
            id: 0,
            role: Role::Responder,
            wire: Wire::Http { minor: head.minor, keep },
            bytes,
            pieces: &partial.http.pieces,
            rest,
            data: &[],
            framing,
            fd: conn.fd.as_fd(),
            refused: None,
            began: *now,
            waited,
        };
        let served = desk.serve(&shared.counters, ask);
        match self.ended(conn, &served, keep) {
            // The client wanted no more than this, and has nothing more to say: a close cannot become a reset.
            Some(Fate::Linger) if !head.keep && !head.chunked && head.length == 0 && rest == bytes.len() => {
                Fate::Close
            }
            Some(fate) => fate,
            None => Fate::Served(before + rest),
        }
    }

    /// Answers a head that is refused, and closes.
    fn refuse_http(&mut self, conn: &mut Conn, bytes: &[u8], status: u16) -> Fate {
        let mut index = Index::default();
        let (mut method, mut target) = (&b"-"[..], &b"-"[..]);
        if let Some(line) = bytes.split(|b| *b == b'\r' || *b == b'\n').next() {
            let mut words = line.split(|b| *b == b' ').map(|word| word.get(..200).unwrap_or(word));
            method = words.next().unwrap_or(method);
            target = words.next().unwrap_or(target);
        }
        let mut arena = Vec::new();
        write_pair(&mut arena, b"REQUEST_METHOD", method);
        write_pair(&mut arena, b"REQUEST_URI", target);
        let _ = index.read(&arena);
        self.begin();
        let waited = self.waited(conn);
        let ask = Ask {
            params: Params::new(&index, &arena),
            protocol: Protocol::Http,
            id: 0,
            role: Role::Responder,
            wire: Wire::Http { minor: 1, keep: false },
            bytes,
            pieces: &[],
            rest: bytes.len(),
            data: &[],
            framing: Framing::Over,
            fd: conn.fd.as_fd(),
            refused: Some(status),
            began: self.now,
            waited,
        };
        let served = self.desk.serve(&self.shared.counters, ask);
        self.ended(conn, &served, false).unwrap_or(Fate::Linger)
    }
}

/// Empty lines before a request are skipped (RFC 9112, section 2.2), a few of them.
fn leading_line_ends(bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < 8 && bytes.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
        at += 2;
    }
    at
}
