//! The keys that clients have read and may keep, and the prefixes of whose keys clients get all news.
//!
//! Invariants:
//! 1. A key is in the table from before a client reads it until it changes.
//! 2. A key is in the table once at most; when the table is full, another one leaves it, and its clients are
//!    to be told.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use smallvec::SmallVec;

/// The parts of the table of keys, each with a lock of its own.
const SHARDS: usize = 64;
/// The most keys, unless another number is set.
const MOST: usize = 1_000_000;

/// Clients that are to be sent the news of a key.
pub type KeyClients<C> = SmallVec<[C; 2]>;

/// Prefixes of a key, each with clients that are to be sent the news of its keys.
pub type PrefixClients<C> = SmallVec<[(Arc<[u8]>, KeyClients<C>); 1]>;

/// A key that has left the table, and the clients that may keep it.
pub type RemovedKey<C> = (Box<[u8]>, KeyClients<C>);

type KeyShard<C> = HashMap<Box<[u8]>, KeyClients<C>>;

/// By key, the clients that have read it since its last change. `C` identifies a client.
pub struct TrackedKeys<C> {
    hash: DefaultHashBuilder,
    shards: Box<[Mutex<KeyShard<C>>]>,
    keys: AtomicUsize,
    items: AtomicUsize,
    /// The most keys; 0: no bound.
    most: AtomicUsize,
}

impl<C> Default for TrackedKeys<C> {
    fn default() -> TrackedKeys<C> {
        TrackedKeys {
            hash: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            most: AtomicUsize::new(MOST),
        }
    }
}

impl<C: Copy + PartialEq> TrackedKeys<C> {
    /// Returns the numbers of keys, and of pairs of a key and a client.
    pub fn keys_and_items(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.keys), of(&self.items))
    }

    /// Returns the most keys; 0: no bound.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the most keys; 0: no bound. Calls `removed` for each key beyond them.
    pub fn set_most(&self, most: usize, mut removed: impl FnMut(RemovedKey<C>)) {
        self.most.store(most, Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock();
            while most > 0
                && self.keys.load(Ordering::Relaxed) > most
                && let Some(key) = self.remove_any(&mut shard)
            {
                removed(key);
            }
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<KeyShard<C>> {
        &self.shards[self.hash.hash_one(key) as usize % SHARDS]
    }

    /// Notes that a client is about to read a key. Returns the key that had to leave the table, if one had
    /// to.
    #[must_use]
    pub fn add(&self, key: &[u8], client: C) -> Option<RemovedKey<C>> {
        let mut shard = self.shard(key).lock();
        if let Some(clients) = shard.get_mut(key) {
            if !clients.contains(&client) {
                clients.push(client);
                self.items.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        }
        let most = self.most();
        let is_full = most > 0 && self.keys.load(Ordering::Relaxed) >= most;
        let removed = is_full.then(|| self.remove_any(&mut shard)).flatten();
        shard.insert(key.into(), std::iter::once(client).collect());
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(1, Ordering::Relaxed);
        removed
    }

    fn remove_any(&self, shard: &mut KeyShard<C>) -> Option<RemovedKey<C>> {
        let key = shard.keys().next()?.clone();
        let clients = self.remove(shard, &key)?;
        Some((key, clients))
    }

    fn remove(&self, shard: &mut KeyShard<C>, key: &[u8]) -> Option<KeyClients<C>> {
        let clients = shard.remove(key)?;
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(clients.len(), Ordering::Relaxed);
        Some(clients)
    }

    /// Removes a key. Returns the clients that may keep it.
    pub fn take(&self, key: &[u8]) -> KeyClients<C> {
        let mut shard = self.shard(key).lock();
        self.remove(&mut shard, key).unwrap_or_default()
    }

    /// Removes one client of a key. Returns `true` if it was there.
    pub fn take_client(&self, key: &[u8], client: C) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(clients) = shard.get_mut(key) else {
            return false;
        };
        let Some(at) = clients.iter().position(|own| *own == client) else {
            return false;
        };
        clients.swap_remove(at);
        self.items.fetch_sub(1, Ordering::Relaxed);
        if clients.is_empty() {
            self.remove(&mut shard, key);
        }
        true
    }

    /// Removes all keys.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let items: usize = shard.values().map(|clients| clients.len()).sum();
            self.keys.fetch_sub(shard.len(), Ordering::Relaxed);
            self.items.fetch_sub(items, Ordering::Relaxed);
            shard.clear();
        }
    }
}

/// By prefix, the clients that get the news of all keys with it.
type PrefixTable<C> = HashMap<Arc<[u8]>, KeyClients<C>>;

/// By prefix, the clients that get the news of all keys with it, read or not. `C` identifies a client.
pub struct TrackedPrefixes<C>(RwLock<PrefixTable<C>>);

impl<C> Default for TrackedPrefixes<C> {
    fn default() -> TrackedPrefixes<C> {
        TrackedPrefixes(RwLock::default())
    }
}

/// The table of prefixes while it changes: no other thread can read it.
pub struct ChangingPrefixes<'a, C>(RwLockWriteGuard<'a, PrefixTable<C>>);

impl<C: Copy + PartialEq> TrackedPrefixes<C> {
    /// Locks the table to change it.
    pub fn change(&self) -> ChangingPrefixes<'_, C> {
        ChangingPrefixes(self.0.write())
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the prefixes of a key, each with those of its clients that want the news.
    pub fn of_key(&self, key: &[u8], wants: impl Fn(&C) -> bool) -> PrefixClients<C> {
        let table = self.0.read();
        let matching = table.iter().filter(|(prefix, _)| key.starts_with(prefix));
        let prefixes = matching.map(|(prefix, clients)| {
            let clients: KeyClients<C> = clients.iter().copied().filter(&wants).collect();
            (Arc::clone(prefix), clients)
        });
        prefixes
            .filter(|(_, clients)| !clients.is_empty())
            .collect()
    }
}

impl<C: Copy + PartialEq> ChangingPrefixes<'_, C> {
    /// Has a client get the news of all keys with these prefixes.
    pub fn add(&mut self, client: C, prefixes: &[Box<[u8]>]) {
        for prefix in prefixes {
            let clients = self.0.entry(Arc::from(&**prefix)).or_default();
            clients.push(client);
        }
    }

    /// Ends that for the clients that `is_it` names.
    pub fn remove(&mut self, is_it: impl Fn(&C) -> bool, prefixes: &[Box<[u8]>]) {
        for prefix in prefixes {
            if let Some(clients) = self.0.get_mut(&**prefix) {
                clients.retain(|client| !is_it(client));
                if clients.is_empty() {
                    self.0.remove(&**prefix);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_gives_up_keys() {
        let table = TrackedKeys::default();
        for number in 0..1000 {
            let key = format!("key:{number}");
            assert_eq!(table.add(key.as_bytes(), 1), None);
            assert_eq!(table.add(key.as_bytes(), 2), None);
            assert_eq!(table.add(key.as_bytes(), 1), None);
        }
        assert_eq!(table.keys_and_items(), (1000, 2000));
        let mut removed = Vec::new();
        table.set_most(500, |one| removed.push(one));
        assert_eq!(table.keys_and_items(), (500, 1000));
        // A part without keys gives up none.
        for number in 1000..2000 {
            removed.extend(table.add(format!("key:{number}").as_bytes(), 3));
        }
        assert!(table.keys_and_items().0 <= 500 + SHARDS);
        assert_eq!(table.keys_and_items().0 + removed.len(), 2000);
        for (key, clients) in removed {
            assert!(!clients.is_empty() && table.take(&key).is_empty());
        }
        table.clear();
        assert_eq!(table.keys_and_items(), (0, 0));
    }

    #[test]
    fn clients_leave_keys_and_prefixes() {
        let table = TrackedKeys::default();
        assert_eq!(table.add(b"key", 1), None);
        assert_eq!(table.add(b"key", 2), None);
        assert!(table.take_client(b"key", 1) && !table.take_client(b"key", 1));
        assert_eq!(table.take(b"key").to_vec(), [2]);
        assert!(!table.take_client(b"key", 2));
        assert_eq!(table.add(b"key", 1), None);
        assert!(table.take_client(b"key", 1));
        assert_eq!(table.keys_and_items(), (0, 0));

        let prefixes = TrackedPrefixes::default();
        let both = [b"a"[..].into(), b"b"[..].into()];
        prefixes.change().add(1, &both);
        prefixes.change().add(2, &both[..1]);
        let found = prefixes.of_key(b"abc", |client| *client != 1);
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].0, &found[0].1[..]), (&b"a"[..], &[2][..]));
        assert!(prefixes.of_key(b"c", |_| true).is_empty());
        prefixes.change().remove(|client| *client == 1, &both);
        assert_eq!(prefixes.len(), 1);
        prefixes.change().remove(|client| *client == 2, &both[..1]);
        assert!(prefixes.is_empty());
    }
}
