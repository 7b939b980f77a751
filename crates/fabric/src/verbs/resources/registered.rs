//! Memory that a device reaches.
//!
//! Safety contract: that of [`super`], of which this keeps 2 and 4.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::WORD;

use super::super::ffi;
use super::{Domain, made};
use crate::shm::ShmRegion;

/// Registered memory begins at multiples of this, so that it shares no page with anything else.
const PAGE: usize = 4096;

/// Memory that the device reaches.
pub(in crate::verbs) struct Registered {
    raw: NonNull<ffi::Region>,
    memory: NonNull<u8>,
    words: usize,
    /// The owner of the memory; `Some` until the device has forgotten it.
    owner: Option<Owner>,
    domain: Arc<Domain>,
}

/// The owner of registered memory.
enum Owner {
    /// The value itself.
    Own(#[expect(dead_code, reason = "it is kept")] Zeros),
    /// A region that other processes have mapped.
    Shared(#[expect(dead_code, reason = "it is kept")] Arc<ShmRegion>),
}

// SAFETY: contract 5, and the memory is seen as atomics.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// Memory of zeros, in pages of its own.
struct Zeros {
    memory: NonNull<u8>,
    layout: Layout,
}

impl Zeros {
    fn new(words: usize) -> io::Result<Zeros> {
        let too_large = || {
            let text = format!("there is no memory for {words} words");
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        };
        let bytes = words.checked_mul(WORD).ok_or_else(too_large)?;
        let layout = Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| too_large())?;
        let layout = layout.pad_to_align();
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.ok_or_else(too_large)?;
        Ok(Zeros { memory, layout })
    }
}

impl Drop for Zeros {
    fn drop(&mut self) {
        // SAFETY: it was allocated so.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

impl Registered {
    /// Registers `words` words of zeros, at least one; `access` names the operations that the
    /// device does with them for others.
    pub(in crate::verbs) fn new(
        domain: &Arc<Domain>,
        words: usize,
        access: c_int,
    ) -> io::Result<Registered> {
        let zeros = Zeros::new(words.max(1))?;
        let memory = zeros.memory;
        Registered::make(domain, (memory, words), Owner::Own(zeros), access)
    }

    /// Registers memory that others have mapped: a region, and `margin` words in front of it.
    pub(in crate::verbs) fn over(
        domain: &Arc<Domain>,
        region: &Arc<ShmRegion>,
        margin: usize,
        access: c_int,
    ) -> io::Result<Registered> {
        let words = region.words_behind(margin);
        let memory = NonNull::from(words).cast();
        let owner = Owner::Shared(Arc::clone(region));
        Registered::make(domain, (memory, words.len()), owner, access)
    }

    fn make(
        domain: &Arc<Domain>,
        (memory, words): (NonNull<u8>, usize),
        owner: Owner,
        access: c_int,
    ) -> io::Result<Registered> {
        let bytes = words.max(1) * WORD;
        let library = &domain.context.library;
        // SAFETY: the domain is there, and the memory has this length at least, and stays as long
        // as its owner (contract 2).
        let raw = unsafe {
            let domain = domain.raw.as_ptr();
            let address = memory.as_ptr().cast();
            made((library.ibv_reg_mr)(domain, address, bytes, access))
        };
        Ok(Registered {
            raw: raw.map_err(|error| explain_registration(&error, bytes))?,
            memory,
            words,
            owner: Some(owner),
            domain: Arc::clone(domain),
        })
    }

    /// Returns the memory.
    pub(in crate::verbs) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory has so many initialised words, is aligned, lives as long as the value,
        // and is only ever seen as atomics (contract 4).
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.words) }
    }

    /// Returns its address, as peers name it.
    pub(in crate::verbs) fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Returns the key by which peers name it.
    pub(in crate::verbs) fn remote_key(&self) -> u32 {
        // SAFETY: the library's struct is there as long as the registration.
        unsafe { (*self.raw.as_ptr()).remote_key }
    }

    /// Returns bytes from word `at` on, as the device names them.
    pub(super) fn piece(&self, at: usize, bytes: usize) -> ffi::Piece {
        let fits = bytes.div_ceil(WORD) <= self.words.saturating_sub(at);
        assert!(fits, "{bytes} bytes from word {at} of {}", self.words);
        // SAFETY: as above.
        let key = unsafe { (*self.raw.as_ptr()).local_key };
        ffi::Piece {
            address: self.address() + (at * WORD) as u64,
            len: u32::try_from(bytes).expect("pieces are short"),
            key,
        }
    }

    /// Copies bytes to word `at` and those behind it; the rest of the last one becomes zero.
    pub(in crate::verbs) fn store(&self, at: usize, bytes: &[u8]) {
        let words = &self.words()[at..at + bytes.len().div_ceil(WORD)];
        for (word, bytes) in words.iter().zip(bytes.chunks(WORD)) {
            let mut whole = [0; WORD];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Appends `len` bytes from word `at` on.
    pub(in crate::verbs) fn load(&self, at: usize, len: usize, into: &mut Vec<u8>) {
        let end = into.len() + len;
        for word in &self.words()[at..at + len.div_ceil(WORD)] {
            into.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        into.truncate(end);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: contract 1.
        let failed = unsafe { (self.domain.context.library.ibv_dereg_mr)(self.raw.as_ptr()) };
        if failed != 0 {
            let error = io::Error::from_raw_os_error(failed);
            tracing::error!("the device keeps {} words of memory: {error}", self.words);
            // It is never freed (contract 2).
            std::mem::forget(self.owner.take());
        }
    }
}

fn explain_registration(error: &io::Error, bytes: usize) -> io::Error {
    let hint = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
            "; registered memory is locked: raise the limit (`ulimit -l`, LimitMEMLOCK)"
        }
        _ => "",
    };
    let text = format!("cannot register {bytes} bytes with the device: {error}{hint}");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_there_is_not_is_an_error() {
        for words in [
            usize::MAX,
            usize::MAX / WORD,
            isize::MAX as usize / WORD - PAGE,
        ] {
            let error = Zeros::new(words)
                .map(drop)
                .expect_err("there is not so much");
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{words}");
            assert!(error.to_string().contains(&words.to_string()), "{error}");
        }
        assert!(Zeros::new(1).is_ok());
    }
}
