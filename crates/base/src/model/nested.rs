//! Replies of several values, some within others, as bytes.
//!
//! A reply is one item. A container is followed by its items.
//!
//! | tag | item | behind the tag |
//! |---|---|---|
//! | 0 | nil | none |
//! | 1 | nil in place of an array | none |
//! | 2 | `OK` | none |
//! | 3 | integer | 8 bytes, little-endian, signed |
//! | 4 | double | 8 bytes, IEEE 754, little-endian |
//! | 5 | bytes | length (4 bytes, little-endian), the bytes |
//! | 6 | array | number of items (4 bytes) |
//! | 7 | set | number of items (4 bytes) |
//! | 8 | map | number of pairs (4 bytes): twice as many items follow |
//! | 9 | pairs | number of pairs (4 bytes): twice as many items follow |
//! | 10 | double in decimal notation | 8 bytes, IEEE 754, little-endian |
//!
//! A map is one of RESP3, and an array of keys and values in RESP2. Pairs are an array of arrays of two in
//! RESP3, and one array in RESP2.

/// A reply of several values: see the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NestedReply(Vec<u8>);

/// An item of a [`NestedReply`]; those of a container follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NestedItem<'a> {
    /// No value.
    Nil,
    /// No value, in place of an array.
    NilArray,
    /// Done.
    Ok,
    /// A number.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    Bytes(&'a [u8]),
    /// An array of so many items.
    Array(usize),
    /// A set of so many items.
    Set(usize),
    /// A map of so many keys, each followed by its value.
    Map(usize),
    /// So many pairs.
    Pairs(usize),
    /// A floating-point number that is shown without an exponent.
    Decimal(f64),
}

/// The deepest nesting of containers.
const DEPTH: usize = 16;

impl NestedReply {
    /// Appends an item. A container is followed by its items.
    pub fn push(&mut self, item: NestedItem<'_>) {
        let to = &mut self.0;
        let mut sized = |tag: u8, size: usize| {
            let size = u32::try_from(size).expect("a reply has fewer than 2^32 items and bytes");
            to.push(tag);
            to.extend_from_slice(&size.to_le_bytes());
        };
        match item {
            NestedItem::Nil => to.push(0),
            NestedItem::NilArray => to.push(1),
            NestedItem::Ok => to.push(2),
            NestedItem::Int(number) => {
                to.push(3);
                to.extend_from_slice(&number.to_le_bytes());
            }
            NestedItem::Double(number) => {
                to.push(4);
                to.extend_from_slice(&number.to_le_bytes());
            }
            NestedItem::Bytes(bytes) => {
                sized(5, bytes.len());
                to.extend_from_slice(bytes);
            }
            NestedItem::Array(items) => sized(6, items),
            NestedItem::Set(items) => sized(7, items),
            NestedItem::Map(pairs) => sized(8, pairs),
            NestedItem::Pairs(pairs) => sized(9, pairs),
            NestedItem::Decimal(number) => {
                to.push(10);
                to.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// Appends a string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.push(NestedItem::Bytes(bytes));
    }

    /// Appends the items of another reply.
    pub fn append(&mut self, items: &NestedReply) {
        self.0.extend_from_slice(&items.0);
    }

    /// Returns the bytes of the reply.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the reply with these bytes; `None` if they are malformed.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<NestedReply> {
        let mut rest = bytes;
        // The items that are missing in the containers around, the outermost first.
        let mut missing = vec![1];
        while let Some(last) = missing.last_mut() {
            if *last == 0 {
                missing.pop();
                continue;
            }
            *last -= 1;
            let items = match read(&mut rest)? {
                NestedItem::Array(items) | NestedItem::Set(items) => items,
                NestedItem::Map(pairs) | NestedItem::Pairs(pairs) => pairs.checked_mul(2)?,
                _ => continue,
            };
            if missing.len() > DEPTH {
                return None;
            }
            missing.push(items);
        }
        rest.is_empty().then(|| NestedReply(bytes.to_vec()))
    }

    /// Returns the items in their order.
    pub fn items(&self) -> impl Iterator<Item = NestedItem<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || read(&mut rest))
    }
}

/// Reads an item; `None` at the end, and if the bytes are malformed.
fn read<'a>(from: &mut &'a [u8]) -> Option<NestedItem<'a>> {
    let (&tag, rest) = from.split_first()?;
    *from = rest;
    Some(match tag {
        0 => NestedItem::Nil,
        1 => NestedItem::NilArray,
        2 => NestedItem::Ok,
        3 => NestedItem::Int(i64::from_le_bytes(take(from)?)),
        4 => NestedItem::Double(f64::from_le_bytes(take(from)?)),
        5 => {
            let (bytes, rest) = {
                let length = size(from)?;
                from.split_at_checked(length)?
            };
            *from = rest;
            NestedItem::Bytes(bytes)
        }
        6 => NestedItem::Array(size(from)?),
        7 => NestedItem::Set(size(from)?),
        8 => NestedItem::Map(size(from)?),
        9 => NestedItem::Pairs(size(from)?),
        10 => NestedItem::Decimal(f64::from_le_bytes(take(from)?)),
        _ => return None,
    })
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*bytes)
}

fn size(from: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(from)?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_and_malformed_bytes_do_not() {
        let items = [
            NestedItem::Array(5),
            NestedItem::Decimal(-0.25),
            NestedItem::Map(1),
            NestedItem::Bytes(b"key"),
            NestedItem::Pairs(1),
            NestedItem::Double(1.5),
            NestedItem::Int(-3),
            NestedItem::Set(0),
            NestedItem::NilArray,
            NestedItem::Ok,
        ];
        let mut reply = NestedReply::default();
        items.iter().for_each(|item| reply.push(*item));
        assert_eq!(reply.items().collect::<Vec<_>>(), items);
        let bytes = reply.as_bytes();
        assert_eq!(NestedReply::from_bytes(bytes).as_ref(), Some(&reply));
        for length in 0..bytes.len() {
            assert_eq!(NestedReply::from_bytes(&bytes[..length]), None);
        }
        assert_eq!(NestedReply::from_bytes(&[bytes, &[0]].concat()), None);
        assert_eq!(NestedReply::from_bytes(&[11]), None);
        let mut deep = NestedReply::default();
        (0..=DEPTH).for_each(|_| deep.push(NestedItem::Array(1)));
        deep.push(NestedItem::Nil);
        assert_eq!(NestedReply::from_bytes(deep.as_bytes()), None);
    }
}
