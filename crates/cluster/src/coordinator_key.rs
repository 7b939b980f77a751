//! The key of a client that coordinates read-atomic writes itself: it proves that attempts are its own.
//!
//! The second half of the ids of such a client's attempts is the beginning of the SHA-256 of a key that only
//! the client knows. The client shows the key on each of its links. Nodes take `Prepare`, `Commit`, `Abandon`,
//! `Abort` and `Forget` from it for ids of that key alone. So a client that has seen the id of another
//! client's version, or of a node's, cannot interfere with that attempt; and it may go on with its own
//! attempts on any link, at any node.

use std::fmt;

use sha2::{Digest, Sha256};

/// Distinguishes the hash from other uses of the same bytes.
const DOMAIN: &[u8] = b"kumiki coordinator key\0";

/// See the module's description.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorKey([u8; Self::BYTES]);

impl CoordinatorKey {
    /// Bytes of a key.
    pub const BYTES: usize = 16;

    /// Returns the key of these bytes, which must come from a generator that cannot be predicted.
    #[must_use]
    pub fn new(bytes: [u8; Self::BYTES]) -> CoordinatorKey {
        CoordinatorKey(bytes)
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the second half of the ids of the attempts that belong to the key.
    #[must_use]
    pub fn unique(&self) -> u64 {
        let hash = Sha256::new().chain_update(DOMAIN).chain_update(self.0);
        let hash = hash.finalize();
        let first = hash.first_chunk().expect("a hash has 32 bytes");
        u64::from_be_bytes(*first)
    }
}

impl fmt::Debug for CoordinatorKey {
    /// Formats the key without its bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_numbers_of_their_own_and_are_not_shown() {
        let [one, other] = [1, 2].map(|first| {
            let mut bytes = [0; CoordinatorKey::BYTES];
            bytes[0] = first;
            CoordinatorKey::new(bytes)
        });
        assert_ne!(one.unique(), other.unique());
        assert_eq!(one.unique(), one.unique());
        assert_eq!(format!("{one:?}"), "CoordinatorKey { .. }");
    }
}
