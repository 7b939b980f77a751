//! The notification buffer (paper 2, section 3.3): transactions that are synced and wait for their
//! epoch to be durable in all logs, sorted by epoch, and the account of the time that they took:
//!
//! | part | from | to |
//! |---|---|---|
//! | buffer | commit | the block goes to the logger |
//! | queue | – | the logger begins to write it |
//! | write | – | the log is synced |
//! | notification | – | the epoch is durable in all logs |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Epoch;
use parking_lot::Mutex;

use crate::buffer::WaitTimes;
use crate::stats::DurabilityLatency;

/// Weight of the newest transactions in the moving mean of the latency.
const NEWEST: f64 = 0.25;

#[derive(Default)]
pub(crate) struct Notifications {
    state: Mutex<NotifierState>,
    /// The moving mean of the time that transactions wait here, in nanoseconds.
    mean_nanos: AtomicU64,
}

#[derive(Default)]
struct NotifierState {
    waiting: BTreeMap<Epoch, WaitingTransactions>,
    settled: DurabilityLatency,
}

/// Transactions of one epoch. The times are sums over them, of the parts that are over.
#[derive(Default)]
struct WaitingTransactions {
    parts: DurabilityLatency,
    /// The moments at which their logs were synced, with the number of transactions at each.
    synced: Vec<(Instant, u64)>,
}

impl Notifications {
    /// Adds blocks of which each was written between `began` and `synced`.
    pub(crate) fn put(
        &self,
        blocks: impl Iterator<Item = (Epoch, WaitTimes)>,
        began: Instant,
        synced: Instant,
    ) {
        let mut state = self.state.lock();
        let write = synced.duration_since(began);
        for (epoch, waits) in blocks {
            let n = waits.transactions;
            let waiting = state.waiting.entry(epoch).or_default();
            let parts = &mut waiting.parts;
            parts.transactions += n;
            parts.buffer += waits.buffer;
            parts.queue += waits.queue;
            parts.write += write * n as u32;
            match waiting.synced.last_mut() {
                Some((at, count)) if *at == synced => *count += n,
                _ => waiting.synced.push((synced, n)),
            }
        }
    }

    /// Removes all transactions up to `durable`, which is durable now.
    pub(crate) fn release(&self, durable: Epoch) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let later = state.waiting.split_off(&durable.next());
        let over = std::mem::replace(&mut state.waiting, later);
        let mut parts = DurabilityLatency::default();
        for waiting in over.into_values() {
            parts.add(&waiting.parts);
            let notified = waiting.synced.iter();
            parts.notification += notified
                .map(|(at, n)| now.saturating_duration_since(*at) * *n as u32)
                .sum::<Duration>();
        }
        state.settled.add(&parts);
        drop(state);
        let nanos = parts.notification.as_nanos();
        if let Some(mean) = nanos.checked_div(parts.transactions.into()) {
            self.note(Duration::from_nanos(mean as u64));
        }
    }

    fn note(&self, mean: Duration) {
        let before = self.mean_nanos.load(Ordering::Relaxed) as f64;
        let after = before + NEWEST * (mean.as_nanos() as f64 - before);
        // If two loggers account at the same time, one of two samples is lost.
        self.mean_nanos.store(after as u64, Ordering::Relaxed);
    }

    /// Returns the moving mean of the time from the sync to durability in all logs.
    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_nanos.load(Ordering::Relaxed))
    }

    /// Returns the sums over everything that has become durable.
    pub(crate) fn latency(&self) -> DurabilityLatency {
        self.state.lock().settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(n: u32) -> WaitTimes {
        WaitTimes {
            transactions: n.into(),
            buffer: Duration::from_millis(2) * n,
            queue: Duration::from_millis(3) * n,
        }
    }

    #[test]
    fn time_is_counted_by_part_and_released_by_epoch() {
        let notifications = Notifications::default();
        let synced = Instant::now();
        let began = synced - Duration::from_millis(5);
        let blocks = [(Epoch(7), waits(1)), (Epoch(8), waits(4))];
        notifications.put(blocks.into_iter(), began, synced);
        notifications.release(Epoch(6));
        assert_eq!(notifications.latency(), DurabilityLatency::default());
        notifications.release(Epoch(7));
        let one = notifications.latency();
        assert_eq!(one.transactions, 1);
        assert_eq!(one.buffer, Duration::from_millis(2));
        assert_eq!(one.queue, Duration::from_millis(3));
        assert_eq!(one.write, Duration::from_millis(5));
        notifications.release(Epoch(9));
        let all = notifications.latency();
        assert_eq!(all.buffer - one.buffer, Duration::from_millis(8));
        assert_eq!(all.write - one.write, Duration::from_millis(20));
        assert!(all.notification > one.notification);
        assert_eq!(all.transactions, 5);
    }

    #[test]
    fn the_moving_mean_follows() {
        let buffer = Notifications::default();
        for _ in 0..50 {
            buffer.note(Duration::from_millis(4));
        }
        let off = buffer.mean().abs_diff(Duration::from_millis(4));
        assert!(off < Duration::from_micros(10), "{:?}", buffer.mean());
    }
}
