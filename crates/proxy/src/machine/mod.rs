//! The machine: what carries requests from many clients to few nodes, whatever their protocol.
//!
//! Paper 3, sections 5.1 and 5.2. Way of a request:
//!
//! 1. A thread with clients ([`front`]) is woken by the socket and reads into shared memory
//!    ([`arena`]). The protocol ([`face`]) finds the request's end and its node; the request becomes
//!    a [`query`], which is a slice of what was received.
//! 2. The query is put ([`outbox`]) into the [queue](crate::queue) to the thread that has the node's connection
//!    ([`back`]). That is another thread, or, where threads have both clients and nodes, the same one.
//! 3. The connection ([`link`]) takes what waits, up to a limit, into one [`pack`], and writes it
//!    at once. While the socket or the node's window is full, or the node has enough packs
//!    ([`pace`]), queries gather; nobody waits for that while it is not.
//! 4. What the node sends is split into replies by the protocol ([`wire`]), and each goes back
//!    through the queue in the other direction with its query. The face makes the client's reply of
//!    it, in the client's order.
//!
//! What bounds what: each client's thread gives each node room for so many queries ([`room`]); a client
//! whose next request has no room waits for its turn ([`parking`]) and is not read from, and its socket
//! fills. Who stops in the middle of a request is closed ([`deadlines`]). So what waits in the proxy,
//! and with it the latency under overload, is bounded by configuration; and a node that is slow or dead
//! holds up only those who ask for its keys.

pub(crate) mod arena;
pub(crate) mod back;
pub(crate) mod bell;
pub(crate) mod deadlines;
pub(crate) mod face;
pub(crate) mod front;
pub(crate) mod link;
pub(crate) mod outbox;
pub(crate) mod pace;
pub(crate) mod pack;
pub(crate) mod parking;
pub(crate) mod query;
pub(crate) mod room;
pub(crate) mod thread;
pub(crate) mod wire;
