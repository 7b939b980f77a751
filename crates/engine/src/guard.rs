//! Guards: fencing at the data; and the time as an operation's answer.
//!
//! A lock service gives out a *token* with each lock, greater than those before it. The client that
//! holds a lock guards its transactions with the token. A partition stores the greatest token that
//! it has seen of each lock, in a system record, and aborts transactions with a smaller one: another
//! client has held the lock since.
//!
//! | the token is | then |
//! |---|---|
//! | below the greatest | the transaction aborts |
//! | the greatest | it goes on, having read the record: others with the same token do not disturb it |
//! | above the greatest, or the first one | it goes on, and writes the record |
//!
//! Invariants:
//! 1. The record is read and written as any record is, so that guards are serializable with
//!    everything else: in the order of transactions the tokens of a lock do not decrease.
//! 2. The greatest token never decreases: nothing deletes the record, and a flush leaves it alone.
//!    So a refusal is final, regardless of concurrent transactions.
//!
//! The time that a transaction returns must be found again after a restart: the log has the time of
//! every write. A transaction that writes nothing else writes a record of its worker's own, so that
//! workers do not conflict there. In a driven engine the owner of the log does this (module
//! [`crate::stage`]).

use base::Abort;

use crate::log::RedoLog;
use crate::prepare::system_version;
use crate::record::{Content, VersionRef};
use crate::system::OTHERS;
use crate::worker::{Stop, Worker};

/// The prefix of the keys of guards.
const GUARDS: [u8; OTHERS.len()] = [0xff; OTHERS.len()];

/// Returns the key of a lock's record.
fn key_of(lock: &[u8]) -> Vec<u8> {
    [&GUARDS, lock].concat()
}

impl<L: RedoLog> Worker<L> {
    /// Succeeds if no token above this one was seen for the lock.
    pub(crate) fn guard(&mut self, lock: &[u8], token: u64) -> Result<(), Stop> {
        if lock.len() > self.engine.limits().key.saturating_sub(GUARDS.len()) {
            let what = "the length of a lock's name";
            return Err(Stop::Abort(Abort::TooLarge { what }));
        }
        let key = key_of(lock);
        let hash = self.engine.index.hash(&key);
        let version = self.look(hash, &key);
        let seen = version.filter(|version| !version.is_absent());
        match seen.map(|seen| <[u8; 8]>::try_from(seen.value())) {
            Some(Ok(seen)) if u64::from_le_bytes(seen) == token => return Ok(()),
            Some(Ok(seen)) if u64::from_le_bytes(seen) > token => {
                return Err(Stop::Abort(Abort::Stale {
                    lock: lock.to_vec(),
                    token,
                    highest: u64::from_le_bytes(seen),
                }));
            }
            Some(Err(_)) => {
                let lock = lock.escape_ascii();
                let what = format!(
                    "the token that was seen for the lock '{lock}' cannot be understood: the log is \
                     damaged, or was written by another version of the program"
                );
                return Err(Stop::Abort(Abort::Unsupported { what }));
            }
            Some(Ok(_)) | None => {}
        }
        let record = self.record_for(hash, &key);
        let content = Content {
            parts: &[&token.to_le_bytes()],
            kind: base::transaction::Kind::String,
            deadline: None,
        };
        let origin = self.state.origin.as_ref();
        let version = VersionRef::new(base::change::SYSTEM_GENERATION, Some(content), origin);
        self.note_write(record, version);
        Ok(())
    }

    /// Returns the transaction's time.
    pub(crate) fn tell_time(&mut self) -> i64 {
        self.state.told_time = true;
        i64::try_from(self.state.time_ms).unwrap_or(i64::MAX)
    }

    /// Makes the log keep the time that was returned, if it would keep nothing else of the
    /// transaction.
    pub(crate) fn keep_told_time(&mut self) {
        let state = &self.state;
        if !state.told_time || !state.writes.is_empty() || self.engine.epochs.is_driven() {
            return;
        }
        let number = (self.place as u32).to_be_bytes();
        let record = self.record_of(&[&OTHERS[..], &number].concat());
        let version = system_version(&self.state.time_ms.to_le_bytes(), None);
        self.note_write(record, version);
    }
}
