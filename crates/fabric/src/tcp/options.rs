//! Options of links over TCP.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use reactor::budget::Budget;

use crate::frame::TransportSet;
use crate::handshake::{Identity, Secret};
use crate::link::Peer;
use crate::shm::Shm;
use crate::verbs::Domain;

/// Options of links over TCP.
#[derive(Debug)]
pub struct TcpOptions {
    /// The identity of this participant, and the means to prove it. Its ways are those of the
    /// transport.
    pub identity: Identity,
    /// The listener, as [`listen`](super::listen) returns it; without one, no peer can connect.
    pub listener: Option<TcpListener>,
    /// The addresses of nodes.
    pub peers: HashMap<NodeId, SocketAddr>,
    /// The transport of messages.
    pub transport: Transport,
    /// The connections that are encrypted.
    pub encryption: Encryption,
    /// The directory of shared memory.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one. The links that are made through it belong to one
    /// domain on each side.
    pub verbs: Option<Domain>,
    /// The bound on the memory that all links together hold for messages that have not arrived
    /// whole or are not sent. A link that needs more than is left goes down.
    pub budget: Arc<Budget>,
    /// Limits on sizes and times.
    pub limits: TransportLimits,
}

/// The transport of messages on a link. Links are always made over TCP: the TCP connection serves
/// to authenticate the peers, and to notice the end of one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Messages travel over TCP.
    #[default]
    Tcp,
    /// Messages travel through memory that processes share, if both peers know that way and see the
    /// same memory; else through RDMA devices, if both have one; else over TCP.
    Auto,
    /// Messages travel through memory that processes share; a link to a peer that cannot be reached
    /// in this way is not made. Links that others make are as under [`Transport::Auto`].
    Shm,
    /// Messages travel through memory that RDMA devices reach; otherwise as [`Transport::Shm`]. Such messages
    /// cannot be encrypted: the link is not made if one of the sides asks for encryption.
    Verbs,
    /// Messages travel by Send and Receive, emulated in memory that processes share; otherwise as
    /// [`Transport::Shm`]. It is for tests and comparisons.
    ShmSend,
    /// Messages travel by Send and Receive of RDMA devices; otherwise as [`Transport::Verbs`].
    VerbsSend,
}

impl Transport {
    /// Returns `true` if messages travel through an RDMA device, and no other way is used instead.
    #[must_use]
    pub fn needs_device(self) -> bool {
        matches!(self, Transport::Verbs | Transport::VerbsSend)
    }

    /// Returns `true` if messages travel by Send and Receive.
    #[must_use]
    pub fn is_send_receive(self) -> bool {
        matches!(self, Transport::ShmSend | Transport::VerbsSend)
    }
}

/// The connections for which this side asks for encryption. A connection is encrypted if one of its sides asks
/// for that.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// Those that leave the machine: all but those between loopback addresses.
    #[default]
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

impl Encryption {
    /// Returns `true` if this side asks for the encryption of a connection with this peer.
    pub(super) fn applies_to(self, peer: SocketAddr) -> bool {
        match self {
            Encryption::Auto => !peer.ip().to_canonical().is_loopback(),
            Encryption::Always => true,
            Encryption::Never => false,
        }
    }
}

impl TcpOptions {
    /// Returns options for `me`, a node or a client of the cluster with this fingerprint. No peer
    /// can connect to it, and it knows no addresses.
    #[must_use]
    pub fn new(me: Peer, secret: Secret, cluster: u64) -> TcpOptions {
        TcpOptions {
            identity: Identity {
                me,
                cluster: Some(cluster),
                secret,
                clients: None,
                ways: TransportSet::NONE,
            },
            listener: None,
            peers: HashMap::new(),
            transport: Transport::default(),
            encryption: Encryption::default(),
            shm: Shm::default(),
            verbs: None,
            budget: Budget::new(u64::MAX),
            limits: TransportLimits::default(),
        }
    }
}

/// Limits on sizes and times.
#[derive(Clone, Debug)]
pub struct TransportLimits {
    /// The length of the longest message in bytes; at most [`TransportLimits::MESSAGE_MAX`]. Memory for a
    /// message is taken as its bytes arrive.
    pub message: usize,
    /// Bytes that may wait to be sent on a link; a single message may be longer.
    pub queue: usize,
    /// The greatest time for making a link, from connecting to the peer's proof.
    pub handshake: Duration,
    /// The number of incoming connections that may be unauthenticated. When there are so many, a
    /// new one takes the place of the oldest.
    pub unauthenticated: usize,
    /// A link whose peer's machine does not react goes down after about this time: between this and
    /// 1.2 times as long. This does not notice a process that hangs on a living machine; the caller
    /// that waits for its answer does. At least one second.
    pub dead_after: Duration,
    /// The number of bytes that may be in flight in shared memory or an RDMA device, for each link
    /// and direction; at least [`TransportLimits::RING_MIN`]. The memory is taken as long as the link is up.
    /// A link by Send and Receive posts as many bytes, and counts them in the budget.
    pub ring: usize,
}

impl TransportLimits {
    /// The greatest limit on messages: their length has four bytes.
    pub const MESSAGE_MAX: usize = u32::MAX as usize;
    /// The smallest ring: a smaller one would hold only the overhead of records.
    pub const RING_MIN: usize = 1 << 10;
}

impl Default for TransportLimits {
    /// Returns 1 GiB, 16 MiB, 5 s, 128, 10 s, 64 KiB.
    fn default() -> TransportLimits {
        TransportLimits {
            message: 1 << 30,
            queue: 16 << 20,
            handshake: Duration::from_secs(5),
            unauthenticated: 128,
            dead_after: Duration::from_secs(10),
            ring: 64 << 10,
        }
    }
}
