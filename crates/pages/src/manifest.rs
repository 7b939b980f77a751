//! A table's version as bytes: its manifest, and with it the directories of its
//! segments' pages.
//!
//! All integers are little-endian. A *name* is a length of 2 bytes and so many bytes of UTF-8.
//!
//! Manifest:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 8 | magic | `KUMIKITB` |
//! | 4 | format | version of this format: 1 |
//! | 4 | checksum | CRC-32C of everything behind it |
//! | 16 | id | the table's |
//! | name | name | the table's |
//! | 8 | version | the table's |
//! | 4 | page size | in bytes |
//! | 1 | layout | 0: columns; 1: rows |
//! | 4 | columns | how many; each is a column as below |
//! | 4 | groups | how many; each is a number of columns (4) and their places in the schema (4 each) |
//! | 4 | segments | how many, at most 65,535; each is a segment as below |
//!
//! A column:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | name | name | the column's |
//! | 1 | nullable | 1 if it may have nulls, or else 0 |
//! | 3 | type | kind, precision and scale, see the table of kinds |
//! | name | zone | of timestamps; empty: none |
//!
//! A segment:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 16 | id | the segment's |
//! | 8 | rows | how many |
//! | 4 | pages | how many |
//! | 2 | stripes | over how many files these are spread |
//! | 8 | length | of its directory, in bytes |
//! | 4 | checksum | CRC-32C of its directory |
//!
//! A table is sent as the length of its manifest (4), the manifest, and its segments'
//! directories in their order.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

use base::codec::u32_at;

use crate::codec::{Reader, push_count, push_text};
use crate::format_error::FormatError;
use crate::kind::Kind;
use crate::segment_directory::{self, SegmentHead};
use crate::table::{Layout, PageSize, SEGMENT_LIMIT, SegmentId, Table, TableId, Version, is_name};

const MAGIC: &[u8; 8] = b"KUMIKITB";
const FORMAT: u32 = 1;
/// Magic, format and checksum.
const HEAD: usize = 16;

impl Table {
    /// Returns the whole table as bytes, to be sent to other nodes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let directories: Vec<Vec<u8>> = self
            .segments
            .iter()
            .map(|s| segment_directory::encode(s))
            .collect();
        let manifest = encode(self, &directories);
        let mut out = (manifest.len() as u32).to_le_bytes().to_vec();
        out.extend(manifest);
        directories.iter().for_each(|bytes| out.extend(bytes));
        out
    }

    /// Reads the bytes that [`Table::encode`] has written. For all bytes the resulting table is
    /// consistent in itself.
    ///
    /// # Errors
    /// Returns [`FormatError`] if the bytes are no such table.
    pub fn decode(bytes: &[u8]) -> Result<Table, FormatError> {
        let mut reader = Reader::new(bytes);
        {
            let length = reader.u32()?;
            let (mut table, heads) = decode(reader.bytes(length as usize)?)?;
            for head in heads {
                let length = usize::try_from(head.length).unwrap_or(usize::MAX);
                let segment = head.segment(&table, reader.bytes(length)?)?;
                table.segments.push(Arc::new(segment));
            }
            reader.end()?;
            Ok(table)
        }
    }
}

/// Returns the manifest of a table whose segments have these directories.
pub(crate) fn encode(table: &Table, directories: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(FORMAT.to_le_bytes());
    out.extend([0; 4]);
    out.extend(table.id.0.to_le_bytes());
    push_text(&mut out, &table.name);
    out.extend(table.version.0.to_le_bytes());
    out.extend((table.page_size.bytes() as u32).to_le_bytes());
    out.push(table.layout as u8);
    push_count(&mut out, table.schema.fields().len());
    for field in table.schema.fields() {
        push_field(&mut out, field);
    }
    push_count(&mut out, table.groups.len());
    for columns in &table.groups {
        push_count(&mut out, columns.len());
        columns
            .iter()
            .for_each(|&column| push_count(&mut out, column));
    }
    push_count(&mut out, table.segments.len());
    for (segment, directory) in table.segments.iter().zip(directories) {
        out.extend(segment.id.0.to_le_bytes());
        out.extend(segment.rows.to_le_bytes());
        out.extend(segment.pages.to_le_bytes());
        out.extend(segment.stripes.to_le_bytes());
        out.extend((directory.len() as u64).to_le_bytes());
        out.extend(crc32c::crc32c(directory).to_le_bytes());
    }
    let checksum = crc32c::crc32c(&out[HEAD..]);
    out[12..16].copy_from_slice(&checksum.to_le_bytes());
    out
}

fn push_field(out: &mut Vec<u8>, field: &Field) {
    push_text(out, field.name());
    out.push(field.is_nullable().into());
    let kind = Kind::of(field.data_type()).expect("tables have types of pages");
    out.extend(kind.encode());
    match field.data_type() {
        DataType::Timestamp(_, Some(zone)) => push_text(out, zone),
        _ => push_text(out, ""),
    }
}

/// Returns the table of a manifest, without its segments, and their descriptions.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Table, Vec<SegmentHead>), FormatError> {
    if bytes.len() < HEAD || &bytes[..8] != MAGIC {
        return Err("it is no table's manifest".into());
    }
    let format = u32_at(bytes, 8);
    if u32_at(bytes, 12) != crc32c::crc32c(&bytes[HEAD..]) {
        return Err("the manifest's checksum is wrong".into());
    }
    if format != FORMAT {
        return Err(
            format!("the manifest is of format {format}, and this program knows {FORMAT}").into(),
        );
    }
    let mut reader = Reader::new(&bytes[HEAD..]);
    let table = decode_table(&mut reader)?;
    let count = reader.count(42)?;
    if count > SEGMENT_LIMIT {
        return Err(
            format!("it has {count} segments, and a table has {SEGMENT_LIMIT} at most").into(),
        );
    }
    let heads = (0..count).map(|_| decode_head(&mut reader));
    let heads = heads.collect::<Result<Vec<_>, FormatError>>()?;
    reader.end()?;
    Ok((table, heads))
}

fn decode_table(reader: &mut Reader<'_>) -> Result<Table, FormatError> {
    let id = TableId(reader.u128()?);
    let name = reader.text()?.to_owned();
    if !is_name(&name) {
        return Err(format!("there is no table of the name {name:?}").into());
    }
    let version = Version(reader.u64()?);
    let size = reader.u32()? as usize;
    let page_size = PageSize::new(size);
    let page_size = page_size.ok_or_else(|| format!("there are no pages of {size} bytes"))?;
    let layout = match reader.u8()? {
        0 => Layout::Columns,
        1 => Layout::Rows,
        other => return Err(format!("there is no layout {other}").into()),
    };
    let columns = reader.count(8)?;
    let fields = (0..columns).map(|_| decode_field(reader));
    let fields = fields.collect::<Result<Vec<_>, FormatError>>()?;
    let groups = decode_groups(reader, columns)?;
    if layout == Layout::Rows && groups != [(0..columns).collect::<Vec<_>>()] {
        return Err("records have not all columns".into());
    }
    Ok(Table {
        id,
        name,
        version,
        schema: Arc::new(Schema::new(fields)),
        page_size,
        layout,
        groups,
        segments: Vec::new(),
    })
}

fn decode_field(reader: &mut Reader<'_>) -> Result<Field, FormatError> {
    let name = reader.text()?.to_owned();
    let nullable = reader.u8()? == 1;
    let code: [u8; 3] = reader.bytes(3)?.try_into().expect("three bytes");
    let kind = Kind::decode(code);
    let kind = kind.filter(|kind| !matches!(kind, Kind::Decimal32(..) | Kind::Decimal64(..)));
    let kind = kind.ok_or_else(|| format!("column {name:?} has no type {code:?}"))?;
    let data_type = match (kind, reader.text()?) {
        (Kind::Timestamp(unit), zone) if !zone.is_empty() => {
            DataType::Timestamp(unit, Some(zone.into()))
        }
        (kind, _) => kind.data_type(),
    };
    Ok(Field::new(name, data_type, nullable))
}

fn decode_groups(reader: &mut Reader<'_>, columns: usize) -> Result<Vec<Vec<usize>>, FormatError> {
    let mut taken = vec![false; columns];
    let mut groups = Vec::new();
    for _ in 0..reader.count(4)? {
        let mut group = Vec::new();
        for _ in 0..reader.count(4)? {
            let column = reader.u32()? as usize;
            let first = taken.get_mut(column).filter(|taken| !**taken);
            *first.ok_or("groups do not divide the columns")? = true;
            group.push(column);
        }
        groups.push(group);
    }
    let empty = groups.iter().any(Vec::is_empty);
    if empty || groups.len() > usize::from(u16::MAX) || taken.contains(&false) {
        return Err("groups do not divide the columns".into());
    }
    Ok(groups)
}

fn decode_head(reader: &mut Reader<'_>) -> Result<SegmentHead, FormatError> {
    let head = SegmentHead {
        id: SegmentId(reader.u128()?),
        rows: reader.u64()?,
        pages: reader.u32()?,
        stripes: reader.u16()?,
        length: reader.u64()?,
        checksum: reader.u32()?,
    };
    if head.stripes == 0 {
        return Err("a segment lies in no file".into());
    }
    Ok(head)
}
