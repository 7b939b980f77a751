//! Tables as pages on storage nodes, and how any server reads them (paper 4).
//!
//! | module | concept |
//! |---|---|
//! | [`table`] | a version of a table: its columns, segments and pages |
//! | [`bounds`] | what is known of a column's values without reading them |
//! | [`page`] | a page as it was read: arrays without copying |
//! | `kind`, `entry`, `encode` | columns' values as bytes |
//! | `codec` | integers in bytes, and reading of bytes that may be anything |
//! | `distinct`, `gauge`, `fill` | how much fits into a page, and in which form |
//! | [`row`], `cell` | the layout of rows |
//! | [`widen()`] | from the types that pages have to those of columns |
//! | [`block`] | batches that travel |
//! | [`segment`] | from rows to a segment's pages |
//! | [`manifest`], `directory` | a version of a table as bytes |
//! | [`source`] | where pages come from |
//! | `ahead` | reading pages before the caller takes them |
//! | `own` | copies of pages in memory of their own |
//! | [`cache`] | pages that were read and may be read again |
//! | [`node`] | a storage node: gives pages to readers, runs tasks |
//! | [`remote`] | reading pages of a storage node |
//! | [`task`] | work beside pages, as the code that has it done sees it |
//! | [`tables`] | tables on disks |
//! | [`depot`] | loading tables, on disks or storage nodes |
//! | [`sort`] | rows in the order of a column |
//! | [`progress`] | how far a load is |
//! | `mean` | the average cost of an operation |
//! | [`fuzz`] | entry points for fuzzing |
//! | [`local`] | pages of this machine's disks |
//! | [`memory`] | tables in memory |
//! | `wanted` | the question whether a result is still wanted |
//!
//! It does not know transactions, nor SQL.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0065-segments-never-change.md`
//! - `docs/decisions/0067-bounds-decide-the-width-of-arithmetic.md`
//! - `docs/decisions/0068-scans-drive-their-own-session.md`
//! - `docs/decisions/0069-windows-are-lent-to-peers-who-know-the-secret.md`

#![deny(unsafe_code)]

mod ahead;
pub mod block;
pub mod bounds;
pub mod cache;
mod cell;
mod codec;
pub mod depot;
mod directory;
mod distinct;
mod encode;
mod entry;
mod fill;
pub mod fuzz;
mod gauge;
mod kind;
pub mod local;
pub mod manifest;
mod mean;
pub mod memory;
pub mod node;
mod own;
pub mod page;
pub mod progress;
pub mod remote;
pub mod row;
pub mod segment;
pub mod sort;
pub mod source;
pub mod table;
pub mod tables;
pub mod task;
mod wanted;
mod widen;

pub use bounds::{Bounds, Range};
pub use cache::{Cache, CacheFigures, Kept};
pub use depot::{Depot, DepotError, Sink};
pub use local::{Local, LocalOptions};
pub use manifest::BadTable;
pub use mean::Mean;
pub use memory::Memory;
pub use page::{Page, PageError};
pub use progress::Progress;
pub use segment::{Groups, Shape};
pub use source::{PageStream, Source, Tally};
pub use table::{
    Address, Layout, PageEntry, PageNo, PageSize, Segment, SegmentId, Table, TableId, Version,
};
pub use tables::{Identity, Load, LoadOptions, Mode, Tables, TablesError};
pub use wanted::Wanted;
pub use widen::widen;
