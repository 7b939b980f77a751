//! The checksums of outer frames, with Cassandra's polynomial and initial values.
//!
//! | of | checksum | polynomial | starts as |
//! |---|---|---|---|
//! | a frame's header | CRC-24, most significant bit first | 0x1974F0B | 0x875060 |
//! | a frame's payload | CRC-32 (IEEE) | reflected 0xEDB88320 | as if `FA 2D 55 CA` stood before |

const CRC24_POLYNOMIAL: u32 = 0x0197_4f0b;
const CRC24_INITIAL: u32 = 0x0087_5060;
/// The CRC-32 of `FA 2D 55 CA`.
const CRC32_INITIAL: u32 = 0x4477_7ed3;

/// The effect of each byte on a CRC-24.
const CRC24_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Returns the checksum of a frame's header: 24 bits.
#[must_use]
pub(crate) fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, &byte| {
        let index = (crc >> 16) as u8 ^ byte;
        (crc << 8 ^ CRC24_TABLE[usize::from(index)]) & 0x00ff_ffff
    })
}

/// Returns the checksum of a frame's payload.
#[must_use]
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(CRC32_INITIAL);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes it by its definition, bit by bit.
    fn crc24_by_bits(bytes: [u8; 3]) -> u32 {
        let mut crc = CRC24_INITIAL;
        for byte in bytes {
            crc ^= u32::from(byte) << 16;
            for _ in 0..8 {
                crc <<= 1;
                if crc & 0x0100_0000 != 0 {
                    crc ^= CRC24_POLYNOMIAL;
                }
            }
        }
        crc & 0x00ff_ffff
    }

    #[test]
    fn the_table_is_the_definition() {
        let mut random = fastrand::Rng::with_seed(24);
        for _ in 0..1000 {
            let bytes = [random.u8(..), random.u8(..), random.u8(..)];
            assert_eq!(crc24(&bytes), crc24_by_bits(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn the_payload_is_preceded_by_four_bytes() {
        assert_eq!(crc32fast::hash(&[0xfa, 0x2d, 0x55, 0xca]), CRC32_INITIAL);
        assert_eq!(
            crc32(b"body"),
            crc32fast::hash(b"\xfa\x2d\x55\xcabody"),
            "as if they stood before"
        );
    }
}
