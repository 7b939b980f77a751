//! Several partitions as one store.
//!
//! | module | concept |
//! |---|---|
//! | [`slot`], [`topology`] | which partition holds a key, and which node a partition |
//! | [`leaders`] | which of its nodes leads a replicated partition, as far as is known |
//! | [`message`] | what nodes and clients say to each other |
//! | [`codec`] | messages as bytes |
//! | [`clock`] | timestamps |
//! | [`node`] | a node: the protocol, its invariants, events in and messages out |
//! | `coordination`, `two_phase`, `reading` | transactions of its callers, over any partitions |
//! | `finishing` | how what has committed is committed everywhere |
//! | [`ramp`] | read-atomic transactions: algorithms, readers, what is refused |
//! | `participation`, `parked`, `fates` | what it does for coordinators: serving requests; those that wait for holds; the end of attempts |
//! | `bulk` | transactions that come together, each executed by itself |
//! | `resolution` | what becomes of attempts that nobody decides |
//! | `places` | asking partitions where they are led |
//! | `options`, `counters` | how a node is set up; what has happened there |
//! | `due` | answers that wait until what they tell is durable |
//! | `wires` | its links to other nodes |
//! | `simulation` | whole clusters in virtual time, with faults (a cargo feature) |
//!
//! It knows neither RESP nor how a partition keeps its data.

#![forbid(unsafe_code)]

mod bulk;
pub mod clock;
pub mod codec;
mod coordination;
mod counters;
mod due;
mod fates;
mod finishing;
pub mod fuzz;
pub mod leaders;
pub mod message;
pub mod node;
mod options;
mod parked;
mod participation;
mod places;
pub mod ramp;
mod reading;
mod resolution;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod slot;
pub mod topology;
mod two_phase;
mod wires;

pub use counters::Counters;
pub use leaders::Leaders;
pub use node::{Finished, Node, Wants};
pub use options::{NodeOptions, Timeouts};
pub use parked::Waiting;
pub use topology::Topology;
