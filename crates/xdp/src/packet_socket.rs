//! An AF_XDP socket of one receive queue: packets in and out, in copy mode.
//!
//! Half of the frames are for received packets, the others for packets to be sent. In generic mode the kernel may hand
//! over packets that it has put together, or not yet taken apart, of up to 64 KiB: they come in several frames, and
//! are copied to one piece.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with};

use crate::rings::{ConsumerRing, FRAME, FrameMemory, PacketFrame, ProducerRing};

/// Frames for each direction, and entries of each ring.
const FRAMES: u32 = 2048;
/// The longest packet that consists of several frames: 64 KiB and its headers.
const LONGEST: usize = 66 * 1024;
/// Calls in a row in which the kernel sends nothing, before packets are left for later.
const ATTEMPTS: usize = 3;

/// The sending side. See the module.
pub(crate) struct Transmitter {
    socket: Arc<OwnedFd>,
    memory: Arc<FrameMemory>,
    transmit: ProducerRing<XdpDesc>,
    completion: ConsumerRing<u64>,
    free: Vec<PacketFrame>,
    /// Packets were written that the kernel has not been told of.
    is_dirty: bool,
    pub(crate) packets: u64,
    pub(crate) calls: u64,
}

/// The receiving side. See the module.
pub(crate) struct PacketReceiver {
    memory: Arc<FrameMemory>,
    receive: ConsumerRing<XdpDesc>,
    fill: ProducerRing<u64>,
    /// The begin of a packet of several frames.
    begun: Vec<u8>,
    /// The packet that has begun is too long, and is dropped as a whole.
    is_too_long: bool,
    pub(crate) packets: u64,
}

/// A socket with its two sides.
pub(crate) struct PacketSocket {
    pub(crate) transmitter: Transmitter,
    pub(crate) receiver: PacketReceiver,
    socket: Arc<OwnedFd>,
}

impl PacketSocket {
    /// Opens a socket for a receive queue of an interface. It gets packets when it is in the program's map.
    pub(crate) fn open(interface: u32, queue: u32) -> io::Result<PacketSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let (memory, mut frames) = FrameMemory::allocate(2 * FRAMES as usize)?;
        let (addr, len) = memory.extent();
        let registration = XdpUmemReg {
            addr,
            len,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&socket, registration)?;
        set_xdp_umem_fill_ring_size(&socket, FRAMES)?;
        set_xdp_umem_completion_ring_size(&socket, FRAMES)?;
        set_xdp_rx_ring_size(&socket, FRAMES)?;
        set_xdp_tx_ring_size(&socket, FRAMES)?;
        let offsets = xdp_mmap_offsets(&socket)?;
        let fd = socket.as_fd();
        let mut fill = ProducerRing::map(fd, &offsets.fr, FRAMES, XDP_UMEM_PGOFF_FILL_RING)?;
        let completion =
            ConsumerRing::map(fd, &offsets.cr, FRAMES, XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let receive = ConsumerRing::map(fd, &offsets.rx, FRAMES, XDP_PGOFF_RX_RING)?;
        let transmit = ProducerRing::map(fd, &offsets.tx, FRAMES, XDP_PGOFF_TX_RING)?;
        for frame in frames.drain(..FRAMES as usize) {
            fill.push(frame.address());
        }
        fill.publish();
        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_SG;
        bind(&socket, &SocketAddrXdp::new(flags, interface, queue))?;
        let socket = Arc::new(socket);
        Ok(PacketSocket {
            transmitter: Transmitter {
                socket: Arc::clone(&socket),
                memory: Arc::clone(&memory),
                transmit,
                completion,
                free: frames,
                is_dirty: false,
                packets: 0,
                calls: 0,
            },
            receiver: PacketReceiver {
                memory,
                receive,
                fill,
                begun: Vec::new(),
                is_too_long: false,
                packets: 0,
            },
            socket,
        })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PacketReceiver {
    /// Returns `true` if a packet has arrived.
    pub(crate) fn has_packet(&mut self) -> bool {
        self.receive.has_entry()
    }

    /// Hands packets over, at most so many. Returns how many there were.
    pub(crate) fn receive(&mut self, most: usize, mut packet: impl FnMut(&[u8])) -> usize {
        let (mut count, mut taken) = (0, false);
        while count < most
            && let Some(entry) = self.receive.take()
        {
            taken = true;
            let goes_on = entry.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            let (frame, begin) = self.memory.frame(entry.addr);
            let bytes = self.memory.bytes(&frame);
            let bytes = &bytes[begin..(begin + entry.len as usize).min(FRAME)];
            if goes_on || !self.begun.is_empty() || self.is_too_long {
                self.is_too_long |= self.begun.len() + bytes.len() > LONGEST;
                if !self.is_too_long {
                    self.begun.extend_from_slice(bytes);
                }
                if !goes_on {
                    if !self.is_too_long {
                        packet(&self.begun);
                    }
                    self.begun.clear();
                    self.is_too_long = false;
                }
            } else {
                packet(bytes);
            }
            count += usize::from(!goes_on);
            // As many frames circulate as the ring has entries.
            self.fill.push(frame.address());
        }
        if taken {
            self.receive.release();
            self.fill.publish();
            self.packets += count as u64;
        }
        count
    }
}

impl Transmitter {
    /// Returns `true` if there is a frame for a packet.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.free.is_empty() || self.transmit.room() == 0 {
            self.reclaim();
        }
        !self.free.is_empty() && self.transmit.room() > 0
    }

    /// Has `write` write a packet of `len` bytes, which [`Transmitter::flush`] sends.
    ///
    /// # Panics
    /// Panics if there is no room, or if the packet is longer than a frame.
    pub(crate) fn push<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = self.free.pop().expect("there is room");
        let result = write(&mut self.memory.bytes_mut(&mut frame)[..len]);
        self.transmit.push(XdpDesc {
            addr: frame.address(),
            len: len as u32,
            options: XdpDescOptions::empty(),
        });
        self.packets += 1;
        self.is_dirty = true;
        result
    }

    /// Sends the packets that were written. The kernel takes some 32 of them in a call.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        self.transmit.publish();
        let (mut left, mut attempts) = (self.transmit.unread(), 0);
        while left > 0 && attempts < ATTEMPTS {
            self.calls += 1;
            match send(&*self.socket, &[], SendFlags::DONTWAIT) {
                // The interface is down: as if the packets were lost on the way.
                Ok(_)
                | Err(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOBUFS | Errno::NETDOWN) => {
                }
                Err(error) => return Err(error.into()),
            }
            let before = std::mem::replace(&mut left, self.transmit.unread());
            attempts = if left < before { 0 } else { attempts + 1 };
        }
        self.is_dirty = left > 0;
        self.reclaim();
        Ok(())
    }

    /// Returns `true` if packets wait that the kernel has not taken.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Takes frames back that were sent.
    fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some(address) = self.completion.take() {
            self.free.push(self.memory.frame(address).0);
        }
        if self.free.len() > before {
            self.completion.release();
        }
    }
}
