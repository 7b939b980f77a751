//! The parts that simulations of protocols share.
//!
//! A simulation runs real nodes in one thread and in virtual time. One seed decides everything, so
//! that it gives the same run again.
//!
//! | module | concept |
//! |---|---|
//! | `queue` | events in virtual time |
//! | `draw` | random decisions of a seed |
//! | `trace` | the events of a run: a hash to compare, lines to read |
//! | `coverage` | the numbers of times that runs have reached the points that are worth reaching |
//! | `run` | the result of one run |
//! | `seeds` | runs of many seeds on several threads |
//!
//! This crate does not know what is simulated.

#![forbid(unsafe_code)]

mod coverage;
pub mod draw;
mod queue;
mod run;
mod seeds;
mod trace;

pub use coverage::{Coverage, Point};
pub use queue::EventQueue;
pub use run::{Counts, Run, catch};
pub use seeds::{Report, Seeds};
pub use trace::{Trace, VirtualTime};
