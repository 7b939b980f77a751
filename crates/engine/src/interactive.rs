//! Transactions as closures: reads, writes and the program's code between them.

use std::marker::PhantomData;

use base::transaction::{Expiry, Observed, When};
use base::{Abort, Version};

use crate::log::RedoLog;
use crate::worker::{Running, Stop, Worker};

/// A running transaction, as its closure sees it. Every error is to be passed on with `?`: a
/// conflict makes the closure run again from its beginning.
///
/// The reads are validated when the transaction commits. Until then two reads may show a state
/// that never existed; the closure must not act on that outside of the transaction.
pub struct Txn<'t> {
    access: &'t mut dyn Access,
    // Values that were read live as long as the transaction: two transactions must not be swapped.
    _invariant: PhantomData<std::cell::Cell<&'t ()>>,
}

/// The part of a worker that a transaction's handle needs, for any log.
trait Access {
    fn get(&mut self, key: &[u8]) -> Result<Option<&'static [u8]>, Stop>;
    fn version(&mut self, key: &[u8]) -> Version;
    fn put(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), Stop>;
    fn delete(&mut self, key: &[u8]) -> Result<bool, Stop>;
    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<Pair<'static>>;
    fn time_ms(&self) -> u64;
}

type Pair<'t> = (&'t [u8], &'t [u8]);

impl<'t> Txn<'t> {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Returns [`Stop`]; a value that is not a string is an error of the program and aborts.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&'t [u8]>, Stop> {
        self.access.get(key)
    }

    /// Returns the version of `key`, which changes whenever the key does: for a later
    /// [`base::Op::Check`], or for a later transaction that compares it.
    ///
    /// # Errors
    /// Returns [`Stop`].
    pub fn version(&mut self, key: &[u8]) -> Result<Version, Stop> {
        Ok(self.access.version(key))
    }

    /// Sets the value of `key`, which will not expire.
    ///
    /// # Errors
    /// Returns [`Stop`]; a key or value beyond the limits aborts.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Stop> {
        self.access.put(key, value, Expiry::Never)
    }

    /// Sets the value of `key` and its expiry.
    ///
    /// # Errors
    /// As [`Txn::put`].
    pub fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), Stop> {
        self.access.put(key, value, expiry)
    }

    /// Deletes `key`. Returns `true` if it was present.
    ///
    /// # Errors
    /// Returns [`Stop`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Stop> {
        self.access.delete(key)
    }

    /// Returns the keys and values from `from` (inclusive) to `to` (exclusive, `None`: the end) in
    /// byte order, at most `limit`.
    ///
    /// # Errors
    /// Returns [`Stop`].
    pub fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair<'t>>, Stop> {
        Ok(self.access.scan(from, to, limit))
    }

    /// Returns the transaction's time: milliseconds since the Unix epoch, the stamp of its epoch.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.access.time_ms()
    }

    /// Returns the error by which a closure gives up: nothing happens, and it is not run again.
    #[must_use]
    pub fn cancel(&self) -> Stop {
        Stop::Abort(Abort::Cancelled)
    }
}

impl<L: RedoLog> Worker<L> {
    /// Runs `body` as one transaction, and runs it again whenever it meets a conflict.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened.
    pub fn transact<T>(
        &mut self,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, Stop>,
    ) -> Result<(T, Observed), Abort> {
        for attempt in 0.. {
            self.log
                .ready()
                .map_err(|reason| Abort::ReadOnly { reason })?;
            self.refresh();
            self.begin();
            let running = Running(self);
            let mut txn = Txn {
                access: running.0,
                _invariant: PhantomData,
            };
            let outcome = match body(&mut txn) {
                Ok(value) => running.0.finish().map(|()| value),
                Err(stop) => Err(running.0.blame(stop)),
            };
            match outcome {
                Ok(value) => return Ok((value, running.0.observed())),
                Err(Stop::Abort(abort)) => return Err(abort),
                Err(Stop::Conflict) => drop(running),
            }
            self.back_off(attempt)?;
        }
        unreachable!("backing off ends the attempts")
    }
}

impl<L: RedoLog> Access for Worker<L> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&'static [u8]>, Stop> {
        let hash = self.engine.index.hash(key);
        let value = self.read(hash, key).string();
        value.map_err(|error| Stop::Abort(Abort::Failed(error)))
    }

    fn version(&mut self, key: &[u8]) -> Version {
        let hash = self.engine.index.hash(key);
        self.version_of(hash, key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), Stop> {
        self.admit_bytes(key.len() + value.len())?;
        let hash = self.engine.index.hash(key);
        let set = self.set(hash, key, value, (When::Always, expiry, false));
        set.map(|_| ())
            .map_err(|error| Stop::Abort(Abort::Failed(error)))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Stop> {
        let hash = self.engine.index.hash(key);
        let there = self.read(hash, key).live.is_some();
        if there {
            self.write(hash, key, None);
        }
        Ok(there)
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<Pair<'static>> {
        let mut pairs: Vec<Pair<'static>> = Vec::new();
        self.scan(from, to, limit, |record, version| {
            pairs.push((record.key(), version.value()))
        });
        pairs
    }

    fn time_ms(&self) -> u64 {
        self.state.time_ms
    }
}
