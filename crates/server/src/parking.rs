//! Parked connections: a transaction that needs keys that a prepared one holds waits outside any
//! epoch until that one has ended, and no other connection waits with it.
//!
//! Invariants:
//! 1. A parked transaction has no effects and holds nothing. It executes again from its arguments.
//! 2. It tries again whenever holds have been given back since its last attempt. The count of
//!    releases is read before it executes, so that no release is missed.
//! 3. Its connection's later commands wait behind it; it is refused when its time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Abort;
use base::transaction::Holder;

use crate::connection::Connection;
use crate::executor::Executor;
use crate::refusal;
use crate::shared::{Counters, Shared};
use crate::task::{Task, Work};

/// See the module's description.
pub(crate) struct Parked {
    work: Work,
    /// The transaction that blocked it when it last executed.
    by: Holder,
    /// The count of releases before it last executed; `None`: it is not known, so that the
    /// transaction tries again at once.
    seen: Option<u64>,
    /// When its time is over, since the server's start.
    pub(crate) until: Duration,
    _counted: Counted,
}

/// Counts a waiting connection for as long as this value lives.
pub(crate) struct Counted(Arc<Shared>, fn(&Counters) -> &AtomicU64);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Counted {
        Counted::among(shared, |counters| &counters.parked)
    }

    /// Counts a connection whose command waits for the end of a pause.
    pub(crate) fn of_postponed(shared: &Arc<Shared>) -> Counted {
        Counted::among(shared, |counters| &counters.postponed)
    }

    fn among(shared: &Arc<Shared>, counter: fn(&Counters) -> &AtomicU64) -> Counted {
        counter(&shared.counters).fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(shared), counter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1(&self.0.counters).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Parked {
    /// Returns `true` if it should be tried again.
    pub(crate) fn is_due(&self, releases: u64, now: Duration) -> bool {
        self.seen != Some(releases) || now >= self.until
    }
}

impl Executor {
    /// Makes the connection wait until `by` has ended.
    #[cold]
    pub(crate) fn park(&mut self, connection: &mut Connection, work: Work, by: Holder) {
        let shared = &self.context.shared;
        connection.task = Some(Task::Parked(Parked {
            work,
            by,
            seen: None,
            until: self.context.now + shared.config.hold_timeout,
            _counted: Counted::new(shared),
        }));
    }

    /// Executes a parked transaction again, or refuses it when its time is over.
    pub(crate) fn unpark(&mut self, connection: &mut Connection, parked: Parked) {
        let Parked {
            work, by, until, ..
        } = parked;
        if self.context.now >= until {
            return refusal::abort(&Abort::Held { by }, &mut connection.writer());
        }
        let seen = self.context.shared.partition.releases();
        match work {
            Work::Call(call) => self.run(connection, call.command, call.args()),
            Work::Block(execution) => self.execute_block(connection, execution),
        }
        if let Some(Task::Parked(again)) = &mut connection.task {
            again.seen = Some(seen);
            again.until = until;
        }
    }
}
