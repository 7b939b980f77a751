//! The clients of one thread with client-side caching.

use std::collections::HashMap;

use bytes::Bytes;
use channels::client_tracking::{ChangedKeys, ClientTracking};
use foldhash::fast::RandomState;

use super::outcome::DeferredOutcome;
use crate::runtime::protocol::DeferredReply;
use crate::runtime::query::ClientId;

/// A `CLIENT TRACKING` that waits until nodes send news.
struct TrackingRequest {
    id: ClientId,
    sequence: u64,
    tracking: Box<ClientTracking>,
}

/// The clients of one thread with client-side caching, by their numbers.
#[derive(Default)]
pub(crate) struct ThreadTracking {
    clients: HashMap<u32, ClientId, RandomState>,
    waiting: HashMap<u32, TrackingRequest, RandomState>,
}

impl ThreadTracking {
    /// Adds a client that wants news, and waits until nodes send them.
    pub(crate) fn wait(&mut self, id: ClientId, sequence: u64, tracking: ClientTracking) {
        let tracking = Box::new(tracking);
        let waiting = TrackingRequest {
            id,
            sequence,
            tracking,
        };
        self.waiting.insert(id.number, waiting);
    }

    /// Adds a client that gets news.
    pub(crate) fn add(&mut self, id: ClientId) {
        self.clients.insert(id.number, id);
    }

    /// Removes a client. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, id: ClientId) -> bool {
        let waited = self.waiting.remove(&id.number).is_some();
        self.clients.remove(&id.number).is_some() | waited
    }

    /// Appends the answers to the clients that wait, when the nodes have been asked.
    pub(crate) fn begun(
        &mut self,
        result: &Result<(), Bytes>,
        into: &mut Vec<DeferredReply<DeferredOutcome>>,
    ) {
        into.extend(self.waiting.drain().map(|(_, one)| {
            let result = result.clone().map(|()| one.tracking);
            let outcome = DeferredOutcome::Tracking(result);
            DeferredReply::awaited(one.id, one.sequence, outcome)
        }));
    }

    /// Appends the news for all clients that all keys may have changed.
    pub(crate) fn changed_all(&self, into: &mut Vec<DeferredReply<DeferredOutcome>>) {
        into.extend(
            self.clients
                .values()
                .map(|&client| news(client, None, false)),
        );
    }
}

/// Returns the news for one client.
pub(crate) fn news(
    client: ClientId,
    keys: ChangedKeys,
    redirected: bool,
) -> DeferredReply<DeferredOutcome> {
    DeferredReply {
        client,
        sequence: 0,
        is_awaited: false,
        outcome: DeferredOutcome::Invalidated { keys, redirected },
    }
}
