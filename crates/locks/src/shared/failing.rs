//! Transactions that have not committed, or whose outcome is unknown.

use std::sync::Arc;

use base::transaction::Abort;

use super::Shared;
use super::entry::{Pending, Phase, Work};
use super::in_flight::{InFlightTransaction, KeyInTransaction, TransactionContent};
use crate::error::LockError;
use crate::moment::MonotonicTime;

/// Outcome of a transaction that did not commit.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Nothing has happened.
    Nothing(String),
    /// This operation did not find what it expected. Nothing has happened.
    Precondition(usize),
    /// The outcome is unknown.
    Unknown(String),
    /// Nothing has happened, and another attempt will fail, too.
    Refused(String),
}

impl Failure {
    pub(super) fn of(abort: &Abort) -> Failure {
        let what = abort.to_string();
        match abort {
            Abort::Precondition { op } => Failure::Precondition(*op),
            Abort::Conflict { .. }
            | Abort::Held { .. }
            | Abort::Overtaken { .. }
            | Abort::Refused
            | Abort::Elsewhere { .. }
            | Abort::Unavailable { .. } => Failure::Nothing(what),
            Abort::Unknown { .. }
            | Abort::Unacknowledged { .. }
            | Abort::Forgotten
            | Abort::ReadOnly { .. } => Failure::Unknown(what),
            Abort::Stale { .. }
            | Abort::Unsupported { .. }
            | Abort::TooLarge { .. }
            | Abort::OutOfMemory
            | Abort::Failed(_)
            | Abort::Cancelled => Failure::Refused(what),
        }
    }
}

impl Shared {
    /// Gives up the transactions that have taken too long: their outcome is unknown.
    pub(super) fn give_up_flights(&mut self) {
        while let Some(first) = self.flights.first_entry()
            && first.get().sent + self.options.transaction_timeout <= self.now
        {
            let flight = first.remove();
            self.fail(flight, Failure::Unknown("no answer in time".to_owned()));
        }
    }

    /// Handles a transaction that has not committed, or whose outcome is unknown.
    pub(super) fn fail(&mut self, flight: InFlightTransaction, failure: Failure) {
        match &failure {
            Failure::Nothing(what) | Failure::Unknown(what) => {
                self.trouble.clone_from(what);
                self.pause_until = self.now + self.pause;
                self.pause = (self.pause * 2).min(super::PAUSE.1);
            }
            Failure::Precondition(_) | Failure::Refused(_) => {}
        }
        let sent = flight.sent;
        match flight.freight {
            TransactionContent::Era(_) => self.era.is_asked = false,
            TransactionContent::Sweep => self.swept(None),
            TransactionContent::Listing(listing) => match failure {
                Failure::Refused(what) => {
                    self.answer(listing.ticket, Err(LockError::Refused { what }));
                }
                _ => self.listings.push_back(listing),
            },
            TransactionContent::Keys { needs_era, items } => {
                if let Failure::Precondition(op) = failure {
                    if needs_era && op == 0 {
                        self.counters.eras_lost += 1;
                        self.era.close();
                    } else {
                        self.counters.overtaken += 1;
                    }
                }
                for item in items {
                    self.fail_item(item, sent, &failure);
                }
            }
        }
    }

    fn fail_item(&mut self, item: KeyInTransaction, sent: MonotonicTime, failure: &Failure) {
        let entry = self.entries.get_mut(&item.key).expect("it was under way");
        entry.phase = Phase::Idle;
        // The requests that wait are served again, too.
        entry.poll_at = Some(self.now);
        if let (Failure::Unknown(_), Some(written)) = (failure, item.writes)
            && let Some(at) = entry.position(written.arrival)
        {
            entry.pending[at].attempts.push(written.attempt(sent));
        }
        if let Failure::Refused(what) = failure {
            let what = what.clone();
            self.refuse(&item.key, item.before, &LockError::Refused { what });
        }
        self.advance(&item.key);
    }

    /// Answers all requests that came before `before` with an error. The measured lease stays.
    pub(super) fn refuse(&mut self, key: &Arc<[u8]>, before: u64, error: &LockError) {
        let entry = self.entries.get_mut(key).expect("it was under way");
        let pending = std::mem::take(&mut entry.pending).into_iter();
        let (over, rest): (Vec<Pending>, _) = pending.partition(|one| one.arrival <= before);
        entry.pending = rest.into();
        for one in over {
            if let Work::Client(ticket, _) = one.work
                && !one.cancelled
            {
                self.answer(ticket, Err(error.clone()));
            }
        }
    }
}
