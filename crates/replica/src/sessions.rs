//! What the last transaction of each client came to, so that one that is sent again is not executed
//! again (paper 5, section 3.1.2). Part of the replicated state.
//!
//! A client numbers its transactions from 1 and sends the next one when it knows what the last one
//! came to. The first one opens its session.

use base::codec::{Malformed, Reader, put_bytes, put_count, put_u64};
use hashbrown::HashMap;

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    /// Number of the last transaction.
    sequence: u64,
    /// Its replies, encoded.
    result: Vec<u8>,
    /// When it was applied: the entry's stamp.
    seen_ms: u64,
}

/// See the module's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sessions {
    clients: HashMap<u64, Session>,
}

/// What a number says, compared with the last one that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It comes next.
    New,
    /// It has been applied; its replies, encoded.
    Done(Vec<u8>),
    /// A later one has been applied: nobody waits for this one.
    Old,
    /// The client is not known, and this is not its first one.
    Expired,
    /// This one, or another one of the client's, is under way.
    UnderWay,
    /// No more clients can be remembered.
    Full,
}

impl Sessions {
    pub(crate) fn look_up(&self, client: u64, sequence: u64) -> Known {
        match self.clients.get(&client) {
            None if sequence == 1 => Known::New,
            None => Known::Expired,
            Some(session) if session.sequence < sequence => Known::New,
            Some(session) if session.sequence == sequence => Known::Done(session.result.clone()),
            Some(_) => Known::Old,
        }
    }

    /// Remembers what was applied.
    pub(crate) fn note(&mut self, client: u64, sequence: u64, result: &[u8], seen_ms: u64) {
        let session = Session {
            sequence,
            result: result.to_vec(),
            seen_ms,
        };
        self.clients.insert(client, session);
    }

    pub(crate) fn has(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    pub(crate) fn is_full(&self, most: usize) -> bool {
        self.clients.len() >= most
    }

    pub(crate) fn forget(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// The clients that were not seen since `before_ms`; some of them, in a fixed order.
    pub(crate) fn stale(&self, before_ms: u64) -> Vec<u64> {
        let clients = self.clients.iter();
        let stale = clients.filter(|(_, session)| session.seen_ms < before_ms);
        let mut by_age: Vec<_> = stale.map(|(id, session)| (session.seen_ms, *id)).collect();
        by_age.sort_unstable();
        by_age.truncate(AT_ONCE);
        by_age.into_iter().map(|(_, id)| id).collect()
    }

    /// As bytes, the same for equal tables.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut clients: Vec<_> = self.clients.iter().collect();
        clients.sort_unstable_by_key(|(id, _)| **id);
        let mut to = Vec::new();
        put_count(&mut to, clients.len() as u64);
        for (id, session) in clients {
            put_u64(&mut to, *id);
            put_u64(&mut to, session.sequence);
            put_u64(&mut to, session.seen_ms);
            put_bytes(&mut to, &session.result);
        }
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Sessions, Malformed> {
        let mut from = Reader::new(bytes);
        let clients = from.list(|from| {
            let id = from.u64()?;
            let session = Session {
                sequence: from.u64()?,
                seen_ms: from.u64()?,
                result: from.bytes()?.to_vec(),
            };
            Ok((id, session))
        })?;
        from.end()?;
        Ok(Sessions {
            clients: clients.into_iter().collect(),
        })
    }
}

/// Clients that are forgotten by one entry.
const AT_ONCE: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_done_old_or_of_nobody() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.look_up(7, 1), Known::New);
        assert_eq!(sessions.look_up(7, 2), Known::Expired);
        sessions.note(7, 2, b"two", 10);
        assert_eq!(sessions.look_up(7, 3), Known::New);
        assert_eq!(sessions.look_up(7, 2), Known::Done(b"two".to_vec()));
        assert_eq!(sessions.look_up(7, 1), Known::Old);
    }

    #[test]
    fn the_silent_ones_go_first() {
        let mut sessions = Sessions::default();
        for (id, seen) in [(1, 30), (2, 10), (3, 20)] {
            sessions.note(id, 1, b"", seen);
        }
        assert_eq!(sessions.stale(15), [2]);
        assert_eq!(sessions.stale(30), [2, 3]);
        assert_eq!(sessions.stale(0), [0_u64; 0]);
        assert!(sessions.is_full(3) && !sessions.is_full(4));
    }

    #[test]
    fn tables_come_back() {
        let mut sessions = Sessions::default();
        sessions.note(1, 5, b"result", 30);
        sessions.note(u64::MAX, 1, b"", 0);
        let bytes = sessions.encode();
        assert_eq!(Sessions::decode(&bytes).as_ref(), Ok(&sessions));
        assert!(Sessions::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
