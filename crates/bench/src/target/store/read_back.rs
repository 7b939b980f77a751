//! Reading back all of a store.

use base::Reply;
use store::{Db, Op};

use crate::error::RunError;
use crate::keys;

/// Keys read by one transaction.
const BATCH: usize = 16;

/// Visits the value of each of these keys; `None` where there is none.
pub(super) fn each(
    db: &Db,
    indices: impl Iterator<Item = u64>,
    mut visit: impl FnMut(u64, Option<&[u8]>) -> Result<(), RunError>,
) -> Result<u64, RunError> {
    let mut worker = db.worker().ok_or("the store has no worker left")?;
    let mut indices = indices.peekable();
    let mut visited = 0;
    while indices.peek().is_some() {
        let batch: Vec<u64> = indices.by_ref().take(BATCH).collect();
        let keys: Vec<[u8; 8]> = batch.iter().map(|&index| keys::encode(index)).collect();
        let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::Get { key }).collect();
        worker.refresh();
        let done = worker.execute(&ops).map_err(RunError::of)?;
        for (&index, reply) in batch.iter().zip(done.replies()) {
            match reply {
                Reply::Bytes(value) => visit(index, Some(value))?,
                Reply::Nil => visit(index, None)?,
                other => {
                    return Err(RunError::Failed(format!(
                        "key {index} was answered with {other:?}"
                    )));
                }
            }
            visited += 1;
        }
    }
    Ok(visited)
}

/// Returns a hash of key and value, which is added up over all keys in any order.
pub(super) fn digest(index: u64, value: &[u8]) -> u64 {
    let mut sum = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in value.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    sum
}
