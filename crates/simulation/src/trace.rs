//! The events of a run, in order.

use std::fmt::{self, Write};
use std::time::Duration;

/// A point in virtual time.
pub trait VirtualTime: Copy {
    /// Returns the microseconds since the run began.
    fn as_us(self) -> u128;
}

impl VirtualTime for Duration {
    fn as_us(self) -> u128 {
        self.as_micros()
    }
}

/// The events of a run: a hash that is equal for two runs with the same events, and lines on
/// request.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    line: String,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Makes an empty trace; `keep` keeps its lines.
    #[must_use]
    pub fn new(keep: bool) -> Trace {
        Trace {
            // The basis of FNV-1a.
            hash: 0xCBF2_9CE4_8422_2325,
            line: String::new(),
            lines: keep.then(Vec::new),
        }
    }

    /// Notes an event. Its text must not differ between two runs of one seed: no addresses, no
    /// order of a hash table.
    pub fn note(&mut self, now: impl VirtualTime, what: fmt::Arguments<'_>) {
        self.line.clear();
        write!(self.line, "{:>10}  {what}", now.as_us()).expect("a string grows");
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(self.line.clone());
        }
    }

    /// Adds a line that the hash does not depend on, if lines are kept.
    pub fn tell(&mut self, now: impl VirtualTime, what: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>10}  {what}", now.as_us()));
        }
    }

    /// Returns `true` if lines are kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.lines.is_some()
    }

    /// Returns the hash, which is the same for the same events.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes the lines that were kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(keep: bool, events: &[(u64, &str)]) -> Trace {
        let mut trace = Trace::new(keep);
        for (us, event) in events {
            trace.note(Duration::from_micros(*us), format_args!("{event}"));
        }
        trace
    }

    #[test]
    fn the_hash_depends_on_times_and_events_and_not_on_what_is_kept() {
        let events = [(1, "a"), (2, "b")];
        let hash = trace(false, &events).hash();
        assert_eq!(trace(true, &events).hash(), hash);
        assert_ne!(trace(false, &[(1, "a"), (3, "b")]).hash(), hash);
        assert_ne!(trace(false, &[(1, "a"), (2, "c")]).hash(), hash);
        let mut told = trace(true, &events);
        told.tell(Duration::from_micros(7), format_args!("aside"));
        assert_eq!(told.hash(), hash);
        assert!(told.is_kept());
        let lines = told.take_lines();
        assert_eq!(
            lines,
            ["         1  a", "         2  b", "         7  aside"]
        );
        assert!(trace(false, &events).take_lines().is_empty());
    }
}
