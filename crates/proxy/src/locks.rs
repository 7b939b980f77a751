//! Locks that the proxy serves itself (paper 3): commands come in on the threads that have clients, and
//! never travel to the nodes.
//!
//! | module | concept |
//! |---|---|
//! | `lock_service` | the requests and cancellations of threads with clients |
//! | `figures` | counts of the events, for `INFO locks` and monitoring |
//! | `memory_table` | a table in memory: requests are executed at once, on the thread that asks |
//! | `partition_table` | a table that durable storage keeps: transactions, and threads that execute them |
//! | `ledger_file` | the durable part of a table in memory |
//! | `pending_requests` | the client's request that each of a thread's lock replies answers |
//! | `mailboxes` | answers that come later, on their way to the threads that have the clients |
//! | `clock` | the clocks that measure leases |
//!
//! Invariants:
//! 1. A request is answered once: at once, or by one lock reply to the thread that asked.
//! 2. A lock reply of a request that was cancelled has no receiver, and is dropped.
//! 3. No thread waits for a disk or for a node while it holds a lock that threads with clients need.

pub(crate) mod clock;
mod figures;
mod ledger_file;
pub(crate) mod lock_service;
pub(crate) mod mailboxes;
mod memory_table;
mod partition_table;
pub(crate) mod pending_requests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::locks::{Answer, LockError};
use base::partition::OwnedReply;
use base::transaction::{Abort, Transaction};
use disk::Disk;
pub use figures::{CLASSES, LockFigures, SharedFigures, StorageTimes};

/// The outcome of a request.
pub(crate) type LockOutcome = Result<Answer, LockError>;

/// Executes transactions for a table of locks. Several threads call it at once.
pub trait Execute: Send + Sync + 'static {
    /// Executes a transaction atomically, and returns when its outcome is durable.
    ///
    /// # Errors
    /// The [`Abort`] gives the reason why the transaction had no effect; after [`Abort::Unknown`],
    /// [`Abort::Forgotten`] and [`Abort::ReadOnly`] it may have taken effect.
    fn execute(&self, transaction: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort>;
}

/// The storage of the table.
#[derive(Clone)]
pub enum LockStorage {
    /// The memory of this process. After a restart nothing is granted until the longest lease from
    /// before has ended.
    Memory {
        /// The file layer.
        disk: Arc<dyn Disk>,
        /// The directory of the ledger. No other process may use it.
        directory: PathBuf,
    },
    /// A partition, of this process or of a cluster.
    Partition {
        /// The kind of partition, for `INFO`: one word.
        name: &'static str,
        /// Executes transactions there.
        executor: Arc<dyn Execute>,
        /// The prefix of the table's keys there. It is the same for all proxies of a table.
        prefix: Vec<u8>,
    },
}

/// The settings of the locks.
#[derive(Clone)]
pub struct Options {
    /// The storage of the table.
    pub keeping: LockStorage,
    /// The longest lease that a client may request.
    pub longest_lease: Duration,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keeping = match &self.keeping {
            LockStorage::Memory { .. } => "memory",
            LockStorage::Partition { name, .. } => name,
        };
        f.debug_struct("Options")
            .field("keeping", &keeping)
            .field("longest_lease", &self.longest_lease)
            .finish_non_exhaustive()
    }
}

/// The reason why locks cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LockStartError {
    /// The directory is in use, or cannot be locked.
    #[error(transparent)]
    Directory(#[from] disk::LockError),
    /// The directory, or the ledger in it, cannot be read or created.
    #[error(
        "cannot use the directory {} for locks: {error}; make it one that this process may write to, \
         or choose another",
        directory.display()
    )]
    File {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The ledger cannot tell which tokens were granted.
    #[error(
        "the ledger of locks {} is damaged, or of another version: which tokens were granted is not \
         known. Restore it, or move it away if tokens are not compared any more and the longest \
         lease from before has ended",
        file.display()
    )]
    Ledger {
        /// The file.
        file: PathBuf,
    },
    /// A thread cannot start.
    #[error("cannot start a thread of the locks: {error}")]
    Thread {
        /// The reason.
        error: std::io::Error,
    },
}
