//! The in-memory engine: an ordered index of records, Silo's optimistic concurrency control,
//! epochs, snapshots and reclamation (paper 2, section 2; Silo's own protocol).
//!
//! The layers, bottom up:
//!
//! | module | concept |
//! |---|---|
//! | `word` | the record word: current version, lock, marks |
//! | `origin`, `record` | records and versions in memory |
//! | [`epoch`] | the global epoch, the workers' places in it, time stamps |
//! | `garbage` | memory that waits until no worker can see it |
//! | `holds`, `wanted` | holds under two-phase locking, and the records that other transactions wait to write |
//! | `lookaside`, `index` | from key to record |
//! | `floors` | versions of keys that have no record |
//! | [`engine`] | the state that workers share |
//! | [`worker`], `access`, `commit`, `retry` | a worker and its transaction |
//! | [`one_shot`], [`interactive`] | the two ways to run one |
//! | `guard` | fencing tokens, and the time as an answer |
//! | `blame` | the holder in the way of a transaction that failed |
//! | [`system`], [`prepare`], [`decide`] | the parts of transactions over several partitions |
//! | [`read_atomic`] | keys of which several versions are kept, and transactions that hold nothing |
//! | [`stage`], [`apply`], [`load`], `driven` | engines of replicas: the changes that go to their log, and those that come from it |
//! | [`snapshot`] | read-only views at an epoch boundary |
//! | `hash` | a hash by which the contents of two engines are compared |
//! | [`janitor`] | reclamation and expiry |
//! | [`restore`] | filling an engine from a log |
//! | [`log`] | the redo log of commits |
//!
//! The engine knows no files, no network and no partitions. There are no globals: any number of
//! engines run side by side.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0001-record-word-is-a-pointer.md`
//! - `docs/decisions/0002-phantoms-are-found-by-scanning-again.md`
//! - `docs/decisions/0003-hash-table-in-front-of-the-index.md`
//! - `docs/decisions/0004-flush-is-one-write.md`
//! - `docs/decisions/0005-absent-keys-have-versions.md`
//! - `docs/decisions/0007-dbsize-adds-counters.md`
//! - `docs/decisions/0008-expiry-leaves-no-trace-in-the-log.md`
//! - `docs/decisions/0011-time-is-as-coarse-as-fixed-epochs.md`
//! - `docs/decisions/0013-values-are-logged-not-operations.md`
//! - `docs/decisions/0014-holds-are-marks-in-the-record-word.md`
//! - `docs/decisions/0015-a-partitions-own-state-is-records.md`
//! - `docs/decisions/0019-wait-die.md`
//! - `docs/decisions/0021-versions-carry-their-origin.md`
//! - `docs/decisions/0022-read-atomic-writes-hold-nothing.md`
//! - `docs/decisions/0023-a-prepared-version-is-bytes-in-a-system-record.md`
//! - `docs/decisions/0024-replaced-versions-are-kept-by-time.md`
//! - `docs/decisions/0025-ids-order-the-versions-of-a-read-atomic-key.md`
//! - `docs/decisions/0026-every-writer-of-a-read-atomic-key-draws-an-id.md`
//! - `docs/decisions/0029-a-deletion-outlives-older-prepared-writes.md`
//! - `docs/decisions/0031-retained-versions-age-by-the-janitors-time.md`
//! - `docs/decisions/0037-publications-are-admitted-by-a-generation.md`
//! - `docs/decisions/0054-an-entry-seizes-holds.md`
//! - `docs/decisions/0055-two-times-of-expiry.md`
//! - `docs/decisions/0070-time-goes-on-evenly.md`
//! - `docs/decisions/0072-parts-of-long-values-are-logged.md`

#![deny(unsafe_code)]

mod access;
pub mod apply;
mod commit;
mod conflict;
mod deadlines;
mod decide;
mod driven;
mod edits;
mod effects;
pub mod engine;
pub mod epoch;
mod fencing;
mod floors;
pub mod fuzz;
mod garbage;
mod holds;
mod index;
pub mod interactive;
pub mod janitor;
mod live_snapshots;
pub mod load;
pub mod log;
mod lookaside;
mod memory_limit;
mod one_shot;
mod origin;
mod pending_attempts;
mod prepare;
mod prepared;
mod publish;
mod read_atomic;
mod read_atomic_keys;
mod read_versions;
mod record;
pub mod restore;
mod restore_error;
mod restore_prepared;
mod retry;
pub mod snapshot;
pub mod stage;
mod state_hash;
mod stop;
mod strings;
mod sync;
pub mod system_record;
mod thread_context;
mod transaction;
mod validation;
mod version_ids;
mod word;
pub mod worker;
mod worker_slot;
mod writer_marks;

pub use apply::Applier;
pub use engine::{Engine, Options, Stats};
pub use interactive::Txn;
pub use janitor::{Janitor, JanitorReport};
pub use load::Loader;
pub use log::{Changes, LogFailure, NoLog, RedoLog};
pub use restore::Restorer;
pub use restore_error::RestoreError;
pub use snapshot::{ABSENT_MS, Snapshot, SnapshotEntry};
pub use stage::Staged;
pub use stop::Stop;
pub use system_record::RESERVED;
pub use worker::{Committed, Worker};
