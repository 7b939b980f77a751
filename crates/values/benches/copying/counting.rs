//! The program's allocator, which counts.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting(mimalloc::MiMalloc);

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting(mimalloc::MiMalloc);

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The program has one thread: the counter needs no atomic addition.
        ALLOCATIONS.store(allocations() + 1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.dealloc(at, layout) }
    }
}

pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}
