//! Slots that are renewed because their keys were written (paper 1, algorithm 2, COMMIT).
//!
//! The engine notes the keys ([`PublishedSlots`]). The node reads their newest versions in its next turn,
//! as for a client that asks for the keys, and publishes them once they are durable.

use std::collections::VecDeque;

use base::Epoch;
use base::participant::Participant;
use base::planted::{self, Bug};
use base::versions::Ask;

use super::execution;
use crate::context::NodeContext;
use crate::message::Answer;
use crate::ramp::published_slots::{LocatedVersions, PublishedSlots};

/// The most keys that are read at once.
const BATCH: usize = 64;

/// Versions that are published when they are durable, in the order in which they were read.
#[derive(Default)]
pub(super) struct SlotRenewals {
    waiting: VecDeque<(Epoch, LocatedVersions)>,
}

impl SlotRenewals {
    /// Publishes what has become durable, and begins to renew the slots of keys that were written.
    pub(super) fn run<P: Participant + ?Sized>(
        &mut self,
        context: &NodeContext,
        partition: &mut P,
        published: &PublishedSlots,
    ) {
        // Before the durable epoch is read: what was written last may be durable already.
        let written = published.take_written();
        for keys in written.chunks(BATCH) {
            self.begin(context, partition, published, keys);
        }
        // Read before `is_lost`: a lost epoch is known as lost before later epochs become durable.
        let durable = partition.durable();
        while let Some((epoch, _)) = self.waiting.front() {
            let is_lost = partition.is_lost(*epoch);
            if !is_lost && *epoch > durable && !planted::is(Bug::EarlyRenewal) {
                return;
            }
            if let Some((_, located)) = self.waiting.pop_front()
                && !is_lost
            {
                published.publish_located(&located);
            }
        }
    }

    fn begin<P: Participant + ?Sized>(
        &mut self,
        context: &NodeContext,
        partition: &mut P,
        published: &PublishedSlots,
        keys: &[Vec<u8>],
    ) {
        let mut tickets = Vec::with_capacity(keys.len());
        for key in keys {
            // Taken before the version is read, as for a client that asks for the key.
            match published.slots().ticket(key) {
                Some(ticket) => tickets.push((key.clone(), Some(ticket))),
                // Its writer, or one that follows, has not ended yet.
                None => published.note_written(key.clone()),
            }
        }
        let asks: Vec<Ask<'_>> = tickets.iter().map(|(key, _)| Ask::Newest { key }).collect();
        // Where the partition is not led, or a version is too large, the next reader has to ask.
        if let (Answer::Versions(founds), epoch) =
            execution::read_versions(context, partition, &asks)
        {
            let located = LocatedVersions {
                founds,
                keys: tickets,
            };
            self.waiting.push_back((epoch, located));
        }
    }
}
