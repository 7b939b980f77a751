//! The client side of RESP: reads commands and sends them to nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use channels::frames::{may_subscriber_give, refuse_subscriber};
use cluster::slot;
use resp::{Args, Span};

use super::client::{Pending, RedisClient};
use super::commands::{Commands, NodeCommand, Special};
use super::delayed_refusals::DelayedRefusals;
use super::multi_block;
use super::outcome::{CommandOutcome, DeferredOutcome};
use super::reply_merge::{MergeRule, ReplyMerge};
use super::route::{self, CommandPart, CommandRoute};
use super::shared_state::RedisState;
use super::slot_map::SlotMap;
use super::thread_subscribers::ThreadSubscribers;
use super::wire::RedisConnectionProperties;
use super::{command_docs, delayed_refusals, local_commands};
use super::{repeated_script, retry_policy};
use crate::locks::pending_requests::PendingRequests;
use crate::runtime::inflight_budget::QueryCounts;
use crate::runtime::protocol::{
    ClientProtocol, DeferredReply, Dispatch, EndReason, InputProgress, RequestContext,
};
use crate::runtime::query::{BackendReply, ClientId, ConnectionKey, NodeIndex};

/// See the module documentation.
pub(crate) struct RedisProtocol {
    pub(crate) state: Arc<RedisState>,
    commands: Arc<Commands>,
    pub(super) map: SlotMap,
    version: u64,
    /// The map was changed by a node's reply, at this count of the refresher's looks.
    learned: Option<u64>,
    spans: Vec<Span>,
    /// Requests that wait for the locks.
    pub(super) lock_replies: PendingRequests,
    delayed_refusals: DelayedRefusals,
    pub(super) subscribers: ThreadSubscribers,
}

impl ClientProtocol for RedisProtocol {
    type Client = RedisClient;
    type Outcome = DeferredOutcome;

    fn admit(&mut self, id: ClientId, address: SocketAddr) -> RedisClient {
        let free = self.state.password.is_none();
        self.lock_replies.are_of(id.thread);
        self.subscribers.are_of(id.thread);
        RedisClient::new(id, address, self.state.started.elapsed(), free)
    }

    fn patience(&self) -> Option<Duration> {
        let asks = self.state.password.is_some();
        asks.then_some(self.state.limits.greeting)
    }

    fn has_begun(&self, client: &RedisClient) -> bool {
        client.begun
    }

    fn read(
        &mut self,
        client: &mut RedisClient,
        input: &mut BytesMut,
        context: &mut RequestContext<'_>,
    ) -> InputProgress {
        let commands = Arc::clone(&self.commands);
        loop {
            let is_full = client.held() > self.state.limits.unordered;
            if is_full || client.alone && !client.is_idle() {
                return InputProgress::AwaitsReply;
            }
            let limits = resp::Limits {
                unauthenticated: !client.authenticated,
                ..self.state.limits.request
            };
            let end = match client.parser.parse(input, &limits) {
                Ok(Some(end)) => end,
                Ok(None) => return InputProgress::Done,
                Err(error) => {
                    let mut text = b"ERR ".to_vec();
                    error.write_text(&mut text);
                    client.answer_with(context.out, |writer| writer.error_bytes(&text));
                    return InputProgress::Close;
                }
            };
            self.spans.clear();
            self.spans.extend_from_slice(client.parser.spans());
            if self.spans.is_empty() {
                let _ = input.split_to(end);
                continue;
            }
            let spans = std::mem::take(&mut self.spans);
            let done = if input[0] != b'*' {
                // Nodes get only lists of bulk strings. Input after the line is copied only if the
                // command has to wait: the parser has changed the line.
                let (mut list, spans) = multi_block::list_of(Args::new(input, &spans));
                let whole = list.len();
                let done = self.command(&commands, client, &mut list, &spans, whole, context);
                input.advance(end);
                if let CommandOutcome::PutBack(_) = done {
                    list.extend_from_slice(input);
                    *input = list;
                }
                done
            } else {
                self.command(&commands, client, input, &spans, end, context)
            };
            self.spans = spans;
            match done {
                CommandOutcome::Handled => {}
                CommandOutcome::PutBack(progress) => return progress,
                CommandOutcome::Close => return InputProgress::Close,
                CommandOutcome::WrongPassword => self.delayed_refusals.add(client, context),
            }
        }
    }

    fn reply(
        &mut self,
        client: &mut RedisClient,
        reply: BackendReply,
        context: &mut RequestContext<'_>,
    ) {
        let query = reply.query;
        match reply.result {
            Ok(answer) => {
                match retry_policy::hint(&answer)
                    .filter(|hint| self.believes(&query, *hint, &answer.bytes))
                {
                    Some(hint) => self.redirect(client, query, hint, answer, context),
                    None => {
                        let bytes = repeated_script::own_reply(&query, answer);
                        self.settle(client, &query, bytes, reply.connection, context);
                    }
                }
            }
            Err(failure) => self.failed(client, query, &failure, context),
        }
    }

    fn may_wait_for_ever(&self, client: &RedisClient) -> bool {
        client.waits && !client.is_idle()
    }

    fn is_over(&self, client: &RedisClient) -> bool {
        client.is_lost()
    }

    fn gone(&mut self, client: &mut RedisClient, context: &mut RequestContext<'_>) {
        for (node, connection_key) in client.own_connections.drain(..) {
            context.hang_up(node, connection_key);
        }
        self.forget_locks(client);
        self.unsubscribe_all(client);
    }

    fn collect(&mut self, now: Duration, into: &mut Vec<DeferredReply<DeferredOutcome>>) {
        let mut lock_replies = Vec::new();
        let locks = self.state.locks.as_deref();
        self.lock_replies.collect(locks, &mut lock_replies);
        into.extend(lock_replies.into_iter().map(|reply| {
            let outcome = DeferredOutcome::Lock(reply.outcome);
            DeferredReply::awaited(reply.client, reply.sequence, outcome)
        }));
        self.delayed_refusals.collect(now, into);
        self.subscribers.collect(&self.state.subscriptions, into);
    }

    fn has_deferred_replies(&self) -> bool {
        self.lock_replies.has_some(self.state.locks.as_deref())
            || self.subscribers.has_events(&self.state.subscriptions)
    }

    fn deliver(
        &mut self,
        client: &mut RedisClient,
        reply: DeferredReply<DeferredOutcome>,
        context: &mut RequestContext<'_>,
    ) {
        let sequence = reply.sequence;
        match reply.outcome {
            DeferredOutcome::Lock(outcome) => {
                self.deliver_lock_reply(client, sequence, &outcome, context);
            }
            DeferredOutcome::WrongPassword => delayed_refusals::refuse(client, sequence, context),
            DeferredOutcome::Subscribed(confirmed) => {
                self.subscribed(client, (sequence, &confirmed), context);
            }
            DeferredOutcome::NotSubscribed(error) => client.settle(context.out, sequence, error),
            DeferredOutcome::Message(message) => self.deliver_message(client, &message, context),
        }
    }

    fn next_deferred_reply(&self) -> Option<Duration> {
        self.delayed_refusals.next()
    }

    fn ended(
        &mut self,
        client: &mut RedisClient,
        why: EndReason,
        context: &mut RequestContext<'_>,
    ) -> bool {
        self.give_up_locks(client, why, context)
    }

    fn refresh(&mut self, _: Duration) {
        let version = self.state.version.load(Ordering::Acquire);
        // The knowledge from one reply holds until the nodes have been asked again.
        let old = self
            .learned
            .is_some_and(|looks| self.state.looks.load(Ordering::Acquire) != looks);
        if version != self.version || old {
            let known = self.state.known();
            self.version = version;
            self.learned = None;
            self.commands = Arc::clone(&known.commands);
            self.map = (*known.map).clone();
        }
    }

    fn held_bytes(&self, client: &RedisClient) -> usize {
        client.subscriptions.bytes()
    }

    fn gets_messages(&self, client: &RedisClient) -> bool {
        client.subscriptions.any()
    }

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}

impl RedisProtocol {
    pub(crate) fn new(state: Arc<RedisState>) -> RedisProtocol {
        let known = state.known();
        RedisProtocol {
            version: state.version.load(Ordering::Acquire),
            commands: Arc::clone(&known.commands),
            map: (*known.map).clone(),
            learned: None,
            state,
            spans: Vec::new(),
            lock_replies: PendingRequests::default(),
            delayed_refusals: DelayedRefusals::default(),
            subscribers: ThreadSubscribers::default(),
        }
    }

    /// Records a node's reply that another node has this slot.
    pub(super) fn learn(&mut self, slot: u16, node: NodeIndex) {
        self.map.moved(slot, node);
        self.learned = Some(self.state.looks.load(Ordering::Acquire));
    }

    /// Handles one whole command at the start of the input.
    fn command(
        &mut self,
        commands: &Commands,
        client: &mut RedisClient,
        input: &mut BytesMut,
        spans: &[Span],
        end: usize,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        let args = Args::new(input, spans);
        let Some(command) = commands.find(args) else {
            let text = local_commands::unknown(args);
            self.refuse_in(client, &text, context);
            let _ = input.split_to(end);
            return CommandOutcome::Handled;
        };
        if command.lacks(args) {
            let text = local_commands::unknown_subcommand(&command.name, args);
            self.refuse_in(client, &text, context);
            let _ = input.split_to(end);
            return CommandOutcome::Handled;
        }
        if !command.takes(args.len()) {
            let text = format!(
                "ERR wrong number of arguments for '{}' command",
                command.name
            );
            self.refuse_in(client, &text, context);
            let _ = input.split_to(end);
            return CommandOutcome::Handled;
        }
        if !client.authenticated && !local_commands::before_authentication(&command.name) {
            client.refuse(context.out, "NOAUTH Authentication required.");
            let _ = input.split_to(end);
            return CommandOutcome::Handled;
        }
        if client.takes_only_messages() && !may_subscriber_give(&command.name) {
            client.answer_with(context.out, |writer| {
                refuse_subscriber(&command.name, writer);
            });
            let _ = input.split_to(end);
            return CommandOutcome::Handled;
        }
        // Commands after a request to the locks wait for its answer.
        if !client.asked.is_empty() && !matches!(command.special, Special::Lock(_)) {
            client.alone = true;
            return self.not_yet(client, InputProgress::AwaitsReply);
        }
        let done = match command.special {
            Special::Block => self.block_command(client, command, args, context),
            _ if client.block.is_some() && !local_commands::leaves_block(&command.name) => {
                self.queue(client, command, args, &input[..end], context);
                CommandOutcome::Handled
            }
            Special::Lock(kind) => self.lock(client, command, kind, args, context),
            Special::Subscription(change, kind) => {
                self.change_subscriptions(client, (change, kind), args, context)
            }
            Special::Publish => self.publish(client, command, args, &input[..end], context),
            Special::Local => {
                if &*command.name == "reset" && client.is_idle() {
                    self.unsubscribe_all(client);
                }
                local_commands::run(&self.state, client, command, args, context)
            }
            // By far the most frequent case; it needs no further checks.
            Special::None if let Some(key) = command.only_key(args.len()) => {
                let slot = slot::of(args.at(key));
                let node = self.map.of_slot(slot);
                if !context.has_room(node) {
                    return self.not_yet(client, InputProgress::AwaitsRoom);
                }
                let bytes = input.split_to(end).freeze();
                let dispatch = self.dispatch(client, command, node, route::route(slot));
                context.send(dispatch, bytes);
                return CommandOutcome::Handled;
            }
            _ => self.send(client, command, args, &input[..end], context),
        };
        match done {
            CommandOutcome::PutBack(progress) => self.not_yet(client, progress),
            done => {
                let _ = input.split_to(end);
                done
            }
        }
    }

    /// Leaves the command in the input.
    fn not_yet(&self, client: &mut RedisClient, progress: InputProgress) -> CommandOutcome {
        client.parser.reset();
        CommandOutcome::PutBack(progress)
    }

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
    fn send(
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

#[cfg(test)]
mod tests;
