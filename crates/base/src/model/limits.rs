//! Limits on every size that a client controls, with their defaults and relations.

/// Sizes in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key. At most [`Limits::MAX_KEY`].
    pub key: usize,
    /// Longest value. At most [`Limits::MAX_VALUE`].
    pub value: usize,
    /// Operations in one transaction (a count).
    pub transaction_ops: usize,
    /// Log bytes of one transaction.
    pub transaction_bytes: usize,
}

impl Limits {
    /// The longest key that the formats can hold.
    pub const MAX_KEY: usize = 64 * 1024;
    /// The longest value that the formats can hold, as in Redis.
    pub const MAX_VALUE: usize = 512 * 1024 * 1024;
    /// The most that one transaction may write: a block's length is a 32-bit number.
    pub const MAX_TRANSACTION: usize = 2 * 1024 * 1024 * 1024;
}

/// The prefix of the keys that a store keeps for itself: no other key may begin with it.
pub const RESERVED: [u8; 16] = [0xff; 16];

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            key: Limits::MAX_KEY,
            value: Limits::MAX_VALUE,
            transaction_ops: 1024 * 1024,
            transaction_bytes: 1024 * 1024 * 1024,
        }
    }
}

// One value of the largest size still fits one transaction.
const _: () = assert!(Limits::MAX_VALUE + Limits::MAX_KEY < Limits::MAX_TRANSACTION);
const _: () = assert!(Limits::MAX_TRANSACTION < u32::MAX as usize);
