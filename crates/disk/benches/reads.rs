//! Measures the cost of random reads in each way: IOPS, and processor time for a million reads.
//!
//! `cargo bench --package kumiki-disk --bench reads -- [OPTION VALUE]…`
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `--dir` | where the file is made | a directory of the build |
//! | `--mib` | its length in MiB | 2048 |
//! | `--sizes` | bytes of a read, several with commas between | 512,4096,16384,65536 |
//! | `--ways` | names as below, several with commas between | all |
//! | `--depth` | reads under way with `static` and `here`, at least twice the threads | 128 |
//! | `--seconds` | length of a run | 0.5 |
//! | `--rounds` | runs of each way | 5 |
//!
//! `plainN` are N threads that each read in a loop, as in a program that only reads ("local I/O" of
//! paper 4); `dynamicD` has at most D threads, `staticN` has N, `here` has none, and `ringD` has at
//! most D reads under way. The ways take turns, run by run, so that any other load on the machine
//! affects all of them alike; the output shows medians. Of each read one word is checked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumiki_disk::reads::{
    BufferPool, CompletedRead, PageCache, PooledBuffer, ReadFile, ReadMethod, ReadQueue,
    ReadRequest,
};

const MIB: u64 = 1 << 20;

#[derive(Clone, Copy)]
enum Subject {
    /// Threads that read in a loop.
    Plain(usize),
    /// A way, with so many reads under way.
    ReadMethod(ReadMethod, usize),
}

/// Returns all of them, by name.
fn subjects(depth: usize) -> Vec<(String, Subject)> {
    let mut all = Vec::new();
    for n in [1, 2, 4, 16, 100] {
        all.push((format!("plain{n}"), Subject::Plain(n)));
    }
    for threads in [1, 2, 4, 16, 100] {
        let way = ReadMethod::ThreadPool { threads };
        let depth = (2 * threads).max(depth);
        all.push((format!("static{threads}"), Subject::ReadMethod(way, depth)));
    }
    for depth in [1, 16, 128] {
        all.push((
            format!("dynamic{depth}"),
            Subject::ReadMethod(ReadMethod::ThreadPerRead, depth),
        ));
    }
    all.push((
        "here".to_owned(),
        Subject::ReadMethod(ReadMethod::Inline, depth),
    ));
    for depth in [1, 16, 128, 512] {
        all.push((
            format!("ring{depth}"),
            Subject::ReadMethod(ReadMethod::IoUring, depth),
        ));
    }
    all
}

/// Returns the processor time that this process has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A measured run.
#[derive(Clone, Copy)]
struct Run {
    iops: f64,
    /// The processor time for a million reads.
    cpu: Duration,
}

struct Options {
    dir: String,
    mib: u64,
    sizes: Vec<usize>,
    ways: Vec<String>,
    depth: usize,
    seconds: f64,
    rounds: usize,
}

fn options() -> Options {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(name) = args.next() {
        let value = args.next().expect("options have values");
        given.insert(name, value);
    }
    let mut take = |name: &str, default: &str| {
        let value = given.remove(name);
        value.unwrap_or_else(|| default.to_owned())
    };
    let options = Options {
        dir: take("--dir", env!("CARGO_TARGET_TMPDIR")),
        mib: take("--mib", "2048").parse().expect("a number"),
        sizes: take("--sizes", "512,4096,16384,65536")
            .split(',')
            .map(|size| size.parse().expect("a number"))
            .collect(),
        ways: take("--ways", "")
            .split(',')
            .filter(|way| !way.is_empty())
            .map(str::to_owned)
            .collect(),
        depth: take("--depth", "128").parse().expect("a number"),
        seconds: take("--seconds", "0.5").parse().expect("a number"),
        rounds: take("--rounds", "5").parse().expect("a number"),
    };
    assert!(given.is_empty(), "there is no option {given:?}");
    options
}

fn main() {
    let options = options();
    let dir = tempfile::tempdir_in(&options.dir).expect("makes a directory");
    let path = dir.path().join("f");
    fill(&path, options.mib);
    let file = Arc::new(ReadFile::open(&path, PageCache::Past).expect("opens"));
    println!(
        "{} MiB in {}, {}, reads at multiples of {}",
        options.mib,
        options.dir,
        if file.is_direct() {
            "direct"
        } else {
            "page cache"
        },
        file.alignment(),
    );
    let mut subjects = subjects(options.depth);
    subjects.retain(|(name, _)| options.ways.is_empty() || options.ways.contains(name));
    println!(
        "{:>7} {:>10} {:>10} {:>12}",
        "bytes", "way", "kIOPS", "CPU-s/M"
    );
    for &size in &options.sizes {
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); subjects.len()];
        for _ in 0..options.rounds {
            for ((_, subject), runs) in subjects.iter().zip(&mut runs) {
                let time = Duration::from_secs_f64(options.seconds);
                runs.push(measure(*subject, &file, size, time));
            }
        }
        for ((name, _), runs) in subjects.iter().zip(&mut runs) {
            runs.sort_by(|a, b| a.iops.total_cmp(&b.iops));
            let iops = runs[runs.len() / 2].iops / 1e3;
            runs.sort_by_key(|run| run.cpu);
            let cpu = runs[runs.len() / 2].cpu.as_secs_f64();
            println!("{size:>7} {name:>10} {iops:>10.1} {cpu:>12.3}");
        }
    }
}

/// Fills the file: each word of it is its own offset.
fn fill(path: &Path, mib: u64) {
    let mut file = File::create_new(path).expect("makes a file");
    for piece in 0..mib {
        let words = (piece * MIB..(piece + 1) * MIB).step_by(8);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        file.write_all(&bytes).expect("writes");
    }
    file.sync_all().expect("syncs");
}

fn check(bytes: &[u8], offset: u64) {
    assert_eq!(bytes[..8], offset.to_le_bytes(), "the word at {offset}");
}

fn measure(subject: Subject, file: &Arc<ReadFile>, size: usize, time: Duration) -> Run {
    let places = file.len() / size as u64;
    let place = move |rng: &mut fastrand::Rng| rng.u64(0..places) * size as u64;
    let (reads, wall, cpu) = match subject {
        Subject::Plain(threads) => plain(threads, file, size, time, place),
        Subject::ReadMethod(way, depth) => {
            let mut reads = way.reads(depth).expect("can be had");
            let pool = BufferPool::new(depth as u32, size.max(512)).expect("memory");
            reads.register(pool.memory());
            let begin = (Instant::now(), cpu_time());
            let n = owner(&mut *reads, file, &pool, size, time, place);
            (n, begin.0.elapsed(), cpu_time() - begin.1)
        }
    };
    Run {
        iops: reads as f64 / wall.as_secs_f64(),
        cpu: cpu.mul_f64(1e6 / reads as f64),
    }
}

fn plain(
    threads: usize,
    file: &ReadFile,
    size: usize,
    time: Duration,
    place: impl Fn(&mut fastrand::Rng) -> u64 + Sync,
) -> (u64, Duration, Duration) {
    let pool = BufferPool::new(threads as u32, size).expect("memory");
    let begin = (Instant::now(), cpu_time());
    let until = begin.0 + time;
    let read = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut buf = pool.take().expect("a slot for each thread");
        let mut reads = 0;
        while reads % 16 != 0 || Instant::now() < until {
            let offset = place(&mut rng);
            let n = rustix::io::pread(file.as_fd(), buf.as_mut(), offset).expect("reads");
            assert_eq!(n, size);
            check(buf.as_ref(), offset);
            reads += 1;
        }
        reads
    };
    let reads = std::thread::scope(|scope| {
        let read = &read;
        let threads = (0..threads as u64).map(|seed| scope.spawn(move || read(seed)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|t| t.join().expect("reads")).sum()
    });
    (reads, begin.0.elapsed(), cpu_time() - begin.1)
}

fn owner(
    reads: &mut dyn ReadQueue<(PooledBuffer, u64)>,
    file: &Arc<ReadFile>,
    pool: &BufferPool,
    size: usize,
    time: Duration,
    place: impl Fn(&mut fastrand::Rng) -> u64,
) -> u64 {
    let id = reads.add(Arc::clone(file));
    let mut rng = fastrand::Rng::with_seed(1);
    let mut done: Vec<CompletedRead<(PooledBuffer, u64)>> = Vec::new();
    let mut count = 0;
    let mut bufs: Vec<PooledBuffer> = std::iter::from_fn(|| pool.take()).collect();
    let until = Instant::now() + time;
    let mut over = false;
    while !over || reads.under_way() > 0 {
        over = over || Instant::now() >= until;
        while !over && reads.room() > 0 {
            let offset = place(&mut rng);
            let buf = bufs.pop().expect("a slot for each read");
            reads.submit(ReadRequest {
                file: id,
                offset,
                len: size,
                into: (buf, offset),
            });
        }
        reads.wait(&mut done, None);
        for done in done.drain(..) {
            assert_eq!(done.result.expect("reads"), size);
            check(done.into.0.as_ref(), done.into.1);
            bufs.push(done.into.0);
            count += 1;
        }
    }
    count
}
