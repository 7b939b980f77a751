//! Memory that a device reaches.
//!
//! Safety contract: that of [`super`], of which this keeps 2 and 4.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::WORD;

use super::super::ffi;
use super::{Domain, made};

/// Registered memory begins at multiples of this, so that it shares no page with anything else.
const PAGE: usize = 4096;

/// Memory of zeros that the device reaches.
pub(in crate::verbs) struct Registered {
    raw: NonNull<ffi::Region>,
    memory: NonNull<u8>,
    layout: Layout,
    words: usize,
    domain: Arc<Domain>,
}

// SAFETY: contract 5, and the memory is seen as atomics.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers so many words, at least one; `access` says what the device does with them for
    /// others.
    pub(in crate::verbs) fn new(
        domain: &Arc<Domain>,
        words: usize,
        access: c_int,
    ) -> io::Result<Registered> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = words.max(1).checked_mul(WORD).ok_or_else(too_large)?;
        let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| too_large())?;
        let layout = layout.pad_to_align();
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        let library = &domain.context.library;
        // SAFETY: the domain is there, and the memory has this length at least, and stays
        // (contract 2).
        let raw = unsafe {
            let domain = domain.raw.as_ptr();
            let address = memory.as_ptr().cast();
            made((library.ibv_reg_mr)(domain, address, bytes, access))
        };
        let raw = raw.map_err(|error| {
            // SAFETY: it was allocated so, and the device does not know it.
            unsafe { dealloc(memory.as_ptr(), layout) };
            explain_registration(&error, bytes)
        })?;
        Ok(Registered {
            raw,
            memory,
            layout,
            words,
            domain: Arc::clone(domain),
        })
    }

    /// The memory.
    pub(in crate::verbs) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory has so many initialised words, is aligned, lives as long as the value,
        // and is only ever seen as atomics (contract 4).
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.words) }
    }

    /// Where it begins, as peers name it.
    pub(in crate::verbs) fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// The key by which peers name it.
    pub(in crate::verbs) fn remote_key(&self) -> u32 {
        // SAFETY: the library's struct is there as long as the registration.
        unsafe { (*self.raw.as_ptr()).remote_key }
    }

    /// Bytes from word `at` on, as the device names them.
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

    /// Appends so many bytes from word `at` on.
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
            return;
        }
        // SAFETY: it was allocated so, and the device has forgotten it (contract 2).
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
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
