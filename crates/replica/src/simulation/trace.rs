//! What happened, in order: a hash that tells whether two runs were the same, and a text for people.

use std::fmt::{self, Write};
use std::time::Duration;

/// The events of one run.
#[derive(Default)]
pub(super) struct Trace {
    hash: u64,
    line: String,
    /// Lines, if somebody wants to read them.
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn new(keep: bool) -> Trace {
        Trace {
            hash: 0xCBF2_9CE4_8422_2325,
            line: String::new(),
            lines: keep.then(Vec::new),
        }
    }

    /// Notes an event. Nothing in it may differ between two runs of one seed: no addresses, no
    /// order of a hash table.
    pub(super) fn note(&mut self, now: Duration, what: fmt::Arguments<'_>) {
        self.line.clear();
        write!(self.line, "{:>10}  {what}", now.as_micros()).expect("a string grows");
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(self.line.clone());
        }
    }

    /// Whether somebody wants to read what happens.
    pub(super) fn is_kept(&self) -> bool {
        self.lines.is_some()
    }

    /// Says what the hash does not need to know.
    pub(super) fn tell(&mut self, now: Duration, what: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>10}  {what}", now.as_micros()));
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
