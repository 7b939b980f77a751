//! The transaction that a closure sees: reads, writes and the program's code between them.

use std::marker::PhantomData;
use std::sync::Arc;

use base::database;
use base::key_event::KeyEvent;
use base::transaction::{Expiry, OpError, When};
use base::versions::shown_key;
use base::{Abort, Op, Reply, Version};

use crate::engine::Engine;
use crate::one_shot;
use crate::strings;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::worker_slot::bytes_of;

/// A running transaction, as its closure sees it. Every error is to be passed on with `?`: a
/// conflict makes the closure run again from its beginning.
///
/// The reads are validated when the transaction commits. Until then two reads may show a state
/// that never existed; the closure must not act on that outside of the transaction.
pub struct Txn<'t> {
    thread: &'t mut ThreadContext,
    txn: &'t mut TransactionState,
    // Values that were read live as long as the transaction: two transactions must not be swapped.
    _invariant: PhantomData<std::cell::Cell<&'t ()>>,
}

/// A key and its value.
type Pair<'t> = (&'t [u8], &'t [u8]);

impl<'t> Txn<'t> {
    pub(crate) fn new(thread: &'t mut ThreadContext, txn: &'t mut TransactionState) -> Txn<'t> {
        Txn {
            thread,
            txn,
            _invariant: PhantomData,
        }
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Returns [`TransactionError`]; a value that is not a string is an error of the program and aborts.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&'t [u8]>, TransactionError> {
        let key = &*self.txn.stored_key(&self.thread.engine, key);
        let hash = self.thread.engine.index.hash(key);
        let value = self.txn.read(&self.thread.engine, hash, key).string();
        value.map_err(failed)
    }

    /// Returns the version of `key`, which changes whenever the key does: for a later
    /// [`base::Op::Check`], or for a later transaction that compares it.
    ///
    /// # Errors
    /// Returns [`TransactionError`].
    pub fn version(&mut self, key: &[u8]) -> Result<Version, TransactionError> {
        let key = &*self.txn.stored_key(&self.thread.engine, key);
        let hash = self.thread.engine.index.hash(key);
        Ok(self.txn.watch_version(&self.thread.engine, hash, key))
    }

    /// Sets the value of `key`, which will not expire.
    ///
    /// # Errors
    /// Returns [`TransactionError`]; a key or value beyond the limits aborts.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TransactionError> {
        self.put_expiring(key, value, Expiry::Never)
    }

    /// Sets the value of `key` and its expiry.
    ///
    /// # Errors
    /// As [`Txn::put`].
    pub fn put_expiring(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), TransactionError> {
        self.txn.admit_bytes(self.thread, key.len() + value.len())?;
        let key = &*self.txn.stored_key(&self.thread.engine, key);
        let hash = self.thread.engine.index.hash(key);
        let how = (When::Always, expiry, false);
        let set = strings::set(self.thread, self.txn, (hash, key), value, how);
        set.map(|_| ()).map_err(failed)
    }

    /// Deletes `key`. Returns `true` if it was present.
    ///
    /// # Errors
    /// Returns [`TransactionError`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, TransactionError> {
        let key = &*self.txn.stored_key(&self.thread.engine, key);
        let hash = self.thread.engine.index.hash(key);
        let read = self.txn.read(&self.thread.engine, hash, key);
        let exists = read.live.is_some();
        if exists {
            self.txn.write(self.thread, hash, key, None);
        }
        Ok(exists)
    }

    /// Evicts a key that [`crate::Worker::choose_victim`] has returned, if it still may be. Returns the bytes of memory
    /// that this will free.
    ///
    /// # Errors
    /// Returns [`TransactionError`].
    pub fn evict(&mut self, key: &[u8]) -> Result<Option<u64>, TransactionError> {
        let engine = Arc::clone(&self.thread.engine);
        self.txn.notes_use = false;
        let hash = engine.index.hash(key);
        let Some(version) = self.txn.read(&engine, hash, key).live else {
            return Ok(None);
        };
        if engine.eviction.policy().is_volatile() && version.deadline().is_none() {
            return Ok(None);
        }
        if engine.listening.is_on() {
            self.txn.note_event(key, KeyEvent::Evicted);
        }
        self.txn.write(self.thread, hash, key, None);
        let record = self.txn.writes.last().map(|write| write.record);
        Ok(record.map(|record| bytes_of(record, version) as u64))
    }

    /// Gives the value of `from`, of any type, and its deadline to `to`. A large collection is copied node by node.
    /// Returns `false` if `from` is absent.
    ///
    /// # Errors
    /// As [`Txn::put`]; [`Abort::Unsupported`] if one of the keys is read-atomic.
    pub fn copy(&mut self, from: &[u8], to: &[u8]) -> Result<bool, TransactionError> {
        let engine = &self.thread.engine;
        refuse_read_atomic(engine, [from, to].into_iter())?;
        let from = &*self.txn.stored_key(engine, from);
        let to = &*self.txn.stored_key(engine, to);
        let hash = engine.index.hash(to);
        let read = self.txn.read(engine, engine.index.hash(from), from);
        let Some(version) = read.live else {
            return Ok(false);
        };
        let (kind, deadline) = (version.kind(), read.deadline());
        let value = match version.tree() {
            None => version.value(),
            Some(_) => &[],
        };
        strings::check_limits(&self.thread.limits, to, value.len()).map_err(failed)?;
        self.txn.admit_bytes(self.thread, to.len() + value.len())?;
        let Some(tree) = version.tree() else {
            let stored = (kind, value);
            self.txn
                .write_stored(self.thread, (hash, to), stored, deadline);
            return Ok(true);
        };
        let tree = tree.copied();
        let allocated = tree.editor().map_or(0, |editor| editor.allocated());
        self.txn.count_allocated(allocated);
        self.txn
            .write_tree(self.thread, (hash, to), tree, (kind, deadline));
        Ok(true)
    }

    /// Returns the keys and values from `from` (inclusive) to `to` (exclusive, `None`: the end) in
    /// byte order, at most `limit`.
    ///
    /// # Errors
    /// Returns [`TransactionError`].
    pub fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair<'t>>, TransactionError> {
        let mut pairs: Vec<Pair<'t>> = Vec::new();
        let engine = &self.thread.engine;
        let from = &*self.txn.stored_key(engine, from);
        let to = to.map(|to| self.txn.stored_key(engine, to));
        self.txn
            .scan(engine, from, to.as_deref(), limit, |record, version| {
                pairs.push((
                    database::client_key(record.key()),
                    version.string().unwrap_or(b""),
                ));
            });
        Ok(pairs)
    }

    /// Executes operations, and returns their replies.
    ///
    /// # Errors
    /// After [`Abort::Precondition`] of an operation before all writes of the list, nothing of the list has
    /// happened, and the transaction may go on. Any other error is to be passed on; it is
    /// [`Abort::Unsupported`] for read-atomic keys, whose versions name all keys that a transaction writes.
    pub fn execute(&mut self, ops: &[Op<'_>]) -> Result<&[Reply<'_>], TransactionError> {
        let engine = &self.thread.engine;
        engine.check_count(ops)?;
        refuse_read_atomic(engine, ops.iter().filter_map(Op::key))?;
        let from = self.txn.replies.len();
        one_shot::run(self.thread, self.txn, ops)?;
        Ok(&self.txn.replies[from..])
    }

    /// Returns the transaction's time: milliseconds since the Unix epoch, the stamp of its epoch.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.txn.time_ms
    }

    /// Returns the error by which a closure gives up: nothing happens, and it is not run again.
    #[must_use]
    pub fn cancel(&self) -> TransactionError {
        TransactionError::Abort(Abort::Cancelled)
    }
}

fn failed(error: OpError) -> TransactionError {
    TransactionError::Abort(Abort::Failed(error))
}

/// Refuses read-atomic keys: their versions name all keys that a transaction writes.
fn refuse_read_atomic<'k>(
    engine: &Engine,
    mut keys: impl Iterator<Item = &'k [u8]>,
) -> Result<(), Abort> {
    if !engine.read_atomic.any() {
        return Ok(());
    }
    match keys.find(|key| engine.read_atomic.covers(key)) {
        None => Ok(()),
        Some(key) => Err(Abort::Unsupported {
            what: format!(
                "the key {} is declared read atomic, and a transaction of several steps cannot use such a key, \
                 because the versions of read-atomic keys name all keys that are written with them: use it in a \
                 transaction that is one list of operations, or give it a beginning that is not declared",
                shown_key(key)
            ),
        }),
    }
}
