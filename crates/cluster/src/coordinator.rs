//! A node's work for its callers: the [`Coordinator`] executes transactions over any partitions.
//!
//! | the operations are | how they are executed | module |
//! |---|---|---|
//! | of one partition | there, as a transaction of its own | |
//! | of several, and none writes | read everywhere, then checked for changes | `validated_read` |
//! | of several | two-phase commit | `two_phase_commit` |
//! | on read-atomic keys, and they read | read in rounds, also if all are of one partition | `read_atomic` |
//! | of several, and they write such keys | two-phase commit that holds nothing; the caller is answered when all have committed | `two_phase_commit` |
//!
//! Each of these modules takes a [`CoordinatedTransaction`] through the stages of an attempt: an answer
//! goes in, requests and an [`AttemptProgress`] come out. The coordinator keeps the transactions, and
//! decides about further attempts. What has committed goes through the [`CommitPhase`].
//!
//! Guards (`Op::Guard`) have no partition of their own: each participant executes them. A transaction of
//! several partitions has no time of its own, so `Op::Now` is refused in it.
//!
//! Invariants:
//! 1. A caller is answered once.
//! 2. The answer "nothing has happened" is given only when that is durable: after a vote against, or the
//!    home's consent.
//! 3. Another attempt begins only when the last one cannot commit any more.

mod callers;
mod commit_phase;
mod read_atomic;
mod transaction;
mod two_phase_commit;
mod validated_read;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use base::participant::Participant;
use base::transaction::check_guards;
use base::{Abort, Op, PartitionId, Timestamp, TransactionId};

use crate::codec;
use crate::context::NodeContext;
use crate::message::{Answer, Request};
use crate::ramp::{self, Algorithm, ReadAtomicRead, ReadAtomicRefusal, TransactionClass, classify};
use crate::requester::{AttemptKey, AttemptStep, LostRequest, Numbered};
use crate::router::PartitionRouter;

use callers::CallerOutcomes;
use commit_phase::AwaitingCaller;
use transaction::{AttemptProgress, CoordinatedTransaction, ExecutionMode, TransactionStage};

pub use callers::Finished;
pub(crate) use callers::TransactionCaller;
pub(crate) use commit_phase::CommitPhase;

/// What a caller wants besides its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestedMode {
    Default,
    /// Keys that are only read are held, too.
    HoldReads,
    /// The operations must read or write read-atomic keys, by this algorithm.
    ReadAtomic(Algorithm),
}

/// Pauses between attempts double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(300);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The least pause while no node is known to lead a partition.
const LEADERLESS_PAUSE: Duration = Duration::from_millis(5);
/// Number of attempts that follow each other at once when a timestamp was overtaken.
const HASTY_ATTEMPTS: u32 = 4;
/// How far a timestamp goes beyond one that has overtaken it, in points of the clock, for each time that
/// it was overtaken; and how often that grows. It stays far below a millisecond, so that clocks that
/// overtake each other do not leave the time of day behind.
const LEAP: u64 = 64;
const LEAPS: u64 = 64;
/// A validated read that fails this often takes holds instead.
const READ_ATTEMPTS: u32 = 8;

/// A transaction under way, and its caller.
struct CallerTransaction<C> {
    caller: TransactionCaller<C>,
    transaction: CoordinatedTransaction,
}

/// The coordinator's side of the protocol; see the module's description.
pub(crate) struct Coordinator<C> {
    transactions: Numbered<CallerTransaction<C>>,
    next_number: u64,
    /// Transactions that pause before another attempt, by the time at which it begins.
    paused: BinaryHeap<Reverse<(Duration, u64)>>,
    random: fastrand::Rng,
    /// How transactions of read-atomic keys are executed if their caller does not say.
    algorithm: Algorithm,
    commit_phase: CommitPhase<C>,
    outcomes: CallerOutcomes<C>,
}

impl<C> Coordinator<C> {
    pub(crate) fn new(algorithm: Algorithm, random_seed: u64) -> Coordinator<C> {
        Coordinator {
            transactions: Numbered::default(),
            next_number: 0,
            paused: BinaryHeap::new(),
            random: fastrand::Rng::with_seed(random_seed),
            algorithm,
            commit_phase: CommitPhase::new(),
            outcomes: CallerOutcomes::new(),
        }
    }

    /// Begins a transaction.
    pub(crate) fn start<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        ops: &[Op<'_>],
        requested: RequestedMode,
        caller: TransactionCaller<C>,
    ) {
        let mut encoded = Vec::new();
        let (mode, partitions) = match self.plan(router.context, ops, requested) {
            Ok(plan) => plan,
            Err(abort) => return self.outcomes.finish(router, caller, Err(abort)),
        };
        if partitions.is_empty() {
            return self.outcomes.finish(router, caller, Ok(Vec::new()));
        }
        if !matches!(mode, ExecutionMode::ReadAtomicRead(_)) {
            codec::encode_ops(ops, &mut encoded);
        }
        let number = self.next_number;
        self.next_number += 1;
        let context = &mut *router.context;
        let transaction = CoordinatedTransaction {
            number,
            ops: encoded,
            partitions,
            read_only: ops.iter().all(Op::is_read_only),
            mode,
            begun: context.now,
            age: context.clock.next(router.partition.time_ms()),
            attempt: 0,
            attempt_begun: context.now,
            stage: TransactionStage::Paused,
            parts: Vec::new(),
            missing: 0,
            local_part_was_first: false,
        };
        let caller_transaction = self
            .transactions
            .entry(number)
            .insert_entry(CallerTransaction {
                caller,
                transaction,
            });
        attempt(router, &mut caller_transaction.into_mut().transaction);
    }

    /// Returns how operations are executed, and the partition of each, as in
    /// [`CoordinatedTransaction::partitions`].
    fn plan(
        &self,
        context: &NodeContext,
        ops: &[Op<'_>],
        requested: RequestedMode,
    ) -> Result<(ExecutionMode, Vec<Option<PartitionId>>), Abort> {
        let mode = self.mode(context, ops, requested)?;
        let partitions = if let ExecutionMode::ReadAtomicRead(reading) = &mode {
            let keys = reading.keys();
            keys.map(|key| Some(context.topology.partition_of(key)))
                .collect()
        } else {
            partitions_of(context, ops)?
        };
        Ok((mode, partitions))
    }

    /// Returns how operations are executed. Refusals do not depend on where keys lie.
    fn mode(
        &self,
        context: &NodeContext,
        ops: &[Op<'_>],
        requested: RequestedMode,
    ) -> Result<ExecutionMode, ReadAtomicRefusal> {
        let declared = context.topology.read_atomic();
        let reading = |algorithm| {
            let reading = ReadAtomicRead::of_ops(algorithm, ops, context.now);
            ExecutionMode::ReadAtomicRead(Box::new(reading))
        };
        let way = classify(declared, ops)?;
        Ok(match (way, requested) {
            (TransactionClass::Read | TransactionClass::Write, RequestedMode::HoldReads) => {
                return Err(ReadAtomicRefusal::Holds);
            }
            (TransactionClass::Ordinary, RequestedMode::Default) => ExecutionMode::Serializable,
            (TransactionClass::Ordinary, RequestedMode::HoldReads) => ExecutionMode::HoldingReads,
            (TransactionClass::Read, RequestedMode::Default) => reading(self.algorithm),
            (TransactionClass::Write, RequestedMode::Default) => {
                ExecutionMode::ReadAtomicWrite(self.algorithm)
            }
            (way, RequestedMode::ReadAtomic(algorithm)) => {
                ramp::check_one_kind(declared, ops)?;
                match way {
                    TransactionClass::Read => reading(algorithm),
                    TransactionClass::Write => ExecutionMode::ReadAtomicWrite(algorithm),
                    // A single key.
                    TransactionClass::Ordinary => ExecutionMode::Serializable,
                }
            }
        })
    }

    /// Handles the answer to a request of an attempt.
    pub(crate) fn on_answer<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        key: AttemptKey,
        step: AttemptStep,
        answer: Result<Answer, LostRequest>,
    ) {
        let caller_transaction = self.transactions.get_mut(&key.transaction);
        let Some(transaction) =
            caller_transaction.map(|caller_transaction| &mut caller_transaction.transaction)
        else {
            return;
        };
        if transaction.attempt != key.attempt {
            return;
        }
        let progress = match step {
            AttemptStep::Execute => on_executed(router.context, transaction, answer),
            AttemptStep::Read { part } => {
                validated_read::on_read(router, transaction, part, answer)
            }
            AttemptStep::Validate { part } => {
                validated_read::on_validated(router, transaction, part, answer)
            }
            AttemptStep::Prepare { part } => {
                two_phase_commit::on_vote(router, transaction, part, answer)
            }
            AttemptStep::Abandon => two_phase_commit::on_abandoned(router, transaction, answer),
            AttemptStep::Versions { round, part } => {
                read_atomic::on_versions(router, transaction, (round, part), answer)
            }
        };
        self.follow(router, key.transaction, progress);
    }

    /// Handles the answer of a participant that was asked to commit.
    pub(crate) fn on_acknowledged<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        commit: (TransactionId, PartitionId),
        answer: &Result<Answer, LostRequest>,
    ) {
        self.commit_phase
            .on_acknowledged(router, &mut self.outcomes, commit, answer);
    }

    /// Does what follows from an answer to an attempt.
    fn follow<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        number: u64,
        progress: AttemptProgress,
    ) {
        match progress {
            AttemptProgress::Pending => {}
            AttemptProgress::Failed(abort) => self.again_or_end(router, number, abort),
            AttemptProgress::Finished(outcome) => {
                let caller = self.remove(number).caller;
                self.outcomes.finish(router, caller, outcome);
            }
            AttemptProgress::Committed(id) => self.commit(router, number, id),
        }
    }

    /// Carries out steps 3 and 4: every part is prepared, durably.
    fn commit<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        number: u64,
        id: TransactionId,
    ) {
        let CallerTransaction {
            caller,
            mut transaction,
        } = self.remove(number);
        let participants: Vec<_> = transaction.parts.iter().map(|part| part.of).collect();
        let replies = transaction.take_replies();
        let awaiting = if let ExecutionMode::ReadAtomicWrite(_) = transaction.mode {
            let until = transaction.begun + router.context.timeouts.transaction;
            Some(AwaitingCaller {
                caller,
                replies,
                until,
            })
        } else {
            self.outcomes.finish(router, caller, Ok(replies));
            None
        };
        self.commit_phase.begin(router, id, participants, awaiting);
    }

    fn remove(&mut self, number: u64) -> CallerTransaction<C> {
        let caller_transaction = self.transactions.remove(&number);
        caller_transaction.expect("the transaction is under way")
    }

    /// Ends an attempt without effect: tries again if that may help, or answers the caller.
    fn again_or_end<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        number: u64,
        abort: Abort,
    ) {
        let caller_transaction = self.transactions.get_mut(&number);
        let transaction = &mut caller_transaction.expect("it is under way").transaction;
        let (abort, again) = may_try_again(router, transaction, abort);
        if !again {
            let caller = self.remove(number).caller;
            return self.outcomes.finish(router, caller, Err(abort));
        }
        transaction.stage = TransactionStage::Paused;
        let least = match abort {
            Abort::Elsewhere { leader: None } => LEADERLESS_PAUSE,
            _ => Duration::ZERO,
        };
        let longest = LONGEST_PAUSE.min(FIRST_PAUSE * (1 << (transaction.attempt - 1).min(10)));
        let pause = match abort {
            // No other transaction has to end first.
            Abort::Overtaken { .. } if transaction.attempt <= HASTY_ATTEMPTS => Duration::ZERO,
            _ => longest.mul_f64(0.5 + self.random.f64() / 2.0),
        };
        self.paused
            .push(Reverse((router.context.now + pause.max(least), number)));
    }

    /// Begins the attempts whose pause is over.
    pub(crate) fn begin_due_attempts<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
    ) {
        while let Some(&Reverse((at, number))) = self.paused.peek()
            && at <= router.context.now
        {
            self.paused.pop();
            if let Some(caller_transaction) = self.transactions.get_mut(&number)
                && matches!(
                    caller_transaction.transaction.stage,
                    TransactionStage::Paused
                )
            {
                attempt(router, &mut caller_transaction.transaction);
            }
        }
    }

    /// Gives up attempts that have waited for too long, and repeats requests that were not answered.
    pub(crate) fn sweep<P: Participant + ?Sized>(&mut self, router: &mut PartitionRouter<'_, P>) {
        let now = router.context.now;
        // The node that was asked may itself wait for holds.
        let longest = router.context.timeouts.answer + router.context.timeouts.hold;
        let is_late = |transaction: &CoordinatedTransaction| {
            let is_paused = matches!(transaction.stage, TransactionStage::Paused);
            !is_paused && transaction.attempt_begun + longest <= now
        };
        for number in self.numbers(is_late) {
            let transaction = &mut self.get_mut(number).transaction;
            let progress = give_up(router, transaction);
            self.follow(router, number, progress);
        }
        let is_asked = |transaction: &CoordinatedTransaction| {
            two_phase_commit::is_to_be_asked_again(transaction, now)
        };
        for number in self.numbers(is_asked) {
            let transaction = &mut self.get_mut(number).transaction;
            let progress = two_phase_commit::sweep_abandoning(router, transaction);
            self.follow(router, number, progress);
        }
        self.commit_phase.sweep(router, &mut self.outcomes);
    }

    fn get_mut(&mut self, number: u64) -> &mut CallerTransaction<C> {
        let caller_transaction = self.transactions.get_mut(&number);
        caller_transaction.expect("the transaction is under way")
    }

    /// Returns the transactions of which this is true, in the order of their numbers.
    fn numbers(&self, is_one: impl Fn(&CoordinatedTransaction) -> bool) -> Vec<u64> {
        let all = self.transactions.iter();
        let all = all.filter(|(_, caller_transaction)| is_one(&caller_transaction.transaction));
        let mut numbers: Vec<u64> = all.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the committed attempts whose participants have not all acknowledged.
    pub(crate) fn commit_phase(&mut self) -> &mut CommitPhase<C> {
        &mut self.commit_phase
    }

    /// Takes the outcomes of this process's callers.
    pub(crate) fn finished(&mut self) -> impl Iterator<Item = Finished<C>> + '_ {
        self.outcomes.drain()
    }

    /// Returns how many callers wait.
    pub(crate) fn under_way(&self) -> usize {
        self.transactions.len() + self.commit_phase.awaited()
    }

    /// Returns `true` if no transaction is under way, and no attempt whose participants have to be asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.transactions.is_empty() && self.commit_phase.is_empty()
    }

    /// Returns `true` if nothing is under way that would be lost with this process.
    pub(crate) fn is_settled(&self) -> bool {
        self.transactions.is_empty() && self.commit_phase.are_all_resolved()
    }

    /// Returns when the next attempt begins.
    pub(crate) fn next_attempt_at(&self) -> Option<Duration> {
        self.paused.peek().map(|Reverse((at, _))| *at)
    }
}

/// Begins the next attempt.
fn attempt<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
) {
    let now = router.context.now;
    transaction.attempt += 1;
    transaction.attempt_begun = now;
    router.context.counters.retried += u64::from(transaction.attempt > 1);
    if let ExecutionMode::ReadAtomicRead(reading) = &mut transaction.mode {
        if transaction.attempt > 1 {
            reading.begin(now);
        }
        return read_atomic::send_round(router, transaction);
    }
    transaction.divide();
    let bytes = std::mem::take(&mut transaction.ops);
    let ops = codec::decode_ops(&bytes).expect("it was encoded here");
    let ranges = |op: &Op<'_>| matches!(op, Op::Scan { .. });
    if let [part] = &transaction.parts[..] {
        let of = part.of;
        transaction.stage = TransactionStage::Executing;
        let purpose = transaction.purpose(AttemptStep::Execute);
        router.request(of, Request::Execute { ops }, purpose);
    } else if matches!(transaction.mode, ExecutionMode::Serializable)
        && transaction.read_only
        && transaction.attempt <= READ_ATTEMPTS
        && !ops.iter().any(ranges)
    {
        validated_read::begin(router, transaction, &ops);
    } else {
        two_phase_commit::begin(router, transaction, &ops);
    }
    transaction.ops = bytes;
}

/// Handles the answer of the partition that executed the whole transaction.
fn on_executed(
    context: &NodeContext,
    transaction: &CoordinatedTransaction,
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    if !matches!(transaction.stage, TransactionStage::Executing) {
        return AttemptProgress::Pending;
    }
    let safe = transaction.read_only;
    let of = transaction.parts[0].of;
    match answer {
        Ok(Answer::Replies(replies)) if replies.len() == transaction.partitions.len() => {
            AttemptProgress::Finished(Ok(replies))
        }
        Ok(Answer::Aborted(Abort::Unknown { what }) | Answer::Failed(what)) if safe => {
            AttemptProgress::Failed(context.unanswered(of, what))
        }
        Ok(Answer::Aborted(abort)) => AttemptProgress::Failed(abort),
        Err(LostRequest { sent, why }) if !sent || safe => {
            AttemptProgress::Failed(context.unanswered(of, why))
        }
        Err(LostRequest { why, .. }) => AttemptProgress::unknown(why),
        Ok(Answer::Failed(what)) => AttemptProgress::unknown(what),
        Ok(other) => AttemptProgress::unknown(format!("a node answered {other:?}")),
    }
}

/// Gives up an attempt that has waited for too long.
fn give_up<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
) -> AttemptProgress {
    let leaders = &router.context.leaders;
    let parts = transaction.parts.iter();
    for part in parts.filter(|part| part.replies.is_none()) {
        if let Some(silent) = leaders.leader(part.of) {
            leaders.doubt(part.of, silent);
        }
    }
    let what = "a node does not answer in time".to_owned();
    match transaction.stage {
        TransactionStage::Preparing { .. } => {
            two_phase_commit::abandon(router, transaction, Abort::Unavailable { what });
            AttemptProgress::Pending
        }
        TransactionStage::Executing if !transaction.read_only => AttemptProgress::unknown(what),
        TransactionStage::Executing
        | TransactionStage::ReadingParts
        | TransactionStage::Validating
        | TransactionStage::ReadingVersions => AttemptProgress::Failed(Abort::Unavailable { what }),
        TransactionStage::Abandoning { .. } | TransactionStage::Paused => AttemptProgress::Pending,
    }
}

/// Decides if another attempt may help. Returns the abort for the caller if not.
fn may_try_again<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &CoordinatedTransaction,
    abort: Abort,
) -> (Abort, bool) {
    let context = &mut *router.context;
    let time = context.now.saturating_sub(transaction.begun);
    let again = match &abort {
        Abort::Overtaken { newest } => {
            // A little more each time, so that a clock which is behind catches up with one that goes on.
            let leaps = u64::from(transaction.attempt - 1).min(LEAPS);
            let beyond = Timestamp(newest.0 + LEAP * leaps);
            let time_ms = router.partition.time_ms();
            if let Err(error) = context.clock.witness(beyond, time_ms) {
                let what = error.to_string();
                return (Abort::Unavailable { what }, false);
            }
            true
        }
        Abort::Held { .. } => time < context.timeouts.hold,
        Abort::Refused | Abort::Conflict { .. } => true,
        Abort::Unavailable { .. } => time < context.timeouts.unreachable,
        Abort::Elsewhere { .. } => time < context.timeouts.answer,
        _ => false,
    };
    (abort, again && time < context.timeouts.transaction)
}

/// Returns the partition of each operation, as in [`CoordinatedTransaction::partitions`].
fn partitions_of(context: &NodeContext, ops: &[Op<'_>]) -> Result<Vec<Option<PartitionId>>, Abort> {
    check_guards(ops)?;
    let along = !ops.iter().all(Op::goes_along);
    let mut partitions = Vec::with_capacity(ops.len());
    for op in ops {
        partitions.push(match op.key() {
            Some(key) => Some(context.topology.partition_of(key)),
            None if along && op.goes_along() => None,
            None => Some(context.local_partition.ok_or_else(no_partition)?),
        });
    }
    let mut named = partitions.iter().flatten();
    let first = named.next();
    if ops.contains(&Op::Now) && named.any(|of| Some(of) != first) {
        let what = "each partition has a time of its own: ask for it in a transaction of one";
        let what = what.to_owned();
        return Err(Abort::Unsupported { what });
    }
    Ok(partitions)
}

fn no_partition() -> Abort {
    let what = "a node without a partition was given an operation that names no key";
    let what = what.to_owned();
    Abort::Unavailable { what }
}
