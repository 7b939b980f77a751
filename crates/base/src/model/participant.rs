//! The participant's side of two-phase commit: the part of a partition in transactions over several
//! of them.
//!
//! States of an attempt in a partition, all of them durable but the first:
//!
//! | state | means | ends by |
//! |---|---|---|
//! | unknown | the partition has never heard of it, or has forgotten it | `prepare`, `refuse` |
//! | prepared | its operations are executed, their keys held, their effects kept but not seen | `commit`, `abort` |
//! | committed | its effects are there; remembered for those who still ask | `forget` |
//! | refused | it will never be prepared here | its deadline |
//!
//! `abort` leads back to unknown.
//!
//! Invariants:
//! 1. No call blocks. An answer depends on an epoch, which must be durable before another node or a
//!    client learns of the answer.
//! 2. Between `prepare` and `commit` or `abort` no transaction reads what a serializable attempt
//!    will write, and none writes what it has read: absences and ranges included. What a read-atomic
//!    attempt will write is read only by transactions that know from another partition that it has
//!    committed.
//! 3. A prepared attempt is prepared again after a restart, with what it holds.
//! 4. The ids of a read-atomic key's versions only grow: a read-atomic attempt that commits after a
//!    newer one leaves the key as it is.
//!
//! A partition that several nodes hold is led by one of them at a time. Where it is not led, nothing
//! of the above happens: every call that returns a [`Result`] returns [`Abort::Elsewhere`]. An epoch
//! there may be *lost*, see [`DurableEpochs::is_lost`]; a prepared attempt is prepared at the next
//! leader, too.

use super::ids::{Epoch, NodeId, TransactionId};
use super::reply::OwnedReply;
use super::transaction::{Abort, Holder, Observed, Op, Reply};
use super::versions::{Ask, Found};

/// The isolation of a transaction over several partitions from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Strict two-phase locking: the keys of a prepared attempt are held until it is decided.
    #[default]
    Serializable,
    /// Readers see all or nothing of the transaction's writes (paper 1, section 2.2). Nothing is
    /// held: a prepared write is a version that is not yet the newest, and readers that know of it
    /// can ask for it ([`TransactionExecutor::read_versions`]). The operations only write, and their keys
    /// are read atomic.
    ReadAtomic,
}

/// An attempt that is to be prepared.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The attempt, and when the transaction began.
    pub holder: Holder,
    /// This partition's operations.
    pub ops: &'a [Op<'a>],
    /// The keys that the transaction writes, in all partitions; see [`crate::change::siblings`].
    pub siblings: &'a [u8],
    /// Bytes that the coordinator gets back with [`State`].
    pub note: &'a [u8],
    /// The isolation, which determines what is held until the attempt is decided, and how it then
    /// takes effect.
    pub isolation: Isolation,
}

/// A partition's knowledge of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Unknown,
    /// It is prepared; holds the coordinator's note.
    Prepared(Vec<u8>),
    /// It has committed and is not forgotten; holds the coordinator's note.
    Committed(Vec<u8>),
    /// It must not be prepared.
    Refused,
}

/// The name of a client's transaction of one partition that can be sent again: its session, and its
/// number in that session, from 1 on. It is executed once, however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequenced {
    /// The session's id, from [`TransactionExecutor::opened`]; not 0.
    pub session: u64,
    /// The number; each is greater than the one before.
    pub sequence: u64,
}

/// A partition as coordinators see it: see the module's description. Implemented by every type that
/// implements the four traits.
pub trait Participant: TransactionExecutor + TwoPhaseCommit + DurableEpochs + Leadership {}

impl<T> Participant for T where
    T: TransactionExecutor + TwoPhaseCommit + DurableEpochs + Leadership + ?Sized
{
}

/// Executes transactions of this partition alone.
pub trait TransactionExecutor {
    /// Executes operations as a transaction of this partition alone. `see` gets the replies.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened; the abort depends on
    /// [`TransactionExecutor::observed`].
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort>;

    /// Executes as [`TransactionExecutor::execute`], but once for each number: the replies are those of the
    /// first time. Partitions of one node have no sessions.
    ///
    /// # Errors
    /// As there; and [`Abort::Forgotten`], which depends on [`TransactionExecutor::observed`];
    /// [`Abort::Unknown`] while a transaction of the session is under way, and if a later one was
    /// executed.
    fn execute_once(&mut self, _: &[Op<'_>], _: Sequenced) -> Result<Vec<OwnedReply>, Abort> {
        Err(no_sessions())
    }

    /// Opens a session. [`TransactionExecutor::opened`] returns its id for the number that is returned
    /// here, once [`TransactionExecutor::observed`] is durable.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened.
    fn open_session(&mut self) -> Result<u64, Abort> {
        Err(no_sessions())
    }

    /// Returns the id of a session that was to be opened, once; `None` if it is not known yet.
    fn opened(&self, _: u64) -> Option<Result<u64, Abort>> {
        None
    }

    /// Looks at versions of read-atomic keys, each by itself; `see` gets an answer for each, in the
    /// order of the questions. Never waits for another transaction, and never aborts where the
    /// partition is led.
    ///
    /// # Errors
    /// As [`TransactionExecutor::execute`].
    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort>;

    /// Returns what the last call wrote or observed: its answer may be sent once this is durable.
    fn observed(&self) -> Observed;

    /// Returns this partition's time in milliseconds since the Unix epoch. It never decreases, also
    /// not over a restart.
    fn time_ms(&self) -> u64;

    /// Returns how often holds have been given back. A transaction that waits for one looks again
    /// when this number changes.
    fn releases(&self) -> u64;

    /// Returns the newest epoch in which nothing happens any more: versions with a TID of this
    /// epoch, or of an earlier one, existed before this call.
    fn finished(&self) -> Epoch;
}

/// The states of attempts of transactions over several partitions; see the module's description.
pub trait TwoPhaseCommit {
    /// Executes the operations, holds their keys, and stores their writes. The attempt counts as
    /// prepared once [`TransactionExecutor::observed`] is durable.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why it is not prepared: [`Abort::Refused`] if its state is
    /// not unknown, [`Abort::Held`], [`Abort::Overtaken`], or the error of an operation.
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort>;

    /// Makes a prepared attempt's effects current and gives its holds back; it is committed then.
    /// Does nothing if the attempt is not prepared. Returns the state before, and the epoch that
    /// must be durable before the result is sent.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed.
    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort>;

    /// Undoes a prepared attempt and gives its holds back; as [`TwoPhaseCommit::commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort>;

    /// Makes sure that an unknown attempt will not be prepared before this partition's time is
    /// `until_ms`; as [`TwoPhaseCommit::commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort>;

    /// Forgets a committed attempt: no node will ask for it any more.
    ///
    /// # Errors
    /// As above.
    fn forget(&mut self, id: TransactionId) -> Result<(), Abort>;

    /// Returns the state of an attempt, and the epoch on which that depends. Where the partition is
    /// not led, both mean nothing.
    fn state(&mut self, id: TransactionId) -> (State, Epoch);

    /// Returns the attempts that are prepared or committed, in no particular order; none where the
    /// partition is not led.
    fn undecided(&mut self) -> Vec<(TransactionId, State)>;
}

/// Tells which epochs are durable, so that answers that depend on them may be sent.
pub trait DurableEpochs {
    /// Returns the reason why no later epoch becomes durable, for ever or for now.
    fn failed(&self) -> Option<String>;

    /// Returns the newest epoch up to which everything is durable.
    fn durable(&self) -> Epoch;

    /// Returns `true` if it will never be known that `epoch` is durable: what depends on it may
    /// have happened or not, and the client must get an answer that says so. A lost epoch stays
    /// lost when [`DurableEpochs::durable`] passes it, because later epochs become durable.
    fn is_lost(&self, epoch: Epoch) -> bool {
        epoch > self.durable() && self.failed().is_some()
    }
}

/// Tells which node leads the partition. A partition of one node is always led there.
pub trait Leadership {
    /// Succeeds if this node leads the partition, so that the calls above do what they say.
    ///
    /// # Errors
    /// Returns the node that leads it instead, as far as is known.
    fn leads(&self) -> Result<(), Option<NodeId>> {
        Ok(())
    }

    /// Returns the number of the leadership that began last here: another one each time.
    fn leadership(&self) -> u64 {
        0
    }
}

fn no_sessions() -> Abort {
    Abort::Unavailable {
        what: "a partition of one node keeps no sessions".to_owned(),
    }
}
