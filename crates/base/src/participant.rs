//! The participant's side of two-phase commit: what a partition does for transactions over
//! several of them.
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
//! 1. Nothing here blocks. What an answer depends on is an epoch; it must be durable before
//!    anybody else learns of the answer.
//! 2. Between `prepare` and `commit` or `abort` nobody reads what a serializable attempt will write,
//!    and nobody writes what it has read: absences and ranges included. What a read-atomic one will
//!    write is read only by those who know from another partition that it has committed.
//! 3. A prepared attempt is prepared again after a restart, with what it holds.
//! 4. The ids of a read-atomic key's versions only grow: a read-atomic attempt that commits after a
//!    newer one leaves the key as it is.
//!
//! A partition that several nodes hold is led by one of them at a time. Where it is not led, nothing
//! of the above happens: whatever returns a [`Result`] says [`Abort::Elsewhere`]. What its epochs
//! are numbers of may then be *lost*, see [`Participant::is_lost`]; a prepared attempt is prepared
//! at the next leader, too.

use crate::ids::{Epoch, NodeId, TransactionId};
use crate::partition::OwnedReply;
use crate::transaction::{Abort, Holder, Observed, Op, Reply};
use crate::versions::{Ask, Found};

/// How a transaction over several partitions is kept apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Strict two-phase locking: what is prepared is held until it is decided.
    #[default]
    Serializable,
    /// Of what the transaction writes, readers see all or nothing (paper 1, section 2.2). Nothing is
    /// held: what is prepared is a version that is not yet the newest, and readers who know of it
    /// can ask for it ([`Participant::read_versions`]). Its operations only write, and their keys
    /// are read atomic.
    ReadAtomic,
}

/// What is to be prepared.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The attempt, and when the transaction began.
    pub holder: Holder,
    /// This partition's operations.
    pub ops: &'a [Op<'a>],
    /// The keys that the transaction writes, in all partitions; see [`crate::change::siblings`].
    pub siblings: &'a [u8],
    /// Whatever the coordinator wants back with [`State`].
    pub note: &'a [u8],
    /// What holds until the attempt is decided, and how it then takes effect.
    pub isolation: Isolation,
}

/// What a partition knows of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Unknown,
    /// It is prepared; the coordinator's note.
    Prepared(Vec<u8>),
    /// It has committed and is not forgotten; the coordinator's note.
    Committed(Vec<u8>),
    /// It must not be prepared.
    Refused,
}

/// A client's transaction of one partition that can be sent again: its session, and its number
/// there, from 1 on. It is executed once, however often it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequenced {
    /// The session's id, from [`Participant::opened`]; not 0.
    pub session: u64,
    /// The number; each is greater than the one before.
    pub sequence: u64,
}

/// See the module's description.
pub trait Participant {
    /// Executes operations as a transaction of this partition alone. `see` gets the replies.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing has happened; [`Participant::observed`] what that depends on.
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort>;

    /// As [`Participant::execute`], once for each number: the replies are those of the first time.
    /// Partitions of one node have no sessions.
    ///
    /// # Errors
    /// As there; and [`Abort::Forgotten`], which depends on what [`Participant::observed`] says;
    /// [`Abort::Unknown`] while a transaction of the session is under way, and if a later one was
    /// executed.
    fn execute_once(&mut self, _: &[Op<'_>], _: Sequenced) -> Result<Vec<OwnedReply>, Abort> {
        Err(no_sessions())
    }

    /// Opens a session. [`Participant::opened`] has its id under the number that is returned, once
    /// [`Participant::observed`] is durable.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing has happened.
    fn open_session(&mut self) -> Result<u64, Abort> {
        Err(no_sessions())
    }

    /// The id of a session that was to be opened. Only once; `None` if it is not known yet.
    fn opened(&self, _: u64) -> Option<Result<u64, Abort>> {
        None
    }

    /// Looks at versions of read-atomic keys, each by itself; `see` gets an answer for each in their
    /// order. Never waits for anybody, and never aborts where the partition is led.
    ///
    /// # Errors
    /// As [`Participant::execute`].
    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort>;

    /// What the last call wrote or observed: its answer may be told once this is durable.
    fn observed(&self) -> Observed;

    /// Executes the operations, holds their keys, and keeps what they write. The attempt counts as
    /// prepared once [`Participant::observed`] is durable.
    ///
    /// # Errors
    /// The [`Abort`] says why it is not prepared: [`Abort::Refused`] if its state is not unknown,
    /// [`Abort::Held`], [`Abort::Overtaken`], or what the operations met.
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort>;

    /// Makes a prepared attempt's effects current and gives its holds back; it is committed then.
    /// Of an attempt that is not prepared nothing happens. Returns the state before, and the epoch
    /// that must be durable before anyone is told.
    ///
    /// # Errors
    /// [`Abort::ReadOnly`] when the log has failed.
    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort>;

    /// Undoes a prepared attempt and gives its holds back; as [`Participant::commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort>;

    /// Makes sure that an unknown attempt will not be prepared before this partition's time is
    /// `until_ms`; as [`Participant::commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort>;

    /// Forgets a committed attempt: nobody will ask for it any more.
    ///
    /// # Errors
    /// As above.
    fn forget(&mut self, id: TransactionId) -> Result<(), Abort>;

    /// What is known of an attempt, and the epoch on which that depends. Where the partition is not
    /// led, both mean nothing.
    fn state(&mut self, id: TransactionId) -> (State, Epoch);

    /// The attempts that are prepared or committed, in no particular order; none where the partition
    /// is not led.
    fn undecided(&mut self) -> Vec<(TransactionId, State)>;

    /// This partition's time, milliseconds since the Unix epoch: never decreases, also not over a
    /// restart.
    fn time_ms(&self) -> u64;

    /// How often holds have been given back: who waits for one looks again when this changes.
    fn releases(&self) -> u64;

    /// The newest epoch in which nothing happens any more: what has a TID of it, or of an earlier
    /// one, has been there since before this call.
    fn finished(&self) -> Epoch;

    /// Why no later epoch becomes durable, for ever or for now.
    fn failed(&self) -> Option<String>;

    /// Everything up to this epoch is durable.
    fn durable(&self) -> Epoch;

    /// Whether it will never be known that `epoch` is durable: what depends on it may have happened
    /// or not, and its asker must be told so. What is lost stays so when [`Participant::durable`]
    /// passes it by, because later epochs become durable.
    fn is_lost(&self, epoch: Epoch) -> bool {
        epoch > self.durable() && self.failed().is_some()
    }

    /// Whether the partition is led here, so that the calls above do what they say.
    ///
    /// # Errors
    /// Who leads it instead, as far as is known.
    fn leads(&self) -> Result<(), Option<NodeId>> {
        Ok(())
    }

    /// The number of the leadership that began last here: another one each time.
    fn leadership(&self) -> u64 {
        0
    }
}

fn no_sessions() -> Abort {
    Abort::Unavailable {
        what: "a partition of one node keeps no sessions".to_owned(),
    }
}
