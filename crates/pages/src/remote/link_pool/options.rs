//! How many threads share how many links.

use crate::remote::session::SessionOptions;

/// How threads share links to a node.
#[derive(Clone, Debug)]
pub struct LinkPoolOptions {
    /// How a link is made. Its `depth` and `window_bytes` are of the link, for all of its threads.
    pub session: SessionOptions,
    /// Links to the node, 1 to 1024.
    pub connections: usize,
    /// The most threads that share a link, at least 1.
    pub threads_per_connection: usize,
    /// Bytes of each thread's stack, for the estimate of memory.
    pub stack_bytes: usize,
}

impl LinkPoolOptions {
    /// Returns the number of pages that a thread may have under way: its share of the link's, at least
    /// one. If the threads of a link want more pages than the link's depth, requests wait on this side.
    #[must_use]
    pub fn reader_depth(&self) -> usize {
        (self.session.depth / self.threads_per_connection.max(1)).max(1)
    }

    /// Returns the number of threads of all links.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.connections.saturating_mul(self.threads_per_connection)
    }
}
