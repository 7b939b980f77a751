//! Questions to the kernel about interfaces, routes and neighbours (netlink, `rtnetlink(7)`).
//!
//! A message: length (u32), type (u16), flags (u16), sequence (u32), port (u32); a header by the type; attributes, each
//! with its length (u16), type (u16) and value, at multiples of four bytes. Numbers are in the machine's order.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::headers::HardwareAddress;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const GET_ADDRESS: u16 = 22;
const NEW_ADDRESS: u16 = 20;
const GET_ROUTE: u16 = 26;
const NEW_ROUTE: u16 = 24;
const GET_NEIGHBOUR: u16 = 30;
const NEW_NEIGHBOUR: u16 = 28;

const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

const IPV4: u8 = libc::AF_INET as u8;
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_RECEIVE_QUEUES: u16 = 32;
const ADDRESS_LOCAL: u16 = 2;
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const NEIGHBOUR_DESTINATION: u16 = 1;
const NEIGHBOUR_ADDRESS: u16 = 2;
/// States of a neighbour in which its address may be used: reachable, stale, delay, probe, noarp, permanent.
const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// The kernel is to look for the neighbour, as if a packet for it had come.
const USE: u8 = 1;

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceFacts {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) hardware: HardwareAddress,
    /// Bytes of the longest IP packet.
    pub(crate) mtu: usize,
    /// Receive queues that it can have.
    pub(crate) queues: u32,
    pub(crate) is_up: bool,
}

/// The way to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelRoute {
    /// The number of the interface.
    pub(crate) interface: u32,
    /// The neighbour that gets the packets: a gateway, or the destination itself.
    pub(crate) next_hop: Ipv4Addr,
}

/// A conversation with the kernel, in the network namespace of the thread that opened it.
pub(crate) struct KernelRoutes {
    socket: OwnedFd,
}

impl KernelRoutes {
    /// Opens a conversation.
    pub(crate) fn open() -> io::Result<KernelRoutes> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is 0.
            None,
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(KernelRoutes { socket })
    }

    /// Returns the interface of this name, if there is one.
    pub(crate) fn interface(&self, name: &str) -> io::Result<Option<InterfaceFacts>> {
        let mut header = [0; 16];
        header[0] = libc::AF_UNSPEC as u8;
        let mut terminated = name.as_bytes().to_vec();
        terminated.push(0);
        let mut request = Request::new(GET_LINK, REQUEST, &header);
        request.add(LINK_NAME, &terminated);
        match self.ask(request, NEW_LINK, 16, link) {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            // The name is longer than a name can be.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the IPv4 addresses of an interface.
    pub(crate) fn addresses(&self, interface: u32) -> io::Result<Vec<Ipv4Addr>> {
        let request = Request::new(GET_ADDRESS, REQUEST | DUMP, &[IPV4, 0, 0, 0, 0, 0, 0, 0]);
        let found = self.ask(request, NEW_ADDRESS, 8, |header, attributes| {
            let address = address(attribute(attributes, ADDRESS_LOCAL)?)?;
            (long(header, 4) == interface).then_some(address)
        })?;
        Ok(found)
    }

    /// Returns the way to a destination, if there is one.
    pub(crate) fn route(&self, to: Ipv4Addr) -> io::Result<Option<KernelRoute>> {
        let mut header = [0; 12];
        (header[0], header[1]) = (IPV4, 32);
        let mut request = Request::new(GET_ROUTE, REQUEST, &header);
        request.add(ROUTE_DESTINATION, &to.octets());
        let found = self.ask(request, NEW_ROUTE, 12, |_, attributes| {
            let gateway = attribute(attributes, ROUTE_GATEWAY).and_then(address);
            Some(KernelRoute {
                interface: long(attribute(attributes, ROUTE_INTERFACE)?, 0),
                next_hop: gateway.unwrap_or(to),
            })
        });
        match found {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.kind() == ErrorKind::NetworkUnreachable => Ok(None),
            Err(error) if error.kind() == ErrorKind::HostUnreachable => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the hardware address of a neighbour, if the kernel knows it.
    pub(crate) fn neighbour(
        &self,
        interface: u32,
        address: Ipv4Addr,
    ) -> io::Result<Option<HardwareAddress>> {
        let mut request = Request::new(GET_NEIGHBOUR, REQUEST, &neighbour_header(interface, 0));
        request.add(NEIGHBOUR_DESTINATION, &address.octets());
        let found = self.ask(request, NEW_NEIGHBOUR, 12, |header, attributes| {
            let state = u16::from_ne_bytes([header[8], header[9]]);
            let hardware = attribute(attributes, NEIGHBOUR_ADDRESS)?.try_into().ok()?;
            (state & USABLE != 0).then_some(hardware)
        });
        match found {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the kernel look for a neighbour.
    pub(crate) fn look_for_neighbour(&self, interface: u32, address: Ipv4Addr) -> io::Result<()> {
        // With an acknowledgement, so that there is an answer.
        let flags = REQUEST | CREATE | 4;
        let mut request = Request::new(NEW_NEIGHBOUR, flags, &neighbour_header(interface, USE));
        request.add(NEIGHBOUR_DESTINATION, &address.octets());
        self.ask(request, NEW_NEIGHBOUR, 12, |_, _| Some(()))
            .map(drop)
    }

    /// Sends a request, and returns what `read` makes of the answers of type `kind`: of their header of `header` bytes
    /// and their attributes.
    fn ask<T>(
        &self,
        request: Request,
        kind: u16,
        header: usize,
        mut read: impl FnMut(&[u8], &[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let is_dump = request.flags & DUMP == DUMP;
        let message = request.finish();
        rustix::io::retry_on_intr(|| send(&self.socket, &message, SendFlags::empty()))?;
        let (mut found, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            let receive = || recv(&self.socket, &mut buffer[..], RecvFlags::empty());
            let (len, _) = retry(receive)?;
            let mut rest = &buffer[..len];
            while rest.len() >= 16 {
                let len = (long(rest, 0) as usize).clamp(16, rest.len());
                let (message, kind_of) = (&rest[16..len], short(rest, 4));
                rest = &rest[len.next_multiple_of(4).min(rest.len())..];
                match kind_of {
                    DONE => return Ok(found),
                    ERROR => match long(message, 0) as i32 {
                        0 => return Ok(found),
                        code => return Err(io::Error::from_raw_os_error(-code)),
                    },
                    _ if kind_of == kind && message.len() >= header => {
                        found.extend(read(&message[..header], &message[header..]));
                        if !is_dump {
                            return Ok(found);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Repeats a call as long as a signal interrupts it.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

fn link(header: &[u8], attributes: &[u8]) -> Option<InterfaceFacts> {
    let name = attribute(attributes, LINK_NAME)?;
    let queues = attribute(attributes, LINK_RECEIVE_QUEUES);
    Some(InterfaceFacts {
        index: long(header, 4),
        name: String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned(),
        hardware: attribute(attributes, LINK_ADDRESS)?.try_into().ok()?,
        mtu: long(attribute(attributes, LINK_MTU)?, 0) as usize,
        queues: queues.map_or(1, |queues| long(queues, 0)).max(1),
        is_up: long(header, 8) & 1 != 0,
    })
}

fn neighbour_header(interface: u32, flags: u8) -> [u8; 12] {
    let mut header = [0; 12];
    header[0] = IPV4;
    header[4..8].copy_from_slice(&interface.to_ne_bytes());
    header[10] = flags;
    header
}

/// A request that is being written.
struct Request {
    bytes: Vec<u8>,
    flags: u16,
}

impl Request {
    fn new(kind: u16, flags: u16, header: &[u8]) -> Request {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(header);
        Request { bytes, flags }
    }

    fn add(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend((4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }
}

/// Returns the value of an attribute.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while attributes.len() >= 4 {
        let len = usize::from(short(attributes, 0)).clamp(4, attributes.len());
        if short(attributes, 2) & 0x3fff == kind {
            return Some(&attributes[4..len]);
        }
        attributes = &attributes[len.next_multiple_of(4).min(attributes.len())..];
    }
    None
}

fn address(value: &[u8]) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = value.try_into().ok()?;
    Some(Ipv4Addr::from(octets))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_its_loopback_interface() {
        let routes = KernelRoutes::open().expect("a conversation");
        let lo = routes
            .interface("lo")
            .expect("an answer")
            .expect("it is there");
        assert_eq!((lo.name.as_str(), lo.hardware), ("lo", [0; 6]));
        assert!(lo.index > 0 && lo.mtu >= 1500 && lo.queues >= 1, "{lo:?}");
        let addresses = routes.addresses(lo.index).expect("an answer");
        assert!(addresses.contains(&Ipv4Addr::LOCALHOST), "{addresses:?}");
        let route = routes.route(Ipv4Addr::LOCALHOST).expect("an answer");
        let expected = KernelRoute {
            interface: lo.index,
            next_hop: Ipv4Addr::LOCALHOST,
        };
        assert_eq!(route, Some(expected));
        for absent in ["no-such-one", "a-name-longer-than-names-can-be"] {
            assert_eq!(routes.interface(absent).expect("an answer"), None);
        }
    }

    #[test]
    fn attributes_of_any_length_are_read_or_skipped() {
        let mut request = Request::new(1, 2, &[]);
        request.add(7, b"seven");
        request.add(9, b"nine");
        let bytes = request.finish();
        assert_eq!(bytes.len(), 16 + 12 + 8);
        assert_eq!(attribute(&bytes[16..], 9), Some(&b"nine"[..]));
        assert_eq!(attribute(&bytes[16..], 8), None);
        for len in 16..bytes.len() {
            let found = attribute(&bytes[16..len], 9);
            assert!(found.is_none_or(|value| value.len() < 4), "{len} bytes");
        }
    }
}
