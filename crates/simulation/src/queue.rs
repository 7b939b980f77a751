//! Events in virtual time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events in the order of their times; those of one time in the order in which they were
/// scheduled.
#[derive(Debug)]
pub struct EventQueue<T, E> {
    heap: BinaryHeap<Reverse<Scheduled<T, E>>>,
    scheduled: u64,
}

#[derive(Debug)]
struct Scheduled<T, E> {
    at: T,
    number: u64,
    event: E,
}

impl<T: Ord + Copy, E> EventQueue<T, E> {
    /// Makes a queue without events.
    #[must_use]
    pub fn new() -> EventQueue<T, E> {
        EventQueue {
            heap: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    /// Schedules an event.
    pub fn push(&mut self, at: T, event: E) {
        self.scheduled += 1;
        self.heap.push(Reverse(Scheduled {
            at,
            number: self.scheduled,
            event,
        }));
    }

    /// Returns the time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<T> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(T, E)> {
        let Reverse(next) = self.heap.pop()?;
        Some((next.at, next.event))
    }
}

impl<T: Ord + Copy, E> Default for EventQueue<T, E> {
    fn default() -> EventQueue<T, E> {
        EventQueue::new()
    }
}

impl<T: Ord, E> PartialEq for Scheduled<T, E> {
    fn eq(&self, other: &Scheduled<T, E>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Ord, E> Eq for Scheduled<T, E> {}

impl<T: Ord, E> PartialOrd for Scheduled<T, E> {
    fn partial_cmp(&self, other: &Scheduled<T, E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord, E> Ord for Scheduled<T, E> {
    fn cmp(&self, other: &Scheduled<T, E>) -> Ordering {
        (&self.at, self.number).cmp(&(&other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_scheduled() {
        let mut queue = EventQueue::new();
        assert_eq!(queue.next_at(), None);
        for (at, event) in [(5, "c"), (3, "a"), (5, "d"), (3, "b")] {
            queue.push(at, event);
        }
        assert_eq!(queue.next_at(), Some(3));
        assert_eq!(queue.pop(), Some((3, "a")));
        queue.push(3, "late");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(3, "b"), (3, "late"), (5, "c"), (5, "d")]);
    }
}
