//! Ends a ring's wait from any thread: an eventfd that the ring watches.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::Fd;
use rustix::event::{EventfdFlags, eventfd};

/// Ends a ring's wait, this one or the next. Clones wake the same ring.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(event)))
    }

    /// Returns the descriptor that the ring watches.
    pub(super) fn event(&self) -> Fd {
        Fd(self.0.as_raw_fd())
    }

    /// Ends the ring's wait, see [`Waker`].
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn wake(&self) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::io::write(&*self.0, &1_u64.to_ne_bytes()))?;
        Ok(())
    }
}
