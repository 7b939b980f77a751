//! The nodes that the proxy was given, by address or by name.
//!
//! A name may lead to another address later: it is looked up again whenever the nodes are asked.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The least time between two look-ups of the same names.
const REST: Duration = Duration::from_secs(1);

/// Returns the addresses of a text `host:port`.
pub type LookUp = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Where a node is: an address, or a host's name with a port.
#[derive(Clone)]
pub struct NodeAddress {
    text: String,
    look_up: LookUp,
}

impl NodeAddress {
    /// Creates the address of the node at `host:port`. The system looks up the host's name.
    #[must_use]
    pub fn new(text: &str) -> NodeAddress {
        NodeAddress::with(text, Arc::new(|text| Ok(text.to_socket_addrs()?.collect())))
    }

    /// Creates the address of the node at `host:port`, where `look_up` looks up the host's name.
    #[must_use]
    pub fn with(text: &str, look_up: LookUp) -> NodeAddress {
        NodeAddress {
            text: text.to_owned(),
            look_up,
        }
    }

    /// Returns where the node is now: `before` if the name still leads there, otherwise its first address.
    ///
    /// # Errors
    /// Fails when the text is not `host:port`, or when the name leads nowhere.
    pub fn resolve(&self, before: Option<SocketAddr>) -> io::Result<SocketAddr> {
        let found = (self.look_up)(&self.text)?;
        let same = before.filter(|before| found.contains(before));
        same.or(found.first().copied())
            .ok_or_else(|| io::Error::other("there is no such host"))
    }
}

impl From<SocketAddr> for NodeAddress {
    fn from(address: SocketAddr) -> NodeAddress {
        NodeAddress::with(&address.to_string(), Arc::new(move |_| Ok(vec![address])))
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The nodes that the proxy was given, and where they were at the last look-up.
#[derive(Debug)]
pub(crate) struct SeedAddresses {
    nodes: Vec<NodeAddress>,
    found: Mutex<Found>,
}

#[derive(Debug)]
struct Found {
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl SeedAddresses {
    /// Looks up all of them.
    ///
    /// # Errors
    /// Returns the nodes that cannot be found, with the reason of each.
    pub(crate) fn look_up(nodes: &[NodeAddress]) -> Result<SeedAddresses, Vec<String>> {
        let (mut addresses, mut failed) = (Vec::new(), Vec::new());
        for node in nodes {
            match node.resolve(None) {
                Ok(address) => addresses.push(address),
                Err(error) => failed.push(format!("  {node} cannot be found ({error})")),
            }
        }
        if !failed.is_empty() {
            return Err(failed);
        }
        Ok(SeedAddresses {
            nodes: nodes.to_vec(),
            found: Mutex::new(Found {
                addresses,
                at: Instant::now(),
            }),
        })
    }

    /// Returns their addresses at the last look-up, in the order in which they were given.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.found.lock().addresses.clone()
    }

    /// Returns their addresses now. A node whose name cannot be resolved now keeps its last address.
    /// Names are looked up at most once a second.
    pub(crate) fn look_up_again(&self) -> Vec<SocketAddr> {
        if self.found.lock().at.elapsed() >= REST {
            self.look_up_now();
        }
        self.addresses()
    }

    fn look_up_now(&self) {
        let mut addresses = self.addresses();
        for (node, address) in self.nodes.iter().zip(&mut addresses) {
            match node.resolve(Some(*address)) {
                Ok(found) if found == *address => {}
                Ok(found) => {
                    tracing::info!(%node, before = %address, now = %found, "a node's name leads to another address");
                    *address = found;
                }
                Err(error) => {
                    tracing::warn!(%node, %address, %error, "a node's name leads nowhere now")
                }
            }
        }
        *self.found.lock() = Found {
            addresses,
            at: Instant::now(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_name_is_followed_where_it_leads() {
        let names = Arc::new(Mutex::new(vec![at(1), at(2)]));
        let given = Arc::clone(&names);
        let named = NodeAddress::with(
            "node.example:1",
            Arc::new(move |text| {
                assert_eq!(text, "node.example:1");
                match given.lock().clone() {
                    none if none.is_empty() => Err(io::Error::other("no name server answers")),
                    some => Ok(some),
                }
            }),
        );
        let seeds = SeedAddresses::look_up(&[named, at(9).into()]).unwrap();
        assert_eq!(seeds.addresses(), [at(1), at(9)]);
        // Another order of the same addresses moves nothing.
        *names.lock() = vec![at(2), at(1)];
        seeds.look_up_now();
        assert_eq!(seeds.addresses(), [at(1), at(9)]);
        *names.lock() = vec![];
        seeds.look_up_now();
        assert_eq!(seeds.addresses(), [at(1), at(9)]);
        *names.lock() = vec![at(3)];
        seeds.look_up_now();
        assert_eq!(seeds.addresses(), [at(3), at(9)]);
    }

    #[test]
    fn what_cannot_be_found_is_named() {
        let nowhere = NodeAddress::with("nowhere:1", Arc::new(|_| Ok(Vec::new())));
        let failed = SeedAddresses::look_up(&[at(1).into(), nowhere, NodeAddress::new("no port")]);
        let failed = failed.unwrap_err();
        assert_eq!(failed.len(), 2);
        assert_eq!(
            failed[0],
            "  nowhere:1 cannot be found (there is no such host)"
        );
        assert!(
            failed[1].starts_with("  no port cannot be found ("),
            "{}",
            failed[1]
        );
    }
}
