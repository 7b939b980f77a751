//! Memory into which the kernel receives: buffers that are given to it, and come back filled.
//!
//! One allocation, which begins at a page:
//!
//! | from | length | what |
//! |---|---|---|
//! | 0 | [`COUNT`] × 16 | the table by which buffers are given to the kernel; its tail is in it |
//! | [`TABLE`] | [`COUNT`] × [`SIZE`] | the buffers |
//!
//! Safety contract:
//! 1. A buffer is the kernel's from when it is put into the table until a completion names it; from
//!    then on it is ours until it is put again. `filled` records which: no code reads a buffer that
//!    is the kernel's.
//! 2. No reference to memory that the kernel may write to is ever made. The kernel only reads the
//!    table: entries beyond the tail not at all, and the tail is written atomically.
//! 3. The memory outlives every request that may receive into it: the code that drops it makes sure
//!    of that.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// The number of buffers; a power of two.
pub(super) const COUNT: u16 = 128;
/// Bytes of a buffer.
pub(super) const SIZE: usize = 16 * 1024;
/// The offset of the first buffer.
const TABLE: usize = 4096;
const PAGE: usize = 4096;

const _: () = assert!(COUNT.is_power_of_two());
const _: () = assert!(COUNT as usize * size_of::<BufRingEntry>() <= TABLE);

/// A buffer that holds what was received, until it is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferId(u16);

/// See the module's page.
pub(super) struct Buffers {
    memory: NonNull<u8>,
    tail: u16,
    /// The number of bytes that are filled of each buffer that is ours.
    filled: Box<[Option<u32>]>,
}

// SAFETY: the allocation belongs to this value alone; the kernel's accesses to it do not depend on
// threads.
unsafe impl Send for Buffers {}

fn layout() -> Layout {
    Layout::from_size_align(TABLE + COUNT as usize * SIZE, PAGE).expect("a sensible length")
}

impl Buffers {
    /// Returns buffers that are all in the table.
    pub(super) fn new() -> Buffers {
        // SAFETY: the layout's size is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout()) }) else {
            handle_alloc_error(layout())
        };
        let mut buffers = Buffers {
            memory,
            tail: 0,
            filled: vec![Some(0); COUNT as usize].into(),
        };
        for id in 0..COUNT {
            buffers.give_back(BufferId(id));
        }
        buffers
    }

    /// Returns the table's address, for the kernel.
    pub(super) fn table(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn start_of(&self, id: BufferId) -> *mut u8 {
        // SAFETY: ids are below `COUNT`, so that this lies in the allocation.
        unsafe { self.memory.as_ptr().add(TABLE + id.0 as usize * SIZE) }
    }

    /// Takes a buffer that the kernel has filled.
    ///
    /// # Panics
    /// Panics if the buffer is not the kernel's, or is shorter than `len`.
    pub(super) fn take(&mut self, id: u16, len: usize) -> BufferId {
        let filled = &mut self.filled[id as usize];
        assert!(
            filled.is_none() && len <= SIZE,
            "{len} bytes in buffer {id}"
        );
        *filled = Some(len as u32);
        BufferId(id)
    }

    /// Returns `true` if a buffer is ours.
    pub(super) fn are_held(&self) -> bool {
        self.filled.iter().any(Option::is_some)
    }

    /// Returns the bytes that were received.
    ///
    /// # Panics
    /// Panics if the buffer has been given back.
    pub(super) fn bytes(&self, id: BufferId) -> &[u8] {
        let len = self.filled[id.0 as usize].expect("the buffer is the kernel's");
        // SAFETY: the buffer is ours (rule 1) as long as `self` is borrowed; it was zeroed once, so
        // that all of it has a value.
        unsafe { std::slice::from_raw_parts(self.start_of(id), len as usize) }
    }

    /// Puts a buffer into the table.
    ///
    /// # Panics
    /// Panics if the buffer is there already.
    pub(super) fn give_back(&mut self, id: BufferId) {
        let filled = self.filled[id.0 as usize].take();
        assert!(filled.is_some(), "buffer {} is the kernel's", id.0);
        let table = self.memory.as_ptr().cast::<BufRingEntry>();
        let start = self.start_of(id) as u64;
        // SAFETY: the entry lies in the table, which has as many as there are buffers. The kernel
        // does not read it before the tail has passed it, and as a buffer is put once, the table
        // never has more entries than places. Only fields are written: the tail shares the first
        // entry.
        unsafe {
            let entry = &mut *table.add((self.tail & (COUNT - 1)) as usize);
            entry.set_addr(start);
            entry.set_len(SIZE as u32);
            entry.set_bid(id.0);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the table, is aligned, and is only ever written here, atomically;
        // the kernel reads it.
        let tail = unsafe { &*BufRingEntry::tail(table).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; by rule 3 the kernel is done with it.
        unsafe { dealloc(self.memory.as_ptr(), layout()) }
    }
}
