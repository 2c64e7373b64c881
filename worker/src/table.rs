//! The connections of a worker, and their deadlines.
//!
//! Shared by the main thread and the keeper under a lock that no one holds while an app runs. A connection whose
//! request is in hand has been taken out; it comes back by [`Table::put`].
//!
//! Always holds: a token names one connection and is never used again; a connection without a partial request has
//! no buffer.

use crate::{
    control::Protocol,
    heir::Ledger,
    http1::{Ends, Gathering},
};
use hostler_proto::Gather;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    os::fd::{AsRawFd, OwnedFd},
};

/// A connection that waits.
pub(crate) struct Conn {
    /// Non-blocking.
    pub(crate) fd: OwnedFd,
    /// What is spoken on it.
    pub(crate) protocol: Protocol,
    /// Both ends, where HTTP is spoken.
    pub(crate) ends: Option<Box<Ends>>,
    /// A request that is not whole.
    pub(crate) partial: Option<Box<Partial>>,
    /// When it must have changed, in nanoseconds; 0: it may rest for ever.
    pub(crate) deadline: u64,
    /// The deadline that stands in the heap; 0: none.
    timer: u64,
    /// When its request could first have been taken; 0: when it is next found readable.
    pub(crate) arrived: u64,
    /// No request has been served on it.
    pub(crate) fresh: bool,
    /// `deadline` is that of a request that is not whole.
    pub(crate) gathering: bool,
    /// Registered with the worker's epoll.
    pub(crate) watched: bool,
    /// The answer is out; what still comes is dropped until the peer closes.
    pub(crate) lingering: bool,
}

/// A request that is not whole.
#[derive(Default)]
pub(crate) struct Partial {
    /// All bytes of it so far.
    pub(crate) held: Vec<u8>,
    /// FastCGI: where the scan stands.
    pub(crate) gather: Gather,
    /// HTTP: how far head and body are.
    pub(crate) http: Gathering,
    /// HTTP: `100 Continue` has been sent.
    pub(crate) continued: bool,
    /// Bytes are there that no epoll event will tell of again.
    pub(crate) pipelined: bool,
}

impl Conn {
    /// A fresh connection.
    pub(crate) fn new(fd: OwnedFd, protocol: Protocol, ends: Option<Box<Ends>>) -> Conn {
        Conn {
            fd,
            protocol,
            ends,
            partial: None,
            deadline: 0,
            timer: 0,
            arrived: 0,
            fresh: true,
            gathering: false,
            watched: false,
            lingering: false,
        }
    }

    fn held(&self) -> usize {
        self.partial.as_ref().map_or(0, |p| p.held.capacity())
    }
}

/// Names a connection: slot and generation.
pub(crate) type Token = u64;

#[derive(Default)]
struct Slot {
    generation: u32,
    conn: Option<Conn>,
    taken: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    count: usize,
    held: usize,
    timers: BinaryHeap<Reverse<(u64, Token)>>,
    /// What the heir is told.
    ledger: Ledger,
    /// Connections with bytes that no event will tell of again.
    pub(crate) again: VecDeque<Token>,
}

impl Table {
    /// A table without a connection.
    pub(crate) fn new(ledger: Ledger) -> Table {
        Table { ledger, ..Table::default() }
    }

    /// Connections, those in hand included.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of buffers of requests that are not whole.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// A token for a connection that is in hand.
    pub(crate) fn enter(&mut self) -> Token {
        self.count += 1;
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(slot) = self.slots.get_mut(at as usize) else { return Token::MAX };
        slot.taken = true;
        Token::from(slot.generation) << 32 | Token::from(at)
    }

    /// Takes a connection in hand; `None` where it is gone or in hand already.
    pub(crate) fn take(&mut self, token: Token) -> Option<Conn> {
        let slot = self.slot(token)?;
        let conn = slot.conn.take()?;
        slot.taken = true;
        self.held -= conn.held();
        self.ledger.is_taken(conn.fd.as_raw_fd());
        Some(conn)
    }

    /// Puts a connection in hand back to wait.
    pub(crate) fn put(&mut self, token: Token, mut conn: Conn) {
        if conn.deadline != 0 && (conn.timer == 0 || conn.deadline < conn.timer) {
            conn.timer = conn.deadline;
            self.timers.push(Reverse((conn.timer, token)));
        }
        self.held += conn.held();
        if conn.partial.is_none() && !conn.lingering {
            self.ledger.rests(conn.fd.as_raw_fd(), conn.protocol, conn.fresh);
        }
        if let Some(slot) = self.slot(token) {
            slot.taken = false;
            slot.conn = Some(conn);
        }
    }

    /// The connection in hand is no more of this worker.
    pub(crate) fn leave(&mut self, token: Token) {
        let Some(slot) = self.slot(token) else { return };
        slot.generation = slot.generation.wrapping_add(1);
        slot.taken = false;
        let waiting = slot.conn.take();
        if let Some(conn) = &waiting {
            self.ledger.is_taken(conn.fd.as_raw_fd());
        }
        self.count -= 1;
        self.free.push(u32::try_from(token & 0xffff_ffff).unwrap_or(0));
    }

    /// The tokens of all that wait and for which `which` holds.
    pub(crate) fn waiting(&self, which: impl Fn(&Conn) -> bool) -> Vec<Token> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.conn.as_ref().is_some_and(&which))
            .map(|(at, slot)| Token::from(slot.generation) << 32 | at as Token)
            .collect()
    }

    /// Whether a connection is still of this worker.
    pub(crate) fn holds(&mut self, token: Token) -> bool {
        self.slot(token).is_some()
    }

    /// Looks at a connection that waits.
    pub(crate) fn peek(&mut self, token: Token) -> Option<&Conn> {
        self.slot(token)?.conn.as_ref()
    }

    /// The earliest moment at which [`Table::expired`] may have something.
    ///
    /// Connections that are gone, or may rest for ever by now, are forgotten here: a wait with an end costs the
    /// kernel a timer each time.
    pub(crate) fn next_deadline(&mut self) -> Option<u64> {
        while let Some(Reverse((at, token))) = self.timers.peek().copied() {
            match self.slot(token).map(|slot| &mut slot.conn) {
                None => {}
                Some(Some(conn)) if conn.deadline == 0 => conn.timer = 0,
                Some(_) => return Some(at),
            }
            self.timers.pop();
        }
        None
    }

    /// A connection whose deadline has passed, taken in hand.
    pub(crate) fn expired(&mut self, now: u64) -> Option<(Token, Conn)> {
        while let Some(Reverse((at, token))) = self.timers.peek().copied() {
            if at > now {
                return None;
            }
            self.timers.pop();
            let Some(mut conn) = self.take(token) else { continue };
            if conn.timer == at {
                conn.timer = 0;
            }
            if conn.timer == 0 && conn.deadline != 0 && conn.deadline <= now {
                return Some((token, conn));
            }
            self.put(token, conn);
        }
        None
    }

    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let generation = (token >> 32) as u32;
        self.slots.get_mut((token & 0xffff_ffff) as usize).filter(|slot| slot.generation == generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(deadline: u64) -> Conn {
        let mut conn = Conn::new(std::fs::File::open("/dev/null").unwrap().into(), Protocol::Http, None);
        conn.deadline = deadline;
        conn
    }

    #[test]
    fn a_token_names_one_connection_for_ever() {
        let mut table = Table::default();
        let first = table.enter();
        table.put(first, conn(0));
        assert!(table.take(first).is_some());
        assert!(table.take(first).is_none());
        table.leave(first);
        let second = table.enter();
        assert_ne!(first, second);
        table.put(second, conn(0));
        assert!(table.take(first).is_none());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn deadlines_pass_in_order_and_a_later_one_is_waited_for() {
        let mut table = Table::default();
        for deadline in [30, 10, 20, 0] {
            let token = table.enter();
            table.put(token, conn(deadline));
        }
        assert_eq!(table.next_deadline(), Some(10));
        assert!(table.expired(9).is_none());
        let (token, mut late) = table.expired(10).unwrap();
        late.deadline = 25;
        table.put(token, late);
        assert_eq!(table.expired(22).unwrap().1.deadline, 20);
        assert!(table.expired(24).is_none());
        assert_eq!(table.expired(26).unwrap().0, token);
        assert_eq!(table.expired(100).unwrap().1.deadline, 30);
        assert!(table.expired(u64::MAX).is_none());
    }

    #[test]
    fn a_connection_that_may_rest_for_ever_or_is_gone_has_no_deadline() {
        let mut table = Table::default();
        let tokens = [10, 20, 30].map(|deadline| {
            let token = table.enter();
            table.put(token, conn(deadline));
            token
        });
        let mut served = table.take(tokens[0]).unwrap();
        assert_eq!(table.next_deadline(), Some(10), "in hand: it may come back");
        served.deadline = 0;
        table.put(tokens[0], served);
        assert_eq!(table.next_deadline(), Some(20));
        table.leave(tokens[1]);
        assert_eq!(table.next_deadline(), Some(30));
        let mut again = table.take(tokens[0]).unwrap();
        again.deadline = 15;
        table.put(tokens[0], again);
        assert_eq!(table.next_deadline(), Some(15));
        assert_eq!(table.expired(16).unwrap().0, tokens[0]);
    }

    #[test]
    fn a_deadline_that_moves_is_in_the_heap_once() {
        let mut table = Table::default();
        let token = table.enter();
        table.put(token, conn(100));
        for deadline in 101..200 {
            let mut conn = table.take(token).unwrap();
            conn.deadline = deadline;
            table.put(token, conn);
        }
        assert_eq!(table.timers.len(), 1);
        assert!(table.expired(198).is_none());
        assert!(table.expired(199).is_some());
    }
}
