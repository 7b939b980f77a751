//! Requests and notices to partitions, which are led here or at other nodes.

use std::time::Duration;

use base::PartitionId;
use base::participant::Participant;

use crate::message::{Notice, Request};
use crate::node::{Asker, Node, Purpose};
use crate::resolution::Keeper;

impl<C> Node<C> {
    /// Checks if this node has begun or ceased to lead its partition. Returns `true` if it has.
    pub(crate) fn see_who_leads(&mut self, partition: &impl Participant) -> bool {
        let Some(own) = self.own else {
            return false;
        };
        let led = partition.leads().map(|()| partition.leadership());
        if self.led == Some(led) {
            return false;
        }
        let is_start = self.led.replace(led).is_none();
        let leader = led.map_or_else(|leader| leader, |_| Some(self.me));
        self.leaders.redirect(own, self.me, leader);
        if let Some(keeper) = &mut self.keeper {
            let grace = if is_start {
                Duration::ZERO
            } else {
                self.timeouts.doubt / 4
            };
            *keeper = Keeper::new(self.now + grace);
        }
        true
    }

    /// Returns `true` if a partition is this node's own, and led here.
    fn is_here(&self, partition: &impl Participant, of: PartitionId) -> bool {
        Some(of) == self.own && partition.leads().is_ok()
    }

    /// Sends a request to a partition, which may be this node's own.
    pub(crate) fn ask(
        &mut self,
        partition: &mut impl Participant,
        to: PartitionId,
        request: Request<'_>,
        purpose: Purpose,
    ) {
        if self.is_here(partition, to) {
            self.serve(partition, Asker::Own(purpose), request);
        } else {
            let node = self.leaders.find(to, self.me);
            self.wires.ask((node, to), request, purpose);
        }
    }

    /// Sends a partition a notice, which needs no answer.
    pub(crate) fn tell(
        &mut self,
        partition: &mut impl Participant,
        to: PartitionId,
        notice: Notice,
    ) {
        if !self.is_here(partition, to) {
            let node = self.leaders.find(to, self.me);
            return match notice {
                // No node waits for it.
                Notice::Forget { .. } => self.wires.tell_at_leisure(node, notice, self.now),
                Notice::Abort { .. } => self.wires.tell(node, notice),
            };
        }
        match notice {
            Notice::Abort { id } => self.on_abort(partition, id),
            Notice::Forget { id } => self.on_forget(partition, id),
        }
    }
}
