//! Waiting before a transaction is tried again after a conflict.

use std::time::Duration;

use base::Abort;

use crate::thread_context::ThreadContext;
use crate::worker_slot::WorkerSlot;

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

/// Waits, outside of any epoch, before attempt `attempt` + 1, a random time that grows with the
/// attempts.
///
/// # Errors
/// Returns [`Abort::Conflict`] after too many attempts.
pub(crate) fn back_off(thread: &mut ThreadContext, attempt: u32) -> Result<(), Abort> {
    WorkerSlot::count(&thread.counters().conflicts, 1);
    match attempt {
        0..SPINNING => {
            for _ in 0..thread.random.u32(0..32 << attempt) {
                std::hint::spin_loop();
            }
        }
        SPINNING..16 => std::thread::yield_now(),
        ATTEMPTS.. => return Err(Abort::Conflict { attempts: attempt }),
        _ => {
            let ceiling = (1u64 << (attempt - 16).min(10)).min(LONGEST_PAUSE_US);
            std::thread::sleep(Duration::from_micros(thread.random.u64(0..=ceiling)));
        }
    }
    thread.engine.epochs.refresh();
    Ok(())
}
