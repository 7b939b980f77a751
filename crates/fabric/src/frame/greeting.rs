//! The greeting by which peers introduce themselves; the table is that of [`frame`](super).

use base::NodeId;

use crate::link::Peer;

/// Bytes of a nonce.
pub const NONCE: usize = 32;

const GREETING: usize = 16 + NONCE;

/// The identity and the abilities that a peer claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// A node, or a client.
    pub peer: Peer,
    /// The cluster's fingerprint; `None` for a client that accepts any.
    pub cluster: Option<u64>,
    /// Ways for messages that the peer knows besides the connection.
    pub ways: TransportSet,
    /// `true` if the peer asks for encryption.
    pub encrypt: bool,
    /// Random bytes of this connection.
    pub nonce: [u8; NONCE],
}

/// A set of ways for messages besides the connection itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TransportSet(u8);

impl TransportSet {
    /// The empty set.
    pub const NONE: TransportSet = TransportSet(0);
    /// Memory that processes share.
    pub const SHM: TransportSet = TransportSet(1);
    /// An RDMA device.
    pub const VERBS: TransportSet = TransportSet(2);
    /// Send and Receive, by each of the other ways that are in the set. A version that does not know
    /// this way never uses it.
    pub const SEND_RECEIVE: TransportSet = TransportSet(4);

    /// Returns the ways that are in both sets.
    #[must_use]
    pub fn and(self, other: TransportSet) -> TransportSet {
        TransportSet(self.0 & other.0)
    }

    /// Returns `true` if all ways of the other set are in this one.
    #[must_use]
    pub fn contains(self, other: TransportSet) -> bool {
        self.and(other) == other
    }

    /// Returns the ways that are not in the other set.
    #[must_use]
    pub fn without(self, other: TransportSet) -> TransportSet {
        TransportSet(self.0 & !other.0)
    }

    /// Returns the ways that are in one of the sets or in both.
    #[must_use]
    pub fn or(self, other: TransportSet) -> TransportSet {
        TransportSet(self.0 | other.0)
    }
}

impl Greeting {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (role, node) = match self.peer {
            Peer::Node(id) => (1, id.0),
            Peer::Client => (2, 0),
        };
        out.extend([role, u8::from(self.cluster.is_none())]);
        out.extend(node.to_le_bytes());
        out.extend([self.ways.0, u8::from(self.encrypt), 0, 0]);
        out.extend(self.cluster.unwrap_or(0).to_le_bytes());
        out.extend(self.nonce);
    }

    pub(super) fn decode(body: &[u8]) -> Option<Greeting> {
        let body: &[u8; GREETING] = body.try_into().ok()?;
        let [role, any, n0, n1, ways, encrypt @ 0..=1, 0, 0, rest @ ..] = body else {
            return None;
        };
        let (&cluster, nonce) = rest.split_first_chunk()?;
        let node = u16::from_le_bytes([*n0, *n1]);
        let cluster = u64::from_le_bytes(cluster);
        let (peer, cluster) = match (role, any, node, cluster) {
            (1, 0, id, cluster) => (Peer::Node(NodeId(id)), Some(cluster)),
            (2, 0, 0, cluster) => (Peer::Client, Some(cluster)),
            (2, 1, 0, 0) => (Peer::Client, None),
            _ => return None,
        };
        let nonce = nonce.try_into().ok()?;
        Some(Greeting {
            peer,
            cluster,
            ways: TransportSet(*ways),
            encrypt: *encrypt == 1,
            nonce,
        })
    }
}
