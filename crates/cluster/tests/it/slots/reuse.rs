//! Slots that pass from key to key under readers that are slow, or stopped.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base::memory::Words;
use kumiki_cluster::ramp::slots::{Address, Fallback, Reader, Ticket};

use crate::slots::support::{GRACE, Owned, Remote, get_by, options, pages, version};
use testkit::SetOnDrop;

/// Publishes keys until this slot is another key's. Returns that key's number.
fn reuse(owned: &Owned, at: u32, from: u64, value: &[u8]) -> u64 {
    for number in from..from + 1000 {
        owned.pass(GRACE);
        let key = number.to_le_bytes();
        let ticket = owned.slots.ticket(&key).expect("no writer is active");
        let published = owned.slots.publish(ticket, &key, &version(number, value));
        if published.is_ok_and(|address| address.at == at) {
            return number;
        }
    }
    panic!("the slot was not reused");
}

#[test]
fn who_was_stopped_in_the_middle_of_a_read_notices() {
    for stop_at in [0, 1, 3, 7, 9, 12] {
        let owned = Owned::new(pages(2), &options());
        let value = [7; 40];
        let key = 1_u64.to_le_bytes();
        let address = owned.put(&key, &version(1, &value));
        let stopped = Cell::new(false);
        let mut memory = Remote::new(&owned.memory);
        let at = address.at as usize;
        memory.before = Some(Box::new(|word| {
            if word == at + stop_at && !stopped.replace(true) {
                reuse(&owned, address.at, 2, &[8; 40]);
            }
        }));
        let mut clock = || owned.now.load(Ordering::SeqCst);
        let read = get_by(&mut Reader::new(), &mut memory, &key, address, &mut clock);
        assert_eq!(read, Err(Fallback::Late), "stopped at {stop_at}");
        // A reader whose clock stood still can rely on the checksum, and the key.
        stopped.set(false);
        let again = get_by(&mut Reader::new(), &mut memory, &key, address, &mut || 0);
        assert!(
            matches!(again, Err(Fallback::Moved | Fallback::Torn)),
            "{again:?}"
        );
        drop(memory);
    }
}

#[test]
fn memory_rests_before_it_is_reused() {
    let owned = Owned::new(pages(1), &options());
    let keys: Vec<[u8; 8]> = (0..6_u64).map(u64::to_le_bytes).collect();
    let publish = |at: usize| {
        let ticket = owned.slots.ticket(&keys[at]).expect("no writer is active");
        owned
            .slots
            .publish(ticket, &keys[at], &version(1, &[1; 40]))
    };
    let addresses: Vec<_> = (0..4)
        .map(|at| publish(at).expect("there is room"))
        .collect();
    // Twice: the hand gives each key a second chance.
    while owned.slots.figures().evicted == 0 {
        assert!(publish(4).is_err());
    }
    let free = (0..4).find(|at| owned.slots.address(&keys[*at]).is_none());
    let free = addresses[free.expect("one gave way")];
    let word = || owned.memory.words()[free.at as usize + 1].load(Ordering::SeqCst);
    owned.pass(GRACE - 1);
    assert!(
        publish(5).is_err() && word() == 0,
        "the memory was reused, or not wiped"
    );
    owned.pass(1);
    assert_eq!(publish(4).map(|it| it.at), Ok(free.at));
}

#[test]
fn what_looks_like_a_slot_in_a_value_is_not_believed() {
    let owned = Owned::new(pages(1), &options());
    // It must not be at a page's beginning, where a slot of any size begins.
    owned.put(b"another", &version(1, &[1; 40]));
    let address = owned.put(b"victim", &version(1, &[1; 40]));
    let words = || &owned.memory.words()[address.at as usize..][..16];
    let word = |at: usize| words()[at].load(Ordering::SeqCst);
    let image: Vec<u8> = (0..16).flat_map(|at| word(at).to_le_bytes()).collect();
    // Values as large as a page, with a copy of the victim's slot at each place in turn. Once the page
    // has passed to them, one lies where the victim's slot was.
    let mut hit = false;
    for number in 0..400_u64 {
        owned.pass(GRACE);
        let key = number.to_le_bytes();
        let mut value = vec![0; 50 * 8];
        let from = number as usize % 34 * 8;
        value[from..from + image.len()].copy_from_slice(&image);
        let ticket = owned.slots.ticket(&key).expect("no writer is active");
        let _ = owned.slots.publish(ticket, &key, &version(number, &value));
        let mut was = image.chunks_exact(8).enumerate();
        let is_there = was.all(|(at, was)| word(at).to_le_bytes() == *was);
        if is_there && !owned.slots.has(b"victim") {
            hit = true;
            assert_eq!(owned.get(b"victim", address), Err(Fallback::Moved));
        }
    }
    assert!(hit, "no value came to lie where the slot was");
}

/// The newest numbers of keys: what readers would ask a store for.
struct Store {
    newest: Vec<Mutex<u64>>,
    acknowledged: Vec<AtomicU64>,
}

impl Store {
    fn new(keys: usize) -> Store {
        Store {
            newest: (0..keys).map(|_| Mutex::new(0)).collect(),
            acknowledged: (0..keys).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn lock(&self, key: usize) -> MutexGuard<'_, u64> {
        self.newest[key].lock().expect("no thread panicked")
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Returns a value that tells key and version, in a length that changes with both.
fn value(key: usize, number: u64) -> Vec<u8> {
    let len = 5 + (key * 7 + number as usize * 3) % 30;
    (key as u64 * 1_000_003 + number).to_le_bytes().repeat(len)
}

const KEYS: usize = 48;

/// Writes and publishes keys, far more than there is room for.
fn own(owned: &Owned, store: &Store, seed: u64, ends: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !ends.load(Ordering::Relaxed) {
        let at = random.usize(..KEYS);
        let name = key(at);
        if random.u8(..) < 80 {
            owned.slots.writing(&name);
            let mut newest = store.lock(at);
            *newest += 1;
            let number = *newest;
            drop(newest);
            owned.slots.written(&name);
            store.acknowledged[at].fetch_max(number, Ordering::SeqCst);
        }
        let ticket: Option<Ticket> = owned.slots.ticket(&name);
        if let Some(ticket) = ticket {
            let number = *store.lock(at);
            let bytes = value(at, number);
            let _ = owned.slots.publish(ticket, &name, &version(number, &bytes));
        }
        owned.pass(GRACE / 50);
    }
}

/// Numbers of reads: accepted ones, and those that fell back, by the reason.
#[derive(Default)]
struct Counts([AtomicU64; 5]);

impl Counts {
    fn count(&self, kind: usize) {
        self.0[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns `true` if there are enough reads of each kind, and enough slots that were taken from
    /// keys.
    fn suffice(&self, owned: &Owned) -> bool {
        let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) > 20;
        let is_read = self.0[0].load(Ordering::Relaxed) > 20_000 && self.0.iter().all(enough);
        is_read && {
            let figures = owned.slots.figures();
            figures.evicted > 20 && figures.full > 20
        }
    }
}

/// Reads keys at addresses that may be long out of date, slowly, and checks each version that is
/// accepted.
fn read(owned: &Owned, store: &Store, seed: u64, counts: &Counts, until: Instant) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut memory = Remote::shuffled(&owned.memory, seed);
    let mut pauses = random.fork();
    memory.before = Some(Box::new(move |_| match pauses.u16(..) {
        0..8 => std::thread::sleep(Duration::from_micros(300)),
        8..120 => std::thread::yield_now(),
        _ => {}
    }));
    let mut cache: Vec<Option<Address>> = vec![None; KEYS];
    let mut last = [0; KEYS];
    let mut reader = Reader::new();
    let mut now = || owned.now.load(Ordering::SeqCst);
    while !counts.suffice(owned) && Instant::now() < until {
        let at = random.usize(..KEYS);
        let name = key(at);
        let Some(address) = cache[at].or_else(|| owned.slots.address(&name)) else {
            continue;
        };
        // Not dropped at once: the older an address, the better.
        cache[at] = (random.u8(..) < 200).then_some(address);
        let least = store.acknowledged[at].load(Ordering::SeqCst);
        match get_by(&mut reader, &mut memory, &name, address, &mut now) {
            Ok((number, bytes)) => {
                assert_eq!(bytes, Some(value(at, number)), "key {at}, version {number}");
                assert!(number >= least, "{number} after {least} was acknowledged");
                assert!(number >= last[at], "{number} after {} was read", last[at]);
                last[at] = number;
                counts.count(0);
            }
            Err(Fallback::Invalid) => counts.count(1),
            Err(Fallback::Torn) => counts.count(2),
            Err(Fallback::Late) => counts.count(3),
            Err(Fallback::Moved) => counts.count(4),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn slow_readers_believe_nothing_wrong_while_slots_are_reused() {
    let owned = Owned::new(pages(6), &options());
    let store = Store::new(KEYS);
    let ends = AtomicBool::new(false);
    let counts = Counts::default();
    let until = Instant::now() + Duration::from_secs(240);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&ends);
        let (owned, store, ends, counts) = (&owned, &store, &ends, &counts);
        for seed in [1, 2] {
            scope.spawn(move || own(owned, store, seed, ends));
        }
        let readers =
            [3, 4].map(|seed| scope.spawn(move || read(owned, store, seed, counts, until)));
        let ended = readers.map(|reader| reader.join());
        ends.store(true, Ordering::Relaxed);
        let right = ended.iter().all(Result::is_ok);
        assert!(right, "something wrong was believed");
    });
    assert!(
        counts.suffice(&owned),
        "not all came up: {:?}, {:?}",
        counts.0,
        owned.slots.figures()
    );
}
