//! The machine: what carries requests from many clients to few nodes, whatever their protocol.
//!
//! Paper 3, sections 5.1 and 5.2. Way of a request:
//!
//! 1. A thread with clients ([`frontend`]) is woken by the socket and reads into shared memory
//!    ([`arena`]). The protocol ([`protocol`]) finds the request's end and its node; the request becomes
//!    a [`query`], which is a slice of what was received.
//! 2. The query is put ([`outbox`]) into the [queue](crate::queue) to the thread that has the node's connection
//!    ([`backend`]). That is another thread, or, where threads have both clients and nodes, the same one.
//! 3. The connection ([`link`]) takes what waits, up to a limit, into one [`out_batch`], and writes it
//!    at once. While the socket or the node's window is full, or the node has enough batches
//!    ([`batch_window`]), queries gather; nobody waits for that while it is not.
//! 4. What the node sends is split into replies by the protocol ([`wire`]), and each goes back
//!    through the queue in the other direction with its query. The protocol makes the client's reply of
//!    it, in the client's order.
//!
//! What bounds what: each client's thread gives each node room for so many queries ([`inflight_budget`]); a client
//! whose next request has no room waits for its turn ([`wait_queue`]) and is not read from, and its socket
//! fills. Who stops in the middle of a request is closed ([`deadlines`]). So what waits in the proxy,
//! and with it the latency under overload, is bounded by configuration; and a node that is slow or dead
//! holds up only those who ask for its keys.

pub(crate) mod arena;
pub(crate) mod backend;
pub(crate) mod batch_window;
pub(crate) mod deadlines;
pub(crate) mod frontend;
pub(crate) mod inflight_budget;
pub(crate) mod link;
pub(crate) mod out_batch;
pub(crate) mod outbox;
pub(crate) mod protocol;
pub(crate) mod query;
pub(crate) mod thread;
pub(crate) mod thread_waker;
pub(crate) mod wait_queue;
pub(crate) mod wire;
