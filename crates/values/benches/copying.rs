//! Measures changes and look-ups of collections that are trees: time, allocations, bytes copied, memory.
//!
//! `cargo bench -p kumiki-values --bench copying -- [OPTION VALUE]…`
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `--collections` | names as below, several with commas between | all |
//! | `--entries` | sizes of the collections, several with commas between | 10,128,10000,1000000 |
//! | `--leaves` | greatest bytes of a leaf, several with commas between | 2048 |
//! | `--children` | greatest number of children, several with commas between | 64 |
//! | `--operations` | operations of a kind in a run | 100000 |
//! | `--rounds` | runs of each kind | 5 |
//!
//! | collection | entries |
//! |---|---|
//! | `set` | keys of 4 bytes of a hash and 16 of a member |
//! | `hash` | keys of 4 bytes of a hash and 10 of a field, values of 10 bytes |
//! | `expiring` | as `hash`; a second tree has keys of 8 bytes of a deadline and 10 of a field |
//! | `list` | values of 10 bytes |
//! | `zset` | keys of 8 bytes of a score and 16 of a member; a second tree has keys of 4 bytes of a hash and 8 of a score |
//!
//! | column | meaning |
//! |---|---|
//! | `update` | a random entry has another value: ns |
//! | `insert` | a random new entry, or the removal of one: ns |
//! | `queue` | a push at the end, or a pop at the begin, of a list: ns |
//! | `batch` | as `insert`, but 1000 in a version: ns |
//! | `copied` | bytes of the nodes that one `insert` makes |
//! | `allocs` | memory that one `insert` takes from the allocator, and not from the thread's free nodes: times |
//! | `get`, `nth`, `rank` | look-ups: ns |
//! | `memory` | bytes allocated per entry, after entries were inserted one by one in random order |
//! | `built` | the same, after they were built in order |
//! | `free` | a built collection is freed: ns per entry |
//!
//! Times are processor times. Each change but those of a batch is a version of its own. Nodes that it replaced are freed 64 versions
//! later, as by grace periods. The configurations take turns, so that other load affects all alike; the
//! output shows medians. At the end the entries of each collection are compared with those expected.

#![deny(unsafe_code)]
#![allow(unreachable_pub, missing_docs)]

#[path = "copying/collections.rs"]
mod collections;
#[path = "copying/counting.rs"]
mod counting;
#[path = "copying/versions.rs"]
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use collections::{Collection, ExpiringHash, Hash, List, Set, SortedSet};
use kumiki_values::tree::NodeLimits;

const COLUMNS: [&str; 12] = [
    "update", "insert", "queue", "batch", "copied", "allocs", "get", "nth", "rank", "memory",
    "built", "free",
];

struct Options {
    collections: Vec<String>,
    entries: Vec<usize>,
    leaves: Vec<usize>,
    children: Vec<usize>,
    operations: usize,
    rounds: usize,
}

fn options() -> Options {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(name) = args.next() {
        given.insert(name, args.next().expect("options have values"));
    }
    let mut words = |name: &str, default: &str| -> Vec<String> {
        let value = given.remove(name);
        let value = value.as_deref().unwrap_or(default).split(',');
        value.map(str::to_owned).collect()
    };
    let collections = words("--collections", "set,hash,expiring,list,zset");
    let mut take = |name: &str, default: &str| -> Vec<usize> {
        let numbers = words(name, default).into_iter();
        numbers.map(|n| n.parse().expect("a number")).collect()
    };
    let options = Options {
        collections,
        entries: take("--entries", "10,128,10000,1000000"),
        leaves: take("--leaves", "2048"),
        children: take("--children", "64"),
        operations: take("--operations", "100000")[0],
        rounds: take("--rounds", "5")[0],
    };
    assert!(given.is_empty(), "there is no option {given:?}");
    options
}

fn main() {
    let options = options();
    let columns = COLUMNS.map(|name| format!("{name:>8}")).concat();
    println!("collection   entries  leaf children{columns}");
    for &entries in &options.entries {
        measure::<Set>(&options, entries);
        measure::<Hash>(&options, entries);
        measure::<ExpiringHash>(&options, entries);
        measure::<List>(&options, entries);
        measure::<SortedSet>(&options, entries);
    }
}

/// Returns the processor time that this thread has used: other load takes turns with it on the processor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A configuration, its collection, and what was measured, by columns.
struct Candidate<C> {
    limits: NodeLimits,
    collection: C,
    measured: [Vec<f64>; COLUMNS.len()],
}

fn measure<C: Collection>(options: &Options, entries: usize) {
    if !options.collections.iter().any(|name| name == C::NAME) {
        return;
    }
    let mut candidates: Vec<Candidate<C>> = Vec::new();
    for &leaf_bytes in &options.leaves {
        for &children in &options.children {
            candidates.push(candidate(
                NodeLimits {
                    leaf_bytes,
                    children,
                },
                entries,
            ));
        }
    }
    for _ in 0..options.rounds {
        for candidate in &mut candidates {
            run(candidate, options.operations);
        }
    }
    for candidate in &mut candidates {
        candidate.collection.check();
        let NodeLimits {
            leaf_bytes,
            children,
            ..
        } = candidate.limits;
        print!("{:>10} {entries:>9} {leaf_bytes:>5} {children:>8}", C::NAME);
        for values in &mut candidate.measured {
            match median(values) {
                Some(value) if value < 100.0 => print!("{value:>8.1}"),
                Some(value) => print!("{value:>8.0}"),
                None => print!("{:>8}", "-"),
            }
        }
        println!();
    }
}

/// Makes a collection, and measures its memory, and the time to free it.
fn candidate<C: Collection>(limits: NodeLimits, entries: usize) -> Candidate<C> {
    let mut measured: [Vec<f64>; COLUMNS.len()] = Default::default();
    let mut built = C::build(limits, entries);
    measured[10].push(built.bytes() as f64 / entries as f64);
    let begin = cpu_time();
    drop(built);
    measured[11].push((cpu_time() - begin).as_nanos() as f64 / entries as f64);
    let mut collection = C::fill(limits, entries);
    measured[9].push(collection.bytes() as f64 / entries as f64);
    Candidate {
        limits,
        collection,
        measured,
    }
}

/// Returns the mean time of an operation, or `None` if the collection has none of the kind.
fn timed<C>(
    collection: &mut C,
    operations: usize,
    operation: impl Fn(&mut C) -> bool,
) -> Option<f64> {
    let begin = cpu_time();
    for _ in 0..operations {
        if !operation(collection) {
            return None;
        }
    }
    Some((cpu_time() - begin).as_nanos() as f64 / operations as f64)
}

fn run<C: Collection>(candidate: &mut Candidate<C>, operations: usize) {
    let collection = &mut candidate.collection;
    let update = timed(collection, operations, C::update);
    let (made, allocations) = (collection.made(), counting::allocations());
    let insert = timed(collection, operations, |collection| {
        collection.change(1);
        true
    });
    let copied = (collection.made() - made) as f64 / operations as f64;
    let allocations = (counting::allocations() - allocations) as f64 / operations as f64;
    let queue = timed(collection, operations, C::push_or_pop);
    let batch = timed(collection, operations.div_ceil(1000), |collection| {
        collection.change(1000);
        true
    });
    let all = [
        update,
        insert,
        queue,
        batch.map(|time| time / 1000.0),
        Some(copied),
        Some(allocations),
        timed(collection, operations, C::get),
        timed(collection, operations, C::nth),
        timed(collection, operations, C::rank),
    ];
    for (values, value) in candidate.measured.iter_mut().zip(all) {
        values.extend(value);
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
