//! Compares ordered maps for the engine's index, and point look-ups with and without a table in
//! front of it.
//!
//! `cargo bench -p kumiki-engine --bench index [-- --quick]` prints two tables. Every figure is the
//! median of repetitions that take turns, so that a disturbance of the machine affects all
//! candidates alike; compare figures of one run only.
//!
//! | module | what |
//! |---|---|
//! | `record` | records like the engine's, and the key that comparison-based maps hold |
//! | `record_tree` | the engine's own tree |
//! | `candidates` | the maps behind one trait |
//! | `lookaside` | a lossy hash table of record pointers, with and without prefetching |
//!
//! Every answer is checked, and every record touched, as the engine would do. A wrong answer ends
//! the run, but for scans: the share of wrong ones is a column of its own.

#![allow(unsafe_code, unreachable_pub, missing_docs)]

#[path = "index/candidates.rs"]
mod candidates;
#[path = "index/lookaside.rs"]
mod lookaside;
#[path = "index/record.rs"]
mod record;
// Its tests, and what only the engine needs of it.
#[allow(dead_code, unused_imports)]
#[path = "../src/record_tree.rs"]
mod record_tree;

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Barrier;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use candidates::{Art, Index, Masstree, Own, SkipList, Tree};
use lookaside::Lookaside;
use record::{Home, Pick, RecordRef, Records};

/// mimalloc with a counter of the requested bytes.
struct Counting(mimalloc::MiMalloc);

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting(mimalloc::MiMalloc);

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.dealloc(at, layout) }
    }
}

/// The amount of work.
struct Size {
    keys: usize,
    /// Gets in a repetition; half as many mixed operations per thread, a fifth as many scans.
    gets: usize,
    repetitions: usize,
}

const SCAN: usize = 10;
const BATCH: usize = 10;

/// Nanoseconds per operation, percent of scans that do not begin at the key they were given
/// although it is there, and bytes per entry.
#[derive(Default)]
struct Row {
    name: &'static str,
    insert: Vec<f64>,
    get: Vec<f64>,
    scan: Vec<f64>,
    wrong: Vec<f64>,
    mixed: Vec<f64>,
    bytes: Vec<f64>,
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let size = if quick {
        Size {
            keys: 100_000,
            gets: 100_000,
            repetitions: 3,
        }
    } else {
        Size {
            keys: 1_000_000,
            gets: 400_000,
            repetitions: 3,
        }
    };
    println!(
        "{} keys, median of {} interleaved repetitions",
        size.keys, size.repetitions
    );
    for long in [false, true] {
        let keys = keys(size.keys, long);
        maps(&size, &keys, long);
        lookasides(&size, &keys);
    }
}

/// Returns distinct keys in random order: 8 random bytes, or 24 bytes with a common prefix.
fn keys(count: usize, long: bool) -> Vec<Vec<u8>> {
    let mut rng = Rng(7);
    let mut numbers: Vec<u64> = (0..count as u64).collect();
    rng.shuffle(&mut numbers);
    let mut key = |number: u64| match long {
        true => format!("user:{number:012}:fields").into_bytes(),
        // The number in the low bits keeps the keys distinct.
        false => (rng.draw() >> 24 << 24 | number).to_be_bytes().to_vec(),
    };
    numbers.into_iter().map(&mut key).collect()
}

fn maps(size: &Size, keys: &[Vec<u8>], long: bool) {
    let records = Records::new(keys, Home::Heap);
    let mut rows: [Row; 5] = Default::default();
    for repetition in 0..size.repetitions {
        measure::<Tree>(size, &records, repetition, &mut rows[0]);
        measure::<SkipList>(size, &records, repetition, &mut rows[1]);
        measure::<Masstree>(size, &records, repetition, &mut rows[2]);
        measure::<Own>(size, &records, repetition, &mut rows[3]);
        if !long {
            measure::<Art>(size, &records, repetition, &mut rows[4]);
        }
    }
    println!(
        "\n{}-byte keys, ns per operation on one thread ('mixed', 90 % get, 5 % insert and",
        keys[0].len()
    );
    println!("5 % remove, on two); wrong scans in percent; bytes per entry beside the record");
    let columns = ["get", "insert", "mixed", "scan 10", "wrong", "bytes"];
    println!(
        "{:<19}{}",
        "",
        columns.map(|name| format!("{name:>9}")).concat()
    );
    for row in rows.iter_mut().filter(|row| !row.get.is_empty()) {
        let columns = [
            &mut row.get,
            &mut row.insert,
            &mut row.mixed,
            &mut row.scan,
            &mut row.wrong,
            &mut row.bytes,
        ];
        println!(
            "{:<19}{}",
            row.name,
            columns.map(|v| format!("{:>9.0}", median(v))).concat()
        );
    }
}

/// Runs one repetition of every workload on one map.
fn measure<I: Index>(size: &Size, records: &Records, repetition: usize, row: &mut Row) {
    row.name = I::NAME;
    let before = ALLOCATED.load(Ordering::Relaxed);
    let index = I::new();
    row.insert.push(per_op(records.len(), || {
        for record in records.iter() {
            assert!(index.insert(record), "keys are distinct");
        }
    }));
    let grown = ALLOCATED.load(Ordering::Relaxed) - before;
    row.bytes.push(grown as f64 / records.len() as f64);

    let mut rng = Rng(repetition as u64 + 100);
    let picks = records.picks(size.gets, &mut rng);
    row.get.push(per_op(picks.len(), || {
        for pick in &picks {
            assert!(index.get(pick.key()).is_some_and(|record| pick.is(record)));
        }
    }));
    let (scan, wrong) = scans(&index, &picks[..size.gets / 5]);
    row.scan.push(scan);
    row.wrong.push(wrong);
    row.mixed.push(mixed(&index, size, records, &picks));
}

/// Returns the time of a scan, and the percentage of wrong ones. Stops early when scans take very
/// long.
fn scans<I: Index>(index: &I, picks: &[Pick]) -> (f64, f64) {
    let (mut done, mut wrong) = (0, 0);
    let begin = Instant::now();
    for chunk in picks.chunks(1000) {
        for pick in chunk {
            let mut first = None;
            let count = index.scan(pick.key(), SCAN, &mut |found| {
                first.get_or_insert(found);
                std::hint::black_box(found.touch());
            });
            wrong += usize::from(count > SCAN || !first.is_some_and(|first| pick.is(first)));
        }
        done += chunk.len();
        if begin.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    (
        begin.elapsed().as_nanos() as f64 / done as f64,
        100.0 * wrong as f64 / done as f64,
    )
}

/// Runs two threads; each inserts and removes only its own half of the keys, so that it knows the
/// answers that the map must give, and reads all.
fn mixed<I: Index>(index: &I, size: &Size, records: &Records, picks: &[Pick]) -> f64 {
    let ops = size.gets / 2;
    let start = Barrier::new(2);
    let run = |thread: usize| {
        let mut rng = Rng(thread as u64 + 1);
        let mut removed: Vec<RecordRef> = Vec::new();
        start.wait();
        let begin = Instant::now();
        for pick in &picks[thread * ops..(thread + 1) * ops] {
            match rng.draw() % 20 {
                0 => {
                    let own = records.get(rng.below(records.len() / 2) * 2 + thread);
                    if index.remove(own.key()) {
                        removed.push(own);
                    }
                }
                1 => {
                    if let Some(record) = removed.pop() {
                        assert!(index.insert(record), "it was removed by this thread");
                    }
                }
                _ => {
                    std::hint::black_box(index.get(pick.key()).map(RecordRef::touch));
                }
            }
        }
        begin.elapsed()
    };
    let took = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let own = run(0);
        own.max(other.join().expect("the other thread's assertions hold"))
    });
    took.as_nanos() as f64 / ops as f64
}

/// Measures point look-ups through the lossy table, by the memory of the table and the records.
fn lookasides(size: &Size, keys: &[Vec<u8>]) {
    let homes = [
        (Home::Heap, Home::Heap),
        (Home::Huge, Home::Heap),
        (Home::Huge, Home::Huge),
    ];
    let cases: Vec<(Records, Lookaside)> = homes
        .iter()
        .map(|&(table, home)| {
            let records = Records::new(keys, home);
            let lookaside = Lookaside::new(&records, table);
            (records, lookaside)
        })
        .collect();
    let mut plain = vec![Vec::new(); cases.len()];
    let mut interleaved = vec![Vec::new(); cases.len()];
    let mut hits = 0;
    for repetition in 0..size.repetitions {
        for (case, (records, lookaside)) in cases.iter().enumerate() {
            let mut rng = Rng(repetition as u64 + 100);
            let picks = records.picks(size.gets, &mut rng);
            hits = 0;
            plain[case].push(per_op(picks.len(), || {
                hits = picks
                    .iter()
                    .filter(|pick| found(lookaside.get(pick.key()), pick))
                    .count();
            }));
            interleaved[case].push(per_op(picks.len(), || {
                for batch in picks.as_chunks::<BATCH>().0 {
                    let answers = lookaside.get_batch(batch.each_ref().map(Pick::key));
                    for (answer, pick) in answers.into_iter().zip(batch) {
                        found(answer, pick);
                    }
                }
            }));
        }
    }
    println!(
        "look-aside table in front, ns per get ({:.1} % found):",
        100.0 * hits as f64 / size.gets as f64
    );
    println!(
        "{:<18}{:<18}{:>8}{:>16}",
        "table in", "records in", "plain", "10 interleaved"
    );
    for (case, (table, home)) in homes.iter().enumerate() {
        let (plain, batch) = (median(&mut plain[case]), median(&mut interleaved[case]));
        println!(
            "{:<18}{:<18}{plain:>8.0}{batch:>16.0}",
            table.name(),
            home.name()
        );
    }
}

/// Returns `true` if the table knew the record; its answer must be right.
fn found(answer: Option<RecordRef>, expected: &Pick) -> bool {
    answer.is_some_and(|record| {
        assert!(expected.is(record));
        true
    })
}

fn per_op(ops: usize, run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_nanos() as f64 / ops as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// xorshift64*, so that every run draws the same keys.
pub struct Rng(u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() >> 33) as usize % limit
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
