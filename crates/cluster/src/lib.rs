//! Several partitions as one store.
//!
//! The modules are layers: each uses only modules of the rows above its own, and of its own row in the
//! order in which they are named.
//!
//! | module | concept |
//! |---|---|
//! | [`slot`], [`topology`], [`leaders`] | the slot of a key, the cluster's file, the node that leads a replicated partition as far as is known |
//! | [`clock`], `counters`, `timeouts` | timestamps; a node's counters and time limits |
//! | [`ramp`] | read-atomic transactions: algorithms, readers, what is refused, published slots |
//! | [`message`], [`codec`] | messages between nodes and clients, and their bytes |
//! | `requester`, `connections` | the origin of each request; connections to other nodes, and the requests that are under way on them |
//! | `context` | what the parts of a node share: place in the cluster, time, connections, answers to be handled |
//! | `participant` | the participant's side: serves requests to the node's own partition |
//! | `router` | sends a request to the partition that it is for, here or at another node |
//! | `coordinator` | the coordinator's side: transactions of its callers, over any partitions |
//! | `resolver` | attempts that no coordinator decides |
//! | `options`, [`node`] | how a node is set up; the protocol and its invariants; a node that has these three parts, and gives each event to the part that it is for |
//! | `simulation` | whole clusters in virtual time, with faults (a cargo feature) |
//! | [`fuzz`] | entry points of fuzzers |
//!
//! The three parts step: an event goes in, messages and outcomes come out, and nothing waits. Only the
//! `connections` know which messages wait to be sent; [`Node::pump`] sends them.
//!
//! # The way of a transaction
//!
//! `MSET a 1 b 2` arrives at node 1, which holds the partition of `a`; node 2 holds that of `b`.
//!
//! | at | step | module |
//! |---|---|---|
//! | node 1 | [`Node::begin`] gives the operations to the coordinator, which finds two partitions and begins an attempt | `coordinator` |
//! | node 1 | the attempt draws its timestamp, and sends `Prepare` to both partitions | `coordinator::two_phase_commit` |
//! | node 1 | the own partition prepares its part at once: it holds `a`; its vote waits until that is durable | `router`, `participant::attempts`, `participant::pending_answers` |
//! | node 1 | the other `Prepare` waits to be sent, and leaves with [`Node::pump`] | `connections` |
//! | node 2 | [`Node::event`] decodes it; the participant prepares: it holds `b`, or the request waits for the holder | `participant::attempts`, `participant::wait_queue` |
//! | node 2 | [`Node::turn`] finds the epoch durable, and the vote leaves | `participant::pending_answers` |
//! | node 1 | both votes have come: the transaction is committed, and the caller gets its replies from [`Node::finished`] | `coordinator`, `coordinator::callers` |
//! | node 1 | `Commit` to both partitions, again until they acknowledge; then `Forget` | `coordinator::commit_phase` |
//! | node 2 | makes `b` visible and gives its hold back; acknowledges when that is durable; forgets the attempt | `participant::attempts` |
//! | node 1 | if node 1 crashes after the votes: its resolver finds the prepared attempt after the restart, asks both for their vote and commits | `resolver` |
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
//! - `docs/decisions/0084-messages-leave-with-their-publishers-reply.md`

#![forbid(unsafe_code)]

pub mod clock;
pub mod codec;
mod connections;
mod context;
mod coordinator;
mod coordinator_key;
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
mod timeouts;
pub mod topology;

pub use coordinator::Finished;
pub use coordinator_key::CoordinatorKey;
pub use counters::Counters;
pub use leaders::Leaders;
pub use node::{Node, OwnedPublication, WakeConditions};
pub use options::NodeOptions;
pub use participant::WaitingPrepares;
pub use requester::LostRequest;
pub use timeouts::Timeouts;
pub use topology::{LinkSecrets, Topology};
