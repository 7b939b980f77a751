//! Writers, publishers and readers of one slot.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use crate::gate::Gate;
use crate::state;
use crate::sync::{AtomicU64, Ordering};

/// One key: its newest version (`newest`), and its slot.
struct Key {
    gate: Gate,
    /// The key has a slot.
    part: Mutex<bool>,
    /// State, version, checksum.
    slot: [AtomicU64; 3],
    newest: AtomicU64,
    /// The greatest version whose writer got its answer.
    acknowledged: AtomicU64,
}

fn checksum(state: u64, version: u64) -> u64 {
    state << 32 | version << 16 | 7
}

impl Key {
    /// Creates a key of version 1, published already if it has a slot.
    fn new(has_slot: bool) -> Arc<Key> {
        let key = Key {
            gate: Gate::default(),
            part: Mutex::new(false),
            slot: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            newest: AtomicU64::new(1),
            acknowledged: AtomicU64::new(1),
        };
        if has_slot {
            key.publish(1);
        }
        Arc::new(key)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.part.lock().unwrap()
    }

    fn write(&self, version: u64) {
        if self.gate.enter() {
            let has_slot = self.lock();
            if *has_slot {
                state::clear(&self.slot);
            }
        }
        self.newest.store(version, Ordering::Release);
        self.gate.leave();
        self.acknowledged.store(version, Ordering::Release);
    }

    fn publish(&self, sequence: u64) {
        let Some(pass) = self.gate.pass() else { return };
        let version = self.newest.load(Ordering::Acquire);
        let mut has_slot = self.lock();
        let admitted = if *has_slot {
            self.gate.admits(pass)
        } else {
            self.gate.admits_new(pass)
        };
        if admitted {
            *has_slot = true;
            let state = state::valid(sequence);
            state::publish(&self.slot, &[state, version, checksum(state, version)]);
        }
    }

    /// Takes the slot away.
    fn evict(&self) {
        let mut has_slot = self.lock();
        if std::mem::replace(&mut *has_slot, false) {
            state::clear(&self.slot);
            self.gate.withdraw();
        }
    }

    /// Reads the slot, and returns its version if it is accepted. The order of the words is the least
    /// helpful one.
    fn read(&self) -> Option<u64> {
        let version = self.slot[1].load(Ordering::Relaxed);
        let state = self.slot[0].load(Ordering::Relaxed);
        let sum = self.slot[2].load(Ordering::Relaxed);
        (state::is_valid(state) && sum == checksum(state, version)).then_some(version)
    }

    /// Reads the slot, and checks that its version is not older than what was acknowledged.
    fn read_checked(&self) -> Option<u64> {
        let least = self.acknowledged.load(Ordering::Acquire);
        let found = self.read();
        assert!(
            found.is_none_or(|it| it >= least),
            "{found:?}, {least} was acknowledged"
        );
        found
    }

    /// Checks, when all have ended, that an accepted version is the newest.
    fn check_end(&self) {
        let newest = self.newest.load(Ordering::Acquire);
        assert!(self.read().is_none_or(|it| it == newest));
        // A publisher is admitted now.
        self.publish(99);
        assert_eq!(self.read(), Some(newest));
    }
}

fn spawn(key: &Arc<Key>, what: impl FnOnce(&Key) + 'static) -> thread::JoinHandle<()> {
    let key = Arc::clone(key);
    thread::spawn(move || what(&key))
}

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn no_reader_misses_what_was_acknowledged() {
    for has_slot in [true, false] {
        explore(3, move || {
            let key = Key::new(has_slot);
            let writer = spawn(&key, |key| key.write(2));
            let publisher = spawn(&key, |key| key.publish(2));
            let first = key.read_checked();
            let second = key.read_checked();
            assert!(
                second.is_none() || first <= second,
                "{first:?}, then {second:?}"
            );
            writer.join().unwrap();
            publisher.join().unwrap();
            key.check_end();
        });
    }
}

#[test]
fn who_was_answered_by_the_owner_finds_nothing_older_in_the_slot() {
    for has_slot in [true, false] {
        explore(3, move || {
            let key = Key::new(has_slot);
            let writer = spawn(&key, |key| key.write(2));
            let publisher = spawn(&key, |key| key.publish(2));
            let answered = key.newest.load(Ordering::Acquire);
            let read = key.read();
            assert!(
                read.is_none_or(|it| it >= answered),
                "{answered}, then {read:?}"
            );
            writer.join().unwrap();
            publisher.join().unwrap();
        });
    }
}

#[test]
fn no_publisher_of_several_brings_an_old_version_back() {
    for has_slot in [true, false] {
        explore(3, move || {
            let key = Key::new(has_slot);
            let writer = spawn(&key, |key| {
                key.write(2);
                key.publish(2);
            });
            let publisher = spawn(&key, |key| key.publish(3));
            key.publish(4);
            writer.join().unwrap();
            publisher.join().unwrap();
            key.check_end();
        });
    }
}

#[test]
fn of_several_writers_none_is_overlooked() {
    explore(3, || {
        let key = Key::new(true);
        let writer = spawn(&key, |key| key.write(2));
        let publisher = spawn(&key, |key| key.publish(2));
        // This one is aborted: it has no effect.
        if key.gate.enter() && *key.lock() {
            state::clear(&key.slot);
        }
        key.gate.leave();
        key.read_checked();
        writer.join().unwrap();
        publisher.join().unwrap();
        key.check_end();
    });
}

#[test]
fn a_slot_that_is_taken_away_meanwhile_is_counted_right() {
    explore(3, || {
        let key = Key::new(true);
        let writer = spawn(&key, |key| key.write(2));
        let publisher = spawn(&key, |key| key.publish(2));
        key.evict();
        key.read_checked();
        writer.join().unwrap();
        publisher.join().unwrap();
        key.check_end();
        key.evict();
        assert!(!key.gate.has_slots() && key.read().is_none());
    });
}
