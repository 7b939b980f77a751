//! The housekeeping thread: reclamation, expiry, memory of idle workers.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::Janitor;

use crate::db_state::DbState;

/// Records looked at in one pass; between two passes commits see the janitor's epoch move.
const BUDGET: usize = 4096;
/// The time after which the thread looks again if it had nothing to do.
const IDLE: Duration = Duration::from_millis(100);
/// The same if there is something to do that is not yet due.
const BUSY: Duration = Duration::from_millis(5);

/// The least time between two records of passed deadlines.
const NOTES: Duration = Duration::from_secs(1);

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
            let mut deadlines = PassedDeadlines::default();
            loop {
                let tidied = janitor.tidy(db.durable_epoch(), BUDGET);
                deadlines.note(&db, tidied.passed_ms);
                db.hold_waiters.sweep();
                if let Some(journal) = &db.journal {
                    journal.end_overdue_hold();
                }
                db.checkpoints.request_if_grown(db.log_bytes(), log_size);
                let now = db.clock.now_ms();
                let until = tidied
                    .next_deadline_ms
                    .map(|at| Duration::from_millis(at.saturating_sub(now)));
                let idle = until.map_or(IDLE, |until| until.clamp(BUSY, IDLE));
                if db.stop.sleep(if tidied.more { BUSY } else { idle }) {
                    return deadlines.record(&db);
                }
            }
        })
}

/// The deadlines that have passed, as far as the log must know of them: a key that a client has seen
/// expire stays expired, also if the clock is set back while the database is closed.
#[derive(Default)]
struct PassedDeadlines {
    /// The greatest of them.
    passed_ms: u64,
    recorded_ms: u64,
    recorded: Option<Instant>,
}

impl PassedDeadlines {
    /// Records the greatest deadline that has passed, unless another was recorded just now. Where
    /// clients write, the log knows of the time without that.
    fn note(&mut self, db: &DbState, passed_ms: u64) {
        self.passed_ms = passed_ms;
        if self.recorded.is_none_or(|at| at.elapsed() >= NOTES) {
            self.record(db);
        }
    }

    fn record(&mut self, db: &DbState) {
        if self.passed_ms <= self.recorded_ms {
            return;
        }
        let Some(journal) = &db.journal else { return };
        // A log that has failed refuses writes, and says why; without room it is tried again.
        if journal.note_time(self.passed_ms).is_ok() {
            self.recorded_ms = self.passed_ms;
        }
        self.recorded = Some(Instant::now());
    }
}
