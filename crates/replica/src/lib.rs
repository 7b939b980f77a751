//! A replicated partition: Raft's log is the redo log of an engine without a journal (paper 5).
//!
//! The leader takes locks and executes before consensus; what many clients' transactions write
//! goes through one append, one sync and one transfer.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0042-slots-of-a-leader-have-the-leaders-lease.md`
//! - `docs/decisions/0045-a-replicas-log-is-not-the-journal.md`
//! - `docs/decisions/0046-write-sets-are-replicated.md`
//! - `docs/decisions/0047-a-group-is-of-clients.md`
//! - `docs/decisions/0048-commits-travel-with-the-next-group.md`
//! - `docs/decisions/0049-sessions-are-opened-by-entries.md`
//! - `docs/decisions/0050-a-failed-snapshot-stops-nothing.md`
//! - `docs/decisions/0051-deadlines-are-kept-in-cells.md`
//! - `docs/decisions/0052-the-raft-library-has-no-io.md`
//! - `docs/decisions/0053-reads-are-executed-first-and-confirmed-afterwards.md`
//! - `docs/decisions/0054-an-entry-seizes-holds.md`
//! - `docs/decisions/0055-two-times-of-expiry.md`
//! - `docs/decisions/0059-a-leader-drains-before-it-hands-over.md`
//! - `docs/decisions/0060-members-are-told-apart-by-incarnation.md`
//! - `docs/decisions/0061-members-links-have-an-address-of-their-own.md`
//! - `docs/decisions/0070-time-goes-on-evenly.md`
//! - `docs/decisions/0071-states-are-compared-at-an-entry.md`
//! - `docs/decisions/0073-event-loops-share-one-network.md`
//! - `docs/decisions/0075-a-group-waits-for-what-is-under-way.md`
//! - `docs/decisions/0083-entries-carry-the-checksum-of-their-data.md`
//! - `docs/decisions/0094-holds-pass-from-entry-to-entry.md`

#![forbid(unsafe_code)]

pub mod fuzz;
pub mod log;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod snapshot;
mod wire;

mod check;
mod deadlines;
mod driver;
mod entry_validation;
mod failure;
mod incoming_links;
mod member;
mod membership;
mod messages;
mod options;
mod partition;
mod sessions;
mod shared;
mod status;
mod tickets;
mod time;
mod worker;

pub use base::participant::Sequenced;
pub use check::{CheckReport, MemberData, check};
pub use failure::MemberFailure;
pub use log::LogOptions;
pub use membership::{ChangeError, MembershipChange, NOT_WAITING};
pub use options::{GROUP, Grouping, MemberOptions};
pub use partition::{OpenError, Options, PendingChange, ReplicatedPartition};
pub use status::{MemberStatus, Role, Status};
pub use time::{Now, SystemTime, Time};
pub use worker::Worker;
