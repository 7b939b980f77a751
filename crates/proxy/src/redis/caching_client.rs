//! A client with client-side caching: what it has chosen, and its reads that have no reply yet.
//!
//! Invariant: the news that a key has changed leave behind the reply to the client's last read of the key,
//! whose value may be the one from before the change.

use std::collections::VecDeque;

use channels::client_tracking::{ClientTracking, TrackedReads};

/// The client-side caching of one client.
#[derive(Debug)]
pub(crate) struct CachingClient {
    pub(crate) settings: ClientTracking,
    pub(super) reads: ReadsUnderWay,
    /// The keys that the commands of its open block read.
    pub(super) block_keys: Vec<Box<[u8]>>,
}

impl CachingClient {
    pub(super) fn new(settings: ClientTracking) -> CachingClient {
        CachingClient {
            settings,
            reads: ReadsUnderWay::default(),
            block_keys: Vec::new(),
        }
    }

    /// Returns the bytes of its prefixes.
    pub(crate) fn bytes(&self) -> usize {
        let prefixes = self.settings.prefixes.iter();
        prefixes.map(|prefix| prefix.len() + 64).sum()
    }

    /// Returns `true` if a key that is read now may be kept.
    pub(super) fn may_keep(&self, key: &[u8]) -> bool {
        match self.settings.reads {
            TrackedReads::Prefixed => {
                let mut prefixes = self.settings.prefixes.iter();
                prefixes.any(|prefix| key.starts_with(prefix))
            }
            _ => self.settings.tracks_reads(),
        }
    }
}

/// A key of a read.
#[derive(Debug)]
struct ReadKey {
    key: Box<[u8]>,
    /// The client is to be told behind the reply that it has changed.
    is_stale: bool,
}

#[derive(Debug)]
struct ReadUnderWay {
    sequence: u64,
    keys: Box<[ReadKey]>,
    /// The news of its keys wait for its reply.
    holds_news: bool,
}

/// The reads of a client that have no reply yet, in the order of its commands.
#[derive(Default, Debug)]
pub(crate) struct ReadsUnderWay(VecDeque<ReadUnderWay>);

impl ReadsUnderWay {
    /// Adds the read of a command.
    pub(crate) fn begin(&mut self, sequence: u64, keys: Vec<Box<[u8]>>) {
        self.add(sequence, keys, true);
    }

    /// Adds a command behind whose reply the client is to be told that these keys have changed. Other news of
    /// them do not wait for it: the reply may take any time.
    pub(crate) fn begin_stale(&mut self, sequence: u64, keys: Vec<Box<[u8]>>) {
        self.add(sequence, keys, false);
    }

    fn add(&mut self, sequence: u64, keys: Vec<Box<[u8]>>, holds_news: bool) {
        if keys.is_empty() {
            return;
        }
        let is_stale = !holds_news;
        let keys = keys.into_iter().map(|key| ReadKey { key, is_stale });
        self.0.push_back(ReadUnderWay {
            sequence,
            keys: keys.collect(),
            holds_news,
        });
    }

    /// Records that keys have changed. Returns those of which the client is to be told at once.
    pub(crate) fn changed(&mut self, keys: &[Box<[u8]>]) -> Vec<Box<[u8]>> {
        let mut at_once = Vec::new();
        for key in keys {
            let reads = self.0.iter_mut().rev().filter(|read| read.holds_news);
            let found = reads
                .flat_map(|read| &mut read.keys)
                .find(|own| own.key == *key);
            match found {
                Some(own) => own.is_stale = true,
                None => at_once.push(key.clone()),
            }
        }
        at_once
    }

    /// Records that all keys may have changed.
    pub(crate) fn changed_all(&mut self) {
        let keys = self.0.iter_mut().flat_map(|read| &mut read.keys);
        keys.for_each(|own| own.is_stale = true);
    }

    /// Records which keys of a read may have changed without news.
    pub(crate) fn answered(&mut self, sequence: u64, is_stale: impl Fn(&[u8]) -> bool) {
        let first = self.0.partition_point(|read| read.sequence < sequence);
        let reads = self.0.range_mut(first..);
        let reads = reads.take_while(|read| read.sequence == sequence);
        for own in reads.flat_map(|read| &mut read.keys) {
            own.is_stale |= is_stale(&own.key);
        }
    }

    /// Removes the reads whose replies have left: those of commands before `first`. Returns the keys of which
    /// the client is to be told.
    pub(crate) fn take_ended(&mut self, first: u64) -> Vec<Box<[u8]>> {
        let mut stale = Vec::new();
        while self.0.front().is_some_and(|read| read.sequence < first) {
            let read = self.0.pop_front().expect("just seen");
            let keys = read.keys.into_iter().filter(|own| own.is_stale);
            stale.extend(keys.map(|own| own.key));
        }
        stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &str) -> Vec<Box<[u8]>> {
        let names = names.split_whitespace();
        names.map(|name| name.as_bytes().into()).collect()
    }

    #[test]
    fn news_wait_for_the_last_read_of_their_key() {
        let mut reads = ReadsUnderWay::default();
        reads.begin(1, keys("a b"));
        reads.begin(2, keys("a"));
        reads.begin_stale(3, keys("w"));
        assert_eq!(reads.changed(&keys("a w c")), keys("w c"));
        assert_eq!(reads.take_ended(1), keys(""));
        assert_eq!(reads.take_ended(2), keys(""));
        assert_eq!(reads.take_ended(3), keys("a"));
        assert_eq!(reads.take_ended(4), keys("w"));
        assert_eq!(reads.changed(&keys("a b")), keys("a b"));
    }

    #[test]
    fn a_read_without_news_is_stale() {
        let mut reads = ReadsUnderWay::default();
        reads.begin(7, keys("a b"));
        reads.begin(8, keys("a b"));
        reads.answered(7, |key| key == b"b");
        assert_eq!(reads.take_ended(8), keys("b"));
        reads.begin(9, keys("c"));
        reads.changed_all();
        assert_eq!(reads.take_ended(10), keys("a b c"));
    }
}
