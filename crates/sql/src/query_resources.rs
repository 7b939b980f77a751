//! What a query keeps until all its parts have ended.

use std::any::Any;
use std::sync::Arc;

use datafusion::execution::TaskContext;

/// A value that a query keeps until all its parts have ended: the threads that scan for it share it, too.
pub(crate) struct QueryResources(
    #[expect(dead_code, reason = "it is kept, and dropped")] Box<dyn Any + Send + Sync>,
);

/// Returns a context that keeps a value for its query.
pub(crate) fn with_resources(
    context: TaskContext,
    held: impl Send + Sync + 'static,
) -> Arc<TaskContext> {
    let config = context.session_config().clone();
    let config = config.with_extension(Arc::new(QueryResources(Box::new(held))));
    Arc::new(context.with_session_config(config))
}
