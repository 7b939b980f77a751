//! Queues behind mutexes (paper 3, section 4.3).

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use proxy::queue::{Consumer, Producer, Queue, Queues, ends};

/// See the module's page.
pub(crate) struct MutexQueues;

struct MutexQueue<T> {
    items: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl Queues for MutexQueues {
    fn queue<T: Send + 'static>(capacity: usize) -> (Producer<T>, Consumer<T>) {
        ends(Arc::new(MutexQueue {
            items: Mutex::default(),
            capacity,
        }))
    }
}

impl<T: Send> Queue<T> for MutexQueue<T> {
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

    fn count(&self) -> usize {
        self.items.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken_in_order() {
        let (mut producer, mut consumer) = MutexQueues::queue(2);
        assert_eq!(producer.put(1), Ok(()));
        assert_eq!(producer.put(2), Ok(()));
        assert_eq!(producer.put(3), Err(3));
        assert_eq!(consumer.take(), Some(1));
        assert_eq!(producer.put(3), Ok(()));
        assert_eq!(consumer.count(), 2);
        assert_eq!(consumer.take(), Some(2));
        assert_eq!(consumer.take(), Some(3));
        assert_eq!(consumer.take(), None);
    }
}
