//! The directory of a segment's pages.
//!
//! For each of the table's groups the directory has a number of pages (4), and so many pages:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 4 | page | its number in the segment |
//! | 4 | rows | how many; its first row is that behind the last of the group's page before |
//! | … | bounds | of each of the group's columns, as below |
//!
//! Bounds:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 4 | nulls | how many |
//! | 1 | range | 0: unknown; 1: empty; 2: integers; 3: floating-point; 4: bytes; 5: bytes without a greatest |
//! | 1 | width | with integers: bytes of each of the ends |
//! | … | least | integers: so many bytes; floating-point: 8; bytes: a name, not always of UTF-8 |
//! | … | greatest | likewise |

use arrow_schema::DataType;

use crate::bounds::{Bounds, PREFIX, Range};
use crate::codec::{Reader, push_count};
use crate::format_error::FormatError;
use crate::table::{PageEntry, PageNo, Segment, SegmentId, Table};

/// Returns the directory of a segment's pages.
pub(crate) fn encode(segment: &Segment) -> Vec<u8> {
    let mut out = Vec::new();
    for entries in &segment.groups {
        push_count(&mut out, entries.len());
        for entry in entries {
            out.extend(entry.page.0.to_le_bytes());
            out.extend(entry.rows.to_le_bytes());
            entry
                .bounds
                .iter()
                .for_each(|bounds| push_bounds(&mut out, bounds));
        }
    }
    out
}

/// A manifest's description of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHead {
    pub(crate) id: SegmentId,
    pub(crate) rows: u64,
    pub(crate) pages: u32,
    pub(crate) stripes: u16,
    /// The length of the directory.
    pub(crate) length: u64,
    pub(crate) checksum: u32,
}

impl SegmentHead {
    /// Decodes the segment's directory.
    pub(crate) fn segment(&self, table: &Table, directory: &[u8]) -> Result<Segment, FormatError> {
        let wrong = |what: FormatError| {
            FormatError(format!("the directory of segment {:?}: {what}", self.id))
        };
        if directory.len() as u64 != self.length || crc32c::crc32c(directory) != self.checksum {
            return Err(wrong("its checksum is wrong".into()));
        }
        let mut reader = Reader::new(directory);
        let groups = self.groups(table, &mut reader);
        let groups = groups.and_then(|groups| reader.end().map(|()| groups));
        Ok(Segment {
            id: self.id,
            rows: self.rows,
            pages: self.pages,
            stripes: self.stripes,
            groups: groups.map_err(wrong)?,
        })
    }

    fn groups(
        &self,
        table: &Table,
        reader: &mut Reader<'_>,
    ) -> Result<Vec<Vec<PageEntry>>, FormatError> {
        let mut groups = Vec::new();
        let mut numbers = Vec::new();
        for columns in &table.groups {
            let count = reader.count(8 + 5 * columns.len())?;
            let mut entries = Vec::with_capacity(count);
            let mut first_row = 0_u64;
            for _ in 0..count {
                let (page, rows) = (PageNo(reader.u32()?), reader.u32()?);
                let types = columns
                    .iter()
                    .map(|&column| table.schema.field(column).data_type());
                let bounds = types.map(|data_type| decode_bounds(reader, rows, data_type));
                let bounds = bounds.collect::<Result<_, FormatError>>()?;
                numbers.push(page.0);
                entries.push(PageEntry {
                    page,
                    first_row,
                    rows,
                    bounds,
                });
                if rows == 0 {
                    return Err(format!("page {} has no rows", page.0).into());
                }
                first_row = first_row.saturating_add(rows.into());
            }
            if first_row != self.rows {
                return Err(format!("a group has {first_row} rows and not {}", self.rows).into());
            }
            groups.push(entries);
        }
        numbers.sort_unstable();
        let numbered = numbers
            .iter()
            .map(|&number| u64::from(number))
            .eq(0..self.pages.into());
        numbered
            .then_some(groups)
            .ok_or_else(|| "pages are missing, or there twice".into())
    }
}

fn push_bounds(out: &mut Vec<u8>, bounds: &Bounds) {
    out.extend(bounds.nulls.to_le_bytes());
    match &bounds.range {
        Range::Unknown => out.push(0),
        Range::Empty => out.push(1),
        Range::Int { min, max } => {
            let fits = |width: &u32| {
                let most = i128::MAX >> (128 - 8 * width);
                (-most - 1..=most).contains(min) && (-most - 1..=most).contains(max)
            };
            let width = [1, 2, 4, 8].into_iter().find(fits).unwrap_or(16) as usize;
            out.extend([2, width as u8]);
            out.extend(&min.to_le_bytes()[..width]);
            out.extend(&max.to_le_bytes()[..width]);
        }
        Range::Float { min, max } => {
            out.push(3);
            out.extend(min.to_le_bytes());
            out.extend(max.to_le_bytes());
        }
        Range::Bytes { min, max } => {
            out.push(if max.is_some() { 4 } else { 5 });
            for end in [Some(min), max.as_ref()].into_iter().flatten() {
                out.extend((end.len() as u16).to_le_bytes());
                out.extend(end);
            }
        }
    }
}

fn decode_bounds(
    reader: &mut Reader<'_>,
    rows: u32,
    data_type: &DataType,
) -> Result<Bounds, FormatError> {
    let nulls = reader.u32()?;
    let float = matches!(data_type, DataType::Float32 | DataType::Float64);
    let bytes = matches!(data_type, DataType::Utf8 | DataType::Binary);
    let range = match reader.u8()? {
        0 => Range::Unknown,
        1 => Range::Empty,
        2 if !float && !bytes => {
            let width = reader.u8()?.into();
            Range::Int {
                min: decode_int(reader, width)?,
                max: decode_int(reader, width)?,
            }
        }
        3 if float => Range::Float {
            min: f64::from_bits(reader.u64()?),
            max: f64::from_bits(reader.u64()?),
        },
        tag @ (4 | 5) if bytes => Range::Bytes {
            min: decode_end(reader)?,
            max: (tag == 4).then(|| decode_end(reader)).transpose()?,
        },
        _ => return Err(format!("no range of {data_type}").into()),
    };
    let ordered = match &range {
        Range::Unknown => true,
        Range::Empty => nulls == rows,
        Range::Int { min, max } => min <= max,
        Range::Float { min, max } => min <= max,
        Range::Bytes { min, max } => max.as_ref().is_none_or(|max| min <= max),
    };
    if nulls > rows || !ordered {
        return Err(format!("bounds of {nulls} nulls in {rows} rows, {range:?}").into());
    }
    Ok(Bounds { nulls, range })
}

fn decode_int(reader: &mut Reader<'_>, width: usize) -> Result<i128, FormatError> {
    if !(1..=16).contains(&width) {
        return Err(format!("no integers have {width} bytes").into());
    }
    let bytes = reader.bytes(width)?;
    let sign = if bytes[width - 1] >> 7 == 1 {
        u8::MAX
    } else {
        0
    };
    let mut all = [sign; 16];
    all[..width].copy_from_slice(bytes);
    Ok(i128::from_le_bytes(all))
}

fn decode_end(reader: &mut Reader<'_>) -> Result<Vec<u8>, FormatError> {
    let length = usize::from(reader.u16()?);
    if length > PREFIX {
        return Err(format!("{length} bytes of a text are kept").into());
    }
    Ok(reader.bytes(length)?.to_vec())
}
