//! Instructions that decide when stores leave the processor's caches.
//!
//! Safety contract: [`stream`] writes to the memory that its caller names, and nowhere else. The
//! instructions that write lines back change no memory; which of them the processor has is known
//! from cpuid.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::{asm, x86_64 as instructions};

/// Bytes of a cache line: x86-64 has no other size. Elsewhere it only sets the size of pieces.
pub(super) const LINE: usize = 64;

/// How a cache line is written back to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineWriteBack {
    /// `clwb`: the line stays in the cache.
    Clwb,
    /// `clflushopt`: the line leaves the cache.
    Clflushopt,
    /// `clflush`: so it does, and later ones wait for it.
    Clflush,
    /// Not at all, for memory that is lost with the caches.
    Nothing,
}

impl LineWriteBack {
    /// Returns the best instruction of this processor. `None`, on other processors than x86-64,
    /// means that the kernel is to write lines back, by a sync.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn detect() -> Option<LineWriteBack> {
        const STRUCTURED_FEATURES: u32 = 7;
        let ebx = match instructions::__get_cpuid_max(0).0 {
            most if most < STRUCTURED_FEATURES => 0,
            _ => instructions::__cpuid_count(STRUCTURED_FEATURES, 0).ebx,
        };
        let has = |bit: u32| ebx & (1 << bit) != 0;
        Some(match (has(24), has(23)) {
            (true, _) => LineWriteBack::Clwb,
            (false, true) => LineWriteBack::Clflushopt,
            (false, false) => LineWriteBack::Clflush,
        })
    }

    /// As above.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn detect() -> Option<LineWriteBack> {
        None
    }
}

/// Writes whole lines past the caches, where the processor can.
///
/// # Safety
/// `to` begins a line and is valid for writes of `from`'s length, a multiple of a line. A [`fence`]
/// follows before another thread learns that the bytes are there.
pub(super) unsafe fn stream(to: *mut u8, from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        const WORD: usize = size_of::<instructions::__m128i>();
        for at in (0..from.len()).step_by(WORD) {
            // SAFETY: both hold a word there, and that of `to` is aligned, as lines are.
            unsafe {
                let value = instructions::_mm_loadu_si128(from.as_ptr().add(at).cast());
                instructions::_mm_stream_si128(to.add(at).cast(), value);
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller says so.
    unsafe {
        to.copy_from_nonoverlapping(from.as_ptr(), from.len());
    }
}

/// Begins to write the line of the byte at `at` back to memory.
///
/// # Safety
/// `at` is mapped, and the processor has the instruction.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(super) unsafe fn write_back(at: *mut u8, how: LineWriteBack) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the address is valid, and these change nothing that a program sees. The assembler is
    // not told that they leave memory alone, so that the stores before stay before them.
    unsafe {
        match how {
            LineWriteBack::Clwb => asm!("clwb [{}]", in(reg) at, options(nostack)),
            LineWriteBack::Clflushopt => asm!("clflushopt [{}]", in(reg) at, options(nostack)),
            LineWriteBack::Clflush => instructions::_mm_clflush(at),
            LineWriteBack::Nothing => {}
        }
    }
}

/// Waits until the stores and the lines written back before it have left the processor.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        instructions::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
