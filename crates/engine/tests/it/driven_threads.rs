//! Many threads on driven engines: readers while entries are applied, and leaderships that come and go
//! while other threads stage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::participant::Prepare;
use base::transaction::ScanContents;
use base::{Abort, Epoch, Op, Reply, TransactionId};
use fastrand::Rng;
use kumiki_engine::{Engine, Worker};
use parking_lot::Mutex;

use crate::support::bank::{ACCOUNTS, Last, TOTAL, account, opening, total};
use crate::support::replica::{Entry, driven, stager};
use crate::support::{holder, number};
use testkit::SetOnDrop;

/// Some threads transfer, one applies to a leader and a follower, others add up on both and in
/// snapshots: every sum is right, whole entries are seen, and money is neither made nor lost.
#[test]
fn readers_see_entries_whole() {
    check_that_readers_see_entries_whole(false);
}

/// The same, of transactions that are staged one after another on the same accounts.
#[test]
fn readers_see_staged_transactions_whole() {
    check_that_readers_see_entries_whole(true);
}

fn check_that_readers_see_entries_whole(passes: bool) {
    let [leader, follower] = [driven(), driven()];
    let queue = Mutex::new(VecDeque::new());
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(1));
    let sums = [const { AtomicU64::new(0) }; 3];
    let transfer = |mut w: Worker<Last>, seed| {
        let mut random = Rng::with_seed(seed);
        while !stop.load(Ordering::SeqCst) {
            let [from, to] = [(); 2].map(|()| account(random.u8(..ACCOUNTS)));
            let add = |key, delta| Op::Add { key, delta };
            let ops = [add(&from, -1), add(&to, 1)];
            let id = next.fetch_add(1, Ordering::SeqCst);
            match w.stage(&ops, stager(id)) {
                Ok(_) => {
                    let entry = w.log().entry.clone().expect("it writes");
                    let mut queue = queue.lock();
                    queue.push_back((id, entry));
                    leader.pass_holds(stager(id).id, id);
                }
                Err(Abort::Held { .. } | Abort::Conflict { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        }
    };
    let read = |mut w: Worker<Last>, count: &AtomicU64| {
        while !stop.load(Ordering::SeqCst) {
            if let Some(total) = total(&mut w) {
                assert_eq!(total, TOTAL);
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let mut appliers = [leader.applier().unwrap(), follower.applier().unwrap()];
    let first = opening();
    for applier in &mut appliers {
        applier.apply(Epoch(1), 0, &first.changes());
    }
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let log = || Last {
            passes,
            ..Last::default()
        };
        let worker = |engine: &Arc<_>| Engine::worker(engine, |_| log()).unwrap();
        scope.spawn({
            let w = worker(&leader);
            || transfer(w, 1)
        });
        scope.spawn({
            let w = worker(&leader);
            || transfer(w, 2)
        });
        scope.spawn({
            let w = worker(&leader);
            || read(w, &sums[0])
        });
        scope.spawn({
            let w = worker(&follower);
            || read(w, &sums[1])
        });
        scope.spawn({
            let mut w = worker(&follower);
            let (stop, sums, follower) = (&stop, &sums, &follower);
            move || {
                let mut janitor = follower.janitor();
                while !stop.load(Ordering::SeqCst) {
                    let snapshot = follower.snapshot();
                    let mut sum = 0;
                    for _ in 0..2 {
                        sum = 0;
                        let next = w.scan_snapshot(&snapshot, b"a", Some(b"b"), 99, |entry| {
                            sum += number(&Reply::Bytes(&entry.value.bytes()));
                        });
                        assert_eq!((next, sum), (None, TOTAL));
                        janitor.tidy(follower.applied(), 100);
                    }
                    assert!(sum > 0);
                    sums[2].fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let enough = |applied: u64| {
            applied > 2_000 && sums.iter().all(|sum| sum.load(Ordering::SeqCst) > 100)
        };
        let mut applied = 1;
        while !enough(applied) && Instant::now() < deadline {
            let Some((id, entry)) = queue.lock().pop_front() else {
                std::thread::yield_now();
                continue;
            };
            applied += 1;
            for (at, applier) in appliers.iter_mut().enumerate() {
                let own = passes && at == 0;
                if !own || !applier.apply_staged(Epoch(applied), 0, stager(id).id) {
                    applier.apply(Epoch(applied), 0, &entry.changes());
                }
            }
            leader.release(stager(id).id);
        }
        assert!(enough(applied), "{applied} entries, {sums:?}");
    });
    let [here, there] = [&leader, &follower].map(|engine| {
        engine.drop_holds();
        let mut w = engine.worker(|_| Last::default()).unwrap();
        assert_eq!(total(&mut w), Some(TOTAL));
        w.state_hash(&engine.snapshot())
    });
    assert_eq!(here, there);
    assert_eq!(passes, leader.staged_counts().0 > 0);
}

/// The entries that were staged, by leadership.
#[derive(Default)]
struct Queue {
    leadership: u64,
    /// `true` if the present leader admits transactions.
    serves: bool,
    staged: VecDeque<(TransactionId, Entry)>,
}

/// One leadership after the other is lost while two threads stage: some of their entries are
/// applied by the next leader, some never. Entries that come too late are released. In every case
/// no hold is left behind, and entries are applied.
#[test]
fn leaderships_come_and_go() {
    check_leaderships(false);
}

/// The same, of transactions that are staged one after another on the same accounts: what was staged after an
/// entry that is lost is lost as well.
#[test]
fn leaderships_of_transactions_that_follow_each_other_come_and_go() {
    check_leaderships(true);
}

fn check_leaderships(passes: bool) {
    let engine = driven();
    let queue = Mutex::new(Queue::default());
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(1));
    let [late, staged] = [const { AtomicU64::new(0) }; 2];
    let mut applier = engine.applier().unwrap();
    let mut apply = |entry: &Entry, own: Option<TransactionId>| {
        let index = engine.applied().next();
        if !own.is_some_and(|id| applier.apply_staged(index, 0, id)) {
            applier.apply(index, 0, &entry.changes());
        }
    };
    apply(&opening(), None);
    let transfer = |mut w: Worker<Last>, seed| {
        let mut random = Rng::with_seed(seed);
        while !stop.load(Ordering::SeqCst) {
            let leadership = {
                let queue = queue.lock();
                queue.serves.then_some(queue.leadership)
            };
            let Some(leadership) = leadership else {
                std::thread::yield_now();
                continue;
            };
            let [from, to, new] = [(); 3].map(|()| account(random.u8(..ACCOUNTS)));
            let add = |key, delta| Op::Add { key, delta };
            let scan = Op::Scan {
                from: &new,
                to: None,
                limit: 1,
                contents: ScanContents::Keys,
            };
            let ops = [
                add(&from, -1),
                add(&to, 1),
                Op::Get { key: &new[..1] },
                scan,
            ];
            let id = stager(next.fetch_add(1, Ordering::SeqCst));
            match w.stage(&ops, id) {
                Ok(_) => {
                    let entry = w.log().entry.clone().expect("it writes");
                    let mut queue = queue.lock();
                    if queue.leadership == leadership {
                        queue.staged.push_back((id.id, entry));
                        engine.pass_holds(id.id, leadership);
                        staged.fetch_add(1, Ordering::SeqCst);
                    } else {
                        drop(queue);
                        engine.release(id.id);
                        late.fetch_add(1, Ordering::SeqCst);
                    }
                }
                Err(Abort::Held { .. } | Abort::Conflict { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for seed in 1..3 {
            let log = Last {
                passes,
                ..Last::default()
            };
            let w = engine.worker(|_| log).unwrap();
            scope.spawn(move || transfer(w, seed));
        }
        let mut own = engine.worker(|_| Last::default()).unwrap();
        let mut random = Rng::with_seed(3);
        let deadline = Instant::now() + Duration::from_secs(60);
        let enough = |elections: u64| {
            elections > 100
                && staged.load(Ordering::SeqCst) > 1_000
                && late.load(Ordering::SeqCst) > 5
        };
        let mut elections = 0;
        while !enough(elections) && Instant::now() < deadline {
            queue.lock().serves = true;
            for _ in 0..random.u32(..20) {
                let Some((id, entry)) = queue.lock().staged.pop_front() else {
                    std::thread::yield_now();
                    continue;
                };
                apply(&entry, Some(id));
                engine.release(id);
            }
            // A part is prepared in one leadership and aborted in the next one.
            elections += 1;
            let part = holder(elections);
            let prepared = own.stage_prepare(&Prepare {
                holder: part,
                ops: &[Op::put(&account(random.u8(..ACCOUNTS)), b"lost")],
                siblings: b"",
                note: b"",
                isolation: base::participant::Isolation::Serializable,
            });
            let prepared = prepared.is_ok().then(|| own.log().entry.clone().unwrap());
            let mut lost = {
                let mut queue = queue.lock();
                queue.leadership += 1;
                queue.serves = false;
                std::mem::take(&mut queue.staged)
            };
            engine.drop_holds();
            lost.truncate(random.usize(..=lost.len()));
            lost.iter().for_each(|(_, entry)| apply(entry, None));
            if let Some(entry) = prepared {
                apply(&entry, None);
                assert_eq!(engine.restore_prepared(), Ok(1));
                assert!(own.stage_abort(part.id).unwrap().1);
                apply(own.log().entry.as_ref().unwrap(), None);
                engine.release(part.id);
            }
        }
        assert!(enough(elections), "{elections} {staged:?} {late:?}");
    });
    for (id, entry) in queue.into_inner().staged {
        apply(&entry, Some(id));
        engine.release(id);
    }
    let mut w = engine.worker(|_| Last::default()).unwrap();
    assert_eq!(total(&mut w), Some(TOTAL));
    let (followed, dropped) = engine.staged_counts();
    assert_eq!((passes, passes), (followed > 0, dropped > 0));
    // Nothing is held: everything can be written.
    w.stage(&[Op::Flush, Op::put(b"a", b"")], stager(0))
        .unwrap();
}
