//! Relays between two peers: a [`Relay`] reads and changes the bytes that pass, as a machine that
//! should not be trusted; [`DelayedLinks`] are links between machines, with a delay and a rate.
//!
//! Both forward connections of TCP on one thread: see `forwarder`.

mod delayed_links;
mod forwarder;
mod link_figures;
mod link_quality;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

pub use delayed_links::DelayedLinks;
pub use forwarder::Passing;
pub use link_figures::DelayedLinkFigures;
pub use link_quality::LinkQuality;

use forwarder::{ForwardedAddress, Forwarder};

/// See the module documentation. It ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    _forwarder: Forwarder,
}

impl Relay {
    /// Listens on a free port of the loopback interface, connects each connection to `to`, and has `change` see
    /// all bytes.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn start(
        to: SocketAddr,
        change: impl FnMut(Passing<'_>) + Send + 'static,
    ) -> io::Result<Relay> {
        Relay::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), to, change)
    }

    /// As [`Relay::start`], at this address.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn start_at(
        address: SocketAddr,
        to: SocketAddr,
        change: impl FnMut(Passing<'_>) + Send + 'static,
    ) -> io::Result<Relay> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let forwarder = Forwarder::start(LinkQuality::default())?;
        forwarder.add(ForwardedAddress {
            listener,
            target: to,
            machines: [0, 1],
            change: Some(Box::new(change)),
        })?;
        Ok(Relay {
            address,
            _forwarder: forwarder,
        })
    }

    /// Returns the address to which peers connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
