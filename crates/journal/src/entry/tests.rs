use super::*;
use crate::checkpoint::CheckpointView;
use base::change::{SYSTEM_GENERATION, siblings};
use base::{Epoch, Timestamp};

fn id(timestamp: Timestamp) -> TransactionId {
    TransactionId {
        timestamp,
        unique: 77,
    }
}

fn origin(ms: u64, siblings: &[u8]) -> Option<Origin<'_>> {
    Some(Origin {
        id: id(Timestamp::at_ms(ms)),
        siblings,
    })
}

/// Two keys, as siblings.
const SIBLINGS: &[u8] = b"\x01\0\0\0a\x02\0\0\0bc";

fn sample() -> (Vec<u8>, Vec<Change<'static>>) {
    let changes = vec![
        Change::Put {
            key: b"k",
            value: b"value",
            kind: Kind::String,
            generation: 7,
            deadline: None,
            origin: None,
        },
        Change::Put {
            key: b"",
            value: b"",
            kind: Kind::Hash,
            generation: 0,
            deadline: Some(9),
            origin: None,
        },
        Change::Delete {
            key: b"gone",
            origin: None,
        },
        Change::Flush { generation: 8 },
        Change::Put {
            key: b"a",
            value: b"1",
            kind: Kind::String,
            generation: 8,
            deadline: None,
            origin: origin(9, SIBLINGS),
        },
        Change::Delete {
            key: b"bc",
            origin: origin(9, SIBLINGS),
        },
        Change::Delete {
            key: b"other",
            origin: origin(8, b""),
        },
        Change::Edit {
            key: b"long",
            base: Tid::new(Epoch(2), 9),
            offset: 70_000,
            bytes: b"part",
        },
        Change::Delete {
            key: b"last",
            origin: None,
        },
    ];
    let mut buf = Vec::new();
    encode(&mut buf, Tid::new(Epoch(3), 1), |to| {
        for change in &changes {
            to.change(change);
        }
    });
    (buf, changes)
}

#[test]
fn entries_come_back_as_they_went() {
    let (buf, changes) = sample();
    let mut seen = 0;
    let n = decode(&buf, Epoch(3), 55, |entry| {
        assert_eq!(entry.tid, Tid::new(Epoch(3), 1));
        assert_eq!(entry.stamp_ms, 55);
        assert_eq!(entry.change, changes[seen]);
        seen += 1;
    });
    assert_eq!((n, seen), (Ok(9), 9));
}

#[test]
fn siblings_lie_once_in_a_transaction() {
    let (buf, _) = sample();
    let found = buf.windows(SIBLINGS.len()).filter(|at| *at == SIBLINGS);
    assert_eq!(found.count(), 1);
    assert_eq!(siblings::iter(SIBLINGS).count(), 2);
}

#[test]
fn an_origin_that_makes_no_sense_is_an_error() {
    let transaction = |entries: &[&[u8]]| {
        let mut buf = Tid::new(Epoch(3), 1).to_bits().to_le_bytes().to_vec();
        buf.extend(1u32.to_le_bytes());
        entries
            .iter()
            .for_each(|entry| buf.extend_from_slice(entry));
        decode(&buf, Epoch(3), 0, |_| {})
    };
    let origin = |ms, siblings: &[u8]| {
        let mut buf = Vec::new();
        put_origin(
            &mut buf,
            &Origin {
                id: TransactionId {
                    timestamp: Timestamp(ms),
                    unique: 0,
                },
                siblings,
            },
        );
        buf
    };
    let delete: &[u8] = &[DELETE, 0, 0, 0, 0];
    let good = origin(1, SIBLINGS);
    assert_eq!(transaction(&[&good, delete]), Ok(1));
    assert_eq!(transaction(&[&origin(0, b""), delete]), Ok(1));
    for bad in [
        &[&good[..]] as &[&[u8]],
        &[&good, &good, delete],
        &[delete, &good],
        &[&origin(1, &SIBLINGS[..3]), delete],
        &[&origin(0, SIBLINGS), delete],
    ] {
        assert!(transaction(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn keys_of_a_checkpoint_come_back_and_must_belong_to_it() {
    let view = CheckpointView {
        epoch: Epoch(3),
        stamp_ms: 55,
        generation: 7,
        ..CheckpointView::default()
    };
    let head = CheckpointKey {
        tid: Tid::new(Epoch(2), 9),
        key: b"key",
        value_len: 5,
        kind: Kind::String,
        generation: 7,
        deadline: Some(8),
        origin: origin(2, SIBLINGS),
    };
    let mut buf = Vec::new();
    encode_head(&mut buf, &head);
    buf.extend(b"value");
    let found = decode_keys(&buf, &view, |entry| {
        assert_eq!((entry.tid, entry.stamp_ms), (head.tid, 55));
        let change = Change::Put {
            key: b"key",
            value: b"value",
            kind: Kind::String,
            generation: 7,
            deadline: Some(8),
            origin: origin(2, SIBLINGS),
        };
        assert_eq!(entry.change, change);
    });
    assert_eq!(found, Ok(1));
    for n in 1..buf.len() {
        assert!(decode_keys(&buf[..n], &view, |_| {}).is_err(), "{n} bytes");
    }
    let generation = 6;
    let epoch = Epoch(1);
    for other in [
        CheckpointView { generation, ..view },
        CheckpointView { epoch, ..view },
    ] {
        assert!(decode_keys(&buf, &other, |_| {}).is_err(), "{other:?}");
    }
    let mut buf = Vec::new();
    let generation = SYSTEM_GENERATION;
    encode_head(&mut buf, &CheckpointKey { generation, ..head });
    buf.extend(b"value");
    let found = decode_keys(&buf, &view, |entry| {
        let system = matches!(entry.change, Change::Put { generation, .. } if generation == SYSTEM_GENERATION);
        assert!(system, "{entry:?}");
    });
    assert_eq!(found, Ok(1), "a system record");
}

#[test]
fn an_empty_transaction_leaves_no_trace() {
    let mut buf = Vec::new();
    encode(&mut buf, Tid::new(Epoch(3), 1), |_| {});
    assert!(buf.is_empty());
}

#[test]
fn a_cut_payload_is_an_error_at_every_length() {
    let (buf, _) = sample();
    for n in 1..buf.len() {
        assert!(decode(&buf[..n], Epoch(3), 0, |_| {}).is_err(), "{n} bytes");
    }
    assert!(decode(&buf, Epoch(4), 0, |_| {}).is_err(), "another epoch");
}

#[test]
fn origins_of_earlier_versions_have_the_number_zero() {
    let mut buf = 7_u64.to_le_bytes().to_vec();
    buf.extend_from_slice(&1_u32.to_le_bytes());
    buf.push(OLD_ORIGIN);
    buf.extend_from_slice(&9_u64.to_le_bytes());
    buf.extend_from_slice(&(SIBLINGS.len() as u32).to_le_bytes());
    buf.extend_from_slice(SIBLINGS);
    buf.extend_from_slice(&[DELETE, 1, 0, 0, 0, b'k']);
    buf[..8].copy_from_slice(&Tid::new(Epoch(3), 1).to_bits().to_le_bytes());
    let mut seen = None;
    let decoded = decode(&buf, Epoch(3), 0, |entry| {
        if let Change::Delete { origin, .. } = entry.change {
            seen = origin.map(|origin| (origin.id, origin.siblings.to_vec()));
        }
    });
    assert_eq!(decoded, Ok(1));
    let id = TransactionId {
        timestamp: Timestamp(9),
        unique: 0,
    };
    assert_eq!(seen, Some((id, SIBLINGS.to_vec())));
}

#[test]
fn changes_come_back_without_a_transaction_around_them() {
    let mut siblings = Vec::new();
    base::change::siblings::push(&mut siblings, b"a");
    let origin = Some(Origin {
        id: id(Timestamp(9)),
        siblings: &siblings,
    });
    let changes = [
        Change::Put {
            key: b"a",
            value: b"v",
            kind: Kind::String,
            generation: 3,
            deadline: Some(7),
            origin,
        },
        Change::Delete { key: b"b", origin },
        Change::Delete {
            key: b"c",
            origin: None,
        },
        Change::Flush { generation: 4 },
    ];
    let mut bytes = b"before".to_vec();
    let count = super::write_changes(&mut bytes, |to| {
        changes.iter().for_each(|change| to.change(change));
    });
    assert_eq!(count, 4);
    let bytes = &bytes[6..];
    let back: Result<Vec<_>, _> = super::ChangeReader::new(bytes).collect();
    assert_eq!(back.as_deref(), Ok(&changes[..]));
    let cut: Vec<_> = super::ChangeReader::new(&bytes[..bytes.len() - 1]).collect();
    assert_eq!(cut.len(), 4);
    assert_eq!(cut[3], Err((bytes.len() - 3, "an entry ends too early")));
}
