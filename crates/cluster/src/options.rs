//! How a node is set up.

use std::sync::Arc;

use base::NodeId;

use crate::leaders::Leaders;
use crate::participant::WaitingPrepares;
use crate::ramp::{Algorithm, PublishedSlots};
use crate::timeouts::Timeouts;
use crate::topology::Topology;

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
