//! The state of the hub's subscriptions: which nodes have them, and what waits for them.

use std::collections::BTreeSet;
use std::time::Duration;

use channels::{ChannelName, SubscriptionKind};
use smallvec::SmallVec;

use crate::redis::subscription_service::SubscribeRequest;
use crate::runtime::query::NodeIndex;

/// One name.
pub(super) struct Subscription {
    pub(super) kind: SubscriptionKind,
    pub(super) name: ChannelName,
    pub(super) uses: u64,
    pub(super) places: SmallVec<[Place; 1]>,
    /// The requests that wait for it.
    pub(super) waiters: Vec<u64>,
}

/// A node that has, or will have, a subscription.
pub(super) struct Place {
    pub(super) node: NodeIndex,
    pub(super) state: PlaceState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceState {
    /// It is on the node's list, under this time.
    Wanted {
        due: Duration,
    },
    /// The request is under way.
    Sent,
    Confirmed,
}

/// A request that waits for confirmations.
pub(super) struct OpenRequest {
    pub(super) request: SubscribeRequest,
    /// Names that are not confirmed; one that is named several times counts as often.
    pub(super) missing: usize,
}

/// A node, as far as it has subscriptions.
#[derive(Default)]
pub(super) struct NodeState {
    /// Subscriptions to be made, each not before this time.
    pub(super) wanted: BTreeSet<(Duration, u64)>,
    pub(super) reach: NodeReach,
    /// The places at the node.
    pub(super) places: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum NodeReach {
    #[default]
    Good,
    /// The last request failed.
    Failed { again: Duration },
    /// One request is under way, which shows if the node is back.
    Trying,
}

impl Subscription {
    pub(super) fn is_confirmed(&self) -> bool {
        let mut places = self.places.iter();
        places.all(|place| place.state == PlaceState::Confirmed)
    }

    pub(super) fn place(&mut self, node: NodeIndex) -> Option<&mut Place> {
        self.places.iter_mut().find(|place| place.node == node)
    }
}
