//! Payloads of collections.

use std::borrow::Cow;

use base::transaction::Kind;

use super::super::*;
use super::{LONGEST, NOW_MS, OF_REDIS, at_time, numbers, signed, squares, steps, streams};
use crate::collection_editor::canonical;
use crate::fuzz::fuzz_payload;
use crate::packed::{BlockForm, PackedEditor, PackedView};
use crate::score;

/// The elements of a collection: of a hash its fields and values in turn, of a sorted set its members and scores.
type Elements = Vec<Cow<'static, str>>;

fn stored(kind: Kind, elements: &Elements) -> Vec<u8> {
    let is_integer = |element: &Cow<'_, str>| element.parse::<i64>().is_ok();
    let form = match kind {
        Kind::Hash => BlockForm::Pairs,
        Kind::Set if elements.iter().all(is_integer) => BlockForm::Integers,
        _ => BlockForm::Single,
    };
    let mut block = PackedEditor::new(form, b"");
    let is_pairs = matches!(kind, Kind::Hash | Kind::SortedSet);
    for element in elements.chunks(if is_pairs { 2 } else { 1 }) {
        let first = element[0].as_bytes();
        match kind {
            Kind::SortedSet => {
                let score = element[1].parse().expect("a score");
                block.push(&[&score::sortable(score), first].concat(), b"");
            }
            Kind::Hash => block.push(first, element[1].as_bytes()),
            _ => block.push(first, b""),
        }
    }
    block.into_changed().expect("it has elements")
}

/// Decodes a payload in which no fields of a hash expire.
fn decoded(payload: &[u8], longest: usize) -> Result<DumpedValue, PayloadError> {
    decode(payload, at_time(longest)).map(|value| value.expect("fields are left"))
}

fn payload(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    encode(StoredBlock { kind, bytes })
}

fn of(elements: &[&'static str]) -> Elements {
    elements.iter().map(|element| Cow::from(*element)).collect()
}

/// Returns collections, and their payloads as Redis 7.0.15 answers them.
fn of_redis() -> Vec<(Kind, Elements, &'static [u8])> {
    let long = |byte: &str, count| Cow::from(byte.repeat(count));
    let mut integers = of(&[
        "0",
        "127",
        "128",
        "-1",
        "4095",
        "4096",
        "-4096",
        "-4097",
        "32767",
        "32768",
        "-32768",
        "-32769",
        "8388607",
        "8388608",
        "-8388608",
        "-8388609",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9223372036854775807",
        "-9223372036854775807",
        "007",
        "1.5",
        "",
    ]);
    integers.extend([long("x", 63), long("x", 64)]);
    vec![
        (
            Kind::Hash,
            of(&["field", "value", "n", "17", "", "x"]),
            b"\x10\x1f\x1f\x00\x00\x00\x06\x00\x85field\x06\x85value\x06\x81n\x02\x11\x01\x80\x01\x81x\x02\xff\x0a\x006\x15\x00\xfay\xa2\x84A",
        ),
        (
            Kind::Hash,
            vec!["a".into(), long("abcdefghij", 7)],
            b"\x04\x01\x01a\xc3\x12@F\x0aabcdefghija\xe00\x09\x01ij\x0a\x00\x85r\x1e\x1d\xeb\xa0\xb7z",
        ),
        (
            Kind::List,
            integers,
            b"\x12\x01\x02\xc3@\x91A\x0b\x1f\x0b\x01\x00\x00\x1b\x00\x00\x01\x7f\x01\xc0\x80\x02\xdf\xff\x02\xcf\xff\x02\xf1\x00\x10\x03\xd0\x00\x02\xf1\xff\xef\x03\xf1\xff\x16\x7f\x03\xf2\x00\x80\x00\x04\xf1\x00\x80\x03\xf2\xff\x7f\xff\x04\xf2\xff\xff\x7f\x04\xf3\x00 \x13\x01\x05\xf2 \x05\x01\x04\xf3 \x0f\x01\xff\x05 \x05\x04\xff\x7f\x05\xf4\x00 \x11 \x03\x01\x00\x09  \x03\x00\x80\x05\xf4@\x15 \x03\x01\xff\x09@\x09@\x00\x02\x7f\x09\xf4 o@\x00\x0f\x80\x09\x83007\x04\x831.5\x04\x80\x01\xbfx\xe05\x00\x02@\xe0@\xe05@\x03xxB\xff\x0a\x00\xe9\xf0\x9ee?BR\x00",
        ),
        (
            Kind::Set,
            of(&["-3", "0", "5"]),
            b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xfd\xff\x00\x00\x05\x00\x0a\x00*\xb8C\x06\xeag\x12G",
        ),
        (
            Kind::Set,
            of(&["-3", "5", "70000"]),
            b"\x0b\x14\x04\x00\x00\x00\x03\x00\x00\x00\xfd\xff\xff\xff\x05\x00\x00\x00p\x11\x01\x00\x0a\x00\x9d\xb0g\xc26\xa6_?",
        ),
        (
            Kind::Set,
            of(&["-3", "5", "7000000000"]),
            b"\x0b \x08\x00\x00\x00\x03\x00\x00\x00\xfd\xff\xff\xff\xff\xff\xff\xff\x05\x00\x00\x00\x00\x00\x00\x00\x00\x86;\xa1\x01\x00\x00\x00\x0a\x00\x8f\xc4\x15K\xc0U@\xc6",
        ),
        (
            Kind::Set,
            of(&["one"]),
            b"\x02\x01\x03one\x0a\x00|4k\x05\x91\xe5\xd2\x0c",
        ),
        (
            Kind::SortedSet,
            of(&[
                "d", "-inf", "b", "-1.5", "g", "0", "f", "0.1", "one", "1", "e", "1e17", "j", "3.5e18", "i", "4611686018427387904", "h", "1e20", "c", "inf",
]),
            b"\x11\xc3@h@v\x10v\x00\x00\x00\x14\x00\x81d\x02\x84-inf\x05\x81b \x08\x101.5\x05\x81g\x02\x00\x01\x81f\x02\x930.10\xe0\x05\x00\x171\x14\x83one\x04\x01\x01\x81e\x02\xf4\x00\x00\x8a]xEc\x01\x09\x81j@\x0c\x08\xde\xc9t\x7f\x920\x09\x81i@\x0c`\x00\x0f@\x09\x81h\x02\x851e+20\x06\x81c\x02\x83 e\x01\x04\xff\x0a\x00\x97>\xab\x1a\xd1\xf1\x14\x0f",
        ),
        (
            Kind::SortedSet,
            vec!["one".into(), "1".into(), long("z", 65), "2.5".into()],
            b"\x05\x02\xc3\x09@A\x01zz\xe04\x00\x01zz\x00\x00\x00\x00\x00\x00\x04@\x03one\x00\x00\x00\x00\x00\x00\xf0?\x0a\x00\x80M\x0b\x5cy\xa4\xde\x88",
        ),
    ]
}

#[test]
fn payloads_of_collections_are_those_of_redis() {
    for (kind, elements, expected) in of_redis() {
        let bytes = stored(kind, &elements);
        assert_eq!(payload(kind, &bytes), expected, "{elements:?}");
        assert_eq!(decoded(expected, LONGEST), Ok(DumpedValue { kind, bytes }));
    }
}

/// Lengths and checksums of payloads are those of Redis 7.0.15.
#[test]
fn large_collections_are_encoded_as_in_redis() {
    let each = |count: usize, element: fn(usize) -> Vec<String>| -> Elements {
        (0..count).flat_map(element).map(Cow::from).collect()
    };
    let wide = [
        8000, 200, 5, 8176, 1, 8180, 8190, 9000, 16376, 16377, 16378, 16379, 16380, 100_000, 3,
    ];
    let half = |member: usize| vec![format!("m{member}"), format!("{}", member as f64 * 0.5)];
    let tenths = |member: usize| {
        let score = member as f64 * 0.3 - 10.0;
        vec![format!("m{member}"), score.to_string()]
    };
    let square = |field: usize| vec![format!("f{field}"), format!("v{}", field * field)];
    let triple = |number: usize| vec![number.to_string().repeat(3)];
    let wide = wide.map(|length| Cow::from("x".repeat(length))).to_vec();
    for (kind, elements, length, checksum) in [
        (
            Kind::List,
            each(5000, triple),
            34101,
            0xf07d_28ec_cf48_4ac7_u64,
        ),
        (Kind::List, wide, 2899, 0x2168_4d2d_9f15_0baf),
        (
            Kind::List,
            each(70_000, |_| vec!["7".into()]),
            1927,
            0xcb55_5dc5_03d3_6d7d,
        ),
        (
            Kind::Set,
            each(512, |number| vec![(number * 3).to_string()]),
            1045,
            0x81de_de35_b6af_0c51,
        ),
        (Kind::Hash, each(500, square), 4074, 0x0085_4354_5eba_e1b8),
        (
            Kind::SortedSet,
            each(128, tenths),
            1368,
            0x169b_62d2_1040_9700,
        ),
        (
            Kind::SortedSet,
            each(300, half),
            3803,
            0xf60e_2e26_a396_817b,
        ),
    ] {
        let bytes = stored(kind, &elements);
        let payload = payload(kind, &bytes);
        assert_eq!(payload.len(), length);
        let found = payload.last_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        assert_eq!(found, Some(checksum), "{kind:?} of {length}");
        let found = decoded(&payload, bytes.len());
        let too_long = decoded(&payload, bytes.len() - 1);
        assert_eq!(too_long, Err(PayloadError::TooLong));
        assert!(
            found == Ok(DumpedValue { kind, bytes }),
            "{kind:?} of {length}"
        );
    }
}

/// Returns a string of a payload.
fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    writer::length(bytes.len(), &mut out);
    out.extend_from_slice(bytes);
    out
}

/// Returns a ziplist of these entries, which are without the lengths before them.
fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let mut block = vec![0; 10];
    let (mut last, mut before) = (10, 0);
    for entry in entries {
        last = block.len();
        match before {
            254.. => {
                block.push(254);
                block.extend((before as u32).to_le_bytes());
            }
            _ => block.push(before as u8),
        }
        block.extend_from_slice(entry);
        before = block.len() - last;
    }
    block.push(255);
    let length = block.len() as u32;
    block[..4].copy_from_slice(&length.to_le_bytes());
    block[4..8].copy_from_slice(&(last as u32).to_le_bytes());
    block[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    block
}

/// Returns payloads in encodings that are only read, without their footers, and their values.
fn of_other_releases() -> Vec<(Vec<u8>, Kind, Elements)> {
    let body = |encoding: u8, parts: &[Vec<u8>]| [&[encoding][..], &parts.concat()].concat();
    let long = "y".repeat(300);
    let wide = [&[0x41, 0x2c][..], long.as_bytes()].concat();
    let widest = [&[0x80, 0, 0, 1, 0x2c][..], long.as_bytes()].concat();
    let entries: [&[u8]; 12] = [
        b"\x03abc",
        b"\xf1",
        b"\xfd",
        b"\xfe\x80",
        b"\xc0\x2c\x01",
        b"\xf0\xff\xff\x7f",
        b"\xd0\x00\x00\x00\x80",
        b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
        &wide,
        b"\x00",
        &widest,
        b"\x01z",
    ];
    let texts = [
        "abc",
        "0",
        "12",
        "-128",
        "300",
        "8388607",
        "-2147483648",
        "9223372036854775807",
        &long,
        "",
        &long,
        "z",
    ];
    let texts: Elements = texts.map(|text| Cow::from(text.to_owned())).to_vec();
    let ordered = ziplist(&[
        b"\x01a", b"\x031.5", b"\x01b", b"\xf3", b"\x01c", b"\x03inf",
    ]);
    let scores = of(&["a", "1.5", "b", "2", "c", "inf"]);
    let zipmap = b"\x02\x01a\x03\x02one__\x01b\xfe\x03\x00\x00\x00\x00two\xff";
    vec![
        (
            body(1, &[b"\x03\x01a\xc0\x05\x00".to_vec()]),
            Kind::List,
            of(&["a", "5", ""]),
        ),
        (
            body(10, &[string(&ziplist(&entries))]),
            Kind::List,
            texts.clone(),
        ),
        (
            body(
                14,
                &[
                    vec![3],
                    string(&ziplist(&entries)),
                    string(&ziplist(&[])),
                    string(&ziplist(&[b"\xf1"])),
                ],
            ),
            Kind::List,
            [&texts[..], &[Cow::from("0")]].concat(),
        ),
        (
            body(
                18,
                &[
                    b"\x02\x01\x05plain\x02".to_vec(),
                    string(b"\x09\0\0\0\x01\0\x05\x01\xff"),
                ],
            ),
            Kind::List,
            of(&["plain", "5"]),
        ),
        (
            body(13, &[string(&ziplist(&entries[..4]))]),
            Kind::Hash,
            of(&["abc", "0", "12", "-128"]),
        ),
        (
            body(9, &[string(zipmap)]),
            Kind::Hash,
            of(&["a", "one", "b", "two"]),
        ),
        (
            body(2, &[b"\x03\xc0\x05\xc0\xfe\xc0\x00".to_vec()]),
            Kind::Set,
            of(&["-2", "0", "5"]),
        ),
        (
            body(20, &[string(b"\x0c\0\0\0\x02\0\x81b\x02\x05\x01\xff")]),
            Kind::Set,
            of(&["b", "5"]),
        ),
        (
            body(12, &[string(&ordered)]),
            Kind::SortedSet,
            scores.clone(),
        ),
        (
            body(3, &[b"\x03\x01c\xfe\x01a\x031.5\x01b\x012".to_vec()]),
            Kind::SortedSet,
            scores,
        ),
    ]
}

#[test]
fn encodings_of_other_releases_are_read() {
    for (body, kind, elements) in of_other_releases() {
        let found = decoded(&signed(&body, 12), LONGEST);
        let bytes = stored(kind, &elements);
        assert_eq!(found, Ok(DumpedValue { kind, bytes }), "{body:?}");
        for length in 0..body.len() {
            let cut = decoded(&signed(&body[..length], 12), LONGEST);
            assert_eq!(cut, Err(PayloadError::Malformed), "{body:?} {length}");
        }
    }
}

/// Returns payloads of a hash in the encodings of deadlines, without their footers: field `a` has no deadline, `b`
/// one that is to come, and `c` one that has passed.
fn with_deadlines() -> [Vec<u8>; 4] {
    let (later, passed) = (NOW_MS + 7, NOW_MS - 5);
    let length = |number: u64| [&[0x81][..], &number.to_be_bytes()].concat();
    let table = |offsets: [Vec<u8>; 2]| {
        let fields = [
            &b"\x03\x00\x01a\x011"[..],
            &offsets[0],
            b"\x01b\x012",
            &offsets[1],
            b"\x01c\x013",
        ];
        fields.concat()
    };
    let entry = |deadline: u64| [&[0xf4][..], &deadline.to_le_bytes(), &[9]].concat();
    let entries = [
        &b"\x81c\x02\x03\x01"[..],
        &entry(passed),
        b"\x81b\x02\x02\x01",
        &entry(later),
        b"\x81a\x02\x01\x01\x00\x01",
    ];
    let entries = entries.concat();
    let header = (entries.len() as u32 + 7).to_le_bytes();
    let block = [&header[..], b"\x09\x00", &entries, b"\xff"].concat();
    let least = passed.to_le_bytes();
    [
        [&[22][..], &table([later, passed].map(length))].concat(),
        [&[23][..], &string(&block)].concat(),
        [
            &[24][..],
            &least,
            &table([later - passed + 1, 1].map(length)),
        ]
        .concat(),
        [&[25][..], &least, &string(&block)].concat(),
    ]
}

#[test]
fn fields_with_deadlines_are_read() {
    for body in with_deadlines() {
        let payload = signed(&body, 12);
        let value = decoded(&payload, LONGEST).expect("it is well-formed");
        let view = PackedView::new(&value.bytes);
        assert!(view.check(BlockForm::ExpiringPairs));
        let mut fields: Vec<(&[u8], Vec<u8>)> = view
            .iter()
            .map(|field| (field.first, field.second.to_vec()))
            .collect();
        fields.sort();
        let expiring = |deadline: u64, value: u8| [&deadline.to_le_bytes()[..], &[value]].concat();
        assert_eq!(
            fields,
            [
                (&b"a"[..], expiring(0, b'1')),
                (b"b", expiring(NOW_MS + 7, b'2'))
            ]
        );
        for length in 0..body.len() {
            let cut = decode(&signed(&body[..length], 12), at_time(LONGEST));
            assert_eq!(cut, Err(PayloadError::Malformed), "{length}");
        }
    }
    let none_left = b"\x16\x01\x05\x01a\x01b";
    assert_eq!(decode(&signed(none_left, 12), at_time(LONGEST)), Ok(None));
    let without = b"\x16\x01\x00\x01a\x01b";
    let bytes = stored(Kind::Hash, &of(&["a", "b"]));
    let kind = Kind::Hash;
    assert_eq!(
        decoded(&signed(without, 12), LONGEST),
        Ok(DumpedValue { kind, bytes })
    );
    let too_late = b"\x16\x01\x81\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x01b";
    assert_eq!(
        decode(&signed(too_late, 12), at_time(LONGEST)),
        Err(PayloadError::Malformed)
    );
}

/// Payloads of hashes as Redis 8.2.3 answers them, whose fields have deadlines from 2100 on.
#[test]
fn fields_with_deadlines_are_written_as_in_redis() {
    const AT: u64 = 4_102_444_800_000;
    let long = "x".repeat(70);
    for (fields, expected) in [
        (
            &[
                ("a", "1", 0),
                ("b", "2", AT + 1000),
                ("c", "three", 0),
                ("d", "4", AT),
            ][..],
            &b"\x19\x00\xd8\xc3,\xbb\x03\x00\x0088\x00\x00\x00\x0c\x00\x81d\x02\x04\x01\xf4\x00\xd8\xc3,\xbb\x03\x00\x00\t\x81b\x02\x02\x01\xf4\xe8\xdb\xc3,\xbb\x03\x00\x00\t\x81a\x02\x01\x01\x00\x01\x81c\x02\x85three\x06\x00\x01\xff\x0c\x00\xba\xee\xd4\xe9\xf1\xde\r?"[..],
        ),
        (
            &[("b", "b", AT), ("d", "d", AT), ("a", "a", AT)],
            b"\x19\x00\xd8\xc3,\xbb\x03\x00\x00\xc3*7\x087\x00\x00\x00\t\x00\x81a\x02 \x02\x06\xf4\x00\xd8\xc3,\xbb\x03 \x10\x02\x81d\x02 \x02\xe0\x02\x0f\x01b\x02 \x02\xe0\x00\x0f\x01\t\xff\x0c\x00\x1b=Sx\xef\xab\xc8\xa3",
        ),
        (
            &[("a", &long, AT), ("n", "5", AT + 70_000)],
            b"\x18\x00\xd8\xc3,\xbb\x03\x00\x00\x02\x01\x01a\xc3\t@F\x01xx\xe09\x00\x01xx\x80\x00\x01\x11q\x01n\xc0\x05\x0c\x00\xdfb\x7f\xe5\xe8\x82\x18\xab",
        ),
    ] {
        let mut block = PackedEditor::new(BlockForm::ExpiringPairs, b"");
        for (name, value, deadline) in fields {
            let second = [&u64::to_le_bytes(*deadline)[..], value.as_bytes()].concat();
            block.push(name.as_bytes(), &second);
        }
        let bytes = block.into_changed().expect("it has fields");
        let own = payload(Kind::Hash, &bytes);
        assert_eq!(own, expected, "{fields:?}");
        let found = decoded(expected, LONGEST).expect("it is well-formed");
        assert_eq!(canonical(found.kind, &found.bytes), canonical(Kind::Hash, &bytes));
    }
}

#[test]
fn malformed_collections_are_refused() {
    let listpack = |entries: &[u8], count: u16| {
        let length = entries.len() as u32 + 7;
        let header = [&length.to_le_bytes()[..], &count.to_le_bytes()].concat();
        string(&[&header, entries, &[255]].concat())
    };
    let one = |encoding: u8, part: Vec<u8>| [&[encoding][..], &part].concat();
    let a = b"\x81a\x02".as_slice();
    let field = b"\x81a\x02\x01\x01".as_slice();
    let nan = [&b"\x05\x01\x01a"[..], &f64::NAN.to_le_bytes()].concat();
    let refused = [
        // No elements.
        b"\x01\x00".to_vec(),
        b"\x02\x00".to_vec(),
        b"\x04\x00".to_vec(),
        b"\x05\x00".to_vec(),
        b"\x12\x00".to_vec(),
        one(16, listpack(b"", 0)),
        one(13, string(&ziplist(&[]))),
        one(14, [&[1][..], &string(&ziplist(&[]))].concat()),
        one(11, string(b"\x02\0\0\0\0\0\0\0")),
        // The same twice, or a field without a value.
        b"\x02\x02\x01a\x01a".to_vec(),
        b"\x04\x02\x01a\x01b\x01a\x01c".to_vec(),
        one(16, listpack(&[field, field].concat(), 4)),
        one(16, listpack(&[field, a].concat(), 3)),
        one(20, listpack(&[a, a].concat(), 2)),
        one(17, listpack(b"\x81a\x02\x01\x01\x81a\x02\x02\x01", 4)),
        one(9, string(b"\x02\x01a\x01\x00b\x01a\x01\x00c\xff")),
        // Wrong numbers of entries, lengths and orders.
        one(16, listpack(field, 3)),
        one(16, listpack(b"\x81a\x03\x01\x01", 2)),
        one(16, listpack(b"\x81a\x02\xf5\x01", 2)),
        one(20, string(b"\x0a\0\0\0\x01\0\x81a\x02")),
        one(20, string(b"\x0b\0\0\0\x01\0\x81a\x02\xff")),
        one(10, string(b"\x0d\0\0\0\x0b\0\0\0\x01\0\x00\xf1\xff")),
        one(10, string(b"\x0d\0\0\0\x0a\0\0\0\x02\0\x00\xf1\xff")),
        one(10, string(b"\x0d\0\0\0\x0a\0\0\0\x01\0\x01\xf1\xff")),
        one(9, string(b"\x03\x01a\x01\x00b\xff")),
        one(11, string(b"\x02\0\0\0\x02\0\0\0\x05\0\x03\0")),
        one(11, string(b"\x02\0\0\0\x02\0\0\0\x05\0\x05\0")),
        one(11, string(b"\x03\0\0\0\x01\0\0\0\x05\0\0")),
        one(17, listpack(b"\x81a\x02\x02\x01\x81b\x02\x01\x01", 4)),
        b"\x12\x01\x03\x01a".to_vec(),
        // No scores.
        one(17, listpack(b"\x81a\x02\x81x\x02", 2)),
        one(17, listpack(b"\x81a\x02\x83nan\x04", 2)),
        b"\x03\x01\x01a\xfd".to_vec(),
        b"\x03\x01\x01a\x01x".to_vec(),
        nan,
        // More elements than there are.
        b"\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a".to_vec(),
    ];
    for body in refused {
        let found = decoded(&signed(&body, 12), LONGEST);
        assert_eq!(found, Err(PayloadError::Malformed), "{body:?}");
    }
}

/// Returns payloads of all encodings, without their footers.
fn corpus() -> Vec<Vec<u8>> {
    let strings = OF_REDIS.iter().map(|(value, _)| value.to_vec());
    let strings = strings.chain([numbers(200), squares(500), steps(900)]);
    let strings = strings.map(|value| payload(Kind::String, &value));
    let own = of_redis().into_iter().map(|(.., payload)| payload.to_vec());
    let bodies = strings.chain(own).map(|mut payload| {
        payload.truncate(payload.len() - FOOTER);
        payload
    });
    let others = of_other_releases().into_iter().map(|(body, ..)| body);
    let collections = bodies.chain(others).chain(with_deadlines());
    collections.chain(streams::bodies()).collect()
}

/// The corpus is written again when it changes.
#[test]
fn the_corpus_is_that_of_the_tests() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/payloads");
    for (number, body) in corpus().iter().enumerate() {
        fuzz_payload(body);
        let path = folder.join(format!("{number:02}-type-{}", body[0]));
        let written = std::fs::read(&path).unwrap_or_default();
        assert!(written == *body, "{} is out of date", path.display());
    }
}

#[test]
fn no_mutation_makes_the_decoder_panic() {
    let mut random = fastrand::Rng::with_seed(9);
    let corpus = corpus();
    let (mut restored, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut body = corpus[random.usize(..corpus.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..body.len());
            match random.u8(..6) {
                0 => body[at] = random.u8(..),
                1 => body[at] ^= 1 << random.u8(..8),
                2 => body.insert(at, random.u8(..)),
                3 if at > 0 => body.truncate(at),
                4 => body[0] = random.u8(..26),
                _ => body[at.min(3)] = *random.choice(&[0x80, 0x81, 0xc3, 0xff]).unwrap(),
            }
        }
        fuzz_payload(&body);
        match decode(&signed(&body, 12), at_time(LONGEST)) {
            Ok(_) => restored += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(restored > 1000 && refused > 1000, "{restored} {refused}");
}
