//! The networks, and the ring of io_uring, against real sockets.

// The crate, by the name that other crates give it: they run the suite, too.
extern crate kumiki_reactor as reactor;

mod conformance;
mod faults;
mod network;
mod ring;
mod strace;
