//! Memory and messages over RDMA devices: InfiniBand, RoCE, and RoCE in software.
//!
//! | part | concept |
//! |---|---|
//! | `options` | the choice and the use of a device; reasons why there is none |
//! | `device` | a device, its port, and the address by which others reach it |
//! | `address` | the data that two sides exchange in order to connect |
//! | `connection` | queue pairs whose two sides know each other's address |
//! | `offer` | a connection and two mailboxes, in one exchange |
//! | `visit` | reads of a region, through a connection of their own |
//! | `window` | a region that a peer writes, through a connection of its own |
//! | `memory` | regions that peers read and write through the device |
//! | `message_pair` | Send and Receive, for streams of bytes |
//! | `line` | a queue pair, and the work in progress on it |
//! | `staging` | the words of a memory that this work uses |
//! | `resources` | parts of a device as values that release themselves |
//! | `ffi` | libibverbs, loaded at run time |
//!
//! Building needs nothing of libibverbs. On a machine without it, or without a device,
//! [`Device::open`] returns an error that says what to do.
//!
//! **Access control.** A device checks keys and bounds, not identities. Memory that is registered
//! in a [`Domain`] can be reached only through connections of that domain. A connection is made
//! with addresses that travel over a link whose peer has proved its identity. A peer without a
//! region's grant does not know the place of the region. Packets are neither encrypted nor
//! authenticated: the network has to be trusted, as for messages.
//!
//! **Order.** Operations on one connection take place in the order in which they were begun, as the
//! InfiniBand specification requires for reliable connections. Memory is registered without
//! permission to relax that.

mod active_pair;
mod address;
mod connection;
mod device;
mod ffi;
mod memory;
mod message_pair;
mod options;
mod pair_offer;
mod resources;
mod staging_ring;
mod visit;
mod window;

pub use address::QueuePairAddress;
pub use connection::{Opening, VerbsConnection};
pub use device::Device;
pub use memory::{Domain, VerbsRegion, VerbsRemote};
pub use message_pair::{MessageOffer, MessagePair};
pub use options::{Depths, LoaderError, NoDevice, PortError, VerbsOptions};
pub use pair_offer::{EstablishedPair, PairOffer};
pub(crate) use resources::wait_for_either;
pub use visit::{AdmittedVisit, Visit};
pub use window::VerbsWindow;
