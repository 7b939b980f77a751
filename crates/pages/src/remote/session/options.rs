//! How a session is made.

use std::net::SocketAddr;
use std::time::Duration;

use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::Domain;

/// How a session is made.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Where the node is.
    pub address: SocketAddr,
    /// What it wants to be known.
    pub secret: Secret,
    /// How messages travel, and whether pages can be put into memory of this side.
    pub transport: Transport,
    /// Where memory is that processes share.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one.
    pub verbs: Option<Domain>,
    /// Pages that may be under way; at most what the node allows.
    pub depth: usize,
    /// Bytes of a window, for each size of pages.
    pub window_bytes: usize,
    /// How long a node may say nothing of what it is asked for: no answer, and not that it is at it,
    /// which nodes say every few seconds.
    pub patience: Duration,
}

impl SessionOptions {
    /// Returns a session with this node: the best transport that both sides have, 256 pages under
    /// way, windows of 32 MiB, 30 s.
    #[must_use]
    pub fn new(address: SocketAddr, secret: Secret) -> SessionOptions {
        SessionOptions {
            address,
            secret,
            transport: Transport::Auto,
            shm: Shm::default(),
            verbs: None,
            depth: 256,
            window_bytes: 32 << 20,
            patience: Duration::from_secs(30),
        }
    }
}
