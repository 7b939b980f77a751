//! Reading pages of a storage node, and having it run tasks (paper 4, section 3.1).
//!
//! | part | concept |
//! |---|---|
//! | `window` | memory of this side, in which pages lie as soon as they are there |
//! | [`session`] | one thread's link to a node: many pages under way, replies in any order |
//! | `page_link` | how a thread requests pages, on a link of its own or on a shared one |
//! | [`link_pool`] | links that many threads share |
//! | `page_rate` | how fast pages come from a node |
//! | `session_pool` | sessions that threads take in turn |
//! | `reader_link` | the link of a reader of a table's pages |
//! | `page_reader`, `task_stream` | a thread's pages, and the results of a task |
//! | [`load`] | rows on their way into a node's table |
//! | [`remote_node`] | a storage node, as many threads use it |
//! | `task_node` | a storage node as a node that runs tasks |
//! | [`replicas`] | one table on several nodes |

pub mod link_pool;
pub mod load;
mod page_link;
mod page_rate;
mod page_reader;
mod reader_link;
pub mod remote_node;
pub mod replicas;
pub mod session;
mod session_pool;
mod task_node;
mod task_stream;
pub(crate) mod window;

pub use crate::protocol::{ListedTable, NodeStatus, TableSummary};
pub use link_pool::{LinkPool, LinkPoolOptions, SharedReader};
pub use load::RemoteLoad;
pub use page_link::PageLink;
pub use remote_node::{RemoteNode, RemoteNodeOptions};
pub use replicas::Replicas;
pub use session::{Session, SessionOptions};
pub use task_stream::TaskStream;
