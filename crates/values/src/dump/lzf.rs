//! LZF, the compression of long strings in Redis's files.
//!
//! Compressed bytes are a sequence of parts, each of which begins with a byte:
//!
//! | its three highest bits | its other bits | behind it | stand for |
//! |---|---|---|---|
//! | 0 | a length − 1 | the bytes | so many bytes, as they are |
//! | 1 to 6: a length − 2 | the upper bits of a distance − 1 | a byte: its lower bits | so many of the bytes at this distance back |
//! | 7 | the upper bits of a distance − 1 | a byte: the length − 9; a byte: the lower bits | the same |
//!
//! Bytes can be compressed in many ways. [`compress`] takes the one that Redis takes: at each position it looks
//! for the last position whose first three bytes have the same hash, and takes the longest match there.

/// The size of the table of positions by hash.
const HASHES: usize = 1 << 16;
/// The number of bytes that are hashed.
const HASHED: usize = 3;
/// The most bytes of a part that has them as they are.
const MOST_LITERALS: usize = 32;
const LONGEST_MATCH: usize = 264;
const FARTHEST: usize = 1 << 13;
/// The length − 2 from which on it has a byte of its own.
const LONG: usize = 7;
/// The bytes by which the result must be shorter.
const LEAST_SAVED: usize = 4;

/// Compresses bytes; `None`: they do not become shorter by four bytes.
pub(super) fn compress(input: &[u8]) -> Option<Vec<u8>> {
    let limit = input.len().checked_sub(LEAST_SAVED)?;
    let mut out = Vec::new();
    // Position 0 stands for no position.
    let mut positions = vec![0u32; HASHES];
    // Behind the last match.
    let mut behind = 0;
    let mut at = 0;
    while let Some(hash) = hash_at(input, at) {
        let from = std::mem::replace(&mut positions[hash], at as u32) as usize;
        let is_match =
            from > 0 && at - from <= FARTHEST && input[from..][..HASHED] == input[at..][..HASHED];
        if !is_match {
            at += 1;
            continue;
        }
        push_literals(&input[behind..at], &mut out);
        // Redis gives up where a match might not fit, even if it would.
        if out.len() + 4 >= limit {
            return None;
        }
        let length = match_length(input, from, at);
        push_match(length, at - from, &mut out);
        behind = at + length;
        if hash_at(input, behind).is_some() {
            for at in [behind - 2, behind - 1] {
                if let Some(hash) = hash_at(input, at) {
                    positions[hash] = at as u32;
                }
            }
        }
        at = behind;
    }
    let literals = at - behind;
    // Redis gives up here, too, where the last bytes might not fit.
    if out.len() + literals + literals / MOST_LITERALS + 4 > limit {
        return None;
    }
    push_literals(&input[behind..], &mut out);
    Some(out)
}

/// Returns the hash of the bytes at a position; `None`: there are too few.
fn hash_at(input: &[u8], at: usize) -> Option<usize> {
    let &[one, two, three] = input.get(at..)?.first_chunk()?;
    let number = u32::from_be_bytes([0, one, two, three]);
    let hash = (number >> 8).wrapping_sub(number.wrapping_mul(5));
    Some(hash as usize % HASHES)
}

/// Returns the number of bytes at a position that are those at an earlier one, of which three are. Redis leaves the
/// last two bytes of the input out, unless the match is 3 or about 18 bytes long.
fn match_length(input: &[u8], from: usize, at: usize) -> usize {
    let most = LONGEST_MATCH.min(input.len() - at - 2);
    let most = most.max(if most > 16 { 19 } else { HASHED });
    let pairs = input[from..].iter().zip(&input[at..]).take(most);
    pairs.take_while(|(one, other)| one == other).count()
}

fn push_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.chunks(MOST_LITERALS) {
        out.push(part.len() as u8 - 1);
        out.extend_from_slice(part);
    }
}

fn push_match(length: usize, distance: usize, out: &mut Vec<u8>) {
    let (length, distance) = (length - 2, distance - 1);
    out.push((length.min(LONG) << 5 | distance >> 8) as u8);
    if length >= LONG {
        out.push((length - LONG) as u8);
    }
    out.push(distance as u8);
}

/// Decompresses bytes to exactly `length` of them; `None`: they are malformed.
pub(super) fn decompress(mut bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    // The longest match takes three bytes.
    if length > bytes.len().saturating_mul(LONGEST_MATCH / 3) {
        return None;
    }
    let mut out: Vec<u8> = Vec::with_capacity(length);
    while !bytes.is_empty() {
        let control = take_byte(&mut bytes)?;
        let room = length - out.len();
        let (kind, rest) = (control >> 5, control & 0x1f);
        if kind == 0 {
            let (literals, behind) = bytes.split_at_checked(rest + 1)?;
            out.extend_from_slice((literals.len() <= room).then_some(literals)?);
            bytes = behind;
            continue;
        }
        let count = match kind {
            LONG => LONG + take_byte(&mut bytes)?,
            short => short,
        } + 2;
        let distance = (rest << 8 | take_byte(&mut bytes)?) + 1;
        let from = out.len().checked_sub(distance)?;
        if count > room {
            return None;
        }
        for at in from..from + count {
            out.push(out[at]);
        }
    }
    (out.len() == length).then_some(out)
}

fn take_byte(bytes: &mut &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes with matches near and far, short and long.
    fn any_bytes(random: &mut fastrand::Rng) -> Vec<u8> {
        let most = *random.choice(&[60, 20_000]).expect("a length");
        let length = random.usize(..most);
        let kinds = random.u8(1..=255);
        let mut bytes: Vec<u8> = Vec::new();
        while bytes.len() < length {
            if bytes.is_empty() || random.bool() {
                bytes.extend((0..random.usize(..40)).map(|_| random.u8(..kinds)));
                bytes.push(random.u8(..));
            } else {
                let from = random.usize(..bytes.len());
                let end = (from + random.usize(1..400)).min(bytes.len());
                bytes.extend_from_within(from..end);
            }
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn compressed_bytes_are_shorter_and_decompress_to_the_same() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut compressed = 0;
        for _ in 0..2000 {
            let bytes = any_bytes(&mut random);
            let Some(short) = compress(&bytes) else {
                continue;
            };
            compressed += 1;
            assert!(short.len() + LEAST_SAVED <= bytes.len());
            assert_eq!(decompress(&short, bytes.len()).as_ref(), Some(&bytes));
            assert_eq!(decompress(&short, bytes.len() - 1), None);
            assert_eq!(decompress(&short, bytes.len() + 1), None);
        }
        assert!(compressed > 500, "{compressed}");
    }

    #[test]
    fn parts_are_decompressed_one_by_one() {
        assert_eq!(decompress(b"", 0).unwrap(), b"");
        assert_eq!(decompress(b"\x02abc", 3).unwrap(), b"abc");
        assert_eq!(decompress(b"\x00a\x20\x00", 4).unwrap(), b"aaaa");
        assert_eq!(decompress(b"\x01ab\x40\x01", 6).unwrap(), b"ababab");
        assert_eq!(decompress(b"\x00a\xe0\xff\x00", 265).unwrap(), [b'a'; 265]);
        for malformed in [
            &b"\x02ab"[..],
            b"\x20",
            b"\x20\x00",
            b"\x00a\x20\x01",
            b"\x00a\xe0\x00",
            b"\x00a\xe0",
            b"\x00a\x21\x00",
        ] {
            for length in 0..300 {
                assert_eq!(decompress(malformed, length), None, "{malformed:?}");
            }
        }
        assert_eq!(decompress(b"\x00a", usize::MAX), None);
    }
}
