//! Publish/subscribe: which runtimes have subscribers of a channel, what one client subscribes to, and
//! the messages.
//!
//! Each runtime knows its own subscribers ([`SubscriberTable`]). The [`ChannelRegistry`], which all
//! runtimes share, has their number by channel and runtime: a publisher's runtime gives a message to
//! those that have any, and answers with the sum.
//!
//! Invariant: a name is in the registry's table exactly while a client subscribes to it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::glob;
use parking_lot::RwLock;

/// The kinds of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubscriptionKind {
    /// `SUBSCRIBE`: to the channel of this name.
    Channel,
    /// `PSUBSCRIBE`: to the channels that match.
    Pattern,
    /// `SSUBSCRIBE`: to the shard channel of this name.
    ShardChannel,
}

impl SubscriptionKind {
    /// All kinds.
    pub const ALL: [SubscriptionKind; 3] = [
        SubscriptionKind::Channel,
        SubscriptionKind::Pattern,
        SubscriptionKind::ShardChannel,
    ];
}

/// A message that a client has published.
#[derive(Debug, PartialEq)]
pub struct ChannelMessage {
    /// `true` if it was published to a shard channel.
    pub sharded: bool,
    /// The channel.
    pub channel: Box<[u8]>,
    /// What was published.
    pub payload: Box<[u8]>,
}

impl ChannelMessage {
    /// Returns the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<ChannelMessage>() + self.channel.len() + self.payload.len()
    }

    /// Returns the kind of subscriptions to its channel by name.
    pub fn kind(&self) -> SubscriptionKind {
        kind_of(self.sharded)
    }
}

/// Returns the kind of subscriptions by name to a shard channel, or to another one.
fn kind_of(sharded: bool) -> SubscriptionKind {
    match sharded {
        true => SubscriptionKind::ShardChannel,
        false => SubscriptionKind::Channel,
    }
}

/// The numbers of subscribers of a name, by runtime.
type SubscriberCounts = Box<[u32]>;
/// A name of a channel, or a pattern.
pub type ChannelName = Arc<[u8]>;

/// See the module's description.
pub struct ChannelRegistry {
    runtimes: usize,
    /// All subscriptions: a message without a subscriber costs one load.
    subscriptions: AtomicUsize,
    tables: RwLock<[HashMap<ChannelName, SubscriberCounts>; 3]>,
}

impl ChannelRegistry {
    /// Creates the registry of so many runtimes.
    pub fn new(runtimes: usize) -> ChannelRegistry {
        ChannelRegistry {
            runtimes,
            subscriptions: AtomicUsize::new(0),
            tables: RwLock::default(),
        }
    }

    /// Adds a subscription of a client of this runtime. Returns the name, which all subscriptions to it
    /// share.
    fn add(&self, kind: SubscriptionKind, name: &[u8], runtime: usize) -> ChannelName {
        let table = &mut self.tables.write()[kind as usize];
        let name = match table.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        };
        let none = || vec![0; self.runtimes].into();
        table.entry(Arc::clone(&name)).or_insert_with(none)[runtime] += 1;
        self.subscriptions.fetch_add(1, Ordering::SeqCst);
        name
    }

    /// Removes a subscription that was added before.
    fn remove(&self, kind: SubscriptionKind, name: &[u8], runtime: usize) {
        let table = &mut self.tables.write()[kind as usize];
        let Some(counts) = table.get_mut(name) else {
            return;
        };
        counts[runtime] -= 1;
        if counts.iter().all(|&count| count == 0) {
            table.remove(name);
        }
        self.subscriptions.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the number of subscribers to whom a message would be sent; one with several
    /// subscriptions that match counts several times.
    pub fn receivers(&self, sharded: bool, channel: &[u8]) -> u64 {
        let mut receivers = 0;
        self.for_each_match(sharded, channel, |counts| {
            receivers += counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        });
        receivers
    }

    /// Returns the runtimes that have subscribers to whom a message must be sent.
    pub fn runtimes_of(&self, message: &ChannelMessage) -> Vec<usize> {
        let mut any = vec![false; self.runtimes];
        self.for_each_match(message.sharded, &message.channel, |counts| {
            for (any, &count) in any.iter_mut().zip(counts) {
                *any |= count > 0;
            }
        });
        (0..self.runtimes).filter(|&runtime| any[runtime]).collect()
    }

    fn for_each_match(&self, sharded: bool, channel: &[u8], mut visit: impl FnMut(&[u32])) {
        if self.subscriptions.load(Ordering::SeqCst) == 0 {
            return;
        }
        let tables = self.tables.read();
        if let Some(counts) = tables[kind_of(sharded) as usize].get(channel) {
            visit(counts);
        }
        if sharded {
            return;
        }
        for (pattern, counts) in &tables[SubscriptionKind::Pattern as usize] {
            if glob::matches(pattern, channel, false) {
                visit(counts);
            }
        }
    }

    /// Returns the runtimes that have subscribers of a name.
    pub fn runtimes_with(&self, kind: SubscriptionKind, name: &[u8]) -> Vec<usize> {
        let tables = self.tables.read();
        let counts = tables[kind as usize].get(name);
        let counts = counts.map_or(&[][..], |counts| counts);
        (0..counts.len()).filter(|&at| counts[at] > 0).collect()
    }

    /// Returns how many names of a kind have subscribers.
    pub fn names(&self, kind: SubscriptionKind) -> usize {
        self.tables.read()[kind as usize].len()
    }

    /// Returns the names of a kind that match a pattern, or all of them.
    pub fn matching(&self, kind: SubscriptionKind, pattern: Option<&[u8]>) -> Vec<ChannelName> {
        let matches =
            |name: &&ChannelName| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
        let tables = self.tables.read();
        let names = tables[kind as usize].keys();
        names.filter(matches).cloned().collect()
    }

    /// Returns how many clients subscribe to a name.
    pub fn subscribers(&self, kind: SubscriptionKind, name: &[u8]) -> u64 {
        let tables = self.tables.read();
        let counts = tables[kind as usize].get(name);
        counts.map_or(0, |counts| counts.iter().map(|&n| u64::from(n)).sum())
    }
}

/// What one client subscribes to.
#[derive(Default, Debug)]
pub struct ClientSubscriptions {
    /// By kind; none for most clients.
    names: Option<Box<[BTreeSet<ChannelName>; 3]>>,
    bytes: usize,
}

impl ClientSubscriptions {
    /// Returns how many of a kind there are.
    pub fn count(&self, kind: SubscriptionKind) -> usize {
        let names = self.names.as_ref();
        names.map_or(0, |names| names[kind as usize].len())
    }

    /// Returns how many there are, as confirmations say it: of shard channels, or of channels and
    /// patterns together.
    #[must_use]
    pub fn reported_count(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::ShardChannel => self.count(kind),
            SubscriptionKind::Channel | SubscriptionKind::Pattern => {
                self.count(SubscriptionKind::Channel) + self.count(SubscriptionKind::Pattern)
            }
        }
    }

    /// Returns `true` if there are any.
    #[inline]
    pub fn any(&self) -> bool {
        self.names.is_some()
    }

    /// Returns the memory that they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the names of a kind.
    pub fn names(&self, kind: SubscriptionKind) -> Vec<ChannelName> {
        let names = self.names.as_ref();
        names.map_or_else(Vec::new, |names| {
            names[kind as usize].iter().cloned().collect()
        })
    }

    /// Returns `true` if the client subscribes to the name.
    #[must_use]
    pub fn has(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let names = self.names.as_ref();
        names.is_some_and(|names| names[kind as usize].contains(name))
    }
}

/// The memory of a subscription besides its name, in bytes: entries in the tables of its client, its
/// runtime and the registry.
const SUBSCRIPTION_BYTES: usize = 160;

/// The subscribers among the clients of one runtime.
pub struct SubscriberTable {
    runtime: usize,
    /// By kind and name: the numbers of their connections.
    keys: [HashMap<ChannelName, Vec<usize>>; 3],
}

impl SubscriberTable {
    /// Creates the table of this runtime.
    pub fn new(runtime: usize) -> SubscriberTable {
        SubscriberTable {
            runtime,
            keys: Default::default(),
        }
    }

    /// Subscribes the client of connection `key`, unless it subscribes to the name already.
    pub fn subscribe(
        &mut self,
        registry: &ChannelRegistry,
        (kind, name): (SubscriptionKind, &[u8]),
        key: usize,
        client: &mut ClientSubscriptions,
    ) {
        if client.has(kind, name) {
            return;
        }
        let name = registry.add(kind, name, self.runtime);
        let keys = &mut self.keys[kind as usize];
        keys.entry(Arc::clone(&name)).or_default().push(key);
        client.bytes += SUBSCRIPTION_BYTES + name.len();
        client.names.get_or_insert_default()[kind as usize].insert(name);
    }

    /// Ends a subscription of the client of connection `key`, if there is one.
    pub fn unsubscribe(
        &mut self,
        registry: &ChannelRegistry,
        (kind, name): (SubscriptionKind, &[u8]),
        key: usize,
        client: &mut ClientSubscriptions,
    ) {
        let Some(names) = &mut client.names else {
            return;
        };
        if !names[kind as usize].remove(name) {
            return;
        }
        if names.iter().all(BTreeSet::is_empty) {
            client.names = None;
        }
        client.bytes -= SUBSCRIPTION_BYTES + name.len();
        registry.remove(kind, name, self.runtime);
        let table = &mut self.keys[kind as usize];
        if let Some(keys) = table.get_mut(name) {
            keys.retain(|&other| other != key);
            if keys.is_empty() {
                table.remove(name);
            }
        }
    }

    /// Ends all subscriptions of the client of connection `key`.
    pub fn unsubscribe_all(
        &mut self,
        registry: &ChannelRegistry,
        key: usize,
        client: &mut ClientSubscriptions,
    ) {
        for kind in SubscriptionKind::ALL {
            for name in client.names(kind) {
                self.unsubscribe(registry, (kind, &name), key, client);
            }
        }
    }

    /// Returns the connections that subscribe to a message's channel by its name.
    pub fn of_channel(&self, message: &ChannelMessage) -> &[usize] {
        self.of_name(message.kind(), &message.channel)
    }

    /// Returns the connections that subscribe to a name.
    pub fn of_name(&self, kind: SubscriptionKind, name: &[u8]) -> &[usize] {
        self.keys[kind as usize]
            .get(name)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the patterns that match a message's channel, each with the connections that subscribe to
    /// it.
    pub fn of_patterns<'a>(
        &'a self,
        message: &'a ChannelMessage,
    ) -> impl Iterator<Item = (&'a [u8], &'a [usize])> {
        let patterns = &self.keys[SubscriptionKind::Pattern as usize];
        let patterns = patterns.iter().filter(|(pattern, _)| {
            !message.sharded && glob::matches(pattern, &message.channel, false)
        });
        patterns.map(|(pattern, keys)| (&**pattern, keys.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sharded: bool, channel: &str) -> ChannelMessage {
        ChannelMessage {
            sharded,
            channel: channel.as_bytes().into(),
            payload: Box::default(),
        }
    }

    #[test]
    fn names_are_known_exactly_while_clients_subscribe_to_them() {
        let registry = ChannelRegistry::new(3);
        let mut tables = [0, 1, 2].map(SubscriberTable::new);
        let mut clients: [ClientSubscriptions; 3] = Default::default();
        let news = (SubscriptionKind::Channel, b"news".as_slice());
        let any = (SubscriptionKind::Pattern, b"n*".as_slice());
        let shard = (SubscriptionKind::ShardChannel, b"news".as_slice());
        for at in [0, 2] {
            for what in [news, news, any, shard] {
                tables[at].subscribe(&registry, what, 7, &mut clients[at]);
            }
        }
        assert_eq!(registry.receivers(false, b"news"), 4);
        assert_eq!(registry.receivers(false, b"no"), 2);
        assert_eq!(registry.receivers(true, b"news"), 2);
        assert_eq!(registry.receivers(true, b"no"), 0);
        assert_eq!(registry.runtimes_of(&message(false, "news")), [0, 2]);
        assert_eq!(tables[0].of_channel(&message(false, "news")), [7]);
        assert_eq!(tables[0].of_patterns(&message(false, "no")).count(), 1);
        assert_eq!(tables[0].of_patterns(&message(true, "no")).count(), 0);
        assert_eq!(registry.matching(news.0, Some(b"m*")), Vec::new());
        assert_eq!(registry.matching(news.0, None), [Arc::from(news.1)]);
        assert_eq!(registry.subscribers(shard.0, shard.1), 2);

        tables[0].unsubscribe(&registry, news, 7, &mut clients[0]);
        tables[0].unsubscribe(&registry, news, 7, &mut clients[0]);
        assert_eq!(registry.receivers(false, b"news"), 3);
        assert!(clients[0].any() && clients[0].bytes() > 0);
        for (table, client) in tables.iter_mut().zip(&mut clients) {
            table.unsubscribe_all(&registry, 7, client);
            assert!(!client.any() && client.bytes() == 0);
            assert!(table.keys.iter().all(HashMap::is_empty));
        }
        for kind in SubscriptionKind::ALL {
            assert_eq!(registry.names(kind), 0);
        }
        assert_eq!(registry.subscriptions.load(Ordering::SeqCst), 0);
    }
}
