//! The few messages of etcd that puts need, as protocol buffers.
//!
//! | message | fields |
//! |---|---|
//! | `PutRequest` | 1 key, 2 value |
//! | `RangeRequest` | 1 key |
//! | `RangeResponse` | 2 the pairs, each with 5 value |
//! | `StatusRequest` | none |
//! | `StatusResponse` | 1 header, with 2 member id; 2 version; 4 the leader's member id |
//!
//! A field is a varint of its number and kind (the lowest three bits: 0 a varint, 2 bytes with
//! their length before them), and then its value. Unknown fields are ignored.

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'m> {
    /// A number.
    Number(u64),
    /// Bytes, a text, or another message.
    Bytes(&'m [u8]),
}

/// Appends a field of bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the first field of this number; `None` if there is none, or the message ends before its
/// end.
pub(super) fn find(mut message: &[u8], number: u32) -> Option<Field<'_>> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut message)?),
            1 => Field::Bytes(message.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Field::Bytes(message.split_off(..length)?)
            }
            5 => Field::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        if key >> 3 == u64::from(number) {
            return Some(field);
        }
    }
    None
}

/// Returns the bytes of a field.
pub(super) fn bytes(message: &[u8], number: u32) -> Option<&[u8]> {
    match find(message, number)? {
        Field::Bytes(bytes) => Some(bytes),
        Field::Number(_) => None,
    }
}

/// Returns the number in a field; 0, which is not written, if there is none.
pub(super) fn number(message: &[u8], number: u32) -> u64 {
    match find(message, number) {
        Some(Field::Number(number)) => number,
        _ => 0,
    }
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_others() {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, b"key");
        put_bytes(&mut message, 2, &[9; 300]);
        // Field 3: 300, as the format's documentation writes it.
        message.extend([3 << 3, 0xac, 0x02]);
        assert_eq!(message[..5], [0x0a, 3, b'k', b'e', b'y']);
        assert_eq!(message[5..8], [0x12, 0xac, 0x02]);
        assert_eq!(bytes(&message, 2), Some(&[9; 300][..]));
        assert_eq!(number(&message, 3), 300);
        assert_eq!((number(&message, 4), bytes(&message, 4)), (0, None));
    }

    #[test]
    fn a_message_that_is_cut_short_has_no_field() {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &[9; 200]);
        for end in 0..message.len() {
            assert_eq!(bytes(&message[..end], 1), None, "{end}");
        }
    }
}
