//! Bounded queues, through which a proxy's threads pass each other queries and replies.
//!
//! Each pair of threads has a queue of its own in either direction, so that a queue has one producer
//! and one consumer: neither waits for the other, nor for any other thread. (The paper's rings have
//! many producers, and it finds their contention to bound how far the proxy scales: paper 3, section
//! 6.4.)
//!
//! Invariant: each item is taken once, in the order in which items were put.

use std::sync::Arc;

/// A kind of queue.
pub trait Queues: 'static {
    /// Returns both ends of a queue with room for `capacity` items.
    fn queue<T: Send + 'static>(capacity: usize) -> (Producer<T>, Consumer<T>);
}

/// Queues as rings without locks (paper 3, section 5.1).
#[derive(Clone, Copy, Debug)]
pub struct LockFree;

impl Queues for LockFree {
    fn queue<T: Send + 'static>(capacity: usize) -> (Producer<T>, Consumer<T>) {
        let (producer, consumer) = rtrb::RingBuffer::new(capacity);
        let producer = Producer(ProducerKind::Ring(producer));
        (producer, Consumer(ConsumerKind::Ring(consumer)))
    }
}

/// A queue that another crate implements.
pub trait Queue<T>: Send + Sync {
    /// Puts an item.
    ///
    /// # Errors
    /// Returns the item if there is no room.
    fn put(&self, item: T) -> Result<(), T>;

    /// Returns the next item, if there is one.
    fn take(&self) -> Option<T>;

    /// Returns how many items there are.
    fn count(&self) -> usize;
}

/// Returns both ends of a queue that another crate implements.
#[must_use]
pub fn ends<T>(queue: Arc<dyn Queue<T>>) -> (Producer<T>, Consumer<T>) {
    let producer = Producer(ProducerKind::Other(Arc::clone(&queue)));
    (producer, Consumer(ConsumerKind::Other(queue)))
}

/// The producer's end of a queue.
pub struct Producer<T>(ProducerKind<T>);

enum ProducerKind<T> {
    Ring(rtrb::Producer<T>),
    Other(Arc<dyn Queue<T>>),
}

/// The consumer's end of a queue.
pub struct Consumer<T>(ConsumerKind<T>);

enum ConsumerKind<T> {
    Ring(rtrb::Consumer<T>),
    Other(Arc<dyn Queue<T>>),
}

impl<T> Producer<T> {
    /// Puts an item.
    ///
    /// # Errors
    /// Returns the item if there is no room.
    pub fn put(&mut self, item: T) -> Result<(), T> {
        match &mut self.0 {
            ProducerKind::Ring(ring) => ring.push(item).map_err(|rtrb::PushError::Full(item)| item),
            ProducerKind::Other(queue) => queue.put(item),
        }
    }
}

impl<T> Consumer<T> {
    /// Returns the next item, if there is one.
    pub fn take(&mut self) -> Option<T> {
        match &mut self.0 {
            ConsumerKind::Ring(ring) => ring.pop().ok(),
            ConsumerKind::Other(queue) => queue.take(),
        }
    }

    /// Returns how many items there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.0 {
            ConsumerKind::Ring(ring) => ring.slots(),
            ConsumerKind::Other(queue) => queue.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_back() {
        let (mut producer, mut consumer) = LockFree::queue(2);
        assert_eq!(producer.put(1), Ok(()));
        assert_eq!(producer.put(2), Ok(()));
        assert_eq!(producer.put(3), Err(3));
        assert_eq!(consumer.take(), Some(1));
        assert_eq!(producer.put(3), Ok(()));
        assert_eq!(consumer.count(), 2);
    }
}
