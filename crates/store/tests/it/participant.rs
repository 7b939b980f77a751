//! A database as the participant of transactions over several partitions: attempts that are
//! prepared, committed or refused survive crashes and checkpoints, and transactions that meet a
//! hold wait.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use base::change::{Origin, siblings};
use base::clock::ManualClock;
use base::participant::{DurableEpochs, Prepare, State, TwoPhaseCommit};
use base::partition::{OwnedReply, Partition};
use base::transaction::{Holder, ScanContents};
use base::{Abort, Op, Timestamp, Transaction, TransactionId};
use disk::{Fault, FaultDisk, FaultKind, OpKind};
use kumiki_store::{Db, OpenError, Options, Worker};

use crate::support::{NOW_MS, block_on, crash, id, settle, still};

fn on(disk: &FaultDisk) -> Options {
    Options {
        hold_timeout: Duration::from_secs(60),
        ..still(disk, NOW_MS)
    }
}

fn holder(n: u64) -> Holder {
    Holder {
        id: id(n),
        age: Timestamp::at_ms(NOW_MS - 1),
    }
}

fn keys(keys: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    keys.iter().for_each(|key| siblings::push(&mut bytes, key));
    bytes
}

/// Prepares attempt `n`, whose siblings are `a` and `elsewhere`.
fn prepare(worker: &mut Worker, n: u64, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
    worker.refresh();
    worker.prepare(&Prepare {
        holder: holder(n),
        ops,
        siblings: &keys(&[b"a", b"elsewhere"]),
        note: format!("note {n}").as_bytes(),
        isolation: base::participant::Isolation::Serializable,
    })
}

fn prepared(n: u64) -> State {
    State::Prepared(format!("note {n}").into_bytes())
}

fn committed(n: u64) -> State {
    State::Committed(format!("note {n}").into_bytes())
}

fn run(worker: &mut Worker, op: Op<'_>) -> Result<OwnedReply, Abort> {
    worker.refresh();
    let done = worker.execute(&[op])?;
    Ok(OwnedReply::from(&done.replies()[0]))
}

fn get(worker: &mut Worker, key: &[u8]) -> Result<Option<Vec<u8>>, Abort> {
    Ok(match run(worker, Op::Get { key })? {
        OwnedReply::Bytes(bytes) => Some(bytes),
        OwnedReply::Nil => None,
        other => panic!("{other:?}"),
    })
}

#[track_caller]
fn assert_held<T: std::fmt::Debug>(outcome: Result<T, Abort>, by: u64) {
    let held = matches!(&outcome, Err(Abort::Held { by: found }) if *found == holder(by));
    assert!(held, "{outcome:?} is not held by {by}");
}

/// Returns everything in the view, with its commit timestamp and siblings.
fn content(db: &Db, worker: &mut Worker) -> BTreeMap<Vec<u8>, Option<(TransactionId, Vec<u8>)>> {
    let snapshot = db.snapshot();
    let (mut from, mut found) = (Some(Vec::new()), BTreeMap::new());
    while let Some(key) = from {
        from = worker.scan_snapshot(&snapshot, &key, None, 100, &mut |entry| {
            let origin = entry.origin.map(|o| (o.id, o.siblings.to_vec()));
            found.insert(entry.key.to_vec(), origin);
        });
    }
    found
}

#[test]
fn what_is_prepared_durably_stays_so_over_crashes_until_it_ends() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    run(&mut worker, Op::put(b"a", b"old")).unwrap();
    run(&mut worker, Op::put(b"read", b"r")).unwrap();
    let ops = [
        Op::put(b"a", b"new"),
        Op::Get { key: b"read" },
        Op::Get { key: b"absent" },
        Op::Add {
            key: b"n",
            delta: 5,
        },
    ];
    let replies = prepare(&mut worker, 1, &ops).unwrap();
    assert_eq!(
        replies,
        [
            OwnedReply::Ok,
            OwnedReply::Bytes(b"r".to_vec()),
            OwnedReply::Nil,
            OwnedReply::Int(5)
        ]
    );
    settle(&worker);

    // It is the same before and after a crash, and after a crash of what came back.
    let mut disk = disk;
    let (mut db, mut worker) = (db, worker);
    for round in 0..3 {
        assert_eq!(worker.state(id(1)).0, prepared(1), "round {round}");
        assert_eq!(worker.undecided(), [(id(1), prepared(1))]);
        assert_held(get(&mut worker, b"a"), 1);
        assert_held(get(&mut worker, b"n"), 1);
        assert_held(run(&mut worker, Op::put(b"read", b"w")), 1);
        assert_held(run(&mut worker, Op::put(b"absent", b"w")), 1);
        assert_held(run(&mut worker, Op::Flush), 1);
        assert_eq!(get(&mut worker, b"read"), Ok(Some(b"r".to_vec())));
        assert_eq!(get(&mut worker, b"other"), Ok(None));
        assert_held(prepare(&mut worker, 9, &[Op::put(b"a", b"x")]), 1);
        let again = prepare(&mut worker, 1, &[Op::put(b"z", b"x")]);
        assert_eq!(again, Err(Abort::Refused), "it is known");
        assert_eq!(db.stats().prepared, 1);
        disk = crash(&disk);
        drop(worker);
        db = Db::open(on(&disk)).unwrap();
        assert_eq!(db.recovery().prepared, 1);
        worker = db.worker().unwrap();
    }

    let (before, epoch) = worker.commit(id(1)).unwrap();
    assert_eq!(before, prepared(1));
    assert_eq!(get(&mut worker, b"a"), Ok(Some(b"new".to_vec())));
    assert_eq!(get(&mut worker, b"n"), Ok(Some(b"5".to_vec())));
    assert_eq!(worker.commit(id(1)).unwrap().0, committed(1), "and again");
    worker.wait_durable(epoch).unwrap();
    drop(worker);
    let disk = crash(&disk);
    let db = Db::open(on(&disk)).unwrap();
    assert_eq!(db.recovery().prepared, 0);
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, committed(1));
    assert_eq!(worker.undecided(), [(id(1), committed(1))]);
    let origin = Some((id(1), keys(&[b"a", b"elsewhere"])));
    let expected = [
        (b"a".to_vec(), origin.clone()),
        (b"n".to_vec(), origin),
        (b"read".to_vec(), None),
    ];
    assert_eq!(content(&db, &mut worker), BTreeMap::from(expected));

    worker.forget(id(1)).unwrap();
    settle(&worker);
    drop(worker);
    let db = Db::open(on(&crash(&disk))).unwrap();
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, State::Unknown);
    assert_eq!(worker.undecided(), []);
    assert_eq!(get(&mut worker, b"a"), Ok(Some(b"new".to_vec())));
}

#[test]
fn what_was_not_durable_was_never_prepared() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    run(&mut worker, Op::put(b"a", b"old")).unwrap();
    settle(&worker);
    prepare(&mut worker, 1, &[Op::put(b"a", b"new")]).unwrap();
    assert!(
        worker.durable() < worker.observed().epoch,
        "no thread asked"
    );
    let db = Db::open(on(&crash(&disk))).unwrap();
    assert_eq!(db.recovery().prepared, 0);
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, State::Unknown);
    assert_eq!(get(&mut worker, b"a"), Ok(Some(b"old".to_vec())));
}

#[test]
fn an_abort_undoes_everything_for_ever() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(b"a", b"new")]).unwrap();
    settle(&worker);
    let releases = db.releases();
    let (before, epoch) = worker.abort(id(1)).unwrap();
    assert_eq!(before, prepared(1));
    assert!(db.releases() > releases);
    assert_eq!(get(&mut worker, b"a"), Ok(None));
    worker.wait_durable(epoch).unwrap();
    drop(worker);
    let db = Db::open(on(&crash(&disk))).unwrap();
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, State::Unknown);
    assert_eq!(get(&mut worker, b"a"), Ok(None));
    assert_eq!(db.stats().prepared, 0);
}

#[test]
fn a_refusal_holds_over_crashes_until_its_deadline() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    let (before, epoch) = worker.refuse(id(1), NOW_MS + 1000).unwrap();
    assert_eq!(before, State::Unknown);
    worker.wait_durable(epoch).unwrap();
    let ops = [Op::put(b"a", b"late")];
    assert_eq!(prepare(&mut worker, 1, &ops), Err(Abort::Refused));
    drop(worker);
    let options = on(&crash(&disk));
    let clock = Arc::new(ManualClock::new(NOW_MS + 500));
    let db = Db::open(Options {
        clock: Arc::clone(&clock) as Arc<_>,
        ..options
    })
    .unwrap();
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, State::Refused);
    assert_eq!(prepare(&mut worker, 1, &ops), Err(Abort::Refused));
    prepare(&mut worker, 2, &ops).unwrap();
    worker.abort(id(2)).unwrap();
    clock.set(NOW_MS + 1500);
    worker.refresh();
    // The epoch's time follows the clock with the next epoch.
    let end = Instant::now() + Duration::from_secs(10);
    while worker.state(id(1)).0 == State::Refused {
        assert!(Instant::now() < end, "it is refused for ever");
        run(&mut worker, Op::put(b"tick", b"")).unwrap();
        settle(&worker);
    }
    prepare(&mut worker, 1, &ops).unwrap();
}

#[test]
fn a_checkpoint_takes_over_what_is_prepared_committed_and_refused() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(b"a", b"new")]).unwrap();
    prepare(&mut worker, 2, &[Op::put(b"b", b"done")]).unwrap();
    worker.commit(id(2)).unwrap();
    worker.refuse(id(3), NOW_MS + 60_000).unwrap();
    for n in 0..200u32 {
        run(&mut worker, Op::put(&n.to_be_bytes(), &[7; 500])).unwrap();
    }
    settle(&worker);
    let made = db.checkpoint().unwrap();
    assert!(made.segments_removed > 0, "{made:?}");
    assert_eq!(made.entries, 204, "keys and system records");
    drop(worker);
    let disk = crash(&disk);
    let db = Db::open(on(&disk)).unwrap();
    assert!(db.recovery().checkpoint.is_some());
    assert_eq!(db.recovery().prepared, 1);
    assert_eq!(db.recovery().keys, 201, "system records do not count");
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, prepared(1));
    assert_eq!(worker.state(id(2)).0, committed(2));
    assert_eq!(worker.state(id(3)).0, State::Refused);
    assert_held(get(&mut worker, b"a"), 1);
    let (_, epoch) = worker.commit(id(1)).unwrap();
    worker.wait_durable(epoch).unwrap();
    db.checkpoint().unwrap();
    drop(worker);
    let db = Db::open(on(&crash(&disk))).unwrap();
    let mut worker = db.worker().unwrap();
    let content = content(&db, &mut worker);
    let siblings = keys(&[b"a", b"elsewhere"]);
    let of = |n| Some((id(n), siblings.clone()));
    assert_eq!(content[&b"a"[..]], of(1), "from the checkpoint");
    assert_eq!(content[&b"b"[..]], of(2));
    assert_eq!(worker.state(id(1)).0, committed(1));
}

#[test]
fn clients_never_see_system_records_and_no_flush_touches_them() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(b"a", b"1")]).unwrap();
    worker.refuse(id(2), NOW_MS + 60_000).unwrap();
    let count = |worker: &mut Worker| run(worker, Op::Count { database: 0 }).unwrap();
    let all = Op::Scan {
        from: b"",
        to: None,
        limit: 100,
        contents: ScanContents::Keys,
    };
    assert_eq!(count(&mut worker), OwnedReply::Int(0));
    worker.commit(id(1)).unwrap();
    let pairs = OwnedReply::Pairs(vec![(b"a".to_vec(), Vec::new())]);
    assert_eq!(run(&mut worker, all.clone()), Ok(pairs));
    assert_eq!(count(&mut worker), OwnedReply::Int(1));
    assert_eq!(content(&db, &mut worker).len(), 1);
    assert_eq!(db.stats().keys, 1);
    run(&mut worker, Op::Flush).unwrap();
    settle(&worker);
    assert_eq!(count(&mut worker), OwnedReply::Int(0));
    drop(worker);
    let db = Db::open(on(&crash(&disk))).unwrap();
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.state(id(1)).0, committed(1));
    assert_eq!(worker.state(id(2)).0, State::Refused);
    assert_eq!(count(&mut worker), OwnedReply::Int(0));
    assert_eq!(run(&mut worker, all), Ok(OwnedReply::Pairs(Vec::new())));
}

#[test]
fn after_the_log_has_failed_nothing_ends_and_nothing_is_lost() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(b"a", b"new")]).unwrap();
    settle(&worker);
    disk.plan(Fault {
        on: OpKind::Sync,
        nth: disk.count(OpKind::Sync),
        kind: FaultKind::Io,
    });
    run(&mut worker, Op::put(b"other", b"1")).unwrap();
    let epoch = worker.observed().epoch;
    assert!(worker.wait_durable(epoch).is_err());
    for _ in 0..2 {
        let commit = worker.commit(id(1));
        assert!(matches!(commit, Err(Abort::ReadOnly { .. })), "{commit:?}");
        let abort = worker.abort(id(1));
        assert!(matches!(abort, Err(Abort::ReadOnly { .. })), "{abort:?}");
    }
    let more = prepare(&mut worker, 2, &[Op::put(b"b", b"1")]);
    assert!(matches!(more, Err(Abort::ReadOnly { .. })), "{more:?}");
    assert_eq!(worker.state(id(1)).0, prepared(1));
    drop(worker);
    drop(db);
    let db = Db::open(on(&crash(&disk))).unwrap();
    let mut worker = db.worker().unwrap();
    assert_eq!(worker.undecided(), [(id(1), prepared(1))]);
    worker.commit(id(1)).unwrap();
    assert_eq!(get(&mut worker, b"a"), Ok(Some(b"new".to_vec())));
}

/// Every round all waiters meet the hold, or miss it by a hair; a release that is missed would
/// let one wait for its limit.
#[test]
fn a_waiter_continues_when_the_hold_is_given_back() {
    const ROUNDS: u64 = 150;
    const MEETING: Duration = Duration::from_secs(20);
    let db = Db::open(Options {
        hold_timeout: Duration::from_secs(60),
        workers: 8,
        ..Options::default()
    })
    .unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let teller = Arc::clone(&told);
    db.on_release(Box::new(move || {
        teller.fetch_add(1, Ordering::SeqCst);
    }));
    let (start, first) = (Instant::now(), Barrier::new(4));
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (db, first) = (db.clone(), &first);
            scope.spawn(move || {
                first.wait();
                for _ in 0..ROUNDS {
                    let add = Op::Add {
                        key: b"a",
                        delta: 1,
                    };
                    match thread {
                        0 => drop(db.transact(add_one).unwrap()),
                        1 => drop(block_on(db.execute(&Transaction::new(vec![add]))).unwrap()),
                        _ => drop(db.worker().unwrap().transact(add_one).unwrap()),
                    }
                }
            });
        }
        let mut worker = db.worker().unwrap();
        for n in 0..ROUNDS {
            let add = Op::Add {
                key: b"a",
                delta: 1,
            };
            while let Err(abort) = prepare(&mut worker, n, std::slice::from_ref(&add)) {
                assert!(
                    !matches!(abort, Abort::Held { .. }),
                    "no other transaction prepares"
                );
            }
            if n == 0 {
                first.wait();
            }
            // The thread waits until a transaction meets the first hold, in whichever order threads
            // come.
            let none_has_waited = || db.stats().hold_waits == 0 && start.elapsed() < MEETING;
            while n == 0 && none_has_waited() {
                std::thread::yield_now();
            }
            if n % 3 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            worker.commit(id(n)).unwrap();
            worker.forget(id(n)).unwrap();
        }
    });
    let took = start.elapsed();
    assert!(took < Duration::from_secs(50), "{took:?}: a thread slept");
    let mut worker = db.worker().unwrap();
    let sum = (4 * ROUNDS).to_string().into_bytes();
    assert_eq!(get(&mut worker, b"a"), Ok(Some(sum)));
    // A prepare that met a conflict has given back its holds, too.
    assert!(db.releases() >= ROUNDS);
    assert_eq!(told.load(Ordering::SeqCst), db.releases());
    let stats = db.stats();
    assert!(stats.hold_waits > 0, "no thread ever waited");
    assert_eq!(stats.prepared, 0);
}

fn add_one(txn: &mut kumiki_store::Txn<'_>) -> Result<(), kumiki_store::TransactionError> {
    let value = txn
        .get(b"a")?
        .map_or("0", |v| std::str::from_utf8(v).unwrap());
    let sum = value.parse::<u64>().unwrap() + 1;
    txn.put(b"a", sum.to_string().as_bytes())
}

#[test]
fn no_wait_is_longer_than_the_limit() {
    let db = Db::open(Options {
        hold_timeout: Duration::from_millis(30),
        ..Options::default()
    })
    .unwrap();
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(b"a", b"x")]).unwrap();
    let start = Instant::now();
    assert_held(db.transact(add_one).map(drop), 1);
    assert_held(worker.transact(add_one).map(drop), 1);
    let add = Op::Add {
        key: b"a",
        delta: 1,
    };
    assert_held(block_on(db.execute(&Transaction::new(vec![add]))), 1);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(90),
        "{took:?}: no thread waited"
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_held(get(&mut worker, b"a"), 1);
}

/// A malformed system record is no reason to lose the holds of the others.
#[test]
fn a_damaged_system_record_is_named_and_nothing_is_opened() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(b"a", b"new")]).unwrap();
    settle(&worker);
    drop((worker, db));
    overwrite_system_records(&disk);
    let error = Db::open(on(&disk)).err().expect("it is refused");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    let text = error.to_string();
    for word in ["system record", "/db", "backup"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Writes nonsense to every system record that the log in `/db` has.
fn overwrite_system_records(disk: &FaultDisk) {
    use base::Change;
    use base::change::SYSTEM_GENERATION;
    use base::transaction::Kind;
    let (disk, dir) = (
        Arc::new(disk.clone()) as Arc<dyn disk::Disk>,
        Path::new("/db"),
    );
    let found = parking_lot::Mutex::new(Vec::new());
    let look = |entry: journal::Entry<'_>| {
        if let Change::Put {
            key,
            generation: SYSTEM_GENERATION,
            ..
        } = entry.change
        {
            found.lock().push(key.to_vec());
        }
    };
    let recovered = journal::Journal::recover(&disk, dir, 1, &look, &|_| {}).unwrap();
    let found = found.into_inner();
    assert!(!found.is_empty());
    let engine = engine::Engine::new(&engine::Options {
        workers: 1,
        clock: Arc::new(ManualClock::new(NOW_MS)),
        limits: base::limits::Limits::default(),
    });
    engine
        .finish_restore(Vec::new(), recovered.newest, recovered.stamp_ms)
        .unwrap();
    let options = journal::Options::default();
    let journal = journal::Journal::start(disk, dir, options, engine.epochs(), &recovered).unwrap();
    let epoch = base::epochs::EpochClock::current(&*engine.epochs());
    let append = journal
        .writer(0)
        .append(base::Tid::new(epoch, 1), NOW_MS, 1000, |to| {
            for key in &found {
                to.put(key, b"?", Kind::String, SYSTEM_GENERATION, None);
            }
        });
    append.unwrap();
    journal.wait(epoch).unwrap();
    journal.close().unwrap();
}

#[test]
fn siblings_are_written_once_in_a_transaction() {
    let size = |siblings: &[u8]| {
        let disk = FaultDisk::new();
        let db = Db::open(on(&disk)).unwrap();
        let mut worker = db.worker().unwrap();
        let keys: Vec<_> = (0..50u8).map(|n| [n]).collect();
        let ops: Vec<_> = keys.iter().map(|key| Op::put(key, b"v")).collect();
        let holder = holder(1);
        let prepare = Prepare {
            holder,
            ops: &ops,
            siblings,
            note: b"",
            isolation: base::participant::Isolation::Serializable,
        };
        worker.prepare(&prepare).unwrap();
        settle(&worker);
        let before = db.stats().log_bytes;
        let (_, epoch) = worker.commit(id(1)).unwrap();
        worker.wait_durable(epoch).unwrap();
        let expected = Origin {
            id: id(1),
            siblings,
        };
        let found = content(&db, &mut worker);
        let all = found.values().flatten();
        assert_eq!(all.clone().count(), 50);
        for (id, siblings) in all {
            let siblings = &siblings[..];
            assert_eq!((Origin { id: *id, siblings }), expected);
        }
        db.stats().log_bytes - before
    };
    let (few, many) = (size(&keys(&[b"a"])), size(&keys(&[&[1; 5000]])));
    assert!(many < few + 5000 + 4096, "{few} bytes and {many} bytes");
}
