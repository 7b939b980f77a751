//! Reads by a new thread for each (paper 4, section 4.4.2, "dynamic").
//!
//! The paper's way for comparison: making a thread takes longer than most reads.

use std::sync::Arc;
use std::thread::Builder;

use parking_lot::{Condvar, Mutex};

use super::outcome_queue::OutcomeQueue;
use super::read_job::{ReadJob, ReadOutcome};
use super::threaded_reads::ReadThreads;

/// A thread's stack; it makes no deep calls.
const STACK: usize = 64 * 1024;

/// See the [module](self).
pub(super) struct ThreadPerRead {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Arc<OutcomeQueue>,
    /// The number of threads that may still read.
    running: Mutex<usize>,
    ended: Condvar,
}

impl ThreadPerRead {
    /// Returns a threads without threads.
    pub(super) fn new(queue: Arc<OutcomeQueue>) -> ThreadPerRead {
        ThreadPerRead {
            shared: Arc::new(Shared {
                queue,
                running: Mutex::new(0),
                ended: Condvar::new(),
            }),
        }
    }
}

impl ReadThreads for ThreadPerRead {
    fn publish(&mut self, jobs: &mut Vec<ReadJob>, outcomes: &mut Vec<ReadOutcome>) {
        for job in jobs.drain(..) {
            let key = job.key;
            *self.shared.running.lock() += 1;
            let shared = Arc::clone(&self.shared);
            let thread = Builder::new().name("read".to_owned()).stack_size(STACK);
            if let Err(error) = thread.spawn(move || shared.work(&job)) {
                // Mostly the limit on threads.
                let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
                let result = -(code as isize);
                outcomes.push(ReadOutcome { key, result });
                self.shared.end();
            }
        }
    }

    fn stop(&mut self) {
        let mut running = self.shared.running.lock();
        while *running > 0 {
            self.shared.ended.wait(&mut running);
        }
    }
}

impl Shared {
    fn work(&self, job: &ReadJob) {
        self.queue.deliver(&mut vec![job.run()]);
        self.end();
    }

    fn end(&self) {
        let mut running = self.running.lock();
        *running -= 1;
        if *running == 0 {
            self.ended.notify_one();
        }
    }
}
