//! Packets as `smoltcp` takes and gives them.

use std::net::Ipv4Addr;

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use crate::headers::{ETHERNET, HardwareAddress, write_ethernet};

/// The settings of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackOptions {
    pub(crate) address: Ipv4Addr,
    pub(crate) hardware: HardwareAddress,
    /// Bytes of the longest IP packet.
    pub(crate) mtu: usize,
}

/// The destination of frames.
pub(crate) trait FrameSink {
    /// Returns `true` if a frame can be pushed.
    fn has_room(&mut self) -> bool;

    /// Has `write` write a frame of `len` bytes. There must be room.
    fn push<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R;
}

/// Takes no frames.
pub(super) struct NoFrames;

impl FrameSink for NoFrames {
    fn has_room(&mut self) -> bool {
        false
    }

    fn push<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        write(&mut vec![0; len])
    }
}

/// At most one packet to be received, and a destination of packets to be sent.
pub(super) struct PacketDevice<'a, S> {
    pub(super) packet: Option<&'a [u8]>,
    pub(super) sink: &'a mut S,
    /// The neighbour that gets what is sent.
    pub(super) to: HardwareAddress,
    pub(super) options: &'a StackOptions,
}

pub(super) struct ReceivedPacket<'a>(&'a [u8]);

pub(super) struct Sending<'a, S> {
    sink: &'a mut S,
    to: HardwareAddress,
    from: HardwareAddress,
}

impl<S: FrameSink> Device for PacketDevice<'_, S> {
    type RxToken<'a>
        = ReceivedPacket<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Sending<'a, S>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(ReceivedPacket<'_>, Sending<'_, S>)> {
        let packet = self.packet.take()?;
        // Without room for an answer the packet is lost, as on the way; its sender repeats it.
        let sending = self.transmit(now)?;
        Some((ReceivedPacket(packet), sending))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_, S>> {
        self.sink.has_room().then_some(Sending {
            to: self.to,
            from: self.options.hardware,
            sink: &mut *self.sink,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.options.mtu;
        // Those of received packets have been checked.
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

impl RxToken for ReceivedPacket<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl<S: FrameSink> TxToken for Sending<'_, S> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        self.sink.push(ETHERNET + len, |frame| {
            let result = write(&mut frame[ETHERNET..]);
            write_ethernet(frame, self.to, self.from);
            result
        })
    }
}
