//! Locks that the proxy decides about (paper 3): commands come in on the threads that
//! have clients, and never travel to the nodes.
//!
//! | module | concept |
//! |---|---|
//! | `context` | what threads with clients ask: requests, cancellations |
//! | `figures` | what has happened, as `INFO locks` and monitoring tell it |
//! | `memory` | a table in memory: carried out at once, on the thread that asks |
//! | `kept` | a table that something durable keeps: transactions, and threads that execute them |
//! | `ledger_file` | what of a table in memory is durable |
//! | `lock_replies` | which client's request each of a thread's lock replies answers |
//! | `mail` | answers that come later, on their way to the threads that have the clients |
//! | `clock` | the clocks that leases are measured by |
//!
//! Invariants:
//! 1. A request is answered once: at once, or by one lock reply to the thread that asked.
//! 2. A lock reply of a request that was cancelled finds nobody, and is dropped.
//! 3. No thread waits for a disk or for a node while it holds what threads with clients need.

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
pub use figures::{CLASSES, Figures, KeptTimes, SharedFigures};

/// What became of a request.
pub(crate) type Outcome = Result<Answer, LockError>;

/// Executes transactions for a table of locks. Several threads call it at once.
pub trait Execute: Send + Sync + 'static {
    /// Executes a transaction atomically, and returns when its outcome is durable.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing has happened; after [`Abort::Unknown`], [`Abort::Forgotten`]
    /// and [`Abort::ReadOnly`] it may have taken effect.
    fn execute(&self, transaction: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort>;
}

/// What keeps the table.
#[derive(Clone)]
pub enum Keeping {
    /// The memory of this process. After a restart nothing is granted until the longest lease from
    /// before has ended.
    Memory {
        /// The file layer.
        disk: Arc<dyn Disk>,
        /// Where the ledger lies. Nobody else may use the directory.
        directory: PathBuf,
    },
    /// A partition, of this process or of a cluster.
    Partition {
        /// What it is, for `INFO`: one word.
        name: &'static str,
        /// What executes transactions there.
        executor: Arc<dyn Execute>,
        /// With what the table's keys begin there. The same for all proxies of a table.
        prefix: Vec<u8>,
    },
}

/// How locks are set up.
#[derive(Clone)]
pub struct Options {
    /// What keeps the table.
    pub keeping: Keeping,
    /// The longest lease that clients may ask for.
    pub longest_lease: Duration,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keeping = match &self.keeping {
            Keeping::Memory { .. } => "memory",
            Keeping::Partition { name, .. } => name,
        };
        f.debug_struct("Options")
            .field("keeping", &keeping)
            .field("longest_lease", &self.longest_lease)
            .finish_non_exhaustive()
    }
}

/// Why locks cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LockStartError {
    /// The directory is in use, or cannot be locked.
    #[error(transparent)]
    Directory(#[from] disk::LockError),
    /// The directory, or the ledger in it, cannot be read or made.
    #[error(
        "cannot use the directory {} for locks: {error}; make it one that this process may write to, \
         or choose another",
        directory.display()
    )]
    File {
        /// The directory.
        directory: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// Nobody knows which tokens were granted.
    #[error(
        "the ledger of locks {} is damaged, or of another version: which tokens were granted is not \
         known. Restore it, or move it away if nobody compares tokens any more and the longest \
         lease from before has ended",
        file.display()
    )]
    Ledger {
        /// The file.
        file: PathBuf,
    },
    /// A thread cannot be had.
    #[error("cannot start a thread of the locks: {error}")]
    Thread {
        /// Why not.
        error: std::io::Error,
    },
}
