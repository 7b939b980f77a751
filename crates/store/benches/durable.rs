//! Measures the cost of durability, and the time of a recovery.
//!
//! `cargo bench -p kumiki-store --bench durable [-- --quick] [--dir DIR]` measures
//!
//! 1. write-only transactions of ten random puts by one worker, in memory and with the journal in
//!    DIR (default `/dev/shm`), in turn; the ratio is that of the medians;
//! 2. the time to write records durably, and the time to recover them. Each recovery checks that
//!    all of them are there with their values.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::Op;
use kumiki_store::{Db, Options, Worker};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OPS: usize = 10;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|arg| arg == "--quick" || arg == "--test");
    let dir = args
        .iter()
        .position(|arg| arg == "--dir")
        .and_then(|at| args.get(at + 1));
    let dir = PathBuf::from(dir.map_or("/dev/shm", String::as_str));
    let (records, time, repetitions) = if quick {
        (100_000, Duration::from_millis(200), 1)
    } else {
        (1_000_000, Duration::from_secs(2), 5)
    };
    logging(&dir, records, time, repetitions);
    recovery(&dir, if quick { 300_000 } else { 5_000_000 });
}

fn key(i: u64) -> [u8; 8] {
    // Spread over the key space, as hashed keys are.
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Puts keys `range` in transactions of [`OPS`]; each value tells its key.
fn load(worker: &mut Worker, range: std::ops::Range<u64>, filler: &[u8]) {
    let mut next = range.start;
    while next < range.end {
        let batch: Vec<_> = (next..range.end.min(next + OPS as u64)).map(key).collect();
        let values: Vec<Vec<u8>> = batch.iter().map(|key| [key, filler].concat()).collect();
        let ops: Vec<Op<'_>> = batch
            .iter()
            .zip(&values)
            .map(|(k, v)| Op::put(k, v))
            .collect();
        worker.refresh();
        worker.execute(&ops).expect("the log is fine");
        next += batch.len() as u64;
    }
}

fn logging(dir: &Path, records: u64, time: Duration, repetitions: usize) {
    println!("write-only, {OPS} puts of 4 B a transaction, {records} records, one worker");
    let home = tempfile::tempdir_in(dir).expect("a directory for the log");
    let databases = [
        ("in memory", None),
        ("logged", Some(home.path().to_owned())),
    ]
    .map(|(n, d)| {
        let db = Db::open(Options {
            dir: d,
            ..Options::default()
        })
        .expect("a fresh directory");
        load(&mut db.worker().expect("the first"), 0..records, b"");
        (n, db)
    });
    let mut rates = [vec![], vec![]];
    for _ in 0..repetitions {
        for ((_, db), rates) in databases.iter().zip(&mut rates) {
            rates.push(rate(db, records, time));
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    for ((name, db), median) in databases.iter().zip(medians) {
        let stats = db.stats();
        println!(
            "  {name:<10} {median:>8.0} transactions/s, {} syncs",
            stats.log_syncs
        );
        assert!(
            stats.journal_failure.is_none(),
            "{:?}",
            stats.journal_failure
        );
    }
    println!("  ratio      {:>8.2}", medians[1] / medians[0]);
}

fn rate(db: &Db, records: u64, time: Duration) -> f64 {
    let mut worker = db.worker().expect("few workers");
    let mut random = fastrand::Rng::with_seed(7);
    let (start, mut n) = (Instant::now(), 0);
    while start.elapsed() < time {
        for _ in 0..16 {
            let keys: [[u8; 8]; OPS] = std::array::from_fn(|_| key(random.u64(0..records)));
            let ops: [Op<'_>; OPS] = std::array::from_fn(|i| Op::put(&keys[i], b"4byt"));
            worker.refresh();
            worker.execute(&ops).expect("the log is fine");
        }
        n += 16;
    }
    let epoch = worker.observed().epoch;
    db.wait_durable(epoch).expect("the log is fine");
    f64::from(n) / start.elapsed().as_secs_f64()
}

fn recovery(dir: &Path, records: u64) {
    for filler in [0, 92] {
        let home = tempfile::tempdir_in(dir).expect("a directory for the log");
        let filler = vec![1; filler];
        let start = Instant::now();
        {
            let db = Db::open(Options::in_dir(home.path())).expect("a fresh directory");
            let mut worker = db.worker().expect("the first");
            load(&mut worker, 0..records, &filler);
            db.wait_durable(worker.observed().epoch)
                .expect("the log is fine");
        }
        let wrote = start.elapsed();
        let db = Db::open(Options::in_dir(home.path())).expect("what was just written");
        let report = db.recovery();
        assert_eq!(report.keys, records);
        verify(&db, records, &filler);
        let (wrote, read) = (wrote.as_secs_f64(), report.elapsed.as_secs_f64());
        println!(
            "{records} records of {} B values: written in {wrote:.2} s, recovered in {read:.2} s \
             ({:.2} M records/s, {:.0} MB/s), ratio {:.2}",
            filler.len() + 8,
            records as f64 / read / 1e6,
            report.bytes as f64 / read / 1e6,
            read / wrote
        );
    }
}

fn verify(db: &Db, records: u64, filler: &[u8]) {
    let mut worker = db.worker().expect("the first");
    for i in (0..records).step_by(997) {
        let key = key(i);
        let done = worker.execute(&[Op::Get { key: &key }]).expect("a read");
        let value = [&key, filler].concat();
        assert_eq!(done.replies()[0], base::Reply::Bytes(&value), "record {i}");
    }
}
