//! Log lines at a limited rate: events that strangers cause must not fill the log.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// The number of kinds that are distinguished. While all of them are recent, an event of another kind
/// gets no line: a client that can choose kinds, by its address for example, cannot fill the log.
const REMEMBERED: usize = 64;

/// Decides which events get a log line: the first of each kind, and then at most one in each interval.
#[derive(Debug)]
pub struct LogLimit<K> {
    interval: Duration,
    kinds: HashMap<K, Logged>,
}

#[derive(Debug)]
struct Logged {
    at: Duration,
    left_out: u64,
}

impl<K: Eq + Hash> LogLimit<K> {
    /// Returns a limit that lets one line of each kind pass in `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> LogLimit<K> {
        LogLimit {
            interval,
            kinds: HashMap::new(),
        }
    }

    /// Counts an event at `now`, on any steady clock. If the log should have a line now, returns how
    /// many events of this kind were left out since the last line.
    pub fn count(&mut self, kind: K, now: Duration) -> Option<LeftOut> {
        let interval = self.interval;
        if let Some(logged) = self.kinds.get_mut(&kind) {
            if now < logged.at + interval {
                logged.left_out += 1;
                return None;
            }
            logged.at = now;
            return Some(LeftOut(std::mem::take(&mut logged.left_out)));
        }
        if self.kinds.len() >= REMEMBERED {
            self.kinds.retain(|_, logged| now < logged.at + interval);
        }
        if self.kinds.len() >= REMEMBERED {
            return None;
        }
        let logged = Logged {
            at: now,
            left_out: 0,
        };
        self.kinds.insert(kind, logged);
        Some(LeftOut(0))
    }
}

/// The number of events of the same kind that had no line. It is shown behind the line's text; zero is
/// shown as nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(pub u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(
                f,
                " (the same happened {count} times since the last such line)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_kind_has_one_line_in_an_interval() {
        let mut limit = LogLimit::new(10 * SECOND);
        assert_eq!(limit.count("a", SECOND), Some(LeftOut(0)));
        assert_eq!(limit.count("a", 2 * SECOND), None);
        assert_eq!(limit.count("a", 3 * SECOND), None);
        assert_eq!(limit.count("b", 3 * SECOND), Some(LeftOut(0)));
        assert_eq!(limit.count("a", 11 * SECOND), Some(LeftOut(2)));
        assert_eq!(limit.count("a", 12 * SECOND), None);
        assert_eq!(LeftOut(0).to_string(), "");
        assert!(LeftOut(2).to_string().contains(" 2 times "));
    }

    #[test]
    fn kinds_that_are_chosen_freely_do_not_fill_the_log() {
        let mut limit = LogLimit::new(10 * SECOND);
        let lines = (0..1000)
            .filter_map(|kind| limit.count(kind, SECOND))
            .count();
        assert_eq!(lines, REMEMBERED);
        assert_eq!(limit.count(1000, 11 * SECOND), Some(LeftOut(0)));
    }
}
