//! Recorded histories of transactions, and the checkers that judge them.
//!
//! A test runs transactions against a store and records what every one of them saw and wrote; a
//! checker then decides if some serial execution explains it. The store is a black box: the same
//! workload and the same checkers serve an embedded database, a server and a cluster.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | a history in memory |
//! | [`json`] | a history as JSON lines: the documented format, for other checkers too |
//! | [`recorder`] | records from many threads |
//! | [`appends`] | judges transactions that append to lists |
//! | [`check`] | serializable, read atomic, both also strictly; [`verdict`] says what they found |
//!
//! ```
//! use kumiki_history::{check, Outcome, Recorder};
//!
//! let recorder = Recorder::new();
//! let mut log = recorder.process();
//! let mut entry = log.begin();
//! entry.read("x", None, None);
//! entry.write("x", 1, None);
//! entry.end(Outcome::Committed);
//! drop(log);
//! let history = recorder.finish();
//! assert!(check::strictly_serializable(&history).is_accepted());
//! ```

#![forbid(unsafe_code)]

pub mod appends;
pub mod check;
pub mod json;
pub mod model;
pub mod recorder;
pub mod verdict;

pub use model::{History, HistoryOp, Key, Outcome, RecordedTransaction, Value};
pub use recorder::Recorder;
pub use verdict::{Anomaly, Verdict, Violation};
