//! The commands of each type.

pub mod hashes;
pub mod hyper_log_logs;
