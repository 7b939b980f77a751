//! The dispatch of commands to nodes.

use std::collections::BTreeMap;

use bytes::Bytes;
use resp::Args;

use super::client::{Pending, RedisClient};
use super::command_docs;
use super::commands::NodeCommand;
use super::outcome::CommandOutcome;
use super::protocol::RedisProtocol;
use super::reply_merge::{MergeRule, ReplyMerge};
use super::route::{self, CommandPart, CommandRoute};
use super::wire::RedisConnectionProperties;
use crate::runtime::inflight_budget::QueryCounts;
use crate::runtime::protocol::{Dispatch, InputProgress, RequestContext};
use crate::runtime::query::{ConnectionKey, NodeIndex};

impl RedisProtocol {
    /// Returns the dispatch of a command that one node answers.
    pub(super) fn dispatch(
        &self,
        client: &mut RedisClient,
        command: &NodeCommand,
        node: NodeIndex,
        route: u32,
    ) -> Dispatch {
        Dispatch {
            sequence: client.expect(Pending::Waiting),
            part: 0,
            node,
            connection_key: self.connection_key(client),
            replies: 1,
            safe: command.read_only,
            route: route::marked(route, command),
            connection: None,
        }
    }

    /// Returns the connection key that a client shares with other clients. It is always the same for a
    /// database, so that the client's commands on one key keep their order.
    pub(super) fn connection_key(&self, client: &RedisClient) -> ConnectionKey {
        let name = RedisConnectionProperties {
            resp3: client.protocol == resp::Protocol::Resp3,
            index: (client.id.number % u32::from(self.state.connection_keys)) as u8,
            own: None,
            database: client.database,
        };
        name.connection_key()
    }

    /// Sends a command that goes to nodes; handles all but the simplest case.
    pub(super) fn send(
        &mut self,
        client: &mut RedisClient,
        command: &NodeCommand,
        args: Args<'_>,
        bytes: &[u8],
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        let any = client.id.number as usize;
        match route::way(self.state.kind, &self.map, command, args, any) {
            CommandRoute::Refused(text) => {
                let code = text.split(' ').next().unwrap_or_default();
                let coded = code.bytes().all(|byte| byte.is_ascii_uppercase());
                let text = if coded {
                    text.to_owned()
                } else {
                    format!("ERR {text}")
                };
                client.refuse(context.out, &text);
            }
            CommandRoute::One { node, route } => {
                if !context.has_room(node) {
                    return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
                }
                let dispatch = self.dispatch(client, command, node, route);
                if self.state.locks.is_some()
                    && let Some(telling) = command_docs::telling(command, args)
                    && let Some(pending) = client.pending(dispatch.sequence)
                {
                    *pending = Pending::Commands(telling);
                }
                context.send(dispatch, Bytes::copy_from_slice(bytes));
            }
            CommandRoute::Alone { node, route } => {
                if !client.is_idle() {
                    client.alone = true;
                    return CommandOutcome::PutBack(InputProgress::AwaitsReply);
                }
                if !context.has_room(node) {
                    return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
                }
                client.alone = true;
                let dispatch = self.dispatch(client, command, node, route);
                context.send(dispatch, Bytes::copy_from_slice(bytes));
            }
            CommandRoute::Own { node, route } => {
                if !client.is_idle() {
                    client.alone = true;
                    return CommandOutcome::PutBack(InputProgress::AwaitsReply);
                }
                (client.alone, client.waits) = (true, true);
                let mut dispatch = self.dispatch(client, command, node, route);
                dispatch.connection_key = self.own_connection(client, node);
                dispatch.safe = false;
                context.send_waiting(dispatch, Bytes::copy_from_slice(bytes));
            }
            CommandRoute::Split { parts, rule } => {
                if !have_room(&parts, context) {
                    return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
                }
                self.send_parts(client, command, parts, rule, context);
            }
            CommandRoute::Scan { cursors, part } => {
                if !context.has_room(part.node) {
                    return CommandOutcome::PutBack(InputProgress::AwaitsRoom);
                }
                let mut dispatch = self.dispatch(client, command, part.node, 0);
                if let Some(pending) = client.pending(dispatch.sequence) {
                    *pending = Pending::Scan(cursors);
                }
                dispatch.safe = true;
                context.send(dispatch, part.bytes);
            }
        }
        CommandOutcome::Handled
    }

    fn send_parts(
        &mut self,
        client: &mut RedisClient,
        command: &NodeCommand,
        parts: Vec<CommandPart>,
        rule: MergeRule,
        context: &mut RequestContext<'_>,
    ) {
        let connection_key = self.connection_key(client);
        let join = ReplyMerge::new(rule, command.read_only, parts.len());
        let sequence = client.expect(Pending::Merging(Box::new(join)));
        for (part, piece) in parts.into_iter().enumerate() {
            let dispatch = Dispatch {
                sequence,
                part: part as u32,
                node: piece.node,
                connection_key,
                replies: 1,
                safe: command.read_only,
                route: piece.route,
                connection: None,
            };
            context.send(dispatch, piece.bytes);
        }
    }

    /// Returns a connection key of this client alone.
    pub(super) fn own_connection(
        &self,
        client: &mut RedisClient,
        node: NodeIndex,
    ) -> ConnectionKey {
        let resp3 = client.protocol == resp::Protocol::Resp3;
        let connection_key =
            RedisConnectionProperties::of_client(resp3, client.id, client.database)
                .connection_key();
        if !client.own_connections.contains(&(node, connection_key)) {
            client.own_connections.push((node, connection_key));
        }
        connection_key
    }
}

/// Returns `true` if every node has room for all its parts.
fn have_room(parts: &[CommandPart], context: &mut RequestContext<'_>) -> bool {
    let mut counts: BTreeMap<NodeIndex, u32> = BTreeMap::new();
    for part in parts {
        *counts.entry(part.node).or_default() += 1;
    }
    let counts: QueryCounts = counts.into_iter().collect();
    context.has_room_for_all(&counts)
}
