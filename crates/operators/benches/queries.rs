//! TPC-H's Q1, Q6 and the sub-query of Q15 over `lineitem` in memory.
//!
//! `cargo bench -p kumiki-operators --bench queries -- [scale factor] [rows of a chunk]`

#[path = "queries/lineitem.rs"]
mod lineitem;
#[path = "queries/plans.rs"]
mod plans;

use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use kumiki_operators::{Chunk, Executor, Fragment};

/// Times that each query runs.
const RUNS: usize = 15;

fn main() {
    let numbers: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let scale = numbers
        .first()
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(1.0);
    let chunk = numbers
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
        "{:<6} {:>8} {:>10} {:>10} {:>14}",
        "query", "threads", "median ms", "best ms", "million rows/s"
    );
    for (name, fragment) in plans::all() {
        let chunks = table.chunks(&fragment.columns, chunk);
        for threads in [1, 2] {
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let begin = Instant::now();
                let batches = run(&fragment, &chunks, threads);
                times.push(begin.elapsed());
                plans::check(name, scale, &batches);
            }
            times.sort_unstable();
            report(name, threads, table.rows(), times[RUNS / 2], times[0]);
        }
    }
}

/// The rate is that of the best run, which nothing else has disturbed.
fn report(name: &str, threads: usize, rows: usize, median: Duration, best: Duration) {
    let rate = rows as f64 / best.as_secs_f64() / 1e6;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{name:<6} {threads:>8} {:>10.2} {:>10.2} {rate:>14.1}",
        ms(median),
        ms(best)
    );
}

/// Runs a fragment on so many threads, each of which has a part of the chunks.
fn run(fragment: &Fragment, chunks: &[Chunk], threads: usize) -> Vec<RecordBatch> {
    let part = chunks.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts = chunks.chunks(part);
        let workers: Vec<_> = parts
            .map(|part| scope.spawn(|| execute(fragment, part)))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker"))
            .collect()
    })
}

fn execute(fragment: &Fragment, chunks: &[Chunk]) -> Vec<RecordBatch> {
    let types = fragment
        .column_types(&lineitem::schema())
        .expect("columns of lineitem");
    let mut executor = Executor::new(fragment, &types).expect("a fragment");
    let mut batches = Vec::new();
    for chunk in chunks {
        executor.feed(chunk).expect("values");
        batches.extend(std::iter::from_fn(|| executor.take()));
    }
    executor.finish().expect("a result");
    batches.extend(std::iter::from_fn(|| executor.take()));
    batches
}
