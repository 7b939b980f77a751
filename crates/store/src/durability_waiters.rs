//! Tasks that wait until an epoch is durable.

use std::task::Waker;

use base::Epoch;
use parking_lot::Mutex;

/// Tasks that wait for an epoch to become durable.
#[derive(Default)]
pub(crate) struct DurabilityWaiters(Mutex<Vec<(Epoch, Waker)>>);

impl DurabilityWaiters {
    /// Wakes the tasks whose epoch is durable; all tasks when no other epoch will ever be durable.
    pub(crate) fn wake(&self, durable: Epoch, over: bool) {
        let ready: Vec<_> = {
            let mut waiting = self.0.lock();
            waiting
                .extract_if(.., |(epoch, _)| over || *epoch <= durable)
                .collect()
        };
        ready.into_iter().for_each(|(_, waker)| waker.wake());
    }

    pub(crate) fn add(&self, epoch: Epoch, waker: Waker) {
        self.0.lock().push((epoch, waker));
    }
}
