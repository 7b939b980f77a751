//! Memory for reads, in slots that are taken and given back.
//!
//! A [`BufferPool`] has a number of slots of one size, one behind the other in an
//! [arena](super::huge_page_memory) that is made once. Free slots lie on a few stacks; a thread
//! takes from its own and gives back to its own, so that the slot that it gets was used last and is
//! still near its processor. Where its stack is empty it takes half of another one's.
//!
//! A [`PooledBuffer`] is a slot. It is a [`ReadBuffer`]: while a read has it, no code can access
//! it; after the read, it can be read and shared, as [`Bytes`] without copying. When the last of
//! these is dropped, by any thread, the slot is free again.
//!
//! Safety contract:
//! 1. A slot's number is on one stack, or in one `PooledBuffer`. So two `PooledBuffer`s never share
//!    memory.
//! 2. References to a slot's memory are borrows of its `PooledBuffer`, which cannot be copied.
//! 3. Each `PooledBuffer` keeps the arena.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::huge_page_memory::HugePageMemory;
use super::read_buffer::{ReadBuffer, RegistrableMemory};

/// Stacks of free slots.
const STACKS: usize = 8;
/// The sizes of slots are multiples of this: a device's least sector.
const SECTOR: usize = 512;

/// A number of slots, shared by all clones.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arc<HugePageMemory>,
    slot_size: usize,
    slots: u32,
    stacks: [CachePadded<Mutex<Vec<u32>>>; STACKS],
}

impl BufferPool {
    /// Returns a pool of `slots` slots of `slot_size` bytes each, which begin at multiples of the
    /// largest power of two in `slot_size`.
    ///
    /// # Errors
    /// Returns an error if there is not so much memory.
    ///
    /// # Panics
    /// Panics if `slot_size` is zero or no multiple of 512.
    pub fn new(slots: u32, slot_size: usize) -> io::Result<BufferPool> {
        assert!(
            slot_size > 0 && slot_size.is_multiple_of(SECTOR),
            "slots of {slot_size} bytes"
        );
        let len = (slots as usize).checked_mul(slot_size);
        let arena = HugePageMemory::new(len.ok_or(io::ErrorKind::OutOfMemory)?)?;
        // The first slots are taken first. All lie on one stack; other threads take from there.
        let mut all: Vec<u32> = (0..slots).rev().collect();
        let stack = |_| CachePadded::new(Mutex::new(std::mem::take(&mut all)));
        Ok(BufferPool {
            shared: Arc::new(Shared {
                arena: Arc::new(arena),
                slot_size,
                slots,
                stacks: std::array::from_fn(stack),
            }),
        })
    }

    /// Takes a free slot; returns `None` if there is none.
    #[must_use]
    pub fn take(&self) -> Option<PooledBuffer> {
        let slot = self.shared.take()?;
        let at = slot as usize * self.shared.slot_size;
        Some(PooledBuffer {
            memory: self.shared.arena.part(at, self.shared.slot_size),
            slot,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Returns the bytes of a slot.
    #[must_use]
    pub fn slot_size(&self) -> usize {
        self.shared.slot_size
    }

    /// Returns the number of slots, free or not.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.shared.slots
    }

    /// Returns the approximate number of free slots.
    #[must_use]
    pub fn free(&self) -> usize {
        let stacks = self.shared.stacks.iter();
        stacks.map(|stack| stack.lock().len()).sum()
    }

    /// Returns the memory of all slots, for [`ReadQueue::register`](super::ReadQueue::register).
    #[must_use]
    pub fn memory(&self) -> Arc<dyn RegistrableMemory> {
        Arc::<HugePageMemory>::clone(&self.shared.arena)
    }
}

impl Shared {
    fn take(&self) -> Option<u32> {
        let own = own_stack();
        if let Some(slot) = self.stacks[own].lock().pop() {
            return Some(slot);
        }
        (1..STACKS).find_map(|step| {
            let mut half = {
                let mut other = self.stacks[(own + step) % STACKS].lock();
                let keep = other.len() / 2;
                other.split_off(keep)
            };
            let slot = half.pop()?;
            // No thread holds two stacks' locks at once.
            self.stacks[own].lock().append(&mut half);
            Some(slot)
        })
    }
}

/// Returns the stack of this thread. Threads are assigned to stacks in turn.
fn own_stack() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % STACKS);
    }
    // A thread that is about to end may have dropped its cell.
    OWN.try_with(Cell::get).unwrap_or(0)
}

/// A slot of a [`BufferPool`], given back when it is dropped.
pub struct PooledBuffer {
    memory: NonNull<[u8]>,
    slot: u32,
    shared: Arc<Shared>,
}

// SAFETY: the slot's memory belongs to this value alone (rule 1).
unsafe impl Send for PooledBuffer {}
// SAFETY: shared borrows give shared slices alone.
unsafe impl Sync for PooledBuffer {}

// SAFETY: the arena lasts as long as the value (rule 3) and does not move, no other slot shares the
// memory (rule 1), and all references to it are borrows of the value (rule 2).
unsafe impl ReadBuffer for PooledBuffer {
    fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }
}

impl PooledBuffer {
    /// Returns the first `len` bytes, to be shared without copying. The slot is free again when all
    /// of them are dropped.
    ///
    /// # Panics
    /// Panics if the slot has fewer.
    #[must_use]
    pub fn into_bytes(self, len: usize) -> Bytes {
        let mut bytes = Bytes::from_owner(self);
        assert!(
            len <= bytes.len(),
            "{len} bytes of a slot of {}",
            bytes.len()
        );
        bytes.truncate(len);
        bytes
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory is initialised, and not written to while the value is borrowed: a read
        // has the value itself (rules 1 to 3).
        unsafe { self.memory.as_ref() }
    }
}

impl AsMut<[u8]> for PooledBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the value is borrowed for this alone.
        unsafe { self.memory.as_mut() }
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.shared.stacks[own_stack()].lock().push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_separate_and_come_back() {
        let pool = BufferPool::new(5, 4096).unwrap();
        let mut all: Vec<PooledBuffer> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((all.len(), pool.free(), pool.slots()), (5, 0, 5));
        for (i, buf) in all.iter_mut().enumerate() {
            assert_eq!(buf.memory().as_ptr().cast::<u8>() as usize % 4096, 0);
            assert!(buf.as_ref().iter().all(|&byte| byte == 0));
            buf.as_mut().fill(i as u8 + 1);
        }
        for (i, buf) in all.iter().enumerate() {
            assert!(buf.as_ref().iter().all(|&byte| byte == i as u8 + 1));
        }
        all.pop();
        assert_eq!(pool.free(), 1);
        drop(all);
        assert_eq!(pool.free(), 5);
    }

    #[test]
    fn a_slot_is_free_when_the_last_part_of_it_is_dropped() {
        let pool = BufferPool::new(1, 512).unwrap();
        let mut buf = pool.take().unwrap();
        buf.as_mut()[..5].copy_from_slice(b"hello");
        let bytes = buf.into_bytes(5);
        let part = bytes.slice(1..3);
        drop(bytes);
        assert!(pool.take().is_none());
        assert_eq!(part, b"el"[..]);
        drop(pool.clone());
        std::thread::spawn(move || drop(part)).join().unwrap();
        assert!(pool.take().is_some(), "given back by another thread");
    }

    #[test]
    fn slots_outlive_their_pool() {
        let buf = BufferPool::new(1, 512).unwrap().take().unwrap();
        assert_eq!(buf.into_bytes(512), [0; 512][..]);
    }

    /// Threads mark the slots that they take and hand some of them to others; no marks are
    /// overwritten.
    #[test]
    fn many_threads_never_share_a_slot() {
        const THREADS: u64 = 6;
        let pool = BufferPool::new(64, 512).unwrap();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
            .map(|_| std::sync::mpsc::sync_channel::<(PooledBuffer, u64)>(8))
            .unzip();
        std::thread::scope(|scope| {
            for (me, receiver) in receivers.into_iter().enumerate() {
                let (pool, senders) = (pool.clone(), senders.clone());
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(me as u64);
                    let check = |(buf, mark): (PooledBuffer, u64)| {
                        let words = buf.as_ref().chunks_exact(8);
                        assert!(words.into_iter().all(|word| word == mark.to_le_bytes()));
                    };
                    for round in 0..2000 {
                        let mark = round * THREADS + me as u64;
                        if let Some(mut buf) = pool.take() {
                            for word in buf.as_mut().chunks_exact_mut(8) {
                                word.copy_from_slice(&mark.to_le_bytes());
                            }
                            let other = &senders[rng.usize(0..senders.len())];
                            if let Err(refused) = other.try_send((buf, mark)) {
                                let (std::sync::mpsc::TrySendError::Full(kept)
                                | std::sync::mpsc::TrySendError::Disconnected(kept)) = refused;
                                check(kept);
                            }
                        }
                        receiver.try_iter().for_each(check);
                    }
                    drop(senders);
                    receiver.iter().for_each(check);
                });
            }
            drop(senders);
        });
        assert_eq!(pool.free(), 64);
    }
}
