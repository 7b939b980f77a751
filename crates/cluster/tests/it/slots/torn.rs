//! Hundreds of thousands of reads of a slot that is being published, and as many mixtures of
//! publications: none is taken for a version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::memory::Words;
use kumiki_cluster::ramp::slots::{Address, Fallback, Options, Reader};

use testkit::{SetOnDrop, amount};

use crate::slots::support::{Owned, Remote, get, get_by, options, version};

const KEY: &[u8] = b"torn";

/// Returns the value of a version: its number repeated, in a number of words that changes with it.
fn value(number: u64) -> Vec<u8> {
    let words = 8 + number as usize % 5;
    number.to_le_bytes().repeat(words)
}

/// Creates a region with one class of slots for all of them.
fn owned() -> Owned {
    let large = Options {
        page_bytes: 128 * 8,
        ..options()
    };
    Owned::new((24 + 4 * 128) * 8, &large)
}

fn publish(owned: &Owned, number: u64) -> Address {
    owned.slots.writing(KEY);
    owned.slots.written(KEY);
    owned.put(KEY, &version(number, &value(number)))
}

#[test]
fn no_mixture_of_publications_is_believed() {
    let owned = owned();
    // Room for the largest.
    let mut address = publish(&owned, 4);
    address.words = 32;
    let words = &owned.memory.words()[address.at as usize..][..32];
    let images: Vec<Vec<u64>> = (5..25)
        .map(|number| {
            assert_eq!(publish(&owned, number).at, address.at);
            words
                .iter()
                .map(|word| word.load(Ordering::SeqCst))
                .collect()
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(11);
    let (mut torn, mut whole) = (0, 0);
    let mut memory = Remote::new(&owned.memory);
    let mut reader = Reader::new();
    let enough = amount(300_000, 1_000_000);
    while torn < enough {
        let pick = [(); 3].map(|()| &images[random.usize(..images.len())]);
        // Often a single word is another publication's.
        let odd = random.usize(..32);
        let (is_single, two) = (random.bool(), random.bool());
        for (at, word) in words.iter().enumerate() {
            let of = match (is_single, two) {
                (true, _) => usize::from(at == odd),
                (false, true) => random.usize(..2),
                (false, false) => random.usize(..3),
            };
            word.store(pick[of][at], Ordering::Relaxed);
        }
        let read = get_by(&mut reader, &mut memory, KEY, address, &mut || 0);
        match read {
            Ok((number, found)) => {
                assert_eq!(found, Some(value(number)), "version {number}");
                whole += 1;
            }
            Err(Fallback::Torn | Fallback::Moved) => torn += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(whole > 1000, "{whole} mixtures were of one publication");
}

#[test]
fn no_torn_read_is_believed_while_a_thread_publishes() {
    let owned = owned();
    let mut address = publish(&owned, 4);
    address.words = 32;
    let (attempts, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    let ends = AtomicBool::new(false);
    let (found, torn) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(60);
    let enough = amount(300_000, 1_000_000);
    // On a busy machine all of them may fall between two publications.
    let goes_on = || {
        let is_few = |count: &AtomicU64| count.load(Ordering::Relaxed) < 1000;
        let attempts = attempts.fetch_add(1, Ordering::Relaxed);
        attempts < enough || (is_few(&found) || is_few(&torn)) && Instant::now() < until
    };
    let read = |seed: u64| {
        let mut memory = Remote::shuffled(&owned.memory, seed);
        let mut random = fastrand::Rng::with_seed(seed);
        // A pause in the middle, now and then.
        memory.before = Some(Box::new(move |_| {
            if random.u16(..) < 4 {
                std::thread::yield_now();
            }
        }));
        let mut last = 0;
        while goes_on() {
            let least = acknowledged.load(Ordering::SeqCst);
            match get(&mut memory, KEY, address) {
                Ok((number, bytes)) => {
                    assert_eq!(bytes, Some(value(number)), "version {number}");
                    assert!(number >= least, "{number} after {least} was acknowledged");
                    assert!(number >= last, "{number} after {last} was read");
                    last = number;
                    found.fetch_add(1, Ordering::Relaxed);
                }
                Err(Fallback::Invalid) => {}
                Err(Fallback::Torn | Fallback::Moved) => {
                    torn.fetch_add(1, Ordering::Relaxed);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&ends);
        let (read, ends, acknowledged, owned) = (&read, &ends, &acknowledged, &owned);
        scope.spawn(move || {
            let numbers = (5..).take_while(|_| !ends.load(Ordering::Relaxed));
            numbers.for_each(|number| {
                owned.slots.writing(KEY);
                owned.slots.written(KEY);
                acknowledged.store(number, Ordering::SeqCst);
                let published = owned.put(KEY, &version(number, &value(number)));
                assert_eq!(published.at, address.at);
            });
        });
        let readers = [1, 2].map(|seed| scope.spawn(move || read(seed)));
        let ended = readers.map(|reader| reader.join());
        ends.store(true, Ordering::Relaxed);
        assert!(
            ended.iter().all(Result::is_ok),
            "something wrong was believed"
        );
    });
    let counts = [&found, &torn].map(|count| count.load(Ordering::Relaxed));
    assert!(
        counts.iter().all(|count| *count >= 1000),
        "found and torn: {counts:?}"
    );
}
