//! Registers of six bits each.

use super::registers::{REGISTERS, Registers};

const BITS: usize = 6;
/// The bytes of all registers.
pub(super) const DENSE_BYTES: usize = REGISTERS * BITS / 8;
const MASK: u16 = (1 << BITS) - 1;

/// Returns the value of a register.
pub(super) fn dense_register(bytes: &[u8], register: usize) -> u8 {
    let (at, shift) = (register * BITS / 8, register * BITS % 8);
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    let both = u16::from_le_bytes([bytes[at], next]);
    (both >> shift & MASK) as u8
}

/// Raises a register to a value that is greater than its own.
pub(super) fn raise_dense(bytes: &mut [u8], register: usize, value: u8) {
    let (at, shift) = (register * BITS / 8, register * BITS % 8);
    let [low, high] = (u16::from(value) << shift).to_le_bytes();
    let [low_mask, high_mask] = (MASK << shift).to_le_bytes();
    bytes[at] = bytes[at] & !low_mask | low;
    if high_mask > 0 {
        bytes[at + 1] = bytes[at + 1] & !high_mask | high;
    }
}

/// Returns registers as they are encoded.
pub(super) fn registers_as_dense(registers: &Registers) -> Vec<u8> {
    let mut bytes = vec![0; DENSE_BYTES];
    for (register, value) in registers.iter().enumerate() {
        raise_dense(&mut bytes, register, *value);
    }
    bytes
}
