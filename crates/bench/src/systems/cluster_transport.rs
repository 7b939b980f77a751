//! How messages travel in a run, the requirements of that, and remarks on its figures.
//!
//! | transport | messages | the client's reads | needs |
//! |---|---|---|---|
//! | `tcp` | TCP on loopback | messages | – |
//! | `tcp-ipoib` | TCP to the address of an interface that carries IP over InfiniBand | messages | such an interface |
//! | `verbs-send` | Send and Receive of RDMA devices | messages | an RDMA device |
//! | `verbs-ring` | rings that RDMA devices write | messages | an RDMA device |
//! | `verbs-one-sided` | the same | what servers have published, read by RDMA | an RDMA device |
//! | `shm-send` | Send and Receive, emulated in shared memory | messages | – |
//! | `shm-ring` | rings in shared memory | messages | – |
//! | `shm-one-sided` | the same | what servers have published, in shared memory | – |

use crate::error::RunError;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use fabric::verbs::{Device, VerbsOptions};
use nix::ifaddrs::getifaddrs;
use serde::{Deserialize, Serialize};

/// The kernel's number of interfaces of InfiniBand.
const INFINIBAND: &str = "32";

/// See the module's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterTransport {
    /// TCP on loopback.
    #[default]
    Tcp,
    /// TCP over InfiniBand.
    TcpIpoib,
    /// Send and Receive of RDMA devices.
    VerbsSend,
    /// Rings that RDMA devices write: the paper's GET+ and PUT+.
    VerbsRing,
    /// As [`ClusterTransport::VerbsRing`], and the client reads by itself: the paper's GET\* and PUT+.
    VerbsOneSided,
    /// Send and Receive, emulated in shared memory.
    ShmSend,
    /// Rings in shared memory: GET+ and PUT+.
    ShmRing,
    /// As [`ClusterTransport::ShmRing`], and the client reads by itself the versions that servers have
    /// published: GET\* and PUT+.
    ShmOneSided,
}

impl ClusterTransport {
    /// All transports; the baseline of the others first.
    pub const ALL: [ClusterTransport; 8] = [
        ClusterTransport::Tcp,
        ClusterTransport::TcpIpoib,
        ClusterTransport::VerbsSend,
        ClusterTransport::VerbsRing,
        ClusterTransport::VerbsOneSided,
        ClusterTransport::ShmSend,
        ClusterTransport::ShmRing,
        ClusterTransport::ShmOneSided,
    ];

    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ClusterTransport::Tcp => "tcp",
            ClusterTransport::TcpIpoib => "tcp-ipoib",
            ClusterTransport::VerbsSend => "verbs-send",
            ClusterTransport::VerbsRing => "verbs-ring",
            ClusterTransport::VerbsOneSided => "verbs-one-sided",
            ClusterTransport::ShmSend => "shm-send",
            ClusterTransport::ShmRing => "shm-ring",
            ClusterTransport::ShmOneSided => "shm-one-sided",
        }
    }

    /// Returns `true` if the client reads by itself the versions that servers have published.
    #[must_use]
    pub fn is_one_sided(self) -> bool {
        matches!(
            self,
            ClusterTransport::VerbsOneSided | ClusterTransport::ShmOneSided
        )
    }

    /// Returns the argument of `kumiki serve --transport`.
    pub(crate) fn argument(self) -> &'static str {
        match self.of_client() {
            client::Transport::Shm => "shm",
            client::Transport::Verbs => "verbs",
            client::Transport::ShmSend => "shm-send",
            client::Transport::VerbsSend => "verbs-send",
            client::Transport::Tcp | client::Transport::Auto => "tcp",
        }
    }

    pub(crate) fn of_client(self) -> client::Transport {
        match self {
            ClusterTransport::Tcp | ClusterTransport::TcpIpoib => client::Transport::Tcp,
            ClusterTransport::VerbsSend => client::Transport::VerbsSend,
            ClusterTransport::VerbsRing | ClusterTransport::VerbsOneSided => {
                client::Transport::Verbs
            }
            ClusterTransport::ShmSend => client::Transport::ShmSend,
            ClusterTransport::ShmRing | ClusterTransport::ShmOneSided => client::Transport::Shm,
        }
    }

    /// Returns the address on which servers listen, and a remark on the figures, if there is one.
    ///
    /// # Errors
    /// Returns [`RunError::Skipped`] if it cannot be measured here; the text says why.
    pub(crate) fn prepare(self) -> Result<(IpAddr, Option<String>), RunError> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        match self {
            ClusterTransport::Tcp | ClusterTransport::ShmRing | ClusterTransport::ShmOneSided => {
                Ok((loopback, None))
            }
            ClusterTransport::ShmSend => {
                let note = "Send and Receive are emulated: the sender's processor does the work of \
                            a device";
                Ok((loopback, Some(note.to_owned())))
            }
            ClusterTransport::TcpIpoib => {
                let (interface, address) = over_infiniband()?;
                let note = format!(
                    "for its function: within one machine the kernel delivers to the address of \
                     {interface} without the device"
                );
                Ok((address, Some(note)))
            }
            ClusterTransport::VerbsSend
            | ClusterTransport::VerbsRing
            | ClusterTransport::VerbsOneSided => Ok((loopback, emulated(&device()?))),
        }
    }
}

/// Returns the name of the RDMA device that would be used.
fn device() -> Result<String, RunError> {
    let device = Device::open(&VerbsOptions::default());
    let device = device.map_err(RunError::skipped)?;
    Ok(device.name().to_owned())
}

/// Returns a remark if a device is implemented in software: its figures are those of an emulation.
fn emulated(device: &str) -> Option<String> {
    let is_software = ["rxe", "siw"].iter().any(|soft| device.starts_with(soft));
    let note = || format!("for its function: the RDMA device {device} is software");
    is_software.then(note)
}

/// Returns an interface that carries IP over InfiniBand, and its address.
fn over_infiniband() -> Result<(String, IpAddr), RunError> {
    let none = "no interface of this machine carries IP over InfiniBand (none has an IPv4 address \
                and the type 32 in /sys/class/net)";
    let found = of_type(INFINIBAND)
        .map_err(|error| RunError::Skipped(format!("no interface is known: {error}")))?;
    found.ok_or_else(|| RunError::skipped(none))
}

/// Returns the first interface of a type with an IPv4 address.
fn of_type(wanted: &str) -> Result<Option<(String, IpAddr)>, nix::Error> {
    let address = |one: nix::ifaddrs::InterfaceAddress| {
        let ip = one.address?.as_sockaddr_in()?.ip();
        let kind = Path::new("/sys/class/net")
            .join(&one.interface_name)
            .join("type");
        let kind = std::fs::read_to_string(kind).ok()?;
        (kind.trim() == wanted).then_some((one.interface_name, IpAddr::V4(ip)))
    };
    Ok(getifaddrs()?.find_map(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's number of loopback interfaces.
    const LOOPBACK: &str = "772";

    #[test]
    fn interfaces_are_found_by_their_type() {
        let (name, address) = of_type(LOOPBACK).unwrap().expect("there is loopback");
        assert!(
            address.is_loopback() && !name.is_empty(),
            "{name} {address}"
        );
        assert_eq!(of_type("4711").unwrap(), None);
    }

    #[test]
    fn what_is_not_here_is_said_and_emulations_are_marked() {
        assert_eq!(
            ClusterTransport::ShmRing.prepare(),
            Ok((IpAddr::V4(Ipv4Addr::LOCALHOST), None))
        );
        match ClusterTransport::TcpIpoib.prepare() {
            Ok((address, note)) => assert!(!address.is_loopback() && note.is_some()),
            Err(why) => assert!(why.to_string().contains("type 32"), "{why}"),
        }
        match ClusterTransport::VerbsSend.prepare() {
            Ok((address, _)) => assert!(address.is_loopback()),
            Err(why) => assert!(why.to_string().contains("RDMA device"), "{why}"),
        }
        let (_, note) = ClusterTransport::ShmSend.prepare().unwrap();
        assert!(note.is_some_and(|note| note.contains("emulated")));
        assert!(emulated("rxe0").is_some_and(|note| note.contains("software")));
        assert_eq!(emulated("mlx5_0"), None);
    }
}
