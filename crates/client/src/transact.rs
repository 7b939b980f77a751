//! Transactions in steps: reads, then writes, on the condition that the values read are unchanged.
//!
//! A read asks for a value and its version; writes are kept in the client. The commit is one
//! transaction: a `Check` for each version that was read, then the writes. If a check fails, everything
//! begins anew.

use std::collections::BTreeMap;
use std::time::Instant;

use base::ids::Version;
use base::limits::Limits;
use base::partition::OwnedReply;
use base::transaction::OpError;
use base::{Abort, Op};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::replies::{check, unexpected_read, value};

/// The transaction that the closure of [`Client::transact`] reads and writes by.
pub struct ClientTxn<'a> {
    client: &'a Client,
    deadline: Instant,
    /// Values that were read, with their versions.
    reads: BTreeMap<Vec<u8>, (Version, Option<Vec<u8>>)>,
    /// Number of reads; the values of one read are of one moment.
    moments: u32,
    /// Tokens of locks: the transaction takes effect only if no greater token has been seen.
    guards: BTreeMap<Vec<u8>, u64>,
    /// Values to be written; `None` deletes the key.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Client {
    /// Runs a transaction in steps. The closure reads and writes through its [`ClientTxn`]; when it returns
    /// `Ok`, all its writes take effect at once if all that it read is unchanged. Otherwise it is run
    /// again, until the call's time is up.
    ///
    /// The values that the closure reads may be of several moments; that is found only at the end, and
    /// then the closure is run again, also if it gave up with [`Error::cancelled`]. So it should do
    /// nothing that cannot be undone, and not loop on what it reads.
    ///
    /// # Errors
    /// See [`Error`]; an error of the closure is returned to the caller, and then nothing has happened.
    pub fn transact<T>(
        &self,
        mut body: impl FnMut(&mut ClientTxn<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + self.options.timeout;
        let mut backoff = Backoff::until(deadline);
        loop {
            let mut txn = ClientTxn {
                client: self,
                deadline,
                reads: BTreeMap::new(),
                moments: 0,
                guards: BTreeMap::new(),
                writes: BTreeMap::new(),
            };
            let outcome = body(&mut txn);
            match &outcome {
                Ok(_) => {}
                // Reads of several moments may have caused this error.
                Err(Error::Cancelled(_) | Error::Operation { .. }) => {
                    txn.writes.clear();
                    txn.guards.clear();
                }
                Err(_) => return outcome,
            }
            match txn.commit() {
                Ok(()) => return outcome,
                Err(Error::Aborted(Abort::Precondition { .. })) => {}
                // The closure's own error matters more than a failed validation.
                Err(error) => return outcome.and(Err(error)),
            }
            if !backoff.pause() {
                return Err(Error::TimedOut {
                    attempts: backoff.attempts,
                    why: "what the transaction had read was changed by others each time".to_owned(),
                });
            }
        }
    }
}

impl ClientTxn<'_> {
    /// Returns the value of a key: what this transaction has written or read before, or the stored
    /// value. `None` if the key is absent.
    ///
    /// # Errors
    /// See [`Error`]; pass it on.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut values = self.get_many(&[key])?;
        Ok(values.remove(0))
    }

    /// Returns the values of keys, as [`ClientTxn::get`]; those that were not read before are of one moment,
    /// and cost one round trip.
    ///
    /// # Errors
    /// See [`Error`]; pass it on.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let is_known =
            |key: &&[u8]| self.writes.contains_key(*key) || self.reads.contains_key(*key);
        let mut missing: Vec<&[u8]> = keys.iter().copied().filter(|key| !is_known(key)).collect();
        missing.sort_unstable();
        missing.dedup();
        self.fetch(&missing)?;
        let value = |key: &&[u8]| match self.writes.get(*key) {
            Some(written) => written.clone(),
            None => self.reads.get(*key).and_then(|(_, value)| value.clone()),
        };
        Ok(keys.iter().map(value).collect())
    }

    fn fetch(&mut self, keys: &[&[u8]]) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        let both = |key| [Op::Watch { key }, Op::Get { key }];
        let ops: Vec<Op<'_>> = keys.iter().copied().flat_map(both).collect();
        let replies = self.client.execute_until(&ops, self.deadline)?;
        self.moments += 1;
        let mut replies = replies.into_iter();
        for (at, key) in keys.iter().enumerate() {
            let version = match replies.next() {
                Some(OwnedReply::Version(version)) => version,
                other => return Err(unexpected_read(&other.unwrap_or(OwnedReply::Nil))),
            };
            let reply = replies.next().unwrap_or(OwnedReply::Nil);
            let value = value(2 * at + 1, reply)?;
            self.reads.insert(key.to_vec(), (version, value));
        }
        Ok(())
    }

    /// Sets a key when the transaction commits. The key does not expire, and an earlier value is
    /// replaced.
    ///
    /// # Errors
    /// Returns an error if the key or the value is longer than any store takes.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if key.len() > Limits::MAX_KEY || value.len() > Limits::MAX_VALUE {
            let error = OpError::TooLong;
            return Err(Error::Operation {
                op: self.writes.len(),
                error,
            });
        }
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    /// Deletes a key when the transaction commits.
    pub fn delete(&mut self, key: &[u8]) {
        self.writes.insert(key.to_vec(), None);
    }

    /// Makes the transaction take effect only if no partition of its keys has seen a greater token of
    /// the lock; each partition has seen this one then. Of several tokens of one lock the least counts.
    /// If one is stale, the call ends with [`Abort::Stale`]. The lock's name is not a key.
    pub fn guard(&mut self, lock: &[u8], token: u64) {
        let least = self.guards.entry(lock.to_vec()).or_insert(token);
        *least = token.min(*least);
    }

    fn commit(self) -> Result<(), Error> {
        // The values of one read were current at one moment.
        if self.writes.is_empty() && self.guards.is_empty() && self.moments <= 1 {
            return Ok(());
        }
        let guards = self.guards.iter();
        let guards = guards.map(|(lock, token)| Op::Guard {
            lock,
            token: *token,
        });
        let checks = self.reads.iter().map(|(key, (version, _))| Op::Check {
            key,
            version: *version,
        });
        let writes = self.writes.iter().map(|(key, value)| match value {
            Some(value) => Op::put(key, value),
            None => Op::Delete { key },
        });
        let ops: Vec<Op<'_>> = guards.chain(checks).chain(writes).collect();
        let replies = self.client.execute_until(&ops, self.deadline)?;
        check(&replies)
    }
}
