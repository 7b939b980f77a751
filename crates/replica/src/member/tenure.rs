//! A member's time as the leader: its term, and the admission of transactions.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state_machine::StateMachine;
use crate::shared::MemberShared;

/// The reason why a new leader cannot take over the prepared transactions of earlier leaders.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct TakeoverError(String);

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct LeaderTenure {
    /// The term in which this member leads, if it does.
    term: Option<u64>,
    /// The member is about to hand the leadership over, and admits no transaction.
    draining: bool,
    /// The term in which the leadership was to be handed over: a message may still be in transit
    /// that lets another member be elected in spite of a lease.
    handed_over_in: u64,
}

impl LeaderTenure {
    /// Returns the term in which this member leads, if it does.
    pub(super) fn term(&self) -> Option<u64> {
        self.term
    }

    /// Returns `true` if this member leads.
    pub(super) fn is_leader(&self) -> bool {
        self.term.is_some()
    }

    /// Begins to lead in this term. Transactions are admitted later: see [`LeaderTenure::admit`].
    pub(super) fn begin(&mut self, term: u64) {
        self.term = Some(term);
    }

    /// Ends the leadership.
    pub(super) fn end(&mut self) {
        self.term = None;
        self.draining = false;
    }

    /// Returns `true` if transactions that were submitted are taken: transactions are admitted, or
    /// the last ones are finished before the leadership is handed over.
    pub(super) fn takes_submissions(&self, shared: &MemberShared) -> bool {
        shared.tickets.is_serving() || self.draining
    }

    /// Admits transactions: all that earlier leaders have acknowledged is applied.
    ///
    /// # Errors
    /// Returns an error if the prepared transactions of earlier leaders cannot be taken over.
    pub(super) fn admit(
        &self,
        shared: &MemberShared,
        state: &StateMachine,
    ) -> Result<(), TakeoverError> {
        let _guard = shared.tickets.change();
        let prepared = shared.engine.restore_prepared();
        let prepared = prepared.map_err(|error| TakeoverError(error.to_string()))?;
        tracing::info!(term = self.term, prepared, "leads the partition");
        // The time would stand still if the previous leader had a clock that was ahead of this one.
        shared.time.not_before(shared.engine.time_ms());
        state.publish_limit();
        shared.ticking.store(false, Ordering::SeqCst);
        shared.handing_over.store(false, Ordering::SeqCst);
        shared.tickets.open();
        Ok(())
    }

    /// Admits no transaction from now on, so that the leadership can be handed over.
    pub(super) fn drain(&mut self, shared: &MemberShared) {
        self.draining = true;
        shared.handing_over.store(true, Ordering::SeqCst);
        shared.tickets.pause();
    }

    /// Admits transactions again, because the leadership was not handed over.
    pub(super) fn resume(&mut self, shared: &MemberShared) {
        if std::mem::take(&mut self.draining) && self.is_leader() {
            let _guard = shared.tickets.change();
            shared.tickets.open();
            shared.handing_over.store(false, Ordering::SeqCst);
        }
    }

    /// Ends the lease, because another member may be elected from now on, and holds none for the
    /// rest of the term.
    pub(super) fn give_up_lease(&mut self, shared: &MemberShared) {
        shared.set_lease(Duration::ZERO);
        self.handed_over_in = self.term.unwrap_or(self.handed_over_in);
    }

    /// Returns `true` if this member leads, and may hold a lease in Raft's current term.
    pub(super) fn may_hold_lease(&self, raft_term: u64) -> bool {
        self.is_leader() && raft_term != self.handed_over_in
    }
}
