//! How a node is set up.

use std::sync::Arc;
use std::time::Duration;

use base::NodeId;

use crate::leaders::Leaders;
use crate::participant::WaitingPrepares;
use crate::ramp::{Algorithm, PublishedSlots};
use crate::topology::Topology;

/// Time limits of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For another node's answer. Then the attempt is given up.
    pub answer: Duration,
    /// For keys that another transaction holds.
    pub hold: Duration,
    /// For a transaction, all its attempts together. An outcome that is not known by then is
    /// reported as such.
    pub transaction: Duration,
    /// For a node that cannot be reached, before the caller gets an error.
    pub unreachable: Duration,
    /// After being prepared for this long without a decision, a participant asks.
    pub doubt: Duration,
    /// After being committed for this long without a notice to forget, a participant asks.
    pub forget: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            answer: Duration::from_secs(5),
            hold: Duration::from_secs(10),
            transaction: Duration::from_secs(20),
            unreachable: Duration::from_secs(1),
            doubt: Duration::from_secs(1),
            forget: Duration::from_secs(5),
        }
    }
}

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The cluster.
    pub topology: Arc<Topology>,
    /// The node's id.
    pub me: NodeId,
    /// A number that no other [`Node`](crate::Node) of the cluster has or had: random.
    pub unique: u64,
    /// It resolves attempts that no coordinator decides: one [`Node`](crate::Node) of each process does.
    pub resolver: bool,
    /// State that the [`Node`](crate::Node)s of one process share.
    pub waiting_prepares: WaitingPrepares,
    /// The leaders of partitions: the same for all [`Node`](crate::Node)s of one process.
    pub leaders: Arc<Leaders>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// How its own callers' transactions of read-atomic keys are executed.
    pub ramp: Algorithm,
    /// Where the newest versions of read-atomic keys are published, if they are; only for a partition
    /// that this node holds alone.
    pub published: Option<Arc<PublishedSlots>>,
}
