//! Tries transactions again after a conflict.

use std::time::Duration;

use base::Abort;

use crate::log::RedoLog;
use crate::worker::{Running, Stop, Worker};

/// The number of attempts after which a transaction gives up; with the pauses below that is a
/// second or so.
const ATTEMPTS: u32 = 1000;
/// Attempts that wait only by spinning.
const SPINNING: u32 = 8;
const LONGEST_PAUSE_US: u64 = 1000;

/// Waits a moment for the `waits`-th time, outside of any epoch or for a thread that does not wait
/// for this one.
pub(crate) fn pause(waits: u32) {
    match waits {
        0..SPINNING => std::hint::spin_loop(),
        SPINNING..64 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

impl<L: RedoLog> Worker<L> {
    /// Makes attempts, each in an epoch of its own, until one does not end with a conflict.
    /// Notifies transactions that wait for holds if any were given back.
    pub(crate) fn until_done<T>(
        &mut self,
        mut once: impl FnMut(&mut Worker<L>, u32) -> Result<T, Stop>,
    ) -> Result<T, Abort> {
        for attempt in 0.. {
            self.log
                .ready()
                .map_err(|reason| Abort::ReadOnly { reason })?;
            self.refresh();
            self.begin();
            let running = Running(self);
            let outcome = once(running.0, attempt);
            drop(running);
            if std::mem::take(&mut self.state.gave_back) {
                self.engine.holds.notify();
            }
            match outcome {
                Ok(done) => return Ok(done),
                Err(Stop::Abort(abort)) => return Err(abort),
                Err(Stop::Conflict) => self.back_off(attempt)?,
            }
        }
        unreachable!("backing off ends the attempts")
    }

    /// Waits, outside of any epoch, before attempt `attempt` + 1, a random time that grows with
    /// the attempts.
    pub(crate) fn back_off(&mut self, attempt: u32) -> Result<(), Abort> {
        crate::engine::Place::count(&self.place().conflicts, 1);
        match attempt {
            0..SPINNING => {
                for _ in 0..self.random.u32(0..32 << attempt) {
                    std::hint::spin_loop();
                }
            }
            SPINNING..16 => std::thread::yield_now(),
            ATTEMPTS.. => return Err(Abort::Conflict { attempts: attempt }),
            _ => {
                let ceiling = (1u64 << (attempt - 16).min(10)).min(LONGEST_PAUSE_US);
                std::thread::sleep(Duration::from_micros(self.random.u64(0..=ceiling)));
            }
        }
        self.refresh();
        Ok(())
    }
}
