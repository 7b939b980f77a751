//! Work that blocks, outside the runtime's threads.

use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;

/// Runs blocking work outside the runtime's threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DataFusionError> {
    SpawnedTask::spawn_blocking(work)
        .await
        .map_err(|error| DataFusionError::Execution(format!("a look-up did not end: {error}")))
}
