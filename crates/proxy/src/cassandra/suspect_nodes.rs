//! Nodes that have failed, and are avoided while others can be asked.
//!
//! A node is avoided for a second after it has failed, and for twice as long each time that it fails
//! again before it has answered anything, up to [`LONGEST`]. After that it is avoided as long as its
//! connections are lost: they are made again by themselves, so no request waits in vain to find out
//! that the node is still away.

use std::sync::Arc;
use std::time::Duration;

use crate::nodes::Nodes;
use crate::runtime::query::NodeIndex;

/// How long a node is avoided after its first failure.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// A node's failures since its last answer.
#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    until: Duration,
    /// Zero: it has not failed.
    pause: Duration,
}

/// See the module documentation. Times are since the proxy's start.
#[derive(Debug)]
pub(crate) struct SuspectNodes {
    nodes: Arc<Nodes>,
    failed: Vec<Failed>,
}

impl SuspectNodes {
    pub(crate) fn new(nodes: Arc<Nodes>) -> SuspectNodes {
        let failed = Vec::new();
        SuspectNodes { nodes, failed }
    }

    /// Records that a request has failed because of the node.
    pub(crate) fn has_failed(&mut self, node: NodeIndex, now: Duration) {
        let at = node.0 as usize;
        if self.failed.len() <= at {
            self.failed.resize(at + 1, Failed::default());
        }
        let failed = &mut self.failed[at];
        // Many requests fail at once when a connection is lost.
        if failed.pause.is_zero() || now >= failed.until {
            failed.pause = (failed.pause * 2).clamp(FIRST, LONGEST);
            failed.until = now + failed.pause;
        }
    }

    /// Records that the node has answered.
    pub(crate) fn has_answered(&mut self, node: NodeIndex) {
        if let Some(failed) = self.failed.get_mut(node.0 as usize) {
            *failed = Failed::default();
        }
    }

    pub(crate) fn avoids(&self, node: NodeIndex, now: Duration) -> bool {
        let Some(failed) = self.failed.get(node.0 as usize) else {
            return false;
        };
        if failed.pause.is_zero() {
            return false;
        }
        now < failed.until || self.nodes.figures(node).now().is_cut_off()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::BackendFigures;
    use crate::node_figures::NodeConnectionState;
    use std::net::SocketAddr;

    fn suspects() -> (SuspectNodes, Arc<Nodes>, NodeIndex) {
        let nodes = Arc::new(Nodes::default());
        let node = nodes.place(SocketAddr::from(([127, 0, 0, 1], 1)));
        (SuspectNodes::new(Arc::clone(&nodes)), nodes, node)
    }

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_node_that_fails_again_is_avoided_for_longer() {
        let (mut suspects, _, node) = suspects();
        assert!(!suspects.avoids(node, seconds(0)));
        let mut now = seconds(100);
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            for _ in 0..1000 {
                suspects.has_failed(node, now);
            }
            let almost = now + seconds(pause) - Duration::from_millis(1);
            assert!(suspects.avoids(node, almost), "{pause}");
            now += seconds(pause);
            assert!(!suspects.avoids(node, now), "{pause}");
        }
        suspects.has_failed(node, now);
        suspects.has_answered(node);
        assert!(!suspects.avoids(node, now));
        suspects.has_failed(node, now);
        assert!(!suspects.avoids(node, now + seconds(1)));
    }

    #[test]
    fn a_node_is_avoided_until_a_connection_to_it_is_up() {
        let (mut suspects, nodes, node) = suspects();
        let figures = BackendFigures::new(0, Arc::clone(&nodes));
        let see = |connections, awaited| {
            let now = NodeConnectionState {
                connections,
                awaited,
                ..NodeConnectionState::default()
            };
            figures.set(node, now);
        };
        suspects.has_failed(node, seconds(10));
        see(0, 1);
        assert!(suspects.avoids(node, seconds(10_000)));
        // Where no connection is retried by itself, a request must try it.
        see(0, 0);
        assert!(!suspects.avoids(node, seconds(10_000)));
        see(1, 1);
        assert!(suspects.avoids(node, Duration::from_millis(10_500)));
        assert!(!suspects.avoids(node, seconds(11)));
    }
}
