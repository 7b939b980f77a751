//! The subscribers among the clients of one thread, and the events for them.

use std::collections::HashMap;
use std::sync::Arc;

use channels::{ChannelName, ClientSubscriptions, SubscriberTable, SubscriptionKind};
use foldhash::fast::RandomState;

use super::outcome::DeferredOutcome;
use super::subscription_service::{
    HubRequest, OpenSubscription, SubscriptionEvent, SubscriptionService,
};
use super::thread_tracking::{ThreadTracking, news};
use crate::runtime::protocol::DeferredReply;
use crate::runtime::query::ClientId;

/// Events that are taken in a turn, so that clients' requests get their turn as well.
const TAKEN: usize = 4096;

/// The subscribers among one thread's clients.
#[derive(Default)]
pub(crate) struct ThreadSubscribers {
    /// The thread, and its subscribers by their places, once it has had a client.
    table: Option<(u16, SubscriberTable)>,
    ids: HashMap<usize, ClientId, RandomState>,
    /// The requests that have no answer yet, by the numbers of their clients; `true`: the client is gone.
    /// A client has one at most.
    open: HashMap<u32, (OpenSubscription, bool), RandomState>,
}

impl ThreadSubscribers {
    /// Sets the thread, when it has a client.
    pub(crate) fn are_of(&mut self, thread: u16) {
        self.table
            .get_or_insert_with(|| (thread, SubscriberTable::new(thread.into())));
    }

    /// Returns `true` if there are events for the thread's clients.
    pub(crate) fn has_events(&self, service: &SubscriptionService) -> bool {
        let table = self.table.as_ref();
        table.is_some_and(|&(thread, _)| service.has_events(thread))
    }

    /// Takes the events for the thread's clients.
    pub(crate) fn collect(
        &mut self,
        service: &SubscriptionService,
        caching_clients: &mut ThreadTracking,
        into: &mut Vec<DeferredReply<DeferredOutcome>>,
    ) {
        if !self.has_events(service) {
            return;
        }
        let Some((thread, table)) = &self.table else {
            return;
        };
        let most = into.len() + TAKEN;
        while into.len() < most
            && let Some(event) = service.take_event(*thread)
        {
            match event {
                SubscriptionEvent::Subscribed { client, sequence } => {
                    match self.open.remove(&client.number) {
                        Some((open, false)) => {
                            let outcome = DeferredOutcome::Subscribed(open);
                            into.push(DeferredReply::awaited(client, sequence, outcome));
                        }
                        Some((open, true)) => service.end_uses(&open),
                        None => {}
                    }
                }
                SubscriptionEvent::Refused {
                    client,
                    sequence,
                    error,
                } => {
                    if let Some((_, false)) = self.open.remove(&client.number) {
                        let outcome = DeferredOutcome::NotSubscribed(error);
                        into.push(DeferredReply::awaited(client, sequence, outcome));
                    }
                }
                SubscriptionEvent::Message(message) => {
                    let (kind, name) = message.subscription();
                    let ids = table.of_name(kind, name).iter();
                    into.extend(ids.map(|place| DeferredReply {
                        client: self.ids[place],
                        sequence: 0,
                        is_awaited: false,
                        outcome: DeferredOutcome::Message(Arc::clone(&message)),
                    }));
                }
                SubscriptionEvent::Invalidated {
                    client,
                    keys,
                    redirected,
                } => into.push(news(client, keys, redirected)),
                SubscriptionEvent::AllInvalidated => caching_clients.changed_all(into),
                SubscriptionEvent::TrackingBegun(result) => caching_clients.begun(&result, into),
            }
        }
    }

    /// Records a request of a client to subscribe.
    pub(crate) fn open(&mut self, client: ClientId, wanted: OpenSubscription) {
        self.open.insert(client.number, (wanted, false));
    }

    /// Records that a client is gone, or begins anew: its request to subscribe has no effect.
    pub(crate) fn abandon(&mut self, client: ClientId) {
        if let Some((_, is_gone)) = self.open.get_mut(&client.number) {
            *is_gone = true;
        }
    }

    /// Adds a subscription of a client, unless it has it.
    pub(crate) fn subscribe(
        &mut self,
        service: &SubscriptionService,
        what: (SubscriptionKind, &[u8]),
        id: ClientId,
        subscriptions: &mut ClientSubscriptions,
    ) {
        let (_, table) = self.table.as_mut().expect("it has clients");
        let place = id.place as usize;
        table.subscribe(&service.registry, what, place, subscriptions);
        self.ids.insert(place, id);
    }

    /// Ends a subscription of a client, if it has it.
    pub(crate) fn unsubscribe(
        &mut self,
        service: &SubscriptionService,
        (kind, name): (SubscriptionKind, &ChannelName),
        id: ClientId,
        subscriptions: &mut ClientSubscriptions,
    ) {
        if subscriptions.has(kind, name)
            && let Some((_, table)) = &mut self.table
        {
            let place = id.place as usize;
            table.unsubscribe(&service.registry, (kind, name), place, subscriptions);
            service.request(HubRequest::Unsubscribe(kind, Arc::clone(name)));
            if !subscriptions.any() {
                self.ids.remove(&place);
            }
        }
    }
}
