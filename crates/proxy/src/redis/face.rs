//! What clients send, and where it goes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use cluster::slot;
use resp::{Args, Span};

use super::again;
use super::block;
use super::client::{Client, Pending};
use super::commands::{Command, Commands, Special};
use super::join::{Join, Rule};
use super::keeper::State;
use super::map::Map;
use super::route::{self, Part, Way};
use super::wire::LaneName;
use super::{local, lock};
use crate::locks::letters::Letters;
use crate::machine::face::{Desk, Ended, Errand, Face, Letter, Progress};
use crate::machine::query::{ClientId, Lane, NodeIndex, Reply};
use crate::machine::room::Counts;

/// See the module's page.
pub(crate) struct RespFace {
    pub(crate) state: Arc<State>,
    commands: Arc<Commands>,
    pub(super) map: Map,
    version: u64,
    /// The map differs from the keeper's, since the keeper had looked so often.
    learned: Option<u64>,
    spans: Vec<Span>,
    /// From the locks.
    pub(super) letters: Letters,
}

/// What became of one command.
pub(crate) enum Done {
    /// It is answered, or on its way.
    Taken,
    /// It is to be looked at again.
    Not(Progress),
    /// It is answered, and nothing behind it is.
    Last,
}

impl Face for RespFace {
    type Client = Client;

    fn admit(&mut self, id: ClientId, address: SocketAddr) -> Client {
        let free = self.state.password.is_none();
        self.letters.are_of(id.thread);
        Client::new(id, address, self.state.started.elapsed(), free)
    }

    fn patience(&self) -> Option<Duration> {
        let asks = self.state.password.is_some();
        asks.then_some(self.state.limits.greeting)
    }

    fn has_begun(&self, client: &Client) -> bool {
        client.begun
    }

    fn read(&mut self, client: &mut Client, input: &mut BytesMut, desk: &mut Desk<'_>) -> Progress {
        let commands = Arc::clone(&self.commands);
        loop {
            let is_full = client.held() > self.state.limits.unordered;
            if is_full || client.alone && !client.is_idle() {
                return Progress::AwaitsReply;
            }
            let limits = resp::Limits {
                unauthenticated: !client.authenticated,
                ..self.state.limits.request
            };
            let end = match client.parser.parse(input, &limits) {
                Ok(Some(end)) => end,
                Ok(None) => return Progress::Done,
                Err(error) => {
                    let mut text = b"ERR ".to_vec();
                    error.write_text(&mut text);
                    client.answer_with(desk.out, |writer| writer.error_bytes(&text));
                    return Progress::Close;
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
                // Nodes are given lists of bytes alone. What stands behind the line is copied only
                // if the command has to wait: the parser has changed the line.
                let (mut list, spans) = block::list_of(Args::new(input, &spans));
                let whole = list.len();
                let done = self.command(&commands, client, &mut list, &spans, whole, desk);
                input.advance(end);
                if let Done::Not(_) = done {
                    list.extend_from_slice(input);
                    *input = list;
                }
                done
            } else {
                self.command(&commands, client, input, &spans, end, desk)
            };
            self.spans = spans;
            match done {
                Done::Taken => {}
                Done::Not(progress) => return progress,
                Done::Last => return Progress::Close,
            }
        }
    }

    fn reply(&mut self, client: &mut Client, reply: Reply, desk: &mut Desk<'_>) {
        let query = reply.query;
        match reply.result {
            Ok(answer) => match again::hint(&answer).filter(|hint| self.believes(&query, *hint)) {
                Some(hint) => self.redirect(client, query, hint, answer.bytes, desk),
                None => self.settle(client, &query, answer.bytes, reply.connection, desk),
            },
            Err(failure) => self.failed(client, query, &failure, desk),
        }
    }

    fn may_wait_for_ever(&self, client: &Client) -> bool {
        client.waits && !client.is_idle()
    }

    fn gone(&mut self, client: &mut Client, desk: &mut Desk<'_>) {
        for (node, lane) in client.own_lanes.drain(..) {
            desk.hang_up(node, lane);
        }
        self.forget_locks(client);
    }

    fn collect(&mut self, into: &mut Vec<Letter>) {
        self.letters.collect(self.state.locks.as_deref(), into);
    }

    fn has_letters(&self) -> bool {
        self.letters.has_some(self.state.locks.as_deref())
    }

    fn deliver(&mut self, client: &mut Client, letter: Letter, desk: &mut Desk<'_>) {
        self.deliver_letter(client, letter, desk);
    }

    fn ended(&mut self, client: &mut Client, why: Ended, desk: &mut Desk<'_>) -> bool {
        self.give_up_locks(client, why, desk)
    }

    fn refresh(&mut self, _: Duration) {
        let version = self.state.version.load(Ordering::Acquire);
        // What one query has taught is right until the nodes have been asked again.
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

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}

impl RespFace {
    pub(crate) fn new(state: Arc<State>) -> RespFace {
        let known = state.known();
        RespFace {
            version: state.version.load(Ordering::Acquire),
            commands: Arc::clone(&known.commands),
            map: (*known.map).clone(),
            learned: None,
            state,
            spans: Vec::new(),
            letters: Letters::default(),
        }
    }

    /// A node has told that another one has this slot.
    pub(super) fn learn(&mut self, slot: u16, node: NodeIndex) {
        self.map.moved(slot, node);
        self.learned = Some(self.state.looks.load(Ordering::Acquire));
    }

    /// One whole command, at the start of the input.
    fn command(
        &mut self,
        commands: &Commands,
        client: &mut Client,
        input: &mut BytesMut,
        spans: &[Span],
        end: usize,
        desk: &mut Desk<'_>,
    ) -> Done {
        let args = Args::new(input, spans);
        let Some(command) = commands.find(args) else {
            let text = local::unknown(args);
            self.refuse_in(client, &text, desk);
            let _ = input.split_to(end);
            return Done::Taken;
        };
        if command.lacks(args) {
            let text = local::unknown_subcommand(&command.name, args);
            self.refuse_in(client, &text, desk);
            let _ = input.split_to(end);
            return Done::Taken;
        }
        if !command.takes(args.len()) {
            let text = format!(
                "ERR wrong number of arguments for '{}' command",
                command.name
            );
            self.refuse_in(client, &text, desk);
            let _ = input.split_to(end);
            return Done::Taken;
        }
        if !client.authenticated && !local::before_authentication(&command.name) {
            client.refuse(desk.out, "NOAUTH Authentication required.");
            let _ = input.split_to(end);
            return Done::Taken;
        }
        // What stands behind a request to the locks waits for its answer.
        if !client.asked.is_empty() && !matches!(command.special, Special::Lock(_)) {
            client.alone = true;
            return self.not_yet(client, Progress::AwaitsReply);
        }
        let done = match command.special {
            Special::Block => self.block_command(client, command, args, desk),
            _ if client.block.is_some() && !local::leaves_block(&command.name) => {
                self.queue(client, command, args, &input[..end], desk);
                Done::Taken
            }
            Special::Lock(kind) => self.lock(client, command, kind, args, desk),
            Special::Local => local::run(&self.state, client, command, args, desk),
            // By far the most frequent, without looking at anything else.
            Special::None if let Some(key) = command.only_key(args.len()) => {
                let slot = slot::of(args.at(key));
                let node = self.map.of_slot(slot);
                if !desk.has_room(node) {
                    return self.not_yet(client, Progress::AwaitsRoom);
                }
                let bytes = input.split_to(end).freeze();
                let errand = self.errand(client, command, node, route::route(slot));
                desk.send(errand, bytes);
                return Done::Taken;
            }
            _ => self.send(client, command, args, &input[..end], desk),
        };
        match done {
            Done::Not(progress) => self.not_yet(client, progress),
            done => {
                let _ = input.split_to(end);
                done
            }
        }
    }

    /// The command stays in the input.
    fn not_yet(&self, client: &mut Client, progress: Progress) -> Done {
        client.parser.reset();
        Done::Not(progress)
    }

    /// The errand of a command that one node answers.
    fn errand(
        &self,
        client: &mut Client,
        command: &Command,
        node: NodeIndex,
        route: u32,
    ) -> Errand {
        Errand {
            sequence: client.expect(Pending::Waiting),
            part: 0,
            node,
            lane: self.lane(client),
            replies: 1,
            safe: command.read_only,
            route: route::marked(route, command),
            connection: None,
        }
    }

    /// The lane that a client shares with others. Always the same one, so that its commands on one
    /// key keep their order.
    pub(super) fn lane(&self, client: &Client) -> Lane {
        let name = LaneName {
            resp3: client.protocol == resp::Protocol::Resp3,
            index: (client.id.number % u32::from(self.state.lanes)) as u8,
            own: None,
        };
        name.lane()
    }

    /// A command that goes to nodes, any but the simplest.
    fn send(
        &mut self,
        client: &mut Client,
        command: &Command,
        args: Args<'_>,
        bytes: &[u8],
        desk: &mut Desk<'_>,
    ) -> Done {
        let any = client.id.number as usize;
        match route::way(self.state.kind, &self.map, command, args, any) {
            Way::Refused(text) => {
                let code = text.split(' ').next().unwrap_or_default();
                let coded = code.bytes().all(|byte| byte.is_ascii_uppercase());
                let text = if coded {
                    text.to_owned()
                } else {
                    format!("ERR {text}")
                };
                client.refuse(desk.out, &text);
            }
            Way::One { node, route } => {
                if !desk.has_room(node) {
                    return Done::Not(Progress::AwaitsRoom);
                }
                let errand = self.errand(client, command, node, route);
                if self.state.locks.is_some()
                    && let Some(telling) = lock::telling(command, args)
                    && let Some(pending) = client.pending(errand.sequence)
                {
                    *pending = Pending::Commands(telling);
                }
                desk.send(errand, Bytes::copy_from_slice(bytes));
            }
            Way::Alone { node, route } => {
                if !client.is_idle() {
                    client.alone = true;
                    return Done::Not(Progress::AwaitsReply);
                }
                if !desk.has_room(node) {
                    return Done::Not(Progress::AwaitsRoom);
                }
                client.alone = true;
                let errand = self.errand(client, command, node, route);
                desk.send(errand, Bytes::copy_from_slice(bytes));
            }
            Way::Own { node, route } => {
                if !client.is_idle() {
                    client.alone = true;
                    return Done::Not(Progress::AwaitsReply);
                }
                (client.alone, client.waits) = (true, true);
                let mut errand = self.errand(client, command, node, route);
                errand.lane = self.own_lane(client, node);
                errand.safe = false;
                desk.send_waiting(errand, Bytes::copy_from_slice(bytes));
            }
            Way::Parts { parts, rule } => {
                if !have_room(&parts, desk) {
                    return Done::Not(Progress::AwaitsRoom);
                }
                self.send_parts(client, command, parts, rule, desk);
            }
            Way::Scan { cursors, part } => {
                if !desk.has_room(part.node) {
                    return Done::Not(Progress::AwaitsRoom);
                }
                let mut errand = self.errand(client, command, part.node, 0);
                if let Some(pending) = client.pending(errand.sequence) {
                    *pending = Pending::Scan(cursors);
                }
                errand.safe = true;
                desk.send(errand, part.bytes);
            }
        }
        Done::Taken
    }

    fn send_parts(
        &mut self,
        client: &mut Client,
        command: &Command,
        parts: Vec<Part>,
        rule: Rule,
        desk: &mut Desk<'_>,
    ) {
        let lane = self.lane(client);
        let join = Join::new(rule, command.read_only, parts.len());
        let sequence = client.expect(Pending::Join(Box::new(join)));
        for (part, piece) in parts.into_iter().enumerate() {
            let errand = Errand {
                sequence,
                part: part as u32,
                node: piece.node,
                lane,
                replies: 1,
                safe: command.read_only,
                route: piece.route,
                connection: None,
            };
            desk.send(errand, piece.bytes);
        }
    }

    /// A lane of the client alone.
    pub(super) fn own_lane(&self, client: &mut Client, node: NodeIndex) -> Lane {
        let resp3 = client.protocol == resp::Protocol::Resp3;
        let lane = LaneName::of_client(resp3, client.id).lane();
        if !client.own_lanes.contains(&(node, lane)) {
            client.own_lanes.push((node, lane));
        }
        lane
    }
}

/// Whether every node has room for all its parts.
fn have_room(parts: &[Part], desk: &mut Desk<'_>) -> bool {
    let mut counts: BTreeMap<NodeIndex, u32> = BTreeMap::new();
    for part in parts {
        *counts.entry(part.node).or_default() += 1;
    }
    let counts: Counts = counts.into_iter().collect();
    desk.has_room_for_all(&counts)
}

#[cfg(test)]
mod tests;
