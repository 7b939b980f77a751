//! The registers.

/// The number of registers.
pub(crate) const REGISTERS: usize = 1 << REGISTER_BITS;
/// The bits of a hash that choose a register.
pub(super) const REGISTER_BITS: u32 = 14;

/// The values of all registers.
pub(crate) type Registers = [u8; REGISTERS];
