//! The latency monitor: events that took long (`LATENCY`).
//!
//! | event | what took long |
//! |---|---|
//! | `command` | the execution of a command |
//! | `fast-command` | the execution of a command whose time hardly depends on the data |
//!
//! Invariant: an event has at most one sample of each second, the longest one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::unix_time::unix_ms;

/// The samples of an event that are kept, as in Redis.
const SAMPLES: usize = 160;

/// An event that took long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LatencySample {
    /// When, in seconds since the Unix epoch.
    pub(crate) at: u64,
    pub(crate) ms: u64,
}

/// The samples of an event.
#[derive(Clone, Default)]
pub(crate) struct LatencyHistory {
    /// The oldest is first.
    pub(crate) samples: VecDeque<LatencySample>,
    /// The longest since the last reset.
    pub(crate) longest_ms: u64,
}

/// See the module's description.
pub(crate) struct LatencyMonitor {
    /// Events that take as long as this are recorded; 0: none are.
    threshold_ms: AtomicU64,
    events: Mutex<BTreeMap<&'static str, LatencyHistory>>,
}

impl LatencyHistory {
    fn add(&mut self, sample: LatencySample) {
        self.longest_ms = self.longest_ms.max(sample.ms);
        match self.samples.back_mut().filter(|last| last.at == sample.at) {
            Some(last) => last.ms = last.ms.max(sample.ms),
            None => self.samples.push_back(sample),
        }
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
    }

    /// Returns the newest sample.
    pub(crate) fn last(&self) -> Option<LatencySample> {
        self.samples.back().copied()
    }
}

impl LatencyMonitor {
    /// Creates a monitor of events that take as long as `threshold`; `None`: of none.
    pub(crate) fn new(threshold: Option<Duration>) -> LatencyMonitor {
        let ms = threshold.map_or(0, |threshold| threshold.as_millis() as u64);
        LatencyMonitor {
            threshold_ms: AtomicU64::new(ms),
            events: Mutex::default(),
        }
    }

    /// Returns the least time of an event that is recorded, in milliseconds; 0: none is.
    pub(crate) fn threshold_ms(&self) -> u64 {
        self.threshold_ms.load(Ordering::Relaxed)
    }

    /// Sets the least time of an event that is recorded, in milliseconds; 0: none is.
    pub(crate) fn set_threshold_ms(&self, ms: u64) {
        self.threshold_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the least time of an event that is recorded; `None`: none is.
    pub(crate) fn threshold(&self) -> Option<Duration> {
        let ms = self.threshold_ms();
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// Records an event.
    pub(crate) fn add(&self, event: &'static str, took: Duration) {
        let at = unix_ms(SystemTime::now()) / 1000;
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut events = self.events.lock();
        let history = events.entry(event).or_default();
        history.add(LatencySample { at, ms });
    }

    /// Returns all events with their samples.
    pub(crate) fn events(&self) -> BTreeMap<&'static str, LatencyHistory> {
        self.events.lock().clone()
    }

    /// Returns the samples of an event.
    pub(crate) fn history(&self, event: &[u8]) -> Option<LatencyHistory> {
        let events = self.events.lock();
        let mut named = events.iter().filter(|(name, _)| name.as_bytes() == event);
        named.next().map(|(_, history)| history.clone())
    }

    /// Forgets the events that are chosen. Returns their number.
    pub(crate) fn forget(&self, is_chosen: impl Fn(&str) -> bool) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|name, _| !is_chosen(name));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_its_longest_sample() {
        let mut history = LatencyHistory::default();
        let sample = |at, ms| LatencySample { at, ms };
        for (at, ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            history.add(sample(at, ms));
        }
        assert_eq!(history.samples, [sample(1, 9), sample(2, 3)]);
        assert_eq!(
            (history.longest_ms, history.last()),
            (9, Some(sample(2, 3)))
        );
        for at in 3..3 + SAMPLES as u64 {
            history.add(sample(at, 1));
        }
        assert_eq!(history.samples.len(), SAMPLES);
        assert_eq!((history.samples[0].at, history.longest_ms), (3, 9));
    }

    #[test]
    fn events_are_forgotten_by_name() {
        let monitor = LatencyMonitor::new(None);
        monitor.add("command", Duration::from_millis(20));
        monitor.add("fast-command", Duration::from_millis(30));
        assert_eq!(monitor.history(b"command").unwrap().longest_ms, 20);
        assert!(monitor.history(b"other").is_none());
        assert_eq!(monitor.forget(|name| name == "command"), 1);
        assert_eq!(monitor.events().len(), 1);
        assert_eq!(monitor.forget(|_| true), 1);
    }
}
