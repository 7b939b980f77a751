//! The journal: a parallel redo log whose unit of durability is the epoch (paper 2: Silo logging
//! with bounded latency).
//!
//! Workers append the writes of their transactions to buffers ([`LogWriter`]); loggers write the
//! buffers to their logs, sync, and so close epochs; an epoch that is closed in all logs is durable
//! ([`Journal::durable`]). After a crash [`Journal::recover`] returns exactly the epochs that are
//! complete in all logs.
//!
//! | module | concept |
//! |---|---|
//! | `format` | the bytes of segments and blocks, as tables |
//! | `entry` | transactions within a block |
//! | `buffer` | memory in which a worker's transactions become blocks |
//! | `handover` | how buffers pass from workers to their logger and back |
//! | `seal` | headers: what turns buffers into blocks of a log |
//! | `segment` | the file that a log is written to |
//! | `spare` | the next one, written once before it is used |
//! | `logger` | the cycle of a logger: take, write, sync, close |
//! | `horizon` | the durable epoch and its waiters; failure |
//! | `notify` | what waits for its epoch to be durable, and where the time went |
//! | `pace` | how often a logger works, and how far workers may run ahead |
//! | `threads` | when loggers work and when they sleep |
//! | `journal` | the whole |
//! | `file_pins` | files that are kept for backups |
//! | `checkpoint` | the whole store in files, so that old segments can go |
//! | `data_files` | the files as backups copy them |
//! | `recovery` | reading it all back, up to an epoch if that is wanted |
//!
//! Guarantees:
//!
//! 1. Everything that was appended in an epoch ≤ [`Journal::durable`] is found by every later
//!    recovery, each transaction wholly or not at all.
//! 2. Data that a recovery did not find is never found again.
//! 3. After the first failed write or sync nothing more becomes durable, and every caller that
//!    waits or appends gets the reason.
//! 4. An idle journal costs no processor time.
//!
//! The planted bug [`EarlyReply`](base::planted::Bug::EarlyReply) breaks the first of these on purpose.
//!
//! This crate does not know the index or the validation of transactions. It asks its
//! [`EpochClock`](base::epochs::EpochClock) which epochs are finished.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0008-expiry-leaves-no-trace-in-the-log.md`
//! - `docs/decisions/0009-buffers-span-epochs.md`
//! - `docs/decisions/0010-adaptive-epochs-are-the-default.md`
//! - `docs/decisions/0011-time-is-as-coarse-as-fixed-epochs.md`
//! - `docs/decisions/0012-removals-are-not-synced.md`
//! - `docs/decisions/0013-values-are-logged-not-operations.md`
//! - `docs/decisions/0015-a-partitions-own-state-is-records.md`
//! - `docs/decisions/0021-versions-carry-their-origin.md`
//! - `docs/decisions/0045-a-replicas-log-is-not-the-journal.md`
//! - `docs/decisions/0072-parts-of-long-values-are-logged.md`
//! - `docs/decisions/0101-a-backup-is-a-crash-of-all-nodes-at-once.md`

#![forbid(unsafe_code)]

mod buffer;
mod checkpoint;
mod data_files;
mod entry;
mod error;
mod file_pins;
mod format;
pub mod fuzz;
mod handover;
mod horizon;
mod journal;
mod logger;
mod newest_segment;
mod notify;
mod options;
mod pace;
mod recovery;
mod seal;
mod segment;
mod spare;
mod stats;
mod sync;
mod threads;

pub use base::Change;
pub use checkpoint::{
    CheckpointDraft, CheckpointKey, CheckpointPart, CheckpointView, PartWriter, PublishedCheckpoint,
};
pub use data_files::{CheckpointFiles, DataFile, DataFiles, DataSegment, NoFileList};
pub use entry::{ChangeReader, Entry, EntryWriter, write_changes};
pub use error::{CheckpointError, JournalFailure, RecoverError, RewindError, StartError};
pub use journal::{Journal, LogWriter};
pub use options::{Drive, EpochTime, Options};
pub use recovery::{Progress, Recovered, TornTail, UsedCheckpoint};
pub use stats::{DurabilityLatency, JournalStats};
