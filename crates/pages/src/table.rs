//! A version of a table: what it has, and where its pages are.
//!
//! A table's columns are divided into *groups*; a page has rows of one group. A table whose columns
//! each have a group of their own is read column by column, one that has a single group lies
//! in pages like those of the PAX layout. What is loaded or appended at once is a *segment*, which
//! never changes. A *version* of a table is a list of segments; a new version takes the place of the
//! old one at once and as a whole.
//!
//! Invariants:
//!
//! 1. Ids of segments are never used again. So a page's address names the same bytes for ever, on
//!    whatever node, and a page that was cached is never out of date.
//! 2. In each group of a segment pages are in the order of their rows, and leave none out.

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use crate::bounds::Bounds;

/// Tells a table from others of the same name, earlier ones included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableId(pub u128);

/// Counts a table's versions, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Version(pub u64);

impl Version {
    /// The first one of a table.
    pub const FIRST: Version = Version(1);

    /// Returns the version behind this one; `None` if there is no number left for it.
    #[must_use]
    pub fn next(self) -> Option<Version> {
        self.0.checked_add(1).map(Version)
    }

    /// Returns `true` if somebody may choose this number for a new version: it is one, and there is one
    /// behind it.
    #[must_use]
    pub fn may_be_chosen(self) -> bool {
        self >= Version::FIRST && self.next().is_some()
    }
}

/// Tells a segment from all others, of all tables and nodes; copies on several nodes share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u128);

impl TableId {
    /// One that nothing has.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> TableId {
        TableId(random())
    }
}

impl SegmentId {
    /// One that nothing has.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> SegmentId {
        SegmentId(random())
    }
}

/// So many random bits that no two are alike.
///
/// # Panics
/// Panics if the system has none.
fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    u128::from_le_bytes(bytes)
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A page's number in its segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageNo(pub u32);

/// Names a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    /// Whose it is.
    pub segment: SegmentId,
    /// Which one.
    pub page: PageNo,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of segment {:?}", self.page.0, self.segment)
    }
}

/// Bytes of a page: 4, 8, 16, 32, 64 or 128 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageSize(u32);

impl PageSize {
    /// All of them, the smallest first.
    pub const ALL: [PageSize; 6] = [
        PageSize(4 << 10),
        PageSize(8 << 10),
        PageSize(16 << 10),
        PageSize(32 << 10),
        PageSize(64 << 10),
        PageSize(128 << 10),
    ];

    /// Returns the size of so many bytes; `None` if pages do not have that.
    #[must_use]
    pub fn new(bytes: usize) -> Option<PageSize> {
        PageSize::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the number of bytes of the longest text or bytes that fit into a page, where their column
    /// is a group by itself in the layout of columns.
    #[must_use]
    pub fn longest_value(self) -> usize {
        crate::fill::longest_value(self)
    }
}

impl Default for PageSize {
    /// 128 KiB.
    fn default() -> PageSize {
        PageSize(128 << 10)
    }
}

/// How rows lie in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// The values of a column one behind the other.
    #[default]
    Columns,
    /// The values of a row one behind the other, each at a fixed place (paper 4, section 4.5.1).
    Rows,
}

/// The longest name of a table.
pub const NAME_LIMIT: usize = 63;

/// Segments of a table at most: readers name them to storage nodes by numbers of 16 bits.
pub const SEGMENT_LIMIT: usize = u16::MAX as usize;

/// Returns `true` if a table may have this name: letters, digits and `_` of ASCII, [`NAME_LIMIT`] at
/// most.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=NAME_LIMIT).contains(&name.len()) && name.bytes().all(allowed)
}

/// A version of a table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Which table.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Which version of it.
    pub version: Version,
    /// Its columns, as SQL sees them. Pages may hold them in narrower types.
    pub schema: SchemaRef,
    /// Bytes of its pages.
    pub page_size: PageSize,
    /// How rows lie in them.
    pub layout: Layout,
    /// The columns of each group, as places in the schema; each column is in one.
    pub groups: Vec<Vec<usize>>,
    /// Its rows are those of the segments, one behind the other.
    pub segments: Vec<Arc<Segment>>,
}

/// What was loaded or appended at once.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its name.
    pub id: SegmentId,
    /// How many rows it has.
    pub rows: u64,
    /// How many pages.
    pub pages: u32,
    /// Over how many files these are spread, in turn.
    pub stripes: u16,
    /// The pages of each of the table's groups.
    pub groups: Vec<Vec<PageEntry>>,
}

/// What is known of a page without reading it.
#[derive(Clone, PartialEq, Debug)]
pub struct PageEntry {
    /// Which page.
    pub page: PageNo,
    /// Its first row, counted in the segment.
    pub first_row: u64,
    /// How many rows it has; at least one.
    pub rows: u32,
    /// Of each of the group's columns, in the group's order.
    pub bounds: Vec<Bounds>,
}

impl Table {
    /// Returns the number of rows of the whole table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Pages of the whole table.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.pages)).sum()
    }

    /// Returns the group of a column, and its place there.
    ///
    /// # Panics
    /// Panics if there is no such column.
    #[must_use]
    pub fn group_of(&self, column: usize) -> (usize, usize) {
        let found = self.groups.iter().enumerate().find_map(|(group, columns)| {
            let place = columns.iter().position(|&c| c == column)?;
            Some((group, place))
        });
        found.expect("each column is in a group")
    }
}
