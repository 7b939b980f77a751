//! The structs of libibverbs, as they are in memory, and its functions, found at run time.
//!
//! Building needs nothing of the library. The structs are those of its stable interface on 64-bit
//! Linux; their sizes, and the places of the fields that matter, are checked at compile time:
//!
//! | here | there | bytes |
//! |---|---|---|
//! | [`Context`] | `ibv_context`, as far as its table of functions | 264 |
//! | [`Region`] | `ibv_mr` | 48 |
//! | [`Channel`] | `ibv_comp_channel` | 16 |
//! | [`Completions`] [`Pair`] | `ibv_cq` `ibv_qp`, their first fields | |
//! | [`PairInit`] [`PairAttributes`] | `ibv_qp_init_attr` `ibv_qp_attr` | 64, 144 |
//! | [`Path`] | `ibv_ah_attr` | 32 |
//! | [`Piece`] | `ibv_sge` | 16 |
//! | [`SendWork`] [`ReceiveWork`] | `ibv_send_wr` `ibv_recv_wr` | 128, 32 |
//! | [`Completion`] | `ibv_wc` | 48 |
//! | [`DeviceAttributes`] | `ibv_device_attr` | 232 |
//! | [`PortAttributes`] | `ibv_port_attr`, and room behind it for fields of newer versions | 52 + 76 |
//!
//! Safety contract:
//! 1. A [`Library`] is loaded once and never unloaded, so that its functions stay where they are.
//! 2. Each function has the type that the library's manual gives it. The caller of a function keeps
//!    the manual's rules: pointers are those that the library has returned, and are not used after
//!    the function that takes them back.
//! 3. Posting, polling and asking for events are not functions of the library: its header calls
//!    them through the table of a context, which the device's own part of the library fills in. The
//!    calls here do the same, and are sound for a queue of an open context.

#![allow(unsafe_code)]

use super::options::LoaderError;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

/// A pointer to an object whose type only the library knows.
pub(super) type Opaque = *mut c_void;

/// The places of a context's functions.
const POLL: usize = 11;
const ASK_FOR_EVENT: usize = 12;
const POST_SEND: usize = 25;
const POST_RECEIVE: usize = 26;

/// An open device.
#[repr(C)]
pub(super) struct Context {
    device: Opaque,
    functions: [Opaque; 32],
}

/// Memory that the device reaches.
#[repr(C)]
pub(super) struct Region {
    context: *mut Context,
    domain: Opaque,
    address: Opaque,
    len: usize,
    handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// The channel of events.
#[repr(C)]
pub(super) struct Channel {
    context: *mut Context,
    pub(super) fd: c_int,
    count: c_int,
}

/// A queue of completions.
#[repr(C)]
pub(super) struct Completions {
    context: *mut Context,
}

/// A queue pair.
#[repr(C)]
pub(super) struct Pair {
    context: *mut Context,
    user: Opaque,
    domain: Opaque,
    sent: *mut Completions,
    received: *mut Completions,
    shared: Opaque,
    handle: u32,
    pub(super) number: u32,
}

/// The capacities of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Depths {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) send_pieces: u32,
    pub(super) receive_pieces: u32,
    pub(super) inline: u32,
}

/// The parameters of a new queue pair.
#[repr(C)]
pub(super) struct PairInit {
    pub(super) user: Opaque,
    pub(super) sent: *mut Completions,
    pub(super) received: *mut Completions,
    pub(super) shared: Opaque,
    pub(super) depths: Depths,
    pub(super) kind: c_int,
    pub(super) all_signalled: c_int,
}

/// The kind of a queue pair that is connected to one other and loses nothing.
pub(super) const RELIABLE_CONNECTION: c_int = 2;

/// A path to a port.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Path {
    pub(super) gid: Gid,
    pub(super) flow: u32,
    pub(super) from_gid: u8,
    pub(super) hops: u8,
    pub(super) class: u8,
    pub(super) lid: u16,
    pub(super) level: u8,
    pub(super) source_bits: u8,
    pub(super) rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// A global address of a port, in network order.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// The attributes of a queue pair that can be changed.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PairAttributes {
    pub(super) state: u32,
    pub(super) current: u32,
    pub(super) mtu: u32,
    pub(super) migration: u32,
    pub(super) datagram_key: u32,
    pub(super) receive_number: u32,
    pub(super) send_number: u32,
    pub(super) peer: u32,
    pub(super) access: u32,
    pub(super) depths: Depths,
    pub(super) path: Path,
    pub(super) other_path: Path,
    pub(super) partition: u16,
    pub(super) other_partition: u16,
    pub(super) notify_drained: u8,
    pub(super) draining: u8,
    pub(super) reads: u8,
    pub(super) peer_reads: u8,
    pub(super) not_ready_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) not_ready_retries: u8,
    pub(super) other_port: u8,
    pub(super) other_timeout: u8,
    pub(super) rate_limit: u32,
}

/// States of a queue pair.
pub(super) mod state {
    pub(in crate::verbs) const INIT: u32 = 1;
    pub(in crate::verbs) const READY_TO_RECEIVE: u32 = 2;
    pub(in crate::verbs) const READY_TO_SEND: u32 = 3;
}

/// The masks of attributes to be changed.
pub(super) mod change {
    use std::ffi::c_int;
    pub(in crate::verbs) const STATE: c_int = 1;
    pub(in crate::verbs) const ACCESS: c_int = 1 << 3;
    pub(in crate::verbs) const PARTITION: c_int = 1 << 4;
    pub(in crate::verbs) const PORT: c_int = 1 << 5;
    pub(in crate::verbs) const PATH: c_int = 1 << 7;
    pub(in crate::verbs) const MTU: c_int = 1 << 8;
    pub(in crate::verbs) const TIMEOUT: c_int = 1 << 9;
    pub(in crate::verbs) const RETRIES: c_int = 1 << 10;
    pub(in crate::verbs) const NOT_READY_RETRIES: c_int = 1 << 11;
    pub(in crate::verbs) const RECEIVE_NUMBER: c_int = 1 << 12;
    pub(in crate::verbs) const READS: c_int = 1 << 13;
    pub(in crate::verbs) const NOT_READY_TIMER: c_int = 1 << 15;
    pub(in crate::verbs) const SEND_NUMBER: c_int = 1 << 16;
    pub(in crate::verbs) const PEER_READS: c_int = 1 << 17;
    pub(in crate::verbs) const PEER: c_int = 1 << 20;
}

/// The operations that others may do with memory.
pub(super) mod access {
    use std::ffi::c_int;
    pub(in crate::verbs) const LOCAL_WRITE: c_int = 1;
    pub(in crate::verbs) const REMOTE_WRITE: c_int = 2;
    pub(in crate::verbs) const REMOTE_READ: c_int = 4;
}

/// A piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) key: u32,
}

/// An operation for the device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SendWork {
    pub(super) id: u64,
    pub(super) next: *mut SendWork,
    pub(super) pieces: *const Piece,
    pub(super) count: c_int,
    pub(super) operation: u32,
    pub(super) flags: u32,
    pub(super) immediate: u32,
    pub(super) remote: u64,
    pub(super) remote_key: u32,
    pub(super) unused: [u32; 19],
}

/// Operations.
pub(super) mod operation {
    pub(in crate::verbs) const WRITE: u32 = 0;
    pub(in crate::verbs) const SEND_IMMEDIATE: u32 = 3;
    pub(in crate::verbs) const READ: u32 = 4;
}

/// The work has a completion even if it succeeds.
pub(super) const SIGNALLED: u32 = 2;

/// Memory for a message.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ReceiveWork {
    pub(super) id: u64,
    pub(super) next: *mut ReceiveWork,
    pub(super) pieces: *const Piece,
    pub(super) count: c_int,
}

/// The completion of an operation.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Completion {
    pub(super) id: u64,
    pub(super) status: u32,
    pub(super) operation: u32,
    pub(super) vendor: u32,
    pub(super) len: u32,
    pub(super) immediate: u32,
    pub(super) pair: u32,
    pub(super) peer: u32,
    pub(super) flags: u32,
    pub(super) partition: u16,
    pub(super) lid: u16,
    pub(super) level: u8,
    pub(super) bits: u8,
}

/// The bit of a completion's `flags` for a message that came with a number.
pub(super) const WITH_IMMEDIATE: u32 = 2;

/// Values of a completion's `status`.
pub(super) mod status {
    pub(in crate::verbs) const SUCCESS: u32 = 0;
    pub(in crate::verbs) const FLUSHED: u32 = 5;
    pub(in crate::verbs) const REMOTE_INVALID: u32 = 9;
    pub(in crate::verbs) const REMOTE_ACCESS: u32 = 10;
    pub(in crate::verbs) const RETRIES_EXCEEDED: u32 = 12;
}

/// The capabilities of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceAttributes {
    firmware: [u8; 64],
    guids: [u64; 2],
    max_region: u64,
    pages: u64,
    vendor: [u32; 3],
    max_pairs: u32,
    pub(super) max_work: u32,
    flags: u32,
    max_pieces: [u32; 2],
    max_queues: u32,
    pub(super) max_completions: u32,
    max_regions: u32,
    max_domains: u32,
    pub(super) max_peer_reads: u32,
    unused: [u32; 2],
    pub(super) max_reads: u32,
    rest: [u8; 67],
    pub(super) ports: u8,
    end: [u8; 4],
}

/// The attributes of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PortAttributes {
    pub(super) state: u32,
    max_mtu: u32,
    pub(super) mtu: u32,
    pub(super) gids: c_int,
    capabilities: u32,
    max_message: u32,
    counters: [u32; 2],
    partitions: u16,
    pub(super) lid: u16,
    manager: u16,
    bits: [u8; 2],
    pub(super) level: u8,
    unused: [u8; 5],
    pub(super) layer: u8,
    end: [u8; 81],
}

/// The `state` of an active port.
pub(super) const PORT_ACTIVE: u32 = 4;
/// A value of a port's `layer`.
pub(super) const LAYER_INFINIBAND: u8 = 1;

const _: () = {
    assert!(size_of::<Context>() == 264 && size_of::<Region>() == 48);
    assert!(offset_of!(Region, local_key) == 36 && size_of::<Channel>() == 16);
    assert!(offset_of!(Channel, fd) == 8 && offset_of!(Pair, number) == 52);
    assert!(size_of::<PairInit>() == 64 && size_of::<Path>() == 32);
    assert!(size_of::<PairAttributes>() == 144 && offset_of!(PairAttributes, path) == 56);
    assert!(offset_of!(PairAttributes, partition) == 120);
    assert!(offset_of!(PairAttributes, rate_limit) == 136);
    assert!(size_of::<Piece>() == 16 && size_of::<ReceiveWork>() == 32);
    assert!(size_of::<SendWork>() == 128 && offset_of!(SendWork, remote) == 40);
    assert!(offset_of!(SendWork, remote_key) == 48 && size_of::<Completion>() == 48);
    assert!(offset_of!(Completion, len) == 20 && offset_of!(Completion, flags) == 36);
    assert!(size_of::<DeviceAttributes>() == 232);
    assert!(offset_of!(DeviceAttributes, max_work) == 112);
    assert!(offset_of!(DeviceAttributes, max_completions) == 132);
    assert!(offset_of!(DeviceAttributes, max_peer_reads) == 144);
    assert!(offset_of!(DeviceAttributes, max_reads) == 156);
    assert!(offset_of!(DeviceAttributes, ports) == 227);
    assert!(size_of::<PortAttributes>() == 128 && offset_of!(PortAttributes, gids) == 12);
    assert!(offset_of!(PortAttributes, lid) == 34 && offset_of!(PortAttributes, level) == 40);
    assert!(offset_of!(PortAttributes, layer) == 46);
};

/// Declares the library's functions, and the code that finds them.
macro_rules! library {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions; see its manual pages of the same names.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Library {
            /// Finds the functions in a library that was loaded.
            fn find(handle: Opaque) -> Result<Library, LoaderError> {
                Ok(Library {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let found = symbol(handle, name)?;
                        // SAFETY: `found` is this function of libibverbs, and is not null; its
                        // type is the one of the library's interface (contract 1 and 2).
                        unsafe {
                            std::mem::transmute::<
                                Opaque,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    ibv_get_device_list(*mut c_int) -> *mut Opaque;
    ibv_free_device_list(*mut Opaque) -> ();
    ibv_get_device_name(Opaque) -> *const c_char;
    ibv_open_device(Opaque) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_query_gid(*mut Context, u8, c_int, *mut Gid) -> c_int;
    ibv_alloc_pd(*mut Context) -> Opaque;
    ibv_dealloc_pd(Opaque) -> c_int;
    ibv_reg_mr(Opaque, Opaque, usize, c_int) -> *mut Region;
    ibv_dereg_mr(*mut Region) -> c_int;
    ibv_create_comp_channel(*mut Context) -> *mut Channel;
    ibv_destroy_comp_channel(*mut Channel) -> c_int;
    ibv_create_cq(*mut Context, c_int, Opaque, *mut Channel, c_int) -> *mut Completions;
    ibv_destroy_cq(*mut Completions) -> c_int;
    ibv_get_cq_event(*mut Channel, *mut *mut Completions, *mut Opaque) -> c_int;
    ibv_ack_cq_events(*mut Completions, u32) -> ();
    ibv_create_qp(Opaque, *mut PairInit) -> *mut Pair;
    ibv_modify_qp(*mut Pair, *mut PairAttributes, c_int) -> c_int;
    ibv_destroy_qp(*mut Pair) -> c_int;
}

impl Library {
    /// Loads the library of this name.
    ///
    /// # Errors
    /// Returns the error of the system's loader.
    pub(super) fn load(name: &CStr) -> Result<Library, LoaderError> {
        // SAFETY: the name is a string that ends with a zero. Loading runs the library's own
        // initialisation, which libibverbs allows at any time.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(loader_error());
        }
        Library::find(handle)
    }
}

fn symbol(handle: Opaque, name: &str) -> Result<Opaque, LoaderError> {
    // SAFETY: the handle is that of a library which is never unloaded (contract 1), and the name
    // ends with a zero.
    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
    match found.is_null() {
        true => Err(loader_error()),
        false => Ok(found),
    }
}

/// Returns the loader's description of the last failure in this thread.
fn loader_error() -> LoaderError {
    // SAFETY: it takes nothing, and returns null or a string that stays until the next call of the
    // loader by this thread; it is copied before that.
    unsafe {
        let text = libc::dlerror();
        LoaderError(match text.is_null() {
            true => "the loader does not say why".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        })
    }
}

/// Takes completions, and returns their number, or a negative number.
///
/// # Safety
/// The queue is one of an open context, and `into` has room for `count`.
pub(super) unsafe fn poll(queue: *mut Completions, count: c_int, into: *mut Completion) -> c_int {
    type Poll = unsafe extern "C" fn(*mut Completions, c_int, *mut Completion) -> c_int;
    // SAFETY: contract 3.
    unsafe {
        let function = (*(*queue).context).functions[POLL];
        std::mem::transmute::<Opaque, Poll>(function)(queue, count, into)
    }
}

/// Asks for an event with the next completion. Returns an error's number, or zero.
///
/// # Safety
/// The queue is one of an open context, and was made with a channel.
pub(super) unsafe fn ask_for_event(queue: *mut Completions) -> c_int {
    type Ask = unsafe extern "C" fn(*mut Completions, c_int) -> c_int;
    // SAFETY: contract 3.
    unsafe {
        let function = (*(*queue).context).functions[ASK_FOR_EVENT];
        std::mem::transmute::<Opaque, Ask>(function)(queue, 0)
    }
}

/// Posts work. Returns an error's number, or zero.
///
/// # Safety
/// The queue pair is one of an open context. The work ends with `next` null, and its pieces are of
/// registered memory that stays so until the work is complete.
pub(super) unsafe fn post_send(pair: *mut Pair, work: *mut SendWork) -> c_int {
    type Post = unsafe extern "C" fn(*mut Pair, *mut SendWork, *mut *mut SendWork) -> c_int;
    let mut bad = std::ptr::null_mut();
    // SAFETY: contract 3.
    unsafe {
        let function = (*(*pair).context).functions[POST_SEND];
        std::mem::transmute::<Opaque, Post>(function)(pair, work, &raw mut bad)
    }
}

/// Posts memory for messages. Returns an error's number, or zero.
///
/// # Safety
/// As for [`post_send`].
pub(super) unsafe fn post_receive(pair: *mut Pair, work: *mut ReceiveWork) -> c_int {
    type Post = unsafe extern "C" fn(*mut Pair, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int;
    let mut bad = std::ptr::null_mut();
    // SAFETY: contract 3.
    unsafe {
        let function = (*(*pair).context).functions[POST_RECEIVE];
        std::mem::transmute::<Opaque, Post>(function)(pair, work, &raw mut bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = Library::load(c"libkumiki-none.so.1")
            .map(|_| ())
            .expect_err("not there");
        assert!(error.0.contains("libkumiki-none.so.1"), "{error}");
    }

    #[test]
    fn a_library_without_the_functions_is_told_apart() {
        let error = Library::load(c"libc.so.6")
            .map(|_| ())
            .expect_err("another library");
        assert!(error.0.contains("ibv_get_device_list"), "{error}");
    }
}
