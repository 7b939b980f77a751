//! Tests of trees against models, with a checker of the ownership of nodes.

mod checker;
mod layouts;
mod models;
pub(super) mod registry;
mod version_chain;

use super::{KeyOrder, NodeLimits, PositionOrder};

/// Limits with which few entries make a tall tree.
const SMALL: NodeLimits = NodeLimits {
    leaf_bytes: 160,
    children: 4,
};

const ALL_LIMITS: [NodeLimits; 3] = [
    SMALL,
    NodeLimits {
        leaf_bytes: 512,
        children: 7,
    },
    NodeLimits {
        leaf_bytes: 2048,
        children: 64,
    },
];

type KeyChain = version_chain::VersionChain<KeyOrder>;
type PositionChain = version_chain::VersionChain<PositionOrder>;
