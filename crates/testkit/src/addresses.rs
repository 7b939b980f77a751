//! Addresses on loopback for servers that somebody else starts: by tests, by benchmarks.
//!
//! A server that is asked for port 0 chooses one that is free; that is the better way where it is
//! possible. Members of a cluster must know each other's addresses before they start, and a server
//! that starts again must find its own free. The system's choice for port 0 comes from the ports that it
//! also gives to clients, so that any connection of any other program may take it meanwhile.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

/// Ports that are below those of clients, by Linux's defaults, and above those of known services.
pub const PORTS: Range<u16> = 12_000..32_000;

/// Ports tried for each that is wanted, before they count as too few.
const TRIES: usize = 1000;

/// What this process was given. It may not have begun to listen there yet.
static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// An address where nobody listens, at a port that the system never gives to clients. This process is
/// not given it again; another that asks at the same time might be, which the server then tells.
///
/// # Errors
/// Nearly all of the [`PORTS`] are taken.
pub fn free_address() -> io::Result<SocketAddr> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    for _ in 0..TRIES {
        let port = fastrand::u16(PORTS);
        if given.contains(&port) {
            continue;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if is_free(address) {
            given.insert(port);
            return Ok(address);
        }
    }
    let Range { start, end } = PORTS;
    let message = format!("too few ports between {start} and {end} are free");
    Err(io::Error::new(io::ErrorKind::AddrInUse, message))
}

/// Returns `true` if nobody listens there. The socket does not listen itself: a child that another thread starts
/// has it until it executes its program, and that must not keep the address from the one who asked.
fn is_free(address: SocketAddr) -> bool {
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).and_then(|socket| {
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    });
    bound.is_ok()
}

/// As many of these, all different.
///
/// # Errors
/// As [`free_address`].
pub fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    (0..count).map(|_| free_address()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn addresses_differ_and_nobody_listens_there() {
        let addresses = free_addresses(100).unwrap();
        let different: HashSet<_> = addresses.iter().collect();
        assert_eq!(different.len(), 100);
        for address in addresses {
            assert!(PORTS.contains(&address.port()));
            TcpListener::bind(address).unwrap();
        }
    }

    #[test]
    fn an_address_that_is_taken_is_not_given() {
        let held: Vec<TcpListener> = (0..200)
            .map(|_| TcpListener::bind(free_address().unwrap()).unwrap())
            .collect();
        let held: HashSet<SocketAddr> = held.iter().map(|one| one.local_addr().unwrap()).collect();
        for _ in 0..2000 {
            assert!(!held.contains(&free_address().unwrap()));
        }
    }

    /// Children have what their parent has opened until they execute their programs.
    #[test]
    fn children_that_start_meanwhile_keep_no_address() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let status = std::process::Command::new("true").status();
                    assert!(status.is_ok_and(|status| status.success()));
                }
            });
            let bound = (0..500).all(|_| TcpListener::bind(free_address().unwrap()).is_ok());
            over.store(true, Ordering::Relaxed);
            assert!(bound, "an address is taken");
        });
    }
}
