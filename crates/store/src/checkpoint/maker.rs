//! The thread that makes checkpoints.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::CheckpointReport;
use crate::db::Shared;

/// Starts the thread. It ends when the board closes.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let work = move || {
        while shared.checkpoints.wait_for_work() {
            let log_bytes = shared.log_bytes();
            shared.checkpoints.begin(shared.clock.now_ms());
            let outcome = make(&shared);
            shared.checkpoints.end(outcome, log_bytes);
        }
    };
    std::thread::Builder::new()
        .name("kumiki-checkpt".to_owned())
        .spawn(work)
}

fn make(shared: &Arc<Shared>) -> Result<CheckpointReport, String> {
    let start = Instant::now();
    let snapshot = shared.engine.snapshot();
    Ok(CheckpointReport {
        epoch: snapshot.epoch(),
        elapsed: start.elapsed(),
        finished_ms: shared.clock.now_ms(),
        ..CheckpointReport::default()
    })
}
