//! Commands of publish/subscribe, and the messages for the clients.
//!
//! A client's subscriptions are the proxy's ([`super::subscription_hub`]): `SUBSCRIBE` is answered when the
//! nodes have confirmed them, and is executed alone. `PUBLISH` goes to the node of the channel's slot, so
//! that the messages of one client to one channel keep their order. `PUBSUB` is about the proxy's clients.

use std::sync::Arc;

use bytes::Bytes;
use channels::frames::SubscriptionChange;
use channels::{ChannelName, SubscriptionKind};
use cluster::slot;
use resp::{Args, Writer};

use super::client::{Pending, RedisClient};
use super::commands::NodeCommand;
use super::outcome::CommandOutcome;
use super::protocol::RedisProtocol;
use super::publish_request::PublishRequest;
use super::route;
use super::subscription_service::{
    HubRequest, IncomingMessage, OpenSubscription, SubscribeRequest,
};
use crate::runtime::protocol::{InputProgress, RequestContext};

impl RedisProtocol {
    /// Answers `SUBSCRIBE`, `UNSUBSCRIBE` and their kin.
    pub(super) fn change_subscriptions(
        &mut self,
        client: &mut RedisClient,
        (change, kind): (SubscriptionChange, SubscriptionKind),
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        if change == SubscriptionChange::Ends {
            self.unsubscribe(client, kind, args, context);
            return CommandOutcome::Handled;
        }
        // A message must not come between the replies to earlier commands in RESP2.
        if !client.is_idle() {
            client.alone = true;
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        let names = args.from(1);
        let first = slot::of(names.get(0).unwrap_or_default());
        if kind == SubscriptionKind::ShardChannel
            && names.iter().any(|name| slot::of(name) != first)
        {
            client.refuse(context.out, route::CROSS_SLOT);
            return CommandOutcome::Handled;
        }
        client.alone = true;
        let sequence = client.expect(Pending::Waiting);
        let names: Arc<[ChannelName]> = names.iter().map(ChannelName::from).collect();
        let open = OpenSubscription { kind, names };
        let request = SubscribeRequest {
            client: client.id,
            sequence,
            wanted: open.clone(),
        };
        self.subscribers.open(client.id, open);
        self.state
            .subscriptions
            .request(HubRequest::Subscribe(request));
        context.await_deferred_reply();
        CommandOutcome::Handled
    }

    fn unsubscribe(
        &mut self,
        client: &mut RedisClient,
        kind: SubscriptionKind,
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) {
        let names: Vec<ChannelName> = match args.len() {
            1 => client.subscriptions.names(kind),
            _ => args.from(1).iter().map(ChannelName::from).collect(),
        };
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, client.protocol);
        let ends = SubscriptionChange::Ends;
        for name in &names {
            let (id, subscriptions) = (client.id, &mut client.subscriptions);
            let service = &self.state.subscriptions;
            self.subscribers
                .unsubscribe(service, (kind, name), id, subscriptions);
            ends.write(kind, Some(name), subscriptions, &mut writer);
        }
        if names.is_empty() {
            ends.write(kind, None, &client.subscriptions, &mut writer);
        }
        client.answer(context.out, out.into());
    }

    /// Confirms the subscriptions that the nodes have confirmed.
    pub(super) fn subscribed(
        &mut self,
        client: &mut RedisClient,
        (sequence, confirmed): (u64, &OpenSubscription),
        context: &mut RequestContext<'_>,
    ) {
        let service = &self.state.subscriptions;
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, client.protocol);
        for name in &*confirmed.names {
            if client.subscriptions.has(confirmed.kind, name) {
                // The client uses the name once.
                service.request(HubRequest::Unsubscribe(confirmed.kind, Arc::clone(name)));
            }
            let what = (confirmed.kind, &**name);
            self.subscribers
                .subscribe(service, what, client.id, &mut client.subscriptions);
            let begins = SubscriptionChange::Begins;
            begins.write(
                confirmed.kind,
                Some(name),
                &client.subscriptions,
                &mut writer,
            );
        }
        client.settle(context.out, sequence, out.into());
    }

    /// Ends all subscriptions of a client that is gone or begins anew, also those that the nodes have not
    /// confirmed.
    pub(crate) fn unsubscribe_all(&mut self, client: &mut RedisClient) {
        let service = &self.state.subscriptions;
        self.subscribers.abandon(client.id);
        for kind in SubscriptionKind::ALL {
            for name in client.subscriptions.names(kind) {
                let (id, subscriptions) = (client.id, &mut client.subscriptions);
                self.subscribers
                    .unsubscribe(service, (kind, &name), id, subscriptions);
            }
        }
    }

    /// Gives a client a message, unless it has left too many untaken: then it is about to be closed.
    pub(super) fn deliver_message(
        &self,
        client: &RedisClient,
        message: &IncomingMessage,
        context: &mut RequestContext<'_>,
    ) {
        let (kind, name) = message.subscription();
        if context.out.len() <= self.state.limits.subscriber_output
            && client.subscriptions.has(kind, name)
        {
            context.out.put(message.frame(client.protocol));
        }
    }

    /// Sends a message to the node of its channel.
    pub(super) fn publish(
        &mut self,
        client: &mut RedisClient,
        command: &NodeCommand,
        args: Args<'_>,
        bytes: &[u8],
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        let channel = args.get(1).unwrap_or_default();
        let slot = slot::of(channel);
        let node = self.map.of_slot(slot);
        if !context.has_room(node) {
            return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
        }
        let dispatch = self.dispatch(client, command, node, route::route(slot));
        if let Some(pending) = client.pending(dispatch.sequence) {
            *pending = Pending::Published(PublishRequest {
                sharded: &*command.name == "spublish",
                channel: Bytes::copy_from_slice(channel),
            });
        }
        context.send(dispatch, Bytes::copy_from_slice(bytes));
        CommandOutcome::Handled
    }
}
