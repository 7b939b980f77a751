//! A local partition: an engine whose commits go to a journal. It is also the embedded database.
//!
//! ```
//! use kumiki_store::{Db, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let db = Db::open(Options::in_dir(path))?;
//!
//! // A transaction is a closure. It runs again by itself when another one was in the way.
//! let moved = db.transact(|txn| {
//!     let n = |value: Option<&[u8]>| {
//!         value.and_then(|v| std::str::from_utf8(v).ok()?.parse().ok()).unwrap_or(0u64)
//!     };
//!     let (a, b) = (n(txn.get(b"a")?), n(txn.get(b"b")?));
//!     txn.put(b"a", (a + 1).to_string().as_bytes())?;
//!     txn.put(b"b", (b + 2).to_string().as_bytes())?;
//!     Ok(a + b)
//! })?;
//!
//! // It is serializable from the first moment, and survives a crash from here on.
//! let before = moved.wait_durable()?;
//! assert_eq!(before, 0);
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The layers, bottom up; no two modules use each other:
//!
//! | module | concept |
//! |---|---|
//! | `error`, `log` | errors of opening and closing; the journal as the engine's redo log |
//! | `options`, `data_directory` | options of a database, and the progress of its recovery; its directory |
//! | `checkpoint_report`, `checkpoint_scheduler` | outcomes of checkpoints; who asks for one, and which one is being made |
//! | `recovery`, `check` | from a directory to an engine, or to a report alone |
//! | `hold_waiters`, `durability_waiters`, `stop_signal` | callers that wait for holds or for an epoch; threads that sleep until they are stopped |
//! | `db_state` | the state that handles, workers and threads share |
//! | `housekeeping`, `checkpoint` | the threads of a database |
//! | `backup` | its files for backups |
//! | `worker`, `participant` | a thread's own access, also for transactions over several partitions |
//! | `worker_pool` | workers of the embedded interface, lent for one transaction |
//! | `db`, `partition` | the database: composes all of these |
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0010-adaptive-epochs-are-the-default.md`
//! - `docs/decisions/0096-very-many-writes-hold-their-keys-in-slices.md`
//! - `docs/decisions/0101-a-backup-is-a-crash-of-all-nodes-at-once.md`

#![forbid(unsafe_code)]

mod backup;
mod check;
mod checkpoint;
mod checkpoint_report;
mod checkpoint_scheduler;
mod data_directory;
mod db;
mod db_state;
mod durability_waiters;
mod error;
mod hold_waiters;
mod housekeeping;
mod log;
mod options;
mod participant;
mod partition;
mod recovery;
mod stop_signal;
mod worker;
mod worker_pool;

pub use backup::{BackupError, BackupSource, HeldMoment, epoch_at, rewind};
pub use base::{Abort, Epoch, Op, Reply};
pub use check::{CheckReport, check};
pub use checkpoint_report::{
    CheckpointError, CheckpointRefused, CheckpointReport, CheckpointStatus,
};
pub use db::{Commit, Db, Durable, Stats};
pub use engine::{
    Evicted, KeyStats, SlicedTransaction, Snapshot, SnapshotEntry, SnapshotValue, TransactionError,
    Txn, bytes_of_key,
};
pub use error::{CloseError, OpenError};
pub use journal::{
    CheckpointFiles, DataFile, DataFiles, DataSegment, DurabilityLatency, RecoverError, RewindError,
};
pub use options::{CheckpointOptions, EpochTime, Options, RecoveryProgress};
pub use recovery::RecoveryReport;
pub use worker::{Committed, Worker};
