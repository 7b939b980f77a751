//! Maps, programs and links of BPF, by the system call itself.
//!
//! | command | argument (all zero where the table says nothing) |
//! |---|---|
//! | `BPF_MAP_CREATE` (0) | 0 type, 4 size of keys, 8 size of values, 12 entries |
//! | `BPF_MAP_UPDATE_ELEM` (2) | 0 map, 8 address of the key, 16 address of the value |
//! | `BPF_PROG_LOAD` (5) | 0 type, 4 instructions, 8 their address, 16 address of the licence, 24 level and 28 length of the log, 32 its address, 44 flags, 68 type of attachment |
//! | `BPF_LINK_CREATE` (28) | 0 program, 4 interface, 8 type of attachment, 12 flags |
//!
//! Each descriptor is closed when its owner is dropped or when the process ends, however it ends. With the descriptor
//! of a link its program leaves the interface.
//!
//! Safety contract: the argument of a call is [`LEN`] bytes that outlive the call, and so does all memory whose
//! address stands in it: callers pass borrowed slices of the lengths that the kernel reads.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The length of an argument: more than those commands read.
const LEN: usize = 128;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEMENT: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const ARRAY: u32 = 2;
const SOCKET_MAP: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const XDP_ATTACHMENT: u32 = 37;
/// The program may get packets that consist of several pieces.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// The interface's packets are handed over by the kernel, not by the driver.
const GENERIC_MODE: u32 = 1 << 1;
const LICENCE: &[u8] = b"Dual MIT/GPL\0";

#[repr(C, align(8))]
struct Argument([u8; LEN]);

impl Argument {
    fn new() -> Argument {
        Argument([0; LEN])
    }

    fn with(mut self, at: usize, value: u32) -> Argument {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn with_memory(mut self, at: usize, memory: &[u8]) -> Argument {
        let address = memory.as_ptr().expose_provenance() as u64;
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }
}

/// Makes the system call. Returns its result.
fn call(command: libc::c_int, argument: &Argument) -> io::Result<RawFd> {
    // SAFETY: the argument is as long as it says, and all memory that it names outlives the call (contract).
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            argument.0.as_ptr(),
            LEN as libc::c_uint,
        )
    };
    match result {
        0.. => Ok(result as RawFd),
        _ => Err(io::Error::last_os_error()),
    }
}

fn descriptor(command: libc::c_int, argument: &Argument) -> io::Result<OwnedFd> {
    let descriptor = call(command, argument)?;
    // SAFETY: these commands return a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A map from numbers of 32 bits to numbers of 32 bits.
pub(crate) struct BpfMap(OwnedFd);

impl BpfMap {
    /// Creates an array of zeros.
    pub(crate) fn array(entries: u32) -> io::Result<BpfMap> {
        BpfMap::create(ARRAY, entries)
    }

    /// Creates a map from queues to AF_XDP sockets.
    pub(crate) fn of_sockets(entries: u32) -> io::Result<BpfMap> {
        BpfMap::create(SOCKET_MAP, entries)
    }

    fn create(kind: u32, entries: u32) -> io::Result<BpfMap> {
        let argument = Argument::new().with(0, kind).with(4, 4).with(8, 4);
        descriptor(MAP_CREATE, &argument.with(12, entries)).map(BpfMap)
    }

    /// Returns its descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: u32, value: u32) -> io::Result<()> {
        let (key, value) = (key.to_ne_bytes(), value.to_ne_bytes());
        let argument = Argument::new().with(0, self.descriptor() as u32);
        let argument = argument.with_memory(8, &key).with_memory(16, &value);
        call(MAP_UPDATE_ELEMENT, &argument).map(drop)
    }
}

/// A program that the kernel has verified.
pub(crate) struct XdpProgram(OwnedFd);

impl XdpProgram {
    /// Loads a program of XDP: instructions of 8 bytes.
    pub(crate) fn load(instructions: &[u8]) -> io::Result<XdpProgram> {
        assert!(instructions.len().is_multiple_of(8));
        let argument = Argument::new()
            .with(0, XDP_PROGRAM)
            .with(4, (instructions.len() / 8) as u32)
            .with_memory(8, instructions)
            .with_memory(16, LICENCE)
            .with(44, HAS_FRAGMENTS)
            .with(68, XDP_ATTACHMENT);
        descriptor(PROGRAM_LOAD, &argument).map(XdpProgram)
    }
}

/// A program on an interface: it leaves the interface when this is dropped, or when the process ends.
pub(crate) struct BpfLink(
    #[expect(dead_code, reason = "it is open as long as the link is to last")] OwnedFd,
);

impl BpfLink {
    /// Attaches a program to an interface in generic mode, in which the kernel copies packets.
    pub(crate) fn attach(program: &XdpProgram, interface: u32) -> io::Result<BpfLink> {
        let argument = Argument::new()
            .with(0, program.0.as_raw_fd() as u32)
            .with(4, interface)
            .with(8, XDP_ATTACHMENT)
            .with(12, GENERIC_MODE);
        descriptor(LINK_CREATE, &argument).map(BpfLink)
    }
}
