//! A thread's own way into a replicated partition.
//!
//! The way of a transaction that writes: it is executed here, under strict two-phase locking
//! (`engine`'s `stage`); what it writes becomes an entry, which the member takes through consensus
//! together with those of others; the reply waits for the entry's ticket (paper 5, section 3.2).
//! One that only reads is executed on what is applied, and its reply waits until it is sure that
//! nobody else led at that moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::codec::{encode_ops, read_replies, write_replies};
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::{Abort, Epoch, Op, Reply, Tid, Timestamp, TransactionId};
use engine::{Changes, Engine, RedoLog};

use crate::options::Grouping;
use crate::sessions::Known;
use crate::shared::Shared;
use crate::tickets::Submission;
use crate::wire::Payload;

/// Collects what a transaction writes, as its entry has it.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    changes: Vec<u8>,
}

impl RedoLog for Collector {
    fn ready(&mut self) -> Result<(), String> {
        self.changes.clear();
        Ok(())
    }

    fn append(&mut self, _: Tid, _: u64, changes: Changes<'_>) -> Result<(), String> {
        self.changes.clear();
        journal::write_changes(&mut self.changes, |writer| {
            changes.iter().for_each(|change| writer.change(&change));
        });
        Ok(())
    }
}

/// Runs transactions, one at a time. It can be sent to another thread, but not shared.
#[derive(Debug)]
pub struct Worker {
    inner: engine::Worker<Collector>,
    shared: Arc<Shared>,
    /// The leadership in which the last call was executed.
    leadership: u64,
    observed: Observed,
}

mod participant;

/// A client's transaction: who sends it, and its number, from 1 on. One that is sent again with the
/// same number is not executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequenced {
    /// The client; not 0.
    pub client: u64,
    /// The number; each is greater than the one before.
    pub sequence: u64,
}

/// Nobody's transaction: it is not remembered.
const NOBODY: Sequenced = Sequenced {
    client: 0,
    sequence: 0,
};

/// Staged transactions are the youngest of all: they wait for nobody while they hold something, so
/// that everybody may wait for them.
const YOUNGEST: Timestamp = Timestamp(u64::MAX);

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>) -> Option<Worker> {
        Some(Worker {
            inner: shared.engine.worker(|_| Collector::default())?,
            shared: Arc::clone(shared),
            leadership: 0,
            observed: Observed::default(),
        })
    }

    /// The engine of the partition.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Brings the partition's time up to date. Call it before a batch of transactions.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// Starts fetching the memory of these keys.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        self.inner.prefetch(keys);
    }

    /// The engine's own worker, for walks through snapshots.
    pub fn inner(&mut self) -> &mut engine::Worker<impl RedoLog> {
        &mut self.inner
    }

    /// Executes the operations as one transaction. What `see` gets may be shown once the ticket in
    /// [`Observed::epoch`] has resolved, and never if it is lost.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing has happened: [`Abort::Elsewhere`] if another node leads,
    /// [`Abort::Held`] if it is to be tried again when holds were given back. What else it shows of
    /// the store may be shown once [`Worker::observed`] has resolved.
    pub fn execute<T>(
        &mut self,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>], Observed) -> T,
    ) -> Result<T, Abort> {
        self.begin()?;
        if ops.iter().all(Op::is_read_only) {
            return self.read(ops, see);
        }
        let replies = self.write(ops, NOBODY)?;
        let replies: Vec<Reply<'_>> = replies.iter().map(OwnedReply::as_reply).collect();
        Ok(see(&replies, self.observed))
    }

    /// As [`Worker::execute`], once for each number: the replies are those of the first time.
    ///
    /// # Errors
    /// As there; and [`Abort::Unavailable`] if the same transaction is under way here already, and
    /// [`Abort::Unknown`] if what it came to is not remembered any more.
    pub fn execute_once(
        &mut self,
        ops: &[Op<'_>],
        sequenced: Sequenced,
    ) -> Result<Vec<OwnedReply>, Abort> {
        self.begin()?;
        if ops.iter().all(Op::is_read_only) {
            return self.read(ops, |replies, _| {
                replies.iter().map(OwnedReply::from).collect()
            });
        }
        self.write(ops, sequenced)
    }

    /// Executes operations that only read on what this member has applied, whoever leads, if that
    /// is not older than `bound`.
    ///
    /// # Errors
    /// [`Abort::Elsewhere`] if it is older, or nobody knows how old it is; else as the operations.
    pub fn read_stale<T>(
        &mut self,
        ops: &[Op<'_>],
        bound: Duration,
        see: impl FnOnce(&[Reply<'_>], Observed) -> T,
    ) -> Result<T, Abort> {
        if ops.iter().any(|op| !op.is_read_only()) {
            return Err(self.shared.elsewhere());
        }
        if self.begin().is_ok() {
            return self.read(ops, see);
        }
        let loads = self.shared.loads.load(Ordering::SeqCst);
        let done = self.inner.execute(ops)?;
        let time_ms = done.observed().time_ms;
        let loaded = !loads.is_multiple_of(2) || self.shared.loads.load(Ordering::SeqCst) != loads;
        if loaded || self.shared.staleness().is_none_or(|age| age > bound) {
            return Err(self.shared.elsewhere());
        }
        self.observed = observed(Epoch::ZERO, time_ms);
        Ok(see(done.replies(), self.observed))
    }

    /// What the last call wrote or observed.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.observed
    }

    /// Whether the group's entries are executed after consensus: then [`Worker::propose`] takes
    /// transactions that write, and [`Worker::execute`] does not.
    #[must_use]
    pub fn is_naive(&self) -> bool {
        self.shared.grouping == Grouping::Naive
    }

    /// Has the operations go through consensus and be executed after it (plain Raft, the paper's
    /// baseline). Returns the number under which [`Worker::outcome`] has the outcome once the ticket
    /// in [`Worker::observed`] has resolved.
    ///
    /// # Errors
    /// [`Abort::Elsewhere`]; [`Abort::Unavailable`] if the partition is not [`Worker::is_naive`].
    pub fn propose(&mut self, ops: &[Op<'_>], sequenced: Sequenced) -> Result<u64, Abort> {
        if !self.is_naive() {
            let what = "this partition executes before consensus".to_owned();
            return Err(Abort::Unavailable { what });
        }
        let shared = Arc::clone(&self.shared);
        let _admitted = shared.tickets.admission();
        self.begin()?;
        shared.refresh();
        let mut encoded = Vec::new();
        encode_ops(ops, &mut encoded);
        let stamp_ms = shared.engine.time_ms();
        let mut payload = Vec::with_capacity(encoded.len() + 32);
        Payload::Execute {
            stamp_ms,
            client: sequenced.client,
            sequence: sequenced.sequence,
            ops: &encoded,
        }
        .encode(&mut payload);
        let number = shared.number();
        let submission = Submission {
            payload,
            release: None,
            client: 0,
            number: Some(number),
        };
        match shared.tickets.submit(submission, u64::MAX) {
            Some(ticket) => self.observed = observed(Epoch(ticket), stamp_ms),
            None => unreachable!("no time is later"),
        }
        shared.wake();
        Ok(number)
    }

    /// What became of what was proposed. Only once; `None` if it is not known yet, or was fetched.
    pub fn outcome(&mut self, number: u64) -> Option<Result<Vec<OwnedReply>, Abort>> {
        self.shared.take_outcome(number)
    }

    /// The number of the leadership in which something may be executed now.
    fn leads(&self) -> Result<u64, Abort> {
        let leadership = self.shared.tickets.leaderships();
        if self.shared.tickets.is_serving() {
            Ok(leadership)
        } else {
            Err(self.shared.elsewhere())
        }
    }

    /// What is executed from now on is of the leadership of this moment.
    fn begin(&mut self) -> Result<(), Abort> {
        self.leadership = self.leads()?;
        Ok(())
    }

    /// What was read since [`Worker::begin`] may be shown when the ticket has resolved.
    ///
    /// # Errors
    /// That leadership has ended: it is to be read again, elsewhere.
    fn has_read(&mut self, time_ms: u64) -> Result<(), Abort> {
        let ticket = self.shared.read_ticket(time_ms, self.leadership);
        let ticket = ticket.ok_or_else(|| self.shared.elsewhere())?;
        self.observed = observed(ticket, time_ms);
        Ok(())
    }

    fn read<T>(
        &mut self,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>], Observed) -> T,
    ) -> Result<T, Abort> {
        let abort = match self.inner.execute(ops) {
            Ok(done) => {
                let time_ms = done.observed().time_ms;
                let ticket = self.shared.read_ticket(time_ms, self.leadership);
                let ticket = ticket.ok_or_else(|| self.shared.elsewhere())?;
                self.observed = observed(ticket, time_ms);
                return Ok(see(done.replies(), self.observed));
            }
            Err(abort) => abort,
        };
        Err(self.saw(abort))
    }

    /// An abort tells of the store, too.
    fn saw(&mut self, abort: Abort) -> Abort {
        self.observed = Observed::default();
        if let Abort::Precondition { .. } = abort {
            let time_ms = self.inner.observed().time_ms;
            if let Err(elsewhere) = self.has_read(time_ms) {
                return elsewhere;
            }
        }
        abort
    }

    fn write(&mut self, ops: &[Op<'_>], by: Sequenced) -> Result<Vec<OwnedReply>, Abort> {
        if self.is_naive() {
            let what = "this partition executes after consensus: propose it".to_owned();
            return Err(Abort::Unavailable { what });
        }
        let shared = Arc::clone(&self.shared);
        let admitted = shared.tickets.admission();
        self.begin()?;
        if shared.tickets.is_full() {
            let what = "too much waits to be replicated".to_owned();
            return Err(Abort::Unavailable { what });
        }
        if by != NOBODY
            && let Err(known) = shared.admit(by.client, by.sequence)
        {
            drop(admitted);
            return self.repeated(known);
        }
        let outcome = self.stage(ops, by);
        if by != NOBODY && !matches!(outcome, Ok((_, true))) {
            // Nothing was submitted: nothing is under way.
            shared.under_way.lock().remove(&by.client);
        }
        outcome.map(|(replies, _)| replies)
    }

    /// Executes and submits; says whether there was anything to submit.
    fn stage(&mut self, ops: &[Op<'_>], by: Sequenced) -> Result<(Vec<OwnedReply>, bool), Abort> {
        loop {
            let id = TransactionId {
                timestamp: Timestamp(self.shared.number()),
                unique: 0,
            };
            let holder = Holder { id, age: YOUNGEST };
            self.shared.refresh();
            let staged = match self.inner.stage(ops, holder) {
                Ok(staged) => staged,
                Err(abort) => return Err(self.saw(abort)),
            };
            let time_ms = self.inner.observed().time_ms;
            // A client's transaction is remembered even if there was nothing to write.
            if staged.writes == 0 && by == NOBODY {
                self.has_read(time_ms)?;
                return Ok((staged.replies, false));
            }
            let mut result = Vec::new();
            if by != NOBODY {
                write_replies(&staged.replies, &mut result);
            }
            if self.submit(by, &result, Some(id), time_ms) {
                return Ok((staged.replies, true));
            }
            self.shared.engine.release(id);
        }
    }

    /// Submits what the engine's worker has collected. Returns whether it was taken: no deadline has
    /// passed since it was executed.
    fn submit(
        &mut self,
        by: Sequenced,
        result: &[u8],
        release: Option<TransactionId>,
        time_ms: u64,
    ) -> bool {
        let changes = &self.inner.log().changes;
        let mut payload = Vec::with_capacity(changes.len() + result.len() + 40);
        Payload::Transaction {
            stamp_ms: time_ms,
            client: by.client,
            sequence: by.sequence,
            result,
            changes,
        }
        .encode(&mut payload);
        let submission = Submission {
            payload,
            release,
            client: by.client,
            number: None,
        };
        let Some(ticket) = self.shared.tickets.submit(submission, time_ms) else {
            return false;
        };
        self.observed = observed(Epoch(ticket), time_ms);
        self.shared.wake();
        true
    }

    /// Answers what was sent before.
    fn repeated(&mut self, known: Known) -> Result<Vec<OwnedReply>, Abort> {
        match known {
            Known::Done(result) => {
                // It is applied here, so that it is decided; nobody can change that.
                self.observed = Observed::default();
                let replies = read_replies(&mut base::codec::Reader::new(&result));
                replies.map_err(|error| Abort::Unknown {
                    what: format!("the outcome that was kept cannot be read: {error}"),
                })
            }
            Known::UnderWay => Err(Abort::Unknown {
                what: "this client has a transaction under way, maybe this one: ask again"
                    .to_owned(),
            }),
            Known::Old => Err(Abort::Unknown {
                what: "this client has sent a later transaction".to_owned(),
            }),
            Known::Full => Err(Abort::Unavailable {
                what: "no more clients can be remembered: send it without a number, or later"
                    .to_owned(),
            }),
            Known::Expired | Known::New => Err(Abort::Unknown {
                what: "this client was not heard of for too long, and is not remembered".to_owned(),
            }),
        }
    }

    /// Submits a step of the attempt `id` of a transaction over several partitions, which `stage`
    /// executes.
    fn step<T>(
        &mut self,
        id: TransactionId,
        step: Step,
        mut stage: impl FnMut(&mut engine::Worker<Collector>) -> Result<(T, bool), Abort>,
    ) -> Result<T, Abort> {
        let shared = Arc::clone(&self.shared);
        let _admitted = shared.tickets.admission();
        self.begin()?;
        loop {
            shared.refresh();
            let (value, wrote) = match stage(&mut self.inner) {
                Ok(staged) => staged,
                Err(abort) => return Err(self.saw(abort)),
            };
            let time_ms = self.inner.observed().time_ms;
            if !wrote {
                self.has_read(time_ms)?;
                return Ok(value);
            }
            let release = (step == Step::Decision).then_some(id);
            if self.submit(NOBODY, b"", release, time_ms) {
                return Ok(value);
            }
            self.inner.unstage(id);
            if step == Step::Prepare {
                shared.engine.release(id);
            }
        }
    }
}

/// What is staged of a transaction over several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Its keys stay held.
    Prepare,
    /// Its keys are given back.
    Decision,
    /// It holds no keys.
    Note,
}

/// What a reply depends on.
fn observed(epoch: Epoch, time_ms: u64) -> Observed {
    Observed {
        epoch,
        tid: Tid::ZERO,
        time_ms,
    }
}
