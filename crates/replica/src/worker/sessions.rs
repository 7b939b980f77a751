//! Sessions: transactions that can be sent again.

use std::sync::Arc;

use base::codec::{Reader, read_replies};
use base::participant::Sequenced;
use base::partition::OwnedReply;
use base::transaction::Observed;
use base::{Abort, Op};

use super::Worker;
use crate::sessions::{SequenceState, not_kept, superseded};
use crate::wire::Payload;

impl Worker {
    /// Does the same as [`Worker::execute`], once for each number: the replies are those of the
    /// first time.
    ///
    /// An abort is not remembered. If the transaction was sent before and that is not answered, it
    /// may still arrive and be executed, unless one with a greater number has been.
    ///
    /// # Errors
    /// Returns the errors of [`Worker::execute`]; [`Abort::Forgotten`] if the session is not
    /// remembered, which may be shown in the same cases as an [`Abort::Precondition`];
    /// [`Abort::Unknown`] if the transaction or another one of the session is in progress, or if a
    /// later one was executed.
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

    /// Opens a session, whose transactions can be sent again. Returns the number under which
    /// [`Worker::opened`] has its id once the ticket in [`Worker::observed`] has resolved. If the
    /// ticket is lost, open another session: one that is not used is forgotten.
    ///
    /// # Errors
    /// Returns [`Abort::Elsewhere`], or [`Abort::Unavailable`] if too much waits.
    pub fn open_session(&mut self) -> Result<u64, Abort> {
        let shared = Arc::clone(&self.shared);
        let _admitted = shared.tickets.admission();
        self.begin()?;
        self.check_room()?;
        shared.refresh();
        let stamp_ms = shared.engine.time_ms();
        let mut payload = Vec::new();
        Payload::Open {
            stamp_ms,
            most: shared.most_sessions,
        }
        .encode(&mut payload);
        Ok(self.submit_numbered(payload, stamp_ms))
    }

    /// Returns the id of a session that was to be opened, only once. Returns `None` if it is not
    /// known yet, or was fetched, and [`Abort::Unavailable`] if there are too many sessions.
    pub fn opened(&self, number: u64) -> Option<Result<u64, Abort>> {
        self.shared.opened.take(number)
    }

    /// Answers a transaction that was sent before.
    pub(super) fn answer_again(&mut self, state: SequenceState) -> Result<Vec<OwnedReply>, Abort> {
        match state {
            SequenceState::Done(result) if result.is_empty() => Err(not_kept()),
            SequenceState::Done(result) => {
                // The outcome is applied here, so that it is decided and cannot change.
                self.observed = Observed::default();
                let replies = read_replies(&mut Reader::new(&result));
                replies.map_err(|error| Abort::Unknown {
                    what: format!("the outcome that was kept cannot be read: {error}"),
                })
            }
            SequenceState::UnderWay => Err(Abort::Unknown {
                what: "the session has a transaction under way, maybe this one: ask again"
                    .to_owned(),
            }),
            SequenceState::Ends => Err(Abort::Unavailable {
                what: "the session is about to end: nothing was heard of it for long".to_owned(),
            }),
            SequenceState::Old => Err(superseded()),
            SequenceState::Forgotten | SequenceState::New => {
                // Another leader may know the session.
                self.note_read(self.shared.engine.time_ms())?;
                Err(Abort::Forgotten)
            }
        }
    }
}
