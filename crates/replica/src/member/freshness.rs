//! The age of a follower's state: the follower asks its leader for the commit index now and then.
//!
//! At the time of the question, no more was committed than the answer says.

use std::time::Duration;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// The commit index that a leader sent last, and the time of the question.
    answer: Option<(u64, Duration)>,
}

impl Freshness {
    /// Notes that no entry behind `index` was committed when the leader was asked at `asked`.
    pub(super) fn note(&mut self, index: u64, asked: Duration) {
        self.answer = Some((index, asked));
    }

    /// Returns the time up to which this member shows all that was committed, if the entries up to
    /// `applied` are enough for that.
    pub(super) fn take(&mut self, applied: u64) -> Option<Duration> {
        let (_, asked) = self.answer.take_if(|(index, _)| applied >= *index)?;
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_fresh_when_all_that_was_committed_is_applied() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.take(100), None);
        freshness.note(7, Duration::from_secs(3));
        assert_eq!(freshness.take(6), None);
        assert_eq!(freshness.take(7), Some(Duration::from_secs(3)));
        assert_eq!(freshness.take(8), None, "an answer counts once");
    }
}
