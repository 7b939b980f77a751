//! A replicated partition: Raft's log is the redo log of an engine without a journal (paper 5).
//!
//! The leader takes locks and executes before consensus; what many clients' transactions write
//! goes through one append, one sync and one transfer.

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
mod member;
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
pub use check::{CheckReport, Held, check};
pub use log::LogOptions;
pub use member::{Change, Failure};
pub use options::{GROUP, Grouping, MemberOptions};
pub use partition::{OpenError, Options, Partition, PendingChange};
pub use status::{MemberStatus, Role, Status};
pub use time::{Now, SystemTime, Time};
pub use worker::Worker;
