//! Addresses on loopback for servers that tests and benchmarks start.
//!
//! A server that is asked for port 0 chooses one that is free; that is better where it is possible.
//! But members of a cluster must know each other's addresses before they start, and a server that
//! starts again must find its own port free. The system chooses the port for port 0 among those
//! that it also gives to clients, so that a connection of any other program may take it meanwhile.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

/// Ports above those of known services. The port 10,000 above each, where a node of Redis Cluster
/// listens to the others, is below those of clients, by Linux's defaults, and given to no server.
pub const PORTS: Range<u16> = 12_000..22_000;

/// The number of ports that a process reserves at a time.
const BLOCK: u16 = 100;
/// The number of blocks in [`PORTS`].
const BLOCKS: u16 = (PORTS.end - PORTS.start) / BLOCK;

/// The ports that this process has reserved.
static RESERVED: Mutex<Reserved> = Mutex::new(Reserved {
    claims: Vec::new(),
    ports: 0..0,
});

#[derive(Debug)]
struct Reserved {
    /// One socket of each reserved block: the system has one such name in each network namespace, and
    /// frees it when the process ends.
    claims: Vec<UnixDatagram>,
    /// The ports of the last block that were not given yet.
    ports: Range<u16>,
}

/// Returns an address where no process listens, at a port that the system never gives to clients.
/// It is given once: neither this process nor another that asks here is given it again as long as
/// this process runs.
///
/// # Errors
/// Returns an error if all of the [`PORTS`] are taken.
pub fn free_address() -> io::Result<SocketAddr> {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        for port in reserved.ports.by_ref() {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if is_free(address) {
                return Ok(address);
            }
        }
        reserved.claim_block()?;
    }
}

impl Reserved {
    /// Reserves a block that no process has. Processes begin at different ones, so that ports rest
    /// for a while before they are used again.
    fn claim_block(&mut self) -> io::Result<()> {
        let first = fastrand::u16(0..BLOCKS);
        for block in (first..BLOCKS).chain(0..first) {
            let name = format!("kumiki test ports {block}");
            let name = UnixAddress::from_abstract_name(name)?;
            match UnixDatagram::bind_addr(&name) {
                Ok(claim) => {
                    self.claims.push(claim);
                    let start = PORTS.start + block * BLOCK;
                    self.ports = start..start + BLOCK;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        let Range { start, end } = PORTS;
        let message = format!("the ports between {start} and {end} are taken");
        Err(io::Error::new(io::ErrorKind::AddrInUse, message))
    }
}

/// Returns `true` if no process listens there. The socket does not listen itself: a child that
/// another thread starts has it until it executes its program, and that must not keep the address
/// from the caller.
fn is_free(address: SocketAddr) -> bool {
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).and_then(|socket| {
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    });
    bound.is_ok()
}

/// Returns `count` such addresses, all different.
///
/// # Errors
/// Returns the errors of [`free_address`].
pub fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    (0..count).map(|_| free_address()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::wait::SetOnDrop;

    #[test]
    fn addresses_differ_and_no_process_listens_there() {
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
        for _ in 0..500 {
            assert!(!held.contains(&free_address().unwrap()));
        }
    }

    /// Children inherit what their parent has opened until they execute their programs.
    #[test]
    fn children_that_start_meanwhile_keep_no_address() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ended = SetOnDrop(&over);
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
