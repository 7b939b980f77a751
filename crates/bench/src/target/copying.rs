//! The limit of reads that a client runs by itself: copies of as many bytes, without any other
//! work.
//!
//! Threads copy values from random places of memory that holds as many as a cluster's keys. It has
//! no messages, no checks of the data, no versions; only the drawing of keys, and `memcpy`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::machine;
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};
use testkit::SetOnDrop;

/// Transactions between two checks if it is over.
const TURNS: u64 = 64;

/// Copies of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyJob {
    /// Threads that copy.
    pub threads: usize,
    /// Values in memory.
    pub keys: u64,
    /// Values that a transaction copies.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
}

pub(super) fn run(job: &CopyJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let memory = fill(job);
    let (counts, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let copier = |number: u64| Copier {
        job: *job,
        memory: &memory,
        rng: Rng::with_seed(context.seed.wrapping_add(number << 32)),
        plant: context.plant && number == 1,
    };
    let (ended, seconds, cpu) = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&over);
        let start = |number| {
            let (mut copier, counts, over) = (copier(number), &counts, &over);
            scope.spawn(move || copier.all(counts, over))
        };
        let threads: Vec<_> = (1..=job.threads as u64).map(start).collect();
        std::thread::sleep(context.scale.warm_up);
        counts.store(true, Ordering::Relaxed);
        let (begun, used) = (Instant::now(), machine::own_cpu());
        std::thread::sleep(context.scale.time);
        over.store(true, Ordering::Relaxed);
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), machine::own_cpu() - used);
        let ended = threads.into_iter().map(|thread| thread.join());
        (ended.collect::<Vec<_>>(), seconds, cpu)
    });
    let mut copied = 0;
    let mut right = Ok(());
    for end in ended {
        let end = end.map_err(|_| RunError::Failed("a thread panicked".to_owned()))?;
        match end {
            Ok(transactions) => copied += transactions,
            Err(wrong) => right = Err(wrong),
        }
    }
    let mut sample = RunSample::default();
    sample.values.set("throughput", copied as f64 / seconds);
    sample.values.set("cpu", cpu * 1e6 / copied as f64);
    let check = Check::new("what is copied is what was there", right);
    sample.checks.push(check);
    Ok(sample)
}

/// Returns the values one after the other, each filled with its own byte.
fn fill(job: &CopyJob) -> Vec<u8> {
    let keys = 0..job.keys;
    keys.flat_map(|key| std::iter::repeat_n(byte_of(key), job.value))
        .collect()
}

fn byte_of(key: u64) -> u8 {
    // Neighbours differ, also where numbers begin again.
    (key % 251) as u8
}

/// A thread.
struct Copier<'m> {
    job: CopyJob,
    memory: &'m [u8],
    rng: Rng,
    /// Takes a value for its neighbour's, to see that it is found.
    plant: bool,
}

impl Copier<'_> {
    /// Copies until it is over. Returns the number of transactions since they count, at least.
    fn all(&mut self, counts: &AtomicBool, over: &AtomicBool) -> Result<u64, RunError> {
        let mut values = vec![0; self.job.width * self.job.value];
        let mut keys = vec![0; self.job.width];
        let mut transactions = 0;
        while !over.load(Ordering::Relaxed) {
            for _ in 0..TURNS {
                self.copy(&mut keys, &mut values);
            }
            if counts.load(Ordering::Relaxed) {
                transactions += TURNS;
            }
        }
        let planted = u64::from(self.plant);
        let is_right = |(&key, value): (&u64, &[u8])| {
            let byte = byte_of(key + planted);
            value.iter().all(|&copied| copied == byte)
        };
        let mut pairs = keys.iter().zip(values.chunks(self.job.value));
        match pairs.all(is_right) {
            true => Ok(transactions),
            false => Err(RunError::Failed(format!(
                "of {keys:?} other bytes were copied"
            ))),
        }
    }

    fn copy(&mut self, keys: &mut [u64], values: &mut [u8]) {
        for (key, value) in keys.iter_mut().zip(values.chunks_mut(self.job.value)) {
            *key = self.rng.u64(0..self.job.keys);
            let from = *key as usize * self.job.value;
            value.copy_from_slice(&self.memory[from..from + self.job.value]);
        }
        // Most of the copies are never read: they must be made all the same.
        black_box(values);
    }
}
