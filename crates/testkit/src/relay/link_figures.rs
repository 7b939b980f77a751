//! What links have done: bytes, processor time, lateness.

use std::time::Duration;

/// The greatest lateness that is counted by itself, in microseconds.
const MOST_LATE: usize = 1000;

/// What links have done since they were started.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayedLinkFigures {
    /// Bytes that each machine has sent.
    pub sent: Vec<u64>,
    /// Processor time of the forwarding thread, in seconds.
    pub cpu: f64,
    /// Pieces by the microseconds that they were later than their time; the last one has all that
    /// were later still.
    late: Vec<u64>,
}

impl Default for DelayedLinkFigures {
    fn default() -> DelayedLinkFigures {
        DelayedLinkFigures {
            sent: Vec::new(),
            cpu: 0.0,
            late: vec![0; MOST_LATE + 1],
        }
    }
}

impl DelayedLinkFigures {
    pub(super) fn note_lateness(&mut self, late: Duration) {
        let micros = usize::try_from(late.as_micros()).unwrap_or(MOST_LATE);
        self.late[micros.min(MOST_LATE)] += 1;
    }

    pub(super) fn note_sent(&mut self, machine: usize, bytes: usize) {
        if self.sent.len() <= machine {
            self.sent.resize(machine + 1, 0);
        }
        self.sent[machine] += bytes as u64;
    }

    /// Returns what was done since the figures were `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &DelayedLinkFigures) -> DelayedLinkFigures {
        let less = |now: &[u64], before: &[u64]| {
            let before = before.iter().copied().chain(std::iter::repeat(0));
            now.iter().zip(before).map(|(now, was)| now - was).collect()
        };
        DelayedLinkFigures {
            sent: less(&self.sent, &earlier.sent),
            cpu: self.cpu - earlier.cpu,
            late: less(&self.late, &earlier.late),
        }
    }

    /// Returns by how many microseconds this share of the pieces was late at most, rounded down;
    /// 0 if there were none.
    #[must_use]
    pub fn late_us(&self, share: f64) -> usize {
        let all: u64 = self.late.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut count = 0;
        let reached = self.late.iter().position(|pieces| {
            count += pieces;
            count >= wanted
        });
        reached.unwrap_or(MOST_LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_told_by_shares() {
        let mut figures = DelayedLinkFigures::default();
        assert_eq!(figures.late_us(0.5), 0);
        for micros in [1, 2, 3, 4000] {
            figures.note_lateness(Duration::from_micros(micros));
        }
        let shares = [0.25, 0.5, 0.75, 1.0].map(|share| figures.late_us(share));
        assert_eq!(shares, [1, 2, 3, MOST_LATE]);
        let later = figures.clone();
        assert_eq!(later.since(&figures).late_us(1.0), 0);
    }
}
