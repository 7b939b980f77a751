//! Decides about another attempt of a transaction: if there is one, and after which pause.

use std::time::Duration;

use base::participant::Participant;
use base::{Abort, Timestamp};

use super::transaction::CoordinatedTransaction;
use crate::router::PartitionRouter;

/// Pauses between attempts double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(300);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The least pause while no node is known to lead a partition.
const LEADERLESS_PAUSE: Duration = Duration::from_millis(5);
/// Number of attempts that follow each other at once when a timestamp was overtaken.
const HASTY_ATTEMPTS: u32 = 4;
/// How far a timestamp goes beyond one that has overtaken it, in points of the clock, for each time that
/// it was overtaken; and how often that grows. It stays far below a millisecond, so that clocks that
/// overtake each other do not leave the time of day behind.
const LEAP: u64 = 64;
const LEAPS: u64 = 64;
/// Decides if another attempt may help. Returns the abort for the caller if not.
pub(super) fn may_try_again<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &CoordinatedTransaction,
    abort: Abort,
) -> (Abort, bool) {
    let context = &mut *router.context;
    let time = context.now.saturating_sub(transaction.begun);
    let again = match &abort {
        Abort::Overtaken { newest } => {
            // A little more each time, so that a clock which is behind catches up with one that goes on.
            let leaps = u64::from(transaction.attempt - 1).min(LEAPS);
            let beyond = Timestamp(newest.0 + LEAP * leaps);
            let time_ms = router.partition.time_ms();
            if let Err(error) = context.clock.witness(beyond, time_ms) {
                let what = error.to_string();
                return (Abort::Unavailable { what }, false);
            }
            true
        }
        Abort::Held { .. } => time < context.timeouts.hold,
        Abort::Refused | Abort::Conflict { .. } => true,
        Abort::Unavailable { .. } => time < context.timeouts.unreachable,
        Abort::Elsewhere { .. } => time < context.timeouts.answer,
        _ => false,
    };
    (abort, again && time < context.timeouts.transaction)
}

/// Returns the pause before the attempt that follows one which ended so. Pauses are random, so that
/// transactions that met do not meet again.
pub(super) fn pause(
    transaction: &CoordinatedTransaction,
    abort: &Abort,
    random: &mut fastrand::Rng,
) -> Duration {
    let least = match abort {
        Abort::Elsewhere { leader: None } => LEADERLESS_PAUSE,
        _ => Duration::ZERO,
    };
    let longest = LONGEST_PAUSE.min(FIRST_PAUSE * (1 << (transaction.attempt - 1).min(10)));
    let pause = match abort {
        // No other transaction has to end first.
        Abort::Overtaken { .. } if transaction.attempt <= HASTY_ATTEMPTS => Duration::ZERO,
        _ => longest.mul_f64(0.5 + random.f64() / 2.0),
    };
    pause.max(least)
}
