//! The in-memory engine: an ordered index of records, Silo's optimistic concurrency control,
//! epochs, snapshots and reclamation (paper 2, section 2; Silo's own protocol).
//!
//! The layers, bottom up. A module uses modules of its own layer and of those below, and no two modules
//! use each other:
//!
//! | layer | modules | concept |
//! |---|---|---|
//! | memory | `access_stamp` | what is known of the use of a key |
//! | | `sync`, `word` | the record word: current version, lock, marks |
//! | | `origin`, `version_tree`, `record` | records and versions in memory, and their large collections |
//! | | `record_tree` | records in the order of their keys |
//! | formats | [`system_record`], `database_table` | the data that a partition stores about itself |
//! | | `transaction_error`, [`log`] | the redo log of commits, and the reasons why a transaction cannot go on |
//! | time and reclamation | [`epoch`] | the global epoch, the threads' slots in it, time stamps |
//! | | `lookaside`, `garbage` | the hash table in front of the tree; memory that waits until no thread can see it |
//! | keys | `writer_marks`, `staged_chain`, `holds` | holds under two-phase locking, staged versions, and the records that other transactions wait to write |
//! | | `index`, `floors` | from key to record; versions of keys that have no record |
//! | shared state | `listening` | the listener for changes of keys |
//! | | `prepared`, `live_snapshots`, `read_atomic_keys`, `worker_slot` | what prepared transactions, snapshots, read-atomic keys and threads leave with the engine |
//! | | `expiring_keys`, `eviction_state` | keys with deadlines, for the janitor and for samples; the settings of eviction |
//! | | [`engine`], `databases`, `stats`, `driven`, `pending_attempts` | the state that threads share, and what can be asked of it |
//! | thread | `memory_limit`, `thread_context`, `retry` | a thread's registration: its slot, TIDs, garbage; waiting before another attempt |
//! | publication | `effects`, `publish` | from changes to versions; making versions current |
//! | transaction | `transaction` | a transaction as a value: its reads, absences, scans and writes |
//! | | `announce` | the events of what it has changed, for the listener |
//! | | `version_ids`, `database_access`, `access` | the databases of its keys, and flushes; reading, writing and scanning keys within it |
//! | | `fencing`, `libraries`, `deadlines`, `strings`, `calls`, `one_shot`, [`interactive`] | operations in terms of these; the ways to run them |
//! | commit | `validation`, `conflict`, `commit` | Silo's commit; the holder in the way of a transaction that failed |
//! | several partitions | `read_versions`, `read_atomic` | keys of which several versions are kept, and transactions that hold nothing |
//! | | `prepare`, `decide` | transactions that hold what they have read and will write until they are decided |
//! | | [`sliced`] | transactions of very many operations, which hold what they touch and run in slices |
//! | | [`stage`] | the same for the leader of a replicated partition, before consensus |
//! | workers | `eviction` | the choice of keys to evict |
//! | | [`worker`] | runs transactions of one thread: begin, execute, commit, try again |
//! | | [`snapshot`], `state_hash` | read-only views at an epoch boundary, and a hash of them |
//! | logs | `edits`, [`restore`], `restore_prepared`, `restore_error` | filling an engine from a log |
//! | | [`apply`], [`load`] | engines of replicas: changes that come from their log, and snapshots in place of it |
//! | cleaning | [`janitor`] | reclamation and expiry |
//! | tools | [`fuzz`] | an entry point for fuzzing |
//!
//! A one-shot transaction goes this way: `worker` begins it (`transaction`), lets `one_shot` execute the
//! operations, which read and write by `access`, and calls `commit`, which validates (`validation`),
//! makes the versions current (`publish`) and hands the changes to the `log`.
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
//! - `docs/decisions/0085-transactions-in-steps-run-outside-of-epochs.md`
//! - `docs/decisions/0087-databases-are-prefixes-of-keys.md`
//! - `docs/decisions/0088-events-of-keys-are-announced-by-the-commit.md`
//! - `docs/decisions/0091-commands-on-collections-run-where-the-key-is.md`
//! - `docs/decisions/0094-holds-pass-from-entry-to-entry.md`
//! - `docs/decisions/0096-very-many-writes-hold-their-keys-in-slices.md`
//! - `docs/decisions/0098-eviction-deletes-keys-in-transactions.md`
//! - `docs/decisions/0100-the-ordered-index-is-a-tree-of-our-own.md`

#![deny(unsafe_code)]

mod access;
mod access_stamp;
mod announce;
pub mod apply;
mod calls;
mod commit;
mod conflict;
mod database_access;
mod database_table;
mod databases;
mod deadlines;
mod decide;
mod driven;
mod edits;
mod effects;
pub mod engine;
pub mod epoch;
mod eviction;
mod eviction_state;
mod expiring_hashes;
mod expiring_keys;
mod fencing;
mod field_deadlines;
mod floors;
pub mod fuzz;
mod garbage;
mod holds;
mod index;
pub mod interactive;
pub mod janitor;
mod libraries;
mod listening;
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
mod record_tree;
pub mod restore;
mod restore_error;
mod restore_prepared;
mod retry;
pub mod sliced;
pub mod snapshot;
pub mod stage;
mod staged_chain;
mod state_hash;
mod stats;
mod strings;
mod sync;
pub mod system_record;
mod thread_context;
mod transaction;
mod transaction_error;
mod update_hold;
mod validation;
mod version_ids;
mod version_tree;
mod word;
pub mod worker;
mod worker_slot;
mod writer_marks;

pub use apply::Applier;
pub use engine::{Engine, Options};
pub use interactive::Txn;
pub use janitor::{Janitor, JanitorReport};
pub use load::Loader;
pub use log::{Changes, EncodedChanges, LogFailure, NoLog, RedoLog};
pub use restore::Restorer;
pub use restore_error::RestoreError;
pub use sliced::SlicedTransaction;
pub use snapshot::{ABSENT_MS, Snapshot, SnapshotEntry, SnapshotValue};
pub use stage::Staged;
pub use stats::{EngineStats, KeyStats, bytes_of_key};
pub use transaction_error::TransactionError;
pub use worker::{Committed, Evicted, EvictionRun, Worker};
