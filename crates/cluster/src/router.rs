//! Sends requests and notices to partitions. For a partition that this node leads, that is a call of its
//! [`ParticipantService`]; for another one it is a message to the node that is believed to lead it.

use base::PartitionId;
use base::participant::Participant;

use crate::context::NodeContext;
use crate::message::{Notice, Request};
use crate::participant::ParticipantService;
use crate::requester::{RequestPurpose, Requester};

/// See the module's description.
pub(crate) struct PartitionRouter<'n, P: ?Sized> {
    pub(crate) context: &'n mut NodeContext,
    pub(crate) service: &'n mut ParticipantService,
    /// This node's own partition.
    pub(crate) partition: &'n mut P,
}

impl<P: Participant + ?Sized> PartitionRouter<'_, P> {
    /// Returns `true` if a partition is this node's own, and led here.
    fn is_led_here(&self, of: PartitionId) -> bool {
        Some(of) == self.context.local_partition && self.partition.leads().is_ok()
    }

    /// Sends a request to a partition. The answer is queued in [`NodeContext::answers`], possibly at once.
    pub(crate) fn request(
        &mut self,
        to: PartitionId,
        request: Request<'_>,
        purpose: RequestPurpose,
    ) {
        if self.is_led_here(to) {
            let requester = Requester::Local(purpose);
            self.service
                .serve(self.context, self.partition, requester, request);
        } else {
            let node = self.context.leaders.find(to, self.context.node);
            self.context
                .connections
                .request((node, to), request, purpose);
        }
    }

    /// Sends a partition a notice, which needs no answer.
    pub(crate) fn notify(&mut self, to: PartitionId, notice: Notice) {
        if self.is_led_here(to) {
            return self.service.notice(self.context, self.partition, notice);
        }
        let node = self.context.leaders.find(to, self.context.node);
        let (connections, now) = (&mut self.context.connections, self.context.now);
        match notice {
            // No node waits for it.
            Notice::Forget { .. } => connections.notify_lazily(node, notice, now),
            Notice::Abort { .. } => connections.notify(node, notice),
        }
    }
}
