//! The addresses of nodes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::error::{Error, Result};

/// The port of clients.
pub const PORT: u16 = 9042;
/// The port of other nodes.
pub(super) const STORAGE_PORT: u16 = 7000;

/// Returns the address of node `id`, from 1 on.
pub(super) fn ip(network: [u8; 3], id: u8) -> Ipv4Addr {
    let [a, b, c] = network;
    Ipv4Addr::new(a, b, c, id)
}

/// Returns an error if another process listens at the address of node `id`.
pub(super) fn check_free(network: [u8; 3], id: u8) -> Result<()> {
    [PORT, STORAGE_PORT].into_iter().try_for_each(|port| {
        let address = SocketAddr::from((ip(network, id), port));
        let bound = TcpListener::bind(address);
        bound
            .map(|_| ())
            .map_err(|source| Error::PortInUse { address, source })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_told() {
        let networks = std::iter::repeat_with(|| [127, fastrand::u8(1..255), fastrand::u8(..)]);
        let free = |network: &[u8; 3]| (1..=3).all(|id| check_free(*network, id).is_ok());
        let network = networks.take(100).find(free).expect("a free network");
        let _taken = TcpListener::bind((ip(network, 2), PORT)).unwrap();
        assert!(check_free(network, 1).is_ok());
        let refused = check_free(network, 2).unwrap_err().to_string();
        assert!(refused.contains(":9042"), "{refused}");
    }
}
