//! Read-atomic transactions over two engines, by threads: a version that is read by its id is
//! always found, and readers see all or nothing of the keys that were written together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base::change::siblings;
use base::clock::SystemClock;
use base::limits::Limits;
use base::participant::{Isolation, Prepare};
use base::transaction::Holder;
use base::versions::{Ask, Found, OwnedFound, OwnedVersion, ReadAtomic};
use base::{Abort, Epoch, Op, Timestamp, TransactionId};
use kumiki_engine::{Engine, NoLog, Options, Worker};
use testkit::SetOnDrop;

const KEYS: usize = 3;
const WRITERS: u64 = 2;
const ROUNDS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

type Workers = [Worker<NoLog>; 2];

fn engine() -> Arc<Engine> {
    let engine = Engine::new(&Options {
        workers: 6,
        clock: Arc::new(SystemClock),
        limits: Limits::default(),
    });
    engine.declare_read_atomic(ReadAtomic::new([&b"ra:"[..]]));
    engine
}

/// Returns the key `at` of a partition.
fn key(partition: usize, at: usize) -> Vec<u8> {
    format!("ra:{partition}:{at}").into_bytes()
}

/// Writes one key of each partition, with the same value; a tenth of the attempts is aborted.
fn write(
    workers: &mut Workers,
    at: [usize; 2],
    id: TransactionId,
    abort: bool,
) -> Option<Timestamp> {
    let keys = [key(0, at[0]), key(1, at[1])];
    let mut both = Vec::new();
    keys.iter().for_each(|key| siblings::push(&mut both, key));
    let value = id.to_bytes();
    for (partition, worker) in workers.iter_mut().enumerate() {
        let prepared = worker.prepare(&Prepare {
            holder: Holder {
                id,
                age: Timestamp::ZERO,
            },
            ops: &[Op::put(&keys[partition], &value)],
            siblings: &both,
            note: b"",
            isolation: Isolation::ReadAtomic,
        });
        if let Err(abort) = prepared {
            let Abort::Overtaken { newest } = abort else {
                panic!("{abort}");
            };
            workers.iter_mut().for_each(|worker| drop(worker.abort(id)));
            return Some(newest);
        }
    }
    for worker in workers {
        let ended = if abort {
            worker.abort(id)
        } else {
            worker.commit(id)
        };
        ended.unwrap();
        worker.forget(id).unwrap();
    }
    None
}

fn ask(worker: &mut Worker<NoLog>, asks: &[Ask<'_>]) -> Vec<OwnedFound> {
    let mut found = Vec::new();
    worker.read_versions(asks, &mut |one: Found<'_>| found.push(one.into()));
    found
}

/// Reads a key of each partition, RAMP-Fast by hand. Returns `true` if it needed the
/// second round.
fn read(workers: &mut Workers, at: [usize; 2]) -> bool {
    let keys = [key(0, at[0]), key(1, at[1])];
    let mut first = |partition: usize| {
        let key = &keys[partition];
        match ask(&mut workers[partition], &[Ask::Newest { key }]).remove(0) {
            OwnedFound::Version(version) => version,
            other => panic!("{other:?}"),
        }
    };
    let versions: [OwnedVersion; 2] = [first(0), first(1)];
    let has = |of: usize, key: &[u8]| {
        siblings::iter(&versions[of].siblings).any(|sibling| sibling == Some(key))
    };
    let newer = usize::from(versions[1].id > versions[0].id);
    let older = 1 - newer;
    if versions[newer].id == versions[older].id || !has(newer, &keys[older]) {
        return false;
    }
    let ids = vec![versions[newer].id];
    let key = &keys[older];
    match ask(&mut workers[older], &[Ask::OneOf { key, ids }]).remove(0) {
        OwnedFound::Version(version) => {
            let content = version.content.map(|content| content.value);
            assert_eq!(content, Some(versions[newer].id.to_bytes().to_vec()));
        }
        other => panic!("{other:?} instead of what was prepared or replaced a moment ago"),
    }
    true
}

#[test]
fn a_version_whose_sibling_was_seen_is_always_found() {
    let engines = [engine(), engine()];
    let workers = || -> Workers {
        [0, 1].map(|at: usize| engines[at].worker(|_| NoLog).expect("few threads"))
    };
    let (stop, repaired) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        for engine in &engines {
            let stop = &stop;
            scope.spawn(move || {
                let mut janitor = engine.janitor();
                while !stop.load(Ordering::Relaxed) {
                    janitor.tidy(Epoch(u64::MAX), 100);
                    thread::sleep(Duration::from_micros(100));
                }
            });
        }
        // All keys are present when readers begin.
        let mut all = workers();
        for at in 0..KEYS {
            let id = TransactionId {
                timestamp: Timestamp(1 + at as u64),
                unique: 0,
            };
            assert_eq!(write(&mut all, [at, at], id, false), None);
        }
        let writers: Vec<_> = (1..=WRITERS)
            .map(|unique| {
                let (mut own, repaired) = (workers(), &repaired);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(unique);
                    let mut timestamp = Timestamp::at_ms(1);
                    // Longer where readers and writers have not met.
                    let goes_on = |round| {
                        let is_new = repaired.load(Ordering::Relaxed) == 0;
                        round < ROUNDS || is_new && begun.elapsed() < PATIENCE / 2
                    };
                    for round in (0..).take_while(|round| goes_on(*round)) {
                        let at = [random.usize(..KEYS), random.usize(..KEYS)];
                        timestamp = timestamp.next();
                        let id = TransactionId { timestamp, unique };
                        if let Some(newest) = write(&mut own, at, id, round % 10 == 9) {
                            timestamp = timestamp.max(newest);
                        }
                    }
                })
            })
            .collect();
        for seed in 0..2 {
            let (mut own, stop, repaired) = (workers(), &stop, &repaired);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let at = [random.usize(..KEYS), random.usize(..KEYS)];
                    let second = read(&mut own, at);
                    repaired.fetch_add(u64::from(second), Ordering::Relaxed);
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("no panic"));
    });
    assert!(begun.elapsed() < PATIENCE);
    let repaired = repaired.into_inner();
    assert!(
        repaired > 0,
        "no read has met a writer, so that nothing was shown"
    );
}
