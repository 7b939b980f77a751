//! Copies to memory from which a power failure takes only what lies in processors' caches.
//!
//! Whole cache lines are written with non-temporal stores, which go past the caches (libpmem's
//! `pmem_memcpy_nodrain`, which paper 2 uses in section 5.2). Bytes before and behind them are
//! written through the cache, and their lines are then written back, each once. A store fence
//! behind all of that waits for both.
//!
//! Safety contract: [`copy`] writes to the memory that its caller names, and nowhere else. The
//! instructions that write lines back change no memory; which of them the processor has is known
//! from cpuid.

#![allow(unsafe_code)]

use std::io::IoSlice;

/// Bytes of a cache line: x86-64 has no other size. Elsewhere it only sets the size of pieces.
const LINE: usize = 64;

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

/// Copies `parts`, one behind the other, to `to`. On return the stores are visible to all
/// processors, and have left the caches if `write_back` is not `Nothing`.
///
/// # Safety
/// The memory at `to` is valid for writes of as many bytes as `parts` have, and no other thread
/// accesses it meanwhile. `parts` are other memory. The processor has the instruction of
/// `write_back`.
pub(super) unsafe fn copy(mut to: *mut u8, parts: &[IoSlice<'_>], write_back: LineWriteBack) {
    // The line in which `to` lies has bytes that may only be in the cache.
    let mut cached = false;
    for part in parts {
        let mut from: &[u8] = part;
        while !from.is_empty() {
            let room = LINE - to.addr() % LINE;
            let bytes = if room == LINE && from.len() >= LINE {
                let bytes = from.len() - from.len() % LINE;
                // SAFETY: `to` begins a line, and these are whole lines within the caller's memory.
                unsafe { lines::stream(to, &from[..bytes]) };
                bytes
            } else {
                let bytes = room.min(from.len());
                // SAFETY: the bytes are within the caller's memory; the line is one of its lines.
                unsafe {
                    to.copy_from_nonoverlapping(from.as_ptr(), bytes);
                    if bytes == room {
                        lines::write_back(to, write_back);
                    }
                }
                cached = bytes < room;
                bytes
            };
            // SAFETY: the caller's memory has these bytes, so the end lies in it or just behind.
            to = unsafe { to.add(bytes) };
            from = &from[bytes..];
        }
    }
    if cached {
        // SAFETY: the last byte that was written lies in that line.
        unsafe { lines::write_back(to.sub(1), write_back) };
    }
    lines::fence();
}

#[cfg(target_arch = "x86_64")]
mod lines {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __get_cpuid_max, __m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence,
        _mm_stream_si128,
    };

    use super::{LINE, LineWriteBack};

    impl LineWriteBack {
        /// Returns the best instruction of this processor.
        pub(in super::super) fn detect() -> Option<LineWriteBack> {
            const STRUCTURED_FEATURES: u32 = 7;
            let ebx = match __get_cpuid_max(0).0 {
                most if most < STRUCTURED_FEATURES => 0,
                _ => __cpuid_count(STRUCTURED_FEATURES, 0).ebx,
            };
            let has = |bit: u32| ebx & (1 << bit) != 0;
            Some(match (has(24), has(23)) {
                (true, _) => LineWriteBack::Clwb,
                (false, true) => LineWriteBack::Clflushopt,
                (false, false) => LineWriteBack::Clflush,
            })
        }
    }

    /// Writes whole lines past the caches.
    ///
    /// # Safety
    /// `to` begins a line and is valid for writes of `from`'s length, a multiple of a line.
    pub(super) unsafe fn stream(to: *mut u8, from: &[u8]) {
        const WORD: usize = size_of::<__m128i>();
        for line in (0..from.len()).step_by(LINE) {
            for word in (line..line + LINE).step_by(WORD) {
                // SAFETY: both hold a word there; that of `to` is aligned, as lines are. The fence
                // that such stores need is in `copy`.
                unsafe {
                    let value = _mm_loadu_si128(from.as_ptr().add(word).cast());
                    _mm_stream_si128(to.add(word).cast(), value);
                }
            }
        }
    }

    /// Begins to write the line of the byte at `at` back to memory.
    ///
    /// # Safety
    /// `at` is mapped, and the processor has the instruction.
    pub(super) unsafe fn write_back(at: *mut u8, how: LineWriteBack) {
        // SAFETY: the address is valid, and these change nothing that a program sees. The assembler
        // is not told that they leave memory alone, so that the stores before stay before them.
        unsafe {
            match how {
                LineWriteBack::Clwb => asm!("clwb [{}]", in(reg) at, options(nostack)),
                LineWriteBack::Clflushopt => asm!("clflushopt [{}]", in(reg) at, options(nostack)),
                LineWriteBack::Clflush => _mm_clflush(at),
                LineWriteBack::Nothing => {}
            }
        }
    }

    /// Waits until the stores and the lines written back before it have left the processor.
    pub(super) fn fence() {
        // SAFETY: every x86-64 processor has it.
        unsafe { _mm_sfence() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod lines {
    use std::sync::atomic::{Ordering, fence as memory_fence};

    use super::LineWriteBack;

    impl LineWriteBack {
        /// Returns `None`: the kernel is to write lines back, by a sync.
        pub(in super::super) fn detect() -> Option<LineWriteBack> {
            None
        }
    }

    /// Writes whole lines.
    ///
    /// # Safety
    /// `to` is valid for writes of `from`'s length.
    pub(super) unsafe fn stream(to: *mut u8, from: &[u8]) {
        // SAFETY: the caller says so.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    /// Does nothing, as [`LineWriteBack::detect`] promises nothing.
    ///
    /// # Safety
    /// None is needed; the signature is that of other processors.
    pub(super) unsafe fn write_back(_at: *mut u8, _how: LineWriteBack) {}

    pub(super) fn fence() {
        memory_fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of many lengths at each place within a line, with every instruction that the processor
    /// has: the bytes arrive, and their neighbours stay.
    #[test]
    fn parts_arrive_at_any_place_and_their_neighbours_stay() {
        let mut ways = vec![LineWriteBack::Nothing];
        if let Some(best) = LineWriteBack::detect() {
            let all = [
                LineWriteBack::Clflush,
                LineWriteBack::Clflushopt,
                LineWriteBack::Clwb,
            ];
            let known = all.iter().position(|&way| way == best).unwrap();
            ways.extend(&all[..=known]);
        }
        let mut rng = fastrand::Rng::with_seed(1);
        for way in ways {
            for at in 0..2 * LINE {
                let lengths = [rng.usize(0..9), rng.usize(0..300), 0, rng.usize(60..70)];
                let parts = lengths.map(|len| vec![rng.u8(1..255); len]);
                let slices = parts.each_ref().map(|part| IoSlice::new(part));
                let whole = parts.concat();
                let mut memory = vec![255; at + whole.len() + LINE];
                // SAFETY: the vector has these bytes behind `at`, and is not used meanwhile.
                unsafe { copy(memory.as_mut_ptr().add(at), &slices, way) };
                assert_eq!(memory[at..at + whole.len()], whole, "{way:?} at {at}");
                memory.drain(at..at + whole.len());
                assert_eq!(memory, vec![255; at + LINE], "{way:?} at {at}");
            }
        }
    }
}
