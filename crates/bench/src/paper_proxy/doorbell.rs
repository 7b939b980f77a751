//! Wakes a thread for which another thread has put something into a queue. (The paper's threads poll
//! and never sleep; they have a processor each.)
//!
//! Invariant: a thread that has put something rings before it sleeps itself. A thread that is about to
//! sleep sets `asleep`, and then checks its queues once more: no wake-up is lost.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam_utils::CachePadded;
use mio::{Poll, Token, Waker};

/// The token of a doorbell's own events.
pub(super) const DOORBELL: Token = Token(usize::MAX);

/// Wakes a thread that sleeps, and costs little while it does not.
pub(super) struct Doorbell {
    asleep: CachePadded<AtomicBool>,
    waker: Waker,
}

impl Doorbell {
    /// Creates the doorbell of the thread that waits with `poll`.
    pub(super) fn new(poll: &Poll) -> io::Result<Doorbell> {
        Ok(Doorbell {
            asleep: CachePadded::new(AtomicBool::new(false)),
            waker: Waker::new(poll.registry(), DOORBELL)?,
        })
    }

    /// Wakes the thread if it sleeps.
    pub(super) fn ring(&self) {
        // The item that was put is visible before `asleep` is read.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::Relaxed)
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "a thread cannot be woken");
        }
    }

    /// Marks the thread as asleep. It must check its queues afterwards, before it sleeps.
    pub(super) fn falls_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the thread as awake.
    pub(super) fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::Events;

    use super::*;
    use crate::paper_proxy::shared_queue::{CasRing, SharedQueue};

    #[test]
    fn no_wake_up_is_lost() {
        const ITEMS: u32 = 50_000;
        let mut poll = Poll::new().unwrap();
        let (bell, ring) = (Doorbell::new(&poll).unwrap(), CasRing::new(16));
        let mut events = Events::with_capacity(4);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ITEMS {
                    while ring.put(number).is_err() {
                        std::thread::yield_now();
                    }
                    bell.ring();
                }
            });
            let mut expected = 0;
            while expected < ITEMS {
                while let Some(number) = ring.take() {
                    assert_eq!(number, expected);
                    expected += 1;
                }
                bell.falls_asleep();
                if expected < ITEMS && ring.is_empty() {
                    let begun = std::time::Instant::now();
                    poll.poll(&mut events, Some(Duration::from_secs(20)))
                        .unwrap();
                    assert!(
                        begun.elapsed() < Duration::from_secs(20),
                        "a wake-up was lost"
                    );
                }
                bell.is_awake();
            }
        });
    }
}
