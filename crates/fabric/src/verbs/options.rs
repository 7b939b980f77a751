//! How an RDMA device is chosen and used, and why there is none.

use std::io;
use std::time::Duration;

/// How an RDMA device is chosen and used. The defaults work on InfiniBand and on RoCE v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    /// The library that is loaded.
    pub library: String,
    /// The device's name, as `ibv_devices` or `rdma link` shows it; the first one with a port that
    /// carries, if none.
    pub device: Option<String>,
    /// The port, from 1 on; the first one that carries, if none.
    pub port: Option<u8>,
    /// The place in the port's table of the global address that is used. If none: on InfiniBand,
    /// local addresses are used; on Ethernet, the first address of RoCE v2 that is an IPv4 address,
    /// then any of RoCE v2, then any.
    pub gid_index: Option<u8>,
    /// Bytes of a packet's content, 256 to 4096 in powers of two; what the port uses, if none. The
    /// smaller one of both sides is taken.
    pub mtu: Option<u32>,
    /// After about this time without a sign of life a connection is lost; up to four times as long
    /// with some devices. Between 1 ms and 10 minutes.
    pub dead_after: Duration,
    /// Sizes of a connection's queues and buffers.
    pub depths: Depths,
}

/// Sizes of a connection's queues and buffers. All memory of buffers is registered, hence locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Reads, writes and messages that may be under way; 8 to 32768.
    pub sends: u32,
    /// Messages that the peer may have sent and that were not received here; at most 16384. None
    /// for a connection that carries no messages; else 4 or more.
    pub receives: u32,
    /// Bytes of the memory for each of those; longer messages travel in pieces. A multiple of 8.
    pub receive_bytes: u32,
    /// Reads that the device has on its way at a time, and serves at a time; as many as it can, if
    /// that is less.
    pub reads: u8,
    /// Words of a region of a peer that can be on their way to here at a time; 64 or more. Longer
    /// reads are made in pieces.
    pub landing_words: usize,
    /// Words that are written or sent and not yet taken, 64 or more. Longer ones go in pieces.
    pub staging_words: usize,
    /// The device is asked to tell of every so many writes that they are complete; at most a
    /// quarter of `sends`.
    pub signal_every: u32,
    /// Bytes of the longest message, in either direction. A peer that sends a longer one is
    /// disconnected.
    pub message_bytes: usize,
}

impl Default for VerbsOptions {
    /// Any device, 4 s.
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
    /// 256 sends, 64 receives of 4 KiB, 16 reads, 64 KiB to land in, 256 KiB to send from, messages
    /// to 64 MiB.
    fn default() -> Depths {
        Depths {
            sends: 256,
            receives: 64,
            receive_bytes: 4096,
            reads: 16,
            landing_words: 8 << 10,
            staging_words: 32 << 10,
            signal_every: 32,
            message_bytes: 64 << 20,
        }
    }
}

/// Why there is no device to use; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum NoDevice {
    /// The options contradict themselves.
    #[error("verbs: {0}")]
    Options(String),
    /// The library is not there.
    #[error(
        "no RDMA device can be used, because libibverbs cannot be loaded ({error}); install it \
         with the part for your device (Debian: libibverbs1 and ibverbs-providers; Fedora: \
         libibverbs), or use another transport"
    )]
    Library {
        /// What the loader says.
        error: String,
    },
    /// The kernel does not know of such devices.
    #[error(
        "no RDMA device can be used, because the kernel offers none ({0}); load the modules of \
         the device and ib_uverbs, or use another transport"
    )]
    Kernel(io::Error),
    /// There is none.
    #[error(
        "there is no RDMA device; load the driver of your network card and install its part of \
         libibverbs (Debian: ibverbs-providers), make one in software (`rdma link add rxe0 type \
         rxe netdev eth0`), or use another transport"
    )]
    Missing,
    /// There is none of this name.
    #[error("there is no RDMA device {wanted}, but {}; name one of them", there.join(", "))]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: Vec<String>,
    },
    /// The system does not let it be opened.
    #[error(
        "the RDMA device {device} cannot be opened ({error}); look whether /dev/infiniband is \
         there and may be read and written"
    )]
    Open {
        /// Which one.
        device: String,
        /// What the system says.
        error: io::Error,
    },
    /// No port of it can be used.
    #[error("the RDMA device {device} cannot be used: {text}")]
    Port {
        /// Which one.
        device: String,
        /// What is wrong, and what to do.
        text: String,
    },
}

/// How often a packet is sent before its peer is given up. One more would be the device's greatest
/// number, which Soft-RoCE takes for ever.
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
        if depths.receives > 1 << 14 || (1..4).contains(&depths.receives) {
            return wrong(format!(
                "{} receives; take 0, or 4 to 16384",
                depths.receives
            ));
        }
        let bytes = depths.receive_bytes;
        if depths.receives > 0 && (!bytes.is_multiple_of(8) || !(64..=1 << 24).contains(&bytes)) {
            return wrong(format!(
                "receives of {bytes} bytes; take 64 to 16 Mi, a multiple of 8"
            ));
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

    /// The shortest time to wait for an acknowledgement with which `dead_after` is not undercut.
    pub(super) fn timeout_code(&self) -> u8 {
        // The device counts in 4.096 µs, doubled so often.
        let whole = |code: u32| Duration::from_nanos((4096 << code) * u64::from(TRIES));
        let code = (1..31).find(|code| whole(*code) >= self.dead_after);
        code.unwrap_or(31) as u8
    }
}

/// The number that stands for so many bytes of a packet.
pub(super) fn mtu_code(bytes: u32) -> Option<u8> {
    (1..=5).find(|code| mtu_bytes(*code) == bytes)
}

/// The bytes of a packet that a number stands for.
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
        let cases: [(Change, &str); 10] = [
            (|o| o.port = Some(0), "from 1"),
            (|o| o.mtu = Some(1500), "1500"),
            (|o| o.dead_after = Duration::ZERO, "0ns"),
            (|o| o.depths.sends = 4, "4 sends"),
            (|o| o.depths.receives = 3, "3 receives"),
            (|o| o.depths.receive_bytes = 100, "100 bytes"),
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
    fn a_connection_without_messages_needs_no_memory_for_them() {
        let mut options = VerbsOptions::default();
        (options.depths.receives, options.depths.receive_bytes) = (0, 0);
        assert!(options.check().is_ok());
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
