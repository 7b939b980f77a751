//! Entries that a leader stages: their visible effects, their holds, and their outcome.

use base::participant::State;
use base::partition::OwnedReply;
use base::transaction::{Holder, ScanContents};
use base::{Abort, Op, Timestamp};

use crate::support::replica::{Replica, stager};
use crate::support::{Logged, committed, holder, holder_of, prepared, put_until, siblings_of};

const SCAN: Op<'static> = Op::Scan {
    from: b"s",
    to: Some(b"t"),
    limit: 10,
    contents: ScanContents::Keys,
};

/// Returns the holder of a system record until its entry is applied.
fn deciding(number: u64) -> Holder {
    Holder {
        id: holder(number).id,
        age: Timestamp(u64::MAX),
    }
}

#[test]
fn what_is_staged_is_seen_once_it_is_applied() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"a", b"1"), Op::put(b"gone", b"x")]);
    let add = Op::Add {
        key: b"a",
        delta: 41,
    };
    let ops = [
        add,
        Op::put(b"b", b"new"),
        Op::Delete { key: b"gone" },
        Op::Get { key: b"b" },
    ];
    let staged = leader.stage(2, &ops).unwrap();
    let expected = [
        OwnedReply::Int(42),
        OwnedReply::Ok,
        OwnedReply::Int(1),
        OwnedReply::Bytes(b"new".to_vec()),
    ];
    assert_eq!((staged.value, staged.writes), (expected.to_vec(), 3));
    assert_eq!(leader.engine.stats().keys, 2, "nothing has happened yet");
    for key in [&b"a"[..], b"b", b"gone"] {
        assert_eq!(holder_of(leader.read(key)), stager(2));
    }
    let (before, entry) = (leader.engine.releases(), leader.entry());
    leader.apply(&entry);
    assert_eq!(leader.get(b"a"), Some(b"42".to_vec()));
    assert_eq!(leader.get(b"b"), Some(b"new".to_vec()));
    assert_eq!(leader.get(b"gone"), None);
    assert_eq!(leader.engine.stats().keys, 2);
    leader.engine.release(stager(2).id);
    assert_eq!(leader.engine.releases(), before + 1);
    assert_eq!(leader.engine.applied().0, 2);
}

#[test]
fn what_was_read_is_held_until_it_is_released() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"r", b"1")]);
    let ops = [
        Op::Get { key: b"r" },
        Op::Get { key: b"absent" },
        SCAN,
        Op::put(b"w", b"1"),
    ];
    leader.stage(2, &ops).unwrap();
    let others = [&b"r"[..], b"absent", b"sesame", b"w"];
    for key in others {
        assert_eq!(holder_of(leader.stage(3, &[Op::put(key, b"")])), stager(2));
    }
    assert_eq!(holder_of(leader.stage(3, &[Op::Flush])), stager(2));
    assert_eq!(leader.get(b"r"), Some(b"1".to_vec()), "readers share");
    let entry = leader.entry();
    leader.apply(&entry);
    for key in &others[..3] {
        assert_eq!(holder_of(leader.stage(3, &[Op::put(key, b"")])), stager(2));
    }
    leader.engine.release(stager(2).id);
    for key in others {
        leader.run(3, &[Op::put(key, b"")]);
    }
    leader.run(3, &[Op::Flush]);
    assert_eq!(leader.engine.stats().keys, 0);
}

#[test]
fn what_writes_nothing_holds_nothing() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"a", b"1")]);
    let ops = [
        Op::Get { key: b"a" },
        Op::Get { key: b"none" },
        Op::Delete { key: b"none" },
    ];
    let staged = leader.stage(2, &ops).unwrap();
    assert_eq!((staged.writes, staged.value.len()), (0, 3));
    assert!(leader.log.entries.lock().is_empty());
    leader.run(3, &[Op::put(b"a", b"2"), Op::put(b"none", b"")]);
}

#[test]
fn a_transaction_of_several_lists_is_staged_as_one() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"from", b"x"), Op::put(b"other", b"1")]);
    // It writes what it has read.
    let staged = leader.stage_transaction(2, |txn| {
        let replies = txn.execute(&[Op::Get { key: b"from" }])?;
        let OwnedReply::Bytes(value) = OwnedReply::from(&replies[0]) else {
            panic!("{replies:?}");
        };
        txn.execute(&[Op::put(b"to", &value), Op::Delete { key: b"from" }])?;
        Ok(value)
    });
    let staged = staged.unwrap();
    assert_eq!((staged.value, staged.writes), (b"x".to_vec(), 2));
    for key in [&b"from"[..], b"to"] {
        assert_eq!(holder_of(leader.read(key)), stager(2));
    }
    assert_eq!(leader.get(b"other"), Some(b"1".to_vec()));
    leader.apply(&leader.entry());
    leader.engine.release(stager(2).id);
    assert_eq!(leader.get(b"to"), Some(b"x".to_vec()));
    assert_eq!(leader.get(b"from"), None);
    // One that only reads holds nothing, and is no entry.
    let read = leader.stage_transaction(3, |txn| {
        txn.execute(&[Op::Get { key: b"to" }])?;
        Ok(())
    });
    assert_eq!(read.unwrap().writes, 0);
    // One that gives up leaves nothing.
    let given_up = leader.stage_transaction(3, |txn| {
        txn.execute(&[Op::put(b"to", b"y")])?;
        Err::<(), _>(txn.cancel())
    });
    assert_eq!(given_up, Err(Abort::Cancelled));
    leader.run(4, &[Op::put(b"to", b"z")]);
    assert_eq!(leader.get(b"to"), Some(b"z".to_vec()));
}

#[test]
fn what_ends_with_an_abort_leaves_nothing() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"a", b"1")]);
    leader.tidy();
    let clean = leader.engine.stats();
    let require = Op::Require {
        key: b"a",
        present: false,
    };
    let ops = [Op::Get { key: b"r" }, Op::put(b"b", b"1"), require];
    assert_eq!(leader.stage(2, &ops), Err(Abort::Precondition { op: 2 }));
    *leader.log.broken.lock() = Some("full");
    let refused = leader.stage(2, &[Op::Get { key: b"r" }, Op::put(b"b", b"1")]);
    assert!(
        matches!(refused, Err(Abort::ReadOnly { .. })),
        "{refused:?}"
    );
    *leader.log.broken.lock() = None;
    leader.tidy();
    assert_eq!(leader.engine.stats().records, clean.records);
    leader.run(3, &[Op::put(b"b", b""), Op::put(b"r", b""), Op::Flush]);
}

/// An entry that a member finds to be too late is released without being applied.
#[test]
fn what_is_not_submitted_is_released_with_all_its_holds() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"a", b"1")]);
    leader.tidy();
    let clean = leader.engine.stats();
    leader
        .stage(2, &[Op::put(b"a", b"2"), Op::put(b"b", b"2"), SCAN])
        .unwrap();
    let releases = leader.engine.releases();
    leader.engine.release(stager(2).id);
    assert_eq!(leader.engine.releases(), releases + 1);
    leader.engine.release(stager(2).id);
    assert_eq!(
        leader.engine.releases(),
        releases + 1,
        "there was nothing left"
    );
    assert_eq!(leader.get(b"a"), Some(b"1".to_vec()));
    leader.tidy();
    assert_eq!(leader.engine.stats().records, clean.records);
    leader.run(3, &[Op::put(b"a", b"3"), Op::put(b"s", b"3")]);
}

#[test]
fn a_part_of_a_transaction_is_prepared_and_committed_by_entries() {
    let leader = Replica::new();
    leader.run(
        1,
        &[
            Op::put(b"a", b"1"),
            Op::put(b"gone", b"1"),
            Op::put(b"r", b"1"),
        ],
    );
    let ops = [
        Op::put(b"a", b"2"),
        put_until(b"new", b"x", 5_000),
        Op::Delete { key: b"gone" },
        Op::Get { key: b"r" },
        SCAN,
    ];
    let replies = leader.stage_prepare(1, &ops).unwrap();
    assert_eq!(replies[2], OwnedReply::Int(1));
    assert_eq!(leader.state(1), State::Unknown, "not applied");
    let meanwhile = leader.with(|w| w.stage_commit(holder(1).id));
    assert_eq!(holder_of(meanwhile), deciding(1));
    let (entry, releases) = (leader.entry(), leader.engine.releases());
    assert!(matches!(
        &entry.changes[..],
        [Logged::Put { origin: None, .. }]
    ));
    leader.apply(&entry);
    assert_eq!(
        leader.engine.releases(),
        releases + 1,
        "who met the decision is told"
    );
    assert_eq!(leader.state(1), prepared());
    for key in [&b"r"[..], b"sesame"] {
        assert_eq!(holder_of(leader.stage(2, &[Op::put(key, b"")])), holder(1));
    }
    let done = leader.with(|w| w.stage_commit(holder(1).id)).unwrap();
    assert_eq!(done, (prepared(), true));
    let again = leader.with(|w| w.stage_abort(holder(1).id));
    assert_eq!(holder_of(again), deciding(1));
    assert_eq!(leader.read(b"a"), Err(Abort::Held { by: holder(1) }));
    let entry = leader.entry();
    leader.apply(&entry);
    leader.engine.release(holder(1).id);
    assert_eq!(leader.state(1), committed());
    assert_eq!(leader.get(b"a"), Some(b"2".to_vec()));
    assert_eq!(leader.get(b"new"), Some(b"x".to_vec()));
    assert_eq!(leader.get(b"gone"), None);
    let origin = (holder(1).id, siblings_of(&[b"a", b"new", b"gone"]));
    for key in [&b"a"[..], b"gone"] {
        assert_eq!(leader.with(|w| w.origin_of(key)), Some(origin.clone()));
    }
    leader.run(2, &[Op::put(b"r", b""), Op::put(b"sesame", b"")]);
    let late = leader.with(|w| w.stage_commit(holder(1).id)).unwrap();
    assert_eq!(late, (committed(), false));
    assert_eq!(
        leader.with(|w| w.stage_forget(holder(1).id)).unwrap(),
        (committed(), true)
    );
    let entry = leader.entry();
    leader.apply(&entry);
    assert_eq!(leader.state(1), State::Unknown);
    let refused = leader.stage_prepare(1, &ops);
    let newest = holder(1).id.timestamp;
    assert_eq!(refused, Err(Abort::Overtaken { newest }));
}

#[test]
fn an_aborted_part_gives_back_what_it_held() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"a", b"1")]);
    leader.tidy();
    let clean = leader.engine.stats();
    leader
        .stage_prepare(1, &[Op::put(b"a", b"2"), Op::put(b"b", b"2"), SCAN])
        .unwrap();
    leader.apply(&leader.entry());
    assert_eq!(
        leader.with(|w| w.stage_abort(holder(1).id)).unwrap(),
        (prepared(), true)
    );
    leader.apply(&leader.entry());
    assert_eq!(holder_of(leader.read(b"b")), holder(1), "not released");
    leader.engine.release(holder(1).id);
    assert_eq!(leader.state(1), State::Unknown);
    assert_eq!(leader.get(b"a"), Some(b"1".to_vec()));
    leader.tidy();
    assert_eq!(leader.engine.stats().records, clean.records);
    leader.run(2, &[Op::put(b"b", b""), Op::put(b"s", b""), Op::Flush]);
}

#[test]
fn a_refusal_lasts_until_its_deadline() {
    let leader = Replica::new();
    leader.engine.set_time_ms(1_000);
    let refuse = |until| {
        leader
            .with(|w| w.stage_refuse(holder(1).id, until))
            .unwrap()
    };
    assert_eq!(refuse(5_000), (State::Unknown, true));
    leader.apply(&leader.entry());
    assert_eq!(leader.state(1), State::Refused);
    assert_eq!(refuse(4_000), (State::Refused, false));
    assert_eq!(refuse(6_000), (State::Refused, true));
    leader.apply(&leader.entry());
    let write = [Op::put(b"a", b"")];
    assert_eq!(leader.stage_prepare(1, &write), Err(Abort::Refused));
    leader.tick(6_000);
    assert_eq!(leader.state(1), State::Unknown);
    leader.stage_prepare(1, &write).unwrap();
}

#[test]
fn a_decision_that_is_not_submitted_changes_nothing() {
    let leader = Replica::new();
    leader.stage_prepare(1, &[Op::put(b"a", b"1")]).unwrap();
    leader.apply(&leader.entry());
    for _ in 0..2 {
        leader.with(|w| w.stage_commit(holder(1).id)).unwrap();
        leader.with(|w| w.unstage(holder(1).id));
        assert_eq!(leader.state(1), prepared());
        assert_eq!(holder_of(leader.read(b"a")), holder(1));
    }
    *leader.log.broken.lock() = Some("full");
    let refused = leader.with(|w| w.stage_commit(holder(1).id));
    assert!(
        matches!(refused, Err(Abort::ReadOnly { .. })),
        "{refused:?}"
    );
    *leader.log.broken.lock() = None;
    leader.with(|w| w.stage_commit(holder(1).id)).unwrap();
    leader.apply(&leader.entry());
    leader.engine.release(holder(1).id);
    assert_eq!(leader.get(b"a"), Some(b"1".to_vec()));
    // The same for an attempt that is prepared in vain.
    leader.stage_prepare(2, &[Op::put(b"a", b"2")]).unwrap();
    leader.with(|w| w.unstage(holder(2).id));
    leader.engine.release(holder(2).id);
    assert_eq!(leader.state(2), State::Unknown);
    leader.run(3, &[Op::put(b"a", b"3")]);
}

#[test]
fn a_lost_leadership_leaves_no_holds_and_a_new_one_brings_back_what_is_in_the_log() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"a", b"1"), Op::put(b"r", b"1")]);
    leader
        .stage_prepare(1, &[Op::put(b"a", b"2"), Op::Get { key: b"r" }, SCAN])
        .unwrap();
    leader.apply(&leader.entry());
    leader
        .stage(2, &[Op::put(b"lost", b"x"), Op::Get { key: b"also" }])
        .unwrap();
    leader
        .stage_prepare(2, &[Op::put(b"lost, too", b"x")])
        .unwrap();
    leader.with(|w| w.stage_commit(holder(1).id)).unwrap();
    let releases = leader.engine.releases();
    leader.engine.drop_holds();
    assert_eq!(leader.engine.releases(), releases + 1);
    // A transaction that is staged too late holds the records that it needs, and no other holds are
    // left.
    let other_scan = Op::Scan {
        from: b"u",
        to: None,
        limit: 1,
        contents: ScanContents::Keys,
    };
    leader.stage(8, &[other_scan, Op::put(b"x", b"")]).unwrap();
    leader.stage(9, &[Op::put(b"sesame", b"")]).unwrap();
    assert_eq!(
        holder_of(leader.stage(7, &[Op::put(b"up", b"")])),
        stager(8)
    );
    leader.engine.release(stager(8).id);
    leader.engine.release(stager(9).id);
    // A late release finds nothing.
    leader.engine.release(stager(2).id);
    leader.with(|w| w.unstage(holder(2).id));
    let late = leader.with(|w| w.stage_commit(holder(1).id));
    assert_eq!(late, Err(Abort::Elsewhere { leader: None }));
    // Another replica leads, whose entries come.
    assert_eq!(leader.get(b"a"), Some(b"1".to_vec()));
    assert_eq!(leader.get(b"lost"), None);
    let other = Replica::new();
    let theirs = other.run(1, &[Op::put(b"also", b"y"), Op::put(b"lost", b"y")]);
    leader.apply(&theirs);
    assert_eq!(leader.get(b"lost"), Some(b"y".to_vec()));
    for _ in 0..2 {
        assert_eq!(leader.engine.restore_prepared(), Ok(1));
        assert_eq!(holder_of(leader.read(b"a")), holder(1));
        for key in [&b"r"[..], b"sesame"] {
            assert_eq!(holder_of(leader.stage(3, &[Op::put(key, b"")])), holder(1));
        }
        assert_eq!(holder_of(leader.stage(3, &[Op::Flush])), holder(1));
        leader.engine.drop_holds();
    }
    leader.engine.restore_prepared().unwrap();
    assert_eq!(
        leader.engine.restore_prepared(),
        Ok(1),
        "it may be called again"
    );
    assert_eq!(
        leader.with(|w| w.stage_commit(holder(1).id)).unwrap(),
        (prepared(), true)
    );
    leader.apply(&leader.entry());
    leader.engine.release(holder(1).id);
    assert_eq!(leader.get(b"a"), Some(b"2".to_vec()));
    leader.run(3, &[Op::put(b"r", b""), Op::put(b"sesame", b""), Op::Flush]);
    leader.tidy();
    assert_eq!(leader.engine.stats().keys, 0);
}

/// Entries apply on top of any records that late transactions still hold.
#[test]
fn an_entry_takes_what_is_held_exclusively() {
    let follower = Replica::new();
    follower.run(1, &[Op::put(b"a", b"1")]);
    follower
        .stage(2, &[Op::put(b"a", b"mine"), Op::put(b"b", b"mine")])
        .unwrap();
    let other = Replica::new();
    let theirs = other.run(1, &[Op::put(b"a", b"theirs")]);
    follower.apply(&theirs);
    assert_eq!(follower.get(b"a"), Some(b"theirs".to_vec()));
    assert_eq!(holder_of(follower.read(b"b")), stager(2));
    follower.engine.release(stager(2).id);
    assert_eq!(follower.get(b"b"), None);
    assert_eq!(follower.get(b"a"), Some(b"theirs".to_vec()));
}

#[test]
fn readers_that_come_later_give_way_to_a_waiting_writer() {
    let leader = Replica::new();
    leader.run(1, &[Op::put(b"k", b"1")]);
    let read = Op::Get { key: b"k" };
    leader
        .stage(2, &[read.clone(), Op::put(b"2", b"")])
        .unwrap();
    let first = leader.entry();
    assert_eq!(
        holder_of(leader.stage(3, &[Op::put(b"k", b"2")])),
        stager(2)
    );
    let late = leader.stage(4, &[read.clone(), Op::put(b"4", b"")]);
    assert_eq!(holder_of(late), stager(2));
    leader.apply(&first);
    leader.engine.release(stager(2).id);
    leader.run(3, &[Op::put(b"k", b"2")]);
    leader.run(4, &[read, Op::put(b"4", b"")]);
}
