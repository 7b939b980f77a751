//! What a connection waits for before its next command is executed: a command that is not answered
//! yet. No other connection waits with it.
//!
//! Invariants of transactions that wait for keys ([`LockWait`]):
//! 1. Such a transaction waits outside any epoch. It has no effects and holds nothing; it executes
//!    again from its arguments. One that runs in slices may hold keys while it waits for a younger one.
//! 2. It tries again whenever holds have been given back since its last attempt. The count of
//!    releases is read before it executes, so that no release is missed.
//! 3. It is refused when its time is over.

use std::sync::Weak;
use std::time::Duration;

use base::Epoch;
use base::transaction::Holder;

use crate::background_job::BackgroundJob;
use crate::block_transaction::BlockTransaction;
use crate::command::DeferredAnswer;
use crate::command_call::CommandCall;
use crate::handover::ReplyHandover;
use crate::key_lookup::KeyLookup;
use crate::key_walk::KeyWalk;
use crate::long_transaction::LongTransaction;
use crate::runtime_context::RuntimeContext;
use crate::server_state::CountedWait;
use crate::sliced_write::SlicedWrite;

/// See the module's description.
pub(crate) enum PendingCommand {
    /// Runs in slices, one in each turn.
    KeyWalk(Box<KeyWalk>),
    /// Runs in slices, one in each turn.
    KeyLookup(Box<KeyLookup>),
    /// Runs in slices, one in each turn.
    Write(Box<SlicedWrite>),
    /// Runs in slices, one in each turn.
    Watch(Box<KeyWatch>),
    /// A script, which continues in the next turn.
    Slice(Box<LongTransaction>),
    /// Entries of the connection's snapshot, this many at most, in the next turn.
    SnapshotPage { most: usize },
    /// Runs on another thread, which wakes the runtime.
    Job(BackgroundJob),
    /// Runs again once another transaction has given back the keys that it needs.
    LockWait(LockWait),
    /// Runs on several nodes; the runtime learns its outcome.
    Coordinated(CoordinatedTransaction),
    /// Waits until it has gone through consensus.
    Proposed(ProposedTransaction),
    /// A password was wrong; the answer comes at this time, since the server's start.
    WrongPassword { until: Duration },
    /// Waits until a pause is over.
    Paused(PausedCommand),
    /// Waits for keys; the connection has the rest.
    Blocked,
    /// Is answered; clients that wait for the keys that it has changed have their turn.
    ReplyHandover(Weak<ReplyHandover>),
}

/// When a pending command needs work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    /// In the next turn.
    Now,
    /// When the runtime is woken, or at this time, if there is one.
    WhenWoken(Option<Duration>),
    /// When its outcome comes.
    AtOutcome,
    /// When the client has the turn of a key, or its time is over.
    AtTurn,
}

impl PendingCommand {
    /// Returns the memory that a command in several steps takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            PendingCommand::LockWait(wait) => wait.transaction.bytes(),
            PendingCommand::Coordinated(coordinated) => coordinated.transaction.bytes(),
            PendingCommand::Slice(transaction) => transaction.bytes(),
            PendingCommand::KeyLookup(lookup) => lookup.bytes(),
            PendingCommand::Write(write) => write.bytes(),
            PendingCommand::Watch(watch) => watch.call.size(),
            _ => 0,
        }
    }

    /// Returns when it needs work.
    pub(crate) fn readiness(&self, context: &RuntimeContext) -> Readiness {
        let (partition, now) = (&context.shared.partition, context.now);
        match self {
            PendingCommand::KeyWalk(_)
            | PendingCommand::KeyLookup(_)
            | PendingCommand::Write(_)
            | PendingCommand::Watch(_)
            | PendingCommand::Slice(_)
            | PendingCommand::SnapshotPage { .. } => Readiness::Now,
            PendingCommand::Job(job) if job.is_done() => Readiness::Now,
            PendingCommand::Job(_) => Readiness::WhenWoken(None),
            PendingCommand::LockWait(wait) if wait.is_due(partition.releases(), now) => {
                Readiness::Now
            }
            PendingCommand::LockWait(wait) => Readiness::WhenWoken(Some(wait.until)),
            PendingCommand::Coordinated(_) => Readiness::AtOutcome,
            PendingCommand::Proposed(proposed) if proposed.is_over(context) => Readiness::Now,
            PendingCommand::Proposed(_) => Readiness::WhenWoken(None),
            PendingCommand::WrongPassword { until } if *until <= now => Readiness::Now,
            PendingCommand::WrongPassword { until } => Readiness::WhenWoken(Some(*until)),
            PendingCommand::Paused(_) => match context.shared.pause.ends(now) {
                None => Readiness::Now,
                until => Readiness::WhenWoken(until),
            },
            PendingCommand::Blocked => Readiness::AtTurn,
            PendingCommand::ReplyHandover(handover) if handover.strong_count() == 0 => {
                Readiness::Now
            }
            PendingCommand::ReplyHandover(_) => Readiness::WhenWoken(None),
        }
    }
}

impl PendingTransaction {
    /// Returns the memory that it takes besides that of its arguments, in bytes.
    fn bytes(&self) -> usize {
        match self {
            PendingTransaction::Long(transaction) => transaction.bytes(),
            PendingTransaction::Write(write) => write.bytes(),
            PendingTransaction::Watch(watch) => watch.call.size(),
            PendingTransaction::Call(_) | PendingTransaction::Block(_) => 0,
        }
    }
}

impl From<DeferredAnswer> for PendingCommand {
    fn from(deferred: DeferredAnswer) -> PendingCommand {
        match deferred {
            DeferredAnswer::Job(job) => PendingCommand::Job(job),
            DeferredAnswer::KeyWalk(walk) => PendingCommand::KeyWalk(walk),
            DeferredAnswer::WrongPassword { until } => PendingCommand::WrongPassword { until },
        }
    }
}

/// A `WATCH` of very many keys.
pub(crate) struct KeyWatch {
    pub(crate) call: CommandCall,
    /// The first argument that is not watched yet.
    pub(crate) next: usize,
}

/// A transaction of a connection, kept until it can execute or has.
pub(crate) enum PendingTransaction {
    /// A command alone.
    Call(CommandCall),
    /// An `EXEC`.
    Block(Box<BlockTransaction>),
    /// A transaction in several steps.
    Long(Box<LongTransaction>),
    /// A command that runs in slices: it holds nothing, or is older than the holder.
    Write(Box<SlicedWrite>),
    /// A `WATCH` of very many keys.
    Watch(Box<KeyWatch>),
}

/// A transaction that waits for keys that a prepared one holds.
pub(crate) struct LockWait {
    pub(crate) transaction: PendingTransaction,
    /// The transaction that blocked it when it last executed.
    pub(crate) holder: Holder,
    /// The count of releases before it last executed; `None`: it is not known, so that the
    /// transaction tries again at once.
    releases: Option<u64>,
    /// When its time is over, since the server's start.
    pub(crate) until: Duration,
    _counted: CountedWait,
}

impl LockWait {
    /// Creates the wait of a transaction until `holder` has ended, or its time is over.
    pub(crate) fn new(
        context: &RuntimeContext,
        transaction: PendingTransaction,
        holder: Holder,
    ) -> LockWait {
        LockWait {
            transaction,
            holder,
            releases: None,
            until: context.now + context.shared.config.hold_timeout,
            _counted: CountedWait::new(&context.shared, |counters| &counters.lock_waits),
        }
    }

    /// Returns `true` if it should be tried again.
    fn is_due(&self, releases: u64, now: Duration) -> bool {
        self.releases != Some(releases) || now >= self.until
    }

    /// Records that the transaction has been tried again, and still waits: `releases` is the count
    /// before the attempt, `until` the end of the wait that went before.
    pub(crate) fn tried_again(&mut self, releases: u64, until: Duration) {
        self.releases = Some(releases);
        self.until = until;
    }
}

/// A transaction that runs on several nodes.
pub(crate) struct CoordinatedTransaction {
    pub(crate) transaction: PendingTransaction,
    /// Distinguishes its outcome from those of others.
    pub(crate) number: u64,
}

/// A transaction that is executed after consensus.
pub(crate) struct ProposedTransaction {
    pub(crate) transaction: PendingTransaction,
    /// The number under which the partition keeps its outcome.
    pub(crate) number: u64,
    /// The epoch at which the outcome is known.
    pub(crate) epoch: Epoch,
    /// The transaction's time.
    pub(crate) time_ms: u64,
}

impl ProposedTransaction {
    fn is_over(&self, context: &RuntimeContext) -> bool {
        context.durable >= self.epoch || context.shared.partition.is_lost(self.epoch)
    }
}

/// A command that waits for the end of a pause.
pub(crate) struct PausedCommand {
    /// As the client gave it: of a command with two words the first one.
    pub(crate) call: CommandCall,
    /// `None`: its client counts already.
    _counted: Option<CountedWait>,
}

impl PausedCommand {
    /// Keeps the command of a client that waits for keys until the pause ends.
    pub(crate) fn of_blocked(call: CommandCall) -> PausedCommand {
        PausedCommand {
            call,
            _counted: None,
        }
    }

    /// Keeps a command until the pause ends.
    pub(crate) fn new(context: &RuntimeContext, call: CommandCall) -> PausedCommand {
        PausedCommand {
            call,
            _counted: Some(CountedWait::new(&context.shared, |counters| {
                &counters.paused
            })),
        }
    }
}
