//! Memory of peers, read and written without their processors.
//!
//! The owner *registers* a region and gets a [`Grant`] for it, which it sends to a peer in a
//! message. The peer *reaches* the region with the grant and reads it, or writes it if the grant
//! allows that. Dropping the region *withdraws* the grant.
//!
//! | participant | has | made by |
//! |---|---|---|
//! | the owner | a [`Region`] | [`Memory::register`] |
//! | the peer | a [`Remote`] | [`Memory::reach`] |
//!
//! A grant, in bytes; numbers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind of memory: 1 shared by processes of one machine, 2 of an RDMA device, 3 and 4 the same for Receives ([`send_receive`](crate::send_receive)) |
//! | 1 | 1 | what is allowed: 1 reading, 2 reading and writing |
//! | 2 | 1 | bytes of the address, at most 96 |
//! | 3 | 5 | zero |
//! | 8 | 8 | words of the region |
//! | 16 | 16 | a random key |
//! | 32 | | the address, whose meaning depends on the kind |
//!
//! Invariants, which all kinds keep:
//!
//! 1. No memory outside of the region is read or written, even if a peer requests it.
//! 2. A peer that does not know the key reaches nothing. A peer that may only read writes nothing.
//! 3. After a region was dropped, or its owner has died, a peer's reads are refused or
//!    [`Lost`](RemoteError::Lost). Later contents of the memory are never taken for the region.
//! 4. When the owner and the peers are gone, the memory is freed.
//! 5. Written words become visible in the order of their places, and of the writes.

use std::fmt;
use std::io;

pub use base::memory::{RemoteError, RemoteMemory, Words};

/// The greatest length of a grant in bytes.
pub const GRANT_MAX: usize = ADDRESS + ADDRESS_MAX;
/// The greatest length of an address in bytes.
pub const ADDRESS_MAX: usize = 96;
/// The greatest number of words of a region.
pub const WORDS_MAX: usize = 1 << 40;

const KEY: usize = 16;
const ADDRESS: usize = 32;

/// The operations that peers may do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Peers may read it.
    Read,
    /// Peers may read and write it.
    Write,
}

/// The kind of memory of a region, which determines how it is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// Memory that processes of one machine share.
    Shm,
    /// Memory that an RDMA device reaches.
    Verbs,
    /// Memory that processes share, in which Send and Receive are emulated.
    ShmReceives,
    /// Memory that an RDMA device fills by Receives.
    VerbsReceives,
}

impl RegionKind {
    /// All kinds, with their numbers in a grant.
    const NUMBERED: [(RegionKind, u8); 4] = [
        (RegionKind::Shm, 1),
        (RegionKind::Verbs, 2),
        (RegionKind::ShmReceives, 3),
        (RegionKind::VerbsReceives, 4),
    ];

    fn number(self) -> u8 {
        let number = RegionKind::NUMBERED.iter().find(|(kind, _)| *kind == self);
        number.expect("all kinds have a number").1
    }

    /// Returns the kind with this number in a grant; `None` if this version knows none.
    #[must_use]
    pub fn from_number(number: u8) -> Option<RegionKind> {
        let kind = RegionKind::NUMBERED
            .iter()
            .find(|(_, known)| *known == number);
        kind.map(|(kind, _)| *kind)
    }
}

/// The data that a peer needs in order to reach a region. Every holder of a grant can reach the
/// region: the grant is as secret as the contents of the region.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    kind: RegionKind,
    access: Access,
    words: usize,
    key: [u8; KEY],
    address: Vec<u8>,
}

impl Grant {
    /// Makes a grant for a number of words; each kind defines the meaning of the address.
    ///
    /// # Panics
    /// Panics if the address or the region is too long.
    #[must_use]
    pub fn new(
        kind: RegionKind,
        access: Access,
        words: usize,
        key: [u8; KEY],
        address: &[u8],
    ) -> Grant {
        assert!(
            (1..=WORDS_MAX).contains(&words),
            "a region of {words} words"
        );
        assert!(address.len() <= ADDRESS_MAX, "an address too long");
        Grant {
            kind,
            access,
            words,
            key,
            address: address.to_vec(),
        }
    }

    /// Returns the same grant as one of another kind.
    pub(crate) fn with_kind(&self, kind: RegionKind) -> Grant {
        Grant {
            kind,
            ..self.clone()
        }
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> RegionKind {
        self.kind
    }

    /// Returns the operations that are allowed.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the number of words of the region.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// Returns the key, which only holders of the grant know.
    #[must_use]
    pub fn key(&self) -> [u8; KEY] {
        self.key
    }

    /// Returns the address, in the kind's own terms.
    #[must_use]
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Appends the grant: at most [`GRANT_MAX`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = self.kind.number();
        let access = match self.access {
            Access::Read => 1,
            Access::Write => 2,
        };
        out.extend([kind, access, self.address.len() as u8, 0, 0, 0, 0, 0]);
        out.extend((self.words as u64).to_le_bytes());
        out.extend(self.key);
        out.extend(&self.address);
    }

    /// Reads a grant. Returns `None` if these bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        let (&[kind, access, len, 0, 0, 0, 0, 0], rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let (&words, rest) = rest.split_first_chunk()?;
        let (&key, address) = rest.split_first_chunk()?;
        let kind = RegionKind::from_number(kind)?;
        let access = match access {
            1 => Access::Read,
            2 => Access::Write,
            _ => return None,
        };
        let words = usize::try_from(u64::from_le_bytes(words)).ok()?;
        let fits = address.len() == usize::from(len) && address.len() <= ADDRESS_MAX;
        (fits && (1..=WORDS_MAX).contains(&words)).then(|| Grant {
            kind,
            access,
            words,
            key,
            address: address.to_vec(),
        })
    }
}

/// Does not show the key: it would get into logs.
impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("kind", &self.kind)
            .field("access", &self.access)
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

/// A registered region, as its owner has it. Dropping it withdraws the grant.
pub trait Region: Words {
    /// Returns the grant that peers need in order to reach the region.
    fn grant(&self) -> &Grant;
}

/// A region of a peer. It belongs to one thread.
pub trait Remote: RemoteMemory {
    /// Writes words from word `from` on; [`Remote::settle`] tells when they have arrived.
    ///
    /// # Errors
    /// See [`RemoteError`]. Some of the words may have been written, from the first one on.
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError>;

    /// Returns `true` if the owner can see all that was written, and could before anything that
    /// this thread reads from now on, including its own memory. If it returns `false`, call it
    /// again.
    ///
    /// # Errors
    /// See [`RemoteError`]: some of the words may never arrive.
    fn settle(&mut self) -> Result<bool, RemoteError>;
}

/// A kind of memory that peers reach.
pub trait Memory {
    /// The owner's view of a region.
    type Region: Region;
    /// A peer's view of a region.
    type Remote: Remote;

    /// Registers a region of zeros.
    ///
    /// # Errors
    /// Returns an error if there is no memory for it, or another error of the operating system.
    fn register(&self, words: usize, access: Access) -> io::Result<Self::Region>;

    /// Reaches the region of a grant.
    ///
    /// # Errors
    /// Returns an error if the grant is not valid here, or if the region is out of reach.
    fn reach(&self, grant: &Grant) -> Result<Self::Remote, RemoteError>;
}

/// Checks that words lie within a region of `len` words.
pub(crate) fn check_bounds(from: usize, count: usize, len: usize) -> Result<(), RemoteError> {
    let to = from.saturating_add(count);
    if to > len {
        return Err(RemoteError::Bounds { from, to, len });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_as_they_were_written() {
        for (kind, access, address) in [
            (RegionKind::Shm, Access::Read, &b""[..]),
            (RegionKind::Verbs, Access::Write, &[7; ADDRESS_MAX]),
            (RegionKind::ShmReceives, Access::Write, b"name"),
            (RegionKind::VerbsReceives, Access::Write, &[7; 40]),
        ] {
            let grant = Grant::new(kind, access, 3, [9; KEY], address);
            let mut bytes = Vec::new();
            grant.encode(&mut bytes);
            assert!(bytes.len() <= GRANT_MAX);
            for cut in 0..bytes.len() {
                assert_eq!(Grant::decode(&bytes[..cut]), None);
            }
            assert_eq!(Grant::decode(&bytes), Some(grant));
            bytes.push(0);
            assert_eq!(Grant::decode(&bytes), None);
        }
    }

    #[test]
    fn bytes_without_meaning_are_no_grant() {
        let grant = Grant::new(RegionKind::Shm, Access::Read, 3, [9; KEY], b"name");
        let mut bytes = Vec::new();
        grant.encode(&mut bytes);
        for (at, byte) in [
            (0, 0),
            (0, 5),
            (1, 0),
            (1, 3),
            (2, 5),
            (5, 1),
            (8, 0),
            (14, 9),
        ] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(Grant::decode(&other), None, "{byte} at {at}");
        }
    }

    #[test]
    fn a_grant_s_key_is_not_shown() {
        let grant = Grant::new(RegionKind::Shm, Access::Read, 3, [171; KEY], b"name");
        let shown = format!("{grant:?}");
        assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
    }

    #[test]
    fn bounds_do_not_wrap() {
        assert_eq!(check_bounds(3, 1, 4), Ok(()));
        assert!(check_bounds(3, 2, 4).is_err());
        assert!(check_bounds(usize::MAX, 2, 4).is_err());
    }
}
