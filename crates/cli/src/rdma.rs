//! The RDMA device of `kumiki serve`, and of `kumiki pages` and `kumiki sql`.

use std::time::Duration;

use clap::Args;
use fabric::tcp::Transport;
use fabric::verbs::{self, Depths, Domain, VerbsOptions};

use crate::argument_values::parse_time;

/// Above these options in the help.
const HEADING: &str = "RDMA (--transport verbs, verbs-send, or auto)";

/// Options of the RDMA device, for `--transport verbs`, `verbs-send` and `auto`. What is not given is found out,
/// on InfiniBand and on RoCE.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RdmaOptions {
    /// The device, as `ibv_devices` or `rdma link` names it; default: the first one with a port that
    /// carries.
    #[arg(long = "rdma-device", value_name = "NAME", requires = "file", help_heading = HEADING)]
    device: Option<String>,
    /// Its port; default: the first one that carries.
    #[arg(
        long = "rdma-port",
        value_name = "N",
        requires = "file",
        help_heading = HEADING,
        value_parser = clap::value_parser!(u8).range(1..)
    )]
    port: Option<u8>,
    /// The place of the address to be used in the port's table of GIDs; default: local addresses on
    /// InfiniBand, and on Ethernet the best one of RoCE v2.
    #[arg(long = "rdma-gid", value_name = "INDEX", requires = "file", help_heading = HEADING)]
    gid: Option<u8>,
    /// Bytes of a packet: 256, 512, 1024, 2048 or 4096; default: what the port uses.
    #[arg(long = "rdma-mtu", value_name = "BYTES", requires = "file", help_heading = HEADING)]
    mtu: Option<u32>,
    /// Reads and writes that may be under way on a connection; default: 256.
    #[arg(
        long = "rdma-depth",
        value_name = "N",
        requires = "file",
        help_heading = HEADING,
        value_parser = clap::value_parser!(u32).range(8..=32768)
    )]
    depth: Option<u32>,
    /// A peer whose device gives no sign of life for about this time is given up; default: 4s.
    #[arg(
        long = "rdma-timeout",
        value_name = "TIME",
        requires = "file",
        help_heading = HEADING,
        value_parser = parse_timeout
    )]
    timeout: Option<Duration>,
}

/// A device that is selected by its name alone.
pub(crate) struct NamedDevice {
    name: Option<String>,
}

impl NamedDevice {
    pub(crate) fn new(name: Option<String>) -> NamedDevice {
        NamedDevice { name }
    }

    /// Opens it, if this transport needs it or can use it.
    ///
    /// # Errors
    /// As those of [`RdmaOptions::open`].
    pub(crate) fn open(&self, transport: Transport) -> Result<Option<Domain>, String> {
        let rdma = RdmaOptions {
            device: self.name.clone(),
            ..RdmaOptions::default()
        };
        rdma.open(transport)
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).ok_or("it is not a time such as 4s or 500ms")?;
    let sensible = Duration::from_millis(1)..=Duration::from_secs(600);
    if sensible.contains(&time) {
        Ok(time)
    } else {
        Err("it lies between 1ms and 600s".to_owned())
    }
}

impl RdmaOptions {
    /// Opens the device that this transport needs, or can use.
    ///
    /// # Errors
    /// There is none and the transport allows no other, or options contradict each other. The text
    /// says what to do.
    pub(crate) fn open(&self, transport: Transport) -> Result<Option<Domain>, String> {
        match transport {
            Transport::Tcp | Transport::Shm | Transport::ShmSend
                if *self != RdmaOptions::default() =>
            {
                let text = "options of the RDMA device are for --transport verbs, verbs-send and auto: \
                            leave them out, or choose one of these";
                Err(text.to_owned())
            }
            Transport::Tcp | Transport::Shm | Transport::ShmSend => Ok(None),
            Transport::Verbs | Transport::VerbsSend => self.domain().map(Some),
            // An operator who names a device wants it.
            Transport::Auto if *self != RdmaOptions::default() => self.domain().map(Some),
            Transport::Auto => {
                let opened = self.domain();
                let opened = opened.inspect_err(|error| tracing::debug!("{error}"));
                Ok(opened.ok())
            }
        }
    }

    fn domain(&self) -> Result<Domain, String> {
        let device = verbs::Device::open(&self.options()).map_err(|error| error.to_string())?;
        let domain = device.domain();
        let domain = domain.map_err(|error| format!("cannot use {device}: {error}"))?;
        tracing::info!("RDMA device: {device}");
        Ok(domain)
    }

    fn options(&self) -> VerbsOptions {
        let defaults = VerbsOptions::default();
        let sends = self.depth.unwrap_or(defaults.depths.sends);
        VerbsOptions {
            device: self.device.clone(),
            port: self.port,
            gid_index: self.gid,
            mtu: self.mtu,
            dead_after: self.timeout.unwrap_or(defaults.dead_after),
            depths: Depths {
                sends,
                signal_every: defaults.depths.signal_every.min(sends / 4),
                ..defaults.depths
            },
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_used_and_the_rest_is_left_to_the_device() {
        let given = RdmaOptions {
            device: Some("mlx5_0".to_owned()),
            port: Some(2),
            gid: Some(3),
            mtu: Some(1024),
            depth: Some(16),
            timeout: Some(Duration::from_millis(500)),
        };
        let options = given.options();
        assert_eq!(options.device.as_deref(), Some("mlx5_0"));
        assert_eq!((options.port, options.gid_index), (Some(2), Some(3)));
        assert_eq!((options.mtu, options.depths.sends), (Some(1024), 16));
        assert_eq!(options.depths.signal_every, 4);
        assert_eq!(options.dead_after, Duration::from_millis(500));
        assert_eq!(RdmaOptions::default().options(), VerbsOptions::default());
    }

    #[test]
    fn options_of_a_device_that_is_not_used_are_refused() {
        let given = RdmaOptions {
            depth: Some(16),
            ..RdmaOptions::default()
        };
        for transport in [Transport::Tcp, Transport::Shm, Transport::ShmSend] {
            let said = given.open(transport).unwrap_err();
            assert!(said.contains("--transport verbs"), "{said}");
            assert!(RdmaOptions::default().open(transport).unwrap().is_none());
        }
    }

    /// The machine may have a device, but none with this name.
    #[test]
    fn a_device_that_is_asked_for_and_missing_is_an_error() {
        let given = RdmaOptions {
            device: Some("nobodys0".to_owned()),
            ..RdmaOptions::default()
        };
        for transport in [Transport::Verbs, Transport::VerbsSend, Transport::Auto] {
            let said = given.open(transport).unwrap_err();
            assert!(said.contains("RDMA device"), "{said}");
        }
    }
}
