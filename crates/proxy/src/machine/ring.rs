//! What threads hand each other: bounded rings, and the bell that wakes whom they are for.
//!
//! Each pair of threads has a ring of its own in either direction, so that a ring has one producer
//! and one consumer: neither waits for the other, nor for anybody else. (The paper's rings have many
//! producers, and it finds their contention to bound how far the proxy scales: paper 3, section
//! 6.4.) [`Queues::Mutex`] is the paper's older design, kept to be measured beside it.
//!
//! Invariants:
//! 1. What is put is taken once, in order.
//! 2. A thread that has put something rings the other's bell before it sleeps. A thread that is
//!    about to sleep says so, and then looks at its rings once more: no wake-up is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::config::Queues;
use crate::net::Wake;

/// The end that puts.
pub(crate) enum Producer<T> {
    Ring(rtrb::Producer<T>),
    Locked(Arc<Locked<T>>),
}

/// The end that takes.
pub(crate) enum Consumer<T> {
    Ring(rtrb::Consumer<T>),
    Locked(Arc<Locked<T>>),
}

/// A queue behind a lock.
pub(crate) struct Locked<T> {
    items: Mutex<VecDeque<T>>,
    capacity: usize,
}

/// Both ends of a ring with room for `capacity`.
pub(crate) fn ring<T>(queues: Queues, capacity: usize) -> (Producer<T>, Consumer<T>) {
    match queues {
        Queues::LockFree => {
            let (producer, consumer) = rtrb::RingBuffer::new(capacity);
            (Producer::Ring(producer), Consumer::Ring(consumer))
        }
        Queues::Mutex => {
            let locked = Arc::new(Locked {
                items: Mutex::new(VecDeque::new()),
                capacity,
            });
            let producer = Producer::Locked(Arc::clone(&locked));
            (producer, Consumer::Locked(locked))
        }
    }
}

impl<T> Producer<T> {
    /// Puts an item, or gives it back when there is no room.
    pub(crate) fn put(&mut self, item: T) -> Result<(), T> {
        match self {
            Producer::Ring(ring) => ring.push(item).map_err(|rtrb::PushError::Full(item)| item),
            Producer::Locked(locked) => {
                let mut items = locked.items.lock();
                if items.len() == locked.capacity {
                    return Err(item);
                }
                items.push_back(item);
                Ok(())
            }
        }
    }
}

impl<T> Consumer<T> {
    /// The next item, if there is one.
    pub(crate) fn take(&mut self) -> Option<T> {
        match self {
            Consumer::Ring(ring) => ring.pop().ok(),
            Consumer::Locked(locked) => locked.items.lock().pop_front(),
        }
    }

    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Consumer::Ring(ring) => ring.slots(),
            Consumer::Locked(locked) => locked.items.lock().len(),
        }
    }
}

/// Wakes a thread that sleeps, and costs little while it does not.
pub(crate) struct Bell {
    asleep: CachePadded<AtomicBool>,
    /// How often it was needed.
    rung: AtomicUsize,
    waker: Box<dyn Wake>,
}

impl Bell {
    pub(crate) fn new(waker: impl Wake) -> Bell {
        Bell {
            asleep: CachePadded::new(AtomicBool::new(false)),
            rung: AtomicUsize::new(0),
            waker: Box::new(waker),
        }
    }

    /// The thread has something to take.
    pub(crate) fn ring(&self) {
        // What was put is visible before it is asked whether the thread sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.rung.fetch_add(1, Ordering::Relaxed);
            self.waker.wake();
        }
    }

    /// The thread is about to sleep, if there is nothing to take afterwards.
    pub(crate) fn falls_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread does not sleep.
    pub(crate) fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// How often the thread was woken by others.
    pub(crate) fn rung(&self) -> usize {
        self.rung.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Sender};
    use std::time::Duration;

    struct Told(Sender<()>);

    impl Wake for Told {
        fn wake(&self) {
            self.0.send(()).expect("it listens");
        }
    }

    #[test]
    fn everything_arrives_in_order_and_nobody_sleeps_through_it() {
        for queues in [Queues::LockFree, Queues::Mutex] {
            const COUNT: u32 = 200_000;
            let (mut producer, mut consumer) = ring(queues, 64);
            let (tell, told) = mpsc::channel();
            let bell = Bell::new(Told(tell));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..COUNT {
                        while producer.put(number).is_err() {
                            bell.ring();
                            std::thread::yield_now();
                        }
                        if number % 7 == 0 || number + 1 == COUNT {
                            bell.ring();
                        }
                    }
                });
                let mut expected = 0;
                while expected < COUNT {
                    while let Some(number) = consumer.take() {
                        assert_eq!(number, expected);
                        expected += 1;
                    }
                    if expected == COUNT {
                        break;
                    }
                    bell.falls_asleep();
                    if consumer.len() > 0 {
                        bell.is_awake();
                        continue;
                    }
                    let woken = told.recv_timeout(Duration::from_secs(20));
                    woken.expect("a wake-up was lost");
                }
            });
        }
    }

    #[test]
    fn a_full_ring_gives_back() {
        for queues in [Queues::LockFree, Queues::Mutex] {
            let (mut producer, mut consumer) = ring(queues, 2);
            assert_eq!(producer.put(1), Ok(()));
            assert_eq!(producer.put(2), Ok(()));
            assert_eq!(producer.put(3), Err(3));
            assert_eq!(consumer.take(), Some(1));
            assert_eq!(producer.put(3), Ok(()));
            assert_eq!(consumer.len(), 2);
        }
    }
}
