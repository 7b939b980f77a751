//! What the threads of an engine share about eviction: the settings, and what was evicted.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use base::eviction::{EvictionPolicy, EvictionSettings};

use crate::access_stamp::{AccessStamp, UseTracking};
use crate::record::RecordRef;

/// What may be used beyond the limit while deleted memory waits to be freed: this share of the limit.
const CEILING_SHARE: u64 = 2;
/// But at least so many bytes.
const LEAST_ABOVE: u64 = 16 << 20;

/// See the module's description.
pub(crate) struct EvictionState {
    policy: AtomicU8,
    samples: AtomicUsize,
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    /// What is tracked of the use of keys, as a number.
    tracking: AtomicU8,
    /// The engine's time when that began.
    since_ms: AtomicU64,
    evicted: AtomicU64,
    /// `true` if no key was found that can be evicted, when one was last needed.
    is_exhausted: AtomicBool,
    /// Bytes of keys whose deletion was submitted to the log of a replicated partition, and not applied yet.
    pub(crate) submitted_bytes: AtomicU64,
    /// The time since which more memory is used than the limit; 0: it is not.
    exceeded_since_ms: AtomicU64,
    /// The sum of such times that are over.
    exceeded_ms: AtomicU64,
}

impl Default for EvictionState {
    fn default() -> EvictionState {
        let settings = EvictionSettings::default();
        EvictionState {
            policy: AtomicU8::new(settings.policy as u8),
            samples: AtomicUsize::new(settings.samples),
            log_factor: AtomicU32::new(settings.log_factor),
            decay_minutes: AtomicU32::new(settings.decay_minutes),
            tracking: AtomicU8::new(0),
            since_ms: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            is_exhausted: AtomicBool::new(false),
            submitted_bytes: AtomicU64::new(0),
            exceeded_since_ms: AtomicU64::new(0),
            exceeded_ms: AtomicU64::new(0),
        }
    }
}

impl EvictionState {
    pub(crate) fn set(&self, settings: &EvictionSettings, time_ms: u64) {
        let tracking = UseTracking::of(settings.policy);
        if self.tracking() != tracking {
            self.since_ms.store(time_ms, Ordering::Relaxed);
        }
        self.policy.store(settings.policy as u8, Ordering::Relaxed);
        self.samples.store(settings.samples, Ordering::Relaxed);
        self.log_factor
            .store(settings.log_factor, Ordering::Relaxed);
        self.decay_minutes
            .store(settings.decay_minutes, Ordering::Relaxed);
        self.is_exhausted.store(false, Ordering::Relaxed);
        self.tracking.store(tracking as u8, Ordering::Release);
    }

    pub(crate) fn settings(&self) -> EvictionSettings {
        EvictionSettings {
            policy: self.policy(),
            samples: self.samples.load(Ordering::Relaxed),
            log_factor: self.log_factor.load(Ordering::Relaxed),
            decay_minutes: self.decay_minutes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn policy(&self) -> EvictionPolicy {
        EvictionPolicy::from_u8(self.policy.load(Ordering::Relaxed))
    }

    /// Returns what is tracked of the use of keys.
    #[inline]
    pub(crate) fn tracking(&self) -> UseTracking {
        UseTracking::from_u8(self.tracking.load(Ordering::Acquire))
    }

    /// Returns the time at which tracking began.
    pub(crate) fn since_ms(&self) -> u64 {
        self.since_ms.load(Ordering::Relaxed)
    }

    /// Notes a use of a key at this time.
    pub(crate) fn note_use(&self, record: RecordRef, time_ms: u64, random: &mut fastrand::Rng) {
        let before = record.stamp();
        let after = match self.tracking() {
            UseTracking::None => return,
            UseTracking::LastUse => AccessStamp::used_at(time_ms),
            UseTracking::Frequency => {
                let times = (time_ms, self.since_ms());
                before.used(&self.settings(), times, || random.f64())
            }
        };
        // Most uses of a key that is used often change nothing.
        if after != before {
            record.set_stamp(after);
        }
    }

    /// Returns the most bytes that may be in use: beyond them operations that need memory are refused, also while evicted
    /// keys wait to be freed.
    pub(crate) fn ceiling(&self, limit: u64) -> u64 {
        match self.policy() == EvictionPolicy::NoEviction
            || self.is_exhausted.load(Ordering::Relaxed)
        {
            true => limit,
            false => limit.saturating_add((limit / CEILING_SHARE).max(LEAST_ABOVE)),
        }
    }

    /// Notes whether keys were found that can be evicted.
    pub(crate) fn note_exhausted(&self, is_exhausted: bool) {
        if self.is_exhausted.load(Ordering::Relaxed) != is_exhausted {
            self.is_exhausted.store(is_exhausted, Ordering::Relaxed);
        }
    }

    /// Notes whether more memory is used than the limit.
    pub(crate) fn note_exceeded(&self, is_exceeded: bool, time_ms: u64) {
        let since = self.exceeded_since_ms.load(Ordering::Relaxed);
        if is_exceeded == (since > 0) {
            return;
        }
        let now = if is_exceeded { time_ms } else { 0 };
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let changed = self
            .exceeded_since_ms
            .compare_exchange(since, now, order.0, order.1);
        if changed.is_ok() && !is_exceeded {
            let lasted = time_ms.saturating_sub(since);
            self.exceeded_ms.fetch_add(lasted, Ordering::Relaxed);
        }
    }

    /// Returns the milliseconds for which more memory was used than the limit.
    pub(crate) fn exceeded_ms(&self, time_ms: u64) -> u64 {
        let since = self.exceeded_since_ms.load(Ordering::Relaxed);
        let now = if since > 0 {
            time_ms.saturating_sub(since)
        } else {
            0
        };
        self.exceeded_ms.load(Ordering::Relaxed) + now
    }

    pub(crate) fn note_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
