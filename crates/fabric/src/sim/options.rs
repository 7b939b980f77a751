//! The options of a network.

use std::ops::Range;
use std::time::Duration;

/// The behaviour of the network by itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// The delay of a message.
    pub delay: Range<Duration>,
    /// The share of messages that take `slow_delay` instead.
    pub slow_share: f64,
    /// The delay of those messages.
    pub slow_delay: Range<Duration>,
    /// The share of messages at which the connection breaks.
    pub breaks: f64,
    /// The share of crashes that take the machine with them: the peers are not informed.
    pub silent_crashes: f64,
    /// The silence of a peer after which a link goes down: between this and 1.2 times as long.
    pub dead_after: Duration,
    /// The greatest time for connecting.
    pub connect_limit: Duration,
    /// Bytes that may wait to be sent on a link, or be in transit; a single message may be longer.
    pub queue: usize,
    /// Bytes of the longest message.
    pub message: usize,
}

impl Default for Options {
    /// Returns the options of a calm network: messages take 20 to 200 µs, nothing breaks.
    fn default() -> Options {
        Options {
            delay: Duration::from_micros(20)..Duration::from_micros(200),
            slow_share: 0.0,
            slow_delay: Duration::from_millis(1)..Duration::from_millis(50),
            breaks: 0.0,
            silent_crashes: 0.0,
            dead_after: Duration::from_secs(10),
            connect_limit: Duration::from_secs(5),
            queue: 1 << 20,
            message: 1 << 30,
        }
    }
}
