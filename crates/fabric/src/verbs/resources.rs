//! Parts of a device as values that release themselves.
//!
//! | value | in | of the library | keeps |
//! |---|---|---|---|
//! | [`Context`] | this | an open device | |
//! | [`Domain`] | this | a protection domain | the context |
//! | [`Registered`] | `registered` | memory that the device reaches | the domain |
//! | [`Channel`] | `queue` | a channel of events | the context |
//! | [`Queue`] | `queue` | a queue of completions | the channel |
//! | [`Pair`] | `pair` | a queue pair | its queues, the domain, and the memory that its work names |
//!
//! Safety contract, of all these modules:
//! 1. A pointer of the library is used as long as its value exists, and is released when that is
//!    dropped; a value is dropped before those that it keeps.
//! 2. **Memory outlives its use by the device.** Registered memory belongs to its value, or to a
//!    shared region that the value keeps, and is dropped in this order: the device forgets the
//!    memory (from then on it refuses requests for it), then the memory is freed, or left to the
//!    region. If the device does not forget it, it is never freed.
//! 3. Memory that a queue pair was told to read or write stays registered until that is complete:
//!    the pair keeps the value. The pair itself is released first, and then no work is in progress
//!    any more.
//! 4. Registered memory is seen as atomic words only, because the device and its peers read and
//!    write at any time.
//! 5. The library's functions may be called from any thread; so all values may be sent. Those with
//!    state of their own here take `&mut self`.

#![allow(unsafe_code)]

mod pair;
mod queue;
mod registered;

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ffi::{self, Library, Opaque};
use super::options::NoDevice;

pub(super) use pair::{Pair, PeerMemory, Work};
pub(super) use queue::BATCH;
pub(crate) use queue::wait_for_either;
pub(super) use registered::Registered;

/// An open device.
pub(super) struct Context {
    library: Library,
    raw: NonNull<ffi::Context>,
    name: String,
}

// SAFETY: contract 5.
unsafe impl Send for Context {}
// SAFETY: contract 5.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the device that `choose` selects from the names of all.
    pub(super) fn open(
        library: Library,
        choose: impl FnOnce(&[String]) -> Result<usize, NoDevice>,
    ) -> Result<Context, NoDevice> {
        let mut count = 0;
        // SAFETY: it takes a place for the count, and returns null or a list of so many devices.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        let Some(list) = NonNull::new(list) else {
            return Err(NoDevice::Kernel(io::Error::last_os_error()));
        };
        // SAFETY: the list has `count` devices, each with a name, until it is freed below.
        let devices = unsafe { std::slice::from_raw_parts(list.as_ptr(), count as usize) };
        let name = |device: &Opaque| {
            // SAFETY: a device's name is a string in the device.
            let name = unsafe { CStr::from_ptr((library.ibv_get_device_name)(*device)) };
            name.to_string_lossy().into_owned()
        };
        let names: Vec<String> = devices.iter().map(name).collect();
        let opened = choose(&names).and_then(|index| {
            // SAFETY: the device is one of the list, which is there still.
            let raw = NonNull::new(unsafe { (library.ibv_open_device)(devices[index]) });
            let device = names[index].clone();
            let error = io::Error::last_os_error();
            Ok((raw.ok_or(NoDevice::Open { device, error })?, index))
        });
        // SAFETY: the list is that of above; an open device does not need it.
        unsafe { (library.ibv_free_device_list)(list.as_ptr()) };
        let (raw, index) = opened?;
        Ok(Context {
            library,
            raw,
            name: names[index].clone(),
        })
    }

    /// Returns the device's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its capabilities.
    pub(super) fn attributes(&self) -> io::Result<ffi::DeviceAttributes> {
        // SAFETY: the struct consists of numbers, of which all can be zero.
        let mut attributes: ffi::DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the struct is the one that is filled in.
        checked(unsafe {
            (self.library.ibv_query_device)(self.raw.as_ptr(), &raw mut attributes)
        })?;
        Ok(attributes)
    }

    /// Returns the attributes of one of its ports.
    pub(super) fn port(&self, port: u8) -> io::Result<ffi::PortAttributes> {
        // SAFETY: as above.
        let mut attributes: ffi::PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: as above; the struct has room for what newer versions fill in.
        checked(unsafe {
            (self.library.ibv_query_port)(self.raw.as_ptr(), port, &raw mut attributes)
        })?;
        Ok(attributes)
    }

    /// Returns one of a port's global addresses.
    pub(super) fn gid(&self, port: u8, index: u8) -> io::Result<[u8; 16]> {
        let mut gid = ffi::Gid::default();
        let index = c_int::from(index);
        // SAFETY: as above.
        let failed =
            unsafe { (self.library.ibv_query_gid)(self.raw.as_ptr(), port, index, &raw mut gid) };
        match failed {
            0 => Ok(gid.0),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: contract 1. An error would mean that a part of it is still in use, which cannot
        // be, and nothing could be done.
        unsafe { (self.library.ibv_close_device)(self.raw.as_ptr()) };
    }
}

/// A protection domain: its queue pairs reach only its own memory.
pub(super) struct Domain {
    raw: NonNull<c_void>,
    context: Arc<Context>,
}

// SAFETY: contract 5.
unsafe impl Send for Domain {}
// SAFETY: contract 5.
unsafe impl Sync for Domain {}

impl Domain {
    pub(super) fn new(context: Arc<Context>) -> io::Result<Domain> {
        // SAFETY: the context is open.
        let raw = made(unsafe { (context.library.ibv_alloc_pd)(context.raw.as_ptr()) })?;
        Ok(Domain { raw, context })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: contract 1.
        unsafe { (self.context.library.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Converts the result of a function that returns an error's number.
fn checked(number: c_int) -> io::Result<()> {
    match number {
        0 => Ok(()),
        // Some functions return −1 and leave the number elsewhere.
        -1 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// Converts the result of a function that returns a pointer.
fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}
