//! A page: rows of one of a table's groups of columns, as bytes that become arrays without copying.
//!
//! All integers are little-endian. A page is a header, an entry for each of the group's columns,
//! and what these refer to; zeros fill it up to the page's size.
//!
//! Header, 64 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | checksum | CRC-32C of bytes 4… up to the page's end |
//! | 4 | 4 | magic | `KPAG` |
//! | 8 | 2 | version | of this format: 1 |
//! | 10 | 1 | layout | 0: columns; 1: rows |
//! | 11 | 1 | – | zero |
//! | 12 | 4 | size | bytes of the page |
//! | 16 | 16 | segment | whose page it is |
//! | 32 | 4 | page | its number in the segment |
//! | 36 | 2 | group | which group of columns |
//! | 38 | 2 | columns | how many the group has |
//! | 40 | 8 | first row | counted in the segment |
//! | 48 | 4 | rows | at least 1 |
//! | 52 | 4 | record | bytes of a record; 0 in the layout of columns |
//! | 56 | 4 | records | where the first record begins; 0 in the layout of columns |
//! | 60 | 4 | – | zero |
//!
//! In the layout of columns the entries are those of module `entry`: arrays, each at a multiple of
//! 64 bytes. In the layout of rows they are those of module `row`.
//!
//! **Narrower types.** Where all values of a page fit, a column of `Decimal128(p, s)` lies there as
//! `Decimal32` or `Decimal64` of the same scale, and of as many digits at most as these hold (9 and
//! 18). A column of `Utf8` lies there as keys of one or two bytes and a dictionary if that takes
//! less room, which is an array of the type `Dictionary(UInt8 or UInt16, Utf8)`. Timestamps have
//! no zone. Arrays of all other columns have the column's own type, and in the layout of rows
//! all arrays have it, except zones. [`widen`](crate::widen()) converts all of them to the column's own type.
//!
//! Invariants:
//!
//! 1. The entries' places, lengths and numbers of nulls are verified when a [`Page`] is made. Texts and
//!    keys are verified when a column is taken, which may still return an error.
//! 2. An array keeps the whole page's memory.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use bytes::Bytes;

use base::codec::{put_at, u16_at, u32_at, u64_at, u128_at};

use crate::entry::{ENTRY, Entry, aligned};
use crate::format_error::FormatError;
use crate::kind::Kind;
use crate::row::{Attribute, Records};
use crate::table::{Layout, PageAddress, PageNo, SegmentId, Table};

pub(crate) const HEADER: usize = 64;
const MAGIC: &[u8; 4] = b"KPAG";
const VERSION: u16 = 1;

/// Why a page cannot be provided.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageError {
    /// Its bytes are not those that were written.
    #[error("page {address} is corrupt: {what}")]
    Corrupt {
        /// The page.
        address: PageAddress,
        /// What is wrong with it.
        what: String,
    },
    /// It could not be read.
    #[error("page {address} cannot be read: {what}")]
    Unreadable {
        /// The page.
        address: PageAddress,
        /// The error of the system, or of the node.
        what: String,
    },
    /// The node that has it cannot be reached, or has too much to do; another node may have it, too.
    #[error("page {address} cannot be had: {what}")]
    Lost {
        /// The page.
        address: PageAddress,
        /// Why the node cannot be asked.
        what: String,
    },
}

/// A verified page: the checksum, the address and all places in it are right.
#[derive(Clone, Debug)]
pub struct Page {
    buffer: Buffer,
    header: PageHeader,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Columns(Vec<Entry>),
    Rows(Vec<Attribute>),
}

/// A page's header; see the module's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageHeader {
    pub(crate) layout: Layout,
    pub(crate) address: PageAddress,
    pub(crate) group: u16,
    pub(crate) columns: u16,
    pub(crate) first_row: u64,
    pub(crate) rows: u32,
    pub(crate) record: u32,
    pub(crate) records: u32,
}

impl PageHeader {
    /// Completes a page in `bytes`, which have its size and contain the entries and the data that
    /// they refer to.
    pub(crate) fn seal(&self, bytes: &mut [u8]) {
        put_at(bytes, 4, MAGIC);
        put_at(bytes, 8, &VERSION.to_le_bytes());
        put_at(bytes, 10, &[self.layout as u8, 0]);
        let size = bytes.len() as u32;
        put_at(bytes, 12, &size.to_le_bytes());
        put_at(bytes, 16, &self.address.segment.0.to_le_bytes());
        put_at(bytes, 32, &self.address.page.0.to_le_bytes());
        put_at(bytes, 36, &self.group.to_le_bytes());
        put_at(bytes, 38, &self.columns.to_le_bytes());
        put_at(bytes, 40, &self.first_row.to_le_bytes());
        for (i, word) in [self.rows, self.record, self.records, 0].iter().enumerate() {
            put_at(bytes, 48 + 4 * i, &word.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[4..]);
        put_at(bytes, 0, &checksum.to_le_bytes());
    }

    /// Returns the header of a page of any address, after it has verified the checksum.
    fn decode(bytes: &[u8]) -> Result<PageHeader, FormatError> {
        if bytes.len() < HEADER {
            return Err(format!("it has {} bytes", bytes.len()).into());
        }
        if &bytes[4..8] != MAGIC {
            return Err("there is no page".into());
        }
        if u32_at(bytes, 0) != crc32c::crc32c(&bytes[4..]) {
            return Err("its checksum is wrong".into());
        }
        let version = u16_at(bytes, 8);
        if version != VERSION {
            return Err(
                format!("it is of version {version}, and this program knows {VERSION}").into(),
            );
        }
        if u32_at(bytes, 12) as usize != bytes.len() {
            return Err(format!("it says that it has {} bytes", u32_at(bytes, 12)).into());
        }
        let layout = match bytes[10] {
            0 => Layout::Columns,
            1 => Layout::Rows,
            other => return Err(format!("there is no layout {other}").into()),
        };
        Ok(PageHeader {
            layout,
            address: PageAddress {
                segment: SegmentId(u128_at(bytes, 16)),
                page: PageNo(u32_at(bytes, 32)),
            },
            group: u16_at(bytes, 36),
            columns: u16_at(bytes, 38),
            first_row: u64_at(bytes, 40),
            rows: u32_at(bytes, 48),
            record: u32_at(bytes, 52),
            records: u32_at(bytes, 56),
        })
    }
}

impl Page {
    /// Verifies a page. Memory that does not begin at a multiple of 16 bytes is copied.
    ///
    /// # Errors
    /// Returns [`PageError::Corrupt`].
    pub fn new(bytes: Bytes, address: PageAddress, layout: Layout) -> Result<Page, PageError> {
        let found = Page::verified(bytes, address, layout);
        found.map_err(|FormatError(what)| PageError::Corrupt { address, what })
    }

    fn verified(bytes: Bytes, address: PageAddress, layout: Layout) -> Result<Page, FormatError> {
        let header = PageHeader::decode(&bytes)?;
        if header.address != address {
            return Err(format!("page {} is in its place", header.address).into());
        }
        if header.layout != layout {
            return Err(format!("it has the layout of {:?}", header.layout).into());
        }
        let rows = header.rows as usize;
        let from = HEADER + usize::from(header.columns) * ENTRY;
        if rows == 0 || header.columns == 0 || from > bytes.len() {
            return Err(format!("it has {rows} rows of {} columns", header.columns).into());
        }
        let (entries, _) = bytes[HEADER..from].as_chunks::<ENTRY>();
        let numbered = entries.iter().enumerate();
        let body = match layout {
            Layout::Columns => {
                let decode = |(i, entry)| {
                    let entry = Entry::decode(entry, rows, &bytes, from);
                    entry.map_err(|what| FormatError(format!("column {i}: {what}")))
                };
                Body::Columns(numbered.map(decode).collect::<Result<_, FormatError>>()?)
            }
            Layout::Rows => {
                let (record, first) = (header.record as usize, header.records as usize);
                let room = rows
                    .checked_mul(record)
                    .and_then(|room| room.checked_add(first));
                if first < from || record == 0 || room.is_none_or(|room| room > bytes.len()) {
                    return Err(
                        format!("{rows} records of {record} bytes are not within it").into(),
                    );
                }
                let decode = |(i, entry)| {
                    let attribute = Attribute::decode(entry, record);
                    attribute.map_err(|what| FormatError(format!("column {i}: {what}")))
                };
                Body::Rows(numbered.map(decode).collect::<Result<_, FormatError>>()?)
            }
        };
        Ok(Page {
            buffer: aligned(bytes),
            header,
            body,
        })
    }

    /// Verifies a page of a table, and that its columns are those of one of the table's groups: as
    /// [`widen`](crate::widen()) expects them.
    ///
    /// # Errors
    /// Returns [`PageError::Corrupt`].
    pub fn of(table: &Table, bytes: Bytes, address: PageAddress) -> Result<Page, PageError> {
        let corrupt = |what| PageError::Corrupt { address, what };
        if bytes.len() != table.page_size.bytes() {
            return Err(corrupt(format!("it has {} bytes", bytes.len())));
        }
        let page = Page::verified(bytes, address, table.layout);
        let page = page.map_err(|FormatError(what)| corrupt(what))?;
        let columns = table
            .groups
            .get(page.group())
            .map_or(&[][..], Vec::as_slice);
        let kinds: Vec<Kind> = match &page.body {
            Body::Columns(entries) => entries.iter().map(|entry| entry.kind).collect(),
            Body::Rows(attributes) => attributes.iter().map(|one| one.kind).collect(),
        };
        let same = columns.len() == kinds.len()
            && columns.iter().zip(kinds).all(|(&column, kind)| {
                let own = Kind::of(table.schema.field(column).data_type());
                own.is_some_and(|own| kind.stands_for(own))
            });
        if !same {
            return Err(corrupt("its columns are not those of the table".to_owned()));
        }
        Ok(page)
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> PageAddress {
        self.header.address
    }

    /// Returns the place of its group among the table's groups of columns.
    #[must_use]
    pub fn group(&self) -> usize {
        self.header.group.into()
    }

    /// Returns the number of the group's columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.header.columns.into()
    }

    /// Returns its first row, counted in the segment.
    #[must_use]
    pub fn first_row(&self) -> u64 {
        self.header.first_row
    }

    /// Returns the number of its rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.header.rows as usize
    }

    /// Returns all its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the same page in memory of its own: for callers that keep it, where the memory into
    /// which pages are read is scarce.
    #[must_use]
    pub fn detached(&self) -> Page {
        Page {
            buffer: Buffer::from_slice_ref(&self.buffer[..]),
            ..self.clone()
        }
    }

    /// Returns its records, in the layout of rows.
    #[must_use]
    pub fn records(&self) -> Option<Records<'_>> {
        let Body::Rows(attributes) = &self.body else {
            return None;
        };
        let (first, record) = (self.header.records as usize, self.header.record as usize);
        let records = &self.buffer[first..][..self.rows() * record];
        Some(Records::new(records, record, attributes))
    }

    /// Returns its records as they lie, in the layout of rows: an array of `Binary`, without copying.
    #[must_use]
    pub fn record_array(&self) -> Option<ArrayRef> {
        let records = self.records()?;
        let (first, record) = (self.header.records as usize, records.record_bytes());
        let offsets = OffsetBuffer::from_repeated_length(record, records.len());
        let values = self.buffer.slice_with_length(first, record * records.len());
        Some(Arc::new(BinaryArray::new(offsets, values, None)))
    }

    /// Returns one of its group's columns: an array of the column's own type, or of a narrower one,
    /// see the [module](self). In the layout of columns nothing is copied.
    ///
    /// # Errors
    /// Returns [`PageError::Corrupt`] if texts are not UTF-8, or keys are not in the dictionary.
    ///
    /// # Panics
    /// Panics if the group has no such column.
    pub fn column(&self, place: usize) -> Result<ArrayRef, PageError> {
        let array = match (&self.body, self.records()) {
            (Body::Columns(entries), _) => entries[place].array(&self.buffer, self.rows()),
            (_, Some(records)) => records.array(place),
            (Body::Rows(_), None) => unreachable!("pages of rows have records"),
        };
        array.map_err(|what| PageError::Corrupt {
            address: self.address(),
            what: format!("column {place}: {what}"),
        })
    }
}
