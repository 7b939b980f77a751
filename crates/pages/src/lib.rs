//! Tables as pages on storage nodes, and how any server reads them (paper 4).
//!
//! | module | concept |
//! |---|---|
//! | [`table`] | a version of a table: its columns, segments and pages |
//! | [`bounds`] | what is known of a column's values without reading them |
//! | [`page`] | a page as it was read: arrays without copying |
//! | [`source`] | where pages come from |
//! | [`node`] | a storage node: gives pages to readers, runs tasks |
//! | [`remote`] | reading pages of a storage node |
//!
//! It does not know transactions, nor SQL.

#![deny(unsafe_code)]

pub mod bounds;
pub mod node;
pub mod page;
pub mod remote;
pub mod source;
pub mod table;

pub use bounds::{Bounds, Range};
pub use page::{Page, PageError};
pub use source::{PageStream, Source};
pub use table::{
    Address, Layout, PageEntry, PageNo, PageSize, Segment, SegmentId, Table, TableId, Version,
};
