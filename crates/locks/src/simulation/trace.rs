//! What happened, in order: a hash that tells whether two runs were the same, and a text for people.

use std::fmt::{self, Write};

use crate::moment::Moment;

/// The events of one run.
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

    /// Notes an event. Nothing in it may differ between two runs of one seed.
    pub(super) fn note(&mut self, now: Moment, what: fmt::Arguments<'_>) {
        self.line.clear();
        write!(self.line, "{:>10}  {what}", now.as_us()).expect("a string grows");
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(self.line.clone());
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
