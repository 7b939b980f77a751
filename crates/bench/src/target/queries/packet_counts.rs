//! Packets at the nodes, as their sockets count them, read by `ss` of Linux's iproute2.

use std::net::SocketAddr;
use std::process::Command;

/// The counters of the sockets of some listeners' connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketCounts {
    /// Segments in both directions, acknowledgements included.
    all: u64,
    /// Segments with data that came.
    requests: u64,
}

impl PacketCounts {
    /// Returns the counters of connections that these have accepted; `None` if they cannot be read.
    pub(super) fn at(listeners: &[SocketAddr]) -> Option<PacketCounts> {
        let ports = listeners.iter().map(|at| format!("sport = :{}", at.port()));
        let ports: Vec<String> = ports.collect();
        let filter = format!("( {} )", ports.join(" or "));
        let mut command = Command::new("ss");
        command.args(["-tinHO", "state", "established", &filter]);
        let output = command.output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        // There may be no connection yet, which is no failure.
        output.status.success().then(|| PacketCounts::read(&text))
    }

    fn read(text: &str) -> PacketCounts {
        let sum = |name: &str| {
            let words = text.split_whitespace();
            let counts = words.filter_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
            counts.sum::<u64>()
        };
        PacketCounts {
            all: sum("segs_out:") + sum("segs_in:"),
            requests: sum("data_segs_in:"),
        }
    }

    /// Returns the increase since an earlier time: of all, and of requests.
    pub(super) fn since(self, before: PacketCounts) -> [u64; 2] {
        [
            self.all.saturating_sub(before.all),
            self.requests.saturating_sub(before.requests),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_all_connections() {
        let line = |segments: u64| {
            format!(
                "0 0 127.0.0.1:7001 127.0.0.1:40000 cubic rto:200 segs_out:{segments} segs_in:7 \
                 data_segs_out:2 data_segs_in:3 send 1Mbps\n"
            )
        };
        let packets = PacketCounts::read(&(line(10) + &line(100)));
        let expected = PacketCounts {
            all: 124,
            requests: 6,
        };
        assert_eq!(packets, expected);
        assert_eq!(packets.since(PacketCounts::read(&line(10))), [107, 3]);
    }
}
