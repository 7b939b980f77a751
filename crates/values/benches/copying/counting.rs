//! The program's allocator, which counts.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting(mimalloc::MiMalloc);

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting(mimalloc::MiMalloc);

/// The program has one thread: a counter needs no atomic addition.
fn add(counter: &AtomicUsize, value: usize) {
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(&ALLOCATIONS, 1);
        add(&ALLOCATED, layout.size());
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

pub fn allocated_bytes() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}
