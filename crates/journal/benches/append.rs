//! Measures the journal's cost for a worker, and the latency that it adds to the device's own.
//!
//! `cargo bench -p kumiki-journal --bench append [-- DIR]`; DIR (default `/dev/shm`) is where the
//! throughput part logs to. The latency part logs to the build directory's device.
//!
//! Throughput: one worker runs write-only transactions of ten records over a table of a million,
//! with and without one logger, in turn. The table is a hash map, several times faster than an
//! ordered index, so that the journal's share shows larger than in the store.
//!
//! Latency: one client that waits for each of its transactions, beside bare `pwrite` +
//! `fdatasync` of as many bytes to a file of the same kind in the same run.

use std::collections::HashMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::epochs::EpochClock;
use base::transaction::Kind;
use base::{Epoch, Tid};
use disk::{Disk, RealDisk};
use fastrand::Rng;
use kumiki_journal::{Journal, LogWriter, Options, Recovered};

const RECORDS: u64 = 1_000_000;
const WRITES: usize = 10;
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 5;

/// One worker's epochs.
struct BenchClock {
    current: AtomicU64,
    active: AtomicU64,
}

impl BenchClock {
    fn new() -> Arc<BenchClock> {
        Arc::new(BenchClock {
            current: AtomicU64::new(1),
            active: AtomicU64::new(0),
        })
    }

    fn enter(&self) -> Epoch {
        loop {
            let epoch = self.current.load(Ordering::SeqCst);
            self.active.store(epoch, Ordering::SeqCst);
            if self.current.load(Ordering::SeqCst) == epoch {
                return Epoch(epoch);
            }
        }
    }

    fn leave(&self) {
        self.active.store(0, Ordering::Release);
    }
}

impl EpochClock for BenchClock {
    fn current(&self) -> Epoch {
        Epoch(self.current.load(Ordering::SeqCst))
    }

    fn advance(&self, from: Epoch) -> Epoch {
        let active = self.active.load(Ordering::SeqCst);
        if active == 0 || active >= from.0 {
            let to = from.0 + 1;
            let _ = self
                .current
                .compare_exchange(from.0, to, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.current()
    }

    fn finished(&self) -> Epoch {
        let current = self.current.load(Ordering::SeqCst);
        match self.active.load(Ordering::SeqCst) {
            0 => Epoch(current - 1),
            active => Epoch(active.min(current) - 1),
        }
    }

    fn stamp_ms(&self, epoch: Epoch) -> u64 {
        epoch.0
    }
}

fn start(dir: &Path, clock: &Arc<BenchClock>) -> Journal {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let clock = Arc::clone(clock) as Arc<dyn EpochClock>;
    let options = Options {
        workers: 1,
        ..Options::default()
    };
    Journal::start(disk, dir, options, clock, &Recovered::default()).expect("starts")
}

/// Returns the processor time of this thread, which other programs on the machine disturb less than
/// the clock.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    text.split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .expect("nanoseconds")
}

/// Returns the transactions per second of one worker, and its processor time for each in ns.
fn throughput(dir: Option<&Path>, size: usize, table: &mut HashMap<u64, Vec<u8>>) -> (f64, f64) {
    let clock = BenchClock::new();
    let journal = dir.map(|dir| start(dir, &clock));
    let writer: Option<LogWriter> = journal.as_ref().map(|journal| journal.writer(0));
    let mut rng = Rng::with_seed(7);
    let mut done = 0_u32;
    let value = vec![1; size];
    let (begin, begin_processor) = (Instant::now(), processor_time());
    while !done.is_multiple_of(256) || begin.elapsed() < ROUND {
        let keys: [u64; WRITES] = std::array::from_fn(|_| rng.u64(0..RECORDS));
        if let Some(writer) = &writer {
            writer.wait_ready().expect("ready");
        }
        let epoch = clock.enter();
        for key in keys {
            table.get_mut(&key).expect("there").copy_from_slice(&value);
        }
        if let Some(writer) = &writer {
            let tid = Tid::new(epoch, done % (1 << 20));
            let fill = |to: &mut kumiki_journal::EntryWriter<'_>| {
                for key in keys {
                    to.put(&key.to_be_bytes(), &value, Kind::String, 0, None);
                }
            };
            writer
                .append(tid, epoch.0, WRITES * (size + 28), fill)
                .expect("appends");
        }
        clock.leave();
        done += 1;
    }
    let rate = f64::from(done) / begin.elapsed().as_secs_f64();
    let processor = (processor_time() - begin_processor) / f64::from(done);
    if let Some(journal) = journal {
        journal.close().expect("closes");
    }
    (rate, processor)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare_throughput(under: &Path) {
    println!(
        "throughput, 1 worker + 1 logger on {}, {WRITES} writes each",
        under.display()
    );
    for size in [4, 100] {
        let mut table: HashMap<u64, Vec<u8>> =
            (0..RECORDS).map(|key| (key, vec![0; size])).collect();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(throughput(None, size, &mut table));
            let dir = tempfile::tempdir_in(under).expect("a directory");
            with.push(throughput(Some(dir.path()), size, &mut table));
        }
        let column = |of: &[(f64, f64)], which: fn(&(f64, f64)) -> f64| {
            median(of.iter().map(which).collect())
        };
        let rate = |of: &[(f64, f64)]| column(of, |one| one.0);
        let processor = |of: &[(f64, f64)]| column(of, |one| one.1);
        println!(
            "  {size:>3}-byte values: {:>7.0}/s without, {:>7.0}/s with journal ({:.0} %); the \
             worker's processor time {:.0} and {:.0} ns each ({:.0} %)",
            rate(&without),
            rate(&with),
            100.0 * rate(&with) / rate(&without),
            processor(&without),
            processor(&with),
            100.0 * processor(&without) / processor(&with),
        );
    }
}

/// Returns the time of one call in µs.
fn time(call: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    call();
    begin.elapsed().as_secs_f64() * 1e6
}

fn compare_latency(under: &Path) {
    println!(
        "latency of one client on {}, medians in µs, by turns",
        under.display()
    );
    let dir = tempfile::tempdir_in(under).expect("a directory");
    let file = RealDisk
        .create_new(&dir.path().join("raw"))
        .expect("creates");
    file.allocate(4 << 20).expect("allocates");
    let clock = BenchClock::new();
    let journal = start(dir.path(), &clock);
    let writer = journal.writer(0);
    let commit = || {
        let epoch = clock.enter();
        let tid = Tid::new(epoch, 0);
        writer
            .append(tid, epoch.0, 40, |to| {
                to.put(b"key", b"val", Kind::String, 0, None)
            })
            .expect("appends");
        clock.leave();
        epoch
    };
    for _ in 0..3 {
        let (mut raw, mut thread, mut inline) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..400 {
            raw.push(time(|| {
                file.write_all_at(&[IoSlice::new(&[1; 120])], i * 120)
                    .expect("writes");
                file.sync_data().expect("syncs");
            }));
            thread.push(time(|| journal.wait(commit()).expect("durable")));
            inline.push(time(|| {
                let epoch = commit();
                if !journal.try_cycle_inline(epoch) {
                    journal.wait(epoch).expect("durable");
                }
            }));
        }
        println!(
            "  bare write and sync {:>6.0}   by the logger's thread {:>6.0}   inline {:>6.0}",
            median(raw),
            median(thread),
            median(inline)
        );
    }
    journal.close().expect("closes");
}

fn main() {
    let dir = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let memory = dir.map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    compare_throughput(&memory);
    compare_latency(Path::new(env!("CARGO_TARGET_TMPDIR")));
}
