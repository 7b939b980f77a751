//! Memory that reads land in.
//!
//! Safety contract of [`Landing`]: see the trait.

#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Memory that a read lands in. Whoever submits a read gives it away, and has it back when the read
/// is over.
///
/// # Safety
/// Until the value is dropped, the memory that [`Landing::memory`] tells stays where it is, is valid
/// for writes by any thread of this process and by the kernel, and no reference to it is made,
/// be the value moved or leaked.
pub unsafe trait Landing: Send + 'static {
    /// The memory. Begins at a multiple of the alignment that the file's reads need.
    fn memory(&self) -> NonNull<[u8]>;
}
