//! `SUBSCRIBE`, `PUBLISH` and their kin.
//!
//! A message leaves when the reply of its publisher would: one that a block publishes is sent when the
//! block is durable, and never if it does not take effect.

use std::sync::Arc;

use cluster::slot;
use resp::{Args, Writer};

use super::help::help;
use crate::command::CommandKind::{Container, Local};
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::{ClientSession, PublishedMessage, ReplyMode};
use channels::frames::SubscriptionChange;
use channels::{ChannelMessage, SubscriptionKind};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "pubsub";
    "subscribe" -2 "pubsub noscript loading stale subscriber" NONE("") "" ""
        "2.0.0" "O(N) where N is the number of channels to subscribe to.",
        Local(subscribe), "Has this client receive the messages of channels.";
    "unsubscribe" -1 "pubsub noscript loading stale subscriber" NONE("") "" ""
        "2.0.0" "O(N) where N is the number of channels to unsubscribe.",
        Local(unsubscribe), "Ends subscriptions to channels, or to all of them.";
    "psubscribe" -2 "pubsub noscript loading stale subscriber" NONE("") "" ""
        "2.0.0" "O(N) where N is the number of patterns to subscribe to.",
        Local(psubscribe), "Has this client receive the messages of all channels that match patterns.";
    "punsubscribe" -1 "pubsub noscript loading stale subscriber" NONE("") "" ""
        "2.0.0" "O(N) where N is the number of patterns to unsubscribe.",
        Local(punsubscribe), "Ends subscriptions to patterns, or to all of them.";
    "publish" 3 "pubsub loading stale fast may_replicate" NONE("") "" ""
        "2.0.0" "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
        Local(publish), "Sends a message to the subscribers of a channel.";
    "ssubscribe" -2 "pubsub noscript loading stale subscriber" ALL("not_key") "" ""
        "7.0.0" "O(N) where N is the number of shard channels to subscribe to.",
        Local(ssubscribe), "Has this client receive the messages of shard channels.";
    "sunsubscribe" -1 "pubsub noscript loading stale subscriber" ALL("not_key") "" ""
        "7.0.0" "O(N) where N is the number of shard channels to unsubscribe.",
        Local(sunsubscribe), "Ends subscriptions to shard channels, or to all of them.";
    "spublish" 3 "pubsub loading stale fast may_replicate" ONE("not_key") "" ""
        "7.0.0" "O(N) where N is the number of clients subscribed to the receiving shard channel.",
        Local(spublish), "Sends a message to the subscribers of a shard channel.";
    "pubsub" -2 "" NONE("") "" ""
        "2.8.0" "Depends on subcommand.",
        Container, PUBSUB, "About channels and their subscribers.";
};

const PUBSUB: &[CommandDefinition] = commands! { "pubsub";
    "pubsub|channels" -2 "pubsub loading stale" NONE("") "" ""
        "2.8.0" "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)",
        Local(pubsub_channels), "The channels that have subscribers, or those of them that match a pattern.";
    "pubsub|numpat" 2 "pubsub loading stale" NONE("") "" ""
        "2.8.0" "O(1)",
        Local(pubsub_numpat), "How many patterns have subscribers.";
    "pubsub|numsub" -2 "pubsub loading stale" NONE("") "" ""
        "2.8.0" "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
        Local(pubsub_numsub), "How many clients subscribe to each channel.";
    "pubsub|shardchannels" -2 "pubsub loading stale" NONE("") "" ""
        "7.0.0" "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).",
        Local(pubsub_shardchannels), "The shard channels that have subscribers, or those of them that match a pattern.";
    "pubsub|shardnumsub" -2 "pubsub loading stale" NONE("") "" ""
        "7.0.0" "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
        Local(pubsub_shardnumsub), "How many clients subscribe to each shard channel.";
    "pubsub|help" 2 "loading stale" NONE("") "" ""
        "6.2.0" "O(1)",
        Local(pubsub_help), "What can be asked.";
};

fn begin(
    kind: SubscriptionKind,
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    names: Args<'_>,
) {
    for name in names.iter() {
        let (registry, key) = (&context.shared.channels, session.key);
        let subscriptions = &mut session.subscriptions;
        context
            .subscribers
            .subscribe(registry, (kind, name), key, subscriptions);
        write_change(SubscriptionChange::Begins, Some(name), kind, session);
    }
    session.note_subscriptions();
}

fn end(
    kind: SubscriptionKind,
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    names: Args<'_>,
) {
    let all = session.subscriptions.names(kind);
    let every: Vec<&[u8]> = match names.is_empty() {
        true => all.iter().map(|name| &**name).collect(),
        false => names.iter().collect(),
    };
    for name in &every {
        let (registry, key) = (&context.shared.channels, session.key);
        let subscriptions = &mut session.subscriptions;
        context
            .subscribers
            .unsubscribe(registry, (kind, name), key, subscriptions);
        write_change(SubscriptionChange::Ends, Some(name), kind, session);
    }
    if every.is_empty() {
        write_change(SubscriptionChange::Ends, None, kind, session);
    }
    session.note_subscriptions();
}

/// Writes that a subscription has begun or ended.
fn write_change(
    change: SubscriptionChange,
    name: Option<&[u8]>,
    kind: SubscriptionKind,
    session: &mut ClientSession,
) {
    let from = session.output.position();
    let mut writer = Writer::new(session.output.buffer(), session.protocol);
    change.write(kind, name, &session.subscriptions, &mut writer);
    if session.replies != ReplyMode::On {
        session.announced.extend(session.output.from(from));
    }
}

fn subscribe(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    begin(SubscriptionKind::Channel, context, session, args.from(1));
}

fn unsubscribe(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    end(SubscriptionKind::Channel, context, session, args.from(1));
}

fn psubscribe(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    begin(SubscriptionKind::Pattern, context, session, args.from(1));
}

fn punsubscribe(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    end(SubscriptionKind::Pattern, context, session, args.from(1));
}

fn ssubscribe(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if is_of_this_shard(context, session, args.from(1).iter()) {
        begin(
            SubscriptionKind::ShardChannel,
            context,
            session,
            args.from(1),
        );
    }
}

fn sunsubscribe(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    end(
        SubscriptionKind::ShardChannel,
        context,
        session,
        args.from(1),
    );
}

/// Returns `true` if this node has the shard of these channels. Otherwise the client gets the address of
/// the node that has it, or an error.
fn is_of_this_shard<'a>(
    context: &RuntimeContext,
    session: &mut ClientSession,
    mut channels: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let Some(routes) = &context.shared.routes else {
        return true;
    };
    let first = slot::of(channels.next().unwrap_or_default());
    if channels.any(|channel| slot::of(channel) != first) {
        session
            .writer()
            .error("CROSSSLOT Keys in request don't hash to the same slot");
        return false;
    }
    if routes.is_own(first) {
        return true;
    }
    let moved = routes.moved(first, routes.leader_of(first), session.client.over_tls);
    session.writer().error(&moved);
    false
}

fn publish(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    send(false, context, session, args);
}

fn spublish(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if is_of_this_shard(context, session, std::iter::once(args.at(1))) {
        send(true, context, session, args);
    }
}

/// Publishes a message, and answers how many subscribers this node has for it.
fn send(sharded: bool, context: &RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let receivers = context.shared.channels.receivers(sharded, args.at(1));
    if receivers > 0 || context.shared.routes.is_some() {
        let message = ChannelMessage {
            sharded,
            channel: args.at(1).into(),
            payload: args.at(2).into(),
        };
        session.published.push(PublishedMessage {
            message: Arc::new(message),
            in_block: context.in_block,
            position: session.output.position(),
        });
    }
    session.writer().int(receivers as i64);
}

fn pubsub_channels(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    write_names(SubscriptionKind::Channel, context, session, args);
}

fn pubsub_shardchannels(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    write_names(SubscriptionKind::ShardChannel, context, session, args);
}

fn write_names(
    kind: SubscriptionKind,
    context: &RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) {
    if args.len() > 3 {
        let name = match kind {
            SubscriptionKind::ShardChannel => "SHARDCHANNELS",
            SubscriptionKind::Channel | SubscriptionKind::Pattern => "CHANNELS",
        };
        let text = format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
        );
        return session.writer().error(&text);
    }
    let names = context.shared.channels.matching(kind, args.get(2));
    let mut writer = session.writer();
    writer.array(names.len());
    names.iter().for_each(|name| writer.bulk(name));
}

fn pubsub_numpat(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let patterns = context.shared.channels.names(SubscriptionKind::Pattern);
    session.writer().int(patterns as i64);
}

fn pubsub_numsub(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    write_counts(SubscriptionKind::Channel, context, session, args);
}

fn pubsub_shardnumsub(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    write_counts(SubscriptionKind::ShardChannel, context, session, args);
}

fn write_counts(
    kind: SubscriptionKind,
    context: &RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) {
    let names = args.from(2);
    let mut writer = session.writer();
    writer.array(2 * names.len());
    for name in names.iter() {
        writer.bulk(name);
        writer.int(context.shared.channels.subscribers(kind, name) as i64);
    }
}

fn pubsub_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("PUBSUB", PUBSUB, session);
}
