//! The engine alone: transactions of ten reads or writes on random keys of a million records.
//!
//! `cargo bench -p kumiki-engine --bench ycsb [-- --quick]` prints, for each value size, read
//! share, way of running a transaction and number of threads, the median throughput of several
//! interleaved repetitions, and what a record costs in memory. Each run checks itself: every
//! read must find its key, and the number of commits must be the number of transactions run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Op;
use base::clock::SystemClock;
use base::limits::Limits;
use kumiki_engine::{Engine, NoLog, Options, Worker};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OPS: usize = 10;

#[derive(Clone, Copy, PartialEq)]
enum Interface {
    OneShot,
    Closure,
}

#[derive(Clone, Copy)]
struct Point {
    value: usize,
    reads: u64,
    interface: Interface,
    threads: usize,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, records, value] = &args[..]
        && flag == "--memory"
    {
        let number = |text: &String| text.parse().expect("a number");
        return measure_memory(number(records), number(value) as usize);
    }
    let quick = args.iter().any(|arg| arg == "--quick" || arg == "--test");
    let (records, time, repetitions) = if quick {
        (100_000, Duration::from_millis(100), 1)
    } else {
        (1_000_000, Duration::from_secs(1), 5)
    };
    println!(
        "{records} records, {OPS} operations a transaction, uniform, medians of {repetitions}"
    );
    println!("value  reads  way       threads   M txn/s  CPU µs/txn");
    for value in [4, 100] {
        let engine = load(records, value);
        let mut results: Vec<(Point, Vec<Run>)> = points(value).map(|p| (p, vec![])).collect();
        for _ in 0..repetitions {
            for (point, runs) in &mut results {
                runs.push(run(&engine, records, *point, time));
            }
        }
        for (point, runs) in results {
            show(point, &runs);
        }
    }
    let sizes: &[u64] = if quick {
        &[100_000]
    } else {
        &[1_000_000, 10_000_000]
    };
    for &records in sizes {
        memory(records);
    }
}

fn points(value: usize) -> impl Iterator<Item = Point> {
    let threads = [1, 2];
    let interfaces = [Interface::OneShot, Interface::Closure];
    let shares = [100, 50, 0];
    threads.into_iter().flat_map(move |threads| {
        interfaces.into_iter().flat_map(move |interface| {
            shares.into_iter().map(move |reads| Point {
                value,
                reads,
                interface,
                threads,
            })
        })
    })
}

fn key(i: u64) -> [u8; 8] {
    // Spread over the key space, as hashed keys are.
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn load(records: u64, value: usize) -> Arc<Engine> {
    let options = Options {
        workers: 4,
        clock: Arc::new(SystemClock),
        limits: Limits::default(),
    };
    let engine = Engine::new(&options);
    let mut worker = engine.worker(|_| NoLog).expect("the first worker");
    let value = vec![1; value];
    for i in 0..records {
        if i % 64 == 0 {
            worker.refresh();
        }
        worker
            .execute(&[Op::put(&key(i), &value)])
            .expect("nothing is in the way");
    }
    drop(worker);
    engine
}

/// The measurements of a repetition.
struct Run {
    /// Transactions a second, in millions.
    rate: f64,
    /// Processor time of a transaction, which a busy machine distorts less than its rate.
    cpu_us: f64,
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn run(engine: &Arc<Engine>, records: u64, point: Point, time: Duration) -> Run {
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let commits = engine.stats().commits;
    let (start, cpu) = (Instant::now(), cpu_time());
    std::thread::scope(|scope| {
        for thread in 0..point.threads {
            let (stop, done) = (&stop, &done);
            scope.spawn(move || {
                let mut worker = engine.worker(|_| NoLog).expect("few threads");
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..16 {
                        transaction(&mut worker, &mut random, records, point);
                    }
                    n += 16;
                }
                done.fetch_add(n, Ordering::SeqCst);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::SeqCst);
    });
    let elapsed = start.elapsed();
    let done = done.load(Ordering::SeqCst);
    if point.reads == 0 {
        assert_eq!(
            engine.stats().commits - commits,
            done,
            "every transaction commits once"
        );
    }
    let rate = done as f64 / elapsed.as_secs_f64() / 1e6;
    Run {
        rate,
        cpu_us: (cpu_time() - cpu).as_secs_f64() * 1e6 / done as f64,
    }
}

fn transaction(worker: &mut Worker<NoLog>, random: &mut fastrand::Rng, records: u64, point: Point) {
    let keys: [[u8; 8]; OPS] = std::array::from_fn(|_| key(random.u64(0..records)));
    let reads: [bool; OPS] = std::array::from_fn(|_| random.u64(0..100) < point.reads);
    let value = [2; 100];
    let value = &value[..point.value];
    match point.interface {
        Interface::OneShot => {
            let ops: [Op<'_>; OPS] = std::array::from_fn(|i| {
                if reads[i] {
                    Op::Get { key: &keys[i] }
                } else {
                    Op::put(&keys[i], value)
                }
            });
            worker.refresh();
            let done = worker.execute(&ops).expect("conflicts are retried");
            let found = done
                .replies()
                .iter()
                .all(|reply| *reply != base::Reply::Nil);
            assert!(found, "a key is missing");
        }
        Interface::Closure => {
            let found = worker.transact(|txn| {
                let mut found = true;
                for (key, read) in keys.iter().zip(reads) {
                    if read {
                        found &= txn.get(key)?.is_some_and(|v| v.len() == value.len());
                    } else {
                        txn.put(key, value)?;
                    }
                }
                Ok(found)
            });
            assert!(found.expect("conflicts are retried").0, "a key is missing");
        }
    }
}

fn show(point: Point, runs: &[Run]) {
    let median = |of: fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "{:>4}B  {:>4}%  {:<8}  {:>7}   {:>7.3}  {:>10.2}",
        point.value,
        point.reads,
        if point.interface == Interface::OneShot {
            "one-shot"
        } else {
            "closure"
        },
        point.threads,
        median(|run| run.rate),
        median(|run| run.cpu_us),
    );
}

/// Measures in a process of its own, whose memory was not used before.
fn memory(records: u64) {
    for value in ["4", "100"] {
        let this = std::env::current_exe().expect("a running program");
        let mut child = std::process::Command::new(this);
        child.args(["--memory", &records.to_string(), value]);
        assert!(
            child.status().is_ok_and(|status| status.success()),
            "the measurement failed"
        );
    }
}

fn measure_memory(records: u64, value: usize) {
    let before = resident();
    let engine = load(records, value);
    println!(
        "{records} records of 8 B keys and {value} B values: {:.0} B each resident, {:.0} B counted",
        (resident() - before) as f64 / records as f64,
        engine.stats().memory_bytes as f64 / records as f64
    );
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4096)
}
