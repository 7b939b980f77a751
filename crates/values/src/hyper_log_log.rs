//! HyperLogLogs: strings from which the number of different elements that were added is estimated.
//!
//! | bytes | are |
//! |---|---|
//! | 4 | `HYLL` |
//! | 1 | the encoding of the registers: 0, dense; 1, sparse |
//! | 3 | zeros |
//! | 8 | the estimate, little-endian; not valid if the highest bit is set |
//! | … | 16384 registers |
//!
//! The hash of an element chooses a register by its lowest 14 bits. The register keeps the greatest number of a rank:
//! one more than the zeros at the end of the hash's other bits.
//!
//! Dense registers take six bits each, the lowest bits of a byte first. Sparse ones are runs:
//!
//! | run | bytes | registers |
//! |---|---|---|
//! | zero | `00xxxxxx` | x + 1 with the value 0 |
//! | long zero | `01xxxxxx xxxxxxxx` | x + 1 with the value 0 |
//! | value | `1vvvvvxx` | x + 1 with the value v + 1 |
//!
//! Values are those of Redis, byte for byte: the runs depend on the order of the additions.

mod dense;
mod estimate;
mod hash;
mod registers;
mod sparse;

use std::borrow::Cow;

use base::transaction::{CallError, OpError};

use dense::{DENSE_BYTES, dense_register, raise_dense, registers_as_dense};
use hash::place_of;
pub(crate) use registers::{REGISTERS, Registers};
use sparse::SparseChange;

const HEADER: usize = 16;
const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The bit of the last byte of an estimate that is not valid.
const STALE: u8 = 0x80;
/// The longest sparse HyperLogLog, as Redis has it by default.
pub const LONGEST_SPARSE: usize = 3000;

const NO_HYPER_LOG_LOG: OpError = OpError::Call(CallError::NoHyperLogLog);
const CORRUPT: OpError = OpError::Call(CallError::CorruptHyperLogLog);

/// A HyperLogLog that is read.
#[derive(Clone, Copy)]
pub(crate) struct HyperLogLogView<'v> {
    bytes: &'v [u8],
}

impl<'v> HyperLogLogView<'v> {
    /// Returns the HyperLogLog with these bytes.
    ///
    /// # Errors
    /// [`CallError::NoHyperLogLog`]: the string is none.
    pub(crate) fn new(bytes: &'v [u8]) -> Result<HyperLogLogView<'v>, OpError> {
        let is_one = bytes.len() >= HEADER
            && bytes.starts_with(MAGIC)
            && match bytes[4] {
                DENSE => bytes.len() == HEADER + DENSE_BYTES,
                encoding => encoding == SPARSE,
            };
        is_one
            .then_some(HyperLogLogView { bytes })
            .ok_or(NO_HYPER_LOG_LOG)
    }

    pub(crate) fn is_dense(self) -> bool {
        self.bytes[4] == DENSE
    }

    /// Returns the estimate, if it is valid.
    pub(crate) fn estimate(self) -> Option<u64> {
        let estimate = u64::from_le_bytes(*self.bytes[8..].first_chunk()?);
        (self.bytes[HEADER - 1] & STALE == 0).then_some(estimate)
    }

    /// Returns the registers, encoded.
    fn encoded(self) -> &'v [u8] {
        &self.bytes[HEADER..]
    }

    /// Returns the runs of a sparse HyperLogLog: of each the number of registers and their value.
    pub(crate) fn runs(self) -> impl Iterator<Item = sparse::SparseRun> {
        sparse::runs(self.encoded())
    }

    /// Raises registers to those of this HyperLogLog that are greater.
    ///
    /// # Errors
    /// [`CallError::CorruptHyperLogLog`]
    pub(crate) fn merge_into(self, registers: &mut Registers) -> Result<(), OpError> {
        if self.is_dense() {
            for (at, register) in registers.iter_mut().enumerate() {
                *register = (*register).max(dense_register(self.encoded(), at));
            }
            return Ok(());
        }
        let mut at = 0;
        for run in self.runs() {
            let of_run = registers.get_mut(at..at + run.registers).ok_or(CORRUPT)?;
            of_run
                .iter_mut()
                .for_each(|own| *own = (*own).max(run.value));
            at += run.registers;
        }
        (at == REGISTERS).then_some(()).ok_or(CORRUPT)
    }

    /// Returns the registers.
    ///
    /// # Errors
    /// [`CallError::CorruptHyperLogLog`]
    pub(crate) fn registers(self) -> Result<Box<Registers>, OpError> {
        let mut registers = Box::new([0; REGISTERS]);
        self.merge_into(&mut registers)?;
        Ok(registers)
    }
}

/// Returns the number of different elements that registers stand for.
pub(crate) fn estimate(registers: &Registers) -> u64 {
    estimate::estimate(registers)
}

/// Returns the bytes of an empty HyperLogLog.
fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4] = SPARSE;
    sparse::push_zeros(REGISTERS, &mut bytes);
    bytes
}

/// A HyperLogLog that is changed: a copy is made at the first change.
pub(crate) struct HyperLogLogEditor<'v> {
    bytes: Cow<'v, [u8]>,
}

impl<'v> HyperLogLogEditor<'v> {
    /// Begins to change one; without one, an empty one, which is sparse.
    pub(crate) fn of(view: Option<HyperLogLogView<'v>>) -> HyperLogLogEditor<'v> {
        let bytes = match view {
            Some(view) => Cow::Borrowed(view.bytes),
            None => Cow::Owned(empty()),
        };
        HyperLogLogEditor { bytes }
    }

    /// Returns the HyperLogLog as it is now.
    pub(crate) fn view(&self) -> HyperLogLogView<'_> {
        HyperLogLogView { bytes: &self.bytes }
    }

    /// Adds an element. Returns `true` if a register has changed.
    ///
    /// # Errors
    /// [`CallError::CorruptHyperLogLog`]
    pub(crate) fn add(&mut self, element: &[u8]) -> Result<bool, OpError> {
        let place = place_of(element);
        self.raise(place.register, place.rank)
    }

    /// Raises a register to a value. Returns `true` if it was lower.
    ///
    /// # Errors
    /// [`CallError::CorruptHyperLogLog`]
    pub(crate) fn raise(&mut self, register: usize, value: u8) -> Result<bool, OpError> {
        let view = self.view();
        if view.is_dense() {
            let is_raised = dense_register(view.encoded(), register) < value;
            if is_raised {
                raise_dense(&mut self.bytes.to_mut()[HEADER..], register, value);
            }
            return Ok(is_raised);
        }
        let longest = LONGEST_SPARSE - HEADER;
        match sparse::raise(view.encoded(), register, value, longest).ok_or(CORRUPT)? {
            SparseChange::None => Ok(false),
            SparseChange::Replace(place, runs) => {
                let bytes = self.bytes.to_mut();
                drop(bytes.splice(HEADER + place.start..HEADER + place.end, runs));
                sparse::merge_equal(bytes, HEADER + place.search_from);
                Ok(true)
            }
            SparseChange::BecomeDense => {
                self.become_dense()?;
                self.raise(register, value)
            }
        }
    }

    /// Has the registers encoded densely.
    ///
    /// # Errors
    /// [`CallError::CorruptHyperLogLog`]
    pub(crate) fn become_dense(&mut self) -> Result<(), OpError> {
        if self.view().is_dense() {
            return Ok(());
        }
        let registers = self.view().registers()?;
        let mut bytes = Vec::with_capacity(HEADER + DENSE_BYTES);
        bytes.extend_from_slice(&self.bytes[..HEADER]);
        bytes[4] = DENSE;
        bytes.extend(registers_as_dense(&registers));
        self.bytes = Cow::Owned(bytes);
        Ok(())
    }

    /// Notes that the estimate is no longer valid.
    pub(crate) fn invalidate(&mut self) {
        self.bytes.to_mut()[HEADER - 1] |= STALE;
    }

    /// Keeps the estimate.
    pub(crate) fn set_estimate(&mut self, estimate: u64) {
        self.bytes.to_mut()[8..HEADER].copy_from_slice(&estimate.to_le_bytes());
    }

    /// Returns the bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_owned()
    }
}

#[cfg(test)]
mod tests;
