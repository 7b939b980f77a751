//! The nodes' replies, and queries that got none.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use super::client::{Pending, RedisClient};
use super::protocol::RedisProtocol;
use super::retry_policy::{self, RetryHint};
use super::wire::RedisConnectionProperties;
use super::{command_docs, repeated_script, route};
use crate::config::UnknownOutcome;
use crate::node_kind::NodeKind;
use crate::runtime::protocol::RequestContext;
use crate::runtime::query::{BackendAnswer, BackendQuery, NodeIndex, QueryFailure};

/// Precedes a command that another node is to execute although the slot is not its own yet.
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

impl RedisProtocol {
    /// Returns `true` if an error can be believed. Scripts and functions answer with any text that
    /// their authors like, and servers that know of no others have no reason to name one. A redirection
    /// from a script is followed once, to a node that is known and that checks itself if it has the
    /// slot; the script is not sent twice to a node that may have executed it. Nodes of Kumiki say that
    /// nothing has happened, and their errors cannot be those of a script that was sent again.
    pub(super) fn believes(&self, query: &BackendQuery, hint: RetryHint, error: &[u8]) -> bool {
        let kumiki = self.state.kind == NodeKind::Kumiki;
        let script = route::is_script(query.route) && !repeated_script::is_in_block(query);
        match hint {
            RetryHint::Later => {
                !script || query.safe || kumiki && retry_policy::says_nothing_happened(error)
            }
            RetryHint::Unknown => query.safe,
            _ if self.state.kind == NodeKind::RedisServers => false,
            RetryHint::Moved { slot, to } | RetryHint::Ask { slot, to } => {
                let other = |to| {
                    self.known_node(Some(to))
                        .is_some_and(|node| node != query.node)
                };
                !script
                    || query.retries == 0
                        && route::slot_of(query.route) == Some(slot)
                        && to.is_some_and(other)
            }
        }
    }

    /// Returns the node at an address, if nodes have reported it to the refresher. The proxy gives its
    /// password to no other.
    fn known_node(&self, to: Option<SocketAddr>) -> Option<NodeIndex> {
        let to = to?;
        (self.state.knows(to)).then(|| self.state.nodes.place(to))
    }

    /// Handles the reply to a query.
    pub(super) fn settle(
        &mut self,
        client: &mut RedisClient,
        query: &BackendQuery,
        bytes: Bytes,
        connection: u64,
        context: &mut RequestContext<'_>,
    ) {
        let protocol = client.protocol;
        let kumiki = self.state.kind == NodeKind::Kumiki;
        let reply = match client.pending(query.sequence) {
            None | Some(Pending::Waiting | Pending::Ready(_) | Pending::Lost) => bytes,
            Some(Pending::Scan(cursors)) => route::scanned(&bytes, *cursors),
            Some(Pending::Published(message)) => {
                message.reply(&self.state.subscriptions, query.node, bytes)
            }
            Some(Pending::Commands(telling)) => command_docs::told(&bytes, telling, protocol),
            Some(Pending::Merging(join)) => match join.add(query.part, bytes, protocol) {
                Some(whole) => whole,
                None => return,
            },
            Some(Pending::ThreadWatch(keys)) if bytes.first() != Some(&b'-') => {
                let keys = std::mem::take(keys);
                client.watches.note(&keys);
                if kumiki {
                    let versions = super::reply_merge::elements(&bytes);
                    let versions = versions.iter().map(|one| Bytes::copy_from_slice(bulk(one)));
                    client
                        .watches
                        .versions
                        .extend(keys.into_iter().zip(versions));
                } else {
                    client.watches.own = Some((query.node, query.connection_key, connection));
                }
                Bytes::from_static(b"+OK\r\n")
            }
            Some(Pending::ThreadWatch(_)) => bytes,
        };
        self.answer(client, query, reply, context);
        release_own(client, query, context);
    }

    /// Gives a client the reply to a query, or closes its connection if the outcome of the query is not known.
    fn answer(
        &self,
        client: &mut RedisClient,
        query: &BackendQuery,
        reply: Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let closes = self.state.unknown_outcome == UnknownOutcome::Close;
        if closes && retry_policy::is_unknown(&reply) {
            self.state.warn(
                "a client is closed: the outcome of its command is not known (--unknown-outcome)",
            );
            client.lose(context.out, query.sequence);
        } else {
            client.settle(context.out, query.sequence, reply);
        }
    }

    /// Follows a node's redirection to another node, or its request to retry.
    pub(super) fn redirect(
        &mut self,
        client: &mut RedisClient,
        query: BackendQuery,
        hint: RetryHint,
        answer: BackendAnswer,
        context: &mut RequestContext<'_>,
    ) {
        let error = repeated_script::own_reply(&query, answer);
        let query = self.to_repeat(query);
        let own = query.connection.is_some();
        let Some(pause) = retry_policy::pause(&query, context.now, self.state.patience) else {
            let refused = retry_policy::refused(&error, self.state.nodes.address(query.node));
            return self.settle(client, &query, refused, 0, context);
        };
        // Later commands of the client must not overtake a query that is sent again.
        client.alone = true;
        match hint {
            // The watched keys of a connection do not move with it.
            _ if own => {
                self.state.request_refresh();
                let reply = lost_watch(client, &query);
                self.settle_failed(client, &query, reply, context);
            }
            RetryHint::Moved { slot, to }
                if let Some(node) = self.known_node(to)
                    && route::slot_of(query.route).is_none_or(|own| own == slot) =>
            {
                // A script's reply must not change the map that all clients share.
                if route::slot_of(query.route).is_some() && !route::is_script(query.route) {
                    self.learn(slot, node);
                }
                self.state.request_refresh();
                let pause = if query.retries == 0 {
                    Duration::ZERO
                } else {
                    pause
                };
                send_again(client, query, node, pause, context);
            }
            RetryHint::Ask { to, .. }
                if let Some(node) = self.known_node(to)
                    && query.replies == 1 =>
            {
                let mut bytes = ASKING.to_vec();
                bytes.extend_from_slice(&query.bytes);
                let asking = BackendQuery {
                    bytes: bytes.into(),
                    replies: 2,
                    ..query
                };
                send_again(client, asking, node, Duration::ZERO, context);
            }
            RetryHint::Moved { .. }
            | RetryHint::Ask { .. }
            | RetryHint::Later
            | RetryHint::Unknown => {
                self.state.request_refresh();
                let node = self.node_again(client, &query);
                send_again(client, query, node, pause, context);
            }
        }
    }

    /// Returns the node to which a query goes when it is sent again. A query without keys goes to
    /// another node than before, if any node will do.
    fn node_again(&self, client: &mut RedisClient, query: &BackendQuery) -> NodeIndex {
        if let Some(slot) = route::slot_of(query.route) {
            return self.map.of_slot(slot);
        }
        if !matches!(client.pending(query.sequence), Some(Pending::Waiting)) {
            return query.node;
        }
        let all = self.map.all();
        let at = all.iter().position(|&node| node == query.node);
        all[at.map_or(0, |at| at + 1) % all.len()]
    }

    /// Returns a query in the form in which it is sent again.
    fn to_repeat(&self, query: BackendQuery) -> BackendQuery {
        match self.state.kind {
            NodeKind::Kumiki => repeated_script::in_block(plain(query)),
            _ => plain(query),
        }
    }

    /// Handles a query that has no answer.
    pub(super) fn failed(
        &mut self,
        client: &mut RedisClient,
        query: BackendQuery,
        failure: &QueryFailure,
        context: &mut RequestContext<'_>,
    ) {
        let query = self.to_repeat(query);
        self.state.request_refresh();
        if query.connection.is_some() {
            // The connection that watched is gone: the watched keys may have changed.
            let lost = matches!(failure, QueryFailure::Unsent(_)) || query.safe;
            if lost {
                let reply = lost_watch(client, &query);
                return self.settle_failed(client, &query, reply, context);
            }
        }
        let pause = retry_policy::pause(&query, context.now, self.state.patience);
        match pause {
            Some(pause)
                if query.connection.is_none() && retry_policy::may_repeat(&query, failure) =>
            {
                client.alone = true;
                let node = self.node_again(client, &query);
                send_again(client, query, node, pause, context);
            }
            _ => {
                let told =
                    retry_policy::told(failure, query.safe, self.state.nodes.address(query.node));
                self.settle_failed(client, &query, told, context);
            }
        }
    }

    fn settle_failed(
        &mut self,
        client: &mut RedisClient,
        query: &BackendQuery,
        reply: Bytes,
        context: &mut RequestContext<'_>,
    ) {
        match client.pending(query.sequence) {
            Some(Pending::Merging(_)) => self.settle(client, query, reply, 0, context),
            _ => self.answer(client, query, reply, context),
        }
        release_own(client, query, context);
    }
}

/// Releases a connection of the client's own, unless it watches: it costs the node one more connection.
fn release_own(client: &RedisClient, query: &BackendQuery, context: &mut RequestContext<'_>) {
    let watches =
        |(node, connection_key, _)| (node, connection_key) == (query.node, query.connection_key);
    if RedisConnectionProperties::of(query.connection_key)
        .own
        .is_some()
        && !client.watches.own.is_some_and(watches)
    {
        context.release(query.node, query.connection_key);
    }
}

/// Sends a query once more. If its connection key is the client's own, the connection is recorded for
/// that node as well, so that it is closed when the client goes.
fn send_again(
    client: &mut RedisClient,
    query: BackendQuery,
    node: NodeIndex,
    pause: Duration,
    context: &mut RequestContext<'_>,
) {
    // Queries that are sent again keep their order, although some of them were tried more often.
    let waits = client.last_again.is_some_and(|last| last >= context.now);
    let due = client
        .last_again
        .unwrap_or_default()
        .max(context.now + pause);
    if waits || !pause.is_zero() {
        client.last_again = Some(due);
    }
    // Queries that wait for this moment have not left yet.
    let least = if waits {
        Duration::from_nanos(1)
    } else {
        Duration::ZERO
    };
    let pause = due.saturating_sub(context.now).max(least);
    let own = (node, query.connection_key);
    if RedisConnectionProperties::of(query.connection_key)
        .own
        .is_some()
        && !client.own_connections.contains(&own)
    {
        client.own_connections.push(own);
    }
    context.send_again(query, node, pause);
}

/// Returns a query as it was before another node was asked.
fn plain(query: BackendQuery) -> BackendQuery {
    if query.replies == 2 && query.bytes.starts_with(ASKING) {
        let bytes = query.bytes.slice(ASKING.len()..);
        return BackendQuery {
            bytes,
            replies: 1,
            ..query
        };
    }
    query
}

/// Handles that the connection that watched is of no use any more: the watched keys may have changed.
/// Returns the reply to this query: a block is not executed. The next block is not executed either.
fn lost_watch(client: &mut RedisClient, query: &BackendQuery) -> Bytes {
    let resp3 = client.protocol == resp::Protocol::Resp3;
    match client.pending(query.sequence) {
        Some(Pending::ThreadWatch(_)) => {
            client.watches.lost = true;
            Bytes::from_static(b"+OK\r\n")
        }
        _ if resp3 => Bytes::from_static(b"_\r\n"),
        _ => Bytes::from_static(b"*-1\r\n"),
    }
}

/// Returns the bytes of a bulk string.
fn bulk(reply: &[u8]) -> &[u8] {
    let Some(head) = reply.iter().position(|&byte| byte == b'\n') else {
        return &[];
    };
    reply[head + 1..].strip_suffix(b"\r\n").unwrap_or_default()
}
