//! When the next batch may leave: while enough of them are with the node, whatever comes gathers.
//!
//! A node that has nothing of a connection gets the next query at once. One that is busy with two batches
//! would not begin with a third, and each batch costs it, the proxy and the kernel far more than another
//! query in it.

use std::collections::VecDeque;

/// Packs of one connection that have left and had no reply yet.
#[derive(Debug, Default)]
pub(crate) struct BatchWindow {
    /// Queries that have left.
    sent: u64,
    /// Queries that were answered, or given up.
    answered: u64,
    /// How many had left before each batch.
    packs: VecDeque<u64>,
}

impl BatchWindow {
    /// How many batches have had no reply at all. If replies do not come in the order of queries, this
    /// takes them as if they did.
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

    /// A batch of so many queries leaves.
    pub(crate) fn leaves(&mut self, count: usize) {
        if count > 0 {
            self.packs.push_back(self.sent);
            self.sent += count as u64;
        }
    }

    /// A query has been answered, or was given up.
    pub(crate) fn answered(&mut self) {
        self.answered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_counts_until_its_first_reply() {
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
