//! Several partitions as one store.
//!
//! | module | concept |
//! |---|---|
//! | [`slot`], [`topology`] | the partition of a key, and the nodes of a partition |
//! | [`leaders`] | the node that leads a replicated partition, as far as is known |
//! | [`message`] | messages between nodes and clients |
//! | [`codec`] | messages as bytes |
//! | [`clock`] | timestamps |
//! | [`node`] | a node: the protocol, its invariants, events in and messages out |
//! | `coordination`, `two_phase`, `reading` | transactions of its callers, over any partitions |
//! | `finishing` | how what has committed is committed everywhere |
//! | [`ramp`] | read-atomic transactions: algorithms, readers, what is refused |
//! | `participation`, `parked`, `outcomes` | a node's work for coordinators: serving requests; those that wait for holds; the end of attempts |
//! | `bulk` | transactions that come together, each executed by itself |
//! | `resolution` | attempts that no coordinator decides |
//! | `places` | requests to partitions, at the nodes that lead them |
//! | `options`, `counters` | how a node is set up; its counters |
//! | `pending_answers` | answers that wait until their content is durable |
//! | `wires` | its links to other nodes |
//! | `simulation` | whole clusters in virtual time, with faults (a cargo feature) |
//!
//! The crate does not depend on RESP, nor on how a partition keeps its data.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0016-the-commit-point-is-that-all-parts-are-prepared.md`
//! - `docs/decisions/0017-transactions-over-partitions-are-one-shot.md`
//! - `docs/decisions/0018-reads-over-partitions-hold-nothing.md`
//! - `docs/decisions/0019-wait-die.md`
//! - `docs/decisions/0020-acknowledgements-of-commits-cause-no-sync.md`
//! - `docs/decisions/0022-read-atomic-writes-hold-nothing.md`
//! - `docs/decisions/0024-replaced-versions-are-kept-by-time.md`
//! - `docs/decisions/0027-refusals-do-not-depend-on-where-keys-lie.md`
//! - `docs/decisions/0028-the-rust-client-reads-without-a-coordinator.md`
//! - `docs/decisions/0030-readers-understand-all-algorithms.md`
//! - `docs/decisions/0032-forget-notices-wait-for-other-messages.md`
//! - `docs/decisions/0036-slot-readers-rest-on-one-word.md`
//! - `docs/decisions/0037-publications-are-admitted-by-a-generation.md`
//! - `docs/decisions/0038-keys-are-published-on-request.md`
//! - `docs/decisions/0040-a-door-says-how-peers-reach-slots.md`
//! - `docs/decisions/0044-each-runtime-coordinates-by-itself.md`
//! - `docs/decisions/0056-the-leader-is-a-hint.md`
//! - `docs/decisions/0057-a-home-is-a-partition.md`
//! - `docs/decisions/0061-members-links-have-an-address-of-their-own.md`
//! - `docs/decisions/0062-node-numbers-are-in-the-file.md`

#![forbid(unsafe_code)]

pub mod clock;
pub mod codec;
mod connections;
mod context;
mod coordinator;
mod counters;
pub mod fuzz;
pub mod leaders;
pub mod message;
pub mod node;
mod options;
mod participant;
pub mod ramp;
mod requester;
mod resolver;
mod router;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod slot;
pub mod topology;

pub use coordinator::Finished;
pub use counters::Counters;
pub use leaders::Leaders;
pub use node::{Node, WakeConditions};
pub use options::{NodeOptions, Timeouts};
pub use participant::WaitingPrepares;
pub use topology::Topology;
