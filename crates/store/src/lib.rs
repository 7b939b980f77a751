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
//! Decision that binds this crate: `docs/decisions/0010-adaptive-epochs-are-the-default.md`.

#![forbid(unsafe_code)]

mod check;
mod checkpoint;
mod db;
mod error;
mod holds;
mod housekeeping;
mod log;
mod options;
mod participant;
mod partition;
mod recovery;
mod worker;

pub use base::{Abort, Epoch, Op, Reply};
pub use check::{CheckReport, check};
pub use checkpoint::{CheckpointError, CheckpointRefused, CheckpointReport, CheckpointStatus};
pub use db::{Commit, Db, Durable, Stats};
pub use engine::{Snapshot, SnapshotEntry, Stop, Txn};
pub use error::{CloseError, OpenError};
pub use journal::DurabilityLatency;
pub use log::Log;
pub use options::{CheckpointOptions, EpochTime, Options, RecoveryProgress, RecoveryReport};
pub use worker::{Committed, Worker};
