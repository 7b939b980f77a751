//! The outcome of the last transaction of each session, so that a transaction that is sent again is
//! not executed again (paper 5, section 3.1.2). The table is part of the replicated state.
//!
//! An entry of the log opens a session. The session's id follows from the stamp and the index of
//! the entry. It is unique for ever, so that a session that was forgotten cannot be taken for a new
//! one. The client numbers the session's transactions from 1, and sends the next one when it no
//! longer waits for the last one.
//!
//! Invariants:
//! 1. A transaction of a session that is not in the table is not executed. So no transaction is
//!    executed twice, however late it is sent again.
//! 2. The leader ends no session that has a transaction in progress, and admits no transaction of a
//!    session that is about to end: a transaction that it has executed finds its session when it is
//!    applied.

use base::Abort;
use base::codec::{Malformed, Reader, put_bytes, put_count, put_u64};
use hashbrown::HashMap;

/// The greatest number of bytes of replies that are kept for a session.
const MOST_BYTES: usize = 16 << 10;

/// A client's session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClientSession {
    /// The number of the last transaction; 0 if there was none.
    sequence: u64,
    /// Its replies, encoded; empty if they were too long to be kept.
    result: Vec<u8>,
    /// The stamp of the entry that applied it, or that opened the session.
    seen_ms: u64,
}

/// See the module's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientSessions {
    clients: HashMap<u64, ClientSession>,
    /// The bytes of all results.
    results: usize,
}

/// The greatest number of bytes of a session in the encoded table, without its result.
const ENCODED: usize = 48;

/// The relation of a number to the last one that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SequenceState {
    /// No transaction with this number or a later one has been applied.
    New,
    /// The transaction has been applied. Its replies are encoded, or empty if they were too long.
    Done(Vec<u8>),
    /// A later one has been applied: the client does not wait for this one.
    Old,
    /// The session does not exist, or no longer exists.
    Forgotten,
    /// This transaction, or another one of the session, is in progress.
    UnderWay,
    /// The session is about to end, and none of its transactions is in progress.
    Ends,
}

impl ClientSessions {
    pub(crate) fn look_up(&self, client: u64, sequence: u64) -> SequenceState {
        match self.clients.get(&client) {
            None => SequenceState::Forgotten,
            // Numbers begin with 1.
            Some(_) if sequence == 0 => SequenceState::Old,
            Some(session) if session.sequence < sequence => SequenceState::New,
            Some(session) if session.sequence == sequence => {
                SequenceState::Done(session.result.clone())
            }
            Some(_) => SequenceState::Old,
        }
    }

    /// Begins the session `id`, unless there are `most` of them. Returns `true` if it has begun.
    pub(crate) fn open(&mut self, id: u64, seen_ms: u64, most: u64) -> bool {
        if self.clients.len() as u64 >= most {
            return false;
        }
        let session = ClientSession {
            seen_ms,
            ..ClientSession::default()
        };
        self.clients.insert(id, session);
        true
    }

    /// Remembers the outcome of an applied transaction of a session that exists.
    pub(crate) fn note(&mut self, client: u64, sequence: u64, result: &[u8], seen_ms: u64) {
        if let Some(session) = self.clients.get_mut(&client) {
            let kept = if result.len() > MOST_BYTES {
                &[]
            } else {
                result
            };
            self.results += kept.len();
            self.results -= session.result.len();
            *session = ClientSession {
                sequence,
                result: kept.to_vec(),
                seen_ms,
            };
        }
    }

    pub(crate) fn forget(&mut self, client: u64) {
        if let Some(session) = self.clients.remove(&client) {
            self.results -= session.result.len();
        }
    }

    /// Returns the greatest number of bytes that the encoded table takes.
    pub(crate) fn bytes(&self) -> usize {
        ENCODED * (1 + self.clients.len()) + self.results
    }

    /// Returns the clients that were not seen since `before_ms`; at most `AT_ONCE`, in a fixed
    /// order.
    pub(crate) fn stale(&self, before_ms: u64) -> Vec<u64> {
        let clients = self.clients.iter();
        let stale = clients.filter(|(_, session)| session.seen_ms < before_ms);
        let mut by_age: Vec<_> = stale.map(|(id, session)| (session.seen_ms, *id)).collect();
        by_age.sort_unstable();
        by_age.truncate(AT_ONCE);
        by_age.into_iter().map(|(_, id)| id).collect()
    }

    /// Encodes the table; equal tables have equal bytes.
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

    pub(crate) fn decode(bytes: &[u8]) -> Result<ClientSessions, Malformed> {
        let mut from = Reader::new(bytes);
        let mut results = 0;
        let clients = from.list(|from| {
            let id = from.u64()?;
            let session = ClientSession {
                sequence: from.u64()?,
                seen_ms: from.u64()?,
                result: from.bytes()?.to_vec(),
            };
            results += session.result.len();
            Ok((id, session))
        })?;
        from.end()?;
        Ok(ClientSessions {
            clients: clients.into_iter().collect(),
            results,
        })
    }
}

/// The number of clients that one entry forgets.
const AT_ONCE: usize = 1000;

/// Returns the answer to a transaction that was executed and is sent again, if its replies were not
/// kept.
pub(crate) fn not_kept() -> Abort {
    Abort::Unknown {
        what: "it was executed, and its replies were too long to be kept".to_owned(),
    }
}

/// Returns the answer to a transaction if a later one of its session was executed.
pub(crate) fn superseded() -> Abort {
    Abort::Unknown {
        what: "a later transaction of the session was executed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(ids: &[(u64, u64)]) -> ClientSessions {
        let mut sessions = ClientSessions::default();
        for (id, seen) in ids {
            assert!(sessions.open(*id, *seen, u64::MAX));
        }
        sessions
    }

    #[test]
    fn a_number_is_new_done_old_or_of_no_session() {
        let mut sessions = opened(&[(7, 10)]);
        assert_eq!(sessions.look_up(8, 1), SequenceState::Forgotten);
        assert_eq!(
            sessions.look_up(7, 0),
            SequenceState::Old,
            "no number at all"
        );
        assert_eq!(sessions.look_up(7, 1), SequenceState::New);
        sessions.note(7, 2, b"two", 10);
        assert_eq!(sessions.look_up(7, 3), SequenceState::New);
        assert_eq!(sessions.look_up(7, 2), SequenceState::Done(b"two".to_vec()));
        assert_eq!(sessions.look_up(7, 1), SequenceState::Old);
        sessions.forget(7);
        assert_eq!(sessions.look_up(7, 1), SequenceState::Forgotten);
        sessions.note(7, 3, b"three", 10);
        assert_eq!(
            sessions.look_up(7, 3),
            SequenceState::Forgotten,
            "it stays so"
        );
    }

    #[test]
    fn the_silent_ones_go_first() {
        let mut sessions = opened(&[(1, 30), (2, 10), (3, 5)]);
        sessions.note(3, 1, b"", 20);
        assert_eq!(sessions.stale(15), [2]);
        assert_eq!(sessions.stale(30), [2, 3]);
        assert_eq!(sessions.stale(0), [0_u64; 0]);
    }

    #[test]
    fn there_are_so_many_at_most() {
        let mut sessions = opened(&[(1, 30), (2, 10)]);
        assert!(!sessions.open(3, 40, 2));
        assert_eq!(sessions.look_up(3, 1), SequenceState::Forgotten);
        sessions.forget(1);
        assert!(sessions.open(4, 40, 2));
    }

    #[test]
    fn tables_come_back() {
        let mut sessions = opened(&[(1, 5), (9, 6), (u64::MAX, 0)]);
        sessions.note(1, 5, b"result", 30);
        let bytes = sessions.encode();
        assert!(bytes.len() <= sessions.bytes());
        assert_eq!(ClientSessions::decode(&bytes).as_ref(), Ok(&sessions));
        assert!(ClientSessions::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
