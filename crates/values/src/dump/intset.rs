//! Intsets: the blocks in which Redis keeps small sets of integers.
//!
//! | bytes | are |
//! |---|---|
//! | 4 | the number of bytes of an integer, little-endian: 2, 4 or 8 |
//! | 4 | the number of integers, little-endian |
//! | … | the integers, signed, little-endian, in ascending order |

use super::block_entry::signed;
use super::payload::PayloadError;

const HEADER: usize = 8;

/// Returns the block of integers in ascending order.
pub(super) fn write(numbers: &[i64]) -> Vec<u8> {
    let least = numbers.first().copied().unwrap_or(0);
    let most = numbers.last().copied().unwrap_or(0);
    let fits = |bits: u32| [least, most].iter().all(|n| n >> (bits - 1) == n >> 63);
    let width = match () {
        () if fits(16) => 2,
        () if fits(32) => 4,
        () => 8,
    };
    let mut bytes = Vec::with_capacity(HEADER + width * numbers.len());
    bytes.extend((width as u32).to_le_bytes());
    bytes.extend((numbers.len() as u32).to_le_bytes());
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes()[..width]);
    }
    bytes
}

/// Returns the integers of a block, in ascending order.
pub(super) fn read(block: &[u8]) -> Result<impl Iterator<Item = i64>, PayloadError> {
    let (header, integers) = block
        .split_at_checked(HEADER)
        .ok_or(PayloadError::Malformed)?;
    let word = |at: usize| {
        let bytes = header[at..at + 4].try_into().expect("it has four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let (width, count) = (word(0), word(4));
    let is_whole = matches!(width, 2 | 4 | 8) && integers.len() == width * count;
    let numbers = || integers.chunks_exact(width).map(signed);
    if !is_whole || !numbers().is_sorted_by(|one, next| one < next) {
        return Err(PayloadError::Malformed);
    }
    Ok(integers.chunks_exact(width).map(signed))
}
