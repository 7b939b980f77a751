//! Messages between nodes.
//!
//! | module | concept |
//! |---|---|
//! | [`link`] | links, their peers and their events |
//! | [`messages`] | the trait: links and messages to be sent |
//! | [`inbox`] | the events of links, in order |
//! | `send_limit` | the limit on bytes that wait to be sent on a link |
//! | [`frame`] | the encoding: frames of the handshake, and of messages |
//! | [`handshake`] | the proof of peers' identity |
//! | `noise` `cipher` | the protocol that proves it and makes keys; the encryption of a connection |
//! | [`tcp`] | links over TCP, inside a caller's poll; and one that blocks |
//! | [`memory`] | the trait of memory that peers read and write: regions, and grants for them |
//! | [`shm`] | such memory, shared by processes of one machine |
//! | [`verbs`] | such memory, reached by RDMA devices, and Send and Receive of these |
//! | [`ring`] | a stream of bytes through such memory, in the paper's format |
//! | [`send_receive`] | such a stream by Send and Receive |
//! | [`window`] | such memory, lent to a peer, which writes requested data into it |
//! | [`sim`] | links over a simulated network: virtual time, and faults from one seed |
//! | [`fuzz`] | entry points for fuzzing the decoders |
//!
//! This crate does not know the meaning of messages: neither keys nor transactions.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0033-links-are-made-over-tcp.md`
//! - `docs/decisions/0034-each-side-reads-its-own-mailbox.md`
//! - `docs/decisions/0035-shared-memory-files-lose-their-names.md`
//! - `docs/decisions/0039-device-readers-have-their-own-connection.md`
//! - `docs/decisions/0041-auto-has-one-region-of-slots.md`
//! - `docs/decisions/0043-a-thread-looks-or-sleeps-as-a-whole.md`
//! - `docs/decisions/0069-windows-are-lent-to-peers-who-know-the-secret.md`
//! - `docs/decisions/0073-event-loops-share-one-network.md`
//! - `docs/decisions/0074-links-are-encrypted-by-the-noise-protocol.md`
//! - `docs/decisions/0081-send-and-receive-has-credit-in-the-immediate-data.md`

#![deny(unsafe_code)]

mod cipher;
pub mod frame;
pub mod fuzz;
pub mod handshake;
pub mod inbox;
pub mod link;
pub mod memory;
pub mod messages;
mod noise;
pub mod ring;
mod send_limit;
pub mod send_receive;
pub mod shm;
pub mod sim;
mod sync;
pub mod tcp;
pub mod verbs;
pub mod window;

pub use handshake::{Secret, client_secret, secret_fingerprint};
pub use inbox::Inbox;
pub use link::{Event, Link, Peer, SendError};
pub use messages::Messages;
