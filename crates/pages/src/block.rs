//! A block: a batch of any number of rows, in bytes that travel between nodes. It is encoded as a
//! [page](crate::page), except for its size, its address, and the narrower types.
//!
//! Header, 32 bytes, followed by an entry for each column (see module `entry`; places are counted
//! from the header's beginning), and by the data to which these refer:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | checksum | CRC-32C of bytes 4… up to the block's end |
//! | 4 | 4 | magic | `KBAT` |
//! | 8 | 2 | version | of this format: 1 |
//! | 10 | 2 | columns | how many there are |
//! | 12 | 4 | rows | how many there are |
//! | 16 | 8 | length | of the block, in bytes |
//! | 24 | 8 | – | zero |

use std::slice;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use bytes::Bytes;

use base::codec::{put_at, u16_at, u32_at, u64_at};

use crate::encode::{Column, align};
use crate::entry::{ALIGN, ENTRY, Entry, Keyed, aligned};
use crate::format_error::FormatError;
use crate::kind::Kind;
use crate::row;

const HEADER: usize = 32;
const MAGIC: &[u8; 4] = b"KBAT";
const VERSION: u16 = 1;

/// Why a block cannot be encoded or decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    /// A batch cannot be a block.
    #[error("column {column:?} {what}")]
    Unsupported {
        /// The column.
        column: String,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// Bytes are not a block, or not of a batch with this schema.
    #[error("a block of rows is corrupt: {0}")]
    Corrupt(FormatError),
}

/// Appends a batch as a block. Types are those of pages, and their narrower ones.
///
/// # Errors
/// Returns [`BlockError::Unsupported`], with `out` as it was.
///
/// # Panics
/// Panics if there are more than 65,535 columns, or 2³² rows.
pub fn encode(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), BlockError> {
    for (array, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        if Keyed::of(array).is_none() && Kind::of(array.data_type()).is_none() {
            return Err(BlockError::Unsupported {
                column: field.name().clone(),
                what: row::unsupported(array.data_type()),
            });
        }
    }
    let start = out.len();
    let columns = u16::try_from(batch.num_columns()).expect("a sensible number of columns");
    let rows = u32::try_from(batch.num_rows()).expect("a sensible number of rows");
    let head = HEADER + ENTRY * batch.num_columns();
    out.reserve(head + size(batch));
    out.resize(start + head, 0);
    for (i, array) in batch.columns().iter().enumerate() {
        let column = Column {
            pieces: slice::from_ref(array),
            kind: Kind::of(array.data_type()).unwrap_or(Kind::Utf8),
            distinct: None,
        };
        let entry = column.write(out, start).encode();
        put_at(out, start + HEADER + i * ENTRY, &entry);
    }
    align(out, start);
    let block = &mut out[start..];
    let length = block.len() as u64;
    put_at(block, 4, MAGIC);
    put_at(block, 8, &VERSION.to_le_bytes());
    put_at(block, 10, &columns.to_le_bytes());
    put_at(block, 12, &rows.to_le_bytes());
    put_at(block, 16, &length.to_le_bytes());
    let checksum = crc32c::crc32c(&block[4..]);
    put_at(block, 0, &checksum.to_le_bytes());
    Ok(())
}

/// Splits a batch into several ones, in their order, that take about `bytes` bytes at most, except
/// a batch of a single row. Messages have a limit, and so does the memory of sender and receiver.
#[must_use]
pub fn parts(batch: RecordBatch, bytes: usize) -> Vec<RecordBatch> {
    let mut parts = Vec::new();
    // The batches that are not checked yet, the first rows at the end.
    let mut rest = vec![batch];
    while let Some(batch) = rest.pop() {
        let rows = batch.num_rows();
        if rows > 1 && size(&batch) > bytes {
            rest.push(batch.slice(rows / 2, rows - rows / 2));
            rest.push(batch.slice(0, rows / 2));
        } else {
            parts.push(batch);
        }
    }
    parts
}

/// Returns about how many bytes a batch takes, so that memory need not grow in steps.
fn size(batch: &RecordBatch) -> usize {
    let of = |array: &ArrayRef| array.to_data().get_slice_memory_size().unwrap_or(0);
    let gaps = 4 * ALIGN * batch.num_columns();
    batch.columns().iter().map(of).sum::<usize>() + gaps
}

/// Reads a batch whose schema is known. Its arrays share the memory if that begins at a multiple of
/// 16 bytes; otherwise it is copied once.
///
/// # Errors
/// Returns [`BlockError::Corrupt`].
pub fn decode(bytes: Bytes, schema: &SchemaRef) -> Result<RecordBatch, BlockError> {
    decode_checked(bytes, schema).map_err(BlockError::Corrupt)
}

fn decode_checked(bytes: Bytes, schema: &SchemaRef) -> Result<RecordBatch, FormatError> {
    if bytes.len() < HEADER || &bytes[4..8] != MAGIC {
        return Err("it is none".into());
    }
    if u64_at(&bytes, 16) != bytes.len() as u64 {
        let said = u64_at(&bytes, 16);
        return Err(format!("it has {} bytes and should have {said}", bytes.len()).into());
    }
    if u32_at(&bytes, 0) != crc32c::crc32c(&bytes[4..]) {
        return Err("its checksum is wrong".into());
    }
    let version = u16_at(&bytes, 8);
    if version != VERSION {
        return Err(format!("it is of version {version}, and this program knows {VERSION}").into());
    }
    let (columns, rows) = (usize::from(u16_at(&bytes, 10)), u32_at(&bytes, 12) as usize);
    let from = HEADER + columns * ENTRY;
    if columns != schema.fields().len() || from > bytes.len() {
        let fields = schema.fields().len();
        return Err(format!("it has {columns} columns and should have {fields}").into());
    }
    let buffer = aligned(bytes);
    let (entries, _) = buffer[HEADER..from].as_chunks::<ENTRY>();
    let arrays = entries.iter().zip(schema.fields()).map(|(entry, field)| {
        let array = Entry::decode(entry, rows, &buffer, from)
            .and_then(|entry| entry.array(&buffer, rows))
            .map_err(|what| FormatError(format!("column {:?}: {what}", field.name())))?;
        Ok(with_zone(array, field.data_type()))
    });
    let arrays = arrays.collect::<Result<Vec<_>, FormatError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options);
    batch.map_err(|error| FormatError(error.to_string()))
}

/// Returns the same timestamps, in the zone of a type.
pub(crate) fn with_zone(array: ArrayRef, data_type: &DataType) -> ArrayRef {
    fn zoned<T: ArrowPrimitiveType>(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
        let array = array.as_primitive::<T>().clone();
        std::sync::Arc::new(array.with_data_type(data_type.clone()))
    }
    match (array.data_type(), data_type) {
        (DataType::Timestamp(unit, None), DataType::Timestamp(wanted, Some(_)))
            if unit == wanted =>
        {
            match unit {
                TimeUnit::Second => zoned::<TimestampSecondType>(&array, data_type),
                TimeUnit::Millisecond => zoned::<TimestampMillisecondType>(&array, data_type),
                TimeUnit::Microsecond => zoned::<TimestampMicrosecondType>(&array, data_type),
                TimeUnit::Nanosecond => zoned::<TimestampNanosecondType>(&array, data_type),
            }
        }
        _ => array,
    }
}
