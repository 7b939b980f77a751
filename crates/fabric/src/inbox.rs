//! The events of links, in order.
//!
//! Short messages lie in sequence in one buffer, which implementations read into directly; a long
//! one keeps the memory in which it was gathered. So a message is copied at most once between the
//! system and its handler, and not at all if it came whole.
//!
//! | part | holds |
//! |---|---|
//! | `bytes[..filled]` | the bytes to which entries refer, and gaps between them |
//! | `bytes[filled..]` | memory to read into, kept initialised |
//! | `entries` | the events, in their order |

use std::ops::Range;

use crate::link::{Event, Link, Peer};

/// Holds the events that [`Tcp::receive`](crate::tcp::Tcp::receive) adds. Keeps its memory.
#[derive(Default, Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    filled: usize,
    entries: Vec<(Link, Entry)>,
    /// The bytes of messages that lie outside `bytes`.
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

    /// Returns at least `len` bytes of memory behind the filled part.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.filled < len {
            self.bytes.resize(self.filled + len, 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// Returns the end of the filled part.
    #[inline]
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Sets the end of the filled part; `to` may lie within the filled part if no entry refers to
    /// the rest.
    #[inline]
    pub(crate) fn fill(&mut self, to: usize) {
        debug_assert!(to <= self.bytes.len());
        self.filled = to;
    }

    /// Returns the filled bytes from `from` on.
    #[inline]
    pub(crate) fn since(&self, from: usize) -> &[u8] {
        &self.bytes[from..self.filled]
    }

    /// Appends a message that lies in the filled part.
    #[inline]
    pub(crate) fn push_filled(&mut self, link: Link, range: Range<usize>) {
        debug_assert!(range.end <= self.filled);
        self.entries.push((link, Entry::Message(range)));
    }

    /// Returns the events, in their order.
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

    /// Returns `true` if there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the approximate bytes of messages.
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
