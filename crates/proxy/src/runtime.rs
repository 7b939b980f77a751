//! The runtime carries requests from many clients to few nodes. It is the same for all protocols.
//!
//! Paper 3, sections 5.1 and 5.2. The way of a request:
//!
//! 1. A thread with clients ([`frontend`]) is woken by the socket and reads into shared memory
//!    ([`arena`]). The protocol ([`protocol`]) finds the end of the request and its node. The request
//!    becomes a [`query`], which is a slice of the bytes that were received.
//! 2. The [`outbox`] puts the query into the [queue](crate::queue) to the thread that has the node's
//!    connection ([`backend`]). That is another thread, or the same one if each thread has both clients
//!    and nodes.
//! 3. The connection ([`link`]) takes the queries that wait, up to a limit, into one batch
//!    ([`out_batch`]) and writes it at once. Queries gather only while the socket or the node's window
//!    is full, or the node has enough batches ([`batch_window`]); the connection never delays a query
//!    in the hope of a larger batch.
//! 4. The node-side protocol ([`wire`]) splits the node's output into replies, and each reply goes back
//!    through the queue in the other direction together with its query. The protocol turns it into the
//!    client's reply, and replies leave in the order of the client's requests.
//!
//! Limits: each thread with clients sends each node at most a fixed number of queries
//! ([`inflight_budget`]). A client whose next request has no room waits for its turn ([`wait_queue`]).
//! The proxy does not read from this client meanwhile, and its socket fills. A client that stops in the
//! middle of a request is closed ([`deadlines`]). So the configuration bounds how much waits in the
//! proxy, and with it the latency under overload, and a node that is slow or dead delays only the
//! clients that use its keys.

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
pub(crate) mod token;
pub(crate) mod wait_queue;
pub(crate) mod wire;
