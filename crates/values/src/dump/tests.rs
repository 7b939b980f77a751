//! Payloads of a real server, malformed ones, and random mutations of both.

mod collections;
mod streams;

use base::transaction::Kind;

use super::*;

const LONGEST: usize = 1 << 16;
const NOW_MS: u64 = 1_700_000_000_000;

/// Values, and their payloads as Redis 7.0.15 answers them.
const OF_REDIS: [(&[u8], &[u8]); 19] = [
    (b"", b"\x00\x00\x0a\x00]\x9b\x5c@\x0f\x7f\xa2\xda"),
    (b"abc", b"\x00\x03abc\x0a\x00\xd9\xac0=Ar\xa2\xe2"),
    (b"0", b"\x00\xc0\x00\x0a\x00\x98@\xa7x\xf8P\x03\x08"),
    (b"-1", b"\x00\xc0\xff\x0a\x00\x0c\x93~$\x85\x08\x9d\xc5"),
    (b"127", b"\x00\xc0\x7f\x0a\x00\x0d\xb5\xeb1RT\xc5\x14"),
    (b"128", b"\x00\xc1\x80\x00\x0a\x00\xebz\xb3\xb5\x10\xcfKe"),
    (b"-129", b"\x00\xc1\x7f\xff\x0a\x00\x17`\x82(T\x80\x84\x80"),
    (b"32767", b"\x00\xc1\xff\x7f\x0a\x00IZ7\xda\x17\xf4\xd5+"),
    (
        b"-32769",
        b"\x00\xc2\xff\x7f\xff\xff\x0a\x00\xae\xe3LM\x06\xc6\x856",
    ),
    (
        b"2147483647",
        b"\x00\xc2\xff\xff\xff\x7f\x0a\x00,t\xe5\x9e\xe0.\xad\xa1",
    ),
    (
        b"-2147483648",
        b"\x00\xc2\x00\x00\x00\x80\x0a\x00\xc7O\x87>3U\x81\x87",
    ),
    (
        b"2147483648",
        b"\x00\x0a2147483648\x0a\x00\xe7\xb1)\xa3L\x1dv\xee",
    ),
    (
        b"-2147483649",
        b"\x00\x0b-2147483649\x0a\x00\xc2a7y\x08\xf2\x02\x8c",
    ),
    (b"007", b"\x00\x03007\x0a\x00rX\xe2{Li\xba\xd9"),
    (
        b"9223372036854775807",
        b"\x00\x139223372036854775807\x0a\x00:e~\x94\x81\xe8_\x22",
    ),
    (
        b"xxxxxxxxxxxxxxxxxxxx",
        b"\x00\x14xxxxxxxxxxxxxxxxxxxx\x0a\x00[<\x81\xec\xa5\x8c\xc5k",
    ),
    (
        b"xxxxxxxxxxxxxxxxxxxxx",
        b"\x00\xc3\x06\x15\x01xx\xe0\x0a\x00\x0a\x00\x94\x1a\x83g`\x17\x19/",
    ),
    (
        b"abcdefghijklmnopqrstu",
        b"\x00\x15abcdefghijklmnopqrstu\x0a\x00\xad\x1c#\x02\x9a\x10\xe3\x06",
    ),
    (
        b"to be, or not to be, that is the question",
        b"\x00)to be, or not to be, that is the question\x0a\x00\x1e}\xd6\xdb\x92\xe5a\xc4",
    ),
];

/// Returns what decoding depends on, at a time at which some deadlines have passed.
fn at_time(longest: usize) -> DecodeContext {
    let time_ms = NOW_MS;
    DecodeContext { longest, time_ms }
}

fn encode_string(bytes: &[u8]) -> Vec<u8> {
    let kind = Kind::String;
    encode(StoredBlock { kind, bytes })
}

fn decode_string(payload: &[u8], longest: usize) -> Result<Vec<u8>, PayloadError> {
    let value = decode(payload, at_time(longest))?.expect("no fields expire");
    assert_eq!(value.kind, Kind::String);
    Ok(value.bytes)
}

/// Returns a payload with a right checksum.
fn signed(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = [body, &version.to_le_bytes()].concat();
    let checksum = CRC.checksum(&payload);
    payload.extend(checksum.to_le_bytes());
    payload
}

#[test]
fn payloads_are_those_of_redis() {
    for (value, payload) in OF_REDIS {
        assert_eq!(encode_string(value), payload, "{value:?}");
        assert_eq!(decode_string(payload, LONGEST).as_deref(), Ok(value));
    }
}

fn numbers(count: u32) -> Vec<u8> {
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    numbers.join(",").into_bytes()
}

fn squares(count: u64) -> Vec<u8> {
    (0..count)
        .map(|number| (number * number / 7) as u8)
        .collect()
}

/// Returns bytes with matches at many distances.
fn steps(count: usize) -> Vec<u8> {
    let (mut out, mut state) = (Vec::new(), 1u64);
    while out.len() < count {
        state = (state * 1_103_515_245 + 12345) % (1 << 31);
        if out.len() > 8 && (state >> 16) % 3 > 0 {
            let from = (state >> 8) as usize % out.len();
            let end = from + (state >> 20) as usize % 300 + 1;
            out.extend_from_within(from..end.min(out.len()));
        } else {
            out.push((state >> 12) as u8);
        }
    }
    out.truncate(count);
    out
}

/// Lengths and checksums of payloads are those of Redis 7.0.15.
#[test]
fn long_values_are_compressed_as_in_redis() {
    for (value, length, checksum) in [
        (numbers(10), 31, 0x9d810cabf22afaf8),
        (numbers(100), 302, 0x6e0fea2f10a126aa),
        (numbers(20_000), 56256, 0xf666a87c210c5f68),
        (squares(1000), 946, 0xa9aa3687d47e50d6),
        (squares(70_000), 2355, 0xfd7594f064ad3766),
        (steps(60), 48, 0x5c6a54049b836de1),
        (steps(300), 91, 0x41ae6a07aca4999f),
        (steps(50_000), 9288, 0xc7270d5dd2bdb54e),
        (b"ab".repeat(5000), 137, 0xfa688f639245f5c3),
        (vec![b'x'; 266], 24, 0xabd358d080b8f4d0),
    ] {
        let payload = encode_string(&value);
        assert_eq!(payload.len(), length);
        assert_eq!(
            payload[length - 8..],
            u64::to_le_bytes(checksum),
            "{length}"
        );
        assert_eq!(decode_string(&payload, value.len()), Ok(value));
    }
}

#[test]
fn every_length_is_decoded_again() {
    let mut random = fastrand::Rng::with_seed(1);
    for length in [1, 11, 12, 20, 21, 63, 64, 16_383, 16_384, LONGEST] {
        let bytes: Vec<u8> = (0..length).map(|_| random.u8(128..)).collect();
        for value in [bytes, vec![b'x'; length]] {
            let payload = encode_string(&value);
            assert_eq!(
                decode_string(&payload, length - 1),
                Err(PayloadError::TooLong)
            );
            assert_eq!(decode_string(&payload, length), Ok(value));
        }
    }
}

#[test]
fn footers_are_checked() {
    let payload = encode_string(b"a value");
    for at in 0..payload.len() {
        let mut wrong = payload.clone();
        wrong[at] ^= 1;
        for refused in [&wrong, &payload[..at]] {
            assert_eq!(decode_string(refused, LONGEST), Err(PayloadError::Footer));
        }
    }
    for version in [0, 1, 6, 10, 12] {
        let payload = signed(b"\x00\x01x", version);
        assert_eq!(decode_string(&payload, LONGEST).as_deref(), Ok(&b"x"[..]));
    }
    for version in [13, 256, u16::MAX] {
        let payload = signed(b"\x00\x01x", version);
        assert_eq!(decode_string(&payload, LONGEST), Err(PayloadError::Footer));
    }
}

#[test]
fn malformed_bodies_are_refused() {
    let decoded = |body: &[u8]| decode_string(&signed(body, VERSION), LONGEST);
    for (body, value) in [
        (&b"\x00\x40\x01x"[..], &b"x"[..]),
        (b"\x00\x80\x00\x00\x00\x01x", b"x"),
        (b"\x00\x81\x00\x00\x00\x00\x00\x00\x00\x01x", b"x"),
        (b"\x00\xc3\x04\x04\x00a\x20\x00", b"aaaa"),
        (b"\x00\x01x and more", b"x"),
    ] {
        assert_eq!(decoded(body).as_deref(), Ok(value), "{body:?}");
    }
    for body in [
        &b""[..],
        b"\x00",
        b"\x00\x02x",
        b"\x00\x40",
        b"\x00\x80\x00\x00\x01",
        b"\x00\x80\xff\xff\xff\xffx",
        b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xffx",
        b"\x00\x82x",
        b"\x00\xc0",
        b"\x00\xc1\x00",
        b"\x00\xc2\x00\x00\x00",
        b"\x00\xc4",
        b"\x00\xff",
        b"\x00\xc3\x02\x05\x00a",
        b"\x00\xc3\xc0\x01\x00a",
        b"\x00\xc3\x02\x80\x00\x01\x00\x00\x00a",
        b"\x06\x01\x01x",
        b"\xff",
    ] {
        assert_eq!(decoded(body), Err(PayloadError::Malformed), "{body:?}");
    }
    let long = b"\x00\xc3\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00a";
    assert_eq!(decoded(long), Err(PayloadError::TooLong));
}
