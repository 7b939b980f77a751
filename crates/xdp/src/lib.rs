//! A network of an event loop past the kernel's TCP: packets by AF_XDP, TCP in the process.
//!
//! Paper 3 (section 5.1) runs its proxy on mTCP and DPDK, because the kernel's way of a packet costs more than the
//! proxy's own work. Here the kernel keeps the interface, and an XDP program hands it all packets but those of the
//! TCP ports that belong to the stack; those go to rings in the process's memory.
//!
//! | module | concept |
//! |---|---|
//! | `steering` | the XDP program: which packets go to the process |
//! | `bpf` | loads maps and programs into the kernel, and attaches them |
//! | `rings` | the rings and the memory that the kernel and the process share |
//! | `packet_socket` | an AF_XDP socket: packets in and out |
//! | `routes` | questions to the kernel: interfaces, routes, neighbours |
//! | [`interface`] | an interface with the program, and the ports that are steered to the process |
//! | `headers` | the headers of a packet |
//! | `stack` | TCP connections over packets |
//! | [`network`] | the stack and the kernel's sockets behind the trait of event loops |
//!
//! The layers, from the bottom: `steering`, `headers`; `bpf`, `rings`, `routes`; `packet_socket`; [`interface`],
//! `stack`; [`network`]. This crate does not know the protocols and the owners of connections.
//!
//! Decision that binds this crate: `docs/decisions/0079-the-stack-shares-the-interfaces-address.md`.

mod bpf;
mod headers;
pub mod interface;
pub mod network;
mod packet_socket;
mod rings;
mod routes;
mod stack;
mod steering;

pub use interface::{XdpError, XdpInterface, receive_queues};
pub use network::Xdp;
