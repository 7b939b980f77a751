//! Memory of this side, in which pages lie as soon as they have come.
//!
//! A window is divided into slots of one page each. A slot is *reserved* for a page that is requested,
//! *filled* when the node has said that the page is there, and free again when the last user of the
//! page drops it.
//!
//! Safety contract:
//!
//! 1. A slot is reserved or filled for one owner at a time: its number is in the list of free ones or
//!    in one value, never in both.
//! 2. This process makes no reference to a reserved slot's memory; the node writes it. A filled one is
//!    not written at all: the node writes only the pages that were requested, once, and before it says
//!    that they are there. The node is trusted with this, as a peer that has proved to know the
//!    secret; memory of other slots and of this process is out of its reach.
//! 3. After the link has gone down no slot is reserved any more, so that late writes reach only slots
//!    that were abandoned.
//! 4. The memory lives as long as the window, and each slot keeps the window.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::SLOT_UNIT;

/// A window, and the list of its free slots.
#[derive(Debug)]
pub(super) struct Slots {
    _window: fabric::window::Window,
    memory: NonNull<[u8]>,
    unit: usize,
    count: usize,
    /// The last slot that became free is taken first: its memory is in the processor's caches.
    free: Mutex<Vec<u32>>,
}

// SAFETY: the window can be sent; its memory belongs to no thread, and references to its slots obey
// the contract.
unsafe impl Send for Slots {}
// SAFETY: as above; the list of free slots is made for several threads.
unsafe impl Sync for Slots {}

impl Slots {
    /// Divides a window into slots of so many bytes.
    ///
    /// # Panics
    /// Panics if no slot fits.
    pub(super) fn new(window: fabric::window::Window, unit: usize) -> Arc<Slots> {
        let memory = window.memory();
        let count = memory.len() / unit;
        assert!(count > 0, "a window without slots");
        let free = Mutex::new((0..count as u32).rev().collect());
        Arc::new(Slots {
            _window: window,
            memory,
            unit,
            count,
            free,
        })
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of free slots.
    pub(super) fn free(&self) -> usize {
        self.free.lock().len()
    }

    /// Reserves a slot.
    pub(super) fn reserve(self: &Arc<Slots>) -> Option<Reserved> {
        let number = self.free.lock().pop()?;
        let slots = Arc::clone(self);
        Some(Reserved { slots, number })
    }
}

/// A slot in which a page will lie. Dropping it abandons the slot: it is never used again, as the node
/// may write to it at any time.
#[derive(Debug)]
pub(super) struct Reserved {
    slots: Arc<Slots>,
    number: u32,
}

impl Reserved {
    /// Returns the place of the slot in its window, in the wire's units.
    pub(super) fn place(&self) -> u32 {
        let start = self.number as usize * self.slots.unit;
        u32::try_from(start / SLOT_UNIT).expect("windows are smaller than 2 TiB")
    }

    /// Converts the slot after the node has said that the page is there, or that it will not come.
    pub(super) fn settled(self) -> Slot {
        let Reserved { slots, number } = self;
        Slot { slots, number }
    }
}

/// A slot in which a page lies.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    number: u32,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        let start = self.number as usize * self.slots.unit;
        let first = self.slots.memory.cast::<u8>();
        // SAFETY: the slot lies within the window's memory, which lives as long as `self` (rule 4),
        // and is not written as long as `self` has it (rules 1 and 2). All of it is initialised: a
        // window begins as zeros.
        unsafe { std::slice::from_raw_parts(first.add(start).as_ptr(), self.slots.unit) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.free.lock().push(self.number);
    }
}
