//! Connections through memory: those that are looked at in each turn, and those that sleep.
//!
//! A thread looks or sleeps as a whole: as long as it looks for the sake of one connection, looks
//! at the others cost next to nothing, and spare their peers the bells. But a connection on which
//! nothing happens for [`LONELY`] sleeps by itself, so that the cost of a turn depends on the
//! connections in use and not on all connections.

use std::time::Duration;

use super::spin_policy::SpinPolicy;

/// The time after which a connection sleeps even if others do not.
pub(super) const LONELY: Duration = Duration::from_millis(20);
/// The interval of looks at a connection that cannot sleep after that time, because a device has
/// not completed its writes (its peer may be out of reach).
const UNSETTLED: Duration = Duration::from_millis(1);

/// The state of a thread's looks and sleeps.
#[derive(Debug, Default)]
pub(super) struct PolledConnections {
    /// Connections whose rings are looked at.
    pub(super) awake: Vec<usize>,
    pub(super) spin_policy: SpinPolicy,
    /// The time since which the looks have found nothing.
    pub(super) since: Duration,
    /// Something was sent since the last look, to which an answer may come.
    pub(super) expects: bool,
}

impl PolledConnections {
    pub(super) fn is_asleep(&self) -> bool {
        self.awake.is_empty()
    }

    /// Returns the time for which a turn may sleep before the next look; `None` if there is nothing
    /// to look at.
    pub(super) fn pause(&self, now: Duration) -> Option<Duration> {
        if self.is_asleep() {
            return None;
        }
        let lonely = now.saturating_sub(self.since) >= LONELY;
        Some(if lonely { UNSETTLED } else { Duration::ZERO })
    }

    /// Notes that something was sent.
    #[inline]
    pub(super) fn expect(&mut self) {
        self.expects = true;
    }

    /// Forgets a connection that has gone.
    pub(super) fn forget(&mut self, place: usize) {
        self.awake.retain(|&awake| awake != place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_each_other_while_it_may_pay() {
        let mut polled = PolledConnections::default();
        let ms = Duration::from_millis;
        assert_eq!(polled.pause(ms(100)), None);
        polled.awake.push(3);
        polled.since = ms(100);
        assert_eq!(polled.pause(ms(100)), Some(Duration::ZERO));
        assert_eq!(polled.pause(ms(119)), Some(Duration::ZERO));
        assert_eq!(polled.pause(ms(120)), Some(UNSETTLED));
        polled.forget(3);
        assert_eq!(polled.pause(ms(120)), None);
    }
}
