//! The data that two sides exchange in order to connect.
//!
//! An address, in bytes; numbers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version of this table, today 1 |
//! | 1 | 1 | how ports name each other: 1 InfiniBand by local address, 2 InfiniBand by global address, 3 RoCE v1, 4 RoCE v2 |
//! | 2 | 1 | bytes of a packet: 1 for 256, …, 5 for 4096 |
//! | 3 | 1 | reads that are served at a time |
//! | 4 | 4 | number of the queue pair, 24 bits |
//! | 8 | 4 | number of the first packet that it will send, 24 bits |
//! | 12 | 2 | the port's local address; zero on Ethernet |
//! | 14 | 2 | messages for which there is memory |
//! | 16 | 4 | bytes of the memory for each |
//! | 20 | 4 | zero |
//! | 24 | 16 | the port's global address, in network order |
//!
//! It travels over a link whose peer has proved its identity, and is valid for one connection only:
//! a queue pair takes packets from the one that it was connected to.

/// The way in which ports name each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressKind {
    /// InfiniBand, within a subnet.
    Local,
    /// InfiniBand, across subnets.
    Global,
    /// Ethernet, within a segment.
    RoceV1,
    /// Ethernet, over IP.
    RoceV2,
}

/// The data that a peer needs in order to connect to a queue pair of this side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePairAddress {
    pub(super) naming: AddressKind,
    pub(super) mtu: u8,
    pub(super) reads: u8,
    pub(super) pair: u32,
    pub(super) first_packet: u32,
    pub(super) lid: u16,
    pub(super) receives: u16,
    pub(super) receive_bytes: u32,
    pub(super) gid: [u8; 16],
}

/// The version of the table.
const VERSION: u8 = 1;

impl QueuePairAddress {
    /// The length of an address in bytes.
    pub const LEN: usize = 40;

    /// Appends the address: [`QueuePairAddress::LEN`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let naming = match self.naming {
            AddressKind::Local => 1,
            AddressKind::Global => 2,
            AddressKind::RoceV1 => 3,
            AddressKind::RoceV2 => 4,
        };
        out.extend([VERSION, naming, self.mtu, self.reads]);
        out.extend(self.pair.to_le_bytes());
        out.extend(self.first_packet.to_le_bytes());
        out.extend(self.lid.to_le_bytes());
        out.extend(self.receives.to_le_bytes());
        out.extend(self.receive_bytes.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.gid);
    }

    /// Reads an address. Returns `None` if these bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<QueuePairAddress> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let four = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let naming = match bytes[1] {
            1 => AddressKind::Local,
            2 => AddressKind::Global,
            3 => AddressKind::RoceV1,
            4 => AddressKind::RoceV2,
            _ => return None,
        };
        let (_, gid) = bytes.split_last_chunk()?;
        let address = QueuePairAddress {
            naming,
            mtu: bytes[2],
            reads: bytes[3],
            pair: four(4),
            first_packet: four(8),
            lid: two(12),
            receives: two(14),
            receive_bytes: four(16),
            gid: *gid,
        };
        let receives = match address.receives {
            0 => true,
            _ => address.receive_bytes >= 8 && address.receive_bytes.is_multiple_of(8),
        };
        let numbers = address.pair < 1 << 24 && address.first_packet < 1 << 24;
        let sizes = (1..=5).contains(&address.mtu) && address.reads > 0;
        let known = bytes[0] == VERSION && four(20) == 0;
        (known && numbers && sizes && receives).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(naming: AddressKind) -> QueuePairAddress {
        QueuePairAddress {
            naming,
            mtu: 3,
            reads: 16,
            pair: 0x12_3456,
            first_packet: 0xab_cdef,
            lid: 7,
            receives: 64,
            receive_bytes: 4096,
            gid: *b"0123456789abcdef",
        }
    }

    fn encoded(address: &QueuePairAddress) -> Vec<u8> {
        let mut bytes = Vec::new();
        address.encode(&mut bytes);
        bytes
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for naming in [
            AddressKind::Local,
            AddressKind::Global,
            AddressKind::RoceV1,
            AddressKind::RoceV2,
        ] {
            let address = address(naming);
            let mut bytes = encoded(&address);
            assert_eq!(bytes.len(), QueuePairAddress::LEN);
            assert_eq!(QueuePairAddress::decode(&bytes), Some(address));
            for cut in 0..bytes.len() {
                assert_eq!(QueuePairAddress::decode(&bytes[..cut]), None);
            }
            bytes.push(0);
            assert_eq!(QueuePairAddress::decode(&bytes), None);
        }
    }

    #[test]
    fn bytes_are_where_the_table_says() {
        let bytes = encoded(&address(AddressKind::RoceV2));
        assert_eq!(bytes[..8], [1, 4, 3, 16, 0x56, 0x34, 0x12, 0]);
        assert_eq!(bytes[8..16], [0xef, 0xcd, 0xab, 0, 7, 0, 64, 0]);
        assert_eq!(bytes[16..24], [0, 16, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[24..], b"0123456789abcdef");
    }

    #[test]
    fn what_no_side_says_is_no_address() {
        let bytes = encoded(&address(AddressKind::Local));
        let wrong = [
            (0, 2),
            (1, 0),
            (1, 5),
            (2, 0),
            (2, 6),
            (3, 0),
            (7, 1),
            (11, 1),
            (16, 4),
            (20, 1),
        ];
        for (at, byte) in wrong {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(QueuePairAddress::decode(&other), None, "{byte} at {at}");
        }
    }
}
