//! How links over TCP are set up.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use budget::Budget;

use super::deal::Seat;
use crate::frame::Ways;
use crate::handshake::{Identity, Secret};
use crate::messages::Peer;
use crate::shm::Shm;
use crate::verbs::Domain;

/// How links over TCP are set up.
#[derive(Debug)]
pub struct TcpOptions {
    /// Who this is, and what it proves that by. Its ways are those of the transport.
    pub identity: Identity,
    /// Where others connect to, as [`listen`](super::listen) returns it; none accepts nobody.
    pub listener: Option<TcpListener>,
    /// With others: connections come from whoever of them has the listener, and go to all.
    pub seat: Option<Seat>,
    /// Where nodes are.
    pub peers: HashMap<NodeId, SocketAddr>,
    /// How messages travel.
    pub transport: Transport,
    /// Where memory is that processes share.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one. Who makes links through it and those to whom it
    /// makes them are in one, each on its side.
    pub verbs: Option<Domain>,
    /// The bound on what links hold together of messages that have not arrived whole or are not sent. A
    /// link that needs more than is left goes down.
    pub budget: Arc<Budget>,
    /// Sizes and times.
    pub limits: Limits,
}

/// How messages travel on a link. Links are always made over TCP: there peers prove who they are,
/// and there the end of one is noticed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Over TCP.
    #[default]
    Tcp,
    /// Through memory that processes share, if both peers know that way and see the same memory;
    /// else through RDMA devices, if both have one; else over TCP.
    Auto,
    /// Through memory that processes share; a link to a peer that is not reached so is not made.
    /// Links that others make are as under [`Transport::Auto`].
    Shm,
    /// Through memory that RDMA devices reach; otherwise as [`Transport::Shm`].
    Verbs,
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
                clients: None,
                ways: Ways::NONE,
            },
            listener: None,
            seat: None,
            peers: HashMap::new(),
            transport: Transport::default(),
            shm: Shm::default(),
            verbs: None,
            budget: Budget::new(u64::MAX),
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
    /// Connections from outside that have not proved yet who they are. When there are so many, a new one
    /// takes the place of the oldest.
    pub unauthenticated: usize,
    /// A link whose peer's machine does not react goes down after about this time: between this
    /// and 1.2 times as long. A process that hangs on a living machine is not noticed so; who waits
    /// for its answer notices. At least one second.
    pub dead_after: Duration,
    /// Bytes that may be under way in shared memory, for each link and direction; at least
    /// [`Limits::RING_MIN`]. The memory is taken as long as the link is up.
    pub ring: usize,
}

impl Limits {
    /// The greatest limit on messages: their length has four bytes.
    pub const MESSAGE_MAX: usize = u32::MAX as usize;
    /// The smallest ring: less is all records and no bytes.
    pub const RING_MIN: usize = 1 << 10;
}

impl Default for Limits {
    /// 1 GiB, 16 MiB, 5 s, 128, 10 s, 64 KiB.
    fn default() -> Limits {
        Limits {
            message: 1 << 30,
            queue: 16 << 20,
            handshake: Duration::from_secs(5),
            unauthenticated: 128,
            dead_after: Duration::from_secs(10),
            ring: 64 << 10,
        }
    }
}
