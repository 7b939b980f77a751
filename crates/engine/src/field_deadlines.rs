//! Deadlines of fields of hashes: what versions have, and what the threads of an engine share ([`crate::expiring_hashes`]).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::transaction::Kind;
use crossbeam_queue::SegQueue;
use hashbrown::HashSet;
use parking_lot::Mutex;
use values::{StoredData, last_passed_field_deadline, next_field_deadline};

use crate::record::VersionRef;

/// What the threads of an engine share.
#[derive(Default)]
pub(crate) struct FieldDeadlines {
    /// Hashes that the janitor should know of, with their least deadlines.
    pub(crate) noted: SegQueue<(u64, Box<[u8]>)>,
    /// `true` while the janitor keeps some.
    pub(crate) has_awaited: AtomicBool,
    /// Hashes with fields that have expired.
    pub(crate) reported: Mutex<HashSet<Arc<[u8]>>>,
}

impl VersionRef {
    /// Returns the least deadline after a time of a field of the value, if it is a hash.
    #[inline]
    pub(crate) fn next_field_deadline(self, after_ms: u64) -> Option<u64> {
        next_field_deadline(self.hash()?, after_ms)
    }

    /// Returns the deadlines of the fields of the value, in ascending order, if it is a hash.
    pub(crate) fn field_deadlines(self) -> impl Iterator<Item = u64> {
        let next = move |last: &u64| self.next_field_deadline(*last);
        std::iter::successors(self.next_field_deadline(0), next)
    }

    /// Returns the greatest deadline of a field of the value that has passed at a time, if it is a hash.
    pub(crate) fn last_passed_field_deadline(self, time_ms: u64) -> Option<u64> {
        last_passed_field_deadline(self.hash()?, time_ms)
    }

    fn hash<'p>(self) -> Option<StoredData<'p>> {
        if self.is_absent() || self.kind() != Kind::Hash {
            return None;
        }
        Some(match self.tree() {
            None => StoredData::Bytes(self.value()),
            Some(tree) => StoredData::Tree(tree.view()),
        })
    }
}
