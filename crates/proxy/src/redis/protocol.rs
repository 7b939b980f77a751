//! The client side of RESP: reads commands and sends them to nodes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use channels::frames::{may_subscriber_give, refuse_subscriber};
use cluster::slot;
use resp::{Args, Span};

use super::client::RedisClient;
use super::commands::{Commands, NodeCommand, Special};
use super::delayed_refusals::DelayedRefusals;
use super::multi_block;
use super::outcome::{CommandOutcome, DeferredOutcome};
use super::route;
use super::shared_state::RedisState;
use super::slot_map::SlotMap;
use super::thread_subscribers::ThreadSubscribers;
use super::thread_tracking::ThreadTracking;
use super::{delayed_refusals, local_commands};
use super::{repeated_script, retry_policy};
use crate::locks::pending_requests::PendingRequests;
use crate::runtime::protocol::{
    ClientProtocol, DeferredReply, EndReason, InputProgress, RequestContext,
};
use crate::runtime::query::{BackendReply, ClientId, NodeIndex};

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
    pub(super) caching_clients: ThreadTracking,
}

impl ClientProtocol for RedisProtocol {
    type Client = RedisClient;
    type Outcome = DeferredOutcome;

    fn admit(&mut self, id: ClientId, address: SocketAddr) -> RedisClient {
        let free = self.state.password.is_none();
        self.lock_replies.are_of(id.thread);
        self.subscribers.are_of(id.thread);
        self.state.tracking.admit(id);
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
                        self.note_answer(client, &query);
                        let bytes = repeated_script::own_reply(&query, answer);
                        self.settle(client, &query, bytes, reply.connection, context);
                    }
                }
            }
            Err(failure) => self.failed(client, query, &failure, context),
        }
        self.write_waiting_news(client, context);
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
        self.end_tracking(client);
        self.state.tracking.forget(client.id);
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
        let service = &self.state.subscriptions;
        self.subscribers
            .collect(service, &mut self.caching_clients, into);
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
            DeferredOutcome::Tracking(result) => {
                self.tracking_begun(client, sequence, result, context);
            }
            DeferredOutcome::Invalidated { keys, redirected } => {
                self.keys_changed(client, (keys, redirected), context);
            }
        }
        self.write_waiting_news(client, context);
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
        let caching = client.tracking.as_ref().map_or(0, |own| own.bytes());
        client.subscriptions.bytes() + caching
    }

    fn gets_messages(&self, client: &RedisClient) -> bool {
        client.subscriptions.any() || client.tracking.is_some()
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
            caching_clients: ThreadTracking::default(),
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
        let noted = self.before_command(client, command, args);
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
            Special::Local => self.local_command(client, command, args, context),
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
                if let Some(noted) = noted {
                    self.after_command(client, command, noted, &CommandOutcome::Handled);
                }
                return CommandOutcome::Handled;
            }
            _ => self.send(client, command, args, &input[..end], context),
        };
        if let Some(noted) = noted {
            self.after_command(client, command, noted, &done);
        }
        match done {
            CommandOutcome::PutBack(progress) => self.not_yet(client, progress),
            done => {
                let _ = input.split_to(end);
                done
            }
        }
    }

    /// Answers a command about the connection, or the proxy itself.
    fn local_command(
        &mut self,
        client: &mut RedisClient,
        command: &NodeCommand,
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        let word = args.get(1).unwrap_or_default();
        if command.name.starts_with("client") && word.eq_ignore_ascii_case(b"tracking") {
            self.client_tracking(client, args, context);
            return CommandOutcome::Handled;
        }
        if &*command.name == "reset" && client.is_idle() {
            self.unsubscribe_all(client);
            self.end_tracking(client);
        }
        local_commands::run(&self.state, client, command, args, context)
    }

    /// Leaves the command in the input.
    fn not_yet(&self, client: &mut RedisClient, progress: InputProgress) -> CommandOutcome {
        client.parser.reset();
        CommandOutcome::PutBack(progress)
    }
}

#[cfg(test)]
mod tests;
