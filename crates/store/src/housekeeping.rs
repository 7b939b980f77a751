//! The housekeeping thread: reclamation, expiry, memory of idle workers.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Janitor;
use parking_lot::{Condvar, Mutex};

use crate::db::Shared;

/// Records looked at in one pass; between two passes commits see the janitor's epoch move.
const BUDGET: usize = 4096;
/// The time after which the thread looks again if it had nothing to do.
const IDLE: Duration = Duration::from_millis(100);
/// The same if there is something to do that is not yet due.
const BUSY: Duration = Duration::from_millis(5);

/// Tells the thread to stop.
#[derive(Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps for `time`, or until the thread is stopped. Returns `true` if it was stopped.
    fn sleep(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, time);
        }
        *stopped
    }
}

/// Starts the thread. It runs until it is stopped. It also asks for a checkpoint when the logs have
/// grown by `log_size`.
pub(crate) fn start(
    shared: &Arc<Shared>,
    mut janitor: Janitor,
    log_size: u64,
) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("kumiki-janitor".to_owned())
        .spawn(move || {
            loop {
                let tidied = janitor.tidy(shared.durable_epoch(), BUDGET);
                shared.waiting.sweep();
                shared.checkpoints.notice(shared.log_bytes(), log_size);
                let now = shared.clock.now_ms();
                let until = tidied
                    .next_deadline_ms
                    .map(|at| Duration::from_millis(at.saturating_sub(now)));
                let idle = until.map_or(IDLE, |until| until.clamp(BUSY, IDLE));
                if shared.stop.sleep(if tidied.more { BUSY } else { idle }) {
                    return;
                }
            }
        })
}
