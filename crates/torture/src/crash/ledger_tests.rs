//! Histories made by hand, which the ledger must accept or reject.

use std::time::Instant;

use super::*;
use crate::crash::load::Record;
use crate::crash::op::{CrashCell, CrashExpiry, CrashOp, How, ObservedState};
use crate::crash::value::CrashValue;
use crate::crash::verdict::FoundCell;

fn value(id: u64) -> CrashValue {
    CrashValue { id, len: 40 }
}

fn set(key: usize, id: u64) -> CrashOp {
    let cell = CrashCell {
        value: value(id),
        expiry: CrashExpiry::Never,
    };
    CrashOp::Assign {
        cells: vec![(own_key(0, key), Some(cell))],
        how: How::MSet,
    }
}

fn sent(op: CrashOp, sent: u64) -> Record {
    Record {
        op,
        sent,
        acked: None,
    }
}

fn acked(op: CrashOp, at: u64) -> Record {
    shown(op, at, ObservedState::Nothing)
}

fn shown(op: CrashOp, at: u64, shown: ObservedState) -> Record {
    Record {
        op,
        sent: at,
        acked: Some((at + 1, shown)),
    }
}

fn stamp(id: u64) -> CrashOp {
    CrashOp::Stamp {
        group: 0,
        stamp: value(id),
        how: How::MSet,
    }
}

fn found(cells: &[(String, Vec<u8>)]) -> FoundKeys {
    let cells = cells
        .iter()
        .map(|(key, bytes)| {
            (
                key.clone(),
                FoundCell {
                    bytes: bytes.clone(),
                    ttl_ms: -1,
                    read_at: Instant::now(),
                },
            )
        })
        .collect();
    FoundKeys {
        cells,
        ..FoundKeys::default()
    }
}

fn own(cells: &[(usize, u64)]) -> FoundKeys {
    let cells: Vec<_> = cells
        .iter()
        .map(|(k, id)| (own_key(0, *k), value(*id).encode()))
        .collect();
    found(&cells)
}

fn group(ids: &[Option<u64>]) -> FoundKeys {
    let pairs = group_keys(0).into_iter().zip(ids);
    found(
        &pairs
            .filter_map(|(k, id)| Some((k, value((*id)?).encode())))
            .collect::<Vec<_>>(),
    )
}

/// Judges one round of one connection. Returns (lost, partial, wrong).
fn judge(records: Vec<Record>, found: &FoundKeys) -> (usize, usize, usize) {
    let verdict = CrashLedger::new(1).judge(
        vec![Log {
            records,
            complaint: None,
        }],
        found,
    );
    (
        verdict.lost.len(),
        verdict.partial.len(),
        verdict.wrong.len(),
    )
}

#[test]
fn an_acknowledged_write_must_be_there_and_an_open_one_may() {
    let records = || vec![acked(set(0, 1), 1), sent(set(0, 2), 3), sent(set(1, 3), 4)];
    assert_eq!(judge(records(), &own(&[(0, 1)])), (0, 0, 0));
    assert_eq!(judge(records(), &own(&[(0, 2)])), (0, 0, 0));
    assert_eq!(judge(records(), &own(&[(0, 2), (1, 3)])), (0, 0, 0));
    assert_eq!(judge(records(), &own(&[])), (1, 0, 0));
    assert_eq!(judge(records(), &own(&[(0, 9)])), (0, 0, 1));
}

#[test]
fn a_later_write_does_not_survive_an_earlier_one() {
    let records = vec![sent(set(0, 1), 1), sent(set(1, 2), 2)];
    assert_eq!(judge(records, &own(&[(1, 2)])), (0, 1, 0));
}

/// Keys on several nodes: unacknowledged writes may be lost in any order, and no others.
#[test]
fn keys_of_several_nodes_are_judged_one_by_one() {
    let judge = |records: Vec<Record>, found: &FoundKeys| {
        let complaint = None;
        let logs = vec![Log { records, complaint }];
        CrashLedger::scattered(1).judge(logs, found)
    };
    let records = vec![sent(set(0, 1), 1), sent(set(1, 2), 2), acked(set(2, 3), 3)];
    let verdict = judge(records.clone(), &own(&[(1, 2), (2, 3)]));
    assert!(verdict.is_clean(), "{}", verdict.complaints());
    assert_eq!(judge(records.clone(), &own(&[(1, 2)])).lost.len(), 1);
    let never_sent = own(&[(2, 3), (0, 2)]);
    assert_eq!(judge(records, &never_sent).wrong.len(), 1);
}

#[test]
fn a_write_that_goes_back_is_lost_over_rounds() {
    let mut ledger = CrashLedger::new(1);
    let log = |records| {
        vec![Log {
            records,
            complaint: None,
        }]
    };
    assert!(
        ledger
            .judge(log(vec![acked(set(0, 1), 1)]), &own(&[(0, 1)]))
            .is_clean()
    );
    let verdict = ledger.judge(log(vec![acked(set(0, 2), 3)]), &own(&[(0, 1)]));
    assert_eq!(verdict.lost.len(), 1);
}

#[test]
fn what_should_have_expired_is_wrong() {
    let cell = CrashCell {
        value: value(1),
        expiry: CrashExpiry::Soon(5),
    };
    let op = CrashOp::Assign {
        cells: vec![(own_key(0, 0), Some(cell))],
        how: How::MSet,
    };
    assert_eq!(judge(vec![acked(op.clone(), 1)], &own(&[])), (0, 0, 0));
    assert_eq!(judge(vec![acked(op, 1)], &own(&[(0, 1)])), (0, 0, 1));
}

#[test]
fn an_expiry_that_was_forgotten_is_wrong() {
    let cell = CrashCell {
        value: value(1),
        expiry: CrashExpiry::Late(3_600_000, Instant::now()),
    };
    let op = CrashOp::Assign {
        cells: vec![(own_key(0, 0), Some(cell))],
        how: How::MSet,
    };
    assert_eq!(judge(vec![acked(op, 1)], &own(&[(0, 1)])), (0, 0, 1));
}

#[test]
fn an_expiry_of_another_time_is_wrong_where_requests_wait_too() {
    let judge = |mut own: PrivateKeys, ttl_ms| {
        let cell = CrashCell {
            value: value(1),
            expiry: CrashExpiry::Late(3_600_000, Instant::now()),
        };
        let cells = vec![(own_key(0, 0), Some(cell))];
        let op = CrashOp::Assign {
            cells,
            how: How::MSet,
        };
        let mut found = self::own(&[(0, 1)]);
        found.cells.get_mut(&own_key(0, 0)).unwrap().ttl_ms = ttl_ms;
        let mut verdict = CrashVerdict::default();
        own.judge(&[acked(op, 1)], &found, &mut verdict);
        verdict.wrong.len()
    };
    assert_eq!(judge(PrivateKeys::new(0), 3_599_000), 0);
    assert_eq!(judge(PrivateKeys::new(0), 3_592_000), 1);
    assert_eq!(judge(PrivateKeys::scattered(0), 3_592_000), 0);
    assert_eq!(judge(PrivateKeys::scattered(0), 3_580_000), 1);
}

#[test]
fn counters_stay_between_acknowledged_and_sent() {
    let add = |by| CrashOp::Add { counter: 0, by };
    let at = |n: i64| found(&[(counter_key(0), n.to_string().into_bytes())]);
    let records = || vec![shown(add(5), 1, ObservedState::Counter(5)), sent(add(3), 3)];
    assert_eq!(judge(records(), &at(5)), (0, 0, 0));
    assert_eq!(judge(records(), &at(8)), (0, 0, 0));
    assert_eq!(judge(records(), &at(4)), (1, 0, 0));
    assert_eq!(judge(records(), &at(9)), (0, 0, 1));
    let mut seen = records();
    seen.push(shown(CrashOp::ReadCounter(0), 4, ObservedState::Counter(8)));
    assert_eq!(
        judge(seen, &at(5)),
        (1, 0, 0),
        "a value that was shown is gone"
    );
}

#[test]
fn a_transfer_in_part_shows_in_the_sum() {
    let transfer = CrashOp::Transfer {
        from: 0,
        to: 1,
        amount: 10,
    };
    let at = |a: i64, b: i64| {
        let text = |n: i64| n.to_string().into_bytes();
        found(&[(account_key(0), text(a)), (account_key(1), text(b))])
    };
    assert_eq!(
        judge(vec![sent(transfer.clone(), 1)], &at(-10, 10)),
        (0, 0, 0)
    );
    assert_eq!(
        judge(vec![sent(transfer.clone(), 1)], &at(-10, 0)),
        (0, 1, 0)
    );
    assert_eq!(judge(vec![acked(transfer, 1)], &at(0, 0)), (2, 0, 0));
}

#[test]
fn a_group_is_whole_and_never_goes_back() {
    let first = [Some(1); 5];
    let second = [Some(2); 5];
    let records = || vec![acked(stamp(1), 1), sent(stamp(2), 3)];
    assert_eq!(judge(records(), &group(&first)), (0, 0, 0));
    assert_eq!(judge(records(), &group(&second)), (0, 0, 0));
    assert_eq!(judge(records(), &group(&[None; 5])), (1, 0, 0));
    assert_eq!(
        judge(
            records(),
            &group(&[Some(1), Some(2), Some(2), Some(2), Some(2)])
        ),
        (0, 1, 0)
    );
    let seen = shown(
        CrashOp::ReadGroup(0),
        5,
        ObservedState::Group(Some(value(2))),
    );
    let records = || {
        records()
            .into_iter()
            .chain([seen.clone()])
            .collect::<Vec<_>>()
    };
    assert_eq!(judge(records(), &group(&second)), (0, 0, 0));
    assert_eq!(
        judge(records(), &group(&first)),
        (1, 0, 0),
        "a stamp that was shown is gone"
    );
}

#[test]
fn a_key_that_no_connection_wrote_is_wrong() {
    assert_eq!(
        judge(vec![], &found(&[("ghost".into(), vec![1])])),
        (0, 0, 1)
    );
}
