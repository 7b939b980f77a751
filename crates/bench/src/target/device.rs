//! Sequential writes to files: the speed of a log's device (paper 2, section 5.2).
//!
//! Each thread writes a file of its own from beginning to end in pieces, and syncs it after so many
//! bytes. Each piece is stamped with its file and place; afterwards all are read and checked.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use disk::{Access, Disk, DiskFile};
use serde::{Deserialize, Serialize};

use crate::disk_access::DeviceAccess;
use crate::error::RunError;
use crate::latency::Latencies;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use crate::stamp::Stamp;

/// Writes to files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceJob {
    /// The place of the files.
    pub place: StorageMedium,
    /// How they are written.
    pub device: DeviceAccess,
    /// Bytes of one write.
    pub piece: usize,
    /// Bytes from sync to sync.
    pub sync_size: usize,
    /// Threads, each with a file.
    pub threads: usize,
    /// `true` if each file is written once before it counts.
    pub warm_up: bool,
}

/// The work of one thread.
struct Written {
    pieces: u64,
    took: Duration,
    /// The latencies of syncs.
    syncs: Latencies,
    /// From the first write after a sync to the end of the next one.
    cycles: Latencies,
}

pub(super) fn run(job: &DeviceJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let dir = context.directory(job.place)?;
    let disk = job.device.open(None)?;
    let barrier = Barrier::new(job.threads);
    let threads = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..job.threads)
            .map(|number| {
                let (disk, dir, barrier) = (&*disk, dir.path(), &barrier);
                scope.spawn(move || thread(job, context, disk, dir, number, barrier))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.collect::<Vec<_>>()
    });
    let mut written = Vec::new();
    for thread in threads {
        let thread = thread.map_err(|_| RunError::Failed("a writer panicked".to_owned()))?;
        written.push(thread.map_err(|error| refusal(job, &error))?);
    }
    if context.stop.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    let mut sample = RunSample::default();
    add_figures(job, &written, &mut sample);
    let outcome = written
        .iter()
        .enumerate()
        .try_for_each(|(number, written)| read_back(job, &*disk, dir.path(), number, written));
    sample
        .checks
        .push(Check::new("what was written is read back", outcome));
    Ok(sample)
}

/// Returns the error of a file system: some in memory cannot be written directly, which is no
/// failure.
fn refusal(job: &DeviceJob, error: &std::io::Error) -> RunError {
    let cannot = [
        std::io::ErrorKind::InvalidInput,
        std::io::ErrorKind::Unsupported,
    ];
    if job.device == DeviceAccess::Direct && cannot.contains(&error.kind()) {
        return RunError::Skipped(format!("no direct I/O in this place: {error}"));
    }
    RunError::failed("writing")(error)
}

fn add_figures(job: &DeviceJob, written: &[Written], sample: &mut RunSample) {
    let rate = |one: &Written| {
        one.pieces as f64 * job.piece as f64 / one.took.as_secs_f64().max(1e-9) / 1e6
    };
    sample.values.set("rate", written.iter().map(rate).sum());
    let (mut syncs, mut cycles) = (Latencies::default(), Latencies::default());
    for one in written {
        syncs.merge(&one.syncs);
        cycles.merge(&one.cycles);
    }
    sample.values.set("sync-time", syncs.mean_ms());
    cycles.add_figures(&mut sample.values);
}

fn name(number: usize) -> String {
    format!("file{number}")
}

fn thread(
    job: &DeviceJob,
    context: &RunContext<'_>,
    disk: &dyn Disk,
    dir: &Path,
    number: usize,
    barrier: &Barrier,
) -> std::io::Result<Written> {
    let pieces = (context.scale.file_size as usize / job.piece).max(1) as u64;
    let prepare = || -> std::io::Result<Box<dyn DiskFile>> {
        let file = disk.create_new(&dir.join(name(number)))?;
        disk.sync_dir(dir)?;
        if job.device == DeviceAccess::Map {
            // Only that is mapped, as by the paper's `pmem_map_file`.
            file.allocate(pieces * job.piece as u64)?;
            file.sync_data()?;
        }
        if job.warm_up {
            let piece = vec![1; job.piece];
            for n in 0..pieces {
                file.write_all_at(&[IoSlice::new(&piece)], n * job.piece as u64)?;
            }
            file.sync_data()?;
        }
        Ok(file)
    };
    let file = prepare();
    // All or none get past this, so that no thread waits for one that failed.
    barrier.wait();
    write(job, context, &*file?, number, pieces)
}

fn write(
    job: &DeviceJob,
    context: &RunContext<'_>,
    file: &dyn DiskFile,
    number: usize,
    pieces: u64,
) -> std::io::Result<Written> {
    let mut buffer = vec![0; job.piece];
    let each = (job.sync_size / job.piece).max(1) as u64;
    let mut written = Written {
        pieces: 0,
        took: Duration::ZERO,
        syncs: Latencies::default(),
        cycles: Latencies::default(),
    };
    let begun = Instant::now();
    while written.pieces < pieces {
        let late = begun.elapsed() > context.scale.time || context.stop.load(Ordering::Relaxed);
        if late && written.pieces > 0 {
            break;
        }
        let cycle = Instant::now();
        for _ in 0..each.min(pieces - written.pieces) {
            stamp(number, written.pieces, &mut buffer);
            let offset = written.pieces * job.piece as u64;
            file.write_all_at(&[IoSlice::new(&buffer)], offset)?;
            written.pieces += 1;
        }
        let sync = Instant::now();
        file.sync_data()?;
        written.syncs.record(sync.elapsed());
        written.cycles.record(cycle.elapsed());
    }
    written.took = begun.elapsed();
    Ok(written)
}

/// Marks a piece: its first and last bytes, which is cheap.
fn stamp(number: usize, piece: u64, buffer: &mut [u8]) {
    let mark = Stamp {
        writer: number as u32,
        sequence: piece,
    };
    let end = buffer.len() - 16;
    mark.write(piece, &mut buffer[..16]);
    mark.write(piece, &mut buffer[end..]);
}

fn read_back(
    job: &DeviceJob,
    disk: &dyn Disk,
    dir: &Path,
    number: usize,
    written: &Written,
) -> Result<(), RunError> {
    let file = disk
        .open(&dir.join(name(number)), Access::Read)
        .map_err(RunError::of)?;
    let mut mark = [0; 16];
    for piece in 0..written.pieces {
        let right = Some(Stamp {
            writer: number as u32,
            sequence: piece,
        });
        for end in [0, job.piece - 16] {
            let offset = piece * job.piece as u64 + end as u64;
            file.read_exact_at(&mut mark, offset)
                .map_err(RunError::of)?;
            if Stamp::read(piece, &mark) != right {
                return Err(RunError::Failed(format!(
                    "file {number} holds other bytes at {offset}"
                )));
            }
        }
    }
    Ok(())
}
