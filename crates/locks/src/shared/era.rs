//! Eras: what a proxy knows of the partition's time.
//!
//! Tokens are made of the partition's own time, which never goes back, but a transaction's time is
//! known only when it has been executed. So a proxy opens an era: it puts a key that expires
//! [`LENGTH_MS`] later, and asks when that will be. While the key is there, the era's stamp is at
//! most that old, and a transaction can require the key in the partition itself.

use std::time::Duration;

use crate::lock::FencingToken;
use crate::moment::MonotonicTime;

/// Length of an era, in milliseconds of the partition's time.
pub(super) const LENGTH_MS: i64 = 5_000;

/// How long the record of a released lock stays. Longer than an era: if a key has no record, its
/// last lock was released before any era that is still open began.
pub(super) const TOMBSTONE_MS: i64 = LENGTH_MS + 1_000;
pub(super) const TOMBSTONE: Duration = Duration::from_millis(TOMBSTONE_MS as u64);

/// Limit on how far the tokens of a key that is granted often may run ahead of the partition's time.
/// They run ahead only while that time stands still, because a wall clock was set far ahead once.
const AHEAD_MS: u64 = 500;

// If a key has no record, an era that is still open began later than the times of all its tokens.
const _: () = assert!(TOMBSTONE_MS > LENGTH_MS + AHEAD_MS as i64);

/// An era is replaced when it has been open for this long, so that requests do not meet its end.
const FRESH: Duration = Duration::from_millis(LENGTH_MS as u64 * 3 / 5);

/// What a proxy knows of the partition's time.
#[derive(Debug, Default)]
pub(super) struct Era {
    open: Option<Open>,
    /// The number of the era that was asked for last.
    pub(super) number: u64,
    pub(super) is_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    /// Milliseconds since the Unix epoch, as the partition counts them.
    stamp_ms: u64,
    /// When the era was asked for, by this proxy's clock.
    asked: MonotonicTime,
}

impl Era {
    pub(super) fn opened(&mut self, number: u64, deadline_ms: u64, asked: MonotonicTime) {
        self.open = Some(Open {
            number,
            stamp_ms: deadline_ms.saturating_sub(LENGTH_MS as u64),
            asked,
        });
    }

    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Returns the number of an era that is open and not about to end, by this proxy's clock.
    pub(super) fn usable(&self, now: MonotonicTime) -> Option<u64> {
        let open = self.open.filter(|open| now.since(open.asked) < FRESH)?;
        Some(open.number)
    }

    /// Returns a token for a key whose record has the token `last`, or has none. Returns `None` if a
    /// newer era is needed.
    pub(super) fn token(&self, last: Option<FencingToken>) -> Option<FencingToken> {
        let stamp = self.open?.stamp_ms;
        let next = last.map_or(0, |last| last.0 + 1);
        let token = FencingToken::at_ms(stamp).max(FencingToken(next));
        let is_of_last = last.is_some_and(|last| last.ms() == token.ms());
        (is_of_last || token.ms() <= stamp + AHEAD_MS).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_beyond_the_last_and_never_tell_the_future() {
        let mut era = Era::default();
        assert_eq!(era.token(None), None, "no era is open");
        era.opened(1, 10_000, MonotonicTime::from_us(0));
        let stamp = 10_000 - LENGTH_MS as u64;
        assert_eq!(era.token(None), Some(FencingToken::at_ms(stamp)));
        let older = FencingToken::at_ms(stamp - 1);
        assert_eq!(era.token(Some(older)), Some(FencingToken::at_ms(stamp)));
        // Another proxy has seen a later time, and granted then.
        let newer = FencingToken::at_ms(stamp + 7);
        assert_eq!(era.token(Some(newer)), Some(FencingToken(newer.0 + 1)));
        let last_of_ms = FencingToken(FencingToken::at_ms(stamp + 8).0 - 1);
        let first_of_next = FencingToken::at_ms(stamp + 8);
        assert_eq!(era.token(Some(last_of_ms)), Some(first_of_next));
        let farthest = FencingToken(FencingToken::at_ms(stamp + AHEAD_MS + 1).0 - 1);
        let before = FencingToken(farthest.0 - 1);
        assert_eq!(era.token(Some(before)), Some(farthest));
        assert_eq!(era.token(Some(farthest)), None);
    }

    #[test]
    fn an_era_is_used_only_while_it_is_fresh() {
        let mut era = Era::default();
        era.opened(3, 10_000, MonotonicTime::from_us(1_000));
        assert_eq!(era.usable(MonotonicTime::from_us(2_000)), Some(3));
        assert_eq!(era.usable(MonotonicTime::from_us(1_000) + FRESH), None);
        era.close();
        assert_eq!(era.usable(MonotonicTime::from_us(2_000)), None);
    }
}
