//! Reading slots in memory of this machine, against copying the same bytes.
//!
//! `cargo bench -p kumiki-cluster --bench slots [-- --quick]` reads eight keys at a time, as a read-atomic
//! transaction does, and prints what a read of one key costs in each step of the way. The ways
//! take turns, so that a disturbance of the machine hits all alike; compare figures of one run only.
//!
//! | way | what it does |
//! |---|---|
//! | copy | `memcpy` of the values alone: the limit |
//! | words | the words that a reader asks for, one atomic load each |
//! | checked | a read by `Reader`: those, the header, checksums, keys |
//! | owned | the same, with a copy of each value, as a client hands it out |
//! | publish | the owner's side: a write is noted, and its version published |

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory, Words};
use base::transaction::Kind;
use base::versions::{Content, Versioned};
use base::{Timestamp, TransactionId};
use kumiki_cluster::ramp::slots::{Address, Ask, Options, Reader, Slots};

/// Keys of one transaction.
const KEYS: usize = 8;
/// Number of keys: their slots are larger than the processor's nearest caches.
const STORED: usize = 1_000;
const TURNS: usize = 40;

#[derive(Clone)]
struct Shared(Arc<[AtomicU64]>);

impl Words for Shared {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A region of this machine, read by loads.
struct Mapped {
    words: Shared,
    begun: Vec<(usize, usize)>,
}

impl RemoteMemory for Mapped {
    fn len(&self) -> usize {
        self.words.0.len()
    }

    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError> {
        self.begun.push((from, count));
        Ok(())
    }

    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        for (from, count) in self.begun.drain(..) {
            let words = &self.words.0[from..from + count];
            into.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
            std::sync::atomic::fence(Ordering::Acquire);
        }
        Ok(())
    }
}

/// State of the measurement.
struct Bench {
    slots: Slots,
    mapped: Mapped,
    keys: Vec<Vec<u8>>,
    addresses: Vec<Address>,
    /// The values, for the plain copy.
    plain: Vec<Vec<u8>>,
    reader: Reader,
    begun: Instant,
    at: usize,
}

impl Bench {
    fn new(value: usize) -> Bench {
        let memory = Shared((0..8 << 20).map(|_| AtomicU64::new(0)).collect());
        let options = Options {
            // A turn of the benchmark on a busy machine must not count as a read that was stopped.
            grace: Duration::from_secs(3600),
            ..Options::new(1)
        };
        let slots = Slots::new(Box::new(memory.clone()), &options, Box::new(|| 0));
        let mut bench = Bench {
            slots: slots.expect("the region is large enough"),
            mapped: Mapped {
                words: memory,
                begun: Vec::new(),
            },
            keys: (0..STORED)
                .map(|key| format!("user:{key:08}").into_bytes())
                .collect(),
            addresses: Vec::new(),
            plain: (0..STORED).map(|key| vec![key as u8; value]).collect(),
            reader: Reader::new(),
            begun: Instant::now(),
            at: 0,
        };
        bench.addresses = (0..STORED).map(|key| bench.publish(key, 1)).collect();
        bench
    }

    fn publish(&self, key: usize, number: u64) -> Address {
        let (name, value) = (&self.keys[key], &self.plain[key]);
        self.slots.writing(name);
        self.slots.written(name);
        let ticket = self.slots.ticket(name).expect("no writer is active");
        let version = Versioned {
            id: TransactionId {
                timestamp: Timestamp(number),
                unique: 1,
            },
            siblings: b"\x0d\0\0\0user:00000001\x0d\0\0\0user:00000002",
            content: Some(Content {
                value,
                kind: Kind::String,
                deadline: None,
            }),
        };
        let published = self.slots.publish(ticket, name, &version);
        published.expect("there is room")
    }

    /// Returns the keys of the next transaction: anywhere, and the same for all ways.
    fn next(&mut self) -> [usize; KEYS] {
        std::array::from_fn(|_| {
            self.at = (self.at + 389) % STORED;
            self.at
        })
    }

    fn copy(&mut self) {
        let mut into: Vec<u8> = Vec::with_capacity(KEYS * self.plain[0].len());
        for key in self.next() {
            into.extend_from_slice(&self.plain[key]);
        }
        black_box(into);
    }

    fn words(&mut self) {
        let words = self.addresses[0].words as usize;
        let mut into = Vec::with_capacity(KEYS * words);
        for key in self.next() {
            let address = self.addresses[key];
            let begun = self
                .mapped
                .begin(address.at as usize, address.words as usize);
            begun.expect("it is there");
        }
        self.mapped.finish(&mut into).expect("it is there");
        black_box(into);
    }

    fn read(&mut self, mut each: impl FnMut(Versioned<'_>)) {
        let asks = self.next().map(|key| Ask {
            key: &self.keys[key],
            address: self.addresses[key],
        });
        let begun = self.begun;
        let now = || begun.elapsed().as_nanos() as u64;
        let memory = &mut self.mapped;
        self.reader
            .begin(memory, &asks, now())
            .expect("it is there");
        let answer =
            |_, answer: Result<Versioned<'_>, _>| each(answer.expect("no writer is active"));
        let finished = self.reader.finish(memory, &asks, now, answer);
        finished.expect("it is there");
    }

    fn checked(&mut self) {
        self.read(|version| {
            black_box(version);
        });
    }

    fn owned(&mut self) {
        let mut values = Vec::with_capacity(KEYS);
        self.read(|version| values.push(version.content.expect("it is there").value.to_vec()));
        black_box(values);
    }

    fn publish_all(&mut self) {
        for key in self.next() {
            black_box(self.publish(key, 2));
        }
    }
}

type ReadMode = (&'static str, fn(&mut Bench));

const READ_MODES: [ReadMode; 5] = [
    ("copy", Bench::copy),
    ("words", Bench::words),
    ("checked", Bench::checked),
    ("owned", Bench::owned),
    ("publish", Bench::publish_all),
];

fn main() {
    let is_quick = std::env::args().any(|arg| arg == "--quick");
    let rounds = if is_quick { 200 } else { 4_000 };
    println!("nanoseconds for each of {KEYS} keys; the median of {TURNS} turns");
    print!("{:>10}", "bytes");
    READ_MODES.iter().for_each(|(name, _)| print!(" {name:>9}"));
    println!(" {:>13}", "checked/copy");
    for value in [16, 128, 1024, 16 * 1024] {
        let mut bench = Bench::new(value);
        let mut times = READ_MODES.map(|_| Vec::with_capacity(TURNS));
        for _ in 0..TURNS {
            for (times, (_, way)) in times.iter_mut().zip(READ_MODES) {
                let begun = Instant::now();
                (0..rounds).for_each(|_| way(&mut bench));
                times.push(begun.elapsed().as_nanos() as f64 / (rounds * KEYS) as f64);
            }
        }
        let medians = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[TURNS / 2]
        });
        print!("{value:>10}");
        medians.iter().for_each(|ns| print!(" {ns:>9.1}"));
        println!(" {:>13.2}", medians[2] / medians[0]);
    }
}
