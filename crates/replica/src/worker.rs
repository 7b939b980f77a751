//! A thread's access to a replicated partition.
//!
//! A transaction that writes is executed here, under strict two-phase locking (`engine`'s `stage`).
//! Its writes become an entry, which the member takes through consensus together with the entries
//! of other transactions. The reply waits for the ticket of the entry (paper 5, section 3.2). A
//! transaction that only reads is executed on the applied state, and its reply waits until it is
//! certain that no other member led at that moment. A transaction that asks for the time always
//! becomes an entry, which contains the time that was returned: a later leader goes on from there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::codec::{encode_ops, write_replies};
use base::limits::Limits;
use base::participant::Sequenced;
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::{Abort, Change, Epoch, Op, Reply, Tid, Timestamp, TransactionId};
use engine::{Changes, Engine, LogFailure, RedoLog, Staged, TransactionError, Txn};

use crate::options::Grouping;
use crate::shared::MemberShared;
use crate::tickets::Submission;
use crate::wire::Payload;

/// The entry of a transaction has its operations if they are shorter by this many bytes than its changes.
/// Below that, executing them on every member would outweigh the saving.
const OPERATIONS_SAVE: usize = 4096;

/// Collects the writes of a transaction in the form that its entry has.
#[derive(Debug, Default)]
pub(crate) struct ChangeCollector {
    changes: Vec<u8>,
    /// The bytes of the transaction's operations, if its entry may have these in place of the changes.
    operations: Option<usize>,
    /// `true` if its entry is to have the operations; then there are no `changes`.
    takes_operations: bool,
}

impl ChangeCollector {
    /// Prepares for a transaction of these operations.
    fn begin(&mut self, ops: &[Op<'_>]) {
        self.takes_operations = false;
        self.operations = match *ops {
            [Op::Append { key, value } | Op::SetRange { key, value, .. }] => {
                Some(key.len() + value.len())
            }
            _ => None,
        };
    }

    /// Returns `true` if every member comes to these changes by the operations alone, and those are much
    /// shorter. A version of a read-atomic key has an id, which the leader draws.
    fn prefers_operations(&self, changes: Changes<'_>) -> bool {
        self.operations.is_some_and(|bytes| {
            changes.iter().all(|change| {
                matches!(
                    change,
                    Change::Put { key, value, origin: None, .. }
                        if key.len() + value.len() >= bytes + OPERATIONS_SAVE
                )
            })
        })
    }
}

impl RedoLog for ChangeCollector {
    fn ready(&mut self) -> Result<(), LogFailure> {
        self.changes.clear();
        Ok(())
    }

    fn append(&mut self, _: Tid, _: u64, changes: Changes<'_>) -> Result<(), LogFailure> {
        self.changes.clear();
        self.takes_operations = self.prefers_operations(changes);
        if self.takes_operations {
            return Ok(());
        }
        journal::write_changes(&mut self.changes, |writer| {
            changes.iter().for_each(|change| writer.change(&change));
        });
        Ok(())
    }

    fn passes_holds(&self) -> bool {
        // An entry of operations is executed by the leader, too, and not applied by what was staged.
        !self.takes_operations
    }
}

/// Runs transactions, one at a time. It can be sent to another thread, but not shared.
#[derive(Debug)]
pub struct Worker {
    inner: engine::Worker<ChangeCollector>,
    shared: Arc<MemberShared>,
    /// The client whose transactions are executed; 0 for no particular client.
    source: u64,
    /// The leadership in which the last call was executed.
    leadership: u64,
    observed: Observed,
    wake_up: WakeUp,
    /// The tickets of deletions that eviction has submitted, and the bytes that each frees.
    evictions: VecDeque<(Epoch, u64)>,
}

/// The wake-up of the member for what a worker has submitted.
#[derive(Debug, Default)]
struct WakeUp {
    /// The worker's owner announces what was submitted.
    gathers: bool,
    /// The member has not been woken for the last submission.
    is_due: bool,
}

impl WakeUp {
    fn note_submission(&mut self, shared: &MemberShared) {
        match self.gathers {
            true => self.is_due = true,
            false => shared.wake(),
        }
    }
}

mod eviction;
mod participant;
mod sessions;

/// The number of a transaction without a session: its outcome is not remembered.
const NO_SESSION: Sequenced = Sequenced {
    session: 0,
    sequence: 0,
};

/// Staged transactions are the youngest of all: they wait for no other transaction while they hold
/// locks, so that all others may wait for them.
const YOUNGEST: Timestamp = Timestamp(u64::MAX);

impl Worker {
    pub(crate) fn new(shared: &Arc<MemberShared>) -> Option<Worker> {
        Some(Worker {
            inner: shared.engine.worker(|_| ChangeCollector::default())?,
            shared: Arc::clone(shared),
            source: 0,
            leadership: 0,
            observed: Observed::default(),
            wake_up: WakeUp::default(),
            evictions: VecDeque::new(),
        })
    }

    /// Lets submissions gather from now on, so that more of them share an append and a round of messages: the
    /// member is woken by [`Worker::announce`].
    pub fn gather(&mut self) {
        self.wake_up.gathers = true;
    }

    /// Returns `true` if something was submitted since the last [`Worker::announce`].
    #[must_use]
    pub fn has_unannounced(&self) -> bool {
        self.wake_up.is_due
    }

    /// Wakes the member if something was submitted since the last call.
    pub fn announce(&mut self) {
        if std::mem::take(&mut self.wake_up.is_due) {
            self.shared.wake();
        }
    }

    /// Returns the engine of the partition.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Updates the partition's time. Call it before a batch of transactions.
    pub fn refresh(&mut self) {
        self.source = 0;
        self.shared.refresh();
    }

    /// Sets the client whose transactions come next, until [`Worker::refresh`]. Consecutive
    /// transactions of one client count once towards the size of a group. With 0, each of them
    /// counts.
    pub fn serve(&mut self, client: u64) {
        self.source = client;
    }

    /// Starts fetching the memory of these keys.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        self.inner.prefetch(keys);
    }

    /// Returns the engine's own worker, for scans of snapshots.
    pub fn inner(&mut self) -> &mut engine::Worker<impl RedoLog> {
        &mut self.inner
    }

    /// Executes the operations as one transaction. The replies that `see` gets may be shown once
    /// the ticket in [`Observed::epoch`] has resolved, and never if it is lost.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened: [`Abort::Elsewhere`] if another
    /// node leads, [`Abort::Held`] if the transaction is to be tried again when holds were given
    /// back. Anything else in it that comes from the store may be shown once [`Worker::observed`]
    /// has resolved.
    pub fn execute<T>(
        &mut self,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>], Observed) -> T,
    ) -> Result<T, Abort> {
        self.begin()?;
        if ops.iter().all(Op::is_read_only) {
            return self.read(ops, see);
        }
        let replies = self.write(ops, NO_SESSION)?;
        let replies: Vec<Reply<'_>> = replies.iter().map(OwnedReply::as_reply).collect();
        Ok(see(&replies, self.observed))
    }

    /// Executes operations that only read on the state that this member has applied, even if it
    /// does not lead, if that state is not older than `bound`.
    ///
    /// # Errors
    /// Returns [`Abort::Elsewhere`] if the state is older, or if its age is not known; otherwise
    /// the errors of the operations.
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
        let (time_ms, staged) = (done.observed().time_ms, done.staged_ticket());
        let loaded = !loads.is_multiple_of(2) || self.shared.loads.load(Ordering::SeqCst) != loads;
        if loaded || self.shared.staleness().is_none_or(|age| age > bound) {
            return Err(self.shared.elsewhere());
        }
        // A leader that is about to hand over still has staged versions.
        self.observed = observed(Epoch(staged), time_ms);
        Ok(see(done.replies(), self.observed))
    }

    /// Returns what the last call wrote or observed.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.observed
    }

    /// Returns `true` if entries are executed after consensus: then [`Worker::propose`] takes
    /// transactions that write, and [`Worker::execute`] does not.
    #[must_use]
    pub fn is_naive(&self) -> bool {
        self.shared.grouping == Grouping::Naive
    }

    /// Sends the operations through consensus, after which they are executed (plain Raft, the
    /// paper's baseline). Returns the number under which [`Worker::outcome`] has the outcome once
    /// the ticket in [`Worker::observed`] has resolved.
    ///
    /// # Errors
    /// Returns [`Abort::Elsewhere`], [`Abort::TooLarge`], or [`Abort::Unavailable`] if the partition
    /// is not [`Worker::is_naive`].
    pub fn propose(&mut self, ops: &[Op<'_>], sequenced: Sequenced) -> Result<u64, Abort> {
        if !self.is_naive() {
            let what = "this partition executes before consensus".to_owned();
            return Err(Abort::Unavailable { what });
        }
        let shared = Arc::clone(&self.shared);
        let _admitted = shared.tickets.admission();
        self.begin()?;
        check_proposal(shared.engine.limits(), ops)?;
        shared.refresh();
        let time_ms = shared.engine.time_ms();
        let mut payload = Vec::new();
        encode_execution(sequenced, ops, time_ms, &mut payload);
        Ok(self.submit_numbered(payload, time_ms))
    }

    /// Returns the outcome of a proposal, only once. Returns `None` if it is not known yet, or was
    /// fetched.
    pub fn outcome(&mut self, number: u64) -> Option<Result<Vec<OwnedReply>, Abort>> {
        self.shared.outcomes.take(number)
    }

    /// Submits what is executed after consensus. Returns the number under which its outcome is
    /// kept.
    fn submit_numbered(&mut self, payload: Vec<u8>, stamp_ms: u64) -> u64 {
        let number = self.shared.number();
        let submission = Submission {
            payload,
            release: None,
            client: 0,
            source: 0,
            number: Some(number),
        };
        match self.shared.tickets.submit(submission, u64::MAX, |_| ()) {
            Some(ticket) => self.observed = observed(Epoch(ticket), stamp_ms),
            None => unreachable!("no time is later"),
        }
        self.wake_up.note_submission(&self.shared);
        number
    }

    fn check_room(&self) -> Result<(), Abort> {
        if self.shared.tickets.is_full() {
            let what = "too much waits to be replicated".to_owned();
            return Err(Abort::Unavailable { what });
        }
        Ok(())
    }

    /// Returns the number of the leadership in which a transaction may be executed now.
    fn leads(&self) -> Result<u64, Abort> {
        let leadership = self.shared.tickets.leaderships();
        if self.shared.tickets.is_serving() {
            Ok(leadership)
        } else {
            Err(self.shared.elsewhere())
        }
    }

    /// Notes the leadership of this moment, to which all executions from now on belong.
    fn begin(&mut self) -> Result<(), Abort> {
        self.leadership = self.leads()?;
        Ok(())
    }

    /// Notes that what was read since [`Worker::begin`] may be shown when the ticket has resolved.
    ///
    /// # Errors
    /// Returns an error if that leadership has ended: the read is to be repeated elsewhere.
    fn note_read(&mut self, time_ms: u64) -> Result<(), Abort> {
        let staged = self.inner.staged_ticket();
        let ticket = self.read_ticket(time_ms, staged);
        let ticket = ticket.ok_or_else(|| self.shared.elsewhere())?;
        self.observed = observed(ticket, time_ms);
        Ok(())
    }

    /// Returns the ticket of a read of the current leadership ([`MemberShared::read_ticket`]), which has seen staged
    /// versions of entries with tickets up to `staged`.
    fn read_ticket(&mut self, time_ms: u64, staged: u64) -> Option<Epoch> {
        let ticket = self.shared.read_ticket(time_ms, self.leadership)?;
        if ticket > Epoch::ZERO {
            self.wake_up.note_submission(&self.shared);
        }
        Some(ticket.max(Epoch(staged)))
    }

    fn read<T>(
        &mut self,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>], Observed) -> T,
    ) -> Result<T, Abort> {
        let abort = match self.inner.execute(ops) {
            Ok(done) => {
                let (time_ms, staged) = (done.observed().time_ms, done.staged_ticket());
                let ticket = self.shared.read_ticket(time_ms, self.leadership);
                let ticket = ticket.ok_or_else(|| self.shared.elsewhere())?;
                if ticket > Epoch::ZERO {
                    self.wake_up.note_submission(&self.shared);
                }
                self.observed = observed(ticket.max(Epoch(staged)), time_ms);
                return Ok(see(done.replies(), self.observed));
            }
            Err(abort) => abort,
        };
        Err(self.note_abort(abort))
    }

    /// Notes what an abort depends on, because it may show the state of the store.
    fn note_abort(&mut self, abort: Abort) -> Abort {
        self.observed = Observed::default();
        if abort.shows() {
            let time_ms = self.inner.observed().time_ms;
            if let Err(elsewhere) = self.note_read(time_ms) {
                return elsewhere;
            }
        }
        abort
    }

    /// Runs `body` as one transaction, and runs it again whenever it meets a conflict. Its result may be shown as
    /// the replies of [`Worker::execute`].
    ///
    /// # Errors
    /// As [`Worker::execute`]; the error with which `body` gives up.
    pub fn transact<T>(
        &mut self,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<T, Abort> {
        self.check_executes_first()?;
        let shared = Arc::clone(&self.shared);
        let _admitted = shared.tickets.admission();
        self.begin()?;
        self.check_room()?;
        let execute = |worker: &mut engine::Worker<ChangeCollector>, holder| {
            worker.log_mut().begin(&[]);
            worker.stage_transaction(holder, &mut body)
        };
        let outcome = self.submit_staged(NO_SESSION, execute, |worker, _, time_ms| {
            let mut payload = Vec::new();
            worker.encode_changes(NO_SESSION, &[], time_ms, &mut payload);
            payload
        });
        outcome.map(|(value, _)| value)
    }

    fn check_executes_first(&self) -> Result<(), Abort> {
        if self.is_naive() {
            let what = "the node was started with --naive, and takes writes of Redis clients alone"
                .to_owned();
            return Err(Abort::Unavailable { what });
        }
        Ok(())
    }

    fn write(&mut self, ops: &[Op<'_>], sequenced: Sequenced) -> Result<Vec<OwnedReply>, Abort> {
        self.check_executes_first()?;
        let shared = Arc::clone(&self.shared);
        let admitted = shared.tickets.admission();
        self.begin()?;
        self.check_room()?;
        if sequenced != NO_SESSION
            && let Err(known) = shared.admit(sequenced.session, sequenced.sequence)
        {
            drop(admitted);
            return self.answer_again(known);
        }
        let outcome = self.stage(ops, sequenced);
        if sequenced != NO_SESSION && !matches!(outcome, Ok((_, true))) {
            // No entry was submitted: no transaction is in progress.
            shared.under_way.lock().remove(&sequenced.session);
        }
        outcome.map(|(replies, _)| replies)
    }

    /// Executes operations and submits their entry. The second result is `true` if there was anything to submit.
    fn stage(
        &mut self,
        ops: &[Op<'_>],
        sequenced: Sequenced,
    ) -> Result<(Vec<OwnedReply>, bool), Abort> {
        let execute = |worker: &mut engine::Worker<ChangeCollector>, holder| {
            worker.log_mut().begin(ops);
            worker.stage(ops, holder)
        };
        self.submit_staged(sequenced, execute, |worker, replies, time_ms| {
            let mut payload = Vec::new();
            if worker.inner.log().takes_operations {
                encode_execution(sequenced, ops, time_ms, &mut payload);
            } else {
                let mut result = Vec::new();
                if sequenced != NO_SESSION {
                    write_replies(replies, &mut result);
                }
                worker.encode_changes(sequenced, &result, time_ms, &mut payload);
            }
            payload
        })
    }

    /// Executes a transaction by `execute`, and submits the entry that `encode` makes of its result at its time.
    /// The second result is `true` if there was anything to submit.
    fn submit_staged<T>(
        &mut self,
        sequenced: Sequenced,
        mut execute: impl FnMut(
            &mut engine::Worker<ChangeCollector>,
            Holder,
        ) -> Result<Staged<T>, Abort>,
        encode: impl Fn(&Worker, &T, u64) -> Vec<u8>,
    ) -> Result<(T, bool), Abort> {
        loop {
            let id = TransactionId {
                timestamp: Timestamp(self.shared.number()),
                unique: 0,
            };
            let holder = Holder { id, age: YOUNGEST };
            self.shared.refresh();
            let staged = match execute(&mut self.inner, holder) {
                Ok(staged) => staged,
                Err(abort) => return Err(self.note_abort(abort)),
            };
            let time_ms = self.inner.observed().time_ms;
            // A client's transaction becomes an entry even if it wrote nothing, so that it is
            // remembered. So does one that asks for the time, which the next leader must know.
            if staged.writes == 0 && sequenced == NO_SESSION && !staged.returned_time {
                self.note_read(time_ms)?;
                return Ok((staged.value, false));
            }
            let payload = encode(self, &staged.value, time_ms);
            if self.submit(payload, sequenced, Some(id), time_ms) {
                return Ok((staged.value, true));
            }
            self.shared.engine.release(id);
        }
    }

    /// Encodes an entry of the changes that the engine's worker has collected.
    fn encode_changes(
        &self,
        sequenced: Sequenced,
        result: &[u8],
        time_ms: u64,
        payload: &mut Vec<u8>,
    ) {
        let changes = &self.inner.log().changes;
        payload.reserve(changes.len() + result.len() + 40);
        Payload::Transaction {
            stamp_ms: time_ms,
            client: sequenced.session,
            sequence: sequenced.sequence,
            result,
            changes,
        }
        .encode(payload);
    }

    /// Submits an entry of what was executed at `time_ms`. Returns `true` if it was taken: no deadline has
    /// passed since then.
    fn submit(
        &mut self,
        payload: Vec<u8>,
        sequenced: Sequenced,
        release: Option<TransactionId>,
        time_ms: u64,
    ) -> bool {
        let submission = Submission {
            payload,
            release,
            client: sequenced.session,
            // A client that numbers its transactions has one in progress at a time.
            source: if sequenced == NO_SESSION {
                self.source
            } else {
                0
            },
            number: None,
        };
        let engine = &self.shared.engine;
        let pass = |ticket| {
            release
                .into_iter()
                .for_each(|id| engine.pass_holds(id, ticket))
        };
        let Some(ticket) = self.shared.tickets.submit(submission, time_ms, pass) else {
            return false;
        };
        self.observed = observed(Epoch(ticket), time_ms);
        self.wake_up.note_submission(&self.shared);
        true
    }

    /// Submits a step of the attempt `id` of a transaction over several partitions, which `stage`
    /// executes.
    fn step<T>(
        &mut self,
        id: TransactionId,
        step: StagedStep,
        mut stage: impl FnMut(&mut engine::Worker<ChangeCollector>) -> Result<(T, bool), Abort>,
    ) -> Result<T, Abort> {
        let shared = Arc::clone(&self.shared);
        let _admitted = shared.tickets.admission();
        self.begin()?;
        loop {
            shared.refresh();
            self.inner.log_mut().begin(&[]);
            let (value, wrote) = match stage(&mut self.inner) {
                Ok(staged) => staged,
                Err(abort) => return Err(self.note_abort(abort)),
            };
            let time_ms = self.inner.observed().time_ms;
            if !wrote {
                self.note_read(time_ms)?;
                return Ok(value);
            }
            let release = (step == StagedStep::Decision).then_some(id);
            let mut payload = Vec::new();
            self.encode_changes(NO_SESSION, b"", time_ms, &mut payload);
            if self.submit(payload, NO_SESSION, release, time_ms) {
                return Ok(value);
            }
            self.inner.unstage(id);
            if step == StagedStep::Prepare {
                shared.engine.release(id);
            }
        }
    }
}

/// The step of a transaction over several partitions that is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StagedStep {
    /// Its keys stay held.
    Prepare,
    /// Its keys are given back.
    Decision,
    /// It holds no keys.
    Note,
}

/// Encodes an entry of operations, which every member executes.
fn encode_execution(sequenced: Sequenced, ops: &[Op<'_>], stamp_ms: u64, payload: &mut Vec<u8>) {
    let mut encoded = Vec::new();
    encode_ops(ops, &mut encoded);
    Payload::Execute {
        stamp_ms,
        client: sequenced.session,
        sequence: sequenced.sequence,
        ops: &encoded,
    }
    .encode(payload);
}

/// Refuses operations that write more than this node's limits, as far as they show it before they are
/// executed: members execute an entry under limits that are the same for all.
fn check_proposal(limits: &Limits, ops: &[Op<'_>]) -> Result<(), Abort> {
    if ops.len() > limits.transaction_ops {
        return Err(Abort::TooLarge { what: "operations" });
    }
    let written = ops.iter().map(|op| match op {
        Op::Put { value, .. } | Op::Append { value, .. } => value.len(),
        Op::SetRange { offset, value, .. } => offset.saturating_add(value.len()),
        _ => 0,
    });
    let sum = written.clone().fold(0, usize::saturating_add);
    if written.max() > Some(limits.value) || sum > limits.transaction_bytes {
        let what = "bytes written";
        return Err(Abort::TooLarge { what });
    }
    Ok(())
}

/// Returns what a reply depends on.
fn observed(epoch: Epoch, time_ms: u64) -> Observed {
    Observed {
        epoch,
        tid: Tid::ZERO,
        time_ms,
    }
}
