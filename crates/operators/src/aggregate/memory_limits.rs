//! How much memory groups may take.

use pages::task::TaskError;

/// Limits on the groups of a task.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// The number of groups at which the groups come out.
    pub groups: usize,
    /// The number of bytes of the groups' keys at which the groups come out.
    pub key_bytes: usize,
    /// About the most bytes kept for groups: their keys, the states of their aggregates with their
    /// texts, and batches that have not been taken. At a quarter of this number the groups come
    /// out; if that does not help and more than all of it is needed, the task ends with an error.
    pub bytes: usize,
}

impl Default for GroupLimits {
    /// Returns limits of about a million groups, 64 MiB of keys and 1 GiB in all.
    fn default() -> GroupLimits {
        GroupLimits {
            groups: 1 << 20,
            key_bytes: 64 << 20,
            bytes: 1 << 30,
        }
    }
}

/// The number of bytes that may still be kept.
#[derive(Debug)]
pub(super) struct MemoryAllowance {
    left: usize,
    limit: usize,
}

impl MemoryAllowance {
    /// Makes room of so many bytes, of which none is taken.
    pub(super) fn new(limit: usize) -> MemoryAllowance {
        let left = limit;
        MemoryAllowance { left, limit }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// Returns an error if fewer are left.
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
