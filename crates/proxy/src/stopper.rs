//! How a proxy stops, on request or because it has lost a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::runtime::thread_waker::ThreadWaker;

/// Stops a proxy; all clones stop the same proxy.
#[derive(Clone)]
pub struct Stopper {
    pub(crate) stopping: Arc<Stopping>,
    pub(crate) wakers: Vec<Arc<ThreadWaker>>,
}

impl Stopper {
    /// Begins to stop the proxy: it accepts no connections, answers the requests that it has received,
    /// and closes. Returns at once.
    pub fn stop(&self) {
        self.stopping.begun.store(true, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

/// The state of a proxy that stops.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    /// Clients are to be answered and closed.
    pub(crate) begun: AtomicBool,
    /// Threads with clients that have not ended.
    pub(crate) fronts: AtomicUsize,
    /// A thread has ended too early: it has panicked, or could not go on.
    pub(crate) lost: AtomicBool,
    /// How long the proxy waits for clients.
    pub(crate) drain: Duration,
}

/// Runs when a thread of the proxy ends, for any reason. A lost thread takes its clients and its part
/// of the nodes with it: the whole proxy stops then, instead of listening without accepting.
pub(crate) struct ThreadWatch {
    pub(crate) name: String,
    pub(crate) stopper: Stopper,
    /// The thread has clients.
    pub(crate) front: bool,
    /// The thread may end only when the proxy stops.
    pub(crate) stays: bool,
}

impl Drop for ThreadWatch {
    fn drop(&mut self) {
        let stopping = &self.stopper.stopping;
        if self.front {
            stopping.fronts.fetch_sub(1, Ordering::SeqCst);
        }
        let too_early = self.stays && !stopping.begun.load(Ordering::SeqCst);
        if too_early || std::thread::panicking() {
            stopping.lost.store(true, Ordering::SeqCst);
            let thread = &self.name;
            tracing::error!(thread, "a thread of the proxy is lost: the proxy stops");
            self.stopper.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(stays: bool, front: bool, work: impl FnOnce(&Stopping) + Send + 'static) -> Stopper {
        let stopping = Arc::new(Stopping {
            fronts: 2.into(),
            ..Stopping::default()
        });
        let wakers = Vec::new();
        let stopper = Stopper { stopping, wakers };
        let watch = ThreadWatch {
            name: "watched".to_owned(),
            stopper: stopper.clone(),
            front,
            stays,
        };
        let thread = std::thread::spawn(move || {
            let watch = watch;
            work(&watch.stopper.stopping);
        });
        let _ = thread.join();
        stopper
    }

    fn states(stopper: &Stopper) -> (bool, bool, usize) {
        let Stopping {
            begun,
            lost,
            fronts,
            ..
        } = &*stopper.stopping;
        let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        (is(begun), is(lost), fronts.load(Ordering::SeqCst))
    }

    #[test]
    fn a_thread_that_is_lost_stops_the_proxy() {
        let panics = |_: &Stopping| panic!("by the test");
        assert_eq!(states(&watched(true, true, panics)), (true, true, 1));
        assert_eq!(states(&watched(false, false, panics)), (true, true, 2));
        // A thread that cannot go on returns.
        assert_eq!(states(&watched(true, true, |_| {})), (true, true, 1));
        // A thread that was asked to end, or may end, is not lost.
        let asked = |stopping: &Stopping| stopping.begun.store(true, Ordering::SeqCst);
        assert_eq!(states(&watched(true, true, asked)), (true, false, 1));
        assert_eq!(states(&watched(false, false, |_| {})), (false, false, 2));
    }
}
