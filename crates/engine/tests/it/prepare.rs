//! Parts of transactions over several partitions: their effects, and their decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::epochs::EpochClock;
use base::limits::Limits;
use base::limits::RESERVED;
use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::{Expiry, Kind, OpError, ScanContents};
use base::{Abort, Op};
use testkit::SetOnDrop;

use crate::support::{
    Logged, NOTE, World, committed, holder, holder_of, prepared, put_until, siblings_of,
};

#[test]
fn what_is_prepared_is_seen_once_it_commits() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1"), Op::put(b"gone", b"x")]);
    let ops = [
        Op::Add {
            key: b"a",
            delta: 41,
        },
        Op::put(b"b", b"new"),
        Op::Delete { key: b"gone" },
        Op::Get { key: b"b" },
        Op::Get { key: b"none" },
    ];
    let replies = world.prepare(&mut w, 1, &ops).unwrap();
    let expected = [
        OwnedReply::Int(42),
        OwnedReply::Ok,
        OwnedReply::Int(1),
        OwnedReply::Bytes(b"new".to_vec()),
        OwnedReply::Nil,
    ];
    assert_eq!(replies, expected);
    assert_eq!(world.state(1), prepared());
    assert_eq!(world.engine.stats().keys, 2, "nothing has happened yet");
    let before = (world.engine.releases(), world.engine.stats().commits);
    let (state, epoch) = w.commit(holder(1).id).unwrap();
    assert_eq!((state, epoch), (prepared(), w.observed().epoch));
    let after = (world.engine.releases(), world.engine.stats().commits);
    assert_eq!(after, (before.0 + 1, before.1 + 1));
    assert_eq!(world.get(b"a"), Some(b"42".to_vec()));
    assert_eq!(world.get(b"b"), Some(b"new".to_vec()));
    assert_eq!(world.get(b"gone"), None);
    assert_eq!(world.engine.stats().keys, 2);
    assert_eq!(world.state(1), committed());
    assert_eq!(w.commit(holder(1).id).unwrap().0, committed(), "once");
    assert_eq!(w.abort(holder(1).id).unwrap().0, committed(), "too late");
    assert_eq!(world.get(b"a"), Some(b"42".to_vec()));
    w.forget(holder(1).id).unwrap();
    assert_eq!(world.state(1), State::Unknown);
    assert_eq!(w.commit(holder(1).id).unwrap().0, State::Unknown);
}

#[test]
fn an_abort_leaves_nothing() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1")]);
    world.tidy();
    let clean = world.engine.stats();
    let ops = [
        Op::put(b"a", b"2"),
        Op::put(b"new", b"x"),
        Op::Get { key: b"absent" },
        Op::Scan {
            from: b"",
            to: None,
            limit: 10,
            contents: ScanContents::Keys,
        },
    ];
    world.prepare(&mut w, 1, &ops).unwrap();
    assert!(world.engine.stats().records > clean.records);
    assert_eq!(w.abort(holder(1).id).unwrap().0, prepared());
    assert_eq!(w.abort(holder(1).id).unwrap().0, State::Unknown);
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()));
    assert_eq!(world.get(b"new"), None);
    world.run(&[Op::put(b"absent", b""), Op::put(b"new", b"")]);
    world.run(&[Op::Delete { key: b"absent" }, Op::Delete { key: b"new" }]);
    world.tidy();
    let after = world.engine.stats();
    assert_eq!(
        (after.keys, after.records, after.memory_bytes),
        (clean.keys, clean.records, clean.memory_bytes)
    );
    // An aborted attempt is unknown, and may be prepared.
    world.prepare(&mut w, 1, &ops).unwrap();
}

/// No records that were made to hold absences may be left, not even if they are not written
/// afterwards.
#[test]
fn records_made_to_hold_an_absence_go_with_the_hold() {
    let world = World::new();
    let mut w = world.worker();
    let clean = world.engine.stats();
    let ops = [Op::Get { key: b"absent" }, Op::put(b"new", b"x")];
    world.prepare(&mut w, 1, &ops).unwrap();
    world.tidy();
    assert!(
        world.engine.stats().records > clean.records,
        "they are held"
    );
    w.abort(holder(1).id).unwrap();
    world.tidy();
    assert_eq!(world.engine.stats().records, clean.records);
    assert_eq!(world.engine.stats().memory_bytes, clean.memory_bytes);
}

#[test]
fn a_failed_precondition_leaves_nothing() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1")]);
    world.tidy();
    let (clean, log) = (world.engine.stats(), world.log.entries.lock().len());
    let ops = [
        Op::put(b"b", b"x"),
        Op::Get { key: b"c" },
        Op::Require {
            key: b"a",
            present: false,
        },
    ];
    let outcome = world.prepare(&mut w, 1, &ops);
    assert_eq!(outcome, Err(Abort::Precondition { op: 2 }));
    assert_eq!(world.state(1), State::Unknown);
    world.tidy();
    assert_eq!(world.engine.stats().records, clean.records);
    assert_eq!(world.log.entries.lock().len(), log);
    world.run(&[Op::put(b"b", b""), Op::put(b"c", b""), Op::put(b"a", b"")]);
}

/// The attempt has made a record of an absent key before it meets a hold.
#[test]
fn one_that_meets_a_hold_leaves_nothing() {
    let world = World::new();
    let mut w = world.worker();
    world
        .prepare(&mut w, 1, &[Op::Get { key: b"held" }])
        .unwrap();
    world.tidy();
    let (clean, log) = (world.engine.stats(), world.log.entries.lock().len());
    let ops = [
        Op::Get { key: b"absent" },
        Op::put(b"held", b"x"),
        Op::put(b"new", b"x"),
    ];
    assert_eq!(holder_of(world.prepare(&mut w, 2, &ops)), holder(1));
    world.tidy();
    let after = world.engine.stats();
    assert_eq!(
        (after.records, after.memory_bytes),
        (clean.records, clean.memory_bytes)
    );
    assert_eq!(world.log.entries.lock().len(), log);
    world.run(&[Op::put(b"absent", b""), Op::put(b"new", b"")]);
}

#[test]
fn a_precondition_that_holds_is_held() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1")]);
    let version = match world.run(&[Op::Watch { key: b"a" }])[0] {
        OwnedReply::Version(version) => version,
        ref other => panic!("{other:?}"),
    };
    let check = Op::Check { key: b"a", version };
    world
        .prepare(&mut w, 1, std::slice::from_ref(&check))
        .unwrap();
    assert_eq!(world.read(b"a"), Ok(Some(b"1".to_vec())));
    assert_eq!(holder_of(world.try_run(&[Op::put(b"a", b"2")])), holder(1));
    w.commit(holder(1).id).unwrap();
    world.run(&[Op::put(b"a", b"2")]);
    let outcome = world.prepare(&mut w, 2, &[check]);
    assert_eq!(outcome, Err(Abort::Precondition { op: 0 }));
}

#[test]
fn an_attempt_is_prepared_once() {
    let world = World::new();
    let mut w = world.worker();
    let ops = [Op::put(b"a", b"1")];
    world.prepare(&mut w, 1, &ops).unwrap();
    let again = [Op::put(b"other", b"1")];
    assert_eq!(world.prepare(&mut w, 1, &again), Err(Abort::Refused));
    assert_eq!(world.state(1), prepared());
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.prepare(&mut w, 1, &again), Err(Abort::Refused));
    assert_eq!(world.get(b"other"), None);
}

#[test]
fn a_refusal_lasts_until_its_deadline() {
    let world = World::new();
    let mut w = world.worker();
    let (id, ops) = (holder(1).id, [Op::put(b"a", b"1")]);
    assert_eq!(w.refuse(id, 2_000).unwrap().0, State::Unknown);
    assert_eq!(world.prepare(&mut w, 1, &ops), Err(Abort::Refused));
    assert_eq!(w.refuse(id, 1_500).unwrap().0, State::Refused, "shorter");
    world.clock.set(1_999);
    assert_eq!(world.prepare(&mut w, 1, &ops), Err(Abort::Refused));
    assert_eq!(w.refuse(id, 3_000).unwrap().0, State::Refused, "longer");
    world.clock.set(2_999);
    world.tidy();
    assert_eq!(world.state(1), State::Refused);
    assert_eq!(w.commit(id).unwrap().0, State::Refused);
    assert_eq!(w.abort(id).unwrap().0, State::Refused);
    w.forget(id).unwrap();
    assert_eq!(world.state(1), State::Refused);
    assert_eq!(world.engine.stats().keys, 0);
    world.clock.set(3_000);
    assert_eq!(world.state(1), State::Unknown);
    world.tidy();
    assert_eq!(world.engine.stats().records, 0, "it is reclaimed");
    assert_eq!(world.engine.stats().expired, 0, "it was no key");
    world.prepare(&mut w, 1, &ops).unwrap();
    assert_eq!(w.refuse(id, 9_000).unwrap().0, prepared(), "too late");
    assert_eq!(world.state(1), prepared());
}

#[test]
fn answers_say_on_what_epoch_they_depend() {
    let world = World::new();
    let mut w = world.worker();
    let epochs = world.engine.epochs();
    let advance = || epochs.advance(epochs.current());
    advance();
    world.prepare(&mut w, 1, &[Op::put(b"a", b"1")]).unwrap();
    let prepared_in = w.observed().epoch;
    assert_eq!(prepared_in, epochs.current());
    advance();
    assert_eq!(w.state(holder(1).id), (prepared(), prepared_in));
    let (_, committed_in) = w.commit(holder(1).id).unwrap();
    assert!(committed_in > prepared_in);
    advance();
    assert_eq!(w.commit(holder(1).id).unwrap(), (committed(), committed_in));
    assert_eq!(w.observed().epoch, committed_in);
    w.forget(holder(1).id).unwrap();
    let forgotten_in = w.observed().epoch;
    assert!(forgotten_in > committed_in);
    advance();
    assert_eq!(w.state(holder(1).id), (State::Unknown, forgotten_in));
}

#[test]
fn versions_carry_their_origin() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"gone", b"x"), Op::put(b"plain", b"x")]);
    let ops = [Op::put(b"a", b"1"), Op::Delete { key: b"gone" }];
    let origin = Some((holder(1).id, siblings_of(&[b"a", b"gone"])));
    world.prepare(&mut w, 1, &ops).unwrap();
    assert_eq!(world.origin(b"a"), None);
    w.commit(holder(1).id).unwrap();
    for key in [&b"a"[..], b"gone"] {
        assert_eq!(world.origin(key), origin, "{}", key.escape_ascii());
    }
    assert_eq!(world.origin(b"plain"), None);
    let entries = world.log.entries.lock().clone();
    let logged = &entries.last().unwrap().1;
    let expected = [
        Logged::Put {
            key: b"a".to_vec(),
            value: b"1".to_vec(),
            kind: Kind::String,
            generation: 0,
            deadline: None,
            origin: origin.clone(),
        },
        Logged::Delete {
            key: b"gone".to_vec(),
            origin: origin.clone(),
        },
    ];
    assert_eq!(logged.len(), 3, "and the system record: one entry");
    assert!(expected.iter().all(|change| logged.contains(change)));
    let view = world.engine.snapshot();
    let seen = w.read_snapshot(&view, b"a", |entry| {
        entry.origin.map(|o| (o.id, o.siblings.to_vec()))
    });
    assert_eq!(seen, Some(origin.clone()));
    assert_eq!(world.restarted().origin(b"a"), origin);
    assert_eq!(world.restarted().origin(b"gone"), origin);
    world.run(&[Op::put(b"a", b"2")]);
    assert_eq!(world.origin(b"a"), None, "replaced by one partition alone");
}

#[test]
fn the_memory_of_origins_is_counted_and_comes_back() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1"), Op::put(b"b", b"1")]);
    world.tidy();
    let before = world.engine.stats().memory_bytes;
    let long = [0x61; 5_000];
    let prepare = Prepare {
        holder: holder(1),
        ops: &[Op::put(b"a", b"2"), Op::put(b"b", b"2")],
        siblings: &siblings_of(&[&long]),
        note: b"",
        isolation: base::participant::Isolation::Serializable,
    };
    w.prepare(&prepare).unwrap();
    w.commit(holder(1).id).unwrap();
    w.forget(holder(1).id).unwrap();
    world.tidy();
    let with = world.engine.stats().memory_bytes;
    assert!((before + 5_000..before + 6_000).contains(&with), "shared");
    world.run(&[Op::put(b"a", b"3")]);
    world.tidy();
    assert!(world.engine.stats().memory_bytes > before + 5_000);
    world.run(&[Op::put(b"b", b"3")]);
    world.tidy();
    assert_eq!(world.engine.stats().memory_bytes, before);
}

#[test]
fn timestamps_of_a_key_only_grow() {
    let world = World::new();
    let mut w = world.worker();
    for (key, number) in [(b"a", 5), (b"b", 9)] {
        world
            .prepare(&mut w, number, &[Op::put(key, b"x")])
            .unwrap();
        w.commit(holder(number).id).unwrap();
    }
    let both = [Op::put(b"a", b"y"), Op::put(b"b", b"y")];
    let newest = holder(9).id.timestamp;
    let outcome = world.prepare(&mut w, 7, &both);
    assert_eq!(outcome, Err(Abort::Overtaken { newest }));
    // Another attempt of the same timestamp.
    let mut same = holder(9);
    same.id.unique = 77;
    let prepare = Prepare {
        holder: same,
        ops: &both,
        siblings: b"",
        note: NOTE,
        isolation: base::participant::Isolation::Serializable,
    };
    assert_eq!(w.prepare(&prepare), Err(Abort::Overtaken { newest }));
    assert_eq!(world.get(b"a"), Some(b"x".to_vec()), "nothing is held");
    world.prepare(&mut w, 7, &[Op::Get { key: b"b" }]).unwrap();
    w.commit(holder(7).id).unwrap();
    world.prepare(&mut w, 10, &both).unwrap();
}

#[test]
fn a_commit_is_later_than_all_that_was_read_and_replaced() {
    let world = World::new();
    let mut w = world.worker();
    let mut other = world.worker();
    for round in 0..20 {
        other.execute(&[Op::put(b"read", &[round])]).unwrap();
        other.execute(&[Op::put(b"written", &[round])]).unwrap();
    }
    let newest = other.observed().tid;
    let ops = [Op::Get { key: b"read" }, Op::put(b"written", b"x")];
    world.prepare(&mut w, 1, &ops).unwrap();
    assert!(w.observed().tid > newest);
    let mut third = world.worker();
    third.commit(holder(1).id).unwrap();
    assert!(third.observed().tid > w.observed().tid);
}

#[test]
fn a_prepared_flush_empties_when_it_commits() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1"), Op::put(b"b", b"1")]);
    let ops = [
        Op::put(b"before", b"x"),
        Op::Flush,
        Op::put(b"after", b"x"),
        Op::Count { database: 0 },
    ];
    let replies = world.prepare(&mut w, 1, &ops).unwrap();
    assert_eq!(replies[3], OwnedReply::Int(1));
    assert_eq!(world.engine.stats().keys, 2);
    assert_eq!(
        world.read(b"a"),
        Err(holder(1)),
        "everybody waits for a flush"
    );
    assert_eq!(world.read(b"none"), Err(holder(1)));
    let outcome = world.prepare(&mut w, 2, &[Op::Get { key: b"none" }]);
    assert_eq!(holder_of(outcome), holder(1));
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.engine.stats().keys, 1);
    assert_eq!(world.get(b"a"), None);
    assert_eq!(world.get(b"before"), None);
    assert_eq!(world.get(b"after"), Some(b"x".to_vec()));
    assert_eq!(world.state(1), committed(), "flushes leave it alone");
    world.run(&[Op::put(b"c", b"1")]);
    assert_eq!(world.engine.stats().keys, 2);
    world.tidy();
    assert_eq!(world.state(1), committed(), "and so does the janitor");
    // The records of "after", "c", and the system record.
    assert_eq!(world.engine.stats().records, 3);
}

#[test]
fn an_aborted_flush_changes_nothing() {
    let world = World::new();
    let mut w = world.worker();
    drop(w.execute(&[Op::put(b"a", b"1")]).unwrap());
    world.prepare(&mut w, 1, &[Op::Flush]).unwrap();
    assert_eq!(world.engine.stats().keys, 1);
    w.abort(holder(1).id).unwrap();
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()));
    assert_eq!(world.engine.stats().keys, 1);
    world.run(&[Op::Flush]);
    assert_eq!(world.engine.stats().keys, 0);
}

#[test]
fn clients_neither_see_nor_write_system_records() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"z", b"1")]);
    world.prepare(&mut w, 1, &[Op::put(b"a", b"1")]).unwrap();
    w.commit(holder(1).id).unwrap();
    let key = [&RESERVED[..], &holder(1).id.to_bytes()].concat();
    let ops = [
        Op::Get { key: &key },
        Op::Exists { key: &key },
        Op::Delete { key: &key },
        Op::Persist { key: &key },
        Op::put(&key, b"x"),
        put_until(&key, b"x", 5),
        Op::Append {
            key: &key,
            value: b"x",
        },
        Op::Count { database: 0 },
    ];
    let refused = OwnedReply::Error(OpError::Reserved);
    let expected = [
        OwnedReply::Nil,
        OwnedReply::Int(0),
        OwnedReply::Int(0),
        OwnedReply::Int(0),
        refused.clone(),
        refused.clone(),
        refused,
        OwnedReply::Int(2),
    ];
    assert_eq!(world.run(&ops), expected);
    let mut neighbours = [RESERVED.to_vec(), RESERVED.to_vec()];
    neighbours[0].pop();
    neighbours[1][15] = 0xfe;
    for key in &neighbours {
        world.run(&[Op::put(key, b"x"), Op::Delete { key }]);
    }
    let scan = Op::Scan {
        from: b"b",
        to: None,
        limit: 10,
        contents: ScanContents::Keys,
    };
    let pairs = OwnedReply::Pairs(vec![(b"z".to_vec(), Vec::new())]);
    assert_eq!(world.run(&[scan])[0], pairs);
    let closure = w.transact(|txn| txn.put(&RESERVED, b"x"));
    assert_eq!(closure.err(), Some(Abort::Failed(OpError::Reserved)));
    let view = world.engine.snapshot();
    let (mut shown, mut walked) = (Vec::new(), Vec::new());
    w.scan_snapshot(&view, b"b", None, 100, |entry| {
        shown.push(entry.key.to_vec())
    });
    assert_eq!(shown, [b"z".to_vec()]);
    assert_eq!(w.read_snapshot(&view, &key, |_| ()), None);
    w.walk_snapshot(&view, b"b", None, |entry| {
        walked.extend(entry.map(|entry| (entry.key.to_vec(), entry.is_system())));
        true
    });
    assert_eq!(walked, [(b"z".to_vec(), false), (key, true)]);
}

/// A scan of everything must not see the engine's own records.
#[test]
fn system_records_disturb_no_scan() {
    let world = World::new();
    let (mut w, mut other) = (world.worker(), world.worker());
    let mut runs = 0;
    let outcome = w.transact(|txn| {
        runs += 1;
        let pairs = txn.scan(b"", None, 10)?.len();
        other.refuse(holder(runs).id, 9_000).unwrap();
        txn.put(b"a", b"1")?;
        Ok(pairs)
    });
    assert_eq!((outcome.unwrap().0, runs), (0, 1));
}

#[test]
fn limits_hold_for_what_is_kept() {
    let world = World::with(Limits {
        transaction_bytes: 1_000,
        transaction_ops: 3,
        ..Limits::default()
    });
    let mut w = world.worker();
    let many = [(); 4].map(|()| Op::Get { key: b"a" });
    let outcome = world.prepare(&mut w, 1, &many);
    assert_eq!(outcome, Err(Abort::TooLarge { what: "operations" }));
    let (large, what) = ([0; 1_000], "bytes written");
    let outcome = world.prepare(&mut w, 1, &[Op::put(b"a", &large)]);
    assert_eq!(outcome, Err(Abort::TooLarge { what }));
    let note = Prepare {
        holder: holder(1),
        ops: &[],
        siblings: b"",
        note: &large,
        isolation: base::participant::Isolation::Serializable,
    };
    assert_eq!(w.prepare(&note), Err(Abort::TooLarge { what }));
    assert_eq!(world.state(1), State::Unknown);
    assert_eq!(world.get(b"a"), None);
    world.prepare(&mut w, 1, &[Op::put(b"a", b"1")]).unwrap();
}

#[test]
fn a_broken_log_changes_nothing() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1")]);
    world.prepare(&mut w, 1, &[Op::put(b"a", b"2")]).unwrap();
    *world.log.broken.lock() = Some("no space");
    let reason = || Abort::ReadOnly {
        reason: "no space".to_owned(),
    };
    let outcome = world.prepare(&mut w, 2, &[Op::put(b"b", b"1")]);
    assert_eq!(outcome, Err(reason()));
    assert_eq!(world.state(2), State::Unknown);
    assert_eq!(world.get(b"b"), None, "nothing is held");
    assert_eq!(w.commit(holder(1).id).err(), Some(reason()));
    assert_eq!(w.abort(holder(1).id).err(), Some(reason()));
    assert_eq!(w.refuse(holder(3).id, 9_000).err(), Some(reason()));
    assert_eq!(world.state(1), prepared());
    assert_eq!(world.state(3), State::Unknown);
    assert_eq!(world.read(b"a"), Err(holder(1)));
    *world.log.broken.lock() = None;
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.get(b"a"), Some(b"2".to_vec()));
}

#[test]
fn one_of_several_deciders_wins() {
    for round in 0..200 {
        let world = World::new();
        let mut w = world.worker();
        world.run(&[Op::put(b"a", b"old")]);
        world.prepare(&mut w, 1, &[Op::put(b"a", b"new")]).unwrap();
        let decide = |commit: bool| {
            let mut w = world.worker();
            move || {
                let decided = if commit {
                    w.commit(holder(1).id)
                } else {
                    w.abort(holder(1).id)
                };
                (commit, decided.unwrap().0)
            }
        };
        let deciders = [true, false, true].map(decide);
        let outcomes: Vec<(bool, State)> = std::thread::scope(|scope| {
            let threads = deciders.map(|decide| scope.spawn(decide));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let winners = outcomes.iter().filter(|(_, state)| *state == prepared());
        let winners: Vec<bool> = winners.map(|(commit, _)| *commit).collect();
        assert_eq!(winners.len(), 1, "round {round}: {outcomes:?}");
        let (value, state) = if winners[0] {
            (b"new", committed())
        } else {
            (b"old", State::Unknown)
        };
        assert_eq!(world.get(b"a"), Some(value.to_vec()));
        assert_eq!(world.state(1), state);
        let losers = outcomes.iter().filter(|(_, state)| *state != prepared());
        assert!(losers.into_iter().all(|(_, seen)| *seen == state));
        assert_eq!(world.engine.releases(), 1);
    }
}

#[test]
fn waiting_transactions_hear_of_every_release() {
    let world = World::new();
    let mut w = world.worker();
    let told = Arc::new(AtomicU64::new(0));
    let listener = Arc::clone(&told);
    world.engine.on_release(Box::new(move || {
        listener.fetch_add(1, Ordering::SeqCst);
    }));
    let expect = |number: u64| assert_eq!(told.load(Ordering::SeqCst), number);
    world.prepare(&mut w, 1, &[Op::put(b"a", b"1")]).unwrap();
    expect(0);
    w.commit(holder(1).id).unwrap();
    expect(1);
    w.forget(holder(1).id).unwrap();
    w.refuse(holder(9).id, 5_000).unwrap();
    expect(1);
    world.prepare(&mut w, 2, &[Op::Get { key: b"a" }]).unwrap();
    w.abort(holder(2).id).unwrap();
    expect(2);
    world.prepare(&mut w, 5, &[Op::Flush]).unwrap();
    w.commit(holder(5).id).unwrap();
    expect(3);
    // Holds that were taken before the attempt failed count as well.
    world.prepare(&mut w, 3, &[Op::Get { key: b"x" }]).unwrap();
    let ops = [Op::Get { key: b"a" }, Op::put(b"x", b"1")];
    assert_eq!(holder_of(world.prepare(&mut w, 4, &ops)), holder(3));
    w.commit(holder(3).id).unwrap();
    assert_eq!(world.engine.releases(), told.load(Ordering::SeqCst));
}

#[test]
fn time_goes_with_the_clock_and_never_back() {
    let world = World::new();
    let w = world.worker();
    assert_eq!(w.time_ms(), 1_000);
    world.clock.set(1_234);
    assert_eq!(w.time_ms(), 1_234);
    world.clock.set(900);
    assert_eq!(w.time_ms(), 1_234);
}

#[test]
fn deadlines_are_those_of_the_preparation() {
    let world = World::new();
    let mut w = world.worker();
    let op = Op::Put {
        key: b"a",
        value: b"1",
        when: base::transaction::When::Always,
        expiry: Expiry::InMs(100),
        get: false,
    };
    world.prepare(&mut w, 1, &[op]).unwrap();
    world.clock.set(1_099);
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()));
    world.clock.set(1_100);
    assert_eq!(world.get(b"a"), None);
    world.tidy();
    assert_eq!(world.engine.stats().keys, 0);
}

/// Time passes while operations are executed: their reads are those at the time of the epoch in
/// which they were prepared.
#[test]
fn no_deadline_passes_while_operations_are_prepared() {
    let world = World::new();
    let (mut w, stop) = (world.worker(), AtomicBool::new(false));
    let ops = [(); 500].map(|()| Op::Get { key: b"a" });
    let (mut alive, mut late) = (0, None);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let epochs = world.engine.epochs();
        let (clock, stop) = (&world.clock, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                clock.advance(1);
                epochs.advance(epochs.current());
            }
        });
        for number in 1..2_000 {
            let deadline = w.time_ms() + 20;
            world.run(&[put_until(b"a", b"1", deadline as i64)]);
            let replies = world.prepare(&mut w, number, &ops).unwrap();
            if replies[0] != OwnedReply::Nil {
                let stamp_ms = world.log.stamp_ms.load(Ordering::SeqCst);
                late = (stamp_ms >= deadline).then_some((stamp_ms, deadline));
                alive += 1;
            }
            w.abort(holder(number).id).unwrap();
            // A panic would leave the other thread running.
            if late.is_some() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(late, None, "the epoch's time and the deadline");
    assert!(alive > 0);
}

/// Generation numbers wrap around, and skip that of system records.
#[test]
fn flushes_pass_by_the_generation_of_system_records() {
    let world = World::new();
    let mut w = world.worker();
    w.refuse(holder(1).id, u64::MAX).unwrap();
    world.prepare(&mut w, 2, &[Op::put(b"a", b"1")]).unwrap();
    w.commit(holder(2).id).unwrap();
    for round in 0..66_000_u32 {
        let key = round.to_le_bytes();
        if (65_530..65_540).contains(&round) {
            world.run(&[Op::put(&key, b"1")]);
        }
        world.run(&[Op::Flush]);
        if round % 20_000 == 0 {
            world.tidy();
        }
        assert_eq!(world.get(&key), None);
    }
    world.tidy();
    assert_eq!(world.engine.stats().records, 2, "the system records");
    assert_eq!(
        (world.state(1), world.state(2)),
        (State::Refused, committed())
    );
    assert_eq!(world.get(b"a"), None);
}

/// Replies may refer to values that the attempt wrote, which an abort by another thread frees.
#[test]
fn replies_outlive_an_abort_that_comes_at_once() {
    let world = World::new();
    let (mut w, mut other) = (world.worker(), world.worker());
    let value = vec![b'v'; 1 << 20];
    let ops = [
        Op::put(b"k", &value),
        Op::Get { key: b"k" },
        Op::put(b"l", &value),
        Op::Get { key: b"l" },
    ];
    for number in 1..=40 {
        let replies = std::thread::scope(|threads| {
            let aborter = threads
                .spawn(|| while other.abort(holder(number).id).unwrap().0 == State::Unknown {});
            let replies = world.prepare(&mut w, number, &ops);
            aborter.join().unwrap();
            replies.unwrap()
        });
        let whole = OwnedReply::Bytes(value.clone());
        assert!(replies[1] == whole && replies[3] == whole);
        world.log.entries.lock().clear();
    }
    assert_eq!(world.get(b"k"), None);
}

#[test]
fn malformed_siblings_are_refused_before_anything_is_logged() {
    let world = World::new();
    let mut w = world.worker();
    let ops = [Op::put(b"a", b"1")];
    let well_formed = siblings_of(&[b"a", b"elsewhere"]);
    for cut in [1, 4, well_formed.len() - 1] {
        let outcome = w.prepare(&Prepare {
            holder: holder(1),
            ops: &ops,
            siblings: &well_formed[..cut],
            note: NOTE,
            isolation: base::participant::Isolation::Serializable,
        });
        assert_eq!(outcome.unwrap_err(), Abort::Refused, "{cut} bytes");
    }
    assert!(world.log.entries.lock().is_empty());
    assert_eq!(world.state(1), State::Unknown);
    world.prepare(&mut w, 1, &ops).unwrap();
}
