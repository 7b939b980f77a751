//! A link that threads share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use fabric::tcp::Transport;

use super::link_driver::LinkDriver;
use super::link_queue::LinkQueue;
use crate::error::Error;
use crate::remote::session::Session;

/// Bytes of the stack of a link's thread.
const STACK: usize = 512 << 10;

/// A link; it ends when the pool and all of its threads have dropped it.
#[derive(Debug)]
pub(super) struct SharedLink {
    pub(super) address: SocketAddr,
    pub(super) transport: Option<Transport>,
    pub(super) queue: Arc<LinkQueue>,
    driver: Option<JoinHandle<()>>,
}

impl SharedLink {
    /// Starts the thread of a link.
    pub(super) fn start(mut session: Session) -> Result<SharedLink, Error> {
        let queue = Arc::new(LinkQueue::new(session.waker()?));
        let (address, transport) = (session.address(), session.transport());
        let driver = LinkDriver::new(session, Arc::clone(&queue));
        let thread = Builder::new()
            .name("pages-link".to_owned())
            .stack_size(STACK);
        let thread = thread.spawn(move || driver.run());
        let thread = thread.map_err(|error| {
            Error::Lost(format!(
                "storage node {address}: no thread for a link can be started: {error}"
            ))
        })?;
        Ok(SharedLink {
            address,
            transport,
            queue,
            driver: Some(thread),
        })
    }

    #[cfg(test)]
    pub(super) fn without_thread(queue: LinkQueue) -> SharedLink {
        SharedLink {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            transport: None,
            queue: Arc::new(queue),
            driver: None,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.queue.is_lost()
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        self.queue.end();
        if let Some(driver) = self.driver.take()
            && driver.join().is_err()
        {
            tracing::error!("a link's thread has panicked");
        }
    }
}
