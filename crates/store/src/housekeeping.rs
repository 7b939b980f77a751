//! The housekeeping thread: reclamation, expiry, memory of idle workers.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Janitor;

use crate::db_state::DbState;

/// Records looked at in one pass; between two passes commits see the janitor's epoch move.
const BUDGET: usize = 4096;
/// The time after which the thread looks again if it had nothing to do.
const IDLE: Duration = Duration::from_millis(100);
/// The same if there is something to do that is not yet due.
const BUSY: Duration = Duration::from_millis(5);

/// Starts the thread. It runs until it is stopped. It also asks for a checkpoint when the logs have
/// grown by `log_size`.
pub(crate) fn start(
    db: &Arc<DbState>,
    mut janitor: Janitor,
    log_size: u64,
) -> std::io::Result<JoinHandle<()>> {
    let db = Arc::clone(db);
    std::thread::Builder::new()
        .name("kumiki-janitor".to_owned())
        .spawn(move || {
            loop {
                let tidied = janitor.tidy(db.durable_epoch(), BUDGET);
                db.hold_waiters.sweep();
                db.checkpoints.request_if_grown(db.log_bytes(), log_size);
                let now = db.clock.now_ms();
                let until = tidied
                    .next_deadline_ms
                    .map(|at| Duration::from_millis(at.saturating_sub(now)));
                let idle = until.map_or(IDLE, |until| until.clamp(BUSY, IDLE));
                if db.stop.sleep(if tidied.more { BUSY } else { idle }) {
                    return;
                }
            }
        })
}
