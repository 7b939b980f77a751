//! What ends a statement before it is over: its client cancels it, or its time is over.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use pgwire::api::{ClientInfo, ConnectionHandle};
use pgwire::error::{PgWireError, PgWireResult};
use tokio::time::{Instant, sleep_until};

use crate::serve::errors::{CANCELLED, error};

/// The bounds of one statement, or of one part of its rows.
pub(crate) struct StatementBounds {
    cancelled: oneshot::Receiver<()>,
    deadline: Option<Instant>,
}

impl StatementBounds {
    /// Returns the bounds of what a client asks from now on. Only the last task that waits for a client's
    /// cancellation receives it: so there is one for each message, and not one within another.
    pub(crate) async fn of<C: ClientInfo>(client: &C, limit: Option<Duration>) -> StatementBounds {
        let handle = client.session_extensions().get::<Arc<ConnectionHandle>>();
        let cancelled = match handle {
            Some(handle) => handle.start_query().await,
            None => oneshot::channel().1,
        };
        StatementBounds {
            cancelled,
            deadline: limit.map(|limit| Instant::now() + limit),
        }
    }

    /// Begins the time of the next statement of the same message.
    pub(crate) fn again(&mut self, limit: Option<Duration>) {
        self.deadline = limit.map(|limit| Instant::now() + limit);
    }

    /// Returns the result of a part of the statement, unless the statement ends before.
    pub(crate) async fn within<T>(&mut self, running: impl Future<Output = T>) -> PgWireResult<T> {
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // A sender that is gone cancels nothing.
            Ok(()) = &mut self.cancelled => Err(PgWireError::QueryCanceled),
            () = late => Err(error(CANCELLED, "canceling statement due to statement timeout")),
            ended = running => Ok(ended),
        }
    }
}
