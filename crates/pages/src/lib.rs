//! Tables as pages on storage nodes, and how any server reads them (paper 4).
//!
//! From the lowest module up:
//!
//! | module | concept |
//! |---|---|
//! | `format_error`, `codec` | bytes that may be anything: what is wrong with them, and integers in them |
//! | [`table`] | a version of a table: its columns, segments and pages |
//! | `kind`, `entry`, `encode`, `distinct` | columns' values as bytes |
//! | `form`, `cell`, [`row`] | the layout of rows |
//! | [`page`] | a page as it was read: arrays without copying |
//! | [`bounds`] | what is known of a column's values without reading them |
//! | `column_size`, `page_builder` | how much fits into a page, and in which form |
//! | [`segment`] | from rows to a segment's pages |
//! | `segment_directory`, [`manifest`] | a version of a table as bytes |
//! | [`widen()`] | from the types that pages have to those of columns |
//! | [`block`] | batches that travel |
//! | [`sort`] | rows in the order of a column |
//! | [`error`] | the error of this crate, by what the caller may do |
//! | [`cancellation`], [`progress`], `mean` | the end of long operations, how far they are, and what they cost |
//! | [`source`] | where pages come from |
//! | [`cache`] | pages that were read and may be read again |
//! | `read_ahead` | reading pages before the caller takes them |
//! | `owned_bytes` | copies of pages in memory of their own |
//! | [`memory`] | tables in memory |
//! | [`task`] | work beside pages, as the code that has it done sees it |
//! | [`tables`] | tables on disks |
//! | [`local`] | pages of this machine's disks |
//! | [`table_store`] | loading tables, on disks or storage nodes |
//! | `protocol` | the messages between readers and storage nodes |
//! | [`node`] | a storage node: serves pages to readers, runs tasks |
//! | [`remote`] | reading pages of a storage node |
//! | [`fuzz`] | entry points for fuzzing |
//!
//! **Errors on the way of a page.** They are translated twice: a node sends the text of an error of its disk,
//! and the reader makes a [`PageError`] of it, which names the page and the node. Executors and clients pass
//! that on.
//!
//! It does not know transactions, nor SQL.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0065-segments-never-change.md`
//! - `docs/decisions/0067-bounds-decide-the-width-of-arithmetic.md`
//! - `docs/decisions/0068-scans-drive-their-own-session.md`
//! - `docs/decisions/0069-windows-are-lent-to-peers-who-know-the-secret.md`
//! - `docs/decisions/0073-event-loops-share-one-network.md`

#![deny(unsafe_code)]

pub mod block;
pub mod bounds;
pub mod cache;
pub mod cancellation;
mod cell;
mod codec;
mod column_size;
mod distinct;
mod encode;
mod entry;
pub mod error;
mod form;
mod format_error;
pub mod fuzz;
mod kind;
pub mod local;
pub mod manifest;
mod mean;
pub mod memory;
pub mod node;
mod owned_bytes;
pub mod page;
mod page_builder;
pub mod progress;
mod protocol;
mod read_ahead;
pub mod remote;
pub mod row;
pub mod segment;
mod segment_directory;
pub mod sort;
pub mod source;
pub mod table;
pub mod table_store;
pub mod tables;
pub mod task;
mod widen;

pub use bounds::{Bounds, Range};
pub use cache::{Cache, CacheFigures, CacheValue};
pub use cancellation::Cancellation;
pub use error::{Error, ErrorClass, PartialChange};
pub use format_error::FormatError;
pub use local::{Local, LocalOptions};
pub use mean::Mean;
pub use memory::Memory;
pub use page::{Page, PageError};
pub use progress::Progress;
pub use segment::{Groups, Shape};
pub use source::{PageStream, Source, Tally};
pub use table::{
    Layout, PageAddress, PageEntry, PageNo, PageSize, Segment, SegmentId, Table, TableId, Version,
};
pub use table_store::{Sink, TableStore};
pub use tables::{Identity, Load, LoadOptions, Mode, Tables};
pub use widen::widen;
