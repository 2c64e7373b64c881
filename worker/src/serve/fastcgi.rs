//! FastCGI as a front end: from a connection's bytes to requests that are served.

use super::{Fate, Worker};
use crate::{
    answer::Wire,
    body::Framing,
    control::Protocol,
    exchange::{Ask, declared},
    params::Params,
    table::Conn,
};
use hostler_proto::{
    Begun, EndRequest, Error, Kind, Limits, ProtocolStatus, Role, Step, record::unknown_type, values,
};
use nix::sys::socket::{MsgFlags, send};
use std::os::fd::{AsFd, AsRawFd};

impl Worker {
    /// Looks at `bytes`, all that the connection has said since its last request; serves one request at most.
    pub(crate) fn fastcgi(&mut self, conn: &mut Conn, bytes: &[u8]) -> Fate {
        let limits = Limits { params: self.shared.limits.max_params, body: self.shared.limits.gather };
        let mut start = 0;
        self.indexed = false;
        loop {
            let rest = bytes.get(start..).unwrap_or_default();
            match self.gather.scan(rest, &limits) {
                Ok(Step::More) => {
                    if self.gather.begun().is_none() {
                        start += self.gather.scanned();
                        self.gather.restart();
                    }
                    return Fate::Wait(start);
                }
                Ok(Step::Head) => {
                    if let Some(status) = self.refused(rest) {
                        return self.answer_fastcgi(conn, rest, start, Some(status), false);
                    }
                }
                Ok(Step::Whole) => return self.answer_fastcgi(conn, rest, start, None, false),
                Ok(Step::Large) => return self.answer_fastcgi(conn, rest, start, None, true),
                Ok(Step::Management(kind, content)) => {
                    let reply = self.management(kind, rest.get(content).unwrap_or_default());
                    if !reply_now(conn, &reply) {
                        return Fate::Close;
                    }
                    if self.gather.begun().is_none() {
                        start += self.gather.scanned();
                        self.gather.restart();
                    }
                }
                Ok(Step::Multiplexed(id)) => {
                    if !end(conn, id, ProtocolStatus::CantMpxConn) {
                        return Fate::Close;
                    }
                }
                Ok(Step::UnknownRole(begun)) => {
                    if !end(conn, begun.id, ProtocolStatus::UnknownRole) || !begun.keep_conn {
                        return Fate::Linger;
                    }
                    start += self.gather.scanned();
                    self.gather.restart();
                }
                Ok(Step::Aborted(begun)) => {
                    if !end(conn, begun.id, ProtocolStatus::RequestComplete) || !begun.keep_conn {
                        return Fate::Linger;
                    }
                    start += self.gather.scanned();
                    self.gather.restart();
                    conn.gathering = false;
                }
                Err(Error::ParamsTooLarge(_)) => {
                    return self.answer_fastcgi(conn, rest, start, Some(431), false);
                }
                Err(error) => {
                    eprintln!("hostler: a FastCGI peer sent a {error}; its connection is closed");
                    return Fate::Close;
                }
            }
        }
    }

    /// The status that refuses a request by its head, before its body is gathered.
    fn refused(&mut self, rest: &[u8]) -> Option<u16> {
        self.read_params(rest)?;
        self.indexed = true;
        declared(&self.params(rest), self.shared.limits.max_body).err()?.status()
    }

    /// Indexes the parameters that are gathered; `None` where they are none.
    fn read_params(&mut self, rest: &[u8]) -> Option<()> {
        if let [whole] = self.gather.params() {
            return self.index.read(rest.get(whole.clone())?).ok();
        }
        self.arena.clear();
        for part in self.gather.params() {
            self.arena.extend_from_slice(rest.get(part.clone()).unwrap_or_default());
        }
        self.index.read(&self.arena).ok()
    }

    fn params<'a>(&'a self, rest: &'a [u8]) -> Params<'a> {
        let bytes = match self.gather.params() {
            [whole] => rest.get(whole.clone()).unwrap_or_default(),
            _ => &self.arena,
        };
        Params::new(&self.index, bytes)
    }

    fn answer_fastcgi(
        &mut self,
        conn: &mut Conn,
        rest: &[u8],
        start: usize,
        refused: Option<u16>,
        large: bool,
    ) -> Fate {
        let Some(Begun { id, role, keep_conn }) = self.gather.begun() else { return Fate::Close };
        // What is refused by its head may have a body on its way.
        let whole = refused.is_none() && !large;
        // In most requests the head and the whole came with one look, and the index stands.
        let indexed = if self.indexed { Some(()) } else { self.read_params(rest) };
        let refused = match indexed {
            Some(()) => refused,
            None => {
                self.index.clear();
                Some(refused.unwrap_or(400))
            }
        };
        self.begin();
        let waited = self.waited(conn);
        // The bytes are one slice, whichever part of them is what: only its borrows must be told apart.
        let Worker { desk, shared, gather, index, arena, now, .. } = self;
        let params = match gather.params() {
            [whole] => rest.get(whole.clone()).unwrap_or_default(),
            _ => &arena[..],
        };
        let framing = match large {
            true => Framing::Fastcgi(hostler_proto::Stream::new(id, gather.stdin_whole())),
            false => Framing::Over,
        };
        let served = desk.serve(
            &shared.counters,
            Ask {
                params: Params::new(index, params),
                protocol: Protocol::Fastcgi,
                id,
                role,
                wire: Wire::Fastcgi { id },
                bytes: rest,
                pieces: gather.stdin(),
                rest: gather.scanned(),
                data: gather.data(),
                framing,
                fd: conn.fd.as_fd(),
                refused,
                began: *now,
                waited,
            },
        );
        let fate = self.ended(conn, &served, keep_conn);
        let used = start + self.gather.scanned();
        self.gather.restart();
        match (fate, large, served.behind) {
            // All that the web server has to say has been read: a close cannot become a reset.
            (Some(Fate::Linger), _, _) if whole && used == start + rest.len() && role != Role::Authorizer => {
                Fate::Close
            }
            (Some(fate), _, _) => fate,
            (None, false, _) => Fate::Served(used),
            (None, true, Some((skip, rest))) => Fate::Streamed(skip, rest),
            (None, true, None) => Fate::Linger,
        }
    }

    fn management(&self, kind: Kind, content: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        match kind {
            Kind::GetValues => values::answer(&mut reply, content, self.shared.limits.max_connections),
            other => reply.extend_from_slice(&unknown_type(other)),
        }
        reply
    }
}

fn end(conn: &Conn, id: u16, protocol_status: ProtocolStatus) -> bool {
    reply_now(conn, &EndRequest { app_status: 0, protocol_status }.to_record(id))
}

/// Sends without waiting; a peer that does not take so little is closed.
fn reply_now(conn: &Conn, bytes: &[u8]) -> bool {
    send(conn.fd.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) == Ok(bytes.len())
}
