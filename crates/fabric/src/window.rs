//! Memory that one side of a link lends to the other, which writes requested data into it.
//!
//! | step | owner | writer |
//! |---|---|---|
//! | 1 | makes a window ([`Window::shm`], [`Window::verbs`]), and sends its grant | |
//! | 2 | | reaches it ([`RemoteWindow::reach`]), and sends the answer that this gives |
//! | 3 | takes the answer ([`Window::meet`]); requests data, and names its place | |
//! | 4 | | writes the data there, and sends a message when the write is [settled](RemoteWindow::settle) |
//!
//! In memory that processes share, the kernel itself can read a file to the place that the owner
//! wants: a [`MappedPart`] is the address. Through a device, the data is written from memory of the
//! writer.
//!
//! Trust: a writer may write to any part of a window at any time, and an owner that reads it
//! meanwhile may read anything. So a window is lent only to peers that have proved that they know
//! the secret. A window whose link has gone down is not used any more, because the last writes may
//! still be in transit.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::memory::{RemoteError, WORD, Words};

use crate::memory::{Access, Grant, Memory, Region as _, RegionKind, Remote as _};
use crate::shm::{Mapped, Shm, ShmRegion};
use crate::verbs::{self, Domain};

/// A window, as its owner has it.
#[derive(Debug)]
pub struct Window(WindowMemory);

#[derive(Debug)]
enum WindowMemory {
    Shm(ShmRegion),
    Verbs(Box<verbs::VerbsWindow>),
}

impl Window {
    /// Makes a window of `bytes` bytes, a multiple of eight, in memory that processes share. It
    /// begins at a multiple of 4096.
    ///
    /// # Errors
    /// Returns an error if there is no room for it.
    pub fn shm(shm: &Shm, bytes: usize) -> io::Result<Window> {
        let region = shm.register(bytes / WORD, Access::Write)?;
        Ok(Window(WindowMemory::Shm(region)))
    }

    /// Makes a window that an RDMA device reaches.
    ///
    /// # Errors
    /// Returns an error if the device takes no more, or if the system does not lock so much memory.
    pub fn verbs(domain: &Domain, bytes: usize) -> io::Result<Window> {
        let window = domain.window(bytes / WORD)?;
        Ok(Window(WindowMemory::Verbs(Box::new(window))))
    }

    /// Returns the grant that the writer needs.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        match &self.0 {
            WindowMemory::Shm(region) => region.grant(),
            WindowMemory::Verbs(window) => window.grant(),
        }
    }

    /// Takes the answer of the writer, which has reached the window. No other process reaches it
    /// from then on.
    ///
    /// # Errors
    /// Returns an error if the answer is not valid, or if the device does not connect to it.
    pub fn meet(&mut self, answer: &[u8]) -> Result<(), RemoteError> {
        match &mut self.0 {
            WindowMemory::Shm(region) => {
                region.close_to_others();
                Ok(())
            }
            WindowMemory::Verbs(window) => window.meet(answer),
        }
    }

    /// Returns its words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            WindowMemory::Shm(region) => region.words(),
            WindowMemory::Verbs(window) => window.region().words(),
        }
    }

    /// Returns its bytes, which are valid as long as the window exists.
    #[must_use]
    pub fn memory(&self) -> NonNull<[u8]> {
        let words = self.words();
        NonNull::slice_from_raw_parts(NonNull::from(words).cast(), words.len() * WORD)
    }
}

/// A window, as the writer has it.
pub enum RemoteWindow {
    /// The window is in memory that is mapped here.
    Shm(Arc<Mapped>),
    /// The window is behind a device.
    Verbs(Box<verbs::VerbsRemote>),
}

impl fmt::Debug for RemoteWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            RemoteWindow::Shm(_) => RegionKind::Shm,
            RemoteWindow::Verbs(_) => RegionKind::Verbs,
        };
        f.debug_tuple("RemoteWindow").field(&kind).finish()
    }
}

impl RemoteWindow {
    /// Reaches a window, and returns the answer for which its owner waits.
    ///
    /// # Errors
    /// Returns an error if the grant is not valid, does not allow writing, or names memory that
    /// cannot be reached from here.
    pub fn reach(
        grant: &Grant,
        shm: &Shm,
        verbs: Option<&Domain>,
    ) -> Result<(RemoteWindow, Vec<u8>), RemoteError> {
        if grant.access() != Access::Write {
            return Err(RemoteError::Refused("it is for reading".into()));
        }
        match (grant.kind(), verbs) {
            (RegionKind::Shm, _) => {
                let mapped = shm.reach(grant)?.into_mapped()?;
                Ok((RemoteWindow::Shm(Arc::new(mapped)), Vec::new()))
            }
            (RegionKind::Verbs, Some(domain)) => {
                let (remote, answer) = domain.write_to(grant)?;
                Ok((RemoteWindow::Verbs(Box::new(remote)), answer))
            }
            (RegionKind::Verbs, None) => Err(RemoteError::Refused(
                "no RDMA device is used here".to_owned(),
            )),
            (RegionKind::ShmReceives | RegionKind::VerbsReceives, _) => Err(RemoteError::Refused(
                "the grant is one for Receives, and not for a window".to_owned(),
            )),
        }
    }

    /// Returns the length of the window in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            RemoteWindow::Shm(mapped) => mapped.len(),
            RemoteWindow::Verbs(remote) => base::memory::RemoteMemory::len(&**remote) * WORD,
        }
    }

    /// Returns `true` if the window is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of a part of the window. Returns `None` if it is not mapped here, or if
    /// there is no such part.
    #[must_use]
    pub fn place(&self, from: usize, len: usize) -> Option<MappedPart> {
        let RemoteWindow::Shm(mapped) = self else {
            return None;
        };
        let memory = mapped.part(from, len)?;
        Some(MappedPart {
            memory,
            _mapped: Arc::clone(mapped),
        })
    }

    /// Writes bytes from the byte `from` on; both the length and the place are multiples of eight.
    /// This is not for a window that is mapped here: use its [`MappedPart`].
    ///
    /// # Errors
    /// See [`RemoteError`].
    ///
    /// # Panics
    /// Panics if the length or the place is not a multiple of eight.
    pub fn write(&mut self, from: usize, bytes: &[u8]) -> Result<(), RemoteError> {
        let (words, rest) = bytes.as_chunks();
        assert!(rest.is_empty() && from.is_multiple_of(WORD), "whole words");
        match self {
            RemoteWindow::Shm(_) => Err(RemoteError::Refused("it is mapped".to_owned())),
            RemoteWindow::Verbs(remote) => {
                let words: Vec<u64> = words.iter().map(|&word| u64::from_ne_bytes(word)).collect();
                remote.write(from / WORD, &words)
            }
        }
    }

    /// Returns `true` if the owner can see all that was written. If it returns `false`, call it
    /// again.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn settle(&mut self) -> Result<bool, RemoteError> {
        match self {
            RemoteWindow::Shm(_) => Ok(true),
            RemoteWindow::Verbs(remote) => remote.settle(),
        }
    }
}

/// A part of a window that is mapped here. It stays mapped as long as this value lives. The owner
/// reads it when it learns that the data is there.
#[derive(Debug)]
pub struct MappedPart {
    memory: NonNull<[u8]>,
    _mapped: Arc<Mapped>,
}

impl MappedPart {
    /// Returns the address of the part.
    #[must_use]
    pub fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }
}
