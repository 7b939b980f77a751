//! Decides when the next batch may leave: while enough batches are with the node, queries gather.
//!
//! A node that has no unanswered batch of a connection gets the next query at once. A node that is busy
//! with two batches would not begin with a third, and each batch costs the node, the proxy and the
//! kernel far more than another query in it.

use std::collections::VecDeque;

/// Batches of one connection that have left and had no reply yet.
#[derive(Debug, Default)]
pub(crate) struct BatchWindow {
    /// Queries that have left.
    sent: u64,
    /// Queries that were answered or given up.
    answered: u64,
    /// How many queries had left before each batch.
    packs: VecDeque<u64>,
}

impl BatchWindow {
    /// Returns how many batches have had no reply at all. If replies do not come in the order of
    /// queries, they are counted as if they did.
    pub(crate) fn unanswered(&mut self) -> usize {
        while self
            .packs
            .front()
            .is_some_and(|&start| start < self.answered)
        {
            self.packs.pop_front();
        }
        self.packs.len()
    }

    /// Records that a batch of `count` queries leaves.
    pub(crate) fn leaves(&mut self, count: usize) {
        if count > 0 {
            self.packs.push_back(self.sent);
            self.sent += count as u64;
        }
    }

    /// Records that a query was answered or given up.
    pub(crate) fn answered(&mut self) {
        self.answered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_until_its_first_reply() {
        let mut pace = BatchWindow::default();
        assert_eq!(pace.unanswered(), 0);
        pace.leaves(3);
        pace.leaves(0);
        pace.leaves(1);
        assert_eq!(pace.unanswered(), 2);
        pace.answered();
        assert_eq!(pace.unanswered(), 1);
        pace.answered();
        pace.answered();
        assert_eq!(pace.unanswered(), 1, "the second pack has had none");
        pace.leaves(2);
        pace.answered();
        assert_eq!(pace.unanswered(), 1);
        pace.answered();
        assert_eq!(pace.unanswered(), 0);
    }
}
