//! What has happened on links, in order.
//!
//! Short messages lie one behind the other in one buffer, which implementations read into
//! directly; a long one keeps the memory in which it was gathered. So a message is copied at most
//! once between the system and who handles it, and not at all if it came whole.
//!
//! | part | holds |
//! |---|---|
//! | `bytes[..filled]` | what entries refer to, and gaps between them |
//! | `bytes[filled..]` | memory to read into, kept initialised |
//! | `entries` | the events, in their order |

use std::ops::Range;

use crate::messages::{Event, Link, Peer};

/// Filled by [`Messages::receive`](crate::Messages::receive). Keeps its memory.
#[derive(Default, Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    filled: usize,
    entries: Vec<(Link, Entry)>,
    /// Bytes of messages that lie outside `bytes`.
    outside: usize,
}

#[derive(Debug)]
enum Entry {
    Up(Peer),
    Message(Range<usize>),
    Long(Vec<u8>),
    Drained,
    Down(String),
}

impl Inbox {
    /// Appends an event. For implementations.
    pub fn push(&mut self, link: Link, event: Event<'_>) {
        let entry = match event {
            Event::Up(peer) => Entry::Up(peer),
            Event::Message(bytes) => {
                let to = self.filled + bytes.len();
                self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
                Entry::Message(std::mem::replace(&mut self.filled, to)..to)
            }
            Event::Drained => Entry::Drained,
            Event::Down(why) => Entry::Down(why.to_owned()),
        };
        self.entries.push((link, entry));
    }

    /// Appends a message in its own memory.
    pub(crate) fn push_long(&mut self, link: Link, message: Vec<u8>) {
        self.outside += message.len();
        self.entries.push((link, Entry::Long(message)));
    }

    /// At least `len` bytes of memory behind what is filled.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.filled < len {
            self.bytes.resize(self.filled + len, 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// Where the filled part ends.
    #[inline]
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Says that `bytes[..to]` is filled; `to` may lie within what is already, of which no entry
    /// refers to the rest.
    #[inline]
    pub(crate) fn fill(&mut self, to: usize) {
        debug_assert!(to <= self.bytes.len());
        self.filled = to;
    }

    /// What is filled from `from` on.
    #[inline]
    pub(crate) fn since(&self, from: usize) -> &[u8] {
        &self.bytes[from..self.filled]
    }

    /// Appends a message that lies in what is filled.
    #[inline]
    pub(crate) fn push_filled(&mut self, link: Link, range: Range<usize>) {
        debug_assert!(range.end <= self.filled);
        self.entries.push((link, Entry::Message(range)));
    }

    /// The events, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Link, Event<'_>)> {
        self.entries.iter().map(|(link, entry)| {
            let event = match entry {
                Entry::Up(peer) => Event::Up(*peer),
                Entry::Message(range) => Event::Message(&self.bytes[range.clone()]),
                Entry::Long(bytes) => Event::Message(bytes),
                Entry::Drained => Event::Drained,
                Entry::Down(why) => Event::Down(why),
            };
            (*link, event)
        })
    }

    /// Whether nothing has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of messages, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.filled + self.outside
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.outside = 0;
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_as_they_went_in() {
        let mut inbox = Inbox::default();
        for _ in 0..2 {
            inbox.push(Link(1), Event::Up(Peer::Client));
            inbox.push(Link(1), Event::Message(b""));
            inbox.push(Link(2), Event::Message(b"two"));
            inbox.push_long(Link(1), vec![7; 9]);
            let from = inbox.filled();
            inbox.room(8)[..8].copy_from_slice(b"--inside");
            inbox.fill(from + 8);
            inbox.push_filled(Link(3), from + 2..from + 8);
            inbox.push(Link(2), Event::Down("gone"));
            let events: Vec<_> = inbox.iter().collect();
            let expected = [
                (Link(1), Event::Up(Peer::Client)),
                (Link(1), Event::Message(b"")),
                (Link(2), Event::Message(b"two")),
                (Link(1), Event::Message(&[7; 9])),
                (Link(3), Event::Message(b"inside")),
                (Link(2), Event::Down("gone")),
            ];
            assert_eq!(events, expected);
            assert_eq!((inbox.bytes(), inbox.len()), (3 + 9 + 8, 6));
            inbox.clear();
            assert!(inbox.is_empty() && inbox.bytes() == 0);
        }
    }
}
