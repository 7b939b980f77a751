//! Zipmaps: the blocks in which Redis before 2.6 kept small hashes. They are only read.
//!
//! | bytes | are |
//! |---|---|
//! | 1 | the number of fields; 254 and 255: so many or more |
//! | … | the fields and their values |
//! | 1 | 255 |
//!
//! A field is its length and its bytes; its value is its length, a number of unused bytes (1 byte), its bytes, and the
//! unused bytes. A length is a byte, or 254 and 4 bytes, little-endian.

use super::payload::PayloadError;
use super::reader::PayloadReader;

const END: u8 = 0xff;
/// The first byte of a length of five bytes, and the least number of fields that is not counted.
const WIDE: u8 = 0xfe;

/// Has `add` called with each field and its value.
pub(super) fn read<'b>(
    block: &'b [u8],
    add: &mut dyn FnMut(&'b [u8], &'b [u8]) -> Result<(), PayloadError>,
) -> Result<(), PayloadError> {
    let mut rest = PayloadReader::new(block);
    let announced = rest.byte()?;
    let mut fields = 0u64;
    loop {
        let first = rest.byte()?;
        if first == END {
            break;
        }
        let length = length_after(first, &mut rest)?;
        let field = rest.take(length)?;
        let first = rest.byte()?;
        let length = length_after(first, &mut rest)?;
        let unused = rest.byte()?;
        let value = rest.take(length)?;
        rest.take(unused.into())?;
        add(field, value)?;
        fields += 1;
    }
    let is_whole = announced >= WIDE || u64::from(announced) == fields;
    let ends = rest.is_empty() && is_whole;
    ends.then_some(()).ok_or(PayloadError::Malformed)
}

/// Reads a length whose first byte is this one.
fn length_after(first: u8, rest: &mut PayloadReader<'_>) -> Result<u64, PayloadError> {
    match first {
        END => Err(PayloadError::Malformed),
        WIDE => rest.array().map(|bytes| u32::from_le_bytes(bytes).into()),
        short => Ok(short.into()),
    }
}
