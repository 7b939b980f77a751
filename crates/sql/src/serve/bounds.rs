//! What ends a statement before it is over: its client cancels it, or its time is over.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use pgwire::api::{ClientInfo, ConnectionHandle};
use pgwire::error::{PgWireError, PgWireResult};
use tokio::time::{Instant, sleep_until};

use crate::serve::errors::{CANCELLED, error};

/// The bounds of one statement, or of one part of its rows.
pub(crate) struct Bounds {
    cancelled: oneshot::Receiver<()>,
    deadline: Option<Instant>,
}

impl Bounds {
    /// For what a client wants from now on. The last task that waits for its cancellation hears of
    /// it: so there is one for each message, and not one within another.
    pub(crate) async fn of<C: ClientInfo>(client: &C, limit: Option<Duration>) -> Bounds {
        let handle = client.session_extensions().get::<Arc<ConnectionHandle>>();
        let cancelled = match handle {
            Some(handle) => handle.start_query().await,
            None => oneshot::channel().1,
        };
        Bounds {
            cancelled,
            deadline: limit.map(|limit| Instant::now() + limit),
        }
    }

    /// For the next statement of the same message, which has a time of its own.
    pub(crate) fn again(&mut self, limit: Option<Duration>) {
        self.deadline = limit.map(|limit| Instant::now() + limit);
    }

    /// What comes out of a part of the statement, unless the statement ends before.
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
