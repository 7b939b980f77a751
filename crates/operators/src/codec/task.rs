//! Tasks as bytes: a fragment, and the rows over which it runs.
//!
//! | field | form |
//! |---|---|
//! | number of bytes of the rows | `u32`, little-endian |
//! | rows | for each range the segment, the first row and the one after its last: 16, 8 and 8 bytes, little-endian |
//! | fragment | see the [parent](super) |

use std::sync::Arc;

use base::codec::{Malformed, Reader};
use pages::task::TaskError;
use pages::{Cancellation, SegmentId, Table};

use super::error::CodecError;
use super::fragment::{decode, encode};
use crate::task::{FragmentTask, RowRange, refused};

/// Bytes of a [`RowRange`].
const ROWS: usize = 32;

/// Returns a task as bytes.
///
/// # Errors
/// Returns [`TaskError::Refused`] if it has too many ranges of rows, or its fragment cannot be encoded.
pub fn encode_task(task: &FragmentTask) -> Result<Vec<u8>, TaskError> {
    let rows = encode_rows(&task.rows);
    let fragment = encode(&task.fragment).map_err(refused)?;
    let len = u32::try_from(rows.len());
    let len = len.map_err(|_| TaskError::Refused("a task over too many ranges of rows".into()))?;
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend(rows);
    bytes.extend(fragment);
    Ok(bytes)
}

/// Returns the task of a table from bytes, which may be anything.
///
/// # Errors
/// Returns [`TaskError::Refused`] if they encode no task, or its fragment does not fit the table.
pub fn decode_task(
    table: &Arc<Table>,
    bytes: &[u8],
    wanted: Cancellation,
) -> Result<FragmentTask, TaskError> {
    let mut from = Reader::new(bytes);
    let len = from.u32().map_err(|_| refused("a task without rows"))?;
    let rows = from.take(len as usize);
    let rows = rows.map_err(|_| refused("a task that is cut off"))?;
    let rows = decode_rows(rows).map_err(refused)?;
    let fragment = decode(from.rest()).map_err(refused)?;
    fragment.check_table(table).map_err(refused)?;
    Ok(FragmentTask {
        table: Arc::clone(table),
        fragment: Arc::new(fragment),
        rows,
        wanted,
    })
}

/// Returns rows as bytes. Each range has its segment, its first row and the one after its last, of 16, 8 and
/// 8 bytes, little-endian.
#[must_use]
pub fn encode_rows(rows: &[RowRange]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len() * ROWS);
    for rows in rows {
        bytes.extend(rows.segment.0.to_le_bytes());
        bytes.extend(rows.from.to_le_bytes());
        bytes.extend(rows.to.to_le_bytes());
    }
    bytes
}

/// Returns the rows that these bytes encode. It does not check that a table has them.
///
/// # Errors
/// Returns an error if the last range is incomplete.
pub fn decode_rows(bytes: &[u8]) -> Result<Vec<RowRange>, CodecError> {
    let mut from = Reader::new(bytes);
    let mut rows = Vec::with_capacity(bytes.len() / ROWS);
    while !from.unread().is_empty() {
        let range = read_range(&mut from);
        rows.push(range.map_err(|_| CodecError::Malformed("rows end too early"))?);
    }
    Ok(rows)
}

fn read_range(from: &mut Reader<'_>) -> Result<RowRange, Malformed> {
    Ok(RowRange {
        segment: SegmentId(u128::from_le_bytes(from.array()?)),
        from: from.u64()?,
        to: from.u64()?,
    })
}
