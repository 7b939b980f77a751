//! The memory that the kernel and the process share for packets: frames, and four rings of descriptors.
//!
//! | ring | written by | content |
//! |---|---|---|
//! | fill | process | addresses of frames that the kernel may receive into |
//! | receive | kernel | descriptors of frames with received packets |
//! | transmit | process | descriptors of frames to be sent |
//! | completion | kernel | addresses of frames that were sent |
//!
//! A ring is an array of a power of two of entries with two counters of 32 bits, which go round: the producer's counts
//! the entries that were written, the consumer's those that were read. The producer writes entries between the two,
//! and then its counter (release); the consumer reads the producer's counter (acquire), and then the entries.
//!
//! Safety contract:
//! 1. A mapping has the length with which it was mapped, and lives as long as the ring or the frames that use it.
//! 2. Counters and entries lie within it: [`Ring::new`] checks that, and indices are masked.
//! 3. A frame is touched only by its owner. A frame that is the process's has its number in the hands of exactly one
//!    owner, [`PacketFrame`], which is not `Clone`; the frames of entries of the fill and transmit rings are the kernel's.
//!    Only [`PacketFrame::address`] and [`FrameMemory::frame`] convert between the two.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpDesc, XdpRingOffset};

/// Bytes of a frame, the most that a page of 4 KiB allows.
pub(crate) const FRAME: usize = 4096;

/// Memory that was mapped.
struct Mapping {
    begin: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread; who may touch which part is said by the contract.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn anonymous(len: usize) -> io::Result<Mapping> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let begin = unsafe { mmap_anonymous(std::ptr::null_mut(), len, both, MapFlags::PRIVATE) }?;
        Ok(Mapping {
            begin: NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
        })
    }

    fn of_socket(socket: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Mapping> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as above.
        let begin = unsafe { mmap(std::ptr::null_mut(), len, both, flags, socket, offset) }?;
        Ok(Mapping {
            begin: NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing uses the mapping any more (contract, rule 1).
        let unmapped = unsafe { munmap(self.begin.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The frames of a socket.
pub(crate) struct FrameMemory {
    mapping: Mapping,
}

/// A frame that the process owns.
#[derive(Debug)]
pub(crate) struct PacketFrame(u64);

impl FrameMemory {
    /// Allocates memory. Returns it with all of its frames.
    pub(crate) fn allocate(frames: usize) -> io::Result<(Arc<FrameMemory>, Vec<PacketFrame>)> {
        let mapping = Mapping::anonymous(frames * FRAME)?;
        let all = (0..frames as u64).map(|at| PacketFrame(at * FRAME as u64));
        Ok((Arc::new(FrameMemory { mapping }), all.collect()))
    }

    /// Returns the address of the memory, and its length in bytes.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let begin = self.mapping.begin.as_ptr().expose_provenance() as u64;
        (begin, self.mapping.len as u64)
    }

    /// Takes the frame of an entry back from the kernel. The caller got the entry from the receive or completion
    /// ring of these frames just now. Returns the frame, and the place of `address` in it.
    pub(crate) fn frame(&self, address: u64) -> (PacketFrame, usize) {
        assert!(
            address < self.mapping.len as u64,
            "the kernel names no such frame"
        );
        let within = address as usize % FRAME;
        (PacketFrame(address - within as u64), within)
    }

    /// Returns the bytes of a frame.
    pub(crate) fn bytes<'a>(&'a self, frame: &'a PacketFrame) -> &'a [u8; FRAME] {
        // SAFETY: the frame lies within the mapping, and its owner has lent it (contract, rules 1 and 3).
        unsafe { self.mapping.begin.add(frame.0 as usize).cast().as_ref() }
    }

    /// Returns the bytes of a frame, to be written.
    pub(crate) fn bytes_mut<'a>(&'a self, frame: &'a mut PacketFrame) -> &'a mut [u8; FRAME] {
        // SAFETY: as above; the exclusive borrow of the frame is one of its bytes.
        unsafe { self.mapping.begin.add(frame.0 as usize).cast().as_mut() }
    }
}

impl PacketFrame {
    /// Gives the frame away, to be named in an entry of the fill or the transmit ring.
    pub(crate) fn address(self) -> u64 {
        self.0
    }
}

/// Entries that a ring may have: plain numbers, of which any bytes are valid.
pub(crate) trait RingEntry: Copy {}

impl RingEntry for u64 {}
impl RingEntry for XdpDesc {}

/// One side of a ring.
struct Ring<T> {
    mapping: Arc<Mapping>,
    producer: usize,
    consumer: usize,
    entries: usize,
    count: u32,
    kind: PhantomData<T>,
}

impl<T: RingEntry> Ring<T> {
    fn new(mapping: Arc<Mapping>, offsets: &XdpRingOffset, count: u32) -> Ring<T> {
        assert!(count.is_power_of_two());
        let (producer, consumer) = (offsets.producer as usize, offsets.consumer as usize);
        let entries = offsets.desc as usize;
        let room = |at: usize, len: usize, align: usize| {
            assert!(at.is_multiple_of(align) && at + len <= mapping.len);
        };
        room(producer, 4, 4);
        room(consumer, 4, 4);
        room(entries, count as usize * size_of::<T>(), align_of::<T>());
        Ring {
            mapping,
            producer,
            consumer,
            entries,
            count,
            kind: PhantomData,
        }
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: it lies within the mapping and is aligned (rule 2); the kernel, too, changes it atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.begin.as_ptr().add(at).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = (index & (self.count - 1)) as usize;
        // SAFETY: the masked index is below the number of entries, which lie within the mapping (rule 2).
        unsafe {
            let entries = self.mapping.begin.as_ptr().add(self.entries);
            entries.cast::<T>().add(at)
        }
    }
}

/// A ring that the process writes.
pub(crate) struct ProducerRing<T> {
    ring: Ring<T>,
    /// The entries that were written, published or not.
    written: u32,
    /// The consumer's counter, as it was seen last.
    read: u32,
}

impl<T: RingEntry> ProducerRing<T> {
    fn new(ring: Ring<T>) -> ProducerRing<T> {
        let written = ring.counter(ring.producer).load(Ordering::Relaxed);
        let read = ring.counter(ring.consumer).load(Ordering::Acquire);
        ProducerRing {
            ring,
            written,
            read,
        }
    }

    /// Maps a ring of a socket.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        count: u32,
        at: u64,
    ) -> io::Result<ProducerRing<T>> {
        Ok(ProducerRing::new(map(socket, offsets, count, at)?))
    }

    /// Returns the number of entries that may be written.
    pub(crate) fn room(&mut self) -> u32 {
        if self.written.wrapping_sub(self.read) == self.ring.count {
            self.read = self
                .ring
                .counter(self.ring.consumer)
                .load(Ordering::Acquire);
        }
        self.ring.count - self.written.wrapping_sub(self.read)
    }

    /// Returns the number of published entries that the kernel has not read.
    pub(crate) fn unread(&mut self) -> u32 {
        self.read = self
            .ring
            .counter(self.ring.consumer)
            .load(Ordering::Acquire);
        self.written.wrapping_sub(self.read)
    }

    /// Writes an entry, which [`ProducerRing::publish`] shows to the kernel.
    ///
    /// # Panics
    /// Panics if there is no room.
    pub(crate) fn push(&mut self, value: T) {
        assert!(self.room() > 0, "the ring is full");
        // SAFETY: the place is valid (`entry`), and between the counters it is the producer's.
        unsafe { self.ring.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
    }

    /// Shows the kernel what was written.
    pub(crate) fn publish(&mut self) {
        let counter = self.ring.counter(self.ring.producer);
        counter.store(self.written, Ordering::Release);
    }
}

/// A ring that the process reads.
pub(crate) struct ConsumerRing<T> {
    ring: Ring<T>,
    /// The entries that were read.
    read: u32,
    /// The producer's counter, as it was seen last.
    written: u32,
}

impl<T: RingEntry> ConsumerRing<T> {
    fn new(ring: Ring<T>) -> ConsumerRing<T> {
        let read = ring.counter(ring.consumer).load(Ordering::Relaxed);
        ConsumerRing {
            ring,
            read,
            written: read,
        }
    }

    /// Maps a ring of a socket.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        count: u32,
        at: u64,
    ) -> io::Result<ConsumerRing<T>> {
        Ok(ConsumerRing::new(map(socket, offsets, count, at)?))
    }

    /// Returns `true` if there is an entry.
    pub(crate) fn has_entry(&mut self) -> bool {
        if self.read == self.written {
            self.written = self
                .ring
                .counter(self.ring.producer)
                .load(Ordering::Acquire);
        }
        self.read != self.written
    }

    /// Takes the next entry, whose place [`ConsumerRing::release`] gives back to the kernel.
    pub(crate) fn take(&mut self) -> Option<T> {
        if !self.has_entry() {
            return None;
        }
        // SAFETY: the place is valid (`entry`), and between the counters the kernel has written it.
        let value = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(value)
    }

    /// Gives the places of taken entries back.
    pub(crate) fn release(&mut self) {
        let counter = self.ring.counter(self.ring.consumer);
        counter.store(self.read, Ordering::Release);
    }
}

fn map<T: RingEntry>(
    socket: BorrowedFd<'_>,
    offsets: &XdpRingOffset,
    count: u32,
    at: u64,
) -> io::Result<Ring<T>> {
    let len = offsets.desc as usize + count as usize * size_of::<T>();
    let mapping = Arc::new(Mapping::of_socket(socket, len, at)?);
    Ok(Ring::new(mapping, offsets, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u32 = 8;

    /// Returns both sides of one ring, whose counters begin at `begin`.
    fn ring(begin: u32) -> (ProducerRing<u64>, ConsumerRing<u64>) {
        let offsets = XdpRingOffset {
            producer: 0,
            consumer: 64,
            desc: 128,
            flags: None,
        };
        let mapping = Arc::new(Mapping::anonymous(4096).expect("memory"));
        let side = || Ring::new(Arc::clone(&mapping), &offsets, COUNT);
        let ring: Ring<u64> = side();
        ring.counter(ring.producer).store(begin, Ordering::Relaxed);
        ring.counter(ring.consumer).store(begin, Ordering::Relaxed);
        (ProducerRing::new(side()), ConsumerRing::new(side()))
    }

    #[test]
    fn entries_come_out_in_their_order_while_the_counters_go_round() {
        let (mut producer, mut consumer) = ring(u32::MAX - 20);
        let (mut sent, mut seen) = (0_u64, 0_u64);
        for turn in 0..100 {
            for _ in 0..producer.room().min(1 + turn % COUNT) {
                producer.push(sent);
                sent += 1;
            }
            producer.publish();
            for _ in 0..1 + (turn * 7) % COUNT {
                let Some(value) = consumer.take() else { break };
                assert_eq!(value, seen);
                seen += 1;
            }
            consumer.release();
            assert_eq!(u64::from(producer.unread()), sent - seen);
        }
        assert!(
            seen > 200,
            "{seen} entries: the counters have not gone round"
        );
    }

    #[test]
    fn a_full_ring_has_no_room_until_entries_are_given_back() {
        let (mut producer, mut consumer) = ring(u32::MAX);
        for value in 0..u64::from(COUNT) {
            producer.push(value);
        }
        assert_eq!(
            (producer.room(), consumer.take()),
            (0, None),
            "not published"
        );
        producer.publish();
        assert_eq!(consumer.take(), Some(0));
        assert_eq!(producer.room(), 0, "taken, but not given back");
        consumer.release();
        assert_eq!(producer.room(), 1);
    }

    #[test]
    #[should_panic(expected = "the ring is full")]
    fn a_full_ring_takes_nothing() {
        let (mut producer, _consumer) = ring(0);
        for value in 0..=u64::from(COUNT) {
            producer.push(value);
        }
    }

    #[test]
    fn frames_are_apart() {
        let (memory, mut frames) = FrameMemory::allocate(3).expect("memory");
        for (number, frame) in frames.iter_mut().enumerate() {
            memory.bytes_mut(frame).fill(number as u8 + 1);
        }
        for (number, frame) in frames.iter().enumerate() {
            assert!(
                memory
                    .bytes(frame)
                    .iter()
                    .all(|byte| *byte == number as u8 + 1)
            );
        }
        let last = frames.pop().expect("three").address();
        let (frame, within) = memory.frame(last + 256);
        assert_eq!((frame.address(), within), (last, 256));
    }
}
