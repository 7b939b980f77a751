//! A client that counts up without an end, and knows what its counter may show.
//!
//! Invariants, of each reply and of the value in the end:
//!
//! 1. A counter is not below the number of its acknowledged increments: none is missing.
//! 2. It is not above these and those of unknown outcome: none has happened twice, and none that was
//!    refused.
//! 3. It only grows.

use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::chaos::session::{Answer, Session, World};
use crate::client::Reply;

/// Between a write and the next one.
const GAP: Duration = Duration::from_millis(2);

/// An acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// When, in nanoseconds on the clients' clock.
    pub at: u64,
    /// By which node, from 0 on.
    pub node: usize,
}

/// What is known of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Increments that were acknowledged.
    pub acknowledged: u64,
    /// Increments that may have happened.
    pub unknown: u64,
    /// The greatest value that was shown.
    shown: u64,
}

impl Book {
    /// Enters an increment that was acknowledged with this value.
    ///
    /// # Errors
    /// If the value breaks an invariant; the message says how.
    pub fn acknowledge(&mut self, value: u64) -> Result<(), String> {
        self.acknowledged += 1;
        if value <= self.shown {
            return Err(format!(
                "acknowledged increments are missing: one gives {value}, an earlier one gave {}",
                self.shown
            ));
        }
        self.shown = value;
        self.judge(value)
    }

    /// Enters an increment of unknown outcome.
    pub fn doubt(&mut self) {
        self.unknown += 1;
    }

    /// Judges a value that was read after all increments.
    ///
    /// # Errors
    /// As [`Book::acknowledge`].
    pub fn judge(&self, value: u64) -> Result<(), String> {
        let (acknowledged, unknown) = (self.acknowledged, self.unknown);
        if value < acknowledged.max(self.shown) {
            return Err(format!(
                "acknowledged increments are missing: the counter is {value}, has been {}, and \
                 {acknowledged} were acknowledged",
                self.shown
            ));
        }
        if value > acknowledged + unknown {
            return Err(format!(
                "increments have happened twice, or although they were refused: the counter is \
                 {value}; {acknowledged} were acknowledged, and of {unknown} nobody knows"
            ));
        }
        Ok(())
    }
}

/// A writer's counter.
#[must_use]
pub fn key(writer: usize) -> String {
    format!("counted:{writer}")
}

/// Counts up until the load is over, and goes where it is sent. What it finds wrong is told to the
/// world.
pub fn write(
    world: &World,
    writer: usize,
    mut session: Session<'_>,
    acks: &Mutex<Vec<Ack>>,
) -> Book {
    let (key, mut book) = (key(writer), Book::default());
    while !world.is_over() {
        match session.ask(&[&["INCR", &key]]) {
            Answer::Done(replies) => {
                let (at, node) = (world.now(), session.node());
                acks.lock().push(Ack { at, node });
                let counted = match value(&replies[0]) {
                    Some(value) => book.acknowledge(value),
                    None => Err(format!("INCR was answered with {:?}", replies[0])),
                };
                if let Err(wrong) = counted {
                    let line = format!("{key}: {wrong}, says node {}", node + 1);
                    world.wrong.lock().push(line);
                }
            }
            Answer::Unknown => book.doubt(),
            Answer::Void => {}
        }
        thread::sleep(GAP);
    }
    book
}

/// The value that a reply shows; an absent counter is zero.
#[must_use]
pub fn value(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Int(value) => u64::try_from(*value).ok(),
        Reply::Bulk(None) => Some(0),
        Reply::Bulk(Some(text)) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_lies_between_what_was_acknowledged_and_what_may_have_happened() {
        let mut book = Book::default();
        assert_eq!(book.acknowledge(1), Ok(()));
        book.doubt();
        assert_eq!(book.acknowledge(3), Ok(()));
        let missing = book.judge(2).unwrap_err();
        assert!(missing.contains("missing"), "{missing}");
        assert_eq!(book.judge(3), Ok(()));
        let twice = book.judge(4).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
    }

    #[test]
    fn each_reply_is_judged() {
        let mut book = Book::default();
        book.doubt();
        assert_eq!(book.acknowledge(2), Ok(()));
        let [mut backwards, mut twice] = [book; 2];
        assert!(backwards.acknowledge(2).unwrap_err().contains("earlier"));
        assert!(twice.acknowledge(4).unwrap_err().contains("twice"));
        assert_eq!(book.acknowledge(3), Ok(()));
        // The one of unknown outcome was seen to have happened, and must stay.
        assert!(book.judge(2).unwrap_err().contains("missing"));
    }

    #[test]
    fn what_is_no_number_is_no_value() {
        assert_eq!(value(&Reply::Int(3)), Some(3));
        assert_eq!(value(&Reply::Bulk(Some(b"12".to_vec()))), Some(12));
        assert_eq!(value(&Reply::Bulk(None)), Some(0));
        assert_eq!(value(&Reply::Int(-1)), None);
        assert_eq!(value(&Reply::Simple("OK".to_owned())), None);
    }
}
