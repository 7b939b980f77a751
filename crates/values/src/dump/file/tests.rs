use base::transaction::Kind;

use super::*;
use crate::dump::{DecodeContext, decode, writer};

const LONGEST: usize = 1 << 16;

/// Returns a file of a version with these items, and its end.
fn file(head: &[u8], items: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [head, &items.concat(), &[END]].concat();
    let checksum = CRC.checksum(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    writer::string(bytes, &mut out);
    out
}

fn key(kind: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    [&[kind][..], &string(key), value].concat()
}

fn read(bytes: &[u8]) -> Result<Vec<RdbItem>, RdbError> {
    let mut reader = RdbReader::new(bytes, LONGEST)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next_item()? {
        items.push(item);
    }
    Ok(items)
}

/// Returns a file with everything that such files can have, and the number of its keys.
fn everything() -> (Vec<u8>, usize) {
    let long =
        b"a text that is repeated, a text that is repeated, a text that is repeated".repeat(9);
    let text_scores = [&[2][..], &string(b"a"), &[3], b"1.5", &string(b"b"), &[254]].concat();
    let id = [0; 16];
    let stream = [
        // No node; no entry, the last id, the first, the deleted one, the entries that were added.
        &[0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        // A group with a pending entry and a consumer that has it.
        &[1],
        &string(b"group"),
        &[0, 0, 0, 1],
        &id,
        &[0; 8],
        &[1, 1],
        &string(b"consumer"),
        &[0; 16],
        &[1],
        &id,
    ]
    .concat();
    let items: &[&[u8]] = &[
        &[&[PROPERTY][..], &string(b"redis-ver"), &string(b"7.0.15")].concat(),
        &[
            &[MODULE, 5, 2, 1, 1, 7, 3, 0, 0, 0, 0, 4][..],
            &[0; 8],
            &[5],
            &string(b"x"),
            &[0],
        ]
        .concat(),
        &[&[LIBRARY][..], &string(b"#!lua name=l")].concat(),
        &[DATABASE, 0, SIZES, 3, 1, SLOT, 1, 2, 3],
        &key(types::STRING, b"s", &string(b"12")),
        &key(types::STRING, b"long", &string(&long)),
        &[&[DEADLINE_MS][..], &1_700_000_000_123_u64.to_le_bytes()].concat(),
        &[IDLE_TIME, 9],
        &key(
            types::HASH,
            b"h",
            &[&[1][..], &string(b"field"), &string(b"value")].concat(),
        ),
        &[DATABASE, 3],
        &[
            &[DEADLINE_SECONDS][..],
            &1_700_000_000_u32.to_le_bytes(),
            &[FREQUENCY, 200],
        ]
        .concat(),
        &key(
            types::LIST,
            b"l",
            &[&[2][..], &string(b"a"), &string(b"b")].concat(),
        ),
        &key(types::SORTED_SET_TEXT, b"z", &text_scores),
        &key(types::STREAM_3, b"x", &stream),
    ];
    (file(b"REDIS0011", items), 6)
}

fn keys(items: &[RdbItem]) -> impl Iterator<Item = (&[u8], Option<u64>, &RdbValue)> {
    items.iter().filter_map(|item| match item {
        RdbItem::Key {
            key,
            deadline,
            value,
        } => Some((&key[..], *deadline, value)),
        _ => None,
    })
}

#[test]
fn items_are_read() {
    let (bytes, count) = everything();
    let items = read(&bytes).expect("it is a file");
    assert_eq!(keys(&items).count(), count);
    assert!(items.contains(&RdbItem::Library(b"#!lua name=l".to_vec())));
    assert!(items.contains(&RdbItem::Database(3)));
    let (name, value) = (b"redis-ver".to_vec(), b"7.0.15".to_vec());
    assert!(items.contains(&RdbItem::Property { name, value }));
    let of = |wanted: &[u8]| {
        keys(&items)
            .find(|(key, ..)| *key == wanted)
            .expect("it is there")
    };
    assert_eq!(of(b"s").2, &RdbValue::String(b"12".to_vec()));
    assert_eq!(of(b"s").1, None);
    let long =
        b"a text that is repeated, a text that is repeated, a text that is repeated".repeat(9);
    assert_eq!(of(b"long").2, &RdbValue::String(long));
    assert_eq!(of(b"h").1, Some(1_700_000_000_123));
    assert_eq!(of(b"l").1, Some(1_700_000_000_000));
    assert_eq!(of(b"z").1, None);
    let context = DecodeContext {
        longest: LONGEST,
        time_ms: 0,
    };
    for (key, kind) in [
        (&b"h"[..], Kind::Hash),
        (b"l", Kind::List),
        (b"z", Kind::SortedSet),
        (b"x", Kind::Stream),
    ] {
        let RdbValue::Payload(payload) = of(key).2 else {
            panic!("it has a payload");
        };
        let decoded = decode(payload, context).expect("RESTORE takes it");
        assert_eq!(decoded.expect("it exists").kind, kind);
    }
}

#[test]
fn a_file_that_ends_anywhere_is_refused_and_the_position_named() {
    let (bytes, _) = everything();
    for end in 0..bytes.len() {
        match read(&bytes[..end]) {
            Err(RdbError::Other) => assert!(end < 9),
            Err(RdbError::Truncated { position }) => {
                assert!((9..=end as u64).contains(&position), "{end}: {position}");
            }
            other => panic!("{end}: {other:?}"),
        }
    }
}

#[test]
fn a_byte_that_was_changed_is_found() {
    let (bytes, _) = everything();
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
    }
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let message = |bytes: &[u8]| read(bytes).expect_err("it is refused").to_string();
    assert!(message(b"").contains("no file of Redis"));
    assert!(message(b"*2\r\n$6\r\nSELECT").contains("no file of Redis"));
    assert!(message(b"REDIS0099\xff").contains("version 99"));
    assert!(message(&file(b"VALKEY081", &[])).contains("version 81"));
    assert!(read(&file(b"VALKEY080", &[])).is_ok());
    let module = file(b"REDIS0011", &[&key(MODULE_VALUE_2, b"m", &[0])]);
    assert!(message(&module).contains("byte 9: the key 'm'"));
    assert!(message(&module).contains("a module wrote it"));
    let early = file(b"REDIS0010", &[&[EARLY_LIBRARY, 0]]);
    assert!(message(&early).contains("release candidate"));
    let behind = [&file(b"REDIS0011", &[])[..], b"*1\r\n"].concat();
    assert!(message(&behind).contains("byte 18: something follows"));
    let long = [&[types::STRING, 1, b'k', WIDE_LENGTH][..], &[0x7f; 4]].concat();
    let long = file(b"REDIS0011", &[&long]);
    assert!(message(&long).contains("more than 65536 bytes"));
}

#[test]
fn a_file_without_a_checksum_is_read() {
    let (mut bytes, count) = everything();
    let end = bytes.len() - 8;
    bytes[end..].fill(0);
    assert_eq!(keys(&read(&bytes).expect("it is a file")).count(), count);
}
