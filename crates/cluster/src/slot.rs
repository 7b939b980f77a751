//! The slot of a key, exactly as Redis Cluster computes it.
//!
//! A key's slot is the CRC16 of its *tag*, modulo 16,384. The tag is the text between the first `{` and
//! the first `}` behind it, if that is not empty; otherwise it is the whole key. Keys that share a tag
//! share a slot.
//!
//! | key | tag |
//! |---|---|
//! | `user:1` | `user:1` |
//! | `{user:1}.name` | `user:1` |
//! | `{}name` | `{}name` |
//! | `a{{b}}c` | `{b` |
//! | `a{b}{c}` | `b` |
//! | `a{b` | `a{b` |
//!
//! The CRC is XMODEM's: polynomial 0x1021, begins with 0, neither reflected nor inverted.

use base::database;

/// Number of slots.
pub const SLOTS: u16 = 16_384;

/// Returns the slot of a key. A key of another database than 0 has the slot of the client's key.
#[must_use]
pub fn of(key: &[u8]) -> u16 {
    crc16(tag(database::client_key(key))) % SLOTS
}

/// Returns the part of a key that determines its slot.
#[must_use]
pub fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let inner = &key[open + 1..];
    match inner.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(len) => &inner[..len],
    }
}

/// Returns the CRC16 as XMODEM computes it.
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    let (chunks, rest) = bytes.as_chunks::<4>();
    // Four bytes at a time: the look-ups of a chunk do not depend on each other.
    let crc = chunks.iter().fold(0_u16, |crc, chunk| {
        let [high, low] = crc.to_be_bytes();
        TABLES[3][usize::from(chunk[0] ^ high)]
            ^ TABLES[2][usize::from(chunk[1] ^ low)]
            ^ TABLES[1][usize::from(chunk[2])]
            ^ TABLES[0][usize::from(chunk[3])]
    });
    rest.iter().fold(crc, |crc, &byte| {
        let [high, low] = crc.to_be_bytes();
        u16::from_be_bytes([low, 0]) ^ TABLES[0][usize::from(byte ^ high)]
    })
}

/// `TABLES[n][byte]` is the CRC of `byte` followed by `n` zeros.
static TABLES: [[u16; 256]; 4] = tables();

const fn tables() -> [[u16; 256]; 4] {
    let mut tables = [[0_u16; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut table = 0;
        while table < 4 {
            let mut bit = 0;
            while bit < 8 {
                crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
                bit += 1;
            }
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the CRC by its definition, a bit at a time.
    fn crc16_by_bits(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc: u16, _| {
                (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
            })
        })
    }

    #[test]
    fn known_checksums_come_out() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"A"), 0x58E5);
    }

    #[test]
    fn the_tables_agree_with_the_definition() {
        let mut random = fastrand::Rng::with_seed(7);
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            assert_eq!(crc16(&bytes), crc16_by_bits(&bytes), "{bytes:?}");
        }
    }

    #[test]
    fn keys_have_the_slots_that_redis_documents() {
        for (key, slot) in [
            ("foo", 12182),
            ("bar", 5061),
            ("hello", 866),
            ("somekey", 11058),
            ("foo{hash_tag}", 2515),
            ("bar{hash_tag}", 2515),
            ("", 0),
        ] {
            assert_eq!(of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn the_first_tag_that_is_not_empty_decides() {
        for (key, expected) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("{}foo", "{}foo"),
            ("foo{bar", "foo{bar"),
            ("foo}bar{", "foo}bar{"),
            ("}{a}", "a"),
            ("{", "{"),
            ("{}", "{}"),
            ("{a}", "a"),
        ] {
            assert_eq!(tag(key.as_bytes()), expected.as_bytes(), "{key}");
        }
        assert_eq!(of(b"{foo}bar"), of(b"foo"));
        for database in [1, 0x7b7b] {
            assert_eq!(of(&database::qualified(database, b"{foo}bar")), of(b"foo"));
        }
    }
}
