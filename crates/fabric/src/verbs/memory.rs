//! Regions that peers reach through the device, without this side's processor.
//!
//! A region in memory, in words:
//!
//! | word | content |
//! |---|---|
//! | 0, 1 | the grant's key |
//! | 2…7 | zero |
//! | 8… | the region's words |
//!
//! The address in its grant, in bytes; numbers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | where word 0 is |
//! | 8 | 4 | the device's key for this memory |
//!
//! The device checks its own key, the bounds and the allowed operations with every packet. But it
//! uses keys again. So a peer that reaches a region first reads the grant's key from it.
//!
//! **A refusal ends the connection**: the device breaks the queue pair on which a peer has
//! requested an operation that is not allowed. Regions that come and go are better read through a
//! connection of their own.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::memory::{RemoteError, RemoteMemory, Words};

use super::active_pair::ActivePair;
use super::device::{Device, Inner};
use super::ffi::access;
use super::resources::{self, PeerMemory, Registered};
use crate::memory::{self, Access, Grant, Region as _, RegionKind, WORDS_MAX, check_bounds};
use crate::shm::ShmRegion;

/// The number of words in front of a region's own.
const HEAD: usize = 8;
/// The number of bytes of the address in a grant.
pub(super) const ADDRESS: usize = 12;
/// The number of words at the start of a landing memory for reads that are not the user's.
const ASIDE: usize = 8;

/// A protection domain: memory that is registered in it can be reached only through its
/// connections. There is one for each database.
#[derive(Clone)]
pub struct Domain {
    pub(super) device: Arc<Inner>,
    pub(super) raw: Arc<resources::Domain>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.context.name();
        f.debug_struct("Domain")
            .field("device", &device)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a protection domain: memory that is registered in it can be reached only through
    /// connections of the domain.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn domain(&self) -> io::Result<Domain> {
        Domain::new(&self.0)
    }
}

impl Domain {
    pub(super) fn new(device: &Arc<Inner>) -> io::Result<Domain> {
        let raw = resources::Domain::new(Arc::clone(&device.context))?;
        Ok(Domain {
            device: Arc::clone(device),
            raw: Arc::new(raw),
        })
    }

    /// Makes another domain of the same device. Memory that is registered there cannot be reached
    /// through connections of this one, nor the other way round.
    ///
    /// # Errors
    /// Returns an error if the device has no more.
    pub fn apart(&self) -> io::Result<Domain> {
        Domain::new(&self.device)
    }

    /// Registers a region of zeros.
    ///
    /// # Errors
    /// Returns an error if the system does not lock so much memory, or if the device takes no more.
    pub fn register(&self, words: usize, access: Access) -> io::Result<VerbsRegion> {
        if !(1..=WORDS_MAX).contains(&words) {
            let text = format!("a region of {words} words; take 1 to {WORDS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let registered = Registered::new(&self.raw, HEAD + words, allowed(access))?;
        VerbsRegion::new(registered, words, access)
    }

    /// Registers a region that processes of this machine share: the same words can be reached in
    /// both ways, as the region's grant allows. The region lives as long as the value that is
    /// returned.
    ///
    /// # Errors
    /// Returns the errors of [`Domain::register`].
    pub fn register_shared(&self, shared: &Arc<ShmRegion>) -> io::Result<VerbsRegion> {
        let (words, access) = (shared.grant().words(), shared.grant().access());
        let registered = Registered::over(&self.raw, shared, HEAD, allowed(access))?;
        VerbsRegion::new(registered, words, access)
    }
}

fn allowed(access: Access) -> c_int {
    match access {
        Access::Read => access::REMOTE_READ,
        Access::Write => access::REMOTE_READ | access::REMOTE_WRITE | access::LOCAL_WRITE,
    }
}

/// A region of this side.
pub struct VerbsRegion {
    registered: Registered,
    grant: Grant,
}

impl fmt::Debug for VerbsRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}

impl VerbsRegion {
    fn new(registered: Registered, words: usize, access: Access) -> io::Result<VerbsRegion> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        registered.store(0, &key);
        let mut address = [0; ADDRESS];
        address[..8].copy_from_slice(&registered.address().to_le_bytes());
        address[8..].copy_from_slice(&registered.remote_key().to_le_bytes());
        Ok(VerbsRegion {
            grant: Grant::new(RegionKind::Verbs, access, words, key, &address),
            registered,
        })
    }
}

impl Words for VerbsRegion {
    fn words(&self) -> &[AtomicU64] {
        &self.registered.words()[HEAD..]
    }
}

impl memory::Region for VerbsRegion {
    fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// A region of a peer. Reads and writes of all regions of a connection take place in the order in
/// which they were begun.
pub struct VerbsRemote {
    line: Arc<Mutex<ActivePair>>,
    there: PeerMemory,
    words: usize,
    access: Access,
    /// The memory into which the device puts the words that it reads.
    landing: Arc<Registered>,
    /// The next free word of that memory.
    next: usize,
    /// Reads in progress: number, place and count of words.
    pending: Vec<(u64, usize, usize)>,
    /// Words that have been read and not been fetched yet.
    gathered: Vec<u64>,
    /// Something was written, and no proof was requested since.
    written: bool,
    /// A read behind all writes: when it is complete, the writes have taken place.
    proof: Option<u64>,
}

impl fmt::Debug for VerbsRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("words", &self.words)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl VerbsRemote {
    /// Reaches a region through a connected queue pair, without a look at its key, for which it
    /// would have to wait. `landing` words can be in transit to here at a time.
    pub(super) fn untried(
        domain: &Domain,
        line: &Arc<Mutex<ActivePair>>,
        grant: &Grant,
        landing: usize,
    ) -> Result<VerbsRemote, RemoteError> {
        let refused = |text: &str| RemoteError::Refused(text.to_owned());
        let address: &[u8; ADDRESS] = match (grant.kind(), grant.address().try_into()) {
            (RegionKind::Verbs, Ok(address)) => address,
            _ => return Err(refused("the grant is not one of an RDMA device")),
        };
        let (start, key) = address.split_at(8);
        let there = PeerMemory {
            address: u64::from_le_bytes(start.try_into().expect("8 bytes")),
            key: u32::from_le_bytes(key.try_into().expect("4 bytes")),
        };
        let landing = Registered::new(&domain.raw, ASIDE + landing, access::LOCAL_WRITE);
        let landing = landing.map_err(|error| RemoteError::Lost(error.to_string()))?;
        Ok(VerbsRemote {
            line: Arc::clone(line),
            there,
            words: grant.words(),
            access: grant.access(),
            landing: Arc::new(landing),
            next: ASIDE,
            pending: Vec::new(),
            gathered: Vec::new(),
            written: false,
            proof: None,
        })
    }
}

impl VerbsRemote {
    fn line(&self) -> MutexGuard<'_, ActivePair> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the key of the region.
    pub(super) fn key(&mut self) -> Result<[u8; 16], RemoteError> {
        let mut line = self.line();
        let id = line.read(&self.landing, 0, 2, self.there)?;
        line.wait_for(id, id)?;
        drop(line);
        let mut key = Vec::new();
        self.landing.load(0, 16, &mut key);
        Ok(key.try_into().expect("16 bytes"))
    }

    /// Waits for all reads in progress and takes their words.
    fn gather(&mut self) -> Result<(), RemoteError> {
        let (Some((first, ..)), Some((last, ..))) = (self.pending.first(), self.pending.last())
        else {
            return Ok(());
        };
        self.line().wait_for(*first, *last)?;
        for (_, at, count) in self.pending.drain(..) {
            let words = self.landing.words()[at..at + count].iter();
            self.gathered
                .extend(words.map(|word| word.load(Ordering::Relaxed)));
        }
        self.next = ASIDE;
        Ok(())
    }

    /// Forgets the reads in progress: the line has ended.
    fn forget(&mut self) {
        self.pending.clear();
        self.gathered.clear();
        self.next = ASIDE;
    }
}

impl RemoteMemory for VerbsRemote {
    fn len(&self) -> usize {
        self.words
    }

    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError> {
        check_bounds(from, count, self.words)?;
        self.line().check()?;
        let (mut from, end) = (HEAD + from, HEAD + from + count);
        let room = self.landing.words().len();
        while from < end {
            if self.next == room {
                self.gather()?;
            }
            let count = (end - from).min(room - self.next);
            let there = self.there.behind(from);
            let id = self.line().read(&self.landing, self.next, count, there)?;
            self.pending.push((id, self.next, count));
            self.next += count;
            from += count;
        }
        Ok(())
    }

    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        match self.gather() {
            Ok(()) => {
                into.append(&mut self.gathered);
                Ok(())
            }
            Err(error) => {
                self.forget();
                Err(error)
            }
        }
    }
}

impl memory::Remote for VerbsRemote {
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError> {
        check_bounds(from, words.len(), self.words)?;
        if self.access != Access::Write {
            return Err(RemoteError::Refused(
                "the grant allows reading alone".to_owned(),
            ));
        }
        self.written |= !words.is_empty();
        self.line().write(words, self.there.behind(HEAD + from))
    }

    /// An acknowledgement of the device does not mean that a write has reached memory; the
    /// completion of a read behind it does.
    fn settle(&mut self) -> Result<bool, RemoteError> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.poll();
        if self.written && line.has_room(0) {
            self.proof = Some(line.read(&self.landing, 2, 1, self.there)?);
            self.written = false;
            line.poll();
        }
        if self.proof.is_some_and(|proof| line.is_done(proof)) {
            self.proof = None;
        }
        match self.written || self.proof.is_some() {
            true => line.check().map(|()| false),
            false => Ok(true),
        }
    }
}
