//! Executes one-shot transactions: each operation in terms of reads and writes.

use std::ops::Range;

use base::number::{add_decimal, parse_int};
use base::transaction::{ExpireWhen, Expiry, Kind, Observed, OpError, When};
use base::{Abort, Op, Reply};

use crate::access::{Put, View};
use crate::log::{Edit, RedoLog};
use crate::lookaside::KeyHash;
use crate::record::VersionRef;
use crate::system::is_reserved;
use crate::worker::{Stop, Worker};

/// A committed transaction's replies. While they live, the worker holds its epoch.
pub struct Committed<'w, L: RedoLog> {
    worker: &'w mut Worker<L>,
}

/// A change of a part of a value is logged as that part if the log becomes shorter by this many bytes.
/// Below that, the additional work of a recovery would outweigh the saving.
const EDIT_SAVES: usize = 4096;

/// Time that stands still for longer than this has stalled: epochs last for a few milliseconds
/// otherwise. So a key's remaining time is never answered as longer than it was given.
const STALL_MS: u64 = 10;

impl<L: RedoLog> Committed<'_, L> {
    /// Returns one reply for each operation, in their order.
    #[must_use]
    pub fn replies(&self) -> &[Reply<'_>] {
        &self.worker.state.replies
    }

    /// Returns the epoch that must be durable before the replies may be seen, and the transaction's
    /// time.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.worker.observed()
    }
}

impl<L: RedoLog> Drop for Committed<'_, L> {
    fn drop(&mut self) {
        self.worker.end();
    }
}

impl<L: RedoLog> Worker<L> {
    /// Executes the operations as one transaction, and executes them again as long as it meets
    /// conflicts.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened. [`Worker::observed`] returns the
    /// epoch that the transaction observed until then, which must be durable before the outcome may
    /// be seen.
    pub fn execute<'w>(&'w mut self, ops: &[Op<'_>]) -> Result<Committed<'w, L>, Abort> {
        self.admit(ops)?;
        for attempt in 0.. {
            self.begin();
            // Dropping this ends the transaction, also on a panic.
            let running = Committed { worker: self };
            match running.worker.attempt(ops) {
                Ok(()) => {
                    std::mem::forget(running);
                    break;
                }
                Err(Stop::Abort(abort)) => return Err(abort),
                Err(Stop::Conflict) => drop(running),
            }
            self.back_off(attempt)?;
        }
        Ok(Committed { worker: self })
    }

    /// Refuses transactions of more operations than the limit.
    pub(crate) fn check_count(&self, ops: &[Op<'_>]) -> Result<(), Abort> {
        if ops.len() > self.engine.limits().transaction_ops {
            return Err(Abort::TooLarge { what: "operations" });
        }
        Ok(())
    }

    fn admit(&mut self, ops: &[Op<'_>]) -> Result<(), Abort> {
        self.check_count(ops)?;
        if !ops.iter().all(Op::is_read_only) {
            self.log
                .ready()
                .map_err(|reason| Abort::ReadOnly { reason })?;
        }
        Ok(())
    }

    fn attempt(&mut self, ops: &[Op<'_>]) -> Result<(), Stop> {
        match self.run(ops) {
            Ok(()) => self.finish(),
            Err(stop) => Err(self.blame(stop)),
        }
    }

    /// Executes the operations within the transaction.
    pub(crate) fn run(&mut self, ops: &[Op<'_>]) -> Result<(), Stop> {
        self.draw_origin(ops);
        self.hash_and_fetch(ops);
        for (i, op) in ops.iter().enumerate() {
            self.admit_memory(op)?;
            let hash = self.state.hashes[i];
            let reply = match self.apply(i, op, hash)? {
                Ok(reply) => reply,
                Err(error) => Reply::Error(error),
            };
            self.state.replies.push(reply);
        }
        Ok(())
    }

    /// Executes one operation. The outer error ends the transaction, the inner one is the reply.
    fn apply(
        &mut self,
        at: usize,
        op: &Op<'_>,
        hash: Option<KeyHash>,
    ) -> Result<Result<Reply<'static>, OpError>, Stop> {
        let Some(hash) = hash else {
            return self.apply_keyless(op).map(Ok);
        };
        let precondition = || Stop::Abort(Abort::Precondition { op: at });
        Ok(match *op {
            Op::Check { key, version } => {
                if self.version_of(hash, key) != version {
                    return Err(precondition());
                }
                Ok(Reply::Ok)
            }
            Op::Require { key, present } => {
                if self.read(hash, key).live.is_some() != present {
                    return Err(precondition());
                }
                Ok(Reply::Ok)
            }
            Op::Watch { key } => Ok(Reply::Version(self.version_of(hash, key))),
            Op::Get { key } => self.read(hash, key).string().map(bytes_or_nil),
            Op::GetIfString { key } => {
                Ok(bytes_or_nil(self.read(hash, key).string().unwrap_or(None)))
            }
            Op::GetRange { key, start, end } => {
                let value = self.read(hash, key).string();
                value.map(|value| Reply::Bytes(range(value.unwrap_or(b""), start, end)))
            }
            Op::Len { key } => self
                .read(hash, key)
                .string()
                .map(|value| int(value.map_or(0, <[u8]>::len))),
            Op::Exists { key } => Ok(int(usize::from(self.read(hash, key).live.is_some()))),
            Op::KindOf { key } => {
                let live = self.read(hash, key).live;
                Ok(live.map_or(Reply::Nil, |version| Reply::Kind(version.kind())))
            }
            Op::ExpiryOf { key } => {
                let live = self.read(hash, key).live;
                Ok(live.map_or(Reply::Nil, |version| Reply::Deadline(version.deadline())))
            }
            Op::Put { .. } | Op::Append { .. } | Op::SetRange { .. } => self.apply_set(op, hash),
            Op::Delete { key } => {
                let there = self.read(hash, key).live.is_some();
                if there {
                    self.write(hash, key, None);
                }
                Ok(int(usize::from(there)))
            }
            Op::GetDelete { key } => {
                let value = self.read(hash, key).string();
                if let Ok(Some(_)) = value {
                    self.write(hash, key, None);
                }
                value.map(bytes_or_nil)
            }
            Op::Add { key, delta } => self.add(hash, key, delta),
            Op::AddDecimal { key, delta } => self.add_decimal(hash, key, delta),
            Op::GetExpire { .. } | Op::Expire { .. } | Op::Persist { .. } => {
                self.apply_expiry(op, hash)
            }
            Op::Guard { .. } | Op::Now | Op::Count | Op::Scan { .. } | Op::Flush => {
                unreachable!("has no key")
            }
        })
    }

    fn apply_keyless(&mut self, op: &Op<'_>) -> Result<Reply<'static>, Stop> {
        match *op {
            Op::Guard { lock, token } => self.guard(lock, token).map(|()| Reply::Ok),
            Op::Now => Ok(Reply::Int(self.tell_time())),
            Op::Count if self.state.exact => Ok(Reply::Int(self.count_visible())),
            Op::Count => {
                // Counters have no version: the reply waits for everything up to now.
                use base::epochs::EpochClock;
                self.state.observed = self.engine.epochs.current();
                Ok(Reply::Int(self.count() as i64))
            }
            Op::Scan {
                from,
                to,
                limit,
                values,
            } => {
                let mut pairs: Vec<(&'static [u8], &'static [u8])> = Vec::new();
                self.scan(from, to, limit, |record, version| {
                    pairs.push((record.key(), if values { version.value() } else { b"" }));
                });
                Ok(Reply::Pairs(pairs))
            }
            _ => {
                self.flush()?;
                Ok(Reply::Ok)
            }
        }
    }

    /// Returns the number of keys that the transaction sees, one by one: expired keys do not count,
    /// even if the janitor has not removed them yet.
    fn count_visible(&mut self) -> i64 {
        let mut keys = 0;
        self.scan(b"", None, usize::MAX, |_, _| keys += 1);
        keys
    }

    /// Returns the number of keys that the transaction sees, its own writes included.
    fn count(&self) -> u64 {
        let generation = self.state.generation;
        let own = self.state.writes.iter().map(|write| {
            let old = crate::record::RecordRef::version(write.record.word().load());
            let of = |v: VersionRef| i64::from(crate::commit::counts(v, generation));
            if write.record == self.engine.generation {
                0
            } else {
                of(write.version) - of(old)
            }
        });
        self.engine
            .count_keys(generation)
            .saturating_add_signed(own.sum())
    }

    fn apply_set(&mut self, op: &Op<'_>, hash: KeyHash) -> Result<Reply<'static>, OpError> {
        match *op {
            Op::Put {
                key,
                value,
                when,
                expiry,
                get,
            } => self.set(hash, key, value, (when, expiry, get)),
            Op::Append { key, value } => {
                let view = self.read(hash, key);
                let old = view.string()?.unwrap_or(b"");
                let new = old.len()..old.len() + value.len();
                self.edit_string(hash, key, view, new, &[old, value])?;
                Ok(int(old.len() + value.len()))
            }
            Op::SetRange { key, offset, value } => {
                let view = self.read(hash, key);
                let old = view.string()?.unwrap_or(b"");
                if value.is_empty() {
                    return Ok(int(old.len()));
                }
                let end = offset.checked_add(value.len()).ok_or(OpError::TooLong)?;
                if end > self.engine.limits().value {
                    return Err(OpError::TooLong);
                }
                let head = &old[..old.len().min(offset)];
                let gap = vec![0; offset - head.len()];
                let tail = old.get(end..).unwrap_or(b"");
                let parts = [head, &gap, value, tail];
                self.edit_string(hash, key, view, offset..end, &parts)?;
                Ok(int(end.max(old.len())))
            }
            _ => unreachable!("not a setting operation"),
        }
    }

    pub(crate) fn set(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        (when, expiry, get): (When, Expiry, bool),
    ) -> Result<Reply<'static>, OpError> {
        let blind = when == When::Always && expiry != Expiry::Keep && !get;
        let view = if blind {
            None
        } else {
            Some(self.read(hash, key))
        };
        let old = match view {
            Some(view) if get => view.string()?,
            _ => None,
        };
        let there = view.is_some_and(|view| view.live.is_some());
        let holds = match when {
            When::Always => true,
            When::Absent => !there,
            When::Present => there,
        };
        if holds {
            let kept = view.and_then(View::deadline);
            let deadline = self.deadline(expiry, kept)?;
            if self.passed(deadline) {
                self.limits(key, value.len())?;
                self.write(hash, key, None);
            } else {
                self.put_string(hash, key, &[value], deadline)?;
            }
        }
        Ok(match (get, holds) {
            (true, _) => bytes_or_nil(old),
            (false, true) => Reply::Ok,
            (false, false) => Reply::Nil,
        })
    }

    pub(crate) fn limits(&self, key: &[u8], value_len: usize) -> Result<(), OpError> {
        let limits = self.engine.limits();
        if key.len() > limits.key || value_len > limits.value {
            return Err(OpError::TooLong);
        }
        if is_reserved(key) {
            return Err(OpError::Reserved);
        }
        Ok(())
    }

    fn put_string(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        parts: &[&[u8]],
        deadline: Option<u64>,
    ) -> Result<VersionRef, OpError> {
        self.limits(key, parts.iter().map(|part| part.len()).sum())?;
        Ok(self.write(
            hash,
            key,
            Some(Put {
                parts,
                kind: Kind::String,
                deadline,
            }),
        ))
    }

    /// Writes `parts`, one behind the other. They are the value of `view` but for the bytes `new`, and
    /// for zeros between its end and those.
    fn edit_string(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        view: View,
        new: Range<usize>,
        parts: &[&[u8]],
    ) -> Result<(), OpError> {
        let writes = self.state.writes.len();
        let version = self.put_string(hash, key, parts, view.deadline())?;
        // The transaction's own earlier writes are in no log.
        let is_first = self.state.writes.len() > writes;
        let saves = version.value().len() - new.len() >= EDIT_SAVES;
        if is_first && saves && view.live.is_some() && version.origin().is_none() {
            self.state.edits.push(Edit {
                record: self.state.writes[writes].record,
                base: view.tid,
                offset: new.start,
                length: new.len(),
            });
        }
        Ok(())
    }

    fn add(&mut self, hash: KeyHash, key: &[u8], delta: i64) -> Result<Reply<'static>, OpError> {
        let view = self.read(hash, key);
        let old = match view.string()? {
            Some(value) => parse_int(value).ok_or(OpError::NotInteger)?,
            None => 0,
        };
        let sum = old.checked_add(delta).ok_or(OpError::Overflow)?;
        let mut text = itoa::Buffer::new();
        self.put_string(hash, key, &[text.format(sum).as_bytes()], view.deadline())?;
        Ok(Reply::Int(sum))
    }

    fn add_decimal(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        delta: &[u8],
    ) -> Result<Reply<'static>, OpError> {
        let view = self.read(hash, key);
        let sum = add_decimal(view.string()?.unwrap_or(b"0"), delta)?;
        let version = self.put_string(hash, key, &[&sum], view.deadline())?;
        Ok(Reply::Bytes(version.value()))
    }

    fn apply_expiry(&mut self, op: &Op<'_>, hash: KeyHash) -> Result<Reply<'static>, OpError> {
        let key = op.key().expect("an operation on one key");
        let view = self.read(hash, key);
        let Some(live) = view.live else {
            return Ok(if matches!(op, Op::GetExpire { .. }) {
                Reply::Nil
            } else {
                int(0)
            });
        };
        match *op {
            Op::GetExpire { expiry, .. } => {
                let value = view.string()?.unwrap_or(b"");
                if expiry != Expiry::Keep {
                    let deadline = self.deadline(expiry, None)?;
                    // Removing an expiry that is not there changes nothing.
                    if deadline.is_some() || live.deadline().is_some() {
                        self.set_deadline(hash, key, live, deadline);
                    }
                }
                Ok(Reply::Bytes(value))
            }
            Op::Expire { expiry, when, .. } => {
                let new = self.deadline(expiry, live.deadline())?;
                let holds = allows(when, live.deadline(), new);
                if holds {
                    self.set_deadline(hash, key, live, new);
                }
                Ok(int(usize::from(holds)))
            }
            _ => {
                let had = live.deadline().is_some();
                if had {
                    self.set_deadline(hash, key, live, None);
                }
                Ok(int(usize::from(had)))
            }
        }
    }

    /// Writes the same value with another deadline, or deletes it if that has passed.
    fn set_deadline(&mut self, hash: KeyHash, key: &[u8], live: VersionRef, to: Option<u64>) {
        let put = Put {
            parts: &[live.value()],
            kind: live.kind(),
            deadline: to,
        };
        let put = if self.passed(to) { None } else { Some(put) };
        self.write(hash, key, put);
    }

    /// Returns the time from which relative deadlines count: the transaction's time, or the clock
    /// when that time stands still because an epoch or the group stalls. Where replicas execute the
    /// same operations, it is always the transaction's time.
    fn now_ms(&self) -> u64 {
        let time_ms = self.state.time_ms;
        if self.state.exact {
            return time_ms;
        }
        let clock_ms = self.engine.epochs.clock_ms();
        if clock_ms > time_ms + STALL_MS {
            clock_ms
        } else {
            time_ms
        }
    }

    pub(crate) fn passed(&self, deadline: Option<u64>) -> bool {
        deadline.is_some_and(|deadline| deadline <= self.state.time_ms)
    }

    pub(crate) fn deadline(
        &self,
        expiry: Expiry,
        kept: Option<u64>,
    ) -> Result<Option<u64>, OpError> {
        let at = match expiry {
            Expiry::Never => return Ok(None),
            Expiry::Keep => return Ok(kept),
            Expiry::AtMs(at) => at,
            Expiry::InMs(ms) => {
                // A deadline that has passed at once is judged by the transaction's time.
                let now = if ms > 0 {
                    self.now_ms()
                } else {
                    self.state.time_ms
                };
                let now = i64::try_from(now).map_err(|_| OpError::BadExpiry)?;
                now.checked_add(ms).ok_or(OpError::BadExpiry)?
            }
        };
        // A time before 1970 has passed like any other.
        Ok(Some(u64::try_from(at).unwrap_or(0)))
    }
}

fn int(n: usize) -> Reply<'static> {
    Reply::Int(n as i64)
}

fn bytes_or_nil(value: Option<&'static [u8]>) -> Reply<'static> {
    value.map_or(Reply::Nil, Reply::Bytes)
}

/// Returns the bytes `start..=end` by Redis's rules: negative positions count from the end.
fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let position = |at: i64| {
        if at < 0 {
            (len.saturating_add(at)).max(0)
        } else {
            at
        }
    };
    let (start, end) = (position(start), position(end).min(len - 1));
    if start > end || len == 0 {
        return b"";
    }
    &value[start as usize..=end as usize]
}

fn allows(when: ExpireWhen, old: Option<u64>, new: Option<u64>) -> bool {
    let new = new.unwrap_or(u64::MAX);
    match when {
        ExpireWhen::Always => true,
        ExpireWhen::None => old.is_none(),
        ExpireWhen::Some => old.is_some(),
        ExpireWhen::Later => old.is_some_and(|old| new > old),
        ExpireWhen::Earlier => old.is_none_or(|old| new < old),
        ExpireWhen::SomeAndLater => old.is_some_and(|old| new > old),
        ExpireWhen::SomeAndEarlier => old.is_some_and(|old| new < old),
    }
}
