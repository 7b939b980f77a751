//! A region as a peer has it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory};
use rustix::process::geteuid;

use super::mapping::{Mapping, load};
use super::region_file::{
    ACCESS, HEADER, KEY, MAGIC, Shm, WITHDRAWN, WORDS, halves, is_name, open, remove_if_dead,
};
use crate::memory::{Access, Grant, RegionKind, Remote, check_bounds};

/// The interval at which a reader checks if the owner lives: the check costs a system call.
const LOOK: Duration = Duration::from_millis(10);

/// See the module's description. Written words are visible at once.
#[derive(Debug)]
pub struct ShmRemote {
    /// `None` if the region was withdrawn or its owner has died.
    mapping: Option<Mapping>,
    words: usize,
    access: Access,
    /// Reads that were begun: the place, and the number of words.
    begun: Vec<(usize, usize)>,
    life: Option<Life>,
}

/// The means to check if the owner lives.
#[derive(Debug)]
struct Life {
    path: PathBuf,
    file: File,
    looked: Instant,
}

impl Life {
    fn is_over(&self) -> bool {
        // The owner holds the lock as long as it lives.
        let over = self.file.try_lock_shared().is_ok();
        if over {
            // Another process that checks at the same moment holds the lock, too; let one of the
            // two remove the file.
            drop(self.file.unlock());
            remove_if_dead(&self.path);
        }
        over
    }
}

impl ShmRemote {
    pub(super) fn new(shm: &Shm, grant: &Grant) -> Result<ShmRemote, RemoteError> {
        let refused = |why: &str| Err(RemoteError::Refused(why.to_owned()));
        let name = std::str::from_utf8(grant.address()).unwrap_or_default();
        if grant.kind() != RegionKind::Shm || !is_name(name) {
            return refused("the grant is not one for shared memory");
        }
        let (path, write) = (shm.path(name), grant.access() == Access::Write);
        let lost = |error| RemoteError::Lost(format!("{}: {error}", path.display()));
        let file = open(&path, write).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => RemoteError::Refused(error.to_string()),
            _ => lost(error),
        })?;
        let metadata = file.metadata().map_err(lost)?;
        if !is_private((metadata.uid(), metadata.mode()), geteuid().as_raw()) {
            // The owner of the file could shorten it, which would end this process when it touches
            // the rest.
            return refused("another user of this machine can change the file");
        }
        let mapping = Mapping::new(&file, HEADER + grant.words(), write).map_err(lost)?;
        let header = mapping.words();
        if load(&header[0]) != MAGIC {
            return refused("another version of Kumiki has made it");
        }
        fence(Ordering::Acquire);
        if (load(&header[KEY]), load(&header[KEY + 1])) != halves(grant.key()) {
            return refused("its key is another one");
        }
        let allowed = load(&header[ACCESS]);
        if load(&header[WORDS]) != grant.words() as u64 || (write && allowed != 2) {
            return refused("the grant says more than its owner did");
        }
        let looked = Instant::now();
        let remote = ShmRemote {
            mapping: Some(mapping),
            words: grant.words(),
            access: grant.access(),
            begun: Vec::new(),
            life: Some(Life { path, file, looked }),
        };
        if remote.life.as_ref().is_some_and(Life::is_over) {
            return Err(dead());
        }
        Ok(remote)
    }

    /// Stops checking if the owner lives: for a peer that learns it in another way, and has many
    /// regions.
    pub fn trust_owner(&mut self) {
        self.life = None;
    }

    /// Returns the operations that are allowed.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Returns the mapping alone.
    pub(super) fn into_mapping(mut self) -> Result<Mapping, RemoteError> {
        self.reach()?;
        self.mapping.ok_or_else(dead)
    }

    /// Returns the region's words, unless the owner is known to be gone.
    #[inline]
    fn reach(&mut self) -> Result<&[AtomicU64], RemoteError> {
        let withdrawn = |mapping: &Mapping| load(&mapping.words()[WITHDRAWN]) != 0;
        if self.mapping.as_ref().is_some_and(withdrawn) {
            self.mapping = None;
        }
        match &self.mapping {
            Some(mapping) => Ok(&mapping.words()[HEADER..]),
            None => Err(RemoteError::Lost("its owner has withdrawn it".into())),
        }
    }

    /// Checks if the owner lives, unless that was checked recently.
    fn look(&mut self) -> Result<(), RemoteError> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        let now = Instant::now();
        if now.duration_since(life.looked) < LOOK {
            return Ok(());
        }
        life.looked = now;
        if life.is_over() {
            self.mapping = None;
            return Err(dead());
        }
        Ok(())
    }

    fn read_begun(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        self.look()?;
        let begun = std::mem::take(&mut self.begun);
        let words = self.reach()?;
        for &(from, count) in &begun {
            into.extend(words[from..from + count].iter().map(load));
            // The words that are read next are not older than this.
            fence(Ordering::Acquire);
        }
        // The region may have been withdrawn meanwhile.
        self.reach()?;
        self.begun = begun;
        Ok(())
    }
}

/// Returns `true` if only the user `me` can change a file with this owner and mode.
fn is_private((owner, mode): (u32, u32), me: u32) -> bool {
    owner == me && mode & 0o022 == 0
}

fn dead() -> RemoteError {
    RemoteError::Lost("its owner is dead".into())
}

impl RemoteMemory for ShmRemote {
    fn len(&self) -> usize {
        self.words
    }

    #[inline]
    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError> {
        check_bounds(from, count, self.words)?;
        self.begun.push((from, count));
        Ok(())
    }

    #[inline]
    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        let len = into.len();
        let read = self.read_begun(into);
        self.begun.clear();
        if read.is_err() {
            into.truncate(len);
        }
        read
    }
}

impl Remote for ShmRemote {
    #[inline]
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError> {
        if self.access != Access::Write {
            return Err(RemoteError::Refused("it is for reading".into()));
        }
        check_bounds(from, words.len(), self.words)?;
        let region = self.reach()?;
        for (to, word) in region[from..].iter().zip(words) {
            to.store(*word, Ordering::Release);
        }
        Ok(())
    }

    #[inline]
    fn settle(&mut self) -> Result<bool, RemoteError> {
        fence(Ordering::SeqCst);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_if_its_owner_alone_can_change_it() {
        assert!(is_private((7, 0o100_600), 7));
        assert!(is_private((7, 0o100_400), 7));
        assert!(!is_private((8, 0o100_600), 7));
        assert!(!is_private((8, 0o100_666), 0));
        assert!(!is_private((7, 0o100_620), 7));
        assert!(!is_private((7, 0o100_602), 7));
    }
}
