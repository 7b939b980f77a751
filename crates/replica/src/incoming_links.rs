//! Links that other members have made to this one, and copies of a member among them.
//!
//! A member sends on one link at a time. When it makes another one, because the last link broke or
//! its process was started again, nothing more comes on the earlier link. So if messages go on
//! coming on the earlier link after a later one was made, a second process takes part as the same
//! member, with a copy of its data. This must not happen: the copy would acknowledge and vote a
//! second time.
//!
//! | link | messages | until |
//! |---|---|---|
//! | in use | are taken | it breaks, or is replaced |
//! | later | are dropped: Raft expects that messages are lost | the link in use breaks, or a probation ends |
//!
//! When the probation ends, the later link is refused if a message came on the link in use in the
//! second half of the probation. Otherwise the later link takes its place. Messages that the
//! machine still holds of a dead link come before that.

use std::time::Duration;

use base::NodeId;
use fabric::Link;
use hashbrown::HashMap;

struct LinkInUse {
    link: Link,
    /// The time at which a message last came on it.
    heard: Duration,
}

struct LaterLink {
    link: Link,
    node: NodeId,
    since: Duration,
}

/// A link that is to be closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkToClose {
    /// Another link has taken its place.
    Replaced(Link),
    /// The link of a second process that takes part as this node.
    Copy(Link, NodeId),
}

/// See the module's description.
pub(crate) struct IncomingLinks {
    in_use: HashMap<NodeId, LinkInUse>,
    later: Vec<LaterLink>,
    probation: Duration,
}

impl IncomingLinks {
    /// Makes an empty set of links. A live member sends a message several times in a `probation`.
    pub(crate) fn new(probation: Duration) -> IncomingLinks {
        IncomingLinks {
            in_use: HashMap::new(),
            later: Vec::new(),
            probation,
        }
    }

    /// Notes that a node has made a link.
    pub(crate) fn up(&mut self, node: NodeId, link: Link, now: Duration) {
        if self.in_use.contains_key(&node) {
            let since = now;
            self.later.push(LaterLink { link, node, since });
        } else {
            self.in_use.insert(node, LinkInUse { link, heard: now });
        }
    }

    /// Notes that a link is down.
    pub(crate) fn down(&mut self, link: Link, now: Duration) {
        self.later.retain(|later| later.link != link);
        let in_use = self.in_use.iter().find(|(_, one)| one.link == link);
        if let Some(node) = in_use.map(|(node, _)| *node) {
            self.in_use.remove(&node);
            if let Some(at) = self.later.iter().position(|later| later.node == node) {
                let link = self.later.remove(at).link;
                self.in_use.insert(node, LinkInUse { link, heard: now });
            }
        }
    }

    /// Returns `true` if a message that has come is to be taken.
    pub(crate) fn takes(&mut self, node: NodeId, link: Link, now: Duration) -> bool {
        if let Some(one) = self.in_use.get_mut(&node).filter(|one| one.link == link) {
            one.heard = now;
        }
        !self.later.iter().any(|later| later.link == link)
    }

    /// Returns the links whose probation has shown that they are to be closed.
    pub(crate) fn decide(&mut self, now: Duration) -> Vec<LinkToClose> {
        let (probation, in_use) = (self.probation, &mut self.in_use);
        let ended = self
            .later
            .extract_if(.., |later| now >= later.since + probation);
        let decide = |later: LaterLink| {
            let one = in_use
                .get_mut(&later.node)
                .expect("it precedes a later one");
            if one.heard >= later.since + probation / 2 {
                LinkToClose::Copy(later.link, later.node)
            } else {
                one.heard = now;
                LinkToClose::Replaced(std::mem::replace(&mut one.link, later.link))
            }
        };
        ended.map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);
    const FIRST: Link = Link(1);
    const SECOND: Link = Link(2);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn two() -> IncomingLinks {
        let mut links = IncomingLinks::new(at(1000));
        links.up(NODE, FIRST, at(0));
        links.up(NODE, SECOND, at(5000));
        links
    }

    #[test]
    fn a_later_link_is_refused_while_the_one_in_use_is_heard() {
        let mut links = two();
        assert!(links.takes(NODE, FIRST, at(5600)));
        assert!(!links.takes(NODE, SECOND, at(5700)));
        assert_eq!(links.decide(at(5999)), []);
        assert_eq!(links.decide(at(6000)), [LinkToClose::Copy(SECOND, NODE)]);
        assert!(links.takes(NODE, FIRST, at(6100)));
    }

    #[test]
    fn a_later_link_replaces_one_of_which_only_the_rest_comes() {
        let mut links = two();
        assert!(links.takes(NODE, FIRST, at(5010)));
        assert_eq!(links.decide(at(6000)), [LinkToClose::Replaced(FIRST)]);
        assert!(links.takes(NODE, SECOND, at(6001)));
    }

    #[test]
    fn a_later_link_is_taken_at_once_when_the_one_in_use_breaks() {
        let mut links = two();
        links.down(FIRST, at(5001));
        assert!(links.takes(NODE, SECOND, at(5002)));
        links.down(SECOND, at(5003));
        links.up(NODE, FIRST, at(5004));
        assert!(links.takes(NODE, FIRST, at(5005)));
        assert_eq!(links.decide(at(9000)), []);
    }
}
