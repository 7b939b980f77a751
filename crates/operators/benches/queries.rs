//! TPC-H's Q1, Q6 and the sub-query of Q15 over `lineitem` in memory.
//!
//! `cargo bench -p kumiki-operators --bench queries -- [scale factor] [rows of a chunk] [query]`

#[path = "queries/lineitem.rs"]
mod lineitem;
#[path = "queries/plans.rs"]
mod plans;

use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use kumiki_operators::{Chunk, Fragment, FragmentExecutor};
use rustix::time::{ClockId, clock_gettime};

/// Times that each query runs.
const RUNS: usize = 15;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let scale = arguments
        .first()
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(1.0);
    let chunk = arguments
        .get(1)
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(32_768);
    let begin = Instant::now();
    let table = lineitem::generate(scale);
    println!(
        "lineitem, scale factor {scale}: {} rows in chunks of {chunk}, made in {:.1} s",
        table.rows(),
        begin.elapsed().as_secs_f64()
    );
    println!(
        "{:<6} {:>8} {:>10} {:>10} {:>10} {:>14}",
        "query", "threads", "median ms", "best ms", "CPU ms", "million rows/s"
    );
    let chosen = arguments.get(2);
    for (name, fragment) in plans::all() {
        if chosen.is_some_and(|chosen| chosen != name) {
            continue;
        }
        let chunks = table.chunks(&fragment.columns, chunk);
        for threads in [1, 2] {
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let begin = Instant::now();
                let (batches, busy) = run(&fragment, &chunks, threads);
                times.push((begin.elapsed(), busy));
                plans::check(name, scale, &batches);
            }
            report(name, threads, table.rows(), &times);
        }
    }
}

/// Prints the times of runs and of processors. The least of the latter says what a query costs even
/// where other programs run on the machine.
fn report(name: &str, threads: usize, rows: usize, times: &[(Duration, Duration)]) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut wall: Vec<Duration> = times.iter().map(|(wall, _)| *wall).collect();
    wall.sort_unstable();
    let busy = times
        .iter()
        .map(|(_, busy)| *busy)
        .min()
        .unwrap_or_default();
    println!(
        "{name:<6} {threads:>8} {:>10.2} {:>10.2} {:>10.2} {:>14.1}",
        ms(wall[RUNS / 2]),
        ms(wall[0]),
        ms(busy),
        rows as f64 / wall[0].as_secs_f64() / 1e6,
    );
}

/// Runs a fragment on so many threads, each of which has a part of the chunks. Returns the batches
/// that came out, and for how long processors were busy.
fn run(fragment: &Fragment, chunks: &[Chunk], threads: usize) -> (Vec<RecordBatch>, Duration) {
    let part = chunks.len().div_ceil(threads).max(1);
    let work = |part| {
        let begin = clock_gettime(ClockId::ThreadCPUTime);
        let batches = execute(fragment, part);
        let end = clock_gettime(ClockId::ThreadCPUTime);
        let ns = (end.tv_sec - begin.tv_sec) * 1_000_000_000 + end.tv_nsec - begin.tv_nsec;
        (batches, Duration::from_nanos(ns as u64))
    };
    std::thread::scope(|scope| {
        let parts = chunks.chunks(part);
        let workers: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let done = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker"));
        done.fold(
            (Vec::new(), Duration::ZERO),
            |(mut all, sum), (batches, busy)| {
                all.extend(batches);
                (all, sum + busy)
            },
        )
    })
}

fn execute(fragment: &Fragment, chunks: &[Chunk]) -> Vec<RecordBatch> {
    let types = fragment
        .column_types(&lineitem::schema())
        .expect("columns of lineitem");
    let mut executor = FragmentExecutor::new(fragment, &types).expect("a fragment");
    let mut batches = Vec::new();
    for chunk in chunks {
        executor.feed(chunk).expect("values");
        batches.extend(std::iter::from_fn(|| executor.take()));
    }
    executor.finish().expect("a result");
    batches.extend(std::iter::from_fn(|| executor.take()));
    batches
}
