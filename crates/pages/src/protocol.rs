//! The messages between a reader and a storage node, on a link of the fabric. Numbers
//! are little-endian; a text goes to the message's end and is UTF-8.
//!
//! Messages of a reader; the first byte is the kind:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 1 | *window* | `window` u16; a grant for memory in which pages are to lie |
//! | 2 | *ask* | `request` u32; `query` u8; its body, see [`NodeQuery`] |
//! | 3 | *close* | `handle` u32: an opened table is not needed any more |
//! | 4 | *read* | `handle` u32; then 16 bytes for each page: `tag` u32, `segment` u16, `window` u16, `page` u32, `slot` u32 |
//! | 5 | *run* | `request` u32; `handle` u32; `credit` u32; a task, in the format of the node's worker |
//! | 6 | *credit* | `request` u32; `credit` u32: so many batches more may be sent |
//! | 7 | *cancel* | `request` u32 |
//! | 8 | *load* | `request` u32; what is to be loaded, see [`LoadDefinition`]. It is the load's number, too |
//! | 9 | *load block* | `request` u32; `load` u32; a [block](crate::block) of rows |
//! | 10 | *commit* | `request` u32; `load` u32 |
//! | 11 | *prepare* | `request` u32; `load` u32: its rows are to be durable, and no part of the table yet |
//!
//! A segment is named by its place in the table's version. A page goes to the window's bytes from
//! `slot` × 512 on; with `window` = 65535 it comes in a message.
//!
//! Messages of a node:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 1 | *window* | `window` u16; u8: 1 and the answer to the grant, or 0 and a text that says why not |
//! | 2 | *answer* | `request` u32; the answer to a query |
//! | 3 | *failed* | `request` u32; `kind` u8, see [`NodeFailureKind`]; a text: why a query has no answer, or a task no end |
//! | 4 | *written* | `tag` u32 of each page that lies in its window now |
//! | 5 | *page* | `tag` u32; the page |
//! | 6 | *page failed* | `tag` u32; a text: why a page cannot be read |
//! | 7 | *batch* | `request` u32; a batch of a task's results |
//! | 8 | *finished* | `request` u32: that was all |
//! | 9 | *working* | `request` u32 of each query, step of a load and task that is not over: it is waited for with reason |
//!
//! *Working* comes every few seconds while anything is under way, so that a waiting reader can tell a long
//! sync or a long task from a lost node. A batch that exceeds the length of a message fails its
//! task, and any other such answer its request: nothing is left out silently.
//!
//! Replies come in any order. A reader's numbers, `tag` and `request`, are its own; those that are
//! in use at a time differ. An invalid message ends the link.

mod load_definition;
mod node_status;
mod reply;
mod request;
mod table_list;
mod words;

pub(crate) use load_definition::LoadDefinition;
pub use node_status::NodeStatus;
pub(crate) use reply::{NodeFailureKind, NodeReply, begin_written};
pub(crate) use request::{
    NodeQuery, NodeRequest, PAGE_REQUEST, PageRequest, PageRequests, begin_read,
};
pub use table_list::{ListedTable, TableSummary};

/// The cluster number that distinguishes storage nodes and their readers from peers of other kinds.
pub(crate) const CLUSTER: u64 = u64::from_le_bytes(*b"kpages\0\x01");
/// Stands for no window: pages come in messages.
pub(crate) const INLINE: u16 = u16::MAX;
/// The unit of bytes in which slots are counted.
pub(crate) const SLOT_UNIT: usize = 512;

#[cfg(test)]
pub(crate) mod tests;
