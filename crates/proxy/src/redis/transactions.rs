//! Commands in blocks, and the execution of blocks: `MULTI`, `EXEC`, `DISCARD`, `WATCH`.

use bytes::Bytes;
use cluster::slot;
use resp::Args;

use super::client::{Pending, RedisClient};
use super::commands::{LockCommand, NodeCommand, Special};
use super::multi_block::{self, Block};
use super::outcome::CommandOutcome;
use super::protocol::RedisProtocol;
use super::{local_commands, route};
use crate::node_kind::NodeKind;
use crate::runtime::protocol::{Dispatch, InputProgress, RequestContext};

impl RedisProtocol {
    /// Refuses a command; if it is part of a block, the block cannot be executed.
    pub(super) fn refuse_in(
        &self,
        client: &mut RedisClient,
        text: &str,
        context: &mut RequestContext<'_>,
    ) {
        if let Some(block) = &mut client.block {
            block.failed = true;
        }
        client.answer_with(context.out, |writer| writer.error_bytes(text.as_bytes()));
    }

    /// Adds a command to the client's block.
    pub(super) fn queue(
        &self,
        client: &mut RedisClient,
        command: &NodeCommand,
        args: Args<'_>,
        bytes: &[u8],
        context: &mut RequestContext<'_>,
    ) {
        let refused = match command.special {
            Special::Refused(why) => Some(why),
            Special::Local if !local_commands::goes_into_block(&command.name) => {
                Some("it is about the connection: give it outside of the block")
            }
            Special::ReplyReduction(_) if self.map.all().len() > 1 => {
                Some("it is for all nodes, and a block is executed by one: give it outside")
            }
            Special::Subscription(..) => Some("the proxy answers it when the nodes have confirmed"),
            Special::Lock(LockCommand::Guard) => None,
            Special::Lock(_) => {
                Some("the proxy answers it, outside of transactions: give it before MULTI")
            }
            _ => None,
        };
        if let Some(why) = refused {
            let text = format!("ERR {} is not allowed in a block: {why}", command.name);
            return self.refuse_in(client, &text, context);
        }
        let mut keys = command.keys(args);
        let servers = self.state.kind == NodeKind::RedisServers;
        if command.special == Special::Publish && servers && args.len() > 1 {
            // The proxy has its subscription to the channel at the server of this slot.
            keys = vec![1];
        }
        let slots = keys.iter().map(|&at| slot::of(args.at(at)));
        let limits = &self.state.limits;
        let watched = client.watches.bytes();
        let Some(block) = &mut client.block else {
            return;
        };
        let held = block.bytes() + watched + bytes.len();
        if block.len() >= limits.block_commands || held > limits.block_bytes {
            return self.refuse_in(client, "ERR the block is too large", context);
        }
        let is_guard = command.special == Special::Lock(LockCommand::Guard);
        if is_guard && block.guards < block.len() {
            let text = "ERR LOCK.GUARD must come first in a block, before what it guards";
            return self.refuse_in(client, text, context);
        }
        block.guards += usize::from(is_guard);
        block.push(Bytes::copy_from_slice(bytes), slots, !command.read_only);
        client.answer(context.out, Bytes::from_static(b"+QUEUED\r\n"));
    }

    pub(super) fn block_command(
        &mut self,
        client: &mut RedisClient,
        command: &NodeCommand,
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        match &*command.name {
            "multi" if client.block.is_some() => {
                client.refuse(context.out, "ERR MULTI calls can not be nested");
            }
            "multi" => {
                client.block = Some(Block::default());
                client.answer(context.out, Bytes::from_static(b"+OK\r\n"));
            }
            "exec" => return self.exec(client, context),
            "discard" => match client.block.take() {
                None => client.refuse(context.out, "ERR DISCARD without MULTI"),
                Some(_) => {
                    self.unwatch(client, context);
                    client.answer(context.out, Bytes::from_static(b"+OK\r\n"));
                }
            },
            "watch" if client.block.is_some() => {
                client.refuse(context.out, "ERR WATCH inside MULTI is not allowed");
            }
            "watch" => return self.watch(client, args, context),
            // In a block it is executed with the other commands; then no key is watched.
            _ if client.block.is_some() => {
                let bytes = multi_block::encode(args);
                self.queue(client, command, args, &bytes, context);
            }
            _ => {
                if !client.is_idle() {
                    client.alone = true;
                    return CommandOutcome::PutBack(InputProgress::AwaitsReply);
                }
                self.unwatch(client, context);
                client.answer(context.out, Bytes::from_static(b"+OK\r\n"));
            }
        }
        CommandOutcome::Handled
    }

    /// Forgets the client's watched keys.
    pub(crate) fn unwatch(&self, client: &mut RedisClient, context: &mut RequestContext<'_>) {
        if let Some((node, connection_key, _)) = client.watches.own {
            // The node forgets the watched keys when the connection is closed.
            context.hang_up(node, connection_key);
            client
                .own_connections
                .retain(|own| *own != (node, connection_key));
        }
        client.watches.clear();
    }

    fn watch(
        &mut self,
        client: &mut RedisClient,
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        if !client.is_idle() {
            client.alone = true;
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        let keys = client.watches.new_ones(args.iter().skip(1));
        let Some(first) = keys.first() else {
            client.answer(context.out, Bytes::from_static(b"+OK\r\n"));
            return CommandOutcome::Handled;
        };
        let limits = &self.state.limits;
        if client.watches.len() + keys.len() > limits.block_commands
            || client.watches.bytes() + multi_block::bytes_of(&keys) > limits.block_bytes
        {
            client.refuse(
                context.out,
                "ERR too much is watched: EXEC or UNWATCH first",
            );
            return CommandOutcome::Handled;
        }
        let mut slots = client.watches.slots.clone();
        slots.extend(keys.iter().map(|key| slot::of(key)));
        slots.sort_unstable();
        slots.dedup();
        if !route::go_together(self.state.kind, &self.map, &slots) {
            client.refuse(context.out, route::CROSS_SLOT);
            return CommandOutcome::Handled;
        }
        let first = slot::of(first);
        let node = self.map.of_slot(first);
        if client.watches.own.is_some_and(|own| own.0 != node) {
            // The slot has moved since: keys watched at the other node may change unnoticed.
            client.watches.lost = true;
            client.answer(context.out, Bytes::from_static(b"+OK\r\n"));
            return CommandOutcome::Handled;
        }
        if !context.has_room(node) {
            return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
        }
        let kumiki = self.state.kind == NodeKind::Kumiki;
        let name: &[u8] = if kumiki { b"WATCH.VERSION" } else { b"WATCH" };
        let mut words = vec![name];
        words.extend(keys.iter().map(|key| &key[..]));
        let mut bytes = Vec::new();
        resp::command::write_command(&mut bytes, &words);
        let connection_key = match kumiki {
            true => self.connection_key(client),
            false => self.own_connection(client, node),
        };
        let route = route::route(first);
        client.alone = true;
        let dispatch = Dispatch {
            sequence: client.expect(Pending::ThreadWatch(keys)),
            part: 0,
            node,
            connection_key,
            replies: 1,
            safe: kumiki,
            route,
            connection: client.watches.own.map(|own| own.2),
        };
        context.send(dispatch, bytes.into());
        CommandOutcome::Handled
    }

    fn exec(
        &mut self,
        client: &mut RedisClient,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        let Some(block) = &client.block else {
            client.refuse(context.out, "ERR EXEC without MULTI");
            return CommandOutcome::Handled;
        };
        if block.failed {
            client.block = None;
            self.unwatch(client, context);
            let text = "EXECABORT Transaction discarded because of previous errors.";
            client.refuse(context.out, text);
            return CommandOutcome::Handled;
        }
        let mut slots = client.watches.slots.clone();
        slots.extend(
            block
                .slots
                .iter()
                .filter(|slot| !client.watches.slots.contains(slot)),
        );
        if !route::go_together(self.state.kind, &self.map, &slots) {
            client.block = None;
            self.unwatch(client, context);
            client.refuse(context.out, route::CROSS_SLOT);
            return CommandOutcome::Handled;
        }
        let watches = !client.watches.is_empty();
        let nodes = self.map.all();
        let node = match (client.watches.own, slots.first()) {
            (Some((node, ..)), _) => node,
            (None, Some(&slot)) => self.map.of_slot(slot),
            (None, None) => nodes[client.id.number as usize % nodes.len()],
        };
        let elsewhere = slots.iter().any(|&slot| self.map.of_slot(slot) != node);
        if (watches || elsewhere) && !client.is_idle() {
            client.alone = true;
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        if !context.has_room(node) {
            return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
        }
        let block = client.block.take().expect("just seen");
        if client.watches.lost {
            self.unwatch(client, context);
            client.answer_with(context.out, |writer| writer.null_array());
            return CommandOutcome::Handled;
        }
        let watches = std::mem::take(&mut client.watches);
        if block.is_empty() && watches.is_empty() {
            client.answer(context.out, Bytes::from_static(b"*0\r\n"));
            return CommandOutcome::Handled;
        }
        // A connection of the client's own is not the one that later commands take.
        client.alone = elsewhere || watches.own.is_some();
        let (bytes, replies) = block.encode(&watches.versions);
        let dispatch = Dispatch {
            sequence: client.expect(Pending::Waiting),
            part: 0,
            node,
            connection_key: watches
                .own
                .map_or_else(|| self.connection_key(client), |own| own.1),
            replies,
            safe: !block.changes && watches.own.is_none(),
            route: slots.first().map_or(0, |&slot| route::route(slot)),
            connection: watches.own.map(|own| own.2),
        };
        context.send(dispatch, bytes);
        CommandOutcome::Handled
    }
}
