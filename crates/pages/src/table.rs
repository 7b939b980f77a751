//! A version of a table: its contents, and the places of its pages.
//!
//! A table's columns are divided into *groups*; a page has rows of one group. A table whose columns each
//! have a group of their own is read column by column; one that has a single group lies in pages like
//! those of the PAX layout. The rows of one load or append are a *segment*, which never changes. A
//! *version* of a table is a list of segments; a new version takes the place of the old one at once and
//! as a whole.
//!
//! Invariants:
//!
//! 1. Ids of segments are never used again. So a page's address names the same bytes for ever, on every
//!    node, and a page that was cached is never out of date.
//! 2. In each group of a segment pages are in the order of their rows, without gaps.

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use crate::bounds::Bounds;

/// Distinguishes a table from others of the same name, earlier ones included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableId(pub u128);

/// Counts a table's versions, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Version(pub u64);

impl Version {
    /// The first version of a table.
    pub const FIRST: Version = Version(1);

    /// Returns the next version; `None` if there is no number left for it.
    #[must_use]
    pub fn next(self) -> Option<Version> {
        self.0.checked_add(1).map(Version)
    }

    /// Returns `true` if a client may choose this number for a new version: it is valid, and so is the
    /// next one.
    #[must_use]
    pub fn may_be_chosen(self) -> bool {
        self >= Version::FIRST && self.next().is_some()
    }
}

/// Distinguishes a segment from all others, of all tables and nodes; copies on several nodes share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u128);

impl TableId {
    /// Returns a new id, which no table has.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> TableId {
        TableId(random())
    }
}

impl SegmentId {
    /// Returns a new id, which no segment has.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> SegmentId {
        SegmentId(random())
    }
}

/// Returns so many random bits that no two results are equal.
///
/// # Panics
/// Panics if the system has no random numbers.
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

/// The address of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageAddress {
    /// Its segment.
    pub segment: SegmentId,
    /// Its number there.
    pub page: PageNo,
}

impl fmt::Display for PageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of segment {:?}", self.page.0, self.segment)
    }
}

/// Bytes of a page: 4, 8, 16, 32, 64 or 128 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageSize(u32);

impl PageSize {
    /// All sizes, the smallest first.
    pub const ALL: [PageSize; 6] = [
        PageSize(4 << 10),
        PageSize(8 << 10),
        PageSize(16 << 10),
        PageSize(32 << 10),
        PageSize(64 << 10),
        PageSize(128 << 10),
    ];

    /// Returns the size of so many bytes; `None` if there is no such size.
    #[must_use]
    pub fn new(bytes: usize) -> Option<PageSize> {
        PageSize::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl Default for PageSize {
    /// Returns 128 KiB.
    fn default() -> PageSize {
        PageSize(128 << 10)
    }
}

/// The layout of rows in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// The values of a column are consecutive.
    #[default]
    Columns,
    /// The values of a row are consecutive, each at a fixed place (paper 4, section 4.5.1).
    Rows,
}

/// The most characters of a table's name.
pub const NAME_LIMIT: usize = 63;

/// The most segments of a table: readers name them to storage nodes by numbers of 16 bits.
pub const SEGMENT_LIMIT: usize = u16::MAX as usize;

/// Returns `true` if a table may have this name: letters, digits and `_` of ASCII, at most
/// [`NAME_LIMIT`].
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=NAME_LIMIT).contains(&name.len()) && name.bytes().all(allowed)
}

/// A version of a table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's id.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// The number of the version.
    pub version: Version,
    /// Its columns, as SQL sees them. Pages may hold them in narrower types.
    pub schema: SchemaRef,
    /// Bytes of its pages.
    pub page_size: PageSize,
    /// The layout of rows in its pages.
    pub layout: Layout,
    /// The columns of each group, as places in the schema; each column is in one.
    pub groups: Vec<Vec<usize>>,
    /// Its segments, whose rows follow one another.
    pub segments: Vec<Arc<Segment>>,
}

/// The rows of one load or append.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its id.
    pub id: SegmentId,
    /// The number of rows.
    pub rows: u64,
    /// The number of pages.
    pub pages: u32,
    /// The number of files over which its pages are spread, in turn.
    pub stripes: u16,
    /// The pages of each of the table's groups.
    pub groups: Vec<Vec<PageEntry>>,
}

/// What is known of a page without reading it.
#[derive(Clone, PartialEq, Debug)]
pub struct PageEntry {
    /// The page's number.
    pub page: PageNo,
    /// Its first row, counted in the segment.
    pub first_row: u64,
    /// The number of its rows; at least one.
    pub rows: u32,
    /// The bounds of each of the group's columns, in the group's order.
    pub bounds: Vec<Bounds>,
}

impl Table {
    /// Returns the number of rows of the whole table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Returns the number of pages of the whole table.
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
