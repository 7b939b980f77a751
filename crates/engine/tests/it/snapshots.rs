//! Views at an epoch boundary while other transactions run.

use std::sync::Arc;

use base::clock::ManualClock;
use base::epochs::EpochClock;
use base::limits::Limits;
use base::{Epoch, Op};
use kumiki_engine::{Engine, NoLog, Options, Snapshot, Worker};

fn engine() -> Arc<Engine> {
    Engine::new(&Options {
        workers: 4,
        clock: Arc::new(ManualClock::new(1_000)),
        limits: Limits::default(),
    })
}

fn run(worker: &mut Worker<NoLog>, op: Op<'_>) {
    worker.execute(&[op]).unwrap();
}

fn all(worker: &mut Worker<NoLog>, snapshot: &Snapshot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut from, mut found) = (Some(Vec::new()), Vec::new());
    while let Some(key) = from {
        from = worker.scan_snapshot(snapshot, &key, None, 2, |entry| {
            found.push((entry.key.to_vec(), entry.value.bytes().into_owned()));
        });
    }
    found
}

/// A key that is written again and again keeps the version that each of several views needs.
#[test]
fn views_survive_many_overwrites() {
    let engine = engine();
    let mut janitor = engine.janitor();
    let mut w = engine.worker(|_| NoLog).unwrap();
    run(&mut w, Op::put(b"a", b"0"));
    run(&mut w, Op::put(b"b", b"0"));
    let mut views = Vec::new();
    for round in 1..6_u8 {
        views.push((round - 1, engine.snapshot()));
        for _ in 0..4 {
            for _ in 0..3 {
                run(&mut w, Op::put(b"a", b"between"));
                engine.epochs().advance(engine.epochs().current());
            }
            run(&mut w, Op::Delete { key: b"b" });
            janitor.tidy(Epoch(u64::MAX), 100);
        }
        run(&mut w, Op::put(b"a", &[b'0' + round]));
        run(&mut w, Op::put(b"b", &[b'0' + round]));
        for (round, view) in &views {
            let value = vec![b'0' + round];
            let expected = [(b"a".to_vec(), value.clone()), (b"b".to_vec(), value)];
            assert_eq!(all(&mut w, view), expected, "view {round}");
        }
    }
    let before = engine.stats().memory_bytes;
    drop(views);
    for _ in 0..10 {
        janitor.tidy(Epoch(u64::MAX), 100);
    }
    assert!(
        engine.stats().memory_bytes < before,
        "histories are cut off"
    );
}

#[test]
fn a_walk_stops_where_the_visitor_stops_it_and_goes_on_there() {
    let engine = engine();
    let mut w = engine.worker(|_| NoLog).unwrap();
    for key in 0..100_u8 {
        run(&mut w, Op::put(&[key], &[key; 3]));
    }
    run(&mut w, Op::Delete { key: &[7] });
    let view = engine.snapshot();
    run(&mut w, Op::put(&[8], b"later"));
    let (mut from, mut found, mut slices) = (Some(Vec::new()), Vec::new(), 0);
    while let Some(key) = from {
        let mut left = 9;
        slices += 1;
        from = w.walk_snapshot(&view, &key, Some(&[90]), |entry| {
            found.extend(entry.map(|entry| (entry.key[0], entry.value.bytes().into_owned())));
            left -= 1;
            left > 0
        });
    }
    let expected = (0..90).filter(|&key| key != 7);
    assert!(expected.map(|key| (key, vec![key; 3])).eq(found));
    assert!(slices >= 10, "{slices}");
    let value =
        |w: &mut Worker<NoLog>, key| w.read_snapshot(&view, key, |e| e.value.bytes().into_owned());
    assert_eq!(value(&mut w, &[8]), Some(vec![8; 3]));
    assert_eq!(value(&mut w, &[7]), None);
    assert_eq!(value(&mut w, &[200]), None);
    // A deleted one is among them until the janitor removes it.
    assert_eq!(w.skip_records(&[5], 4), Some(vec![9]));
    assert_eq!(w.skip_records(&[5], 95), None);
}

#[test]
fn a_view_knows_its_generation() {
    let engine = engine();
    let mut w = engine.worker(|_| NoLog).unwrap();
    run(&mut w, Op::put(b"a", b"1"));
    let before = engine.snapshot();
    run(&mut w, Op::Flush);
    let flushed = w.observed().tid;
    let after = engine.snapshot();
    assert_eq!(w.snapshot_generation(&before), (0, base::Tid::ZERO));
    assert_eq!(w.snapshot_generation(&after), (1, flushed));
}
