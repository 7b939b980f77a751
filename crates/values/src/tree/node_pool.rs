//! Free nodes of a thread.
//!
//! A change frees about as many nodes as it makes. A node that was freed a moment ago is in the processor's
//! caches; the memory that an allocator returns in its place, and its own data about that memory, often are
//! not.
//!
//! Each thread keeps up to [`KEPT_NODES`] allocations of each size between [`SMALLEST`] and [`LARGEST`], at
//! most 1.5 MiB in all. They are linked through their first bytes.
//!
//! Contract:
//! 1. Nothing refers to an allocation in a pool.
//! 2. All allocations of a bin have the bin's size, and [`layout`] as their layout.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::MAX_LEAF_BYTES;

const ALIGNMENT: usize = 8;
const KEPT_NODES: usize = 64;
/// Smaller allocations are as fast without a pool.
const SMALLEST: usize = 513;
const LARGEST: usize = 4096;
const SIZES_PER_POWER: usize = 4;
const BINS: usize = SIZES_PER_POWER * (LARGEST.ilog2() - (SMALLEST - 1).ilog2()) as usize;

thread_local! {
    static POOL: NodePool = const { NodePool::new() };
}

struct FreeNode {
    next: *mut FreeNode,
}

/// Allocations of one size.
struct Bin {
    first: Cell<*mut FreeNode>,
    count: Cell<usize>,
}

impl Bin {
    const fn new() -> Self {
        Bin {
            first: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
        }
    }

    fn take(&self) -> Option<NonNull<u8>> {
        let first = NonNull::new(self.first.get())?;
        // SAFETY: an allocation in the pool begins with a `FreeNode`.
        self.first.set(unsafe { first.as_ref() }.next);
        self.count.set(self.count.get() - 1);
        Some(first.cast())
    }

    /// Takes an allocation, or returns `false` if there are enough.
    ///
    /// # Safety
    ///
    /// The caller owns the allocation, which has the bin's size.
    unsafe fn put(&self, allocation: NonNull<u8>) -> bool {
        if self.count.get() == KEPT_NODES {
            return false;
        }
        let free = allocation.cast::<FreeNode>();
        let next = self.first.replace(free.as_ptr());
        // SAFETY: the allocation is the caller's, aligned, and larger than a `FreeNode`.
        unsafe { free.write(FreeNode { next }) };
        self.count.set(self.count.get() + 1);
        true
    }
}

struct NodePool {
    bins: [Bin; BINS],
}

impl NodePool {
    const fn new() -> Self {
        NodePool {
            bins: [const { Bin::new() }; BINS],
        }
    }
}

impl Drop for NodePool {
    fn drop(&mut self) {
        for (index, bin) in self.bins.iter().enumerate() {
            let power = (SMALLEST - 1) << (index / SIZES_PER_POWER);
            let bytes = power + power / SIZES_PER_POWER * (index % SIZES_PER_POWER + 1);
            while let Some(allocation) = bin.take() {
                // SAFETY: the allocation has the bin's size, and nothing refers to it.
                unsafe { dealloc(allocation.as_ptr(), layout(bytes)) };
            }
        }
    }
}

/// Returns the bin of a size that [`allocation_bytes`] has returned.
#[inline]
fn bin_of(bytes: usize) -> Option<usize> {
    if !(SMALLEST..=LARGEST).contains(&bytes) {
        return None;
    }
    let power = (bytes - 1).ilog2() as usize;
    let first = (SMALLEST - 1).ilog2() as usize;
    let place = (bytes - 1) >> (power - SIZES_PER_POWER.ilog2() as usize);
    Some((power - first) * SIZES_PER_POWER + place % SIZES_PER_POWER)
}

/// Returns the size of the allocation for a node of so many bytes: the allocator's next size, of which
/// mimalloc has four for each power of two. What it would waste is room for later entries so. A leaf of one
/// large entry is not rounded up.
pub(super) fn allocation_bytes(bytes: usize) -> usize {
    let step = if bytes > MAX_LEAF_BYTES {
        ALIGNMENT
    } else {
        (bytes.next_power_of_two() / (2 * SIZES_PER_POWER)).max(ALIGNMENT)
    };
    bytes.next_multiple_of(step)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGNMENT).expect("a node is smaller than the address space")
}

/// Allocates memory of a size that [`allocation_bytes`] has returned. It begins at a multiple of eight bytes,
/// and is not initialized.
pub(super) fn allocate(bytes: usize) -> NonNull<u8> {
    let pooled = bin_of(bytes).and_then(|bin| {
        // A thread that ends has no pool any more.
        POOL.try_with(|pool| pool.bins[bin].take()).ok().flatten()
    });
    pooled.unwrap_or_else(|| {
        let layout = layout(bytes);
        assert_ne!(layout.size(), 0);
        // SAFETY: the layout is not empty.
        let allocation = unsafe { alloc(layout) };
        NonNull::new(allocation).unwrap_or_else(|| handle_alloc_error(layout))
    })
}

/// Frees memory.
///
/// # Safety
///
/// [`allocate`] has returned the memory, for as many bytes, and nothing refers to it.
pub(super) unsafe fn free(allocation: NonNull<u8>, bytes: usize) {
    let kept = bin_of(bytes).is_some_and(|bin| {
        // SAFETY: the caller owns the allocation, which has the bin's size.
        let put = |pool: &NodePool| unsafe { pool.bins[bin].put(allocation) };
        POOL.try_with(put).unwrap_or(false)
    });
    if !kept {
        // SAFETY: the caller owns the allocation, which was made with this layout.
        unsafe { dealloc(allocation.as_ptr(), layout(bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_one_size_each() {
        let mut sizes = [None; BINS];
        for bytes in 1..3 * LARGEST {
            let size = allocation_bytes(bytes);
            assert!(size >= bytes && size <= bytes + (bytes / 4).max(ALIGNMENT));
            if let Some(bin) = bin_of(size) {
                assert_eq!(*sizes[bin].get_or_insert(size), size);
            }
        }
        assert!(sizes.iter().all(Option::is_some));
    }

    #[test]
    fn pools_keep_a_bounded_number_of_nodes() {
        let sizes = [520, 640, 1000, 1024, 2048, 4096].map(allocation_bytes);
        for size in sizes {
            let all = [(); KEPT_NODES + 10].map(|()| allocate(size));
            for allocation in all {
                // SAFETY: the allocation was just made, and is used no longer.
                unsafe { free(allocation, size) };
            }
        }
        let kept = |pool: &NodePool| pool.bins.iter().map(|bin| bin.count.get()).max();
        assert_eq!(POOL.with(kept), Some(KEPT_NODES));
        for size in sizes {
            let last = allocate(size);
            // SAFETY: the allocation was just made, and is used no longer.
            unsafe { free(last, size) };
            assert_eq!(allocate(size), last, "the node that was freed last");
            // SAFETY: as above.
            unsafe { free(last, size) };
        }
    }
}
