//! The headers of a TCP packet over IPv4 and Ethernet, as far as the stack reads them before TCP does.
//!
//! | bytes | content |
//! |---|---|
//! | 0..6, 6..12, 12..14 | Ethernet: destination, source, type (`0800`) |
//! | 14..34 | IPv4 without options: total length at 16, protocol at 23, source at 26, destination at 30 |
//! | 34.. | TCP: ports at 34 and 36, length of the header at 46, flags at 47, checksum at 50 |

use std::net::{Ipv4Addr, SocketAddrV4};

/// The length of an Ethernet header, in bytes.
pub(crate) const ETHERNET: usize = 14;
/// The length of an IPv4 header without options, in bytes.
const IPV4: usize = 20;
/// The least length of a TCP header, in bytes.
const TCP: usize = 20;

/// An address of Ethernet.
pub(crate) type HardwareAddress = [u8; 6];

/// A TCP packet.
#[derive(Debug)]
pub(crate) struct TcpPacket<'a> {
    pub(crate) source_hardware: HardwareAddress,
    pub(crate) source: SocketAddrV4,
    pub(crate) destination: SocketAddrV4,
    pub(crate) is_syn: bool,
    pub(crate) is_ack: bool,
    pub(crate) is_reset: bool,
    /// The packet from its IPv4 header on, without what Ethernet has appended.
    pub(crate) ip: &'a [u8],
}

impl TcpPacket<'_> {
    /// Reads the headers. Returns `None` if it is no TCP packet over IPv4, or is damaged.
    pub(crate) fn parse(frame: &[u8]) -> Option<TcpPacket<'_>> {
        let ip = frame.get(ETHERNET..)?;
        if frame[12..14] != [0x08, 0x00] || ip.len() < IPV4 + TCP || ip[0] != 0x45 || ip[9] != 6 {
            return None;
        }
        let total = usize::from(number(ip, 2));
        let ip = ip.get(..total).filter(|ip| ip.len() >= IPV4 + TCP)?;
        if number(ip, 6) & 0x3fff != 0 || !has_sound_checksum(ip) {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        let flags = ip[33];
        Some(TcpPacket {
            source_hardware: frame[6..12].try_into().expect("six bytes"),
            source: SocketAddrV4::new(address(12), number(ip, 20)),
            destination: SocketAddrV4::new(address(16), number(ip, 22)),
            is_syn: flags & 2 != 0,
            is_ack: flags & 16 != 0,
            is_reset: flags & 4 != 0,
            ip,
        })
    }
}

/// Writes the Ethernet header of an IPv4 packet.
pub(crate) fn write_ethernet(frame: &mut [u8], to: HardwareAddress, from: HardwareAddress) {
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns `true` if TCP's checksum is right, or is the one that the sender's kernel leaves for its device to complete: a
/// packet that never was on a wire, as between virtual interfaces of one machine, has only that, the sum of the
/// pseudo-header.
fn has_sound_checksum(ip: &[u8]) -> bool {
    let tcp = &ip[IPV4..];
    let pseudo = sum(&ip[12..20]) + 6 + tcp.len() as u64;
    let left_to_device = fold(pseudo);
    fold(pseudo + sum(tcp)) == 0xffff || number(tcp, 16) == left_to_device
}

/// Adds the numbers of 16 bits.
fn sum(bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(4);
    let mut sum = 0;
    for chunk in &mut chunks {
        sum += u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
    }
    let mut rest = [0; 4];
    rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    sum + u64::from(u32::from_be_bytes(rest))
}

/// Folds a sum to 16 bits, carries included.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a packet with a right checksum.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET];
        write_ethernet(&mut frame, [1; 6], [2, 2, 2, 2, 2, 9]);
        let total = (IPV4 + TCP + payload.len()) as u16;
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(5000_u16.to_be_bytes());
        frame.extend(6390_u16.to_be_bytes());
        frame.extend([0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x02, 1, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        let ip = &frame[ETHERNET..];
        let tcp = &ip[IPV4..];
        let checksum = !fold(sum(&ip[12..20]) + 6 + tcp.len() as u64 + sum(tcp));
        frame[50..52].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    #[test]
    fn headers_are_read() {
        for payload in [&b""[..], b"a", b"abc", b"abcd"] {
            let mut frame = packet(payload);
            frame.extend([0; 6]);
            let read = TcpPacket::parse(&frame).expect("a packet");
            assert_eq!(read.source_hardware, [2, 2, 2, 2, 2, 9]);
            assert_eq!(read.source.to_string(), "10.0.0.1:5000");
            assert_eq!(read.destination.to_string(), "10.0.0.2:6390");
            assert_eq!(
                (read.is_syn, read.is_ack, read.is_reset),
                (true, false, false)
            );
            assert_eq!(read.ip.len(), IPV4 + TCP + payload.len(), "without padding");
        }
    }

    #[test]
    fn damaged_packets_are_dropped() {
        let whole = packet(b"payload");
        for len in 0..whole.len() {
            assert!(TcpPacket::parse(&whole[..len]).is_none(), "{len} bytes");
        }
        for at in [30, 36, 39, 47, 55, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(TcpPacket::parse(&damaged).is_none(), "byte {at}");
        }
    }

    #[test]
    fn a_checksum_may_be_left_to_a_device() {
        let mut frame = packet(b"payload");
        let ip = &frame[ETHERNET..];
        let partial = fold(sum(&ip[12..20]) + 6 + (ip.len() - IPV4) as u64);
        frame[50..52].copy_from_slice(&partial.to_be_bytes());
        assert!(TcpPacket::parse(&frame).is_some());
    }
}
