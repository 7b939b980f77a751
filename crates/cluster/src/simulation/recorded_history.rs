//! The history of a run, and its judgement.

use std::fmt::Write;
use std::time::Duration;

use history::{History, Outcome, Verdict};

use super::keys::READ_ATOMIC;

/// Numbers of transactions, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that took effect.
    pub committed: u64,
    /// Transactions whose own precondition did not hold.
    pub declined: u64,
    /// Transactions that did not take effect for another reason.
    pub aborted: u64,
    /// Transactions whose outcome is unknown.
    pub unknown: u64,
}

impl ::simulation::Counts for Counts {
    fn add(&mut self, other: &Counts) {
        self.committed += other.committed;
        self.declined += other.declined;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
    }

    fn text(&self) -> String {
        let Counts {
            committed,
            declined,
            aborted,
            unknown,
        } = self;
        format!(
            "transactions: {committed} committed, {declined} declined, {aborted} aborted, \
             {unknown} of unknown outcome\n"
        )
    }
}

/// Transactions as lines of [`history::json`].
#[derive(Default)]
pub(super) struct RecordedHistory {
    text: String,
    next: u64,
    pub(super) counts: Counts,
}

impl RecordedHistory {
    /// Records a transaction; `ops` are its operations as JSON.
    pub(super) fn record(
        &mut self,
        process: u32,
        (start, end): (Duration, Duration),
        outcome: Outcome,
        ops: &str,
    ) {
        let (start, end) = (start.as_nanos(), end.as_nanos());
        let id = self.next;
        self.next += 1;
        let outcome = match outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "unknown",
        };
        writeln!(
            self.text,
            "{{\"process\":{process},\"id\":{id},\"start\":{start},\"end\":{end},\
             \"outcome\":\"{outcome}\",\"ops\":[{ops}]}}"
        )
        .expect("a string grows");
    }

    /// Returns the history as text, for other checkers.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Checks that a serial order explains all transactions of ordinary keys, each of which takes effect
    /// between its beginning and its end; and that the rest is read atomic, and linearizable key by key.
    ///
    /// # Errors
    /// Says why no order explains them.
    pub(super) fn judge(&self) -> Result<(), String> {
        let history: History =
            history::json::read(self.text.as_bytes()).map_err(|error| error.to_string())?;
        let is_covered = |name: &str| name.starts_with(READ_ATOMIC);
        let ordinary = history.of_keys(|name| !is_covered(name));
        match history::check::strictly_serializable(&ordinary) {
            Verdict::Accepted => {}
            other => {
                return Err(format!(
                    "the history is not strictly serializable: {other:?}"
                ));
            }
        }
        match history::check::strictly_read_atomic(&history.of_keys(is_covered)) {
            Verdict::Accepted => Ok(()),
            other => Err(format!("the history is not read atomic: {other:?}")),
        }
    }
}
