//! A region as its owner has it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::{WORD, Words};
use rustix::fs::FallocateFlags;

use super::mapping::Mapping;
use super::region_file::{
    ACCESS, HEADER, KEY, MAGIC, MARGIN, Shm, WITHDRAWN, WORDS, halves, new_name,
};
use crate::memory::{Access, Grant, Region, RegionKind, WORDS_MAX};

/// The number of names that are tried: a file can be swept away before it is locked, but not for
/// ever.
const TRIES: usize = 16;

/// See the module's description.
#[derive(Debug)]
pub struct ShmRegion {
    mapping: Mapping,
    grant: Grant,
    /// The file, locked, as long as it has its name.
    named: Option<Named>,
}

#[derive(Debug)]
struct Named {
    path: PathBuf,
    _lock: File,
}

/// Removes the name. The lock is released afterwards, so that no process takes the owner for dead.
impl Drop for Named {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "removing shared memory");
        }
    }
}

impl ShmRegion {
    pub(super) fn new(shm: &Shm, words: usize, access: Access) -> io::Result<ShmRegion> {
        if !(1..=WORDS_MAX).contains(&words) {
            let text = format!("a region of {words} words cannot be");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (name, named) = make(shm, access)?;
        let bytes = ((HEADER + words) * WORD) as u64;
        rustix::fs::fallocate(&named._lock, FallocateFlags::empty(), 0, bytes)
            .map_err(|error| no_room(shm, bytes, error.into()))?;
        let mapping = Mapping::new(&named._lock, HEADER + words, true)?;
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let header = mapping.words();
        let (low, high) = halves(key);
        let access_number = match access {
            Access::Read => 1,
            Access::Write => 2,
        };
        for (at, value) in [
            (WORDS, words as u64),
            (ACCESS, access_number),
            (KEY, low),
            (KEY + 1, high),
            (0, MAGIC),
        ] {
            header[at].store(value, Ordering::Release);
        }
        let grant = Grant::new(RegionKind::Shm, access, words, key, name.as_bytes());
        Ok(ShmRegion {
            mapping,
            grant,
            named: Some(named),
        })
    }

    /// Returns the region's words, with `margin` words in front of them, at most [`MARGIN`].
    pub(crate) fn words_behind(&self, margin: usize) -> &[AtomicU64] {
        assert!(margin <= MARGIN, "{margin} words in front of a region");
        &self.mapping.words()[HEADER - margin..]
    }

    /// Removes the name: no process reaches the region any more, except for those that have reached
    /// it already and that learn in another way if the owner lives
    /// ([`ShmRemote::trust_owner`](super::ShmRemote::trust_owner)). The memory is freed with the
    /// last of them, however they end. The region needs no descriptor from then on.
    pub fn close_to_others(&mut self) {
        self.named = None;
    }
}

impl Words for ShmRegion {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.mapping.words()[HEADER..]
    }
}

impl Region for ShmRegion {
    fn grant(&self) -> &Grant {
        &self.grant
    }
}

impl Drop for ShmRegion {
    fn drop(&mut self) {
        self.mapping.words()[WITHDRAWN].store(1, Ordering::Release);
    }
}

/// Makes an empty file, and locks it.
fn make(shm: &Shm, access: Access) -> io::Result<(String, Named)> {
    let mode = match access {
        Access::Read => 0o400,
        Access::Write => 0o600,
    };
    for _ in 0..TRIES {
        let name = new_name()?;
        let path = shm.path(&name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)?;
        // A process that sweeps may have taken it for a dead owner's file; it is gone then.
        file.lock()?;
        if file.metadata()?.nlink() > 0 {
            return Ok((name, Named { path, _lock: file }));
        }
    }
    Err(io::Error::other(
        "shared memory is swept away as fast as it is made",
    ))
}

fn no_room(shm: &Shm, bytes: u64, error: io::Error) -> io::Error {
    let dir = shm.dir.display();
    let text = format!(
        "{dir} has no room for {bytes} bytes: {error}; enlarge it, with --shm-size for a container"
    );
    io::Error::new(error.kind(), text)
}
