//! A field of a hash, and its bytes in blocks and in trees.
//!
//! | bytes of a field's value in a tree | field |
//! |---|---|
//! | 1 | 1: the field has a deadline; else 0 |
//! | 0 or 8 | the deadline, milliseconds since the Unix epoch, little-endian |
//! | … | the value |
//!
//! The key of a deadline in a tree is the deadline (8 bytes, big-endian) and the name of its field: the least deadline
//! comes first.
//!
//! In a block whose form is [`BlockForm::ExpiringPairs`](crate::packed::BlockForm), the second blob of an element is
//! the deadline (8 bytes, little-endian; 0: none) and the value.

use smallvec::SmallVec;

/// The bytes of a deadline.
const DEADLINE: usize = 8;

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashField<'v> {
    pub(crate) name: &'v [u8],
    pub(crate) value: &'v [u8],
    /// Milliseconds since the Unix epoch.
    pub(crate) deadline: Option<u64>,
}

impl<'v> HashField<'v> {
    /// Returns the field with these bytes in a tree; `None` if they are malformed.
    pub(crate) fn of_tree(name: &'v [u8], bytes: &'v [u8]) -> Option<HashField<'v>> {
        let (deadline, value) = match bytes.split_first()? {
            (0, value) => (None, value),
            (_, rest) => {
                let (deadline, value) = rest.split_first_chunk::<DEADLINE>()?;
                (Some(u64::from_le_bytes(*deadline)), value)
            }
        };
        Some(HashField {
            name,
            value,
            deadline,
        })
    }

    /// Returns the field whose element of a block has these blobs. `expires`: the fields of the block have deadlines.
    pub(crate) fn of_block(
        name: &'v [u8],
        second: &'v [u8],
        expires: bool,
    ) -> Option<HashField<'v>> {
        let (deadline, value) = match expires {
            true => {
                let (deadline, value) = second.split_first_chunk::<DEADLINE>()?;
                (u64::from_le_bytes(*deadline), value)
            }
            false => (0, second),
        };
        Some(HashField {
            name,
            value,
            deadline: (deadline != 0).then_some(deadline),
        })
    }

    /// Returns its bytes in a tree.
    pub(crate) fn in_tree(self) -> SmallVec<[u8; 128]> {
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
        bytes.push(self.deadline.is_some().into());
        if let Some(deadline) = self.deadline {
            bytes.extend_from_slice(&deadline.to_le_bytes());
        }
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// Returns the second blob of its element in a block. `expires`: the fields of the block have deadlines.
    pub(crate) fn in_block(self, expires: bool) -> SmallVec<[u8; 128]> {
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
        if expires {
            bytes.extend_from_slice(&self.deadline.unwrap_or(0).to_le_bytes());
        }
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// Returns `true` if its deadline has passed at a time.
    pub(crate) fn has_passed(self, time_ms: u64) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= time_ms)
    }
}

/// Returns the key of a field's deadline.
pub(crate) fn deadline_key(deadline: u64, name: &[u8]) -> SmallVec<[u8; 64]> {
    let mut key: SmallVec<[u8; 64]> = SmallVec::new();
    key.extend_from_slice(&deadline.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// Returns the deadline and the name of the field whose deadline has this key.
pub(crate) fn deadline_of_key(key: &[u8]) -> Option<(u64, &[u8])> {
    let (deadline, name) = key.split_first_chunk::<DEADLINE>()?;
    Some((u64::from_be_bytes(*deadline), name))
}
