//! Writers, publishers and readers at once, recorded and judged: together with the owner's own answers,
//! every key is linearizable.
//!
//! Each transaction has one key, so that a history is strictly serializable if and only if each of
//! its keys is linearizable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard};

use history::{Outcome, Recorder, check};
use kumiki_cluster::ramp::slots::{Address, Ask, Reader};

use crate::slots::support::{GRACE, Owned, Remote, absent, options, pages, version};

const KEYS: usize = 6;
const ROUNDS: usize = 6_000;

/// A number that grows with each write, and the value if there is one.
type Newest = (u64, Option<i64>);

/// The state of an engine: the newest committed version of each key.
#[derive(Default)]
struct Store {
    newest: Mutex<HashMap<usize, Newest>>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Newest>> {
        self.newest.lock().expect("no thread panicked")
    }

    fn read(&self, key: usize) -> Newest {
        self.lock().get(&key).copied().unwrap_or_default()
    }
}

fn name(key: usize) -> String {
    format!("k{key}")
}

/// Returns a value as bytes, in a length that makes keys change their slots.
fn bytes(value: i64) -> Vec<u8> {
    value.to_le_bytes().repeat(1 + value as usize % 30)
}

/// Waits a little, now and then.
fn pause(random: &mut fastrand::Rng) {
    match random.u8(..) {
        0..2 => std::thread::sleep(std::time::Duration::from_micros(50)),
        2..60 => std::thread::yield_now(),
        _ => {}
    }
}

/// Reads the newest version and publishes it, as an owner does for a reader.
fn answer(owned: &Owned, store: &Store, key: usize, random: &mut fastrand::Rng) -> Newest {
    let name = name(key);
    let ticket = owned.slots.ticket(name.as_bytes());
    pause(random);
    let newest = store.read(key);
    pause(random);
    if let Some(ticket) = ticket {
        let value = newest.1.map(bytes);
        let version = match &value {
            Some(value) => version(newest.0, value),
            None => absent(newest.0),
        };
        let _ = owned.slots.publish(ticket, name.as_bytes(), &version);
    }
    newest
}

fn write(owned: &Owned, store: &Store, values: &AtomicI64, recorder: &Recorder, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut log = recorder.process();
    for _ in 0..ROUNDS {
        let key = random.usize(..KEYS);
        let name = name(key);
        let kind = random.u8(..10);
        let mut entry = log.begin();
        owned.slots.writing(name.as_bytes());
        pause(&mut random);
        let mut all = store.lock();
        let newest = all.entry(key).or_default();
        // One in ten is prepared and then aborted, and so is a delete of an absent key.
        let outcome = if kind == 0 || kind == 1 && newest.1.is_none() {
            Outcome::Aborted
        } else {
            let value = (kind > 1).then(|| values.fetch_add(1, Ordering::SeqCst));
            *newest = (newest.0 + 1, value);
            match value {
                Some(value) => entry.write(&name, value, Some(newest.0)),
                None => entry.delete(&name, Some(newest.0)),
            }
            Outcome::Committed
        };
        drop(all);
        pause(&mut random);
        owned.slots.written(name.as_bytes());
        if random.bool() {
            answer(owned, store, key, &mut random);
        }
        entry.end(outcome);
        owned.pass(GRACE / 20);
    }
}

/// Reads through slots, and asks the owner if a slot is rejected. Returns how many reads of slots were
/// accepted.
fn read(owned: &Owned, store: &Store, recorder: &Recorder, seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pauses = random.fork();
    let mut memory = Remote::shuffled(&owned.memory, seed);
    memory.before = Some(Box::new(move |_| {
        if pauses.u8(..) < 4 {
            pause(&mut pauses);
        }
    }));
    let mut reader = Reader::new();
    let mut cache: HashMap<usize, Address> = HashMap::new();
    let mut believed = 0;
    let mut log = recorder.process();
    for _ in 0..ROUNDS {
        let key = random.usize(..KEYS);
        let name = name(key);
        let mut entry = log.begin();
        let mut found: Option<Newest> = None;
        if let Some(address) = cache.get(&key).copied() {
            let asks = [Ask {
                key: name.as_bytes(),
                address,
            }];
            reader.begin(&mut memory, &asks, 0).expect("it can be read");
            let mut keeps = true;
            let answer = |_, answer: Result<base::versions::Versioned<'_>, _>| match answer {
                Ok(version) => {
                    let value = version.content.map(|content| {
                        let (head, _) = content.value.split_first_chunk::<8>().expect("eight");
                        let value = i64::from_le_bytes(*head);
                        assert_eq!(content.value, bytes(value));
                        value
                    });
                    found = Some((version.id.unique, value));
                }
                Err(fallback) => {
                    keeps = kumiki_cluster::ramp::slots::Fallback::keeps_address(fallback)
                }
            };
            let finished = reader.finish(&mut memory, &asks, || 0, answer);
            finished.expect("it can be read");
            if !keeps {
                cache.remove(&key);
            }
        }
        believed += usize::from(found.is_some());
        let newest = found.unwrap_or_else(|| {
            let newest = answer(owned, store, key, &mut random);
            cache.extend(owned.slots.address(name.as_bytes()).map(|it| (key, it)));
            newest
        });
        let version = (newest.0 > 0).then_some(newest.0);
        entry.read(&name, newest.1, version);
        entry.end(Outcome::Committed);
    }
    believed
}

/// Judges one history of two writers and three readers. Returns how many reads were of slots, and how
/// many publications a write overtook.
fn judged(seed: u64) -> (usize, u64) {
    let owned = Owned::new(pages(6), &options());
    let (store, values, recorder) = (Store::default(), AtomicI64::new(1), Recorder::new());
    let believed = std::thread::scope(|scope| {
        let (owned, store, values, recorder) = (&owned, &store, &values, &recorder);
        for seed in [seed, seed + 1] {
            scope.spawn(move || write(owned, store, values, recorder, seed));
        }
        let readers = [seed + 2, seed + 3, seed + 4]
            .map(|seed| scope.spawn(move || read(owned, store, recorder, seed)));
        readers.map(|reader| reader.join().expect("what was read was whole"))
    });
    let verdict = check::strictly_serializable(&recorder.finish());
    assert!(verdict.is_accepted(), "{verdict:?}");
    (believed.iter().sum(), owned.slots.figures().overtaken)
}

/// How often a write overtakes a publication depends on the scheduler: there are as many histories as it
/// takes to see enough of it.
#[test]
fn keys_are_linearizable() {
    let (mut believed, mut overtaken) = (0, 0);
    for history in 0..20 {
        let counted = judged(1 + 5 * history);
        believed += counted.0;
        overtaken += counted.1;
        if believed > 1000 && overtaken > 100 {
            return;
        }
    }
    panic!("only {believed} reads were of slots, and {overtaken} publications overtaken");
}
