//! A node's work for its callers: the [`Coordinator`] executes transactions over any partitions.
//!
//! | the operations are | how they are executed | module |
//! |---|---|---|
//! | of one partition | there, as a transaction of its own | `single_partition` |
//! | of several, and none writes | read everywhere, then checked for changes | `validated_read` |
//! | of several | two-phase commit | `two_phase_commit` |
//! | on read-atomic keys, and they read | read in rounds, also if all are of one partition | `read_atomic` |
//! | of several, and they write such keys | two-phase commit that holds nothing; the caller is answered when all have committed | `two_phase_commit` |
//!
//! Each of these modules takes a [`CoordinatedTransaction`] through the stages of an attempt: an answer
//! goes in, requests and an [`AttemptProgress`] come out. The coordinator keeps the transactions, and
//! decides about further attempts (`plan`, `retry_policy`). What has committed goes through the
//! [`CommitPhase`].
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
mod plan;
mod read_atomic;
mod retry_policy;
mod single_partition;
mod transaction;
mod two_phase_commit;
mod validated_read;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use base::participant::Participant;
use base::{Abort, Op, PartitionId, TransactionId};

use crate::codec;
use crate::message::Answer;
use crate::ramp::Algorithm;
use crate::requester::{AttemptKey, AttemptStep, LostRequest, Numbered};
use crate::router::PartitionRouter;

use callers::CallerOutcomes;
use commit_phase::AwaitingCaller;
use transaction::{AttemptProgress, CoordinatedTransaction, ExecutionMode, TransactionStage};

pub use callers::Finished;
pub(crate) use callers::TransactionCaller;
pub(crate) use commit_phase::CommitPhase;
pub(crate) use plan::RequestedMode;

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
        let (mode, partitions) = match plan::plan(router.context, self.algorithm, ops, requested) {
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
            AttemptStep::Execute => {
                single_partition::on_executed(router.context, transaction, answer)
            }
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
        let (abort, again) = retry_policy::may_try_again(router, transaction, abort);
        if !again {
            let caller = self.remove(number).caller;
            return self.outcomes.finish(router, caller, Err(abort));
        }
        transaction.stage = TransactionStage::Paused;
        let pause = retry_policy::pause(transaction, &abort, &mut self.random);
        self.paused
            .push(Reverse((router.context.now + pause, number)));
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
    if transaction.parts.len() == 1 {
        single_partition::begin(router, transaction, ops);
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
