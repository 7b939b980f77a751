//! A read-atomic read, step by step: the questions about each key, and what follows from the answers. It
//! does not depend on partitions or links; a node or a client runs it.
//!
//! | algorithm of the reader | first round, all keys | second round |
//! |---|---|---|
//! | fast, hybrid | the newest committed version | keys that a version of the first round may have a newer sibling of: that sibling |
//! | small | the newest committed version's id | all keys: the newest version with any of these ids |
//!
//! Versions of one key may come from writers with different algorithms. The siblings of a version `v`,
//! read from one key, determine what is asked about another key whose version is older than `v`:
//!
//! | siblings | the other key | asked in the second round |
//! |---|---|---|
//! | keys | is one of them | `v`, which is there |
//! | a filter | is in it | `v`, which may be there |
//! | untold | is any | `v`, which may be there |
//!
//! The newest id that is there decides; ids older than one that is certainly there need not be asked
//! for. If no version is there, that transaction did not write the key, and the version of the first
//! round stays.
//!
//! Invariants:
//! 1. If the result has a version of a transaction, each key of the read that it wrote has that version
//!    or a newer one.
//! 2. Each key's version is not older than the newest that was committed when the read, or its last
//!    beginning, began.
//! 3. Replaced versions are kept for [`ReadAtomic::KEPT`]. A read that takes longer than half of that
//!    begins again, and so does one that gets the answer that a version is gone.

use std::ops::Range;
use std::time::Duration;

use base::change::siblings::{self, Siblings};
use base::partition::OwnedReply;
use base::planted::{self, Bug};
use base::versions::{Ask, OwnedContent, OwnedFound, OwnedVersion, ReadAtomic};
use base::{Op, TransactionId};

use super::key_query::KeyQuery;
use super::{Algorithm, filter};

/// The next step of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// Answers are missing.
    Wait,
    /// A round has begun: [`ReadAtomicRead::asks`] returns its questions.
    Ask,
    /// Everything is read.
    Done,
    /// It has begun again too often. Nothing was read; it may be tried later.
    GaveUp,
}

/// Costs of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCosts {
    /// Rounds, including those before it began again.
    pub rounds: u32,
    /// Keys that were asked for in second rounds.
    pub second_asks: u32,
    /// Number of times that it began again.
    pub restarts: u32,
    /// Versions that a transaction has certainly written, and that are not there. That happens only if a
    /// partition has lost what it had acknowledged.
    pub lost: u32,
}

/// Number of times that a read may begin again.
const RESTARTS: u32 = 8;
/// More keys than these are read by RAMP-Fast, which is always possible: otherwise each of them would be
/// asked for the ids of all.
const MOST_SMALL: usize = 256;
/// A read that takes longer begins again.
const LONGEST: Duration = Duration::from_millis(ReadAtomic::KEPT.as_millis() as u64 / 2);

/// A read-atomic read; see the module's description.
#[derive(Clone, Debug)]
pub struct ReadAtomicRead {
    algorithm: Algorithm,
    /// The question of each operation, in the caller's order, and the place of its key.
    wants: Vec<(KeyQuery, usize)>,
    keys: Vec<KeyProgress>,
    /// The keys' bytes.
    text: Vec<u8>,
    /// Counts rounds from 1 on.
    number: u32,
    progress: ReadProgress,
    missing: usize,
    /// When the first round began, since the read last began again.
    begun: Duration,
    has_second_round: bool,
    costs: ReadCosts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadProgress {
    First,
    Second,
    Done,
    GaveUp,
}

/// What is known of a key.
#[derive(Clone, Debug)]
struct KeyProgress {
    /// The place of its bytes.
    key: Range<usize>,
    version: Option<OwnedVersion>,
    /// The ids that the second round asks for; empty if it does not ask.
    ids: Vec<TransactionId>,
    /// One of them was certainly written.
    is_sure: bool,
    is_answered: bool,
}

impl KeyProgress {
    fn fresh(key: Range<usize>) -> KeyProgress {
        KeyProgress {
            key,
            version: None,
            ids: Vec::new(),
            is_sure: false,
            is_answered: false,
        }
    }

    /// Returns the version's id; zero if there is none.
    fn id(&self) -> TransactionId {
        self.version
            .as_ref()
            .map_or(TransactionId::ZERO, |version| version.id)
    }
}

impl ReadAtomicRead {
    /// Creates a read of these keys, which begins `now`; times count from any fixed moment. A key that
    /// occurs repeatedly is read once.
    #[must_use]
    pub fn new<'k>(
        algorithm: Algorithm,
        keys: impl IntoIterator<Item = &'k [u8]>,
        now: Duration,
    ) -> ReadAtomicRead {
        let wants = keys.into_iter().map(|key| (key, KeyQuery::IfString));
        ReadAtomicRead::of_wants(algorithm, wants, now)
    }

    /// As [`ReadAtomicRead::new`], for a caller that needs the answers of operations.
    ///
    /// # Panics
    /// If an operation is none of those of [`TransactionClass::Read`](super::TransactionClass::Read).
    #[must_use]
    pub fn of_ops(algorithm: Algorithm, ops: &[Op<'_>], now: Duration) -> ReadAtomicRead {
        let wants = ops
            .iter()
            .map(|op| (KeyQuery::key_of(op), KeyQuery::of(op)));
        ReadAtomicRead::of_wants(algorithm, wants, now)
    }

    fn of_wants<'k>(
        algorithm: Algorithm,
        asked: impl Iterator<Item = (&'k [u8], KeyQuery)>,
        now: Duration,
    ) -> ReadAtomicRead {
        let mut asked: Vec<(&[u8], usize, KeyQuery)> = asked
            .enumerate()
            .map(|(at, (key, key_query))| (key, at, key_query))
            .collect();
        asked.sort_unstable_by_key(|(key, ..)| *key);
        let mut wants = vec![(KeyQuery::IfString, 0); asked.len()];
        let mut keys: Vec<KeyProgress> = Vec::with_capacity(asked.len());
        let mut text: Vec<u8> = Vec::with_capacity(asked.iter().map(|(key, ..)| key.len()).sum());
        for (key, at, key_query) in asked {
            if keys
                .last()
                .is_none_or(|last| text[last.key.clone()] != *key)
            {
                keys.push(KeyProgress::fresh(text.len()..text.len() + key.len()));
                text.extend_from_slice(key);
            }
            wants[at] = (key_query, keys.len() - 1);
        }
        let algorithm = match algorithm {
            Algorithm::Small if keys.len() > MOST_SMALL => Algorithm::Fast,
            other => other,
        };
        let mut reading = ReadAtomicRead {
            algorithm,
            wants,
            keys,
            text,
            number: 0,
            progress: ReadProgress::Done,
            missing: 0,
            begun: now,
            has_second_round: !planted::is(Bug::OneRound),
            costs: ReadCosts::default(),
        };
        reading.begin(now);
        reading
    }

    /// Returns the number of the round, which answers carry.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.number
    }

    /// Returns the costs so far.
    #[must_use]
    pub fn costs(&self) -> ReadCosts {
        self.costs
    }

    /// Returns `true` if everything is read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.progress == ReadProgress::Done
    }

    fn is_over(&self) -> bool {
        matches!(self.progress, ReadProgress::Done | ReadProgress::GaveUp)
    }

    /// Returns the keys, each once, in byte order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.iter().map(|one| self.key(one))
    }

    /// Returns the key at a place that [`ReadAtomicRead::asks`] returned.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn key_at(&self, place: usize) -> &[u8] {
        self.key(&self.keys[place])
    }

    fn key(&self, one: &KeyProgress) -> &[u8] {
        &self.text[one.key.clone()]
    }

    /// Returns the questions of this round that were not answered yet, each with the place of its key.
    pub fn asks(&self) -> impl Iterator<Item = (usize, Ask<'_>)> {
        let keys = self.keys.iter().enumerate();
        let open = keys.filter(|(_, one)| !self.is_over() && !one.is_answered);
        open.map(|(at, one)| {
            let key = self.key(one);
            let ask = match (self.progress, self.algorithm) {
                (ReadProgress::First, Algorithm::Small) => Ask::Id { key },
                (ReadProgress::First, _) => Ask::Newest { key },
                _ => Ask::OneOf {
                    key,
                    ids: one.ids.clone(),
                },
            };
            (at, ask)
        })
    }

    /// Handles answers of a round, each with the place of its key. Answers of earlier rounds, and second
    /// answers, are ignored.
    pub fn answered(
        &mut self,
        round: u32,
        answers: impl IntoIterator<Item = (usize, OwnedFound)>,
        now: Duration,
    ) -> ReadStep {
        if round != self.number || self.is_over() {
            return ReadStep::Wait;
        }
        for (at, found) in answers {
            let Some(one) = self.keys.get_mut(at).filter(|one| !one.is_answered) else {
                continue;
            };
            one.is_answered = true;
            self.missing -= 1;
            if !self.take(at, found) {
                return self.again(now);
            }
        }
        if self.missing > 0 {
            return ReadStep::Wait;
        }
        if now.saturating_sub(self.begun) > LONGEST {
            return self.again(now);
        }
        if self.progress == ReadProgress::First {
            return self.second(now);
        }
        self.progress = ReadProgress::Done;
        ReadStep::Done
    }

    /// Returns what a key holds, once everything is read; `None` if it is absent.
    #[must_use]
    pub fn content(&self, key: &[u8]) -> Option<&OwnedContent> {
        self.version(key)?.content.as_ref()
    }

    /// Returns the version of a key that was read, once everything is; `None` if nothing is known of the
    /// key.
    #[must_use]
    pub fn version(&self, key: &[u8]) -> Option<&OwnedVersion> {
        self.keys[self.place(key)?].version.as_ref()
    }

    /// Returns the replies to the operations, once everything is read.
    #[must_use]
    pub fn replies(mut self) -> Vec<OwnedReply> {
        // Values are moved, unless a key occurs repeatedly.
        let each_once = self.wants.len() == self.keys.len();
        let reply = |(key_query, at): (KeyQuery, usize)| {
            let version = self.keys[at].version.as_mut();
            let content = version.and_then(|version| match each_once {
                true => version.content.take(),
                false => version.content.clone(),
            });
            key_query.reply(content)
        };
        self.wants.into_iter().map(reply).collect()
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        self.keys
            .binary_search_by(|one| self.key(one).cmp(key))
            .ok()
    }

    /// Begins again, without counting it: the last round cannot be answered.
    pub fn begin(&mut self, now: Duration) {
        self.begun = now;
        self.next(ReadProgress::First);
        for one in &mut self.keys {
            one.version = None;
            one.ids.clear();
            one.is_sure = false;
            one.is_answered = false;
        }
        self.missing = self.keys.len();
        if self.keys.is_empty() {
            self.progress = ReadProgress::Done;
        }
    }

    fn next(&mut self, progress: ReadProgress) {
        self.progress = progress;
        self.number += 1;
        self.costs.rounds += 1;
    }

    fn again(&mut self, now: Duration) -> ReadStep {
        if self.costs.restarts == RESTARTS {
            self.progress = ReadProgress::GaveUp;
            return ReadStep::GaveUp;
        }
        self.costs.restarts += 1;
        self.begin(now);
        ReadStep::Ask
    }

    /// Notes an answer. Returns `true` if the read can go on.
    fn take(&mut self, at: usize, found: OwnedFound) -> bool {
        let is_small = self.algorithm == Algorithm::Small;
        let one = &mut self.keys[at];
        match (self.progress, found) {
            (_, OwnedFound::Version(version)) => one.version = Some(version),
            // In the second round: a deletion that every partition has made and forgotten.
            (_, OwnedFound::Nothing) => one.version = None,
            (ReadProgress::First, _) | (_, OwnedFound::Gone) => return false,
            // The first round has only said that there is a version.
            (_, OwnedFound::NotThere) if is_small => return one.version.is_none(),
            (_, OwnedFound::NotThere) => self.costs.lost += u32::from(one.is_sure),
        }
        true
    }

    /// Begins the second round, if there is a question for it.
    fn second(&mut self, now: Duration) -> ReadStep {
        let was_written = |one: &KeyProgress| one.version.is_some();
        if self.algorithm == Algorithm::Small {
            // A version without an id cannot be asked for: it is read with the first round instead.
            let has_no_id = |one: &KeyProgress| was_written(one) && one.id() == TransactionId::ZERO;
            if self.keys.iter().any(has_no_id) {
                self.algorithm = Algorithm::Fast;
                return self.again(now);
            }
            self.ask_for_all();
        } else if self.has_second_round {
            self.ask_for_siblings();
        }
        for one in &mut self.keys {
            one.is_answered = one.ids.is_empty();
        }
        self.missing = self.keys.iter().filter(|one| !one.is_answered).count();
        if self.missing == 0 {
            self.progress = ReadProgress::Done;
            return ReadStep::Done;
        }
        self.costs.second_asks += self.missing as u32;
        self.next(ReadProgress::Second);
        ReadStep::Ask
    }

    /// Asks every key for the newest of the versions that the first round has found.
    fn ask_for_all(&mut self) {
        let mut ids: Vec<TransactionId> = self.keys.iter().map(KeyProgress::id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| *id > TransactionId::ZERO);
        for one in &mut self.keys {
            one.ids = if self.has_second_round {
                ids.clone()
            } else {
                Vec::from_iter(one.version.as_ref().map(|version| version.id))
            };
        }
    }

    /// Asks keys for the newer versions that they must have, or may have.
    fn ask_for_siblings(&mut self) {
        let versions = self.keys.iter().filter_map(|one| one.version.as_ref());
        // A version that was written alone names no other key.
        let versions = versions.filter(|version| !version.siblings.is_empty());
        let mut versions: Vec<&OwnedVersion> = versions.collect();
        if versions.is_empty() {
            self.keys.iter_mut().for_each(|one| one.ids.clear());
            return;
        }
        versions.sort_unstable_by_key(|version| version.id);
        versions.dedup_by_key(|version| version.id);
        // For each key the newest version that names it, and all versions that do not name keys.
        let mut named = vec![TransactionId::ZERO; self.keys.len()];
        let mut vague = Vec::new();
        for version in versions {
            match siblings::read(&version.siblings) {
                Some(Siblings::Keys(keys)) => {
                    let keys = siblings::iter(keys).flatten();
                    // They come in the order of their ids.
                    keys.filter_map(|key| self.place(key))
                        .for_each(|at| named[at] = version.id);
                }
                told => vague.push((version.id, told)),
            }
        }
        let asked = self.keys.iter().zip(named).map(|(one, named)| {
            let sure = Some(named).filter(|id| *id > one.id());
            let above = sure.unwrap_or(one.id());
            let maybe = vague.iter().filter(|(id, told)| {
                let has = match told {
                    Some(Siblings::Filter(bits)) => filter::has(bits, self.key(one)),
                    // Siblings that cannot be decoded may mean any key.
                    _ => true,
                };
                *id > above && has
            });
            let ids = sure.into_iter().chain(maybe.map(|(id, _)| *id));
            (ids.collect::<Vec<_>>(), sure.is_some())
        });
        let asked: Vec<_> = asked.collect();
        for (one, (ids, is_sure)) in self.keys.iter_mut().zip(asked) {
            one.ids = ids;
            one.is_sure = is_sure;
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
