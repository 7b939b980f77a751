//! The nodes of subscriptions, and how these follow the slots.

use std::sync::Arc;
use std::time::Duration;

use channels::SubscriptionKind;
use cluster::slot;
use smallvec::SmallVec;

use super::SubscriptionHub;
use super::state::{Place, PlaceState};
use crate::node_kind::NodeKind;
use crate::redis::slot_map::SlotMap;
use crate::runtime::query::NodeIndex;

impl SubscriptionHub {
    /// Returns the nodes that a name needs a subscription at.
    pub(super) fn nodes_of(&self, kind: SubscriptionKind, name: &[u8]) -> SmallVec<[NodeIndex; 1]> {
        let pattern = kind == SubscriptionKind::Pattern;
        match self.kind == NodeKind::RedisServers && pattern {
            true => self.map.all().iter().copied().collect(),
            false => [self.map.of_slot(slot::of(name))].into_iter().collect(),
        }
    }

    /// Has the subscription at a node made at another one, or there again.
    pub(super) fn move_place(&mut self, id: u64, from: NodeIndex, to: NodeIndex, due: Duration) {
        self.want_again(id, from, due);
        if from == to {
            return;
        }
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return;
        };
        let Some(at) = subscription.places.iter().position(|one| one.node == from) else {
            return;
        };
        let place = subscription.places.remove(at);
        let link = self.links.get_mut(&from).expect("it had the place");
        link.places -= 1;
        if let PlaceState::Wanted { due } = place.state {
            link.wanted.remove(&(due, id));
        }
        self.add_place(id, to, due);
    }

    /// Takes over a new map of slots.
    pub(crate) fn set_map(&mut self, map: Arc<SlotMap>, now: Duration) {
        self.map = map;
        let all: Vec<u64> = self.subscriptions.keys().copied().collect();
        for id in all {
            self.follow_map(id, now);
        }
    }

    fn follow_map(&mut self, id: u64, now: Duration) {
        let Some(subscription) = self.subscriptions.get(&id) else {
            return;
        };
        let kind = subscription.kind;
        let has_left = |place: &Place| !self.map.all().contains(&place.node);
        // The messages come to every node of a cluster.
        let stays = kind != SubscriptionKind::ShardChannel
            && self.kind != NodeKind::RedisServers
            && !subscription.places.iter().any(has_left);
        if stays {
            return;
        }
        let nodes = self.nodes_of(kind, &subscription.name);
        let mut subscription = self.subscriptions.remove(&id).expect("just seen");
        let places = std::mem::take(&mut subscription.places);
        let (kept, left): (Vec<_>, Vec<_>) = places
            .into_iter()
            .partition(|place| nodes.contains(&place.node));
        for place in &left {
            self.end_place(id, &subscription, place);
        }
        let has: Vec<NodeIndex> = kept.iter().map(|place| place.node).collect();
        subscription.places = kept.into();
        self.subscriptions.insert(id, subscription);
        for node in nodes.into_iter().filter(|node| !has.contains(node)) {
            self.add_place(id, node, now);
        }
    }
}
