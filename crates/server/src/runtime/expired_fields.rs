//! Removes fields of hashes that have expired, in slices. Each runtime does so that is awake; the partition gives a hash
//! to one of them. Where another node leads, the attempt is refused, and the hash is reported again later. Where
//! transactions are executed after consensus, the fields stay, hidden, until the hash is next written.

use std::time::{Duration, Instant};

use base::transaction::ValueCall;
use base::{Abort, Op, Reply};
use reactor::Network;
use values::hash_deadlines::REMOVE_PASSED;

use super::Runtime;

/// The interval at which it is looked for hashes with fields that have expired.
const LOOK: Duration = Duration::from_millis(100);
/// The time after which a slice ends.
const SLICE: Duration = Duration::from_millis(1);
/// The least time from the begin of a slice to the next one.
const BETWEEN_SLICES: Duration = Duration::from_millis(2);
/// The time after which a hash is tried again that another transaction holds.
const AFTER_HOLD: Duration = Duration::from_millis(10);

/// What a transaction has done that removes some fields.
enum RemovalStep {
    /// Some are left.
    Some,
    /// None is left, or none can be removed now.
    Done,
    /// Nothing, because another transaction holds the key: in a replicated partition also the one before.
    Held,
}

impl<N: Network> Runtime<N> {
    /// Returns the time, since the server's start, at which fields must be looked at.
    pub(super) fn fields_due(&self) -> Option<Duration> {
        let context = &self.executor.context;
        let any = context.shared.partition.has_expiring_hashes();
        any.then(|| self.fields_due.unwrap_or(context.now + LOOK))
    }

    /// Removes fields that have expired, for as long as a slice lasts.
    pub(super) fn remove_expired_fields(&mut self) {
        self.fields_due = self.fields_due();
        let now = self.executor.context.now;
        if self.fields_due.is_none_or(|due| due > now) {
            return;
        }
        self.fields_due = Some(now + LOOK);
        let start = Instant::now();
        self.executor.worker.refresh();
        loop {
            let partition = &self.executor.context.shared.partition;
            let next = self.expiring_hash.take();
            let Some(key) = next.or_else(|| partition.take_expiring_hash()) else {
                return;
            };
            match self.remove_some_expired(&key) {
                RemovalStep::Some => self.expiring_hash = Some(key),
                RemovalStep::Done => {}
                RemovalStep::Held => {
                    self.expiring_hash = Some(key);
                    self.fields_due = Some(now + AFTER_HOLD);
                    return;
                }
            }
            if start.elapsed() >= SLICE {
                self.fields_due = Some(now + BETWEEN_SLICES);
                return;
            }
        }
    }

    /// Removes some fields of a hash that have expired.
    fn remove_some_expired(&mut self, key: &[u8]) -> RemovalStep {
        let call = ValueCall {
            command: REMOVE_PASSED,
            seed: 0,
            args: [].into(),
        };
        let ops = [Op::Call { key, call }];
        let worker = &mut self.executor.worker;
        if worker.executes_later(&ops) {
            return RemovalStep::Done;
        }
        let mut are_left = false;
        let removed = worker.execute(&ops, None, |replies, _| {
            are_left = matches!(replies, [Reply::Int(1)]);
        });
        match removed {
            Ok(_) if are_left => RemovalStep::Some,
            Ok(_) => RemovalStep::Done,
            Err(Abort::Held { .. }) => RemovalStep::Held,
            Err(reason) => {
                tracing::debug!(%reason, "expired fields of a hash were not removed");
                RemovalStep::Done
            }
        }
    }
}
