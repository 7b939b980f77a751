//! Records as the engine has them, and the key that a comparison-based map holds for one.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | word (here: the record's number) |
//! | 8 | 8 | key length |
//! | 16 | … | key |
//!
//! Records are never freed: they must outlive every map that points to them.

use std::alloc::{Layout, alloc};
use std::cmp::Ordering;

use crate::Rng;

#[repr(C)]
struct Header {
    word: u64,
    key_len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordRef(*const Header);

// SAFETY: records are immutable and never freed.
unsafe impl Send for RecordRef {}
// SAFETY: as above.
unsafe impl Sync for RecordRef {}

impl RecordRef {
    fn write(at: *mut u8, word: u64, key: &[u8]) -> RecordRef {
        let header = at.cast::<Header>();
        // SAFETY: the caller gives memory for the header and the key, aligned to 8.
        unsafe {
            header.write(Header {
                word,
                key_len: key.len(),
            });
            std::ptr::copy_nonoverlapping(key.as_ptr(), header.add(1).cast(), key.len());
        }
        RecordRef(header)
    }

    /// Returns the record at an address that [`RecordRef::address`] gave.
    ///
    /// # Safety
    /// The address is of a record.
    pub unsafe fn from_address(address: u64) -> RecordRef {
        RecordRef(address as *const Header)
    }

    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// Reads the word, as every transaction would.
    pub fn touch(self) -> u64 {
        // SAFETY: records are never freed.
        unsafe { (*self.0).word }
    }

    pub fn key(self) -> &'static [u8] {
        // SAFETY: the key follows the header; records are never freed.
        unsafe { std::slice::from_raw_parts(self.0.add(1).cast(), (*self.0).key_len) }
    }
}

/// Returns the record at an address that a map has kept.
pub fn at(address: usize) -> RecordRef {
    // SAFETY: maps are given addresses of records only, which are never freed.
    unsafe { RecordRef::from_address(address as u64) }
}

/// The source of memory.
#[derive(Clone, Copy)]
pub enum Home {
    /// The allocator.
    Heap,
    /// A mapping for which huge pages were requested.
    Huge,
}

impl Home {
    pub fn name(self) -> &'static str {
        match self {
            Home::Heap => "ordinary pages",
            Home::Huge => "huge pages",
        }
    }
}

/// Returns zeroed memory in huge pages, if the system has them. Never unmapped.
pub fn map_huge(bytes: usize) -> *mut u8 {
    let huge = 2 << 20;
    let (read_write, private) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new anonymous mapping; the result is checked, and the advice covers only it.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes + huge,
            read_write,
            private,
            -1,
            0,
        );
        assert!(at != libc::MAP_FAILED, "out of memory");
        libc::madvise(at, bytes + huge, libc::MADV_HUGEPAGE);
        at.cast::<u8>().add(at.cast::<u8>().align_offset(huge))
    }
}

/// All records of a run.
pub struct Records(Vec<RecordRef>);

impl Records {
    pub fn new(keys: &[Vec<u8>], home: Home) -> Records {
        let bytes = |key: &Vec<u8>| (size_of::<Header>() + key.len()).next_multiple_of(8);
        let mut at = match home {
            Home::Huge => map_huge(keys.iter().map(bytes).sum()),
            Home::Heap => std::ptr::null_mut(),
        };
        let place = |(number, key): (usize, &Vec<u8>)| {
            let memory = match home {
                Home::Huge => {
                    // SAFETY: the mapping has room for all keys.
                    at = unsafe { at.add(bytes(key)) };
                    at.wrapping_sub(bytes(key))
                }
                // SAFETY: the layout is not empty.
                Home::Heap => unsafe {
                    alloc(Layout::from_size_align(bytes(key), 8).expect("small"))
                },
            };
            assert!(!memory.is_null(), "out of memory");
            RecordRef::write(memory, number as u64, key)
        };
        Records(keys.iter().enumerate().map(place).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = RecordRef> {
        self.0.iter().copied()
    }

    pub fn get(&self, at: usize) -> RecordRef {
        self.0[at]
    }

    /// Returns keys to look up, in random order. They lie one after the other in memory of their
    /// own, as in a request: a look-up must not find the record fetched already.
    pub fn picks(&self, count: usize, rng: &mut Rng) -> Vec<Pick> {
        let pick = |_| {
            let record = self.0[rng.below(self.0.len())];
            let mut bytes = [0; 24];
            bytes[..record.key().len()].copy_from_slice(record.key());
            Pick {
                bytes,
                len: record.key().len() as u32,
                number: record.touch() as u32,
            }
        };
        (0..count).map(pick).collect()
    }
}

/// A key to look up.
pub struct Pick {
    bytes: [u8; 24],
    len: u32,
    /// The word of its record.
    number: u32,
}

impl Pick {
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Returns `true` if this is the record that was looked up.
    pub fn is(&self, record: RecordRef) -> bool {
        record.touch() == u64::from(self.number)
    }
}

/// Returns the first eight bytes of a key as a number that orders as they do.
pub fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// The entry of a comparison-based map for a key: the prefix decides most comparisons without
/// leaving the map's node. The low bit of `target` distinguishes a record from a key that is looked
/// up; `target` is then the address of a slice.
#[derive(Clone, Copy)]
pub struct KeyRef {
    prefix: u64,
    target: usize,
}

impl KeyRef {
    pub fn record(record: RecordRef) -> KeyRef {
        KeyRef {
            prefix: prefix(record.key()),
            target: record.address() as usize,
        }
    }

    /// Returns a reference to a key to look up. It must not outlive `key`.
    pub fn probe(key: &&[u8]) -> KeyRef {
        KeyRef {
            prefix: prefix(key),
            target: std::ptr::from_ref(key) as usize | 1,
        }
    }

    /// Returns the record of a key that a map holds.
    pub fn target(&self) -> RecordRef {
        at(self.target)
    }

    fn key(&self) -> &[u8] {
        if self.target & 1 == 0 {
            at(self.target).key()
        } else {
            // SAFETY: a probe does not outlive its key.
            unsafe { *((self.target & !1) as *const &[u8]) }
        }
    }
}

impl Ord for KeyRef {
    fn cmp(&self, other: &KeyRef) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| {
            if self.target == other.target {
                Ordering::Equal
            } else {
                self.key().cmp(other.key())
            }
        })
    }
}

impl PartialOrd for KeyRef {
    fn partial_cmp(&self, other: &KeyRef) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyRef {
    fn eq(&self, other: &KeyRef) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KeyRef {}
