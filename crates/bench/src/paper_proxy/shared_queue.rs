//! The queues that client threads and aggregation threads share.
//!
//! | queue | paper 3 | how threads exclude each other |
//! |---|---|---|
//! | [`CasRing`] | section 5.1: `rte_ring` | compare-and-swap on the ring's two ends; a thread that loses tries again |
//! | [`MutexQueue`] | section 4.3 | a mutex, which each operation takes and releases |
//!
//! Thread safety: any number of threads put and take at the same time.
//!
//! Invariants:
//! 1. Each item that was put is taken once.
//! 2. Items of one producer are taken in the order in which it put them.
//! 3. A queue holds at most its capacity.

use std::collections::VecDeque;

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;

/// A bounded queue with many producers and many consumers.
pub(super) trait SharedQueue<T>: Send + Sync {
    /// Puts an item.
    ///
    /// # Errors
    /// Returns the item if there is no room.
    fn put(&self, item: T) -> Result<(), T>;

    /// Takes the oldest item, if there is one.
    fn take(&self) -> Option<T>;

    /// Returns `true` if there is no item.
    fn is_empty(&self) -> bool;
}

/// A ring without locks.
pub(super) struct CasRing<T>(ArrayQueue<T>);

impl<T> CasRing<T> {
    pub(super) fn new(capacity: usize) -> CasRing<T> {
        CasRing(ArrayQueue::new(capacity))
    }
}

impl<T: Send> SharedQueue<T> for CasRing<T> {
    fn put(&self, item: T) -> Result<(), T> {
        self.0.push(item)
    }

    fn take(&self) -> Option<T> {
        self.0.pop()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A queue behind a mutex.
pub(super) struct MutexQueue<T> {
    items: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T> MutexQueue<T> {
    pub(super) fn new(capacity: usize) -> MutexQueue<T> {
        MutexQueue {
            items: Mutex::default(),
            capacity,
        }
    }
}

impl<T: Send> SharedQueue<T> for MutexQueue<T> {
    fn put(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock();
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }

    fn take(&self) -> Option<T> {
        self.items.lock().pop_front()
    }

    fn is_empty(&self) -> bool {
        self.items.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A producer's number, and how many items it had put before.
    type Item = (usize, u64);

    const PRODUCERS: usize = 4;
    const CONSUMERS: usize = 3;
    const ITEMS: u64 = 20_000;

    fn bounds(queue: &dyn SharedQueue<Item>) {
        assert!(queue.is_empty());
        assert_eq!(queue.put((0, 1)), Ok(()));
        assert_eq!(queue.put((0, 2)), Ok(()));
        assert_eq!(queue.put((0, 3)), Err((0, 3)), "there is no room");
        assert!(!queue.is_empty());
        assert_eq!(queue.take(), Some((0, 1)));
        assert_eq!(queue.put((0, 3)), Ok(()));
        assert_eq!(queue.take(), Some((0, 2)));
        assert_eq!(queue.take(), Some((0, 3)));
        assert_eq!(queue.take(), None);
    }

    /// Returns the items that each consumer took, in its order.
    fn contend(queue: &dyn SharedQueue<Item>) -> Vec<Vec<Item>> {
        let left = AtomicUsize::new(PRODUCERS * ITEMS as usize);
        std::thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                scope.spawn(move || {
                    for number in 0..ITEMS {
                        while queue.put((producer, number)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let consume = || {
                let mut taken = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    match queue.take() {
                        Some(item) => {
                            left.fetch_sub(1, Ordering::Relaxed);
                            taken.push(item);
                        }
                        None => std::thread::yield_now(),
                    }
                }
                taken
            };
            let consumers: Vec<_> = (0..CONSUMERS).map(|_| scope.spawn(consume)).collect();
            let ended = consumers.into_iter().map(|one| one.join());
            ended
                .map(|taken| taken.expect("no consumer panics"))
                .collect()
        })
    }

    fn holds(queue: &dyn SharedQueue<Item>) {
        let taken = contend(queue);
        for items in &taken {
            let mut last = [None; PRODUCERS];
            for &(producer, number) in items {
                assert!(last[producer] < Some(number), "an item was overtaken");
                last[producer] = Some(number);
            }
        }
        let mut all: Vec<Item> = taken.into_iter().flatten().collect();
        all.sort_unstable();
        let expected = (0..PRODUCERS).flat_map(|producer| (0..ITEMS).map(move |n| (producer, n)));
        assert!(
            all.into_iter().eq(expected),
            "an item was lost or taken twice"
        );
    }

    #[test]
    fn a_full_queue_gives_back() {
        bounds(&CasRing::new(2));
        bounds(&MutexQueue::new(2));
    }

    #[test]
    fn nothing_is_lost_or_taken_twice_or_overtaken() {
        // A small ring goes round often, and is full and empty in turn.
        for capacity in [3, 64] {
            holds(&CasRing::new(capacity));
            holds(&MutexQueue::new(capacity));
        }
    }
}
