//! Refused links: what was wrong with the last one to each node, and how often the log says so.
//!
//! Peers try again many times a second, and strangers as often as they like. The log gets one line a
//! minute for each address and reason, which counts those that it left out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use base::NodeId;

use crate::frame::Code;
use crate::handshake::Refused;

/// The log says the same of the same address after this time again.
const PAUSE: Duration = Duration::from_secs(60);
/// Addresses and reasons that are remembered. Beyond these the log says nothing, so that many addresses
/// cannot fill it.
const REMEMBERED: usize = 64;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    logged: HashMap<(IpAddr, Code), Logged>,
    nodes: HashMap<NodeId, Refused>,
}

#[derive(Debug)]
struct Logged {
    at: Duration,
    left_out: u64,
}

impl Refusals {
    /// Counts a refusal. Returns how many like it were left out since the last line, if the log should
    /// have a line now.
    pub(super) fn count(&mut self, from: IpAddr, code: Code, now: Duration) -> Option<u64> {
        let key = (from, code);
        if let Some(logged) = self.logged.get_mut(&key) {
            if now < logged.at + PAUSE {
                logged.left_out += 1;
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.left_out));
        }
        if self.logged.len() >= REMEMBERED {
            self.logged.retain(|_, logged| now < logged.at + PAUSE);
        }
        if self.logged.len() >= REMEMBERED {
            return None;
        }
        let logged = Logged {
            at: now,
            left_out: 0,
        };
        self.logged.insert(key, logged);
        Some(0)
    }

    /// Notes how the last link to a node has ended: with a refusal, or otherwise.
    pub(super) fn note(&mut self, node: NodeId, refused: Option<&Refused>) {
        match refused {
            Some(refused) => drop(self.nodes.insert(node, refused.clone())),
            None => drop(self.nodes.remove(&node)),
        }
    }

    /// Returns the refusal with which the last link to a node has ended, if it was one.
    pub(super) fn of(&self, node: NodeId) -> Option<&Refused> {
        self.nodes.get(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_one_line_a_minute_for_an_address_and_a_reason() {
        let mut refusals = Refusals::default();
        let [here, there] = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1])];
        let second = Duration::from_secs(1);
        assert_eq!(refusals.count(here, Code::Secret, second), Some(0));
        for _ in 0..1200 {
            assert_eq!(refusals.count(here, Code::Secret, 59 * second), None);
        }
        assert_eq!(refusals.count(here, Code::Cluster, 59 * second), Some(0));
        assert_eq!(refusals.count(there, Code::Secret, 59 * second), Some(0));
        assert_eq!(refusals.count(here, Code::Secret, 61 * second), Some(1200));
        assert_eq!(refusals.count(here, Code::Secret, 122 * second), Some(0));
    }

    #[test]
    fn many_addresses_do_not_fill_the_log() {
        let mut refusals = Refusals::default();
        let address = |at: u16| IpAddr::from([10, 0, (at >> 8) as u8, at as u8]);
        let lines = |refusals: &mut Refusals, now| {
            let counted = (0..1000).map(|at| refusals.count(address(at), Code::Garbage, now));
            counted.flatten().count()
        };
        assert_eq!(lines(&mut refusals, Duration::ZERO), REMEMBERED);
        assert_eq!(lines(&mut refusals, PAUSE / 2), 0);
        assert_eq!(lines(&mut refusals, PAUSE), REMEMBERED);
    }
}
