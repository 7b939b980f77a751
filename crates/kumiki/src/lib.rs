//! Kumiki, a distributed transactional key-value store: the embedded database.
//!
//! The same store that `kumiki serve` puts behind the Redis protocol runs within a Rust program.
//! Transactions are closures. They are serializable, and durable once the program has waited for that:
//!
//! ```
//! use kumiki::{Db, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path();
//! let db = Db::open(Options::in_dir(path))?;
//! db.transact(|txn| txn.put(b"stock:screws", b"40"))?.wait_durable()?;
//!
//! // Takes from one shelf and puts on another: both happen, or neither. The closure runs again
//! // when another transaction was in the way.
//! let left = db
//!     .transact(|txn| {
//!         let stock = txn.get(b"stock:screws")?.unwrap_or(b"0");
//!         let stock: i64 = String::from_utf8_lossy(stock).parse().unwrap_or(0);
//!         txn.put(b"stock:screws", (stock - 4).to_string().as_bytes())?;
//!         txn.put(b"bench:screws", b"4")?;
//!         Ok(stock - 4)
//!     })?
//!     .wait_durable()?;
//! assert_eq!(left, 36);
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A program that knows its operations beforehand can hand them over as a list of [`Op`]s to a
//! [`Worker`], which is faster. With the feature `server`, the function `server::serve` puts the Redis
//! protocol in front of a [`Db`] that the program has opened.

#![forbid(unsafe_code)]

pub use base::affinity::{Affinity, BadAffinity, LoggerPlace};
pub use base::limits::Limits;
pub use base::transaction::{ExpireWhen, Expiry, Kind, Observed, OpError, Transaction, When};
pub use store::{
    Abort, CheckpointError, CheckpointOptions, CheckpointRefused, CheckpointReport,
    CheckpointStatus, CloseError, Commit, Committed, Db, Durable, Epoch, EpochTime, Op, OpenError,
    Options, RecoveryProgress, RecoveryReport, Reply, Snapshot, SnapshotEntry, SnapshotValue,
    Stats, TransactionError, Txn, Worker,
};

/// Serving a database over the network.
#[cfg(feature = "server")]
pub use server;

/// The examples in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
