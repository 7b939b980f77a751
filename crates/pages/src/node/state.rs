//! The state that a node's threads share.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use reactor::SocketWaker;
use reactor::budget::Budget;

use super::figures::StorageFigures;

/// State that a node's threads share.
#[derive(Debug)]
pub(super) struct NodeState {
    /// A budget for the messages of all links that have not arrived as a whole or are not sent.
    pub(super) in_flight: Arc<Budget>,
    pub(super) ending: AtomicBool,
    pub(super) figures: StorageFigures,
    /// The wakers of the reader loops.
    pub(super) wakers: Mutex<Vec<Arc<SocketWaker>>>,
    pub(super) failure_hook: Mutex<FailureHook>,
}

/// The function that is called when a reader loop's thread has failed.
#[derive(Default)]
pub(super) struct FailureHook {
    pub(super) has_failed: bool,
    pub(super) call: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for FailureHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FailureHook");
        shown.field("has_failed", &self.has_failed);
        shown.finish_non_exhaustive()
    }
}

/// Bytes that links may hold together.
const IN_FLIGHT: u64 = 1 << 30;

impl NodeState {
    pub(super) fn new() -> NodeState {
        NodeState {
            in_flight: Budget::new(IN_FLIGHT),
            ending: AtomicBool::default(),
            figures: StorageFigures::default(),
            wakers: Mutex::default(),
            failure_hook: Mutex::default(),
        }
    }

    /// Makes all reader loops end.
    pub(super) fn end(&self) -> io::Result<()> {
        self.ending.store(true, Ordering::Release);
        self.wakers.lock().iter().try_for_each(|waker| waker.wake())
    }

    /// Runs a reader loop; if it fails, all others end, too.
    pub(super) fn guard(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let done = catch_unwind(AssertUnwindSafe(work));
        let done =
            done.unwrap_or_else(|_| Err(io::Error::other("it has panicked; its log says where")));
        if let Err(error) = &done {
            tracing::error!(%error, "a storage node's thread has failed: the node ends");
            let woken = self.end();
            if let Err(error) = woken {
                tracing::error!(%error, "a storage node's threads cannot be woken");
            }
            let call = {
                let mut hook = self.failure_hook.lock();
                hook.has_failed = true;
                hook.call.take()
            };
            if let Some(call) = call {
                call();
            }
        }
        done
    }
}
