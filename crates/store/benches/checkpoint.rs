//! Measures the cost of a checkpoint while transactions run, and the time of a recovery from one.
//!
//! `cargo bench -p kumiki-store --bench checkpoint [-- --quick] [--dir DIR] [--records N]` measures
//!
//! 1. the rate of a worker that writes as fast as it can, the times of its transactions, and the
//!    time to durability of another client, without and during checkpoints, in turn;
//! 2. the time to recover N records from a checkpoint of most of them and the log behind it. Each
//!    recovery checks that all of them are there with their values.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base::Op;
use kumiki_store::{CheckpointOptions, Db, Options, Worker};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OPS: usize = 10;
const VALUE: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|arg| arg == "--quick" || arg == "--test");
    let value_of = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)
    };
    let dir = PathBuf::from(value_of("--dir").map_or("/dev/shm", String::as_str));
    let records = value_of("--records").map_or(10_000_000, |n| n.parse().expect("a number"));
    let records = if quick { 300_000 } else { records };
    if !args.iter().any(|arg| arg == "--recovery") {
        interference(&dir, records.min(1_000_000), if quick { 1 } else { 5 });
    }
    if !args.iter().any(|arg| arg == "--interference") {
        recovery(&dir, records);
    }
}

fn key(i: u64) -> [u8; 8] {
    // Spread over the key space, as hashed keys are.
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn options(dir: &Path) -> Options {
    Options {
        workers: 4,
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        ..Options::in_dir(dir)
    }
}

/// Puts keys `range` in transactions of [`OPS`]; each value begins with its key.
fn load(worker: &mut Worker, range: std::ops::Range<u64>) {
    let mut value = [7; VALUE];
    for first in range.clone().step_by(OPS) {
        let batch: Vec<_> = (first..range.end.min(first + OPS as u64))
            .map(key)
            .collect();
        let values: Vec<[u8; VALUE]> = batch
            .iter()
            .map(|key| {
                value[..8].copy_from_slice(key);
                value
            })
            .collect();
        let ops: Vec<Op<'_>> = batch
            .iter()
            .zip(&values)
            .map(|(k, v)| Op::put(k, v))
            .collect();
        worker.refresh();
        worker.execute(&ops).expect("nothing is in the way");
    }
}

/// The observations of some time.
struct Seen {
    rate: f64,
    transaction_p99: Duration,
    durable_p99: Duration,
    durable_mean: Duration,
}

fn interference(dir: &Path, records: u64, rounds: usize) {
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    let db = Db::open(options(dir.path())).expect("it opens");
    let mut worker = db.worker().expect("a worker");
    load(&mut worker, 0..records);
    println!("{records} records of {VALUE} bytes; {rounds} rounds without and with a checkpoint");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(observe(&db, &mut worker, records, None));
        let started = Instant::now();
        with.push(observe(&db, &mut worker, records, Some(started)));
        let status = db.checkpoint_status();
        let report = status.last.expect("one was made");
        println!(
            "  checkpoint: {:.2} s, {} entries, {:.0} MB/s; transactions {:.0} -> {:.0} /s, p99 \
             {:?} -> {:?}; durable p99 {:?} -> {:?}, mean {:?} -> {:?}",
            report.elapsed.as_secs_f64(),
            report.entries,
            report.bytes as f64 / 1e6 / report.elapsed.as_secs_f64(),
            without.last().unwrap().rate,
            with.last().unwrap().rate,
            without.last().unwrap().transaction_p99,
            with.last().unwrap().transaction_p99,
            without.last().unwrap().durable_p99,
            with.last().unwrap().durable_p99,
            without.last().unwrap().durable_mean,
            with.last().unwrap().durable_mean,
        );
    }
    let median = |seen: &[Seen], of: fn(&Seen) -> f64| {
        let mut all: Vec<f64> = seen.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let ratio = |of: fn(&Seen) -> f64| median(&with, of) / median(&without, of);
    println!(
        "  medians, with / without: rate {:.3}, transaction p99 {:.2}, durable p99 {:.2}",
        ratio(|seen| seen.rate),
        ratio(|seen| seen.transaction_p99.as_secs_f64()),
        ratio(|seen| seen.durable_p99.as_secs_f64()),
    );
}

/// Writes until the checkpoint is made, or for two seconds.
fn observe(db: &Db, worker: &mut Worker, records: u64, checkpoint: Option<Instant>) -> Seen {
    let stop = AtomicBool::new(false);
    let durable = std::sync::Mutex::new(Vec::new());
    let count = AtomicU64::new(0);
    let mut times = Vec::new();
    let start = Instant::now();
    if checkpoint.is_some() {
        db.request_checkpoint().expect("none is running");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = db.worker().expect("a worker");
            let mut times = Vec::new();
            while !stop.load(Relaxed) {
                let start = Instant::now();
                worker.refresh();
                worker
                    .execute(&[Op::put(b"probe", b"1")])
                    .expect("executed");
                let epoch = worker.observed().epoch;
                worker.wait_durable(epoch).expect("durable");
                times.push(start.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            *durable.lock().unwrap() = times;
        });
        let mut random = fastrand::Rng::with_seed(1);
        let over = |start: Instant| match checkpoint {
            Some(_) => !db.checkpoint_status().running && start.elapsed().as_millis() > 50,
            None => start.elapsed() > Duration::from_secs(2),
        };
        loop {
            for _ in 0..100 {
                let at = random.u64(0..records - OPS as u64);
                let begun = Instant::now();
                load(worker, at..at + OPS as u64);
                times.push(begun.elapsed());
            }
            count.fetch_add(100, Relaxed);
            if over(start) {
                break;
            }
        }
        stop.store(true, Relaxed);
    });
    let elapsed = start.elapsed();
    let p99 = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() * 99 / 100]
    };
    let mut durable = durable.into_inner().unwrap();
    Seen {
        rate: times.len() as f64 / elapsed.as_secs_f64(),
        transaction_p99: p99(&mut times),
        durable_mean: durable.iter().sum::<Duration>() / durable.len().max(1) as u32,
        durable_p99: p99(&mut durable),
    }
}

fn recovery(dir: &Path, records: u64) {
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    {
        let db = Db::open(options(dir.path())).expect("it opens");
        let mut worker = db.worker().expect("a worker");
        let most = records / 10 * 8;
        load(&mut worker, 0..most);
        let report = db.checkpoint().expect("a checkpoint");
        println!(
            "idle: a checkpoint of {} entries, {:.0} MB, in {:.2} s: {:.2} M entries/s, {:.0} MB/s",
            report.entries,
            report.bytes as f64 / 1e6,
            report.elapsed.as_secs_f64(),
            report.entries as f64 / 1e6 / report.elapsed.as_secs_f64(),
            report.bytes as f64 / 1e6 / report.elapsed.as_secs_f64(),
        );
        load(&mut worker, most..records);
        drop(worker);
        db.close().expect("it closes");
    }
    for _ in 0..2 {
        let start = Instant::now();
        let db = Db::open(options(dir.path())).expect("it opens");
        let elapsed = start.elapsed().as_secs_f64();
        let report = db.recovery();
        let used = report.checkpoint.as_ref().expect("it is used");
        let bytes = (report.bytes + used.bytes) as f64 / 1e6;
        assert_eq!(report.keys, records);
        println!(
            "recovery of {records} records, {} from the checkpoint: {elapsed:.2} s, {:.2} M \
             records/s, {:.0} MB/s",
            used.entries,
            records as f64 / 1e6 / elapsed,
            bytes / elapsed,
        );
        verify(&db, records);
    }
}

fn verify(db: &Db, records: u64) {
    let snapshot = db.snapshot();
    let mut worker = db.worker().expect("a worker");
    let (mut from, mut seen) = (Some(Vec::new()), 0);
    while let Some(key) = from {
        from = worker.scan_snapshot(&snapshot, &key, None, 4096, &mut |entry| {
            let value = entry.value.bytes();
            assert!(value.len() == VALUE && value.starts_with(entry.key));
            seen += 1;
        });
    }
    assert_eq!(seen, records);
}
