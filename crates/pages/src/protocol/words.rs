//! Parts of messages: numbers of four bytes, and texts.

use base::codec::{Malformed, MalformedKind, Reader};

/// Appends a kind, and numbers of four bytes.
pub(super) fn words<const N: usize>(out: &mut Vec<u8>, first: u8, words: [u32; N]) {
    out.push(first);
    for word in words {
        out.extend(word.to_le_bytes());
    }
}

/// Returns the rest, as numbers of four bytes.
pub(super) fn numbers<'a>(reader: &mut Reader<'a>) -> Result<&'a [[u8; 4]], Malformed> {
    let (numbers, rest) = reader.rest().as_chunks();
    match rest.is_empty() {
        true => Ok(numbers),
        false => Err(reader.malformed(MalformedKind::Cut)),
    }
}

/// Returns the rest, as a text.
pub(super) fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let malformed = reader.malformed(MalformedKind::NotText);
    std::str::from_utf8(reader.rest()).map_err(|_| malformed)
}
