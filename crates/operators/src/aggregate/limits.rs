//! How much memory groups may take.

use crate::site::TaskError;

/// Limits on the groups of a task.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// With so many groups what there is comes out.
    pub groups: usize,
    /// With so many bytes of their keys it does, too.
    pub key_bytes: usize,
    /// Bytes of all that is kept for groups, about: their keys, the states of their aggregates with
    /// the texts among these, and batches that nobody has taken. With a quarter of it what there is
    /// comes out; if that does not help and there is more than all of it, the task ends with an
    /// error.
    pub bytes: usize,
}

impl Default for GroupLimits {
    /// About a million, 64 MiB, 1 GiB.
    fn default() -> GroupLimits {
        GroupLimits {
            groups: 1 << 20,
            key_bytes: 64 << 20,
            bytes: 1 << 30,
        }
    }
}

/// How many more bytes may be kept.
#[derive(Debug)]
pub(super) struct Room {
    left: usize,
    limit: usize,
}

impl Room {
    /// Of so many, of which none is taken.
    pub(super) fn new(limit: usize) -> Room {
        let left = limit;
        Room { left, limit }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// If there are not as many left.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), TaskError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| too_large(self.limit))?;
        Ok(())
    }
}

fn too_large(limit: usize) -> TaskError {
    const MIB: usize = 1 << 20;
    let limit = match limit {
        MIB.. => format!("{} MiB", limit / MIB),
        _ => format!("{limit} bytes"),
    };
    TaskError::Value(format!(
        "what a part of a scan keeps for its groups takes more than {limit}: ask for fewer \
         aggregates at once, or for MIN and MAX of shorter texts"
    ))
}
