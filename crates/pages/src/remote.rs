//! Reading pages of a storage node, and having it run tasks (paper 4, section 3.1).
//!
//! | part | concept |
//! |---|---|
//! | `wire` | what readers and nodes say to each other |
//! | [`condition`] | which tables a node has, and how busy it is |
//! | `window` | memory of this side, in which pages lie as soon as they are there |
//! | [`session`] | one thread's link to a node: many pages under way, replies in any order |
//! | [`load`] | rows on their way into a node's table |
//! | [`far`] | a storage node, as many threads use it |
//! | `task_node` | a storage node as a node that runs tasks |
//! | [`replicas`] | one table on several nodes |

pub mod condition;
pub mod far;
pub mod load;
pub mod replicas;
pub mod session;
mod task_node;
pub(crate) mod window;
pub(crate) mod wire;

pub use condition::{Condition, Listed, Newest};

pub use far::{Far, FarOptions, TaskStream};
pub use load::FarLoad;
pub use replicas::{Apart, Replicas};
pub use session::{Session, SessionError, SessionOptions};

/// The cluster number that distinguishes storage nodes and their readers from peers of other kinds.
pub(crate) const CLUSTER: u64 = u64::from_le_bytes(*b"kpages\0\x01");
