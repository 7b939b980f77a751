//! The event loop's network: connections, readiness, wake-ups between threads, TLS; and the limits of its connections.
//!
//! | module | concept |
//! |---|---|
//! | [`network`] | the trait [`Network`]: what an event loop needs of the network |
//! | `sockets` | the network with the kernel's sockets and epoll |
//! | `uring` | the network with io_uring: one system call for each turn of a thread |
//! | [`ring`] | the ring of io_uring that `uring` uses: requests to the kernel, and their outcomes |
//! | `probe` | the choice between `sockets` and `uring`: what the kernel offers this process |
//! | [`tls`] | encrypted connections on top of any network |
//! | [`budget`] | memory in flight: what connections hold of requests and replies, and the bound that all of them have together |
//! | [`newcomers`] | the places and the time of connections that have not authenticated yet |
//! | [`accept`] | when a thread accepts connections |
//! | `bind` | an address that an earlier process had |
//! | [`buffered`] | limits that networks share which hold bytes between the kernel and a connection's owner |
//! | `keep_alive` | settings by which the system notices that a silent peer is gone |
//!
//! The layers, from the bottom: [`budget`], [`newcomers`], [`accept`]; `bind`, `keep_alive`, [`buffered`], `ring`; `network`;
//! `sockets`, `uring`, `probe`; `tls`. This
//! crate does not know the protocols and the owners of connections. Every implementation of [`Network`] passes
//! the suite in `tests/it/conformance.rs`.
//!
//! Decisions that bind this crate: `docs/decisions/0063-tls-is-a-network-around-a-network.md`,
//! `docs/decisions/0073-event-loops-share-one-network.md`.

pub mod accept;
mod bind;
pub mod budget;
pub mod buffered;
mod keep_alive;
pub mod network;
pub mod newcomers;
mod probe;
pub mod ring;
mod sockets;
pub mod tls;
mod uring;

pub use bind::bind_when_free;
pub use keep_alive::set_dead_after;
pub use network::{Network, SocketEvent, Wake};
pub use probe::{Io, NoUring};
pub use sockets::{SocketWaker, Sockets, WAKING};
pub use uring::{Uring, UringListener, UringStream};
