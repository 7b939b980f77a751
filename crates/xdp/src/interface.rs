//! An interface with the XDP program on it, and the ports that are steered to the process.
//!
//! The stack has no address of its own: it shares that of the interface, and gets the packets of its own ports only.
//! So the kernel goes on with everything else, ARP and ICMP included, and each port belongs to one of the two: a
//! socket of the kernel is bound to each port of the stack.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bpf::{BpfLink, BpfMap, XdpProgram};
use crate::headers::HardwareAddress;
use crate::packet_socket::PacketSocket;
use crate::routes::{InterfaceFacts, KernelRoutes};
use crate::steering;

/// Queues that have a place in the map of sockets.
const QUEUES: u32 = 256;
/// How long a program or a queue may still be in use by a process that has ended.
const FREED_WITHIN: Duration = Duration::from_secs(1);

/// The reason why an interface cannot be used. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is no such interface, or it is none of Ethernet.
    #[error(
        "there is no interface {name} with an Ethernet address: give one that `ip link` lists, as in --net xdp:eth0"
    )]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// The interface is down.
    #[error("the interface {name} is down: `ip link set {name} up`")]
    Down {
        /// Its name.
        name: String,
    },
    /// The interface has no IPv4 address.
    #[error("the interface {name} has no IPv4 address: give it one by `ip address add`")]
    NoAddress {
        /// Its name.
        name: String,
    },
    /// The listening address is not one of the interface.
    #[error(
        "{wanted} is no address of the interface {name}, which has {}: listen on one of them",
        list(.found)
    )]
    OtherAddress {
        /// The interface's name.
        name: String,
        /// The listening address.
        wanted: std::net::IpAddr,
        /// The addresses of the interface.
        found: Vec<Ipv4Addr>,
    },
    /// More threads than queues.
    #[error(
        "the interface {name} has {queues} receive queues, and there are {threads} threads, each of which needs one: \
         use {queues} threads, or give the interface more queues (`ethtool -L {name} combined {threads}`)"
    )]
    Queues {
        /// The interface's name.
        name: String,
        /// Its receive queues.
        queues: u32,
        /// The threads.
        threads: usize,
    },
    /// The process may not do this.
    #[error(
        "this process may not {what}: start it as root, or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF \
         (`setcap cap_net_admin,cap_net_raw,cap_bpf+ep`)"
    )]
    NotPermitted {
        /// The refused step.
        what: &'static str,
    },
    /// The interface has an XDP program already.
    #[error(
        "the interface {name} has an XDP program already: stop the program that uses it, or detach it by \
         `ip link set {name} xdp off`"
    )]
    Busy {
        /// The interface's name.
        name: String,
    },
    /// Another process uses the queue.
    #[error(
        "another process has an AF_XDP socket on queue {queue} of the interface {name}: stop it"
    )]
    QueueBusy {
        /// The interface's name.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// There is no such queue.
    #[error("the interface {name} has no receive queue {queue}: use at most {queue} threads")]
    NoQueue {
        /// The interface's name.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// The process may not lock enough memory.
    #[error(
        "this process may not lock the memory of the packets, 16 MiB for each thread: raise the limit \
         (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in a unit of systemd), or give it CAP_IPC_LOCK"
    )]
    LockedMemory,
    /// The kernel lacks a part.
    #[error(
        "the kernel cannot {what} ({error}): AF_XDP needs Linux 6.6 or later, built with CONFIG_BPF_SYSCALL and \
         CONFIG_XDP_SOCKETS; leave out --net xdp"
    )]
    Kernel {
        /// The refused step.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

fn list(addresses: &[Ipv4Addr]) -> String {
    let all: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    all.join(", ")
}

/// Sorts the answer of the kernel to a step.
fn refused(what: &'static str) -> impl Fn(io::Error) -> XdpError {
    move |error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => XdpError::NotPermitted { what },
        _ => XdpError::Kernel { what, error },
    }
}

/// See the module. The program leaves the interface when the last handle, network and connection is dropped, or when
/// the process ends, also if it is killed.
#[derive(Clone)]
pub struct XdpInterface(Arc<Attached>);

struct Attached {
    facts: InterfaceFacts,
    address: Ipv4Addr,
    ports: BpfMap,
    sockets: BpfMap,
    /// How many listeners and connections use a port.
    steered: Mutex<HashMap<u16, usize>>,
    _program: XdpProgram,
    _link: BpfLink,
}

impl fmt::Debug for XdpInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("XdpInterface").field(&self.0.facts).finish()
    }
}

/// A port that is steered to the process as long as this lives.
pub struct SteeredPort {
    interface: XdpInterface,
    port: u16,
}

impl fmt::Debug for SteeredPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.port)
    }
}

impl XdpInterface {
    /// Attaches the program to the interface of this name. `listen` is the address on which the process will
    /// listen: one of the interface, or 0.0.0.0, which stands for the interface's first one. `threads` have a queue
    /// each.
    ///
    /// # Errors
    /// The [`XdpError`] says what to change.
    pub fn attach(
        name: &str,
        listen: std::net::IpAddr,
        threads: usize,
    ) -> Result<XdpInterface, XdpError> {
        let cannot_ask = refused("answer questions about interfaces");
        let routes = KernelRoutes::open().map_err(&cannot_ask)?;
        let facts = routes.interface(name).map_err(&cannot_ask)?;
        let facts = facts.ok_or_else(|| XdpError::NoInterface { name: name.into() })?;
        if !facts.is_up {
            return Err(XdpError::Down { name: name.into() });
        }
        let found = routes.addresses(facts.index).map_err(&cannot_ask)?;
        let wanted = match listen {
            std::net::IpAddr::V4(address) if address.is_unspecified() => found.first(),
            _ => found.iter().find(|address| **address == listen),
        };
        let address = match wanted {
            Some(address) => *address,
            None if found.is_empty() => return Err(XdpError::NoAddress { name: name.into() }),
            None => {
                return Err(XdpError::OtherAddress {
                    name: name.into(),
                    wanted: listen,
                    found,
                });
            }
        };
        let queues = queues_in_use(&facts);
        if threads > queues as usize {
            return Err(XdpError::Queues {
                name: name.into(),
                queues,
                threads,
            });
        }
        let cannot_load = refused("load an XDP program");
        let ports = BpfMap::array(steering::PORTS).map_err(&cannot_load)?;
        let sockets = BpfMap::of_sockets(QUEUES).map_err(&cannot_load)?;
        let program = steering::program(address, ports.descriptor(), sockets.descriptor());
        let program = XdpProgram::load(&steering::encode(&program)).map_err(cannot_load)?;
        let attached = when_free(|| BpfLink::attach(&program, facts.index));
        let link = attached.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => XdpError::Busy { name: name.into() },
            _ => refused("attach an XDP program to the interface")(error),
        })?;
        Ok(XdpInterface(Arc::new(Attached {
            facts: InterfaceFacts { queues, ..facts },
            address,
            ports,
            sockets,
            steered: Mutex::default(),
            _program: program,
            _link: link,
        })))
    }

    /// Opens the socket of a queue, which gets its packets from now on.
    pub(crate) fn open_queue(&self, queue: u32) -> Result<PacketSocket, XdpError> {
        let name = || self.0.facts.name.clone();
        let opened = when_free(|| PacketSocket::open(self.0.facts.index, queue));
        let socket = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => XdpError::QueueBusy {
                name: name(),
                queue,
            },
            Some(libc::EINVAL) if queue > 0 => XdpError::NoQueue {
                name: name(),
                queue,
            },
            Some(libc::ENOBUFS) => XdpError::LockedMemory,
            _ => refused("open an AF_XDP socket")(error),
        })?;
        let descriptor = std::os::fd::AsFd::as_fd(&socket).as_raw_fd();
        let entered = self.0.sockets.set(queue, descriptor as u32);
        entered.map_err(refused("steer packets to an AF_XDP socket"))?;
        Ok(socket)
    }

    /// Steers the packets of a port to the process from now on.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn steer(&self, port: u16) -> io::Result<SteeredPort> {
        let mut steered = self.0.steered.lock();
        let users = steered.entry(port).or_default();
        if *users == 0 {
            self.0.ports.set(u32::from(port), 1)?;
        }
        *users += 1;
        Ok(SteeredPort {
            interface: self.clone(),
            port,
        })
    }

    /// Returns the address that the stack shares with the interface.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.0.address
    }

    /// Returns the interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.facts.name
    }

    /// Returns the number of the interface's receive queues.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.0.facts.queues
    }

    pub(crate) fn index(&self) -> u32 {
        self.0.facts.index
    }

    pub(crate) fn hardware(&self) -> HardwareAddress {
        self.0.facts.hardware
    }

    /// Returns the length of the longest IP packet, in bytes.
    pub(crate) fn mtu(&self) -> usize {
        self.0.facts.mtu
    }
}

impl Drop for SteeredPort {
    fn drop(&mut self) {
        let mut steered = self.interface.0.steered.lock();
        let Some(users) = steered.get_mut(&self.port) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            steered.remove(&self.port);
            if let Err(error) = self.interface.0.ports.set(u32::from(self.port), 0) {
                tracing::warn!(%error, port = self.port, "a port is not given back to the kernel");
            }
        }
    }
}

/// Returns the number of the receive queues of an interface, each of which can have a thread; `None` if it cannot be
/// found.
#[must_use]
pub fn receive_queues(name: &str) -> Option<usize> {
    let routes = KernelRoutes::open().ok()?;
    let facts = routes.interface(name).ok()??;
    Some(queues_in_use(&facts) as usize)
}

/// Repeats a step for a while that finds something in use: the kernel frees what a process had a moment after its end.
fn when_free<T>(mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match step() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < FREED_WITHIN =>
            {
                std::thread::sleep(FREED_WITHIN / 200);
            }
            result => return result,
        }
    }
}

/// Returns the receive queues that an interface uses. The kernel lists them as folders; where it shows those of
/// another namespace, the number of those that the interface can have is taken.
fn queues_in_use(facts: &InterfaceFacts) -> u32 {
    let folder = format!("/sys/class/net/{}", facts.name);
    let index = std::fs::read_to_string(format!("{folder}/ifindex"));
    if index.is_ok_and(|index| index.trim() == facts.index.to_string())
        && let Ok(entries) = std::fs::read_dir(format!("{folder}/queues"))
    {
        let queues = entries.flatten();
        let queues =
            queues.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"rx-"));
        return (queues.count() as u32).clamp(1, QUEUES);
    }
    facts.queues.clamp(1, QUEUES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_answers_say_what_to_do() {
        let sorted = |code| refused("do it")(io::Error::from_raw_os_error(code)).to_string();
        assert!(sorted(libc::EPERM).contains("CAP_BPF"));
        assert!(sorted(libc::EAFNOSUPPORT).contains("Linux 6.6"));
        let listen = "127.0.0.1".parse().expect("an address");
        let absent = XdpInterface::attach("no-such-one", listen, 1).expect_err("it is absent");
        assert!(
            absent.to_string().contains("no interface no-such-one"),
            "{absent}"
        );
        let other = "192.0.2.77".parse().expect("an address");
        let other = XdpInterface::attach("lo", other, 1).expect_err("it has another address");
        assert!(other.to_string().contains("which has 127.0.0.1"), "{other}");
        let many = XdpInterface::attach("lo", listen, 100).expect_err("too many threads");
        assert!(many.to_string().contains("100 threads"), "{many}");
    }
}
