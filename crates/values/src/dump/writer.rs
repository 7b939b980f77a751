//! Writing lengths and strings of Redis's files; the description of their formats is that of the module above.

use base::number::parse_int;

use super::lzf;
use super::reader::{COMPRESSED, INTEGER_8, INTEGER_16, INTEGER_32, WIDE_LENGTH, WIDEST_LENGTH};

/// The longest text that is tried as an integer: that of 32 bits with its sign.
const LONGEST_INTEGER: usize = 11;
/// The longest text that is not compressed.
const UNCOMPRESSED: usize = 20;

/// Writes a string.
pub(super) fn string(value: &[u8], out: &mut Vec<u8>) {
    let short = Some(value).filter(|value| value.len() <= LONGEST_INTEGER);
    if let Some(number) = short.and_then(parse_int)
        && let Ok(number) = i32::try_from(number)
    {
        return integer(number, out);
    }
    if value.len() > UNCOMPRESSED
        && let Some(compressed) = lzf::compress(value)
    {
        out.push(COMPRESSED);
        length(compressed.len(), out);
        length(value.len(), out);
        return out.extend(compressed);
    }
    length(value.len(), out);
    out.extend_from_slice(value);
}

fn integer(number: i32, out: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        out.push(INTEGER_8);
        out.extend(number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(INTEGER_16);
        out.extend(number.to_le_bytes());
    } else {
        out.push(INTEGER_32);
        out.extend(number.to_le_bytes());
    }
}

/// Writes a length.
pub(super) fn length(length: usize, out: &mut Vec<u8>) {
    if length < 1 << 6 {
        out.push(length as u8);
    } else if length < 1 << 14 {
        out.extend((length as u16 | 0x4000).to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        out.push(WIDE_LENGTH);
        out.extend(length.to_be_bytes());
    } else {
        out.push(WIDEST_LENGTH);
        out.extend((length as u64).to_be_bytes());
    }
}
