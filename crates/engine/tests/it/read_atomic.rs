//! Read-atomic keys: prepared attempts hold nothing, and versions can be read by their ids, and
//! leave when no reader can ask for them any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use base::change::siblings;
use base::participant::Isolation::ReadAtomic as Unheld;
use base::participant::State;
use base::partition::OwnedReply;
use base::transaction::{Expiry, When};
use base::versions::{Ask, OwnedFound, ReadAtomic, Watcher};
use base::{Abort, Op, TransactionId};
use kumiki_engine::NoLog;

use crate::support::replica::{Replica, stager};
use crate::support::{World, holder, siblings_of};

const KEPT_MS: u64 = ReadAtomic::KEPT.as_millis() as u64;
const X: &[u8] = b"ra:x";
const Y: &[u8] = b"ra:y";

/// The writer of a version, and its value; or another result.
#[derive(Debug, PartialEq)]
enum Saw {
    Version(TransactionId, Option<Vec<u8>>),
    Nothing,
    NotThere,
    Gone,
}

fn saw(found: &OwnedFound) -> Saw {
    match found {
        OwnedFound::Version(version) => {
            let content = version.content.as_ref();
            Saw::Version(version.id, content.map(|content| content.value.clone()))
        }
        OwnedFound::Nothing => Saw::Nothing,
        OwnedFound::NotThere => Saw::NotThere,
        OwnedFound::Gone => Saw::Gone,
    }
}

fn version(number: u64, value: &[u8]) -> Saw {
    Saw::Version(holder(number).id, Some(value.to_vec()))
}

fn look(world: &World, ask: Ask<'_>) -> OwnedFound {
    let mut found = Vec::new();
    let mut see = |one: base::versions::Found<'_>| found.push(OwnedFound::from(one));
    world.worker().read_versions(&[ask], &mut see);
    found.remove(0)
}

fn newest(world: &World, key: &[u8]) -> Saw {
    saw(&look(world, Ask::Newest { key }))
}

fn one_of(world: &World, key: &[u8], numbers: &[u64]) -> Saw {
    let ids = numbers.iter().map(|number| holder(*number).id).collect();
    saw(&look(world, Ask::OneOf { key, ids }))
}

fn prepare(world: &World, number: u64, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
    world.prepare_as(&mut world.worker(), number, ops, Unheld)
}

fn commit(world: &World, number: u64) {
    let (before, _) = world.worker().commit(holder(number).id).unwrap();
    assert!(matches!(before, State::Prepared(_)), "{before:?}");
}

fn put(world: &World, number: u64, key: &[u8], value: &[u8]) {
    prepare(world, number, &[Op::put(key, value)]).unwrap();
    commit(world, number);
}

fn pass(world: &World, ms: u64) {
    for _ in 0..16 {
        world.clock.advance(ms / 16 + 1);
        world.tidy();
    }
}

#[test]
fn a_deletion_of_an_absent_key_passes_over_what_is_prepared_with_a_smaller_id() {
    let deletions: [(Op<'_>, OwnedReply); 2] = [
        (Op::Delete { key: Y }, OwnedReply::Int(0)),
        (Op::GetDelete { key: Y }, OwnedReply::Nil),
    ];
    for (deletion, reply) in deletions {
        let world = World::new();
        prepare(&world, 5, &[Op::put(X, b"older"), Op::put(Y, b"older")]).unwrap();
        put(&world, 7, X, b"before");
        // Its id is above that of the version which it replaces, and so above the prepared one's.
        let replies = world.run(&[Op::put(X, b"newer"), deletion]);
        assert_eq!(replies[1], reply);
        commit(&world, 5);
        assert_eq!(world.get(X), Some(b"newer".to_vec()));
        assert_eq!(world.get(Y), None, "it was deleted with the newer value");
    }
}

#[test]
fn what_is_prepared_holds_nothing_and_is_found_by_its_id_alone() {
    let world = World::new();
    put(&world, 1, X, b"old");
    let replies = prepare(&world, 5, &[Op::put(X, b"new"), Op::Delete { key: Y }]).unwrap();
    assert_eq!(replies, [OwnedReply::Ok, OwnedReply::Int(0)]);
    assert_eq!(world.get(X), Some(b"old".to_vec()), "nothing is in the way");
    assert_eq!(newest(&world, X), version(1, b"old"));
    assert_eq!(one_of(&world, X, &[5, 1]), version(5, b"new"));
    assert_eq!(one_of(&world, Y, &[5]), Saw::Version(holder(5).id, None));
    assert_eq!(one_of(&world, b"ra:z", &[5]), Saw::Nothing);
    let key = saw(&look(&world, Ask::Id { key: X }));
    assert_eq!(key, Saw::Version(holder(1).id, None));
    commit(&world, 5);
    assert_eq!(newest(&world, X), version(5, b"new"));
    assert_eq!(
        one_of(&world, X, &[1]),
        version(1, b"old"),
        "it was replaced"
    );
    let OwnedFound::Version(version) = look(&world, Ask::Newest { key: X }) else {
        panic!("it is there");
    };
    assert_eq!(version.siblings[..], siblings_of(&[X, Y]));
}

#[test]
fn an_aborted_attempt_leaves_nothing() {
    let world = World::new();
    put(&world, 1, X, b"old");
    prepare(&world, 5, &[Op::put(X, b"new")]).unwrap();
    world.worker().abort(holder(5).id).unwrap();
    assert_eq!(one_of(&world, X, &[5]), Saw::NotThere);
    assert_eq!(newest(&world, X), version(1, b"old"));
    assert_eq!(world.state(5), State::Unknown);
}

#[test]
fn a_commit_that_comes_late_goes_behind_what_is_newer() {
    let world = World::new();
    put(&world, 1, X, b"1");
    for number in [3, 5, 7] {
        let value = number.to_string();
        let ops = [Op::put(X, value.as_bytes()), Op::put(Y, value.as_bytes())];
        prepare(&world, number, &ops).unwrap();
    }
    for number in [7, 3, 5] {
        commit(&world, number);
    }
    let check = |world: &World| {
        assert_eq!(newest(world, X), version(7, b"7"));
        assert_eq!(world.get(Y), Some(b"7".to_vec()));
    };
    check(&world);
    for number in [1_u64, 3, 5, 7] {
        let value = number.to_string();
        assert_eq!(
            one_of(&world, X, &[number]),
            version(number, value.as_bytes())
        );
    }
    assert_eq!(one_of(&world, X, &[4, 5, 6]), version(5, b"5"));
    assert_eq!(one_of(&world, X, &[2, 4]), Saw::NotThere);
    check(&world.restarted());
}

#[test]
fn a_late_version_is_not_in_snapshots_and_does_not_hide_older_ones() {
    let world = World::new();
    put(&world, 1, X, b"1");
    prepare(&world, 5, &[Op::put(X, b"5")]).unwrap();
    let before = world.engine.snapshot();
    put(&world, 7, X, b"7");
    let between = world.engine.snapshot();
    commit(&world, 5);
    let after = world.engine.snapshot();
    pass(&world, 3 * KEPT_MS);
    let mut w = world.worker();
    for (snapshot, value) in [(&before, b"1"), (&between, b"7"), (&after, b"7")] {
        let seen = w.read_snapshot(snapshot, X, |entry| entry.value.bytes().into_owned());
        assert_eq!(seen.as_deref(), Some(&value[..]));
    }
}

#[test]
fn ids_of_a_key_only_grow_at_any_clock_time() {
    let world = World::new();
    let far = 1_000_000;
    put(&world, far, X, b"far");
    world.run(&[Op::put(X, b"near")]);
    let Saw::Version(own, _) = newest(&world, X) else {
        panic!("it is there");
    };
    assert!(own > holder(far).id, "{own}");
    let newest = own.timestamp;
    let late = prepare(&world, far - 1, &[Op::put(Y, b""), Op::put(X, b"late")]);
    assert_eq!(late, Err(Abort::Overtaken { newest }));
    assert_eq!(one_of(&world, X, &[far]), version(far, b"far"));
    world.run(&[
        Op::Add {
            key: b"ra:n",
            delta: 1,
        },
        Op::Add {
            key: b"ra:m",
            delta: 1,
        },
    ]);
    let OwnedFound::Version(two) = look(&world, Ask::Newest { key: b"ra:n" }) else {
        panic!("it is there");
    };
    let keys: Vec<_> = siblings::iter(&two.siblings).flatten().collect();
    assert_eq!(keys, [b"ra:m", b"ra:n"]);
}

#[test]
fn what_is_prepared_comes_back_after_a_restart() {
    let world = World::new();
    put(&world, 1, X, b"1");
    prepare(&world, 5, &[Op::put(X, b"5"), Op::Delete { key: Y }]).unwrap();
    let again = world.restarted();
    assert_eq!(again.get(X), Some(b"1".to_vec()));
    assert_eq!(one_of(&again, X, &[5]), version(5, b"5"));
    commit(&again, 5);
    let third = again.restarted();
    assert_eq!(newest(&third, X), version(5, b"5"));
    assert_eq!(
        third.state(5),
        State::Committed(crate::support::NOTE.to_vec())
    );
    assert_eq!(
        one_of(&third, X, &[1]),
        Saw::Gone,
        "only the newest is on disk"
    );
}

#[test]
fn versions_leave_some_time_after_they_were_replaced() {
    let world = World::new();
    for number in [1, 2, 3] {
        put(&world, number, X, b"v");
    }
    assert_eq!(world.engine.stats().kept_versions, 2);
    pass(&world, KEPT_MS / 2);
    assert_eq!(one_of(&world, X, &[1]), version(1, b"v"));
    pass(&world, 3 * KEPT_MS);
    assert_eq!(one_of(&world, X, &[1]), Saw::Gone);
    assert_eq!(one_of(&world, X, &[2]), Saw::Gone);
    assert_eq!(newest(&world, X), version(3, b"v"));
    assert_eq!(world.engine.stats().kept_versions, 0);
}

#[test]
fn a_late_version_is_kept_from_its_commit_on() {
    let world = World::new();
    prepare(&world, 5, &[Op::put(X, b"5")]).unwrap();
    put(&world, 7, X, b"7");
    pass(&world, 3 * KEPT_MS);
    commit(&world, 5);
    pass(&world, KEPT_MS / 2);
    assert_eq!(one_of(&world, X, &[5]), version(5, b"5"));
    pass(&world, 3 * KEPT_MS);
    assert_eq!(one_of(&world, X, &[5]), Saw::Gone);
}

#[test]
fn an_absence_is_remembered_until_all_have_committed_it_and_for_a_while() {
    let world = World::new();
    put(&world, 1, X, b"1");
    prepare(&world, 5, &[Op::Delete { key: X }, Op::put(Y, b"")]).unwrap();
    commit(&world, 5);
    let absent = || Saw::Version(holder(5).id, None);
    pass(&world, 10 * KEPT_MS);
    assert_eq!(newest(&world, X), absent(), "it is not committed");
    world.worker().forget(holder(5).id).unwrap();
    pass(&world, KEPT_MS / 2);
    assert_eq!(newest(&world, X), absent());
    pass(&world, 4 * KEPT_MS);
    assert_eq!(newest(&world, X), Saw::Nothing);
    assert_eq!(one_of(&world, X, &[5]), Saw::Nothing);
    let newest = holder(5).id.timestamp;
    let late = prepare(&world, 4, &[Op::put(X, b"late")]);
    assert_eq!(
        late,
        Err(Abort::Overtaken { newest }),
        "it came before the deletion"
    );
}

#[test]
fn what_has_expired_leaves_as_well() {
    let world = World::new();
    let put = Op::Put {
        key: X,
        value: b"v",
        when: When::Always,
        expiry: Expiry::InMs(50),
        get: false,
    };
    prepare(&world, 1, &[put]).unwrap();
    commit(&world, 1);
    world.worker().forget(holder(1).id).unwrap();
    world.clock.advance(60);
    world.tidy();
    assert_eq!(newest(&world, X), Saw::Version(holder(1).id, None));
    pass(&world, 4 * KEPT_MS);
    assert_eq!(newest(&world, X), Saw::Nothing);
}

#[test]
fn only_blind_writes_are_prepared_without_holds() {
    let world = World::new();
    let conditional = Op::Put {
        key: X,
        value: b"",
        when: When::Absent,
        expiry: Expiry::Never,
        get: false,
    };
    for op in [conditional, Op::Get { key: X }, Op::Count { database: 0 }] {
        assert_eq!(prepare(&world, 1, &[op]), Err(Abort::Refused));
    }
    assert_eq!(world.state(1), State::Unknown);
    prepare(&world, 1, &[Op::put(X, b"")]).unwrap();
    let again = prepare(&world, 1, &[Op::put(X, b"")]);
    assert_eq!(again, Err(Abort::Refused), "it is known already");
}

#[test]
fn a_commit_waits_for_the_holder_of_a_key() {
    let world = World::new();
    prepare(&world, 5, &[Op::put(X, b"5")]).unwrap();
    let mut w = world.worker();
    world.prepare(&mut w, 9, &[Op::put(X, b"9")]).unwrap();
    let held = Err(Abort::Held { by: holder(9) });
    assert_eq!(w.commit(holder(5).id), held);
    assert_eq!(one_of(&world, X, &[5]), version(5, b"5"));
    w.abort(holder(9).id).unwrap();
    commit(&world, 5);
    assert_eq!(newest(&world, X), version(5, b"5"));
}

#[test]
fn replicas_agree_and_a_leader_keeps_the_order_of_what_it_stages() {
    let (leader, follower) = (Replica::new(), Replica::new());
    let apply = |number: Option<u64>| {
        let entry = leader.entry();
        leader.apply(&entry);
        follower.apply(&entry);
        if let Some(number) = number {
            leader.engine.release(holder(number).id);
        }
    };
    for number in [3, 5] {
        let ops = [Op::put(X, b"blind"), Op::put(Y, b"blind")];
        leader.stage_prepare_as(number, &ops, Unheld).unwrap();
        apply(None);
    }
    assert_eq!(leader.get(X), None, "nothing is held, and nothing is seen");
    leader.with(|w| w.stage_commit(holder(5).id)).unwrap();
    let staged = leader.stage(
        9,
        &[Op::Append {
            key: X,
            value: b"+",
        }],
    );
    assert!(matches!(staged, Err(Abort::Held { .. })), "{staged:?}");
    apply(Some(5));
    leader
        .stage(
            9,
            &[Op::Append {
                key: X,
                value: b"+",
            }],
        )
        .unwrap();
    let held = leader.with(|w| w.stage_commit(holder(3).id));
    assert!(matches!(held, Err(Abort::Held { .. })), "{held:?}");
    apply(None);
    leader.engine.release(stager(9).id);
    leader.with(|w| w.stage_commit(holder(3).id)).unwrap();
    apply(Some(3));
    for replica in [&leader, &follower] {
        assert_eq!(replica.get(X), Some(b"blind+".to_vec()));
        assert_eq!(replica.get(Y), Some(b"blind".to_vec()));
        let id = replica.with(|w| w.origin_of(Y)).map(|origin| origin.0);
        assert_eq!(id, Some(holder(5).id));
    }
    assert_eq!(leader.hash(), follower.hash());
}

#[test]
fn a_commit_that_was_not_submitted_is_taken_back() {
    let leader = Replica::new();
    leader
        .stage_prepare_as(3, &[Op::put(X, b"3")], Unheld)
        .unwrap();
    let entry = leader.entry();
    leader.apply(&entry);
    leader.with(|w| w.stage_commit(holder(3).id)).unwrap();
    assert!(leader.read(X).is_err(), "it is about to be written");
    leader.entry();
    leader.with(|w| w.unstage(holder(3).id));
    assert_eq!(leader.get(X), None);
    leader.with(|w| w.stage_commit(holder(3).id)).unwrap();
    let entry = leader.entry();
    leader.engine.drop_holds();
    leader.engine.restore_prepared().unwrap();
    assert_eq!(leader.get(X), None, "another leader knows nothing of it");
    leader.apply(&entry);
    assert_eq!(leader.get(X), Some(b"3".to_vec()));
}

#[test]
fn a_deletion_stays_while_something_older_is_prepared() {
    let world = World::new();
    put(&world, 1, X, b"1");
    prepare(&world, 3, &[Op::put(X, b"late"), Op::put(Y, b"late")]).unwrap();
    prepare(&world, 5, &[Op::Delete { key: X }, Op::put(Y, b"5")]).unwrap();
    commit(&world, 5);
    world.worker().forget(holder(5).id).unwrap();
    pass(&world, 10 * KEPT_MS);
    commit(&world, 3);
    assert_eq!(newest(&world, X), Saw::Version(holder(5).id, None));
    assert_eq!(newest(&world, Y), version(5, b"5"));
    world.worker().forget(holder(3).id).unwrap();
    pass(&world, 10 * KEPT_MS);
    assert_eq!(newest(&world, X), Saw::Nothing);
}

#[test]
fn a_part_that_cannot_be_written_whole_is_not_prepared() {
    let world = World::new();
    let reserved = [0xff; 20];
    let ops = [Op::put(X, b"x"), Op::put(&reserved, b"x")];
    let failed = prepare(&world, 1, &ops);
    assert_eq!(failed, Err(Abort::Failed(base::OpError::Reserved)));
    assert_eq!(world.state(1), State::Unknown);
}

#[test]
fn of_several_effects_on_a_key_the_last_one_counts() {
    let world = World::new();
    let ops = [
        Op::put(X, b"first"),
        Op::put(Y, b"other"),
        Op::put(X, b"last"),
    ];
    prepare(&world, 1, &ops).unwrap();
    assert_eq!(one_of(&world, X, &[1]), version(1, b"last"));
    commit(&world, 1);
    assert_eq!(newest(&world, X), version(1, b"last"));
    assert_eq!(world.restarted().get(X), Some(b"last".to_vec()));
}

#[test]
fn writes_above_the_same_version_have_different_ids() {
    let world = World::new();
    prepare(&world, 1, &[Op::put(X, b""), Op::put(Y, b"")]).unwrap();
    commit(&world, 1);
    world.run(&[Op::put(X, b"x")]);
    world.run(&[Op::put(Y, b"y")]);
    let ids = [X, Y].map(|key| match newest(&world, key) {
        Saw::Version(id, _) => id,
        other => panic!("{other:?}"),
    });
    assert!(ids[0] != ids[1] && ids.iter().all(|id| *id > holder(1).id));
}

#[test]
fn what_was_written_before_the_declaration_keeps_its_order() {
    let leader = Replica::new();
    leader.stage_prepare(3, &[Op::put(X, b"both")]).unwrap();
    let entry = leader.entry();
    leader.apply(&entry);
    leader.with(|w| w.stage_commit(holder(3).id)).unwrap();
    let entry = leader.entry();
    leader.apply(&entry);
    leader.engine.release(holder(3).id);
    // As it was logged when the key was an ordinary one.
    let plain = base::Change::Put {
        key: X,
        value: b"alone",
        kind: base::transaction::Kind::String,
        generation: 0,
        deadline: None,
        origin: None,
    };
    let index = leader.engine.applied().next();
    leader.applier.borrow_mut().apply(index, 0, &[plain]);
    assert_eq!(leader.get(X), Some(b"alone".to_vec()));
}

#[test]
fn a_copy_of_a_snapshot_has_what_made_keys_absent() {
    let leader = Replica::new();
    let decide = |number: u64| {
        leader.with(|w| w.stage_commit(holder(number).id)).unwrap();
        let entry = leader.entry();
        leader.apply(&entry);
        leader.engine.release(holder(number).id);
    };
    let prepare = |number: u64, ops: &[Op<'_>]| {
        leader.stage_prepare_as(number, ops, Unheld).unwrap();
        let entry = leader.entry();
        leader.apply(&entry);
    };
    leader.tick(1_000);
    prepare(1, &[Op::put(X, b"1")]);
    decide(1);
    prepare(3, &[Op::put(X, b"late")]);
    prepare(5, &[Op::Delete { key: X }]);
    decide(5);
    let follower = Replica::new();
    follower.load(&leader);
    assert_eq!(follower.get(X), None);
    assert_eq!(leader.hash(), follower.hash());
    leader.with(|w| w.stage_commit(holder(3).id)).unwrap();
    let entry = leader.entry();
    for replica in [&leader, &follower] {
        replica.tidy();
        replica.apply(&entry);
        assert_eq!(replica.get(X), None, "it came before the deletion");
        let id = replica.with(|w| w.origin_of(X)).map(|origin| origin.0);
        assert_eq!(id, Some(holder(5).id));
    }
    assert_eq!(leader.hash(), follower.hash());
}

#[test]
fn a_leap_of_the_clock_takes_no_version_away() {
    let world = World::new();
    for number in [1, 2] {
        put(&world, number, X, b"v");
    }
    pass(&world, KEPT_MS / 4);
    world.clock.advance(100 * KEPT_MS);
    world.tidy();
    world.tidy();
    assert_eq!(one_of(&world, X, &[1]), version(1, b"v"));
    pass(&world, 3 * KEPT_MS);
    assert_eq!(one_of(&world, X, &[1]), Saw::Gone);
}

/// The calls that a watcher got.
#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<String>>);

impl Notes {
    fn note(&self, what: &str, key: &[u8]) {
        let note = format!("{what} {}", String::from_utf8_lossy(key));
        self.0.lock().unwrap().push(note);
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Watcher for Notes {
    fn writing(&self, key: &[u8]) {
        self.note("writing", key);
    }
    fn written(&self, key: &[u8]) {
        self.note("written", key);
    }
    fn writing_all(&self) {
        self.note("writing", b"all");
    }
    fn written_all(&self) {
        self.note("written", b"all");
    }
}

#[test]
fn a_watcher_hears_of_every_visible_write() {
    let world = World::new();
    let notes = std::sync::Arc::new(Notes::default());
    world
        .engine
        .watch_read_atomic(std::sync::Arc::clone(&notes) as _);
    let told = |what: &[&str]| assert_eq!(notes.taken(), what);
    world.run(&[Op::put(b"other", b"1")]);
    told(&[]);
    world.run(&[Op::put(X, b"1")]);
    told(&["writing ra:x", "written ra:x"]);
    world.run(&[Op::Get { key: X }]);
    world.run(&[Op::Delete { key: X }]);
    told(&["writing ra:x", "written ra:x"]);
    prepare(&world, 5, &[Op::put(X, b"5")]).unwrap();
    prepare(&world, 7, &[Op::put(X, b"7"), Op::put(Y, b"7")]).unwrap();
    told(&[]);
    commit(&world, 7);
    let mut both = notes.taken();
    both.sort_unstable();
    let expected = [
        "writing ra:x",
        "writing ra:y",
        "written ra:x",
        "written ra:y",
    ];
    assert_eq!(both, expected);
    // It goes behind the newest version, which stays the newest.
    commit(&world, 5);
    told(&[]);
    world.run(&[Op::Flush]);
    told(&["writing all", "written all"]);
}

#[test]
fn what_is_prepared_is_not_passed_over_after_a_restart() {
    let world = World::new();
    prepare(&world, 5, &[Op::put(X, b"5"), Op::put(Y, b"5")]).unwrap();
    world.clock.advance(1_000);
    let again = world.restarted();
    // It reads that X is absent, so that it comes before the prepared attempt.
    let first = Op::Put {
        key: X,
        value: b"first",
        when: When::Absent,
        expiry: Expiry::Never,
        get: false,
    };
    assert_eq!(again.run(&[first]), [OwnedReply::Ok]);
    commit(&again, 5);
    assert_eq!(newest(&again, X), version(5, b"5"));
    assert_eq!(newest(&again, Y), version(5, b"5"));
}

/// Makes the thread that publishes the second key wait there.
struct Halts {
    seen: AtomicUsize,
    there: mpsc::Sender<Vec<u8>>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Watcher for Halts {
    fn writing(&self, key: &[u8]) {
        if self.seen.fetch_add(1, Ordering::SeqCst) == 1 {
            self.there.send(key.to_vec()).unwrap();
            self.goes_on.lock().unwrap().recv().unwrap();
        }
    }
    fn written(&self, _: &[u8]) {}
    fn writing_all(&self) {}
    fn written_all(&self) {}
}

/// Keys of one entry are published one after the other. A reader that has seen the first one's version
/// asks for the second one's, and does not get the answer that it is lost.
#[test]
fn a_version_that_is_being_published_is_waited_for() {
    let leader = Replica::new();
    let write = |number: u64, value: &[u8]| {
        let ops = [Op::put(X, value), Op::put(Y, value)];
        leader.stage(number, &ops).unwrap();
        leader.entry()
    };
    leader.apply(&write(3, b"old"));
    leader.engine.release(stager(3).id);
    let (there, halted) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    leader.engine.watch_read_atomic(Arc::new(Halts {
        seen: AtomicUsize::new(0),
        there,
        goes_on: Mutex::new(goes_on),
    }));
    let entry = write(5, b"new");
    let engine = Arc::clone(&leader.engine);
    let asked = std::thread::spawn(move || {
        let second = halted.recv_timeout(Duration::from_secs(20)).unwrap();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            go_on.send(()).unwrap();
        });
        let first = if second == X { Y } else { X };
        let mut worker = engine.worker(|_| NoLog).expect("a worker");
        let mut look = |ask: Ask<'_>| {
            let mut found = Vec::new();
            let mut see = |one: base::versions::Found<'_>| found.push(OwnedFound::from(one));
            worker.read_versions(&[ask], &mut see);
            saw(&found.remove(0))
        };
        let newest = look(Ask::Newest { key: first });
        let Saw::Version(id, _) = newest else {
            panic!("{newest:?}")
        };
        let ids = vec![id];
        let same = look(Ask::OneOf { key: &second, ids });
        later.join().unwrap();
        (newest, same)
    });
    leader.apply(&entry);
    let (newest, same) = asked.join().unwrap();
    assert!(
        matches!(&newest, Saw::Version(_, Some(value)) if value == b"new"),
        "{newest:?}"
    );
    assert_eq!(same, newest);
}
