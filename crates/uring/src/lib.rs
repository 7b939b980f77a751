//! Sockets through io_uring: receives that go on by themselves, and sends that leave together with
//! the wait, so that a turn of a thread with any number of sockets is one system call.
//!
//! | module | concept |
//! |---|---|
//! | `ring` | the ring itself: gives requests to the kernel, and waits for what comes of them |
//! | `request` | requests, and how completions name them |
//! | `done` | what has come of requests |
//! | `sockets` | sockets, each open as long as requests name it |
//! | `buffers` | memory that the kernel receives into |
//! | `waker` | what ends a wait from anywhere |
//!
//! A [`Ring`] belongs to one thread, which alone may [`Ring::wait`]; its [`Waker`] may be used from
//! any thread. It needs Linux 6.1 or later.

mod buffers;
mod completion;
mod request;
mod ring;
mod sockets;
mod waker;

pub use buffers::BufferId;
pub use completion::{ReceiveEnd, SocketCompletion};
pub use ring::Ring;
pub use sockets::SocketId;
pub use waker::Waker;
