//! A participant's part in the end of attempts.

use base::participant::{Participant, State};
use base::{Abort, Epoch, PartitionId, TransactionId};

use crate::codec;
use crate::message::{Fate, Roll};
use crate::node::Node;
use crate::participation::REFUSAL_MS;

impl<C> Node<C> {
    /// Aborts an attempt, as the coordinator or the home says.
    pub(crate) fn on_abort(&mut self, partition: &mut impl Participant, id: TransactionId) {
        self.drop_parked(id);
        match partition.abort(id) {
            // Its preparation is on its way into the log.
            Err(Abort::Held { .. }) => self.undoing.push(id),
            // Its leader learns it from the home, when it asks.
            Ok(_) | Err(Abort::Elsewhere { .. }) => {}
            Err(error) => {
                tracing::warn!(%id, %error, "cannot undo a prepared transaction; trying again later");
            }
        }
    }

    /// Aborts the attempts that were on their way into the log, now that holds were given back.
    pub(crate) fn retry_undoing(&mut self, partition: &mut impl Participant) {
        for id in std::mem::take(&mut self.undoing) {
            self.on_abort(partition, id);
        }
    }

    /// Forgets an attempt: no node will ask for it any more.
    pub(crate) fn on_forget(&mut self, partition: &mut impl Participant, id: TransactionId) {
        match partition.forget(id) {
            // The keeper asks when it finds the attempt again.
            Ok(()) | Err(Abort::Elsewhere { .. } | Abort::Held { .. }) => {}
            Err(error) => {
                tracing::warn!(%id, %error, "cannot forget a committed transaction; trying again later");
            }
        }
    }

    /// Returns the outcome of an attempt whose home this is.
    pub(crate) fn outcome(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
    ) -> Result<(Fate, Epoch), Abort> {
        let until = partition.time_ms() + REFUSAL_MS;
        let (state, epoch) = partition.refuse(id, until)?;
        self.drop_parked(id);
        let fate = match state {
            State::Committed(_) => Fate::Committed,
            State::Refused => Fate::Aborted,
            State::Unknown => {
                self.counters.refused += 1;
                Fate::Aborted
            }
            State::Prepared(note) => {
                self.resolve(partition, id, &note);
                Fate::Open
            }
        };
        Ok((fate, epoch))
    }

    /// Aborts an attempt whose home this is, unless it has committed.
    pub(crate) fn abandon(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
    ) -> Result<(Fate, Epoch), Abort> {
        self.drop_parked(id);
        self.counters.abandoned += 1;
        loop {
            let (state, epoch) = partition.abort(id)?;
            match state {
                State::Committed(_) => return Ok((Fate::Committed, epoch)),
                State::Prepared(_) => return Ok((Fate::Aborted, epoch)),
                State::Unknown | State::Refused => {}
            }
            let until = partition.time_ms() + REFUSAL_MS;
            let (state, epoch) = partition.refuse(id, until)?;
            if let State::Unknown | State::Refused = state {
                return Ok((Fate::Aborted, epoch));
            }
            // Another thread of this node has prepared it in between.
        }
    }

    /// Returns the participants of a prepared or committed attempt.
    pub(crate) fn roll(&self, id: TransactionId, note: &[u8]) -> Option<Roll> {
        let roll = codec::decode_roll(note).map_err(|error| error.to_string());
        let roll = roll.and_then(|roll| match self.stranger(&roll) {
            Some(stranger) => Err(stranger),
            None => Ok(roll),
        });
        if let Err(error) = &roll {
            tracing::error!(
                %id, %error,
                "a transaction cannot be decided: start the cluster with the file that it began with"
            );
        }
        roll.ok()
    }

    /// Returns what is wrong with a roll: a partition that the cluster's file does not have.
    pub(crate) fn stranger(&self, roll: &Roll) -> Option<String> {
        let known = |of: &&PartitionId| self.topology.partition(**of).is_none();
        let stranger = roll.participants.iter().find(known)?;
        Some(format!(
            "partition {stranger} takes part, which the cluster's file does not have"
        ))
    }
}
