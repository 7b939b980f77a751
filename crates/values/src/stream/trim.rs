//! Which of the oldest entries of a stream a trim removes.

use super::id::EntryId;
use super::nodes::{NODE_HEADER, StreamNode};
use super::{NODE_ENTRIES, StreamView};

/// A trim of the oldest entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamTrim {
    pub(crate) goal: TrimGoal,
    /// `true`: whole nodes are removed, and more entries than the goal asks for may stay.
    pub(crate) approximate: bool,
    /// The most entries to remove.
    pub(crate) limit: usize,
}

/// Which entries should stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrimGoal {
    /// The last ones, so many.
    Length(usize),
    /// Those with this id or a greater one.
    From(EntryId),
}

/// The entries that a trim removes.
#[derive(Default)]
pub(super) struct TrimCut {
    pub(super) entries: usize,
    /// The bytes of nodes, from the first one, that `header` replaces.
    pub(super) bytes: usize,
    /// The bytes before the entries of a node of which some stay; empty if there is no such node.
    pub(super) header: Vec<u8>,
}

impl StreamTrim {
    /// The most entries that an approximate trim removes if its call does not say so.
    pub(crate) const USUAL_LIMIT: usize = 100 * NODE_ENTRIES as usize;

    pub(super) fn cut(&self, stream: StreamView<'_>) -> TrimCut {
        let mut cut = TrimCut::default();
        for node in stream.nodes() {
            let (len, left) = (usize::from(node.len), stream.len() - cut.entries);
            let reached = matches!(self.goal, TrimGoal::Length(most) if left <= most);
            if reached || cut.entries + len > self.limit {
                break;
            }
            let goes = match self.goal {
                TrimGoal::Length(most) => left - len >= most,
                TrimGoal::From(id) => node.last().is_some_and(|last| last.id < id),
            };
            if !goes {
                if !self.approximate {
                    self.cut_within(node, left, &mut cut);
                }
                break;
            }
            cut.entries += len;
            cut.bytes = node.end();
        }
        cut
    }

    /// Cuts a node of which entries stay.
    fn cut_within(&self, node: StreamNode<'_>, left: usize, cut: &mut TrimCut) {
        let (mut entries, mut removed) = (node.entries(), 0);
        let end = loop {
            let place = entries.place();
            let goes = |entry: &EntryId| match self.goal {
                TrimGoal::Length(most) => left - removed > most,
                TrimGoal::From(id) => *entry < id,
            };
            match entries.next() {
                Some(entry) if goes(&entry.id) => removed += 1,
                _ => break place,
            }
        };
        if removed > 0 {
            cut.entries += removed;
            cut.bytes = node.place + NODE_HEADER + end;
            let header = node.header(node.length() - end, 0, removed as u16);
            cut.header = header.to_vec();
        }
    }
}
