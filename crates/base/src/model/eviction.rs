//! Eviction: which keys are deleted when the memory of a partition is full.
//!
//! The policies, their names and the formulas are those of Redis (`maxmemory-policy`).

use std::str::FromStr;

/// The order in which keys are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOrder {
    /// Those first that were not used for the longest time.
    LeastRecentlyUsed,
    /// Those first that are used least often.
    LeastFrequentlyUsed,
    /// Any.
    Random,
    /// Those first whose deadline comes first.
    Deadline,
}

/// A policy: which keys may be evicted, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// None is evicted: what needs memory is refused.
    #[default]
    NoEviction,
    /// All keys, the least recently used ones first.
    AllKeysLru,
    /// All keys, the least frequently used ones first.
    AllKeysLfu,
    /// All keys, in any order.
    AllKeysRandom,
    /// Keys with a deadline, the least recently used ones first.
    VolatileLru,
    /// Keys with a deadline, the least frequently used ones first.
    VolatileLfu,
    /// Keys with a deadline, in any order.
    VolatileRandom,
    /// Keys with a deadline, those first whose deadline comes first.
    VolatileTtl,
}

/// No policy has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the policies are noeviction, allkeys-lru, allkeys-lfu, allkeys-random, volatile-lru, volatile-lfu, \
     volatile-random and volatile-ttl"
)]
pub struct UnknownPolicy;

impl EvictionPolicy {
    /// All policies, in the order of their numbers.
    pub const ALL: [EvictionPolicy; 8] = [
        EvictionPolicy::NoEviction,
        EvictionPolicy::AllKeysLru,
        EvictionPolicy::AllKeysLfu,
        EvictionPolicy::AllKeysRandom,
        EvictionPolicy::VolatileLru,
        EvictionPolicy::VolatileLfu,
        EvictionPolicy::VolatileRandom,
        EvictionPolicy::VolatileTtl,
    ];

    /// Returns the policy with this number; [`EvictionPolicy::NoEviction`] if there is none.
    #[must_use]
    pub fn from_u8(number: u8) -> EvictionPolicy {
        let found = Self::ALL.get(usize::from(number));
        found.copied().unwrap_or_default()
    }

    /// Returns the name that Redis gives to the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EvictionPolicy::NoEviction => "noeviction",
            EvictionPolicy::AllKeysLru => "allkeys-lru",
            EvictionPolicy::AllKeysLfu => "allkeys-lfu",
            EvictionPolicy::AllKeysRandom => "allkeys-random",
            EvictionPolicy::VolatileLru => "volatile-lru",
            EvictionPolicy::VolatileLfu => "volatile-lfu",
            EvictionPolicy::VolatileRandom => "volatile-random",
            EvictionPolicy::VolatileTtl => "volatile-ttl",
        }
    }

    /// Returns the order of eviction; `None`: no key is evicted.
    #[must_use]
    pub fn order(self) -> Option<EvictionOrder> {
        match self {
            EvictionPolicy::NoEviction => None,
            EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru => {
                Some(EvictionOrder::LeastRecentlyUsed)
            }
            EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu => {
                Some(EvictionOrder::LeastFrequentlyUsed)
            }
            EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => {
                Some(EvictionOrder::Random)
            }
            EvictionPolicy::VolatileTtl => Some(EvictionOrder::Deadline),
        }
    }

    /// Returns `true` if only keys with a deadline are evicted.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            EvictionPolicy::VolatileLru
                | EvictionPolicy::VolatileLfu
                | EvictionPolicy::VolatileRandom
                | EvictionPolicy::VolatileTtl
        )
    }
}

impl FromStr for EvictionPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<EvictionPolicy, UnknownPolicy> {
        let named = |policy: &EvictionPolicy| policy.name().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(named).ok_or(UnknownPolicy)
    }
}

impl std::fmt::Display for EvictionPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How keys are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionSettings {
    /// Which keys are evicted, and in which order.
    pub policy: EvictionPolicy,
    /// The number of keys of which the best one is evicted (`maxmemory-samples`).
    pub samples: usize,
    /// The greater it is, the more uses a key needs for the same frequency (`lfu-log-factor`).
    pub log_factor: u32,
    /// The minutes without use after which a key's frequency falls by one; 0: never (`lfu-decay-time`).
    pub decay_minutes: u32,
}

impl Default for EvictionSettings {
    fn default() -> EvictionSettings {
        EvictionSettings {
            policy: EvictionPolicy::NoEviction,
            samples: 5,
            log_factor: 10,
            decay_minutes: 1,
        }
    }
}

/// What an [`Op::Access`](super::operation::Op::Access) does with what is known of the use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// The operation counts as a use. It answers `Int` 0 or 1: 1 if the key is present.
    Touch,
    /// It answers for how many seconds the key was not used, `Int`, or one of [`KeyAccess::NO_LRU`].
    IdleSeconds,
    /// It answers how often the key is used, by Redis's logarithmic counter, `Int`, or [`KeyAccess::NO_LFU`].
    Frequency,
    /// The key counts as not used for so many seconds, if that is tracked. Answers `Ok`.
    SetIdleSeconds(u32),
    /// The key has this frequency, if that is tracked. Answers `Ok`.
    SetFrequency(u8),
}

impl KeyAccess {
    /// The answers if the time of the last use is not tracked: under a policy by frequency, and under one that
    /// needs neither.
    pub const NO_LRU: [i64; 2] = [-1, -2];
    /// The answer if frequencies are not tracked.
    pub const NO_LFU: i64 = -1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names_and_numbers() {
        for policy in EvictionPolicy::ALL {
            assert_eq!(EvictionPolicy::from_u8(policy as u8), policy);
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(policy.is_volatile(), policy.name().starts_with("volatile"));
            assert_eq!(policy.order().is_none(), policy.name() == "noeviction");
        }
        assert_eq!("ALLKEYS-LRU".parse(), Ok(EvictionPolicy::AllKeysLru));
        assert_eq!("lru".parse::<EvictionPolicy>(), Err(UnknownPolicy));
    }
}
