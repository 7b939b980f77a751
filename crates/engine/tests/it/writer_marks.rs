//! A transaction that wants to write a record that others keep reading succeeds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::participant::Prepare;
use base::{Abort, Op};
use kumiki_engine::Worker;

use crate::support::{Log, World, holder, holder_of};
use testkit::SetOnDrop;

const READ: Op<'static> = Op::Get { key: b"k" };

/// The number of writes of the test with threads; it takes few more tries than writes.
const WRITES: u32 = 20;
const TRIES: u32 = 50 * WRITES;

/// Returns writes that cannot be done while `READ` is prepared.
fn writes() -> [Op<'static>; 3] {
    [Op::put(b"k", b"2"), Op::Delete { key: b"k" }, Op::Flush]
}

/// Returns a world in which attempt 1 holds the key, and a writer has met the hold.
fn met(write: &Op<'static>) -> (World, Worker<Log>) {
    let world = World::new();
    world.run(&[Op::put(b"k", b"1")]);
    let mut w = world.worker();
    world.prepare(&mut w, 1, &[READ]).unwrap();
    let outcome = world.try_run(std::slice::from_ref(write));
    assert_eq!(holder_of(outcome), holder(1));
    (world, w)
}

#[test]
fn a_reader_of_a_wanted_record_gets_its_holder() {
    for write in writes() {
        let (world, mut w) = met(&write);
        let late = world.prepare(&mut w, 2, &[READ]);
        assert_eq!(holder_of(late), holder(1));
        let again = world.prepare(&mut w, 1, &[READ]);
        assert_eq!(again, Err(Abort::Refused), "it is known");
        w.commit(holder(1).id).unwrap();
        world.run(std::slice::from_ref(&write));
        world.prepare(&mut w, 2, &[READ]).unwrap();
        world.prepare(&mut w, 3, &[READ]).unwrap();
    }
}

#[test]
fn another_prepared_one_that_wants_to_write_is_let_in_too() {
    for write in writes() {
        let world = World::new();
        world.run(&[Op::put(b"k", b"1")]);
        let mut w = world.worker();
        world.prepare(&mut w, 2, &[READ]).unwrap();
        let writer = world.prepare(&mut w, 1, std::slice::from_ref(&write));
        assert_eq!(holder_of(writer), holder(2));
        assert_eq!(holder_of(world.prepare(&mut w, 3, &[READ])), holder(2));
        w.abort(holder(2).id).unwrap();
        world
            .prepare(&mut w, 1, std::slice::from_ref(&write))
            .unwrap();
        w.abort(holder(1).id).unwrap();
        world.prepare(&mut w, 3, &[READ]).unwrap();
        world.prepare(&mut w, 4, &[READ]).unwrap();
    }
}

#[test]
fn a_writer_that_has_gone_does_not_keep_readers_out() {
    for write in writes() {
        let (world, mut w) = met(&write);
        w.commit(holder(1).id).unwrap();
        world.prepare(&mut w, 2, &[READ]).unwrap();
        // Other transactions still have to wait, until some time has passed.
        assert_eq!(holder_of(world.prepare(&mut w, 3, &[READ])), holder(2));
        world.clock.set(2_000);
        world.prepare(&mut w, 3, &[READ]).unwrap();
    }
}

#[test]
fn other_keys_are_not_in_the_way() {
    let (world, mut w) = met(&Op::put(b"k", b"2"));
    world.prepare(&mut w, 2, &[Op::put(b"l", b"")]).unwrap();
    assert_eq!(world.get(b"k"), Some(b"1".to_vec()));
}

/// Prepares attempts one after another, each before the one before has ended if it can.
fn keep_reading(next: &AtomicU64, stop: &AtomicBool, mut w: Worker<Log>) {
    let mut before = None;
    while !stop.load(Ordering::SeqCst) {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let key = number.to_le_bytes();
        let prepared = w.prepare(&Prepare {
            holder: holder(number),
            ops: &[READ, Op::put(&key, b"")],
            siblings: &[],
            note: b"",
            isolation: base::participant::Isolation::Serializable,
        });
        if let Some(number) = before.take() {
            w.commit(holder(number).id).unwrap();
            w.forget(holder(number).id).unwrap();
        }
        match prepared {
            Ok(_) => before = Some(number),
            Err(Abort::Held { .. } | Abort::Overtaken { .. }) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Makes a write succeed again and again while two threads keep reading.
fn write_among_readers(write: &Op<'static>) {
    let world = World::new();
    let (next, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    let workers = [world.worker(), world.worker()];
    let mut w = world.worker();
    std::thread::scope(|threads| {
        let _ended = SetOnDrop(&stop);
        let (next, stop) = (&next, &stop);
        for worker in workers {
            threads.spawn(move || keep_reading(next, stop, worker));
        }
        while next.load(Ordering::SeqCst) < 100 {
            std::thread::yield_now();
        }
        let (mut tries, mut done) = (0, 0);
        while done < WRITES && tries < TRIES {
            tries += 1;
            let (seen, start) = (w.releases(), Instant::now());
            match w.execute(std::slice::from_ref(write)).map(drop) {
                Ok(()) => done += 1,
                Err(_) => {
                    while w.releases() == seen && start.elapsed() < Duration::from_secs(1) {
                        std::thread::yield_now();
                    }
                }
            }
        }
        stop.store(true, Ordering::SeqCst);
        assert_eq!(done, WRITES, "in {tries} tries");
    });
}

#[test]
fn a_write_gets_in_among_overlapping_readers() {
    write_among_readers(&Op::put(b"k", b"2"));
    write_among_readers(&Op::Flush);
}
