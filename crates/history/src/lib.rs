//! Recorded histories of transactions, and the checkers that judge them.
//!
//! A test runs a [`workload`] against a store and records what every transaction saw and wrote; a
//! checker then says whether some serial execution explains it. The store is a black box: the same
//! workload and the same checkers serve an embedded database, a server and a cluster.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | a history in memory |
//! | [`json`] | a history as JSON lines: the documented format, for other checkers too |
//! | [`recorder`] | records from many threads |
//! | [`check`] | serializable, read atomic, both also strictly; [`verdict`] says what they found |
//! | [`workload`] | transactions over few hot keys, and transfers that keep a sum |
//!
//! ```
//! use kumiki_history::workload::{mixed, Serial};
//! use kumiki_history::{check, Recorder};
//!
//! let store = Serial::new();
//! let recorder = Recorder::new();
//! mixed::run(&mixed::Options::default(), &recorder, |_| store.clone());
//! let history = recorder.finish();
//! assert!(check::strictly_serializable(&history).is_accepted());
//! ```

#![forbid(unsafe_code)]

pub mod check;
pub mod json;
pub mod model;
pub mod recorder;
pub mod verdict;
pub mod workload;

pub use model::{History, Key, Op, Outcome, Transaction, Value};
pub use recorder::Recorder;
pub use verdict::{Anomaly, Verdict, Violation};
