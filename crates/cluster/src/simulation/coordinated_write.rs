//! What a client of the simulation has that coordinates writes of read-atomic keys: its key, its clock, its
//! links, and the write under way.

use std::collections::BTreeMap;
use std::time::Duration;

use ::simulation::draw;
use base::{Abort, NodeId, PartitionId, TransactionId};
use fabric::sim::Endpoint;
use fabric::{Link, Messages};

use super::environment::{BEGIN_MS, Environment};
use crate::clock::HybridClock;
use crate::codec;
use crate::coordinator_key::CoordinatorKey;
use crate::leaders::Leaders;
use crate::message::{Answer, Message};
use crate::ramp::{ReadAtomicWrite, WriteStage};

/// What a client that coordinates has besides the write under way.
pub(super) struct CoordinatingClient {
    pub(super) key: CoordinatorKey,
    pub(super) clock: HybridClock,
    /// How far its clock is ahead of the true time.
    pub(super) ahead_ms: i64,
    pub(super) leaders: Leaders,
    /// Its links, and whether they are up.
    pub(super) links: BTreeMap<NodeId, (Link, bool)>,
    /// The number of the last request.
    pub(super) number: u64,
    /// Requests without an answer.
    pub(super) sent: BTreeMap<u64, StageRequest>,
}

/// A request of a stage, without an answer.
pub(super) struct StageRequest {
    pub(super) stage: WriteStage,
    pub(super) of: PartitionId,
    pub(super) to: NodeId,
    pub(super) on: Link,
}

/// A write under way.
pub(super) struct ClientWrite {
    pub(super) attempt: ReadAtomicWrite,
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(super) attempt_begun: Duration,
    /// When the requests of this stage are sent again, or the next attempt begins.
    pub(super) again_at: Duration,
}

impl CoordinatingClient {
    pub(super) fn new(env: &mut Environment) -> CoordinatingClient {
        let limit = env.plan.faults.clock_step_ms;
        let is_wrong = draw::chance(&mut env.random, env.plan.faults.clock_step * 10);
        CoordinatingClient {
            key: CoordinatorKey::new(env.random.u128(..).to_le_bytes()),
            clock: HybridClock::default(),
            ahead_ms: if is_wrong {
                env.random.i64(-limit..=limit)
            } else {
                0
            },
            leaders: Leaders::new(&env.topology),
            links: BTreeMap::new(),
            number: 0,
            sent: BTreeMap::new(),
        }
    }

    pub(super) fn next_id(&mut self, now: Duration) -> TransactionId {
        let time_ms = BEGIN_MS + now.as_millis() as u64;
        TransactionId {
            timestamp: self
                .clock
                .next(time_ms.saturating_add_signed(self.ahead_ms)),
            unique: self.key.unique(),
        }
    }

    pub(super) fn node_at(&self, link: Link) -> Option<NodeId> {
        let mut links = self.links.iter();
        links
            .find(|(_, (own, _))| *own == link)
            .map(|(node, _)| *node)
    }

    /// Returns the link to a node. On a new one the client introduces itself.
    pub(super) fn link_to(&mut self, endpoint: &mut Endpoint, to: NodeId) -> Link {
        if let Some((link, _)) = self.links.get(&to) {
            return *link;
        }
        let link = endpoint.connect(to);
        self.links.insert(to, (link, false));
        let mut bytes = Vec::new();
        codec::encode(&Message::Introduction(self.key), &mut bytes);
        // If it is not taken, the link goes down.
        let _ = endpoint.send(link, &bytes);
        link
    }

    /// Notes what an answer says of a partition's leader.
    pub(super) fn learn(&self, request: &StageRequest, answer: &Answer) {
        match answer {
            Answer::Aborted(Abort::Elsewhere { leader }) => {
                self.leaders.redirect(request.of, request.to, *leader);
            }
            Answer::Aborted(Abort::Unknown { .. }) | Answer::Failed(_) => {}
            _ => self.leaders.served(request.of, request.to),
        }
    }
}
