//! Sockets through io_uring: receives that go on by themselves, and sends that leave together with
//! the wait, so that a turn of a thread with any number of sockets is one system call.
//!
//! | module | concept |
//! |---|---|
//! | `ring` | requests and what comes of them |
//! | `buffers` | memory that the kernel receives into |
//!
//! A [`Ring`] belongs to one thread, which alone may [`Ring::wait`]; its [`Waker`] may be anywhere.
//! Linux 6.1 and later have what it takes.

mod buffers;
mod ring;

pub use buffers::BufferId;
pub use ring::{Done, Finish, Ring, SocketId, Waker};
