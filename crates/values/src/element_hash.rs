//! The order of elements that have no order of their own: by a hash.

/// Returns the hash of a field or a member. It is part of the format of cursors, and of no log.
pub(crate) fn element_hash(element: &[u8]) -> u32 {
    // FNV-1a, and a finish that spreads the last bytes (the finalizer of MurmurHash3).
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in element {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (hash >> 32) as u32
}
