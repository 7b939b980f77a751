//! The events that the listener for changes of keys gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::database::qualified;
use base::key_event::{KeyEvent, KeyListener};
use base::transaction::{ExpireWhen, Expiry, When};
use base::{Op, Tid};
use kumiki_engine::Engine;
use parking_lot::Mutex;
use testkit::SetOnDrop;

use crate::support::replica::Replica;
use crate::support::{World, holder, put_until};

/// A listener that remembers.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl KeyListener for Heard {
    fn changed(&self, (database, key): (u16, &[u8]), event: KeyEvent, _: Tid) {
        let key = String::from_utf8_lossy(key);
        let of = if database == 0 {
            String::new()
        } else {
            format!("{database}:")
        };
        self.0.lock().push(format!("{} {of}{key}", event.name()));
    }

    fn flushed(&self, _: Tid) {
        self.0.lock().push("flushed".to_owned());
    }
}

impl Heard {
    fn of(engine: &Arc<Engine>) -> Arc<Heard> {
        let heard = Arc::new(Heard::default());
        engine.set_key_listener(Arc::clone(&heard) as _);
        engine.listen(true);
        heard
    }

    /// Takes the events without those of new keys.
    fn take(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.0.lock());
        let others = events.into_iter().filter(|event| !event.starts_with("new"));
        others.collect()
    }
}

fn expire(key: &[u8], at_ms: i64) -> Op<'_> {
    Op::Expire {
        key,
        expiry: Expiry::AtMs(at_ms),
        when: ExpireWhen::Always,
    }
}

#[test]
fn every_operation_that_writes_is_announced_in_redis_words() {
    let world = World::new();
    let heard = Heard::of(&world.engine);
    let key = b"k".as_slice();
    let steps: [(Op<'_>, &[&str]); 19] = [
        (Op::Delete { key }, &[]),
        (Op::put(key, b"1"), &["set k"]),
        (Op::Add { key, delta: 2 }, &["incrby k"]),
        (Op::AddDecimal { key, delta: b"0.5" }, &["incrbyfloat k"]),
        (Op::Append { key, value: b"0" }, &["append k"]),
        (
            Op::SetRange {
                key,
                offset: 0,
                value: b"",
            },
            &[],
        ),
        (
            Op::SetRange {
                key,
                offset: 1,
                value: b"x",
            },
            &["setrange k"],
        ),
        (Op::Add { key, delta: 2 }, &[]),
        (Op::Persist { key }, &[]),
        (expire(key, 9_000), &["expire k"]),
        (Op::Persist { key }, &["persist k"]),
        (
            Op::GetExpire {
                key,
                expiry: Expiry::Keep,
            },
            &[],
        ),
        (
            Op::GetExpire {
                key,
                expiry: Expiry::AtMs(8_000),
            },
            &["expire k"],
        ),
        (
            Op::GetExpire {
                key,
                expiry: Expiry::Never,
            },
            &["persist k"],
        ),
        (put_until(key, b"2", 7_000), &["set k", "expire k"]),
        (
            Op::Put {
                key,
                value: b"3",
                when: When::Absent,
                expiry: Expiry::Never,
                get: false,
            },
            &[],
        ),
        (expire(key, 10), &["del k"]),
        (Op::put(key, b"4"), &["set k"]),
        (Op::GetDelete { key }, &["del k"]),
    ];
    for (op, events) in steps {
        world.run(std::slice::from_ref(&op));
        assert_eq!(heard.take(), events, "{op:?}");
    }
    world.run(&[Op::put(b"a", b"1"), Op::put(b"a", b"2"), Op::Flush]);
    assert_eq!(heard.take(), ["flushed", "set a", "set a"]);
    let mut w = world.worker();
    let mut sliced = w.begin_sliced(holder(1), 0).unwrap();
    let slices = [
        [Op::put(b"a", b"1"), Op::put(b"b", b"1")],
        [Op::Delete { key: b"b" }, Op::put(b"c", b"1")],
        [
            Op::Exists { key: b"d" },
            Op::Add {
                key: b"a",
                delta: 1,
            },
        ],
    ];
    for ops in &slices {
        w.execute_slice(&mut sliced, ops, |_| {}).unwrap();
    }
    assert!((0..20).any(|_| w.commit_slice(&mut sliced, 1).unwrap()));
    assert_eq!(
        heard.take(),
        ["set a", "set b", "del b", "set c", "incrby a"]
    );
    assert!(
        world
            .try_run(&[Op::put(b"a", b"1"), Op::Require { key, present: true }])
            .is_err()
    );
    world.run(&[Op::Get { key }]);
    world.engine.listen(false);
    world.run(&[Op::put(key, b"5")]);
    assert_eq!(heard.take(), [""; 0]);
}

#[test]
fn new_keys_are_announced_before_what_made_them() {
    let world = World::new();
    let heard = Heard::of(&world.engine);
    world.run(&[
        Op::put(b"a", b"1"),
        Op::put(b"b", b"1"),
        Op::put(b"a", b"2"),
    ]);
    let events = std::mem::take(&mut *heard.0.lock());
    assert_eq!(events, ["new a", "set a", "new b", "set b", "set a"]);
}

#[test]
fn events_that_operations_bring_are_all_that_there_are() {
    let world = World::new();
    world.run(&[Op::put(b"a", b"1")]);
    let heard = Heard::of(&world.engine);
    let announce = |key, event| Op::Announce { key, event };
    world.run(&[
        Op::Delete { key: b"a" },
        Op::put(b"b", b"1"),
        announce(b"a", KeyEvent::RenameFrom),
        announce(b"b", KeyEvent::RenameTo),
    ]);
    assert_eq!(heard.take(), ["rename_from a", "rename_to b"]);
}

#[test]
fn an_expiry_is_announced_once() {
    for writer_is_first in [false, true] {
        let world = World::new();
        let heard = Heard::of(&world.engine);
        world.run(&[put_until(b"a", b"1", 2_000), put_until(b"b", b"1", 2_000)]);
        world.tidy();
        heard.take();
        let snapshot = world.engine.snapshot();
        world.clock.set(1_999);
        world.tidy();
        assert_eq!(heard.take(), [""; 0]);
        world.clock.set(2_000);
        if writer_is_first {
            world.run(&[Op::put(b"a", b"2")]);
            assert_eq!(heard.take(), ["expired a", "set a"]);
            world.tidy();
            assert_eq!(heard.take(), ["expired b"]);
        } else {
            world.tidy();
            let mut events = heard.take();
            events.sort();
            assert_eq!(events, ["expired a", "expired b"]);
            world.run(&[Op::put(b"a", b"2")]);
            assert_eq!(heard.take(), ["set a"]);
        }
        drop(snapshot);
        world.tidy();
        assert_eq!(heard.take(), [""; 0]);
    }
}

/// The janitor looks at a key with a deadline from time to time: it may have another one, or be gone.
#[test]
fn a_deadline_that_was_moved_forward_is_noticed() {
    let world = World::new();
    let heard = Heard::of(&world.engine);
    let far = 10_000_000;
    world.run(&[put_until(b"a", b"1", far), put_until(b"b", b"1", far)]);
    world.tidy();
    let before = world.engine.memory_bytes();
    world.run(&[expire(b"a", 2_000), Op::Delete { key: b"b" }]);
    heard.take();
    world.clock.set(40_000);
    world.tidy();
    assert_eq!(heard.take(), ["expired a"]);
    world.tidy();
    assert!(world.engine.memory_bytes() < before);
}

#[test]
fn a_prepared_transaction_is_announced_when_it_commits() {
    let world = World::new();
    let mut w = world.worker();
    let heard = Heard::of(&world.engine);
    let ops = [
        Op::Add {
            key: b"n",
            delta: 1,
        },
        Op::put(b"ra:x", b"1"),
    ];
    world.prepare(&mut w, 1, &ops[..1]).unwrap();
    world.prepare(&mut w, 2, &[Op::put(b"gone", b"1")]).unwrap();
    assert_eq!(heard.take(), [""; 0]);
    w.commit(holder(1).id).unwrap();
    w.abort(holder(2).id).unwrap();
    assert_eq!(heard.take(), ["incrby n"]);
    // After a restart the effect alone is known.
    world.prepare(&mut w, 3, &ops[..1]).unwrap();
    let world = world.restarted();
    let heard = Heard::of(&world.engine);
    world.worker().commit(holder(3).id).unwrap();
    assert_eq!(heard.take(), ["set n"]);
}

#[test]
fn replicas_announce_effects_and_flush_when_they_load() {
    let (leader, follower) = (Replica::new(), Replica::new());
    let heard = [&leader, &follower].map(|replica| Heard::of(&replica.engine));
    let key = b"k".as_slice();
    let steps: [(Op<'_>, &[&str]); 6] = [
        (Op::put(key, b"1"), &["set k"]),
        (Op::Add { key, delta: 1 }, &["set k"]),
        (expire(key, 9_000_000), &["expire k"]),
        (Op::Persist { key }, &["persist k"]),
        (Op::Delete { key }, &["del k"]),
        (Op::Flush, &["flushed"]),
    ];
    for (number, (op, events)) in (1..).zip(steps) {
        let entry = leader.run(number, std::slice::from_ref(&op));
        follower.apply(&entry);
        for heard in &heard {
            assert_eq!(heard.take(), events, "{op:?}");
        }
    }
    let late = Replica::new();
    let late_heard = Heard::of(&late.engine);
    late.load(&leader);
    assert_eq!(late_heard.take().last().unwrap(), "flushed");
}

#[test]
fn keys_are_announced_with_the_databases_of_clients() {
    let world = World::without_read_atomic();
    let heard = Heard::of(&world.engine);
    let (one, two) = (qualified(1, b"k"), qualified(2, b"k"));
    world.run(&[Op::put(&one, b"1")]);
    assert_eq!(heard.take(), ["set 1:k"]);
    world.run(&[put_until(&two, b"1", 2_000), Op::put(b"k", b"1")]);
    assert_eq!(heard.take(), ["set 2:k", "expire 2:k", "set k"]);
    world.run(&[Op::FlushDatabase { database: 1 }]);
    assert_eq!(heard.take(), ["flushed"]);
    let (first, second) = (0, 2);
    world.run(&[Op::SwapDatabases { first, second }]);
    assert_eq!(heard.take(), ["flushed"]);
    world.run(&[Op::Delete { key: &two }]);
    assert_eq!(heard.take(), ["del 2:k"]);
    world.tidy();
    world.clock.set(2_000);
    world.tidy();
    assert_eq!(heard.take(), ["expired k"]);
}

/// Every change behind one that was read is heard, from the moment on at which listening has begun.
#[test]
fn no_change_falls_between_listening_and_reading() {
    let world = World::new();
    world.run(&[Op::put(b"n", b"0")]);
    let heard = Arc::new(Counted::default());
    world.engine.set_key_listener(Arc::clone(&heard) as _);
    let value = || {
        let bytes = world.get(b"n").unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        text.parse::<u64>().unwrap()
    };
    let (stop, pause) = (AtomicBool::new(false), Mutex::new(()));
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let mut writer = world.worker();
        let (stop, pause) = (&stop, &pause);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _paused = pause.lock();
                let increment = Op::Add {
                    key: b"n",
                    delta: 1,
                };
                writer.refresh();
                writer.execute(&[increment]).map(drop).unwrap();
            }
        });
        for _ in 0..100 {
            heard.0.store(0, Ordering::SeqCst);
            world.engine.listen(true);
            testkit::eventually("all commits are heard", || world.engine.announces_all());
            let seen = value();
            testkit::eventually("the writer goes on", || value() > seen);
            let _paused = pause.lock();
            assert!(heard.0.load(Ordering::SeqCst) >= value() - seen);
            world.engine.listen(false);
        }
    });
}

/// A listener that counts.
#[derive(Default)]
struct Counted(AtomicU64);

impl KeyListener for Counted {
    fn changed(&self, _: (u16, &[u8]), _: KeyEvent, _: Tid) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn flushed(&self, _: Tid) {}
}
