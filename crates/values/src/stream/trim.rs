//! Which of the oldest entries of a stream a trim removes.

use super::id::EntryId;
use super::packed_nodes::NODE_ENTRIES;
use super::view::StreamView;

/// A trim of the oldest entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamTrim {
    pub(crate) goal: TrimGoal,
    /// The most entries to remove, if whole nodes are removed, and more entries than the goal asks for may stay.
    pub(crate) approximate: Option<usize>,
}

/// Which entries should stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrimGoal {
    /// The last ones, so many.
    Length(usize),
    /// Those with this id or a greater one.
    From(EntryId),
}

impl StreamTrim {
    /// The most entries that an approximate trim removes if its call does not say so.
    pub(crate) const USUAL_LIMIT: usize = 100 * NODE_ENTRIES as usize;

    /// Returns how many of the oldest entries are removed.
    pub(crate) fn count(&self, stream: StreamView<'_>) -> usize {
        match (self.goal, self.approximate) {
            (TrimGoal::Length(most), None) => stream.len().saturating_sub(most),
            (TrimGoal::From(id), None) => {
                let mut count = 0;
                for node in stream.nodes() {
                    if node.last().is_none_or(|last| last.id >= id) {
                        return count + node.entries().take_while(|entry| entry.id < id).count();
                    }
                    count += node.len;
                }
                count
            }
            (_, Some(limit)) => self.count_of_nodes(stream, limit),
        }
    }

    /// Returns how many entries are removed with whole nodes.
    fn count_of_nodes(&self, stream: StreamView<'_>, limit: usize) -> usize {
        let mut count = 0;
        for node in stream.nodes() {
            let goes = match self.goal {
                TrimGoal::Length(most) => stream.len() - count - node.len >= most,
                TrimGoal::From(id) => node.last().is_some_and(|last| last.id < id),
            };
            if !goes || count + node.len > limit {
                break;
            }
            count += node.len;
        }
        count
    }
}
