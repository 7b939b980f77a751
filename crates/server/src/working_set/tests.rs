//! Operations on a working set beside those of a partition.

use base::Reply;
use base::participant::TransactionExecutor;
use base::transaction::ExpireWhen;
use store::{Db, Options};

use super::*;

const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
/// A deadline that no test reaches, and one that has passed.
const FAR: i64 = 9_000_000_000_000;
const PASSED: i64 = 1000;

fn any<T: Copy>(random: &mut fastrand::Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// Returns an operation that a command could plan.
fn any_op(random: &mut fastrand::Rng) -> Op<'static> {
    let key = any(random, &KEYS);
    let value: &[u8] = any(
        random,
        &[b"", b"7", b"-3", b"1.5", b"text", b"9223372036854775807"],
    );
    let when = any(random, &[When::Always, When::Absent, When::Present]);
    let later = Expiry::AtMs(FAR + random.i64(0..3));
    let expiry = any(
        random,
        &[Expiry::Never, Expiry::Keep, later, Expiry::AtMs(PASSED)],
    );
    let position = random.i64(-6..6);
    match random.u8(0..22) {
        0 => Op::Get { key },
        1 => Op::GetIfString { key },
        2 => Op::GetRange {
            key,
            start: position,
            end: random.i64(-6..6),
        },
        3 => Op::Len { key },
        4 => Op::Exists { key },
        5 => Op::KindOf { key },
        6 => Op::ExpiryOf { key },
        7 => Op::Delete { key },
        8 => Op::GetDelete { key },
        9 => Op::GetExpire { key, expiry },
        10 => Op::Append { key, value },
        11 => Op::SetRange {
            key,
            offset: random.usize(0..9),
            value,
        },
        12 | 13 => Op::Add {
            key,
            delta: any(random, &[1, -5, i64::MAX]),
        },
        14 => Op::AddDecimal {
            key,
            delta: b"0.25",
        },
        15 => Op::Expire {
            key,
            expiry: any(
                random,
                &[later, Expiry::AtMs(PASSED), Expiry::InMs(i64::MAX)],
            ),
            when: any(
                random,
                &[
                    ExpireWhen::Always,
                    ExpireWhen::None,
                    ExpireWhen::SomeAndLater,
                    ExpireWhen::Earlier,
                ],
            ),
        },
        16 => Op::Persist { key },
        17 => Op::Scan {
            from: any(random, &[&b""[..], b"b"]),
            to: any(random, &[None, Some(&b"d"[..])]),
            limit: random.usize(1..6),
            values: false,
        },
        18 if random.u8(0..4) == 0 => Op::Flush,
        18 if random.u8(0..2) == 0 => Op::FlushDatabase { database: 0 },
        _ => Op::Put {
            key,
            value,
            when,
            expiry,
            get: random.bool(),
        },
    }
}

fn in_partition(worker: &mut store::Worker, ops: &[Op<'_>]) -> Vec<OwnedReply> {
    let done = worker.execute(ops).unwrap();
    let replies = done.replies().iter().map(OwnedReply::from);
    replies.map(named).collect()
}

/// Returns a reply with clients' keys.
fn named(reply: OwnedReply) -> OwnedReply {
    match reply {
        OwnedReply::Pairs(pairs) => {
            let name = |key: &[u8]| database::client_key(key).to_vec();
            let pairs = pairs.into_iter().map(|(key, value)| (name(&key), value));
            OwnedReply::Pairs(pairs.collect())
        }
        other => other,
    }
}

/// Executes the operations on a set, each as a command of its own, and commits it.
fn in_steps(worker: &mut store::Worker, ops: &[Op<'_>]) -> Vec<OwnedReply> {
    let mut set = WorkingSet::new(512 << 20, 16, worker.time_ms());
    let mut replies = Vec::new();
    for op in ops {
        while let Some(need) = set.need(std::slice::from_ref(op)) {
            let needed = need.ops();
            let done = worker.execute(&needed).unwrap();
            let answers = ReadAnswers::of(&need, done.replies());
            drop((done, needed));
            set.add(need, answers);
        }
        replies.extend(set.execute(op).ok().map(named));
    }
    let mut ops = Operations::new();
    set.add_commit_ops(&mut ops);
    assert_eq!(set.only_reads(), ops.iter().all(Op::is_read_only));
    in_partition(worker, &ops);
    replies
}

#[test]
fn operations_answer_and_change_keys_as_in_a_partition() {
    let [one, two] = [0, 1].map(|_| Db::open(Options::default()).unwrap());
    let (mut one, mut two) = (one.worker().unwrap(), two.worker().unwrap());
    let (one_a, from) = (database::qualified(1, b"a"), database::prefix(1));
    let scan = |from| Op::Scan {
        from,
        to: None,
        limit: 10,
        values: true,
    };
    let expiry_of = |key| Op::ExpiryOf { key };
    let state = [
        scan(b""),
        scan(&from),
        expiry_of(b"a"),
        expiry_of(b"b"),
        expiry_of(&one_a),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..3000 {
        let drawn = (0..random.usize(1..9)).map(|_| (random.u16(..2), any_op(&mut random)));
        let drawn: Vec<(u16, Op<'_>)> = drawn.collect();
        let keys = drawn
            .iter()
            .map(|(database, op)| database::qualified_keys(*database, std::slice::from_ref(op)));
        let keys: Vec<Vec<u8>> = keys.collect();
        let ops = drawn
            .iter()
            .zip(&keys)
            .flat_map(|((database, op), keys)| database::qualify(*database, [op.clone()], keys));
        let ops: Vec<Op<'_>> = ops.collect();
        if round % 100 == 99 {
            let swap = [Op::SwapDatabases {
                first: 0,
                second: 1,
            }];
            assert_eq!(in_partition(&mut one, &swap), in_partition(&mut two, &swap));
        }
        let expected = in_partition(&mut one, &ops);
        assert_eq!(in_steps(&mut two, &ops), expected, "round {round}: {ops:?}");
        let left = in_partition(&mut one, &state);
        assert_eq!(
            in_partition(&mut two, &state),
            left,
            "round {round}: {ops:?}"
        );
    }
}

#[test]
fn what_has_changed_since_it_was_read_is_found() {
    let db = Db::open(Options::default()).unwrap();
    let mut worker = db.worker().unwrap();
    in_partition(&mut worker, &[Op::put(b"a", b"1")]);
    for (other, conflicts) in [
        (Op::put(b"a", b"2"), true),
        (Op::put(b"b", b"2"), true),
        (Op::Delete { key: b"b" }, true),
        (Op::put(b"d", b"2"), false),
    ] {
        let mut set = WorkingSet::new(512 << 20, 16, worker.time_ms());
        let reads = [Op::Get { key: b"a" }, Op::Get { key: b"b" }];
        let need = set.need(&reads).unwrap();
        let done = worker.execute(&need.ops()).unwrap();
        let answers = ReadAnswers::of(&need, done.replies());
        drop(done);
        set.add(need, answers);
        assert_eq!(set.need(&reads), None);
        set.execute(&Op::put(b"c", b"3")).ok().unwrap();
        in_partition(&mut worker, std::slice::from_ref(&other));
        let mut ops = Operations::new();
        set.add_commit_ops(&mut ops);
        let outcome = worker.execute(&ops);
        assert_eq!(outcome.is_err(), conflicts, "{other:?}");
    }
}

#[test]
fn keys_that_a_walk_must_not_miss_are_counted_and_those_that_are_too_long_refused() {
    let mut set = WorkingSet::new(4, 16, 5000);
    let need = set.need(&[Op::Count { database: 0 }]).unwrap();
    assert_eq!(need, Need::Count { database: 0 });
    set.add(need, ReadAnswers::Other(OwnedReply::Int(10)));
    assert_eq!(
        set.execute(&Op::Count { database: 0 }).ok(),
        Some(OwnedReply::Int(10))
    );
    set.execute(&Op::put(b"new", b"1")).ok().unwrap();
    // It was written and not read: it may have been there.
    let need = set.need(&[Op::Count { database: 0 }]).unwrap();
    assert_eq!(
        need,
        Need::Keys([b"new".as_slice().into()].into_iter().collect())
    );
    let there = [
        Reply::Version(Version::present(base::Tid::new(base::Epoch(3), 1))),
        Reply::Value(Kind::String, b"old"),
        Reply::Deadline(None),
    ];
    let answers = ReadAnswers::of(&need, &there);
    set.add(need, answers);
    let need = set.need(&[Op::Count { database: 0 }]).unwrap();
    set.add(need, ReadAnswers::Other(OwnedReply::Int(10)));
    assert_eq!(
        set.execute(&Op::Count { database: 0 }).ok(),
        Some(OwnedReply::Int(10))
    );
    assert_eq!(set.value(b"new").unwrap().bytes, b"1");
    let too_long = set.execute(&Op::put(b"new", b"12345")).ok();
    assert_eq!(too_long, Some(OwnedReply::Error(OpError::TooLong)));
    let reserved = set.execute(&Op::put(&RESERVED, b"1")).ok();
    assert_eq!(reserved, Some(OwnedReply::Error(OpError::Reserved)));
}
