//! The state of a client, and its replies in the order of its commands.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use base::passwords::LoginDelay;
use bytes::Bytes;
use channels::ClientSubscriptions;
use resp::{Parser, Protocol, Writer};

use super::caching_client::CachingClient;
use super::command_docs::CommandQuery;
use super::commands::LockCommand;
use super::multi_block::{Block, Watches};
use super::publish_request::PublishRequest;
use super::reply_merge::ReplyMerge;
use super::route::ScanCursors;
use crate::locks::pending_requests::PendingRequest;
use crate::runtime::out_batch::OutBatch;
use crate::runtime::query::ClientId;

/// A command whose reply has not left.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The node's reply is the client's reply.
    Waiting,
    /// The replies of several nodes are merged into the client's.
    Merging(Box<ReplyMerge>),
    /// One step of a `SCAN` over all nodes.
    Scan(ScanCursors),
    /// A `WATCH`: the keys' versions will come, or the number of the connection that watches.
    ThreadWatch(Vec<Bytes>),
    /// A `PUBLISH`: the receivers are counted.
    Published(PublishRequest),
    /// A `COMMAND`: the proxy's commands about locks are added.
    Commands(CommandQuery),
    /// A reply that waits for the replies before it.
    Ready(Bytes),
    /// Its outcome is not known: the connection is closed in place of its reply.
    Lost,
}

impl Pending {
    /// Returns the bytes that a reply takes while it waits; `None`: it has not come.
    fn held(&self) -> Option<usize> {
        match self {
            Pending::Ready(reply) => Some(reply.len() + size_of::<Pending>()),
            Pending::Lost => Some(0),
            _ => None,
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RedisClient {
    pub(crate) id: ClientId,
    pub(crate) address: SocketAddr,
    /// The time at which it connected, since the proxy's start.
    pub(crate) since: Duration,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    pub(crate) login_delay: LoginDelay,
    /// It is authenticated, or was once: then its connection may stay.
    pub(crate) begun: bool,
    /// The database that it has selected.
    pub(crate) database: u8,
    pub(crate) name: Bytes,
    pub(crate) library: [Bytes; 2],
    pub(crate) parser: Parser,
    pub(crate) subscriptions: ClientSubscriptions,
    /// Its client-side caching, if that is on.
    pub(crate) tracking: Option<Box<CachingClient>>,
    pub(crate) block: Option<Block>,
    pub(crate) watches: Watches,
    /// The last command is executed by one node for several nodes: the next waits until it has ended.
    pub(crate) alone: bool,
    /// The time at which the last of the queries to be sent again will be sent.
    pub(crate) last_again: Option<Duration>,
    /// The last command waits for an event.
    pub(crate) waits: bool,
    /// It has, or had, a connection of its own to some node.
    pub(crate) own_connections: Vec<(
        crate::runtime::query::NodeIndex,
        crate::runtime::query::ConnectionKey,
    )>,
    /// Its requests to the lock service, by their numbers.
    pub(crate) asked: BTreeMap<u64, PendingRequest<LockCommand>>,
    pending: VecDeque<Pending>,
    /// How many of `pending` have no reply yet.
    unready: usize,
    /// The size of the replies in `pending`, in bytes.
    held: usize,
    /// The number of the first command of `pending`.
    first: u64,
    /// The outcome of a command is not known, and all replies before it have left: no other leaves.
    is_lost: bool,
}

impl RedisClient {
    pub(crate) fn new(
        id: ClientId,
        address: SocketAddr,
        since: Duration,
        authenticated: bool,
    ) -> RedisClient {
        RedisClient {
            id,
            address,
            since,
            protocol: Protocol::Resp2,
            authenticated,
            login_delay: LoginDelay::default(),
            begun: authenticated,
            database: 0,
            name: Bytes::new(),
            library: [Bytes::new(), Bytes::new()],
            parser: Parser::new(),
            subscriptions: ClientSubscriptions::default(),
            tracking: None,
            block: None,
            watches: Watches::default(),
            alone: false,
            last_again: None,
            waits: false,
            own_connections: Vec::new(),
            asked: BTreeMap::new(),
            pending: VecDeque::new(),
            unready: 0,
            held: 0,
            first: 0,
            is_lost: false,
        }
    }

    /// Returns `true` if the connection is to be closed, because the outcome of a command is not known.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns `true` if the client has subscriptions and speaks the older protocol, in which messages
    /// cannot be told from replies.
    pub(crate) fn takes_only_messages(&self) -> bool {
        self.subscriptions.any() && self.protocol == Protocol::Resp2
    }

    /// Records that the client has given the password.
    pub(crate) fn is_known(&mut self) {
        (self.authenticated, self.begun) = (true, true);
    }

    /// Returns `true` if every command has its reply.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns `true` if it waits for nothing but locks.
    pub(crate) fn has_asked_locks_alone(&self) -> bool {
        self.pending.is_empty() || (!self.asked.is_empty() && self.unready == self.asked.len())
    }

    /// Returns the size, in bytes, of the replies that wait for earlier replies.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of the next command.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.pending.len() as u64
    }

    /// Returns the number of the first command whose reply has not left.
    pub(crate) fn first_number(&self) -> u64 {
        self.first
    }

    /// Begins a command, and returns its number.
    pub(crate) fn expect(&mut self, pending: Pending) -> u64 {
        self.unready += 1;
        self.pending.push_back(pending);
        self.next_number() - 1
    }

    /// Returns the state of a command that has no reply yet.
    pub(crate) fn pending(&mut self, sequence: u64) -> Option<&mut Pending> {
        let at = sequence.checked_sub(self.first)?;
        self.pending.get_mut(usize::try_from(at).ok()?)
    }

    /// Answers the next command at once, after the replies to earlier commands.
    pub(crate) fn answer(&mut self, out: &mut OutBatch, reply: Bytes) {
        if self.pending.is_empty() {
            self.first += 1;
            out.put(&reply);
        } else {
            self.keep(Pending::Ready(reply));
        }
    }

    /// Keeps a reply that waits for earlier replies.
    fn keep(&mut self, ready: Pending) {
        self.held += ready.held().unwrap_or_default();
        self.pending.push_back(ready);
    }

    /// Answers the next command like [`RedisClient::answer`], with a reply that `write` makes.
    pub(crate) fn answer_with(&mut self, out: &mut OutBatch, write: impl FnOnce(&mut Writer<'_>)) {
        if self.pending.is_empty() {
            self.first += 1;
            return out.put_with(|bytes| write(&mut Writer::new(bytes, self.protocol)));
        }
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes, self.protocol));
        self.answer(out, bytes.into());
    }

    /// Refuses the next command with a text that begins with its error code.
    pub(crate) fn refuse(&mut self, out: &mut OutBatch, text: &str) {
        self.answer_with(out, |writer| writer.error(text));
    }

    /// Gives a command its reply.
    pub(crate) fn settle(&mut self, out: &mut OutBatch, sequence: u64, reply: Bytes) {
        if self.is_lost {
            return;
        }
        if sequence == self.first {
            out.put(&reply);
            self.unready -= usize::from(self.pending.pop_front().is_some());
            self.first += 1;
            self.put_ready(out);
        } else {
            self.keep_in_place(sequence, Pending::Ready(reply));
        }
        self.alone &= !self.pending.is_empty();
        self.waits &= !self.pending.is_empty();
    }

    /// Ends a command whose outcome is not known, and the connection behind the replies to those before it.
    pub(crate) fn lose(&mut self, out: &mut OutBatch, sequence: u64) {
        self.keep_in_place(sequence, Pending::Lost);
        self.put_ready(out);
    }

    /// Puts the replies that wait for no others.
    fn put_ready(&mut self, out: &mut OutBatch) {
        while let Some(Pending::Ready(reply)) = self.pending.front() {
            out.put(reply);
            let ready = self.pending.pop_front();
            self.held -= ready.and_then(|one| one.held()).unwrap_or_default();
            self.first += 1;
        }
        if matches!(self.pending.front(), Some(Pending::Lost)) {
            self.is_lost = true;
            self.pending.clear();
            (self.unready, self.held) = (0, 0);
        }
    }

    /// Keeps the end of a command that waits for earlier replies.
    fn keep_in_place(&mut self, sequence: u64, end: Pending) {
        let Some(pending) = self.pending(sequence) else {
            return;
        };
        let held = end.held().unwrap_or_default();
        match std::mem::replace(pending, end).held() {
            None => self.unready -= 1,
            Some(before) => self.held -= before,
        }
        self.held += held;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_client() -> RedisClient {
        let id = ClientId {
            place: 0,
            thread: 0,
            number: 1,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        RedisClient::new(id, address, Duration::ZERO, true)
    }

    #[test]
    fn replies_leave_in_the_order_of_commands() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut client = some_client();
            let mut out = OutBatch::default();
            let (mut open, mut sent) = (Vec::new(), 0);
            while sent < 100 || !open.is_empty() {
                let number: u64 = sent;
                match random.u8(..3) {
                    0 if sent < 100 => {
                        client.answer(&mut out, format!("{number} ").into());
                        sent += 1;
                    }
                    1 if sent < 100 => {
                        assert_eq!(client.expect(Pending::Waiting), number);
                        open.push(number);
                        sent += 1;
                    }
                    _ if !open.is_empty() => {
                        let number = open.swap_remove(random.usize(..open.len()));
                        client.settle(&mut out, number, format!("{number} ").into());
                    }
                    _ => {}
                }
                let held = client.pending.iter().filter_map(Pending::held);
                assert_eq!(client.held(), held.sum::<usize>());
                assert_eq!(client.unready, open.len());
            }
            assert!(client.is_idle() && !client.is_lost());
            let expected: String = (0..100).map(|number| format!("{number} ")).collect();
            assert_eq!(out.text(), expected, "seed {seed}");
        }
    }

    /// The replies before an unknown outcome leave, and none behind it, in whichever order they come.
    #[test]
    fn a_connection_ends_at_an_unknown_outcome() {
        const COMMANDS: u64 = 12;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut client = some_client();
            let mut out = OutBatch::default();
            let lost = random.u64(..COMMANDS);
            let mut open: Vec<u64> = (0..COMMANDS)
                .map(|_| client.expect(Pending::Waiting))
                .collect();
            random.shuffle(&mut open);
            let mut is_first = false;
            for (ended, &number) in open.iter().enumerate() {
                match number == lost {
                    true => client.lose(&mut out, number),
                    false => client.settle(&mut out, number, format!("{number} ").into()),
                }
                let before = open[..=ended].iter().filter(|&&number| number <= lost);
                is_first = before.count() as u64 == lost + 1;
                assert_eq!(client.is_lost(), is_first, "seed {seed}");
            }
            assert!(is_first && client.is_idle() && client.held() == 0);
            let expected: String = (0..lost).map(|number| format!("{number} ")).collect();
            assert_eq!(out.text(), expected, "seed {seed}");
        }
    }
}
