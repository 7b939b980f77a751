//! Results of transactions that have committed: the new knowledge about keys, and the requests that
//! they answer.
//!
//! Results of reads are handled by the module `reading`, transactions that have not committed by
//! `failing`.

use std::sync::Arc;

use base::partition::OwnedReply;
use base::transaction::Abort;

use super::Shared;
use super::entry::{Attempt, LastSeen, Over, Pending, Phase, Work};
use super::era::TOMBSTONE;
use super::failing::Failure;
use super::in_flight::{InFlightTransaction, KeyInTransaction, RecordWrite, TransactionContent};
use crate::error::LockError;
use crate::lock::{Answer, OwnedRequest};
use crate::moment::MonotonicTime;

impl Shared {
    pub(super) fn settle(
        &mut self,
        flight: InFlightTransaction,
        result: Result<Vec<OwnedReply>, Abort>,
    ) {
        let replies = match result {
            Ok(replies) => replies,
            Err(abort) => return self.fail(flight, Failure::of(&abort)),
        };
        self.pause = super::PAUSE.0;
        let sent = flight.sent;
        match flight.freight {
            TransactionContent::Era(number) => {
                self.era.is_asked = false;
                if let [_, OwnedReply::Deadline(Some(deadline))] = replies[..] {
                    self.era.opened(number, deadline, sent);
                }
            }
            TransactionContent::Listing(listing) => self.listed(&listing, sent, &replies),
            TransactionContent::Sweep => self.swept(Some(&replies)),
            TransactionContent::Keys { needs_era, items } => {
                let mut rest = &replies[usize::from(needs_era)..];
                for item in items {
                    let (own, others) = rest.split_at(item.replies());
                    rest = others;
                    self.settle_item(item, sent, own);
                }
            }
        }
    }

    fn settle_item(&mut self, item: KeyInTransaction, sent: MonotonicTime, replies: &[OwnedReply]) {
        let Some(written) = item.writes else {
            return self.read(&item.key, replies, item.before);
        };
        let (put, seen) = match written.over {
            Over::Absent => (&replies[0], &replies[1..]),
            Over::Version(..) => (&replies[1], &replies[2..]),
        };
        match put {
            OwnedReply::Ok => self.written(&item.key, written, sent),
            OwnedReply::Error(error) => {
                let what = error.to_string();
                self.entries
                    .get_mut(&item.key)
                    .expect("it was under way")
                    .phase = Phase::Idle;
                self.refuse(&item.key, item.before, &LockError::Refused { what });
                self.advance(&item.key);
            }
            _ => self.read(&item.key, seen, item.before),
        }
    }

    /// Handles a write that has taken effect.
    fn written(&mut self, key: &Arc<[u8]>, written: RecordWrite, sent: MonotonicTime) {
        let now = self.now;
        let known = match written.lease {
            Some(lease) => LastSeen::Held(self.own(written.id, lease, sent)),
            None => LastSeen::Released(now + TOMBSTONE),
        };
        let entry = self.entries.get_mut(key).expect("it was under way");
        entry.known = known;
        entry.phase = Phase::Idle;
        if written.lease.is_none() {
            // A request that waits may get the key now.
            entry.poll_at = Some(now);
            entry.patience = self.options.poll.0;
        }
        if let Some(at) = entry.position(written.arrival) {
            let one = entry.pending.remove(at).expect("it was found");
            let attempt = written.attempt(sent);
            self.answer_written(key, &one, attempt);
        }
        self.advance(key);
    }

    /// Answers a request whose write has taken effect.
    pub(super) fn answer_written(&mut self, key: &Arc<[u8]>, one: &Pending, attempt: Attempt) {
        let is_grant = matches!(attempt.answer, Some(Answer::Granted { .. }));
        self.counters.grants += u64::from(is_grant);
        self.counters.waited += u64::from(is_grant && one.waits);
        match (&one.work, attempt.answer) {
            (Work::Client(_, OwnedRequest::Acquire { .. }), _)
                if one.cancelled && attempt.is_new =>
            {
                self.ask(key, Work::Undo(attempt.id), self.now);
            }
            (Work::Client(ticket, _), Some(answer)) if !one.cancelled => {
                let answer = match answer {
                    Answer::Granted { token, lease } => Answer::Granted {
                        token,
                        lease: lease.told(one.came, attempt.sent),
                    },
                    other => other,
                };
                self.answer(*ticket, Ok(answer));
            }
            (Work::Client(..), _) => {}
            (Work::Expire, _) => self.counters.expired += 1,
            (Work::Undo(_), _) => self.counters.undone += 1,
        }
    }
}

impl RecordWrite {
    pub(super) fn attempt(self, sent: MonotonicTime) -> Attempt {
        Attempt {
            id: self.id,
            over: self.over,
            is_new: self.is_new,
            sent,
            answer: self.answer,
        }
    }
}
