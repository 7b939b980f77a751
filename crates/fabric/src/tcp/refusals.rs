//! Refused links: the reason of the last one to each node, and the limit on lines of the log about
//! them.
//!
//! Peers try again many times a second, and strangers as often as they like. The log gets one line a
//! minute for each address and reason, which counts those that it left out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use base::NodeId;
use base::log_limit::{LeftOut, LogLimit};

use crate::frame::RefusalCode;
use crate::handshake::HandshakeRefusal;

/// The pause until the log says the same about the same address again.
const PAUSE: Duration = Duration::from_secs(60);

/// See the module's description.
#[derive(Debug)]
pub(super) struct Refusals {
    logged: LogLimit<(IpAddr, RefusalCode)>,
    nodes: HashMap<NodeId, HandshakeRefusal>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals {
            logged: LogLimit::new(PAUSE),
            nodes: HashMap::new(),
        }
    }
}

impl Refusals {
    /// Counts a refusal. Returns how many like it were left out since the last line, if the log should
    /// have a line now.
    pub(super) fn count(
        &mut self,
        from: IpAddr,
        code: RefusalCode,
        now: Duration,
    ) -> Option<LeftOut> {
        self.logged.count((from, code), now)
    }

    /// Notes how the last link to a node has ended: with a refusal, or otherwise.
    pub(super) fn note(&mut self, node: NodeId, refused: Option<&HandshakeRefusal>) {
        match refused {
            Some(refused) => drop(self.nodes.insert(node, refused.clone())),
            None => drop(self.nodes.remove(&node)),
        }
    }

    /// Returns the refusal with which the last link to a node has ended, if it was one.
    pub(super) fn of(&self, node: NodeId) -> Option<&HandshakeRefusal> {
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
        assert_eq!(
            refusals.count(here, RefusalCode::Secret, second),
            Some(LeftOut(0))
        );
        for _ in 0..1200 {
            assert_eq!(refusals.count(here, RefusalCode::Secret, 59 * second), None);
        }
        assert_eq!(
            refusals.count(here, RefusalCode::Cluster, 59 * second),
            Some(LeftOut(0))
        );
        assert_eq!(
            refusals.count(there, RefusalCode::Secret, 59 * second),
            Some(LeftOut(0))
        );
        assert_eq!(
            refusals.count(here, RefusalCode::Secret, 61 * second),
            Some(LeftOut(1200))
        );
        assert_eq!(
            refusals.count(here, RefusalCode::Secret, 122 * second),
            Some(LeftOut(0))
        );
    }
}
