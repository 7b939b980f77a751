//! The register of an element, and its rank: by MurmurHash64A, whose author has placed it in the public domain.

use super::registers::{REGISTER_BITS, REGISTERS};

const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// Where an element is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementPlace {
    pub(super) register: usize,
    /// One more than the zeros at the end of the hash, without the bits of the register.
    pub(super) rank: u8,
}

/// Returns the place of an element.
pub(super) fn place_of(element: &[u8]) -> ElementPlace {
    let hash = murmur_hash(element);
    let rest = hash >> REGISTER_BITS | 1 << (u64::BITS - REGISTER_BITS);
    ElementPlace {
        register: hash as usize % REGISTERS,
        rank: rest.trailing_zeros() as u8 + 1,
    }
}

fn murmur_hash(bytes: &[u8]) -> u64 {
    let mix = |block: u64| {
        let block = block.wrapping_mul(MULTIPLIER);
        (block ^ block >> SHIFT).wrapping_mul(MULTIPLIER)
    };
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (blocks, rest) = bytes.as_chunks::<8>();
    for block in blocks {
        hash = (hash ^ mix(u64::from_le_bytes(*block))).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
