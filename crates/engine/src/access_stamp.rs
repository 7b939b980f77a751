//! What is known of the use of a key: when it was used last, or how often it is used.
//!
//! | bits | field |
//! |---|---|
//! | 0…23 | under a policy by last use: the clock, in seconds |
//! | 8…23 | under a policy by frequency: the minute, by the same clock, at which the counter was counted down last |
//! | 0…7 | under a policy by frequency: the counter |
//!
//! The clocks and the formulas are those of Redis. The counter is logarithmic: the more uses were counted, the less
//! likely is the next one to be. It is counted down by the minutes without use. A clock begins again after 194 days
//! (seconds) and 45 days (minutes); a key that was not used for longer counts as used later. Zero says that nothing
//! is known. As in Redis, a stamp does not say under which of the two kinds of policies it was made.

use base::eviction::{EvictionOrder, EvictionPolicy, EvictionSettings};

/// The counter of a new key, so that it is not evicted at once.
pub(crate) const NEW_COUNTER: u8 = 5;

const CLOCK: u32 = (1 << 24) - 1;
const MINUTES: u32 = (1 << 16) - 1;

/// What is tracked of the use of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum UseTracking {
    /// Nothing.
    #[default]
    None = 0,
    /// When they were used last.
    LastUse = 1,
    /// How often they are used.
    Frequency = 2,
}

impl UseTracking {
    /// Returns what a policy needs.
    pub(crate) fn of(policy: EvictionPolicy) -> UseTracking {
        match policy.order() {
            Some(EvictionOrder::LeastRecentlyUsed) => UseTracking::LastUse,
            Some(EvictionOrder::LeastFrequentlyUsed) => UseTracking::Frequency,
            Some(EvictionOrder::Random | EvictionOrder::Deadline) | None => UseTracking::None,
        }
    }

    pub(crate) fn from_u8(number: u8) -> UseTracking {
        match number {
            1 => UseTracking::LastUse,
            2 => UseTracking::Frequency,
            _ => UseTracking::None,
        }
    }
}

/// See the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct AccessStamp(pub(crate) u32);

impl AccessStamp {
    /// Returns the stamp, or `unknown` if it says nothing.
    fn or(self, unknown: AccessStamp) -> AccessStamp {
        match self.0 {
            0 => unknown,
            _ => self,
        }
    }

    /// Returns the stamp of a key that was used last at this time.
    pub(crate) fn used_at(time_ms: u64) -> AccessStamp {
        AccessStamp((time_ms / 1000) as u32 & CLOCK)
    }

    /// Returns the stamp of a key that was not used for so many seconds before this time.
    pub(crate) fn idle_for(time_ms: u64, seconds: u32) -> AccessStamp {
        let now = (time_ms / 1000) as u32;
        AccessStamp(now.wrapping_sub(seconds.min(CLOCK)) & CLOCK)
    }

    /// Returns the stamp of a key with this counter at this time.
    pub(crate) fn counted_at(time_ms: u64, counter: u8) -> AccessStamp {
        let minutes = (time_ms / 60_000) as u32 & MINUTES;
        AccessStamp(minutes << 8 | u32::from(counter))
    }

    /// Returns the stamp of a key that comes into being at this time.
    pub(crate) fn of_new(tracking: UseTracking, time_ms: u64) -> AccessStamp {
        match tracking {
            UseTracking::None => AccessStamp::default(),
            UseTracking::LastUse => Self::used_at(time_ms),
            UseTracking::Frequency => Self::counted_at(time_ms, NEW_COUNTER),
        }
    }

    /// Returns the seconds since the last use. A key whose last use was not tracked counts as used at `since_ms`.
    pub(crate) fn idle_seconds(self, time_ms: u64, since_ms: u64) -> u32 {
        let stamp = self.or(Self::used_at(since_ms));
        (Self::used_at(time_ms).0.wrapping_sub(stamp.0)) & CLOCK
    }

    /// Returns the counter as it is at this time. A key whose frequency was not tracked counts as new at
    /// `since_ms`.
    pub(crate) fn counter(self, settings: &EvictionSettings, time_ms: u64, since_ms: u64) -> u8 {
        let stamp = self.or(Self::counted_at(since_ms, NEW_COUNTER));
        let counter = stamp.0 as u8;
        if settings.decay_minutes == 0 {
            return counter;
        }
        let now = Self::counted_at(time_ms, 0).0 >> 8 & MINUTES;
        let minutes = now.wrapping_sub(stamp.0 >> 8 & MINUTES) & MINUTES;
        let less = minutes / settings.decay_minutes;
        u8::try_from(less).map_or(0, |less| counter.saturating_sub(less))
    }

    /// Returns the stamp after another use. `random` returns numbers from 0 to 1.
    pub(crate) fn used(
        self,
        settings: &EvictionSettings,
        (time_ms, since_ms): (u64, u64),
        random: impl FnOnce() -> f64,
    ) -> AccessStamp {
        let mut counter = self.counter(settings, time_ms, since_ms);
        if counter < u8::MAX {
            let above = f64::from(counter.saturating_sub(NEW_COUNTER));
            if random() < 1.0 / (above * f64::from(settings.log_factor) + 1.0) {
                counter += 1;
            }
        }
        Self::counted_at(time_ms, counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn idle_time_is_that_since_the_last_use_also_over_the_end_of_the_clock() {
        let end = u64::from(CLOCK) * 1000;
        let stamp = AccessStamp::used_at(end);
        assert_eq!(stamp.idle_seconds(end + 999, 0), 0);
        assert_eq!(stamp.idle_seconds(end + 7_000, 0), 7);
        assert_eq!(AccessStamp::idle_for(5_000, 9).idle_seconds(6_000, 0), 10);
        let never = AccessStamp::default();
        assert_eq!(never.idle_seconds(20_000, 5_000), 15);
    }

    #[test]
    fn a_counter_falls_by_the_minutes_without_use() {
        let mut settings = EvictionSettings::default();
        let stamp = AccessStamp::counted_at(10 * MINUTE, 7);
        let at =
            |settings: &EvictionSettings, minute: u64| stamp.counter(settings, minute * MINUTE, 0);
        assert_eq!(
            [10, 11, 16, 90].map(|minute| at(&settings, minute)),
            [7, 6, 1, 0]
        );
        settings.decay_minutes = 3;
        assert_eq!([12, 13, 16].map(|minute| at(&settings, minute)), [7, 6, 5]);
        settings.decay_minutes = 0;
        assert_eq!(at(&settings, 5000), 7);
        let unknown = AccessStamp::default();
        assert_eq!(unknown.counter(&settings, MINUTE, 0), NEW_COUNTER);
    }

    /// Redis's documentation: with a factor of 10, about 10 after 100 uses, 18 after 1000, 142 after 100,000.
    #[test]
    fn counters_grow_with_the_logarithm_of_uses() {
        let settings = EvictionSettings::default();
        let mut random = fastrand::Rng::with_seed(7);
        let mut counter_after = |uses: u32| {
            let mut stamp = AccessStamp::of_new(UseTracking::Frequency, 0);
            for _ in 0..uses {
                stamp = stamp.used(&settings, (0, 0), || random.f64());
            }
            stamp.counter(&settings, 0, 0)
        };
        assert!((7..=13).contains(&counter_after(100)));
        assert!((15..=23).contains(&counter_after(1000)));
        assert!((125..=160).contains(&counter_after(100_000)));
    }
}
