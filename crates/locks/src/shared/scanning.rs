//! Scans of all records: listings for clients, and sweeps that find locks whose proxies have gone.

use std::sync::Arc;
use std::time::Duration;

use base::partition::OwnedReply;

use super::Shared;
use super::entry::{Entry, LastSeen};
use super::in_flight::TransactionContent;
use super::operation::Operation;
use super::scan::Listing;
use crate::error::LockError;
use crate::lock::{Answer, Lock, LockLease};
use crate::moment::MonotonicTime;
use crate::record::{LockRecord, RecordState, record_key};

/// Number of records that a sweep scans in one transaction, and its pause between two transactions.
const SLICE: usize = 256;
const REST: Duration = Duration::from_millis(50);
/// Time that a sweep waits after trouble.
const TROUBLED: Duration = Duration::from_secs(1);

/// Returns the least key that is greater than all keys with this prefix. `None` if there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

impl Shared {
    /// Sends listings, and a slice of the sweep.
    pub(super) fn send_scans(&mut self) {
        while self.has_room()
            && let Some(listing) = self.listings.pop_front()
        {
            let from = record_key(&self.options.prefix, &listing.prefix);
            let operation = Operation::Scan {
                to: after(&from),
                from,
                limit: listing.at_most,
            };
            self.transact(TransactionContent::Listing(listing), vec![operation]);
        }
        if self.has_room() && !self.sweep.is_flying && self.sweep.at <= self.now {
            let first = record_key(&self.options.prefix, b"");
            let to = after(&first);
            let from = self.sweep.from.take().unwrap_or(first);
            let limit = SLICE;
            self.sweep.is_flying = true;
            self.transact(
                TransactionContent::Sweep,
                vec![Operation::Scan { from, to, limit }],
            );
        }
    }

    /// Answers the listings that could not be sent in time.
    pub(super) fn end_listings(&mut self) {
        let now = self.now;
        let (over, rest) = std::mem::take(&mut self.listings)
            .into_iter()
            .partition(|listing| listing.limit <= now);
        self.listings = rest;
        for listing in Vec::from(over) {
            let what = self.trouble.clone();
            self.answer(listing.ticket, Err(LockError::Unavailable { what }));
        }
    }

    pub(super) fn listed(
        &mut self,
        listing: &Listing,
        sent: MonotonicTime,
        replies: &[OwnedReply],
    ) {
        let [OwnedReply::Pairs(pairs)] = replies else {
            let what = format!("a scan was answered by {replies:?}");
            self.answer(listing.ticket, Err(LockError::Refused { what }));
            return;
        };
        let skip = self.options.prefix.len() + 1;
        let locks = pairs.iter().filter_map(|(key, bytes)| {
            let lock = self.lock_of(&key[skip..], &LockRecord::decode(bytes)?, sent)?;
            Some((key[skip..].to_vec(), lock))
        });
        let locks = locks.collect();
        self.answer(listing.ticket, Ok(Answer::Listing(locks)));
    }

    fn lock_of(&self, key: &[u8], record: &LockRecord, sent: MonotonicTime) -> Option<Lock> {
        let RecordState::Held { value, lease } = &record.state else {
            return None;
        };
        let entry = self.entries.get(key);
        match entry.map(|entry| &entry.known) {
            Some(LastSeen::Held(sighting)) if sighting.id == record.id => {
                let waiters = entry.map_or(0, Entry::waiters);
                let lock = sighting.lock(value, record, self.options.margin, sent);
                (!sighting.has_ended(sent)).then_some(Lock { waiters, ..lock })
            }
            _ => Some(Lock {
                value: Arc::clone(value),
                token: record.token,
                left: *lease,
                waiters: 0,
            }),
        }
    }

    /// Begins to measure the leases of records that this proxy has not seen yet.
    pub(super) fn swept(&mut self, replies: Option<&[OwnedReply]>) {
        self.sweep.is_flying = false;
        let Some([OwnedReply::Pairs(pairs)]) = replies else {
            self.sweep.at = self.now + TROUBLED;
            return;
        };
        let skip = self.options.prefix.len() + 1;
        for (key, bytes) in pairs {
            let Some(record) = LockRecord::decode(bytes) else {
                continue;
            };
            let RecordState::Held { lease, .. } = record.state else {
                continue;
            };
            let is_known = self.entries.contains_key(&key[skip..]);
            let is_full = self.entries.len() >= self.options.limits.locks;
            if is_known || is_full || matches!(lease, LockLease::Endless) {
                continue;
            }
            self.counters.swept += 1;
            let mut entry = Entry::new(self.options.poll.0);
            entry.known = LastSeen::Held(self.first_sight(record.id, lease));
            let key: Arc<[u8]> = key[skip..].into();
            self.entries.insert(Arc::clone(&key), entry);
            self.arm(&key);
        }
        let last = pairs.last().filter(|_| pairs.len() == SLICE);
        self.sweep.from = last.map(|(key, _)| [key, &[0][..]].concat());
        let rest = if last.is_some() {
            REST
        } else {
            self.options.sweep
        };
        self.sweep.at = self.now + rest;
    }
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(after(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(after(b"\xff"), None);
        assert_eq!(after(b""), None);
    }
}
