//! Wakes a thread for which another thread has put something into a [queue](crate::queue).
//!
//! Invariant: a thread that has put something wakes the other thread before it sleeps itself. A thread
//! that is about to sleep sets `asleep`, and then checks its queues once more: no wake-up is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use crossbeam_utils::CachePadded;

use reactor::Wake;

/// Wakes a thread that sleeps, and costs little while it does not.
pub(crate) struct ThreadWaker {
    asleep: CachePadded<AtomicBool>,
    /// How often a sleeping thread was woken.
    rung: AtomicUsize,
    waker: Box<dyn Wake>,
}

impl ThreadWaker {
    pub(crate) fn new(waker: impl Wake) -> ThreadWaker {
        ThreadWaker {
            asleep: CachePadded::new(AtomicBool::new(false)),
            rung: AtomicUsize::new(0),
            waker: Box::new(waker),
        }
    }

    /// Wakes the thread if it sleeps: it has something to take.
    pub(crate) fn wake(&self) {
        // The item that was put is visible before `asleep` is read.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.rung.fetch_add(1, Ordering::Relaxed);
            self.waker.wake();
        }
    }

    /// Marks the thread as asleep. The caller must check its queues afterwards, before it sleeps.
    pub(crate) fn falls_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the thread as awake.
    pub(crate) fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Returns how often the thread was woken by others.
    pub(crate) fn rung(&self) -> usize {
        self.rung.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::queue;
    use std::sync::mpsc::{self, Sender};
    use std::time::Duration;

    struct WakeSignal(Sender<()>);

    impl Wake for WakeSignal {
        fn wake(&self) {
            self.0.send(()).expect("it listens");
        }
    }

    #[test]
    fn everything_arrives_in_order_and_no_wake_up_is_lost() {
        const COUNT: u32 = 200_000;
        let (mut producer, mut consumer) = queue(64);
        let (tell, told) = mpsc::channel();
        let waker = ThreadWaker::new(WakeSignal(tell));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..COUNT {
                    while producer.put(number).is_err() {
                        waker.wake();
                        std::thread::yield_now();
                    }
                    if number % 7 == 0 || number + 1 == COUNT {
                        waker.wake();
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
                waker.falls_asleep();
                if consumer.count() > 0 {
                    waker.is_awake();
                    continue;
                }
                let woken = told.recv_timeout(Duration::from_secs(20));
                woken.expect("a wake-up was lost");
            }
        });
    }
}
