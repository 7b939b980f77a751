//! The changes of a collection as bytes, in their order. Each has a tag:
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | put | field or member, value or score |
//! | 2 | remove | field or member |
//! | 3 | insert | position, element |
//! | 4 | replace | position, element |
//! | 5 | remove range | first position, position behind the last one |
//! | 6 | put a field that expires | deadline (8 bytes, little-endian, milliseconds since the Unix epoch), field, value |
//!
//! A position, and the length before bytes, are LEB128 numbers. Streams have changes of their own (module `stream`).

use crate::leb128::{push_bytes, push_number, read_bytes, read_number};

pub(super) const PUT: u8 = 1;
pub(super) const REMOVE: u8 = 2;
pub(super) const INSERT: u8 = 3;
pub(super) const REPLACE: u8 = 4;
pub(super) const REMOVE_RANGE: u8 = 5;
pub(super) const PUT_EXPIRING: u8 = 6;

/// Returns the deadlines of fields that changes set, in milliseconds since the Unix epoch.
pub fn logged_deadlines(log: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = log;
    std::iter::from_fn(move || {
        while let Some((&tag, behind)) = rest.split_first() {
            rest = behind;
            let (numbers, parts) = match tag {
                PUT => (0, 2),
                REMOVE => (0, 1),
                INSERT | REPLACE => (1, 1),
                REMOVE_RANGE => (2, 0),
                PUT_EXPIRING => (0, 3),
                // Streams have no deadlines.
                _ => return None,
            };
            let mut deadline = None;
            for _ in 0..numbers {
                read_number(&mut rest)?;
            }
            for part in 0..parts {
                let bytes = read_bytes(&mut rest)?;
                if tag == PUT_EXPIRING && part == 0 {
                    deadline = bytes.try_into().ok().map(u64::from_le_bytes);
                }
            }
            if deadline.is_some() {
                return deadline;
            }
        }
        None
    })
}

/// Appends a change.
pub(super) fn push(to: &mut Vec<u8>, tag: u8, numbers: &[usize], parts: &[&[u8]]) {
    to.push(tag);
    numbers
        .iter()
        .for_each(|number| push_number(to, *number as u64));
    parts.iter().for_each(|part| push_bytes(to, part));
}
