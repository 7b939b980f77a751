//! The Rust client of a cluster.
//!
//! ```no_run
//! use kumiki_client::{Client, Options};
//!
//! # fn main() -> Result<(), kumiki_client::Error> {
//! let options = Options::new("the secret of the cluster's clients");
//! let client = Client::connect(["127.0.0.1:17001".parse().unwrap()], options)?;
//! client.put(b"ann", b"10")?;
//! client.put(b"bob", b"0")?;
//! // Moves one from ann to bob, wherever they are; begins anew if others get in the way.
//! client.transact(|txn| {
//!     let number = |value: Option<Vec<u8>>| -> i64 {
//!         value.and_then(|v| String::from_utf8(v).ok()?.parse().ok()).unwrap_or(0)
//!     };
//!     let (ann, bob) = (number(txn.get(b"ann")?), number(txn.get(b"bob")?));
//!     txn.put(b"ann", (ann - 1).to_string().as_bytes())?;
//!     txn.put(b"bob", (bob + 1).to_string().as_bytes())
//! })?;
//! // Keys that the cluster's file declares read atomic: all or nothing, without locks.
//! use kumiki_client::Algorithm;
//! client.put_all(&[(b"feed:ann", Some(b"7")), (b"feed:bob", Some(b"7"))], Algorithm::Fast)?;
//! let both = client.get_all(&[b"feed:ann", b"feed:bob"], Algorithm::Fast)?;
//! assert_eq!(both[0], both[1]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`Client`] | its state: options, the cluster's file, connections, sessions |
//! | `commands` | the conveniences: single keys, several keys |
//! | `execute` | a transaction: where it goes, and what is done when that fails |
//! | `attempt` | what the answer to one attempt means |
//! | `bulk` | many transactions in one message, each by itself |
//! | `ramp` | read-atomic keys: several of them read, or written, all or nothing and without locks |
//! | `direct_write` | a write of read-atomic keys that the client coordinates |
//! | `attempt_ids` | the ids of such writes |
//! | `one_sided` | reads of newest versions that nodes have published, without the nodes |
//! | `transact` | transactions in steps: reads, then writes, on condition that the reads hold |
//! | `cluster_map` | the cluster's file, as nodes have it |
//! | `connection_pool` | connections |
//! | `backoff` | pauses between attempts |
//! | `replies`, `read_counts` | values in replies; counts of reads |
//! | `sessions` | numbers by which replicated partitions know transactions again |
//! | `error` `options` | what can go wrong; how a client is set up |
//!
//! Guarantees:
//! 1. Any number of threads can use a client; each call has a connection for itself while it runs.
//! 2. A call that is known not to have happened is tried again until its time is up, with growing
//!    pauses; a read also when its outcome is not known.
//! 3. No transaction takes effect twice. One that writes, and whose keys are all in one replicated
//!    partition, has a number there: while its outcome is not known, it is sent again with that number,
//!    to the partition's current leader, until the call's time is up. Any other transaction that writes
//!    is not repeated when its outcome is not known. In the end the call returns [`Error::Unknown`].
//! 4. No call takes longer than its time, [`Options::timeout`].
//!
//! The crate does not depend on the server: it sends [`cluster::message`] over [`fabric`].
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0017-transactions-over-partitions-are-one-shot.md`
//! - `docs/decisions/0028-the-rust-client-reads-without-a-coordinator.md`
//! - `docs/decisions/0077-a-client-may-coordinate-its-read-atomic-writes.md`
//! - `docs/decisions/0049-sessions-are-opened-by-entries.md`

#![forbid(unsafe_code)]

mod attempt;
mod attempt_ids;
mod backoff;
mod bulk;
mod client;
mod cluster_map;
mod commands;
mod connection_pool;
mod direct_write;
mod error;
mod execute;
mod one_sided;
mod options;
mod ramp;
mod read_counts;
mod replies;
mod sessions;
mod transact;

pub use base::partition::OwnedReply;
pub use base::{Abort, Op};
pub use client::Client;
pub use cluster::ramp::Algorithm;
pub use error::Error;
pub use options::{Encryption, Options, Reads, Transport, VerbsOptions, WriteCoordinator};
pub use read_counts::ReadCounts;
pub use transact::ClientTxn;
