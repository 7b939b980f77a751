//! Bounded queues, through which a proxy's threads pass each other queries and replies.
//!
//! Each pair of threads has a queue of its own in either direction, so that a queue has one producer
//! and one consumer: neither waits for the other, nor for any other thread. (The paper's rings have
//! many producers, and it finds their contention to bound how far the proxy scales: paper 3, section
//! 6.4. Crate `bench` has that design beside this one.)
//!
//! Invariant: each item is taken once, in the order in which items were put.

/// Returns both ends of a queue with room for `capacity` items: a ring without locks (paper 3, section 5.1).
pub(crate) fn queue<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    (Producer(producer), Consumer(consumer))
}

/// The producer's end of a queue.
pub(crate) struct Producer<T>(rtrb::Producer<T>);

/// The consumer's end of a queue.
pub(crate) struct Consumer<T>(rtrb::Consumer<T>);

impl<T> Producer<T> {
    /// Puts an item.
    ///
    /// # Errors
    /// Returns the item if there is no room.
    pub(crate) fn put(&mut self, item: T) -> Result<(), T> {
        self.0
            .push(item)
            .map_err(|rtrb::PushError::Full(item)| item)
    }
}

impl<T> Consumer<T> {
    /// Returns the next item, if there is one.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.pop().ok()
    }

    /// Returns how many items there are.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.0.slots()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_back() {
        let (mut producer, mut consumer) = queue(2);
        assert_eq!(producer.put(1), Ok(()));
        assert_eq!(producer.put(2), Ok(()));
        assert_eq!(producer.put(3), Err(3));
        assert_eq!(consumer.take(), Some(1));
        assert_eq!(producer.put(3), Ok(()));
        assert_eq!(consumer.count(), 2);
    }
}
