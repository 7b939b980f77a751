//! Records and versions in memory.
//!
//! A record lives as long as its key has a version; it is one allocation, 16-byte aligned:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | the [`Word`]: current version and marks |
//! | 8 | 4 | bits 0…7: key length, or 255 if it is 255 or more; bits 8…31: the [`AccessStamp`] |
//! | 12 | 4 | key length, if it is 255 or more |
//! | … | … | key |
//!
//! A version is one allocation, 16-byte aligned, immutable once published but for `previous` and the last
//! flag:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | TID of the transaction that wrote it, filled at commit; zero until then, also while it is staged |
//! | 8 | 8 | `previous`: an older version that a snapshot still needs, or null |
//! | 16 | 4 | value length |
//! | 20 | 2 | generation (see `FLUSHALL`: versions of other generations are invisible) |
//! | 22 | 1 | [`Kind`] |
//! | 23 | 1 | flags: 1 absent, 2 has a deadline, 4 has an origin, 8 its expiry was announced, 16 has trees |
//! | 24 | 8 | the deadline in milliseconds since the Unix epoch, if it has one |
//! | … | … | value; or, if it has trees, a [`VersionTree`] |
//! | … | 8 | if it has an origin: a counted reference to it, at any address |
//!
//! Contract of this module (everything unsafe about records is here):
//! 1. A [`RecordRef`] or [`VersionRef`] that was loaded from shared memory is used only while the
//!    worker that loaded it stays pinned in its epoch; memory that is taken out of shared
//!    structures is freed by [`crate::garbage`] only after every such worker has left. A record
//!    that is held under two-phase locking (module `holds`) cannot be locked by the janitor and
//!    stays in the index: its [`RecordRef`] is good until the hold is given back, in an epoch or
//!    not.
//! 2. A version is written only between [`VersionRef::new`] and its publication, by one thread at
//!    a time: those of a prepared transaction pass from thread to thread under a mutex.
//! 3. `previous` is changed only under the record's lock.
//! 4. [`VersionRef::never`] is the one version that is shared and never freed.
//! 5. A version with trees owns its [`VersionTree`], which is dropped when it is freed.
//! 6. A version with an origin owns one reference to it, which it gives back when it is freed.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::borrow::Cow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use base::change::{Origin, SYSTEM_GENERATION};
use base::transaction::Kind;
use base::{Epoch, Tid, TransactionId};
use values::ReplacedTrees;

use crate::access_stamp::AccessStamp;
use crate::origin::OwnedOrigin;
use crate::version_tree::VersionTree;
use crate::word::{Word, WordValue};

const ABSENT: u8 = 1;
const HAS_DEADLINE: u8 = 2;
const HAS_ORIGIN: u8 = 4;
const EXPIRY_ANNOUNCED: u8 = 8;
const HAS_TREE: u8 = 16;

#[repr(C)]
struct RecordHeader {
    word: Word,
    /// The length of the key, if it is short, and the stamp.
    packed: AtomicU32,
}

/// The length of a key that has a field of its own for it.
const LONG_KEY: usize = 255;
const STAMP_SHIFT: u32 = 8;

#[repr(C, align(16))]
struct VersionHeader {
    /// An atomic, because a staged version gets its TID when others may read it already.
    tid: AtomicU64,
    previous: AtomicPtr<VersionHeader>,
    len: u32,
    generation: u16,
    kind: u8,
    flags: AtomicU8,
}

impl VersionHeader {
    #[inline]
    fn flags(&self) -> u8 {
        self.flags.load(Ordering::Relaxed)
    }
}

/// The sizes of small allocations are multiples of this.
const ROUNDING: usize = 16;
// The fields end before the padding that the alignments ask for.
const RECORD_HEADER: usize = 12;
const VERSION_HEADER: usize = 24;
const _: () = assert!(align_of::<VersionTree>() == 8);
const _: () = assert!(std::mem::offset_of!(RecordHeader, packed) == RECORD_HEADER - 4);
const _: () = assert!(std::mem::offset_of!(VersionHeader, flags) == VERSION_HEADER - 1);

/// The version of every key that was never written.
static NEVER: VersionHeader = VersionHeader {
    tid: AtomicU64::new(0),
    previous: AtomicPtr::new(std::ptr::null_mut()),
    len: 0,
    generation: 0,
    kind: 0,
    flags: AtomicU8::new(ABSENT),
};

/// A record. See the module's contract for the time for which it may be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RecordRef(NonNull<RecordHeader>);

// SAFETY: a record is shared by design; its fields are atomics or never change.
unsafe impl Send for RecordRef {}
// SAFETY: as above.
unsafe impl Sync for RecordRef {}

impl RecordRef {
    fn layout(key_len: usize) -> Layout {
        let size = (Self::key_offset(key_len) + key_len).max(size_of::<RecordHeader>());
        Layout::from_size_align(size, 16).expect("a key's length is limited")
    }

    /// Returns the offset of a key of this length.
    #[inline]
    fn key_offset(key_len: usize) -> usize {
        match key_len < LONG_KEY {
            true => RECORD_HEADER,
            false => RECORD_HEADER + size_of::<u32>(),
        }
    }

    /// Returns a record whose key was never written.
    pub(crate) fn new(key: &[u8]) -> RecordRef {
        let layout = Self::layout(key.len());
        // SAFETY: the layout is not empty; the header, the length and the key lie within it.
        unsafe {
            let Some(at) = NonNull::new(alloc(layout).cast::<RecordHeader>()) else {
                handle_alloc_error(layout)
            };
            at.write(RecordHeader {
                word: Word::new(VersionRef::never().address()),
                packed: AtomicU32::new(key.len().min(LONG_KEY) as u32),
            });
            if key.len() >= LONG_KEY {
                let length = at.cast::<u8>().add(RECORD_HEADER).cast::<u32>();
                length.write(key.len() as u32);
            }
            let bytes = at.cast::<u8>().add(Self::key_offset(key.len()));
            std::ptr::copy_nonoverlapping(key.as_ptr(), bytes.as_ptr(), key.len());
            RecordRef(at)
        }
    }

    #[inline]
    fn header(&self) -> &RecordHeader {
        // SAFETY: contract 1.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn word(&self) -> &Word {
        &self.header().word
    }

    #[inline]
    pub(crate) fn key<'p>(self) -> &'p [u8] {
        // SAFETY: contract 1; the key never changes. The lifetime is the caller's pin.
        unsafe {
            let key_len = self.key_len();
            let bytes = self.0.cast::<u8>().add(Self::key_offset(key_len));
            std::slice::from_raw_parts(bytes.as_ptr(), key_len)
        }
    }

    #[inline]
    fn key_len(self) -> usize {
        let short = self.header().packed.load(Ordering::Relaxed) as u8;
        if usize::from(short) < LONG_KEY {
            return short.into();
        }
        // SAFETY: contract 1; long keys have this field, which never changes, at a multiple of 4.
        unsafe {
            let length = self.0.cast::<u8>().add(RECORD_HEADER).cast::<u32>();
            length.read() as usize
        }
    }

    /// Returns what is known of the use of the key.
    #[inline]
    pub(crate) fn stamp(self) -> AccessStamp {
        AccessStamp(self.header().packed.load(Ordering::Relaxed) >> STAMP_SHIFT)
    }

    /// Sets what is known of the use of the key. If two threads do so at the same time, one of the two stamps stays.
    pub(crate) fn set_stamp(self, stamp: AccessStamp) {
        let packed = &self.header().packed;
        // The other bits never change.
        let short = packed.load(Ordering::Relaxed) & ((1 << STAMP_SHIFT) - 1);
        packed.store(short | stamp.0 << STAMP_SHIFT, Ordering::Relaxed);
    }

    /// Returns the version of a word that was loaded from this record.
    #[inline]
    pub(crate) fn version(seen: WordValue) -> VersionRef {
        let at = seen.pointer() as *mut VersionHeader;
        VersionRef(NonNull::new(at).expect("a record always has a version"))
    }

    /// Returns the address, as an id of the record and for the look-aside table.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Returns the record at an address that [`RecordRef::address`] gave.
    ///
    /// # Safety
    /// The record must not have been freed (contract 1).
    pub(crate) unsafe fn from_address(address: u64) -> RecordRef {
        // SAFETY: by the caller.
        RecordRef(unsafe { NonNull::new_unchecked(address as *mut RecordHeader) })
    }

    /// Returns the bytes of a record and its only version, as allocators round them, for a key and a value of
    /// these lengths.
    pub(crate) fn bytes_for(key_len: usize, value_len: usize, expires: bool) -> usize {
        let flags = if expires { HAS_DEADLINE } else { 0 };
        let layouts = [Self::layout(key_len), VersionRef::layout(value_len, flags)];
        let sizes = layouts.map(|layout| layout.size().next_multiple_of(ROUNDING));
        sizes.into_iter().sum()
    }

    /// Returns the bytes of memory, as allocators round them.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        let layout = Self::layout(self.key_len());
        layout.size().next_multiple_of(ROUNDING)
    }

    /// Takes the nodes of the trees of all versions, so that they can be freed in slices before the record is.
    ///
    /// # Safety
    /// No worker can have the record any more.
    pub(crate) unsafe fn take_nodes(self) -> ReplacedTrees {
        let first = Self::version(self.word().load());
        let versions = std::iter::successors(Some(first), |version| version.previous());
        let mut nodes = ReplacedTrees::default();
        for tree in versions.filter_map(VersionRef::tree) {
            nodes.append(tree.take_nodes());
        }
        nodes
    }

    /// Frees the record and its versions.
    ///
    /// # Safety
    /// The record is in no structure, and no worker can have it any more.
    pub(crate) unsafe fn free(self) {
        let layout = Self::layout(self.key_len());
        // SAFETY: by the caller; the versions are freed with their record.
        unsafe {
            let mut version = Some(Self::version(self.word().load()));
            while let Some(v) = version {
                version = v.previous();
                v.free();
            }
            dealloc(self.0.as_ptr().cast(), layout);
        }
    }
}

/// A version of a record. See the module's contract for the time for which it may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionRef(NonNull<VersionHeader>);

// SAFETY: a published version is immutable but for an atomic; an unpublished one has one owner.
unsafe impl Send for VersionRef {}
// SAFETY: as above.
unsafe impl Sync for VersionRef {}

/// The content of a new version.
#[derive(Clone, Copy)]
pub(crate) struct VersionContent<'a> {
    /// The value: `parts` joined.
    pub(crate) parts: &'a [&'a [u8]],
    pub(crate) kind: Kind,
    pub(crate) deadline: Option<u64>,
}

impl VersionRef {
    fn layout(len: usize, flags: u8) -> Layout {
        let deadline = if flags & HAS_DEADLINE != 0 { 8 } else { 0 };
        let origin = if flags & HAS_ORIGIN != 0 { 8 } else { 0 };
        let size = (VERSION_HEADER + deadline + len + origin).max(size_of::<VersionHeader>());
        Layout::from_size_align(size, 16).expect("a value's length is limited")
    }

    /// Returns the version of a key that was never written: absent, TID zero.
    #[inline]
    pub(crate) fn never() -> VersionRef {
        VersionRef(NonNull::from(&NEVER))
    }

    /// Returns a version with trees that no other thread knows yet.
    pub(crate) fn with_tree(
        generation: u16,
        (kind, deadline): (Kind, Option<u64>),
        tree: VersionTree,
        origin: Option<&Arc<OwnedOrigin>>,
    ) -> VersionRef {
        let room = [0; size_of::<VersionTree>()];
        let content = VersionContent {
            parts: &[&room],
            kind,
            deadline,
        };
        let version = VersionRef::new(generation, Some(content), origin);
        let (header, place) = (version.header(), version.value_place());
        header.flags.fetch_or(HAS_TREE, Ordering::Relaxed);
        // SAFETY: the version is this thread's own, and its value has room for the trees; the place is a
        // multiple of 8, as the offsets of values are, and so is the alignment of the trees.
        unsafe { place.cast::<VersionTree>().write(tree) };
        version
    }

    /// Returns the trees, if the version has some in place of bytes.
    #[inline]
    pub(crate) fn tree<'p>(self) -> Option<&'p VersionTree> {
        if self.header().flags() & HAS_TREE == 0 {
            return None;
        }
        // SAFETY: contract 1 and 5; the lifetime is the caller's pin.
        Some(unsafe { self.value_place().cast::<VersionTree>().as_ref() })
    }

    /// Returns the value as it is stored elsewhere: the bytes, or the packed block of trees.
    pub(crate) fn stored_value<'p>(self) -> Cow<'p, [u8]> {
        match self.tree() {
            None => Cow::Borrowed(self.value()),
            Some(tree) => Cow::Owned(tree.to_packed()),
        }
    }

    /// Returns a version that no other thread knows yet: a tombstone if it has no content.
    pub(crate) fn new(
        generation: u16,
        content: Option<VersionContent<'_>>,
        origin: Option<&Arc<OwnedOrigin>>,
    ) -> VersionRef {
        let (len, mut flags, kind) = match &content {
            None => (0, ABSENT, Kind::String),
            Some(c) => {
                let len = c.parts.iter().map(|part| part.len()).sum::<usize>();
                (
                    len,
                    if c.deadline.is_some() {
                        HAS_DEADLINE
                    } else {
                        0
                    },
                    c.kind,
                )
            }
        };
        if origin.is_some() {
            flags |= HAS_ORIGIN;
        }
        let layout = Self::layout(len, flags);
        // SAFETY: the layout is not empty and at least as large as the header; deadline, value and
        // reference to the origin lie within it, one behind the other.
        unsafe {
            let Some(at) = NonNull::new(alloc(layout).cast::<VersionHeader>()) else {
                handle_alloc_error(layout)
            };
            at.write(VersionHeader {
                tid: AtomicU64::new(0),
                previous: AtomicPtr::new(std::ptr::null_mut()),
                len: u32::try_from(len).expect("a value's length is limited"),
                generation,
                kind: kind as u8,
                flags: AtomicU8::new(flags),
            });
            let mut to = at.cast::<u8>().add(VERSION_HEADER);
            if let Some(content) = content {
                if let Some(deadline) = content.deadline {
                    to.cast::<u64>().write(deadline);
                    to = to.add(8);
                }
                for part in content.parts {
                    std::ptr::copy_nonoverlapping(part.as_ptr(), to.as_ptr(), part.len());
                    to = to.add(part.len());
                }
            }
            if let Some(origin) = origin {
                to.cast::<*const OwnedOrigin>()
                    .write_unaligned(Arc::into_raw(Arc::clone(origin)));
            }
            VersionRef(at)
        }
    }

    #[inline]
    fn header(&self) -> &VersionHeader {
        // SAFETY: contract 1.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    #[inline]
    pub(crate) fn is_never(self) -> bool {
        self == Self::never()
    }

    #[inline]
    pub(crate) fn tid(self) -> Tid {
        Tid::from_bits(self.header().tid.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        self.tid().epoch()
    }

    /// Notes that the version's expiry is announced. Returns `true` if it was not until now.
    pub(crate) fn mark_expiry(self) -> bool {
        let flags = &self.header().flags;
        flags.fetch_or(EXPIRY_ANNOUNCED, Ordering::Relaxed) & EXPIRY_ANNOUNCED == 0
    }

    /// Gives the version its TID, before it is published.
    #[inline]
    pub(crate) fn set_tid(self, tid: Tid) {
        debug_assert!(!self.is_never());
        self.header().tid.store(tid.to_bits(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn generation(self) -> u16 {
        self.header().generation
    }

    #[inline]
    pub(crate) fn is_absent(self) -> bool {
        self.header().flags() & ABSENT != 0
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::from_u8(self.header().kind).expect("written from a Kind")
    }

    #[inline]
    pub(crate) fn deadline(self) -> Option<u64> {
        if self.header().flags() & HAS_DEADLINE == 0 {
            return None;
        }
        // SAFETY: the flag says that there is a deadline; offset 24 is 8-byte aligned.
        Some(unsafe { self.0.cast::<u8>().add(VERSION_HEADER).cast::<u64>().read() })
    }

    /// Returns the bytes of the value, which has no trees.
    #[inline]
    pub(crate) fn value<'p>(self) -> &'p [u8] {
        debug_assert!(self.header().flags() & HAS_TREE == 0);
        // SAFETY: contract 1; the value never changes. The lifetime is the caller's pin.
        unsafe {
            let len = self.header().len as usize;
            std::slice::from_raw_parts(self.value_place().as_ptr(), len)
        }
    }

    /// Returns the value if it is a string.
    pub(crate) fn string<'p>(self) -> Option<&'p [u8]> {
        (self.kind() == Kind::String).then(|| self.value())
    }

    #[inline]
    fn value_place(&self) -> NonNull<u8> {
        let deadline = if self.header().flags() & HAS_DEADLINE != 0 {
            8
        } else {
            0
        };
        // SAFETY: the value lies within the allocation.
        unsafe { self.0.cast::<u8>().add(VERSION_HEADER + deadline) }
    }

    /// Returns the place of the reference to the origin, if there is one: behind the value, so that
    /// values lie where they would without it.
    #[inline]
    pub(crate) fn origin_pointer(&self) -> Option<NonNull<*const OwnedOrigin>> {
        let header = self.header();
        if header.flags() & HAS_ORIGIN == 0 {
            return None;
        }
        let deadline = usize::from(header.flags() & HAS_DEADLINE != 0) * 8;
        let offset = VERSION_HEADER + deadline + header.len as usize;
        // SAFETY: the flag says that the allocation has eight more bytes there.
        Some(unsafe { self.0.cast::<u8>().add(offset).cast() })
    }

    /// Returns the address of the origin, for prefetching.
    pub(crate) fn origin_address(self) -> Option<*const u8> {
        // SAFETY: as for `origin`, and nothing is read there.
        self.origin_pointer()
            .map(|at| unsafe { at.read_unaligned() }.cast())
    }

    /// Returns the origin, if a transaction over several partitions wrote the version.
    pub(crate) fn origin<'p>(self) -> Option<Origin<'p>> {
        let at = self.origin_pointer()?;
        // SAFETY: contract 6: the version keeps its origin alive. The lifetime is the caller's pin.
        Some(unsafe { (*at.read_unaligned()).get() })
    }

    /// Returns the id that the version carries: of the transaction that wrote it, or zero if it has no
    /// origin.
    #[inline]
    pub(crate) fn origin_id(self) -> TransactionId {
        self.origin()
            .map_or(TransactionId::ZERO, |origin| origin.id)
    }

    /// Returns `true` if the version exists while this generation is visible: as a key, or as a
    /// system record.
    #[inline]
    pub(crate) fn exists_in(self, generation: u16) -> bool {
        !self.is_absent() && [generation, SYSTEM_GENERATION].contains(&self.generation())
    }

    /// Returns `true` if the version counts as a key of this generation.
    #[inline]
    pub(crate) fn is_key_of(self, generation: u16) -> bool {
        !self.is_absent() && self.generation() == generation
    }

    #[inline]
    pub(crate) fn previous(self) -> Option<VersionRef> {
        NonNull::new(self.header().previous.load(Ordering::Acquire)).map(VersionRef)
    }

    /// Links or cuts the older versions. Only under the record's lock, or before publication.
    #[inline]
    pub(crate) fn set_previous(self, previous: Option<VersionRef>) {
        let at = previous.map_or(std::ptr::null_mut(), |v| v.0.as_ptr());
        self.header().previous.store(at, Ordering::Release);
    }

    /// Returns the bytes of memory, as allocators round them, without those of its origin.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        if self.is_never() {
            return 0;
        }
        let header = self.header();
        let layout = Self::layout(header.len as usize, header.flags());
        layout.size().next_multiple_of(ROUNDING)
    }

    /// Returns about the bytes of memory that the version alone takes as long as it is current: with those of its
    /// trees, whose nodes an older version may share.
    #[inline]
    pub(crate) fn all_bytes(self) -> usize {
        self.bytes() + self.tree().map_or(0, VersionTree::all_bytes)
    }

    /// Frees the version, and not those that it links to.
    ///
    /// # Safety
    /// No worker can load it any more (contract 1), or it was never published.
    pub(crate) unsafe fn free(self) {
        if self.is_never() {
            return;
        }
        if self.tree().is_some() {
            // SAFETY: contract 5: it is dropped once.
            unsafe { self.value_place().cast::<VersionTree>().drop_in_place() };
        }
        if let Some(at) = self.origin_pointer() {
            // SAFETY: contract 6: this is the version's own reference, given back once.
            drop(unsafe { Arc::from_raw(at.read_unaligned()) });
        }
        let header = self.header();
        let layout = Self::layout(header.len as usize, header.flags());
        // SAFETY: by the caller; it was allocated with this layout.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) }
    }
}

impl RecordRef {
    /// Frees a record that never was in the index: the one who made it calls this, once.
    pub(crate) fn free_unpublished(self) {
        // SAFETY: no other thread has ever known it.
        unsafe { self.free() }
    }
}

impl VersionRef {
    /// Frees a version that was never published (contract 2: its one owner calls this, once).
    pub(crate) fn free_unpublished(self) {
        // SAFETY: no other thread has ever known it.
        unsafe { self.free() }
    }
}

#[cfg(test)]
mod tests {
    use base::{Timestamp, TransactionId};

    use super::*;
    use crate::origin::Origins;

    #[test]
    fn a_version_keeps_what_it_was_given() {
        let content = VersionContent {
            parts: &[b"ab", b"", b"cde"],
            kind: Kind::String,
            deadline: Some(17),
        };
        let origins = Origins::default();
        let origin = origins.share(Origin {
            id: TransactionId {
                timestamp: Timestamp(77),
                unique: 5,
            },
            siblings: b"siblings",
        });
        let v = VersionRef::new(3, Some(content), Some(&origin));
        v.set_tid(Tid::new(Epoch(9), 1));
        assert_eq!(v.value(), b"abcde");
        assert_eq!(
            (v.deadline(), v.generation(), v.is_absent()),
            (Some(17), 3, false)
        );
        assert_eq!(v.epoch(), Epoch(9));
        assert_eq!(v.origin(), Some(origin.get()));
        drop(origin);
        assert!(origins.bytes() > 0);
        v.free_unpublished();
        assert_eq!(origins.bytes(), 0, "the version had the last reference");
    }

    #[test]
    fn a_stamp_leaves_the_key_alone() {
        for key_len in [0, 1, 4, 254, 255, 256, 70_000] {
            let key = vec![b'k'; key_len];
            let record = RecordRef::new(&key);
            assert_eq!((record.key(), record.stamp()), (&key[..], AccessStamp(0)));
            for stamp in [(1 << 24) - 1, 5] {
                record.set_stamp(AccessStamp(stamp));
                let expected = (&key[..], AccessStamp(stamp));
                assert_eq!((record.key(), record.stamp()), expected);
            }
            // SAFETY: no other thread knows it.
            unsafe { record.free() }
        }
    }

    #[test]
    fn a_record_is_freed_with_its_versions() {
        let record = RecordRef::new(b"key");
        assert_eq!(record.key(), b"key");
        let seen = record.word().lock().unwrap();
        let v = VersionRef::new(0, None, None);
        v.set_previous(Some(RecordRef::version(seen)));
        record.word().publish(seen, v.address(), 0);
        // SAFETY: no other thread knows it.
        unsafe { record.free() }
    }
}
