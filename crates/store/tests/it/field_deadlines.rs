//! Deadlines of fields of hashes over restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Op;
use base::clock::ManualClock;
use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::transaction::ValueCall;
use disk::{Crash, FaultDisk};
use kumiki_store::{CheckpointOptions, Db, Options};
use values::{hash_deadlines, hashes};

/// Executes a command on a hash, and waits until it is durable.
fn call(db: &Db, key: &str, command: u16, args: &[&str]) -> OwnedReply {
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    let call = ValueCall {
        command,
        seed: 0,
        args: args.as_slice().into(),
    };
    let key = key.as_bytes();
    let mut worker = db.worker().expect("few workers");
    let done = worker.execute(&[Op::Call { key, call }]).unwrap();
    let reply = OwnedReply::from(&done.replies()[0]);
    let epoch = done.observed().epoch;
    drop(done);
    worker.wait_durable(epoch).unwrap();
    reply
}

fn set_until(db: &Db, key: &str, field: &str, at: u64) {
    let args = ["PXAT", &at.to_string(), "FIELDS", "1", field, "value"];
    let set = call(db, key, hash_deadlines::HSETEX, &args);
    assert_eq!(set, OwnedReply::Int(1));
}

/// Returns the deadlines of fields: −1: none, −2: there is no such field.
fn deadlines(db: &Db, key: &str, fields: &[String]) -> Vec<i64> {
    let count = fields.len().to_string();
    let names = fields.iter().map(String::as_str);
    let args: Vec<&str> = ["FIELDS", &count].into_iter().chain(names).collect();
    let reply = call(db, key, hash_deadlines::HPEXPIRETIME, &args);
    let OwnedReply::Nested(reply) = reply else {
        panic!("{reply:?}");
    };
    let numbers = reply.items().filter_map(|item| match item {
        NestedItem::Int(number) => Some(number),
        _ => None,
    });
    numbers.collect()
}

fn options(disk: &FaultDisk, clock: &Arc<ManualClock>) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        clock: Arc::clone(clock) as _,
        workers: 6,
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        ..Options::in_dir("/data")
    }
}

/// A small hash and a large one: some deadlines are in the checkpoint, others are set, changed and removed in the log
/// behind it.
#[test]
fn fields_keep_their_deadlines() {
    let clock = Arc::new(ManualClock::new(10_000));
    let disk = FaultDisk::new();
    let db = Db::open(options(&disk, &clock)).unwrap();
    for (key, count) in [("small", 9), ("large", 400)] {
        let fields: Vec<String> = (0..count).map(|field| format!("field {field}")).collect();
        let mut expected = BTreeMap::new();
        for (at, field) in fields.iter().enumerate() {
            let deadline = 20_000 + at as u64 * 7 % 500;
            set_until(&db, key, field, deadline);
            expected.insert(field.clone(), deadline as i64);
        }
        db.checkpoint().unwrap();
        for (at, field) in fields.iter().enumerate().step_by(3) {
            let deadline = match at % 4 {
                0 => {
                    set_until(&db, key, field, 30_000);
                    30_000
                }
                1 => {
                    let args = ["FIELDS", "1", field];
                    call(&db, key, hash_deadlines::HPERSIST, &args);
                    -1
                }
                2 => {
                    call(&db, key, hashes::HSET, &[field, "new"]);
                    -1
                }
                _ => {
                    call(&db, key, hashes::HDEL, &[field]);
                    -2
                }
            };
            expected.insert(field.clone(), deadline);
        }
        for makes_checkpoint in [false, true] {
            if makes_checkpoint {
                db.checkpoint().unwrap();
            }
            let disk = disk.crash(Crash::DropAll, 1);
            let after = Db::open(options(&disk, &clock)).unwrap();
            let found = deadlines(&after, key, &fields);
            let found: BTreeMap<String, i64> = fields.iter().cloned().zip(found).collect();
            assert_eq!(found, expected, "{key}");
            after.close().unwrap();
        }
    }
}

/// A client sees a field expire, nothing is written after that, and the clock is set back while the machine is down: the
/// field stays expired.
#[test]
fn a_field_that_was_seen_to_expire_is_not_seen_again() {
    for lasting in [2, 400] {
        let clock = Arc::new(ManualClock::new(10_000));
        let disk = FaultDisk::new();
        let db = Db::open(options(&disk, &clock)).unwrap();
        for field in 0..lasting {
            let args = [&field.to_string(), "value"];
            call(&db, "h", hashes::HSET, &args);
        }
        set_until(&db, "h", "soon", 10_400);
        set_until(&db, "h", "later", 10_500);
        let length = |db: &Db| call(db, "h", hashes::HLEN, &[]);
        assert_eq!(length(&db), OwnedReply::Int(lasting + 2));
        clock.set(10_600);
        let left = OwnedReply::Int(lasting);
        testkit::eventually("the fields expire", || length(&db) == left);
        clock.set(9_000);
        testkit::eventually("the log knows of the deadlines", || {
            let disk = disk.crash(Crash::DropAll, 1);
            length(&Db::open(options(&disk, &clock)).unwrap()) == left
        });
        db.close().unwrap();
        drop(db);
        // The first start says as much as it has read.
        for _ in 0..2 {
            let db = Db::open(options(&disk, &clock)).unwrap();
            assert_eq!(length(&db), left);
            db.checkpoint().unwrap();
            db.close().unwrap();
        }
    }
}
