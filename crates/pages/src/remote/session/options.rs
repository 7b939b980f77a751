//! The options of a session.

use std::net::SocketAddr;
use std::time::Duration;

use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::{Encryption, Transport};
use fabric::verbs::Domain;

/// The options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The node's address.
    pub address: SocketAddr,
    /// The secret that the node requires.
    pub secret: Secret,
    /// The transport of messages, which decides whether pages can be put into memory of this side.
    pub transport: Transport,
    /// Which connections are encrypted.
    pub encryption: Encryption,
    /// Where the memory is that processes share.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one.
    pub verbs: Option<Domain>,
    /// Pages that may be under way; at most what the node allows.
    pub depth: usize,
    /// Bytes of a window, for each size of pages.
    pub window_bytes: usize,
    /// How long a node may be silent about a request: no answer, and no report that it is under way,
    /// which nodes send every few seconds.
    pub patience: Duration,
}

impl SessionOptions {
    /// Returns options of a session with this node: the best transport that both sides have, 256
    /// pages under way, windows of 32 MiB, 30 s.
    #[must_use]
    pub fn new(address: SocketAddr, secret: Secret) -> SessionOptions {
        SessionOptions {
            address,
            secret,
            transport: Transport::Auto,
            encryption: Encryption::Auto,
            shm: Shm::default(),
            verbs: None,
            depth: 256,
            window_bytes: 32 << 20,
            patience: Duration::from_secs(30),
        }
    }
}
