//! Payloads of streams.

use base::transaction::{Kind, ValueCall};

use super::super::*;
use super::{LONGEST, NOW_MS, at_time, signed};
use crate::call::{StoredValue, ValueChange};
use crate::commands::streams::{
    XADD, XCLAIM, XDEL, XGROUP_CREATE, XGROUP_CREATECONSUMER, XGROUP_DESTROY, XREADGROUP, XSETID,
    XTRIM,
};
use crate::execution::execute;
use crate::stream::{EntryId, StreamView};

/// Executes commands, each the name and arguments, on no value. Returns the value.
fn made<'c>(commands: impl IntoIterator<Item = &'c str>) -> Vec<u8> {
    changed(None, commands)
}

/// Executes commands, each the name and arguments. Returns the value.
fn changed<'c>(mut value: Option<Vec<u8>>, commands: impl IntoIterator<Item = &'c str>) -> Vec<u8> {
    for command in commands {
        let (name, args) = command.split_once(' ').expect("it has arguments");
        let command = match name {
            "XADD" => XADD,
            "XDEL" => XDEL,
            "XTRIM" => XTRIM,
            "XSETID" => XSETID,
            "CREATE" => XGROUP_CREATE,
            "DESTROY" => XGROUP_DESTROY,
            "CREATECONSUMER" => XGROUP_CREATECONSUMER,
            "XREADGROUP" => XREADGROUP,
            "XCLAIM" => XCLAIM,
            _ => panic!("{name}"),
        };
        let call = ValueCall {
            command,
            seed: 0,
            args: args.split(' ').map(str::as_bytes).collect(),
        };
        let stored = value.take();
        let before = stored.as_deref();
        let before = before.map(|bytes| StoredValue::new(Kind::Stream, bytes));
        let outcome = execute(&call, before, NOW_MS).expect(name);
        value = match outcome.change {
            ValueChange::Set(Kind::Stream, bytes) => Some(bytes),
            other => panic!("{name}: {other:?}"),
        };
    }
    value.expect("a stream")
}

fn payload(bytes: &[u8]) -> Vec<u8> {
    let kind = Kind::Stream;
    encode(StoredBlock { kind, bytes })
}

fn decoded(payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let value = decode(payload, at_time(LONGEST))?.expect("no fields expire");
    assert_eq!(value.kind, Kind::Stream);
    assert!(StreamView::new(&value.bytes).check());
    Ok(value.bytes)
}

/// Streams, and their payloads as Redis 7.0.15 answers them.
const OF_REDIS: [(&[&str], &[u8]); 5] = [
    (
        &["CREATE g $ MKSTREAM", "DESTROY g"],
        b"\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\xe9>\xc1\x8as\x05k|",
    ),
    (
        &["XADD 1-1 f v"],
        b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x1d\x1d\x00\x00\x00\x0a\x00\x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x01\x01\x01\x01\x00\x00\x01\x00\x0a\x00\xffU\xabbj\xc05\xdb",
    ),
    (
        &[
            "XADD 1-1 f v n 5",
            "XADD 1-2 f w n -7",
            "XADD 2-0 other x",
            "XADD 2-5 f v",
            "XADD 18446744073709551615-1 f v n 1",
        ],
        b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\xc3@\x5c@c\x11c\x00\x00\x00&\x00\x05\x01\x00\x01\x02\x01\x81f\x02\x81n\x02@\x09\x00\x00 \x01\x05\x81v\x02\x05\x01\x05 \x16\x08\x00\x01\x01\x01\x81w\x02\xdf\xf9 \x0f@\x0b\x0f\xdf\xff\x02\x01\x01\x85other\x06\x81x\x02\x06`\x14\x00\x04@$ ?\x00v \x0f\x03\x02\x01\xdf\xfe F \x0b\x00\x01 @\x00\xff\x05\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x01\x00\x00\x05\x00\x0a\x00t\xc2\xbf\xa7\x0cjtu",
    ),
    (
        &[
            "XADD 5-1 g v",
            "XDEL 5-1",
            "XSETID 7-3 ENTRIESADDED 9 MAXDELETEDID 6-0",
        ],
        b"\x13\x00\x00\x07\x03\x00\x00\x06\x00\x09\x00\x0a\x00h=N\xbf[A\xb87",
    ),
    (
        &[
            "XADD 1-1 f v",
            "XADD 2-1 f v",
            "CREATE b 0",
            "CREATE a $ ENTRIESREAD 2",
            "CREATE empty 1-0 ENTRIESREAD -1",
        ],
        b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01((\x00\x00\x00\x0f\x00\x02\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\x02\x01\x01\x01\x00\x01\x81v\x02\x04\x01\xff\x02\x02\x01\x01\x01\x00\x00\x02\x03\x01a\x02\x01\x02\x00\x00\x01b\x00\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x05empty\x01\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x0a\x00LD_\x5c\x9e\x5c\xd8\xe1",
    ),
];

/// With consumers, of Redis 7.0.15.
const CONSUMERS: &[u8] = b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01((\x00\x00\x00\x0f\x00\x02\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\x02\x01\x01\x01\x00\x01\x81v\x02\x04\x01\xff\x02\x02\x01\x01\x01\x00\x00\x02\x01\x01g\x02\x01\x02\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x80n\x87t\x01\x00\x00A,\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x01\x80n\x87t\x01\x00\x00\x02\x03\x05aliceq\xc7 )\xa2\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x03bobq\xc7 )\xa2\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x04idleq\xc7 )\xa2\x01\x00\x00\x00\x0a\x00%)+\x16:_\x8f\xc8";
/// With an entry that was deleted, of Redis 7.0.15.
const WITH_DELETED: &[u8] = b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01--\x00\x00\x00\x11\x00\x01\x01\x01\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\x01\x01\x04\x01\x00\x01\x01\x01\x81g\x02\x81v\x02\x06\x01\xff\x01\x05\x01\x01\x01\x05\x01\x02\x00\x0a\x00\x8fy\xa4dr\x80\xc3M";
/// With deleted entries, two groups and a consumer, of Redis 5, as Redis's test suite has it.
const OF_REDIS_5: &[u8] = b"\x0f\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\xc3@J@W\x16W\x00\x00\x00#\x00\x02\x01\x04\x01\x01\x01\x84data\x05\x00\x01\x03\x01\x00 \x01\x03\x81a\x02\x04 \x0a\x00\x01@\x0a\x00b`\x0a\x00\x02@\x0a\x00c`\x0a@\x22\x01\x81d \x0a@9 \x0a\x00e`\x0a\x00\x05@\x0a\x00f \x0a\x00\xff\x02\x06\x00\x02\x02g1\x05\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00>\xf7\x83Cz\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00>\xf7\x83Cz\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00>\xf7\x83Cz\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00>\xf7\x83Cz\x01\x00\x00\x01\x01\x03c11>\xf7\x83Cz\x01\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x02g2\x00\x00\x00\x00\x09\x00=R\xefhgR\x1d\xfa";

#[test]
fn payloads_of_streams_are_those_of_redis() {
    for (commands, expected) in OF_REDIS {
        let value = made(commands.iter().copied());
        assert_eq!(payload(&value), expected, "{commands:?}");
        assert_eq!(decoded(expected), Ok(value), "{commands:?}");
    }
    let value = decoded(CONSUMERS).expect("a stream");
    assert_eq!(payload(&value), CONSUMERS);
    let group = StreamView::new(&value).group(b"g");
    let group = group.expect("it is whole").expect("it is there");
    let consumers = group.consumers().into_iter();
    let names: Vec<Vec<u8>> = consumers.map(|(_, own)| own.name.to_vec()).collect();
    assert_eq!(names, [&b"alice"[..], b"bob", b"idle"]);
    let pending = group.pending_from(EntryId::MIN);
    let pending = pending.map(|own| (own.id.ms, own.consumer, own.delivered_ms, own.deliveries));
    assert_eq!(
        pending.collect::<Vec<_>>(),
        [(1, 0, 1_600_000_000_000, 300), (2, 1, 1_600_000_000_001, 2)]
    );
}

/// Lengths and checksums of payloads are those of Redis 7.0.15.
#[test]
fn entries_are_in_the_nodes_of_redis() {
    let short = (0..250).map(|number| format!("XADD {}-0 field {number} n -{number}", number + 1));
    let short = short.map(|command| command.replace("n -0", "n 0"));
    let mixed = (0..300).map(|number| {
        let (x, y) = ("x".repeat(number % 90), "y".repeat(number % 11));
        let (first, second) = (number / 50, number % 3);
        let id = format!("{}-{number}", number / 7 + 1);
        format!("XADD {id} field{first} {x} n{second} {y}")
    });
    let wide = (0..20usize).map(|number| {
        let fields = (0..=number).map(|field| {
            let value = (field * field * number).to_string();
            format!(" f{field} {}", value.repeat(1 + number))
        });
        format!("XADD {}-0{}", number + 1, fields.collect::<String>())
    });
    let cases: [(Vec<String>, usize, u64); 3] = [
        (short.collect(), 2920, 0x8555ff7e1d1faef3),
        (mixed.collect(), 6722, 0xb3363f19b9290071),
        (wide.collect(), 2766, 0x2595a6b33089b24c),
    ];
    for (commands, length, checksum) in cases {
        let value = made(commands.iter().map(String::as_str));
        let payload = payload(&value);
        assert_eq!(payload.len(), length);
        assert_eq!(payload[length - 8..], checksum.to_le_bytes(), "{length}");
        assert_eq!(decoded(&payload), Ok(value));
    }
}

/// Of Redis 7.0.15, after `XADD s 5-1 f v`, `XDEL s 5-1`, `XSETID s 1-0`, and then `XADD s 2-0 f v`.
const LOWERED: [&[u8]; 2] = [
    b"\x13\x00\x00\x01\x00\x00\x00\x05\x01\x01\x00\x0a\x00\x84\xadR@\xceM\x16z",
    b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x1d\x1d\x00\x00\x00\x0a\x00\x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x02\x00\x02\x00\x05\x01\x02\x00\x0a\x00\xdek\xf4l\x93Z\xba\x8b",
];

#[test]
fn the_last_id_may_be_below_a_deleted_one() {
    for (of_redis, ms) in LOWERED.into_iter().zip([1, 2]) {
        let value = decoded(of_redis).expect("a stream");
        let stream = StreamView::new(&value);
        assert_eq!(stream.last_id(), EntryId { ms, number: 0 });
        assert_eq!(stream.deleted_id(), EntryId { ms: 5, number: 1 });
        assert_eq!(payload(&value), of_redis);
    }
}

#[test]
fn deleted_entries_are_left_out() {
    let value = decoded(WITH_DELETED).expect("a stream");
    let stream = StreamView::new(&value);
    assert_eq!((stream.len(), stream.added()), (1, 2));
    let five = EntryId { ms: 5, number: 1 };
    assert_eq!((stream.last_id(), stream.deleted_id()), (five, five));
    let own = payload(&value);
    assert_eq!(decoded(&own), Ok(value));
    assert_eq!(
        own,
        payload(&made(["XADD 1-1 f v", "XADD 5-1 g v", "XDEL 5-1"]))
    );
    // Also where the names of fields are those of a deleted one.
    let value = decoded(OF_REDIS_5).expect("a stream");
    let stream = StreamView::new(&value);
    let entries = stream.range(EntryId::MIN, EntryId::MAX);
    let entries = entries.map(|entry| (entry.id.ms, entry.fields().collect::<Vec<_>>()));
    let fields = |value: &'static [u8]| vec![&b"data"[..], value];
    assert_eq!(
        entries.collect::<Vec<_>>(),
        [(5, fields(b"e")), (6, fields(b"f"))]
    );
    assert_eq!((stream.added(), stream.deleted_id()), (2, EntryId::MIN));
    let read = stream
        .groups()
        .map(|group| (group.position().entries_read, group.pending_count()));
    assert_eq!(read.collect::<Vec<_>>(), [(Some(1), 4), (Some(0), 0)]);
}

/// Returns the body of the third encoding, with the time at which each consumer got entries last.
fn third_encoding(active_ms: [i64; 3]) -> Vec<u8> {
    let mut body = CONSUMERS[..CONSUMERS.len() - FOOTER].to_vec();
    body[0] = 21;
    for (name, active_ms) in [&b"alice"[..], b"bob", b"idle"].into_iter().zip(active_ms) {
        let at = body.windows(name.len()).position(|own| own == name);
        let behind = at.expect("it is there") + name.len() + 8;
        body.splice(behind..behind, active_ms.to_le_bytes());
    }
    body
}

#[test]
fn consumers_of_later_releases_have_another_time() {
    let active = |payload: &[u8]| {
        let value = decoded(payload).expect("a stream");
        let group = StreamView::new(&value).group(b"g");
        let group = group.expect("it is whole").expect("it is there");
        let consumers = group.consumers().into_iter();
        let times = consumers.map(|(_, consumer)| (consumer.seen_ms, consumer.active_ms));
        times.collect::<Vec<_>>()
    };
    let seen: Vec<u64> = active(CONSUMERS).iter().map(|(seen, _)| *seen).collect();
    assert_eq!(
        active(&signed(&third_encoding([7, -1, 0]), 11)),
        [(seen[0], Some(7)), (seen[1], None), (seen[2], Some(0))]
    );
    assert!(
        active(CONSUMERS)
            .iter()
            .all(|&(seen, active)| active == Some(seen))
    );
    let wrong = signed(&third_encoding([7, -2, 0]), 11);
    assert_eq!(decoded(&wrong), Err(PayloadError::Malformed));
}

/// A node: the number of its item, and its bytes.
fn node(items: &[&str]) -> Vec<u8> {
    let mut listpack = crate::listpack::ListpackWriter::new();
    items.iter().for_each(|item| listpack.push(item.as_bytes()));
    let listpack = listpack.finish();
    let mut node = vec![16];
    node.extend(EntryId { ms: 1, number: 1 }.to_bytes());
    assert!(listpack.len() < 64);
    node.push(listpack.len() as u8);
    [node, listpack].concat()
}

/// Returns the body of a stream with one node, of this many entries.
fn body(items: &str, entries: u8) -> Vec<u8> {
    let items: Vec<&str> = items.split(' ').collect();
    let numbers = [entries, 9, 0, 1, 1, 0, 0, entries, 0];
    [&[19, 1][..], &node(&items), &numbers].concat()
}

#[test]
fn malformed_streams_are_refused() {
    let is_accepted = |body: &[u8]| match decoded(&signed(body, 12)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, PayloadError::Malformed, "{body:?}");
            false
        }
    };
    assert!(is_accepted(&body("1 0 1 f 0 2 0 0 v 4", 1)));
    assert!(is_accepted(&body("2 0 1 f 0 2 0 0 v 4 0 0 1 1 g w 6", 2)));
    assert!(is_accepted(&body("1 1 1 f 0 3 0 0 v 4 2 1 -1 w 4", 1)));
    for (items, entries) in [
        // Numbers of entries.
        ("2 0 1 f 0 2 0 0 v 4", 1),
        ("1 0 1 f 0 2 0 0 v 4", 2),
        ("0 1 1 f 0 2 0 0 v 4", 1),
        ("0 1 1 f 0 3 0 0 v 4", 0),
        ("0 0 1 f 0", 0),
        ("-1 2 1 f 0 2 0 0 v 4", 1),
        ("1 9223372036854775807 1 f 0 2 0 0 v 4", 1),
        ("1 0 1 f 0 2 0 0 v 4 2 0 1 w 4", 1),
        ("x 0 1 f 0 2 0 0 v 4", 1),
        // Fields.
        ("1 0 0 0 2 0 0 3", 1),
        ("1 0 2 f 0 2 0 0 v 4", 1),
        ("1 0 9223372036854775807 f 0 2 0 0 v 4", 1),
        ("1 0 1 f 1 2 0 0 v 4", 1),
        ("1 0 1 f 0 2 0 0 v 5", 1),
        ("1 0 1 f 0 0 0 0 1 g w 4", 1),
        ("1 0 1 f 0 0 0 0 0 4", 1),
        ("1 0 1 f 0 0 0 0 -1 4", 1),
        ("1 0 1 f 0 0 0 0 9223372036854775807 g w 4", 1),
        ("1 0 1 f 0 4 0 0 1 g w 6", 1),
        // Ids.
        ("1 0 1 f 0 2 -1 0 v 4", 1),
        ("1 0 1 f 0 2 0 -1 v 4", 1),
        ("1 0 1 f 0 2 x 0 v 4", 1),
        ("2 0 1 f 0 2 0 1 v 4 2 0 1 w 4", 2),
        ("2 0 1 f 0 2 1 0 v 4 2 0 1 w 4", 2),
        ("1 0 1 f 0 2 9 0 v 4", 1),
    ] {
        assert!(!is_accepted(&body(items, entries)), "{items}");
    }
    let good = body("1 0 1 f 0 2 0 0 v 4", 1);
    let numbers = good.len() - 9;
    for (at, byte) in [
        // The last id, the number of added entries, the id of the node.
        (numbers + 1, 0),
        (numbers + 7, 0),
        (2, 15),
        (2, 0xc0),
    ] {
        let mut wrong = good.clone();
        wrong[at] = byte;
        assert!(!is_accepted(&wrong), "{at}");
    }
    let groups: [&[u8]; 12] = [
        // The same name twice, of groups and of consumers.
        b"\x02\x01g\0\0\0\0\0\x01g\0\0\0\0\0",
        b"\x01\x01g\0\0\0\0\x02\x01c\0\0\0\0\0\0\0\0\0\x01c\0\0\0\0\0\0\0\0\0",
        // Fewer than announced.
        b"\x02\x01g\0\0\0\0\0",
        b"\x01\x01g\0\0\0\0\x01",
        b"\x01\x01g\0\0\0\x81\xff\xff\xff\xff\xff\xff\xff\xff\0",
        // A number of entries that is neither known nor unknown.
        b"\x01\x01g\0\0\x81\xff\xff\xff\xff\xff\xff\xff\xfe\0\0",
        // A time before the epoch.
        b"\x01\x01g\0\0\0\0\x01\x01c\xff\xff\xff\xff\xff\xff\xff\xff\0",
        // Pending entries: of no consumer, of two, twice of one, twice of the group, of none of the group.
        b"\x01\x01g\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\0",
        b"\x01\x01g\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\x02\x01c\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x01d\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01",
        b"\x01\x01g\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\x01\x01c\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01",
        b"\x01\x01g\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\x01\x01c\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01",
        b"\x01\x01g\0\0\0\0\x01\x01c\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01",
    ];
    for groups in groups {
        let wrong = [&good[..good.len() - 1], groups].concat();
        assert!(!is_accepted(&wrong), "{groups:?}");
    }
    let whole = [
        &good[..good.len() - 1],
        b"\x02\x01g\0\0\0\0\0\x01h\0\0\0\0\0",
    ]
    .concat();
    assert!(is_accepted(&whole));
}

#[test]
fn numbers_may_be_the_greatest() {
    let mut body = body("1 0 1 f 0 2 0 0 v 4", 1);
    body.truncate(body.len() - 2);
    const MOST: &[u8] = b"\x81\xff\xff\xff\xff\xff\xff\xff\xff";
    const PENDING: &[u8] = b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01";
    // The number of added entries, and that of deliveries of an entry to a consumer.
    let group = [
        b"\x01\x01g\0\0\0\x01",
        PENDING,
        &[0; 8],
        MOST,
        b"\x01\x01c",
        &[0; 8],
        b"\x01",
        PENDING,
    ];
    let body = [&body, MOST, &group.concat()].concat();
    let value = decoded(&signed(&body, 10)).expect("a stream");
    let once = changed(Some(value.clone()), ["XREADGROUP 0 0 g c"]);
    let claimed = changed(Some(value), ["XCLAIM g c 0 1-1"]);
    for value in [once, claimed] {
        let group = StreamView::new(&value).group(b"g");
        let group = group.expect("it is whole").expect("it is there");
        let pending = group.pending_from(EntryId::MIN).next();
        assert_eq!(pending.map(|own| own.deliveries), Some(u64::MAX));
        let value = changed(Some(value), ["XADD 10-1 f v", "XREADGROUP > 1 g c"]);
        assert_eq!(StreamView::new(&value).added(), 0);
        assert!(StreamView::new(&value).check());
    }
}

#[test]
fn streams_that_are_too_long_are_refused() {
    let value = made(["XADD 1 f v", "CREATE g 0", "XREADGROUP > 0 g consumer"]);
    let payload = payload(&value);
    for longest in 0..value.len() {
        let decoded = decode(&payload, at_time(longest));
        assert!(decoded.is_err(), "{longest}");
    }
    assert!(decode(&payload, at_time(value.len())).is_ok());
    // Names of fields that many entries share.
    let name = "name".repeat(500);
    let mut commands = vec![format!("XADD 1-1 {name} v")];
    commands.extend((2..60).map(|id| format!("XADD 1-{id} {name} v")));
    let value = made(commands.iter().map(String::as_str));
    let short = super::super::encode(StoredBlock {
        kind: Kind::Stream,
        bytes: &value,
    });
    let decoded = decode(&short, at_time(value.len() - 1));
    assert_eq!(decoded, Err(PayloadError::TooLong));
}

/// Returns payloads of all encodings, without their footers.
pub(super) fn bodies() -> Vec<Vec<u8>> {
    let own = OF_REDIS.iter().map(|(_, payload)| *payload);
    let own = own.chain([CONSUMERS, WITH_DELETED, OF_REDIS_5]);
    let own = own.map(|payload| payload[..payload.len() - FOOTER].to_vec());
    own.chain([third_encoding([7, -1, 0])]).collect()
}
