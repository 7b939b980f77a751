//! The owner of what threads of others have references to for a moment.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// For so long the last owner waits for others.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A reference that outlives all others, so that the value is dropped by this one's thread.
///
/// The threads of a partition have a reference to the server's state for the moment of a notification. If theirs
/// were the last one, the partition would end on its own thread, and wait for itself.
pub(crate) struct LastOwner<T>(Option<Arc<T>>);

impl<T> LastOwner<T> {
    pub(crate) fn new(value: Arc<T>) -> LastOwner<T> {
        LastOwner(Some(value))
    }
}

impl<T> Deref for LastOwner<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl<T> Drop for LastOwner<T> {
    fn drop(&mut self) {
        let until = Instant::now() + LONGEST_WAIT;
        while let Some(value) = self.0.take()
            && let Err(value) = Arc::try_unwrap(value)
            && Instant::now() < until
        {
            self.0 = Some(value);
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    struct Dropped(mpsc::Sender<ThreadId>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[test]
    fn it_is_the_last_one() {
        let (dropped, drops) = mpsc::channel();
        let own = LastOwner::new(Arc::new(Dropped(dropped)));
        let weak = Arc::downgrade(&own);
        let (has_one, waits) = mpsc::channel();
        let other = thread::spawn(move || {
            let strong = weak.upgrade().unwrap();
            has_one.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            drop(strong);
            weak
        });
        waits.recv().unwrap();
        drop(own);
        assert_eq!(drops.recv(), Ok(thread::current().id()));
        assert!(other.join().unwrap().upgrade().is_none());
    }
}
