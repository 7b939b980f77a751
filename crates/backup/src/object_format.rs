//! The bytes of an object: what was put in, with checksums, and encrypted if there is a key.
//!
//! A header of 64 bytes (integers are little-endian):
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKIBK` |
//! | 8 | 4 | version | of this format: 1 |
//! | 12 | 4 | cipher | 0: none; 1: AES-256-GCM |
//! | 16 | 4 | piece | the bytes of each piece but the last, which has fewer, or as many, or none |
//! | 20 | 4 | – | zero |
//! | 24 | 32 | salt | random |
//! | 56 | 4 | – | zero |
//! | 60 | 4 | checksum | CRC-32C of bytes 0…59 |
//!
//! The pieces follow. A piece is its bytes and what proves them: without a cipher the CRC-32C of the header, the
//! object's name, the piece's number (8 bytes), whether it is the last one (1 byte), and the bytes; with one the tag
//! of 16 bytes. The nonce is the piece's number (8 bytes), whether it is the last one (1 byte), and zeros; the data
//! that is authenticated besides is the header and the object's name.
//!
//! Invariants:
//! 1. A change of any byte, a missing end, and an object that got another one's name are noticed, with the place.
//! 2. The last piece is marked as such, so that the end of the object cannot be cut off between two pieces.

use crate::encryption_key::{EncryptionKey, ObjectKey, TAG};

const MAGIC: [u8; 8] = *b"KUMIKIBK";
pub(crate) const VERSION: u32 = 1;
const HEADER: usize = 64;
const CHECKSUM: usize = 4;
/// The bytes of a piece.
const PIECE: usize = 64 << 10;
const SALT: usize = 32;

/// The reason why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadObject {
    /// It is damaged: the offset, and what is wrong there.
    Damaged(u64, String),
    /// It is of a later version.
    Newer(u32),
    /// It is encrypted, and there is no key; or it is not, and there is one.
    OtherCipher,
}

/// Encodes an object.
pub(crate) fn encode(
    name: &str,
    content: &[u8],
    key: Option<&EncryptionKey>,
    salt: [u8; SALT],
) -> Vec<u8> {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    for (at, word) in [
        (8, VERSION),
        (12, u32::from(key.is_some())),
        (16, PIECE as u32),
    ] {
        header[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    header[24..24 + SALT].copy_from_slice(&salt);
    let checksum = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&checksum.to_le_bytes());
    let proof = PieceProof::new(&header, name, key);
    let pieces = content.len().div_ceil(PIECE).max(1);
    let mut bytes = Vec::with_capacity(HEADER + content.len() + pieces * proof.length());
    bytes.extend(header);
    let mut piece = Vec::new();
    for number in 0..pieces {
        let from = number * PIECE;
        piece.clear();
        piece.extend_from_slice(&content[from..content.len().min(from + PIECE)]);
        proof.add(number as u64, number + 1 == pieces, &mut piece);
        bytes.extend_from_slice(&piece);
    }
    bytes
}

/// Decodes an object.
pub(crate) fn decode(
    name: &str,
    mut bytes: Vec<u8>,
    key: Option<&EncryptionKey>,
) -> Result<Vec<u8>, BadObject> {
    let piece = check_header(&bytes, key.is_some())?;
    let (header, mut rest) = bytes.split_at_mut(HEADER);
    let proof = PieceProof::new(header, name, key);
    let mut content = Vec::with_capacity(rest.len());
    let (mut number, mut at) = (0, HEADER as u64);
    loop {
        let whole = (piece + proof.length()).min(rest.len());
        let (one, others) = rest.split_at_mut(whole);
        let is_last = others.is_empty();
        let found = proof.check(number, is_last, one);
        let found = found.ok_or_else(|| {
            let what = match is_last {
                true => "its content is damaged, or its end is missing, or it is another file",
                false => "its content is damaged, or it is another file",
            };
            BadObject::Damaged(at, what.to_owned())
        })?;
        content.extend_from_slice(found);
        if is_last {
            return Ok(content);
        }
        (number, at, rest) = (number + 1, at + whole as u64, others);
    }
}

/// Checks the header. Returns the bytes of a piece.
fn check_header(bytes: &[u8], has_key: bool) -> Result<usize, BadObject> {
    let damaged = |at, what: &str| Err(BadObject::Damaged(at, what.to_owned()));
    if bytes.len() < HEADER {
        return damaged(bytes.len() as u64, "it ends within its header");
    }
    if bytes[..8] != MAGIC {
        return damaged(0, "it is no file of a backup");
    }
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let version = word(8);
    // A flipped bit in the version would read as a later one just as well; a version in the near future is the
    // better guess.
    if version > VERSION && version < VERSION + 1000 {
        return Err(BadObject::Newer(version));
    }
    if word(60) != crc32c::crc32c(&bytes[..60]) {
        return damaged(0, "its header is damaged");
    }
    if version != VERSION || word(12) > 1 || word(16) == 0 {
        return damaged(8, "its header has values that there never were");
    }
    if (word(12) == 1) != has_key {
        return Err(BadObject::OtherCipher);
    }
    Ok(word(16) as usize)
}

/// What proves the pieces of an object.
struct PieceProof {
    /// The header and the object's name.
    bound: Vec<u8>,
    key: Option<ObjectKey>,
}

impl PieceProof {
    fn new(header: &[u8], name: &str, key: Option<&EncryptionKey>) -> PieceProof {
        PieceProof {
            bound: [header, name.as_bytes()].concat(),
            key: key.map(|key| key.of_object(&header[24..24 + SALT])),
        }
    }

    /// Returns the bytes that it adds to a piece.
    fn length(&self) -> usize {
        if self.key.is_some() { TAG } else { CHECKSUM }
    }

    fn add(&self, number: u64, is_last: bool, piece: &mut Vec<u8>) {
        match &self.key {
            Some(key) => key.seal(number, is_last, &self.bound, piece),
            None => {
                let checksum = self.checksum(number, is_last, piece);
                piece.extend(checksum.to_le_bytes());
            }
        }
    }

    fn check<'a>(&self, number: u64, is_last: bool, piece: &'a mut [u8]) -> Option<&'a [u8]> {
        if let Some(key) = &self.key {
            return key.open(number, is_last, &self.bound, piece);
        }
        let (content, checksum) = piece.split_last_chunk::<CHECKSUM>()?;
        let is_sound = self.checksum(number, is_last, content) == u32::from_le_bytes(*checksum);
        is_sound.then_some(content)
    }

    fn checksum(&self, number: u64, is_last: bool, content: &[u8]) -> u32 {
        let mut checksum = crc32c::crc32c(&self.bound);
        let number = number.to_le_bytes();
        for part in [&number[..], &[u8::from(is_last)], content] {
            checksum = crc32c::crc32c_append(checksum, part);
        }
        checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME_SALT: [u8; SALT] = [7; SALT];

    fn key(digits: &str) -> EncryptionKey {
        EncryptionKey::parse(&digits.repeat(32)).unwrap()
    }

    #[test]
    fn objects_come_back_and_any_change_is_noticed_with_its_place() {
        let key = key("5a");
        for key in [None, Some(&key)] {
            let proof = if key.is_some() { TAG } else { CHECKSUM };
            for length in [0, 1, 100, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 3] {
                let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                let bytes = encode("a/b", &content, key, SOME_SALT);
                assert_eq!(decode("a/b", bytes.clone(), key), Ok(content));
                let step = (bytes.len() / 97).max(1);
                for at in (0..HEADER).chain((HEADER..bytes.len()).step_by(step)) {
                    let mut bad = bytes.clone();
                    bad[at] ^= 16;
                    let begin = match at.checked_sub(HEADER) {
                        None => 0..HEADER as u64,
                        Some(at) => {
                            let piece = HEADER + at / (PIECE + proof) * (PIECE + proof);
                            piece as u64..piece as u64 + 1
                        }
                    };
                    match decode("a/b", bad, key) {
                        Err(BadObject::Damaged(at, _)) => assert!(begin.contains(&at), "{at}"),
                        Err(BadObject::Newer(_)) => assert!((8..12).contains(&at)),
                        other => panic!("byte {at} of {length}: {other:?}"),
                    }
                    let cut = decode("a/b", bytes[..at].to_vec(), key);
                    assert!(matches!(cut, Err(BadObject::Damaged(..))), "{at}");
                }
                assert!(decode("a/c", bytes, key).is_err(), "it is another one's");
            }
        }
    }

    #[test]
    fn an_end_that_is_cut_off_between_pieces_is_missed() {
        let content = vec![1; 2 * PIECE];
        let bytes = encode("x", &content, None, SOME_SALT);
        let cut = HEADER + PIECE + CHECKSUM;
        let found = decode("x", bytes[..cut].to_vec(), None);
        assert!(matches!(found, Err(BadObject::Damaged(at, _)) if at == HEADER as u64));
    }

    #[test]
    fn only_the_right_key_opens_an_object() {
        let (one, other) = (key("11"), key("12"));
        let bytes = encode("x", b"secret", Some(&one), SOME_SALT);
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
        let with = |key| decode("x", bytes.clone(), key);
        assert!(matches!(with(Some(&other)), Err(BadObject::Damaged(64, _))));
        assert_eq!(with(None), Err(BadObject::OtherCipher));
        let plain = encode("x", b"open", None, SOME_SALT);
        assert_eq!(decode("x", plain, Some(&one)), Err(BadObject::OtherCipher));
    }

    #[test]
    fn a_newer_version_is_distinguished_from_damage() {
        let mut bytes = encode("x", b"", None, SOME_SALT);
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        assert_eq!(decode("x", bytes, None), Err(BadObject::Newer(VERSION + 1)));
    }
}
