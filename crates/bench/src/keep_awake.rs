//! Keeps processors from idling while a device is measured.
//!
//! On virtual machines an idle processor may notice that a sync has ended only at its next timer
//! tick: the same sync takes 4 ms on an idle machine and 0.1 ms on one that has anything to run. So
//! one thread of the lowest priority spins beside the threads that wait for syncs, the same for all
//! measurements that are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::nice;
use rustix::time::{ClockId, clock_gettime};

/// The lowest priority.
const LOWEST: i32 = 19;
/// Turns between two looks at the clock.
const TURNS: u32 = 10_000;

/// Spins until it is dropped.
#[derive(Debug)]
pub struct KeepAwake {
    ended: Arc<AtomicBool>,
    used: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Default for KeepAwake {
    fn default() -> KeepAwake {
        let (ended, used) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (theirs, spent) = (Arc::clone(&ended), Arc::clone(&used));
        KeepAwake {
            ended,
            used,
            thread: Some(thread::spawn(move || spin(&theirs, &spent))),
        }
    }
}

fn spin(ended: &AtomicBool, used: &AtomicU64) {
    // Priorities are those of threads. A thread whose priority cannot change spins all the same.
    let _ = nice(LOWEST);
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..TURNS {
            std::hint::spin_loop();
        }
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        used.store(nanos, Ordering::Relaxed);
    }
}

impl KeepAwake {
    /// Returns the processor time that it has used, in seconds: it is this process's, and must not
    /// count.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        self.used.load(Ordering::Relaxed) as f64 / 1e9
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that spins does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_spins_and_says_how_much() {
        let awake = KeepAwake::default();
        let begun = Instant::now();
        while awake.cpu() == 0.0 && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
        }
        let (used, at) = (awake.cpu(), begun.elapsed().as_secs_f64());
        assert!(used > 0.0 && used < at + 0.1, "{used} in {at}");
    }
}
