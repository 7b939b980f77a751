//! Copies to memory from which a power failure takes only what lies in processors' caches.
//!
//! Whole cache lines are written with non-temporal stores, which go past the caches (libpmem's
//! `pmem_memcpy_nodrain`, which paper 2 uses in section 5.2). Bytes before and behind them are
//! written through the cache, and their lines are then written back, each once. A store fence
//! behind all of that waits for both.
//!
//! Safety contract: [`copy`] writes to the memory that its caller names, and nowhere else.

#![allow(unsafe_code)]

use std::io::IoSlice;

use super::cache_line::{self, LINE, LineWriteBack};

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
                unsafe { cache_line::stream(to, &from[..bytes]) };
                bytes
            } else {
                let bytes = room.min(from.len());
                // SAFETY: the bytes are within the caller's memory; the line is one of its lines.
                unsafe {
                    to.copy_from_nonoverlapping(from.as_ptr(), bytes);
                    if bytes == room {
                        cache_line::write_back(to, write_back);
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
        unsafe { cache_line::write_back(to.sub(1), write_back) };
    }
    cache_line::fence();
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
