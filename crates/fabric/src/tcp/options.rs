//! How links over TCP are set up.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use base::NodeId;

use crate::handshake::{Identity, Secret};
use crate::messages::Peer;

/// How links over TCP are set up.
#[derive(Debug)]
pub struct TcpOptions {
    /// Who this is, and what it proves that by.
    pub identity: Identity,
    /// Where others connect to, as [`listen`](super::listen) returns it; none accepts nobody.
    pub listener: Option<TcpListener>,
    /// Where nodes are.
    pub peers: HashMap<NodeId, SocketAddr>,
    /// Sizes and times.
    pub limits: Limits,
}

impl TcpOptions {
    /// Links of `me`, a node or a client of the cluster with this fingerprint; nobody can connect
    /// to it, and it knows nobody.
    #[must_use]
    pub fn new(me: Peer, secret: Secret, cluster: u64) -> TcpOptions {
        TcpOptions {
            identity: Identity {
                me,
                cluster: Some(cluster),
                secret,
            },
            listener: None,
            peers: HashMap::new(),
            limits: Limits::default(),
        }
    }
}

/// Sizes and times.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of the longest message; at most [`Limits::MESSAGE_MAX`]. Memory for a message is taken
    /// as its bytes arrive.
    pub message: usize,
    /// Bytes that may wait to be sent on a link; a single message may be longer.
    pub queue: usize,
    /// How long making a link may take, from connecting to the peer's proof.
    pub handshake: Duration,
    /// Connections from outside that have not proved yet who they are.
    pub unauthenticated: usize,
    /// A link whose peer's machine does not react goes down after about this time: between this
    /// and 1.2 times as long. A process that hangs on a living machine is not noticed so; who waits
    /// for its answer notices. At least one second.
    pub dead_after: Duration,
}

impl Limits {
    /// The greatest limit on messages: their length has four bytes.
    pub const MESSAGE_MAX: usize = u32::MAX as usize;
}

impl Default for Limits {
    /// 1 GiB, 16 MiB, 5 s, 128, 10 s.
    fn default() -> Limits {
        Limits {
            message: 1 << 30,
            queue: 16 << 20,
            handshake: Duration::from_secs(5),
            unauthenticated: 128,
            dead_after: Duration::from_secs(10),
        }
    }
}
