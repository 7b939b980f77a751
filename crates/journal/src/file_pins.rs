//! Pins: files that are kept although a recovery does not need them, because a backup copies them.
//!
//! A pin has a name, which its owner chooses, and a time after which it ends unless it is renewed: an
//! owner that is gone does not keep files for ever.
//!
//! Invariant: a file that is pinned was there when it was pinned, and is there until the pin ends: the lock of
//! the pins is held while files are looked up for a pin, and while files are removed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base::Epoch;
use parking_lot::{Mutex, MutexGuard};

/// The pins of a journal's files.
#[derive(Default)]
pub(crate) struct FilePins {
    pins: Mutex<HashMap<String, FilePin>>,
}

/// The files that one owner has pinned.
pub(crate) struct FilePin {
    /// The checkpoints.
    pub(crate) checkpoints: Vec<Epoch>,
    /// For each log: the segments from this one on.
    pub(crate) segments: Vec<u32>,
    pub(crate) until: Instant,
}

/// The files that are pinned. None is pinned, and no pin ends, while this lives.
pub(crate) struct PinnedFiles<'a> {
    pins: MutexGuard<'a, HashMap<String, FilePin>>,
}

impl FilePins {
    /// Returns the files that are pinned now.
    pub(crate) fn lock(&self) -> PinnedFiles<'_> {
        let mut pins = self.pins.lock();
        let now = Instant::now();
        pins.retain(|_, pin| now < pin.until);
        PinnedFiles { pins }
    }

    /// Ends a pin.
    pub(crate) fn remove(&self, name: &str) {
        self.pins.lock().remove(name);
    }
}

impl PinnedFiles<'_> {
    /// Sets a pin, in place of another one of its name.
    pub(crate) fn insert(&mut self, name: &str, pin: FilePin) {
        self.pins.insert(name.to_owned(), pin);
    }

    /// Returns a pin that has not ended, and renews it for `time`.
    pub(crate) fn renew(&mut self, name: &str, time: Duration) -> Option<&mut FilePin> {
        let pin = self.pins.get_mut(name)?;
        pin.until = pin.until.max(Instant::now() + time);
        Some(pin)
    }

    /// Returns the number of the first segment of `log` that must be kept if only those from `needed` on are
    /// needed otherwise.
    pub(crate) fn least_segment(&self, log: usize, needed: u32) -> u32 {
        let pinned = self.pins.values().filter_map(|pin| pin.segments.get(log));
        pinned.copied().fold(needed, u32::min)
    }

    /// Returns `true` if the checkpoint of `epoch` is pinned.
    pub(crate) fn has_checkpoint(&self, epoch: Epoch) -> bool {
        let mut pins = self.pins.values();
        pins.any(|pin| pin.checkpoints.contains(&epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_pinned_until_the_last_pin_ends() {
        let pins = FilePins::default();
        let pin = |segment, seconds| FilePin {
            checkpoints: vec![Epoch(u64::from(segment))],
            segments: vec![segment],
            until: Instant::now() + Duration::from_secs(seconds),
        };
        pins.lock().insert("a", pin(3, 3600));
        pins.lock().insert("b", pin(2, 3600));
        pins.lock().insert("c", pin(1, 0));
        let of = |log, needed| pins.lock().least_segment(log, needed);
        assert_eq!((of(0, 7), of(0, 1), of(1, 7)), (2, 1, 7));
        assert!(pins.lock().has_checkpoint(Epoch(2)) && !pins.lock().has_checkpoint(Epoch(1)));
        assert!(pins.lock().renew("c", Duration::from_secs(1)).is_none());
        pins.remove("b");
        assert_eq!(of(0, 7), 3);
        assert!(!pins.lock().has_checkpoint(Epoch(2)));
        pins.lock().renew("a", Duration::ZERO).unwrap().segments[0] = 5;
        assert_eq!(of(0, 7), 5);
    }
}
