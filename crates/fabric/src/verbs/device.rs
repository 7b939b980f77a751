//! A device, its port, and the address by which others reach it.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::address::AddressKind;
use super::ffi::{self, Library};
use super::options::{NoDevice, PortError, VerbsOptions, mtu_bytes, mtu_code};
use super::resources::Context;

/// An RDMA device that is open, and the port of it that is used.
#[derive(Clone)]
pub struct Device(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) context: Arc<Context>,
    pub(super) options: VerbsOptions,
    pub(super) port: Port,
}

/// A port, as connections need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) naming: AddressKind,
    pub(super) gid_index: u8,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) level: u8,
    pub(super) mtu: u8,
    /// The number of reads that it serves at a time, and that it has in progress at a time.
    pub(super) peer_reads: u8,
    pub(super) reads: u8,
}

/// The kind of an address on Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Roce {
    V1,
    V2,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// Returns an error if there is no device that can be used with these options; see
    /// [`NoDevice`].
    pub fn open(options: &VerbsOptions) -> Result<Device, NoDevice> {
        options.check()?;
        let name = CString::new(options.library.as_str());
        let name = name.map_err(|_| NoDevice::Options("a library's name has no zeros".into()))?;
        let library = Library::load(&name).map_err(|error| NoDevice::Library { error })?;
        let context = Context::open(library, |names| choose_device(names, options))?;
        let port = choose_port(&context, options).map_err(|error| NoDevice::Port {
            device: context.name().to_owned(),
            error,
        })?;
        Ok(Device(Arc::new(Inner {
            context: Arc::new(context),
            options: options.clone(),
            port,
        })))
    }

    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.context.name()
    }
}

/// Shows the device, the port, and the address, for people.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = &self.0.port;
        let mtu = mtu_bytes(port.mtu);
        write!(f, "{} port {}, MTU {mtu}, ", self.name(), port.number)?;
        let gid = Ipv6Addr::from(port.gid);
        let index = port.gid_index;
        match port.naming {
            AddressKind::Local => write!(f, "InfiniBand, LID {}", port.lid),
            AddressKind::Global => write!(f, "InfiniBand, GID {index} {gid}"),
            AddressKind::RoceV1 => write!(f, "RoCE v1, GID {index} {gid}"),
            AddressKind::RoceV2 => write!(f, "RoCE v2, GID {index} {gid}"),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

fn choose_device(names: &[String], options: &VerbsOptions) -> Result<usize, NoDevice> {
    if names.is_empty() {
        return Err(NoDevice::Missing);
    }
    let Some(wanted) = &options.device else {
        // The first device is taken that has an active port.
        let carries = |name: &String| {
            let ports = fs::read_dir(format!("/sys/class/infiniband/{name}/ports"));
            let mut ports = ports.into_iter().flatten().flatten();
            ports.any(|port| {
                let state = fs::read_to_string(port.path().join("state"));
                state.is_ok_and(|state| state.contains("ACTIVE"))
            })
        };
        return Ok(names.iter().position(carries).unwrap_or(0));
    };
    let found = names.iter().position(|name| name == wanted);
    found.ok_or_else(|| NoDevice::Unknown {
        wanted: wanted.clone(),
        there: names.to_vec(),
    })
}

/// Chooses the port and its address. Returns an error if none fits.
fn choose_port(context: &Context, options: &VerbsOptions) -> Result<Port, PortError> {
    let attributes = context.attributes().map_err(PortError::Attributes)?;
    let depths = &options.depths;
    if depths.sends > attributes.max_work {
        let most = attributes.max_work;
        return Err(PortError::QueueDepth(most));
    }
    if depths.sends > attributes.max_completions {
        let most = attributes.max_completions;
        return Err(PortError::CompletionDepth(most));
    }
    let (number, found) = match options.port {
        Some(port) => (port, active_port(context, port)?),
        None => {
            let mut ports = (1..=attributes.ports).map(|port| (port, active_port(context, port)));
            let first = ports.find_map(|(port, found)| Some((port, found.ok()?)));
            first.ok_or(PortError::NoneActive)?
        }
    };
    let mtu = match options.mtu.and_then(mtu_code) {
        Some(mtu) if u32::from(mtu) > found.mtu => {
            let most = mtu_bytes(found.mtu as u8);
            return Err(PortError::Mtu { port: number, most });
        }
        Some(mtu) => mtu,
        None => found.mtu.clamp(1, 5) as u8,
    };
    let (naming, gid_index, gid) = choose_address(context, number, &found, options.gid_index)?;
    let reads = |most: u32| most.clamp(1, u32::from(depths.reads)) as u8;
    Ok(Port {
        number,
        naming,
        gid_index,
        gid,
        lid: found.lid,
        level: found.level,
        mtu,
        peer_reads: reads(attributes.max_peer_reads),
        reads: reads(attributes.max_reads),
    })
}

fn active_port(context: &Context, port: u8) -> Result<ffi::PortAttributes, PortError> {
    let found = context.port(port);
    let found = found.map_err(|error| PortError::Missing { port, error })?;
    match found.state {
        ffi::PORT_ACTIVE => Ok(found),
        _ => Err(PortError::Inactive(port)),
    }
}

/// Returns the address of a port by which others reach it.
fn choose_address(
    context: &Context,
    port: u8,
    found: &ffi::PortAttributes,
    wanted: Option<u8>,
) -> Result<(AddressKind, u8, [u8; 16]), PortError> {
    let count = found.gids.clamp(0, 256) as u16;
    let read = |index: u8| context.gid(port, index).ok().filter(|gid| *gid != [0; 16]);
    let missing = |index| PortError::NoGid { port, index };
    if found.layer == ffi::LAYER_INFINIBAND {
        return match wanted {
            Some(index) => Ok((
                AddressKind::Global,
                index,
                read(index).ok_or_else(|| missing(index))?,
            )),
            None => Ok((AddressKind::Local, 0, read(0).unwrap_or_default())),
        };
    }
    let kind = |index: u8| {
        let device = context.name();
        let file = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
        let text = fs::read_to_string(file).unwrap_or_default();
        if text.contains("v2") {
            Roce::V2
        } else {
            Roce::V1
        }
    };
    let table = (0..count).map(|index| index as u8);
    let table = table.filter_map(|index| Some((index, kind(index), read(index)?)));
    let (index, kind, gid) = match wanted {
        Some(index) => (
            index,
            kind(index),
            read(index).ok_or_else(|| missing(index))?,
        ),
        None => best(table).ok_or(PortError::NoAddress(port))?,
    };
    let naming = match kind {
        Roce::V1 => AddressKind::RoceV1,
        Roce::V2 => AddressKind::RoceV2,
    };
    Ok((naming, index, gid))
}

/// Returns the address that is the most likely to be reachable: one of RoCE v2 before the other
/// kind, then an IPv4 address before IPv6, then one that is valid beyond its segment; among equals
/// the first.
fn best(table: impl Iterator<Item = (u8, Roce, [u8; 16])>) -> Option<(u8, Roce, [u8; 16])> {
    table.min_by_key(|(_, kind, gid)| {
        let ip = Ipv6Addr::from(*gid);
        let is_local = ip.is_unicast_link_local();
        (*kind != Roce::V2, ip.to_ipv4_mapped().is_none(), is_local)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> [u8; 16] {
        let ip: Ipv6Addr = text.parse().expect("an address");
        ip.octets()
    }

    #[test]
    fn an_ipv4_address_of_roce_v2_is_preferred() {
        let table = [
            (0, Roce::V1, gid("fe80::1")),
            (1, Roce::V2, gid("fe80::1")),
            (2, Roce::V1, gid("::ffff:10.0.0.1")),
            (3, Roce::V2, gid("2001:db8::1")),
            (4, Roce::V2, gid("::ffff:10.0.0.1")),
            (5, Roce::V2, gid("::ffff:10.0.0.2")),
        ];
        let chosen = |without: &[u8]| {
            let table = table.iter().copied();
            best(table.filter(|(index, ..)| !without.contains(index))).map(|(index, ..)| index)
        };
        assert_eq!(chosen(&[]), Some(4));
        assert_eq!(chosen(&[4, 5]), Some(3));
        assert_eq!(chosen(&[3, 4, 5]), Some(1));
        assert_eq!(chosen(&[1, 3, 4, 5]), Some(2));
        assert_eq!(chosen(&[0, 1, 2, 3, 4, 5]), None);
    }

    #[test]
    fn a_device_is_chosen_by_its_name() {
        let names = ["rxe0".to_owned(), "mlx5_0".to_owned()];
        let mut options = VerbsOptions::default();
        assert!(matches!(
            choose_device(&[], &options),
            Err(NoDevice::Missing)
        ));
        options.device = Some("mlx5_0".to_owned());
        assert!(matches!(choose_device(&names, &options), Ok(1)));
        options.device = Some("mlx5_1".to_owned());
        let error = choose_device(&names, &options)
            .expect_err("not there")
            .to_string();
        assert!(
            error.contains("mlx5_1") && error.contains("rxe0, mlx5_0"),
            "{error}"
        );
    }

    #[test]
    fn a_machine_without_the_library_is_told_what_to_install() {
        let library = "libkumiki-none.so.1".to_owned();
        let options = VerbsOptions {
            library,
            ..VerbsOptions::default()
        };
        let error = Device::open(&options).expect_err("no library").to_string();
        assert!(
            error.contains("libkumiki-none.so.1: cannot open"),
            "{error}"
        );
        assert!(
            error.contains("install") && error.contains("ibverbs-providers"),
            "{error}"
        );
    }
}
