//! Options for the choice and the use of an RDMA device, and the reasons why there is none.

use std::io;
use std::time::Duration;

/// Options for the choice and the use of an RDMA device. The defaults work on InfiniBand and on
/// RoCE v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    /// The name of the library.
    pub library: String,
    /// The device's name, as `ibv_devices` or `rdma link` shows it; if `None`, the first one with
    /// an active port.
    pub device: Option<String>,
    /// The port, from 1 on; if `None`, the first active one.
    pub port: Option<u8>,
    /// The place of the global address in the port's table. If `None`, local addresses are used on
    /// InfiniBand; on Ethernet, the first address of RoCE v2 that is an IPv4 address, then any of
    /// RoCE v2, then any.
    pub gid_index: Option<u8>,
    /// The bytes of a packet's content, 256 to 4096 in powers of two; if `None`, those of the port.
    /// The smaller value of both sides is used.
    pub mtu: Option<u32>,
    /// The approximate time without a sign of life after which a connection is lost; up to four
    /// times as long with some devices. Between 1 ms and 10 minutes.
    pub dead_after: Duration,
    /// Sizes of a connection's queues and buffers.
    pub depths: Depths,
}

/// Sizes of a connection's queues and buffers. All memory of buffers is registered, hence locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// The number of reads and writes that may be in progress; 8 to 32768.
    pub sends: u32,
    /// The number of reads that the device has in transit at a time, and serves at a time; if the
    /// device supports fewer, its greatest number.
    pub reads: u8,
    /// The number of words of a peer's region that can be in transit to here at a time; 64 or more.
    /// Longer reads are made in pieces.
    pub landing_words: usize,
    /// The number of words that are written or sent and not yet taken, 64 or more. Longer ones go
    /// in pieces.
    pub staging_words: usize,
    /// The number of writes after which the device is asked for a completion; at most a quarter of
    /// `sends`.
    pub signal_every: u32,
}

/// Memory that is posted for the messages of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveQueue {
    /// The number of places.
    pub(super) places: u32,
    /// The bytes of each, a multiple of 8.
    pub(super) bytes: u32,
}

impl ReceiveQueue {
    /// None: for a connection without messages.
    pub(super) const NONE: ReceiveQueue = ReceiveQueue {
        places: 0,
        bytes: 0,
    };
}

impl Default for VerbsOptions {
    /// Returns options for any device, with 4 s.
    fn default() -> VerbsOptions {
        VerbsOptions {
            library: "libibverbs.so.1".to_owned(),
            device: None,
            port: None,
            gid_index: None,
            mtu: None,
            dead_after: Duration::from_secs(4),
            depths: Depths::default(),
        }
    }
}

impl Default for Depths {
    /// Returns 256 sends, 16 reads, 64 KiB to land in, 256 KiB to send from.
    fn default() -> Depths {
        Depths {
            sends: 256,
            reads: 16,
            landing_words: 8 << 10,
            staging_words: 32 << 10,
            signal_every: 32,
        }
    }
}

/// The reason why there is no device to use; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum NoDevice {
    /// The options contradict each other.
    #[error("verbs: {0}")]
    Options(String),
    /// The library is missing.
    #[error(
        "no RDMA device can be used, because libibverbs cannot be loaded ({error}); install it \
         with the part for your device (Debian: libibverbs1 and ibverbs-providers; Fedora: \
         libibverbs), or use another transport"
    )]
    Library {
        /// The error of the loader.
        error: LoaderError,
    },
    /// The kernel does not know such devices.
    #[error(
        "no RDMA device can be used, because the kernel offers none ({0}); load the modules of \
         the device and ib_uverbs, or use another transport"
    )]
    Kernel(io::Error),
    /// There is no device.
    #[error(
        "there is no RDMA device; load the driver of your network card and install its part of \
         libibverbs (Debian: ibverbs-providers), make one in software (`rdma link add rxe0 type \
         rxe netdev eth0`), or use another transport"
    )]
    Missing,
    /// There is no device of this name.
    #[error("there is no RDMA device {wanted}, but {}; name one of them", there.join(", "))]
    Unknown {
        /// The name that was requested.
        wanted: String,
        /// The names of the devices.
        there: Vec<String>,
    },
    /// The system does not allow the device to be opened.
    #[error(
        "the RDMA device {device} cannot be opened ({error}); look whether /dev/infiniband is \
         there and may be read and written"
    )]
    Open {
        /// The name of the device.
        device: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// No port of the device can be used.
    #[error("the RDMA device {device} cannot be used: {error}")]
    Port {
        /// The name of the device.
        device: String,
        /// The reason, and what to do.
        error: PortError,
    },
}

/// The text with which the system's loader refuses a library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoaderError(pub(super) String);

/// The reason why no port of a device can be used; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The device does not report its limits.
    #[error(transparent)]
    Attributes(io::Error),
    /// The options ask for deeper queues of work than the device has.
    #[error("its queues have {0} places at most; choose smaller depths")]
    QueueDepth(u32),
    /// The options ask for deeper queues of completions than the device has.
    #[error("it completes {0} things at most; choose smaller depths")]
    CompletionDepth(u32),
    /// No port is active.
    #[error("no port of it carries; look at its cable and its interface")]
    NoneActive,
    /// The chosen port is not active.
    #[error("port {0} does not carry; look at its cable and its interface")]
    Inactive(u8),
    /// The device does not have the chosen port.
    #[error("it has no port {port} ({error})")]
    Missing {
        /// The number of the port.
        port: u8,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The port carries no packets of the chosen length.
    #[error("port {port} carries packets of {most} bytes at most")]
    Mtu {
        /// The number of the port.
        port: u8,
        /// The greatest length in bytes.
        most: u32,
    },
    /// The port does not have the chosen address.
    #[error("port {port} has no GID {index}; `rdma` or `ibv_devinfo -v` lists them")]
    NoGid {
        /// The number of the port.
        port: u8,
        /// The index of the address.
        index: u8,
    },
    /// The port has no address.
    #[error("port {0} has no GID; give its interface an address and bring it up")]
    NoAddress(u8),
}

/// The number of times that a packet is sent before its peer is given up. One more would be the
/// device's greatest number, which Soft-RoCE takes for ever.
pub(super) const TRIES: u32 = 7;

impl VerbsOptions {
    /// Checks what can be checked without a device.
    pub(super) fn check(&self) -> Result<(), NoDevice> {
        let depths = &self.depths;
        let wrong = |what: String| Err(NoDevice::Options(what));
        if self.port == Some(0) {
            return wrong("ports are counted from 1 on".to_owned());
        }
        if let Some(mtu) = self.mtu
            && mtu_code(mtu).is_none()
        {
            return wrong(format!(
                "an MTU of {mtu}; take 256, 512, 1024, 2048 or 4096"
            ));
        }
        let times = Duration::from_millis(1)..=Duration::from_secs(600);
        if !times.contains(&self.dead_after) {
            return wrong(format!(
                "giving up after {:?}; take 1 ms to 10 min",
                self.dead_after
            ));
        }
        if !(8..=1 << 15).contains(&depths.sends) {
            return wrong(format!("{} sends under way; take 8 to 32768", depths.sends));
        }
        if depths.reads == 0 {
            return wrong("no reads under way; take 1 or more".to_owned());
        }
        for words in [depths.landing_words, depths.staging_words] {
            if !(64..=1 << 27).contains(&words) {
                return wrong(format!("buffers of {words} words; take 64 to 128 Mi"));
            }
        }
        if depths.signal_every == 0 || depths.signal_every > depths.sends / 4 {
            return wrong(format!(
                "a signal with every {} writes of {}; take 1 to a quarter",
                depths.signal_every, depths.sends
            ));
        }
        Ok(())
    }

    /// Returns the code of the shortest time-out for acknowledgements that is not below
    /// `dead_after`.
    pub(super) fn timeout_code(&self) -> u8 {
        // The device counts in units of 4.096 µs, doubled this many times.
        let whole = |code: u32| Duration::from_nanos((4096 << code) * u64::from(TRIES));
        let code = (1..31).find(|code| whole(*code) >= self.dead_after);
        code.unwrap_or(31) as u8
    }
}

/// Returns the code for this number of bytes of a packet.
pub(super) fn mtu_code(bytes: u32) -> Option<u8> {
    (1..=5).find(|code| mtu_bytes(*code) == bytes)
}

/// Returns the bytes of a packet for a code.
pub(super) fn mtu_bytes(code: u8) -> u32 {
    128 << code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_agree_with_themselves() {
        assert!(VerbsOptions::default().check().is_ok());
    }

    #[test]
    fn what_cannot_be_is_named() {
        type Change = fn(&mut VerbsOptions);
        let cases: [(Change, &str); 8] = [
            (|o| o.port = Some(0), "from 1"),
            (|o| o.mtu = Some(1500), "1500"),
            (|o| o.dead_after = Duration::ZERO, "0ns"),
            (|o| o.depths.sends = 4, "4 sends"),
            (|o| o.depths.reads = 0, "no reads"),
            (|o| o.depths.landing_words = 8, "8 words"),
            (|o| o.depths.staging_words = 1 << 30, "words"),
            (|o| o.depths.signal_every = 65, "65 writes of 256"),
        ];
        for (change, expected) in cases {
            let mut options = VerbsOptions::default();
            change(&mut options);
            let error = options.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn time_is_counted_as_the_device_does() {
        let code = |millis| {
            let dead_after = Duration::from_millis(millis);
            let options = VerbsOptions {
                dead_after,
                ..VerbsOptions::default()
            };
            options.timeout_code()
        };
        // 4.096 µs · 2^17 · 7 = 3.76 s.
        assert_eq!(code(3758), 17);
        assert_eq!(code(3759), 18);
        assert_eq!(code(1), 6);
        assert_eq!(code(600_000), 25);
    }

    #[test]
    fn packets_have_five_sizes() {
        let codes: Vec<_> = (0..=8192).filter_map(mtu_code).collect();
        assert_eq!(codes, [1, 2, 3, 4, 5]);
        assert_eq!(mtu_bytes(3), 1024);
    }
}
