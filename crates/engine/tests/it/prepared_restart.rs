//! Parts of transactions over several partitions after a restart, as the log restores them.

use base::Op;
use base::participant::State;
use base::transaction::ScanContents;

use crate::support::{
    Logged, World, committed, holder, holder_of, prepared, put_until, siblings_of,
};

#[test]
fn every_state_survives_a_restart() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[
        Op::put(b"a", b"1"),
        Op::put(b"gone", b"1"),
        Op::put(b"r", b"1"),
    ]);
    let ops = [
        Op::put(b"a", b"2"),
        put_until(b"new", b"x", 5_000),
        Op::Delete { key: b"gone" },
        Op::Get { key: b"r" },
        Op::Get { key: b"absent" },
        Op::Scan {
            from: b"s",
            to: Some(b"t"),
            limit: 10,
            contents: ScanContents::Keys,
        },
    ];
    world.prepare(&mut w, 1, &ops).unwrap();
    world.prepare(&mut w, 2, &[Op::put(b"two", b"x")]).unwrap();
    w.commit(holder(2).id).unwrap();
    w.refuse(holder(3).id, 9_000).unwrap();
    world.prepare(&mut w, 4, &[Op::put(b"four", b"x")]).unwrap();
    w.abort(holder(4).id).unwrap();
    let again = world.restarted().restarted();
    let states = [1, 2, 3, 4].map(|number| again.state(number));
    let expected = [prepared(), committed(), State::Refused, State::Unknown];
    assert_eq!(states, expected);
    let undecided = [(holder(1).id, prepared()), (holder(2).id, committed())];
    assert_eq!(again.undecided(), undecided);
    for key in [&b"a"[..], b"new", b"gone"] {
        assert_eq!(again.read(key), Err(holder(1)));
    }
    assert_eq!(again.get(b"r"), Some(b"1".to_vec()));
    for key in [&b"r"[..], b"absent", b"sesame"] {
        assert_eq!(holder_of(again.try_run(&[Op::put(key, b"")])), holder(1));
    }
    assert_eq!(holder_of(again.try_run(&[Op::Flush])), holder(1));
    again.run(&[Op::put(b"four", b"y"), Op::put(b"t", b"y")]);
    again.tidy();
    let mut w = again.worker();
    w.commit(holder(1).id).unwrap();
    assert_eq!(again.get(b"a"), Some(b"2".to_vec()));
    assert_eq!(again.get(b"new"), Some(b"x".to_vec()));
    assert_eq!(again.get(b"gone"), None);
    let origin = (holder(1).id, siblings_of(&[b"a", b"new", b"gone"]));
    assert_eq!(again.origin(b"gone"), Some(origin.clone()));
    again.run(&[
        Op::put(b"r", b""),
        Op::put(b"absent", b""),
        Op::put(b"sesame", b""),
    ]);
    again.clock.set(5_000);
    assert_eq!(again.get(b"new"), None);
    let third = again.restarted();
    assert_eq!(third.state(1), committed());
    assert_eq!(third.get(b"a"), Some(b"2".to_vec()));
    assert_eq!(third.origin(b"a"), Some(origin));
}

#[test]
fn a_prepared_flush_survives_a_restart() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::Flush]);
    world.run(&[Op::put(b"a", b"1")]);
    let ops = [Op::Flush, Op::put(b"b", b"1")];
    world.prepare(&mut w, 1, &ops).unwrap();
    let again = world.restarted();
    assert_eq!(again.read(b"a"), Err(holder(1)));
    let mut w = again.worker();
    w.commit(holder(1).id).unwrap();
    assert_eq!(
        (again.get(b"a"), again.get(b"b")),
        (None, Some(b"1".to_vec()))
    );
    assert_eq!(again.engine.stats().keys, 1);
    again.tidy();
    let third = again.restarted();
    assert_eq!(
        (third.get(b"a"), third.get(b"b")),
        (None, Some(b"1".to_vec()))
    );
}

#[test]
fn damaged_system_records_are_named() {
    let world = World::new();
    let mut w = world.worker();
    world.prepare(&mut w, 1, &[Op::put(b"a", b"1")]).unwrap();
    {
        let mut entries = world.log.entries.lock();
        let Some(Logged::Put { value, .. }) = entries[0].1.first_mut() else {
            panic!("the system record");
        };
        value.pop();
    }
    let entries = world.log.entries.lock().clone();
    let again = World::new();
    let mut restorer = again.engine.restorer().unwrap();
    for (tid, changes) in &entries {
        crate::support::apply(&mut restorer, *tid, changes);
    }
    again
        .engine
        .finish_restore(vec![restorer], entries[0].0.epoch(), 1_000)
        .unwrap();
    let error = again.engine.restore_prepared().unwrap_err().to_string();
    assert!(
        error.contains("cannot be understood: it ends too early"),
        "{error}"
    );
}
