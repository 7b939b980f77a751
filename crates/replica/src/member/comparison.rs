//! Compares the states of the members, so that a member that has lost or altered data is found
//! before it leads.
//!
//! From time to time the leader names the last entry of its log. Each member hashes the state that
//! it has when it has applied exactly this entry, in the background, and the leader compares the
//! hashes. A difference is reported, with the members that are in the minority; nothing is
//! repaired.

use std::collections::BTreeMap;
use std::time::Duration;

use base::NodeId;

use super::context::{MemberContext, RaftNode};
use super::state_hash::StateHasher;
use crate::messages::MemberMessage;
use crate::status::node_of;

/// A leader begins its first comparison after this fraction of the interval.
const FIRST: u32 = 10;
/// Hashing takes at most about one part in `SHARE` of the time.
const SHARE: u32 = 50;

/// The leader's comparisons; empty while this member does not lead.
#[derive(Debug, Default)]
pub(super) struct StateComparison {
    /// The time at which the next one begins.
    next: Option<Duration>,
    round: Option<ComparisonRound>,
    /// The number of comparisons that this member has completed since it leads.
    completed: u64,
    /// The difference that the last comparison has found, if there was one.
    difference: Option<String>,
}

/// A comparison that this leader has begun.
#[derive(Debug)]
struct ComparisonRound {
    index: u64,
    begun: Duration,
    /// The number of members that were asked.
    asked: usize,
    hashes: BTreeMap<NodeId, u64>,
}

impl StateComparison {
    /// Returns the number of comparisons that this member has completed since it leads.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the difference that the last comparison has found, if there was one.
    pub(super) fn difference(&self) -> Option<&String> {
        self.difference.as_ref()
    }

    /// Sends a hash that has been computed to the leader that has asked for it and, as the leader,
    /// ends or begins a comparison if it is time. `applied` is the last applied entry.
    pub(super) fn run(
        &mut self,
        context: &mut MemberContext,
        raft: &RaftNode,
        hasher: &mut StateHasher,
        applied: u64,
    ) {
        let now = context.now.since;
        if let Some(finished) = hasher.take(now) {
            self.postpone(now, finished.took);
            let (index, to) = (finished.index, finished.asked_by);
            match finished.result {
                Ok(hash) if to == context.options.me => self.note_hash(to, index, hash),
                Ok(hash) => context.send(to, &MemberMessage::StateHashReply { index, hash }),
                Err(error) => {
                    tracing::error!("the state was not compared with that of others: {error}");
                }
            }
        }
        hasher.forget_outdated(applied);
        self.advance(context, raft, hasher, applied);
    }

    /// Ends or begins a comparison if it is time. `applied` is the last applied entry.
    fn advance(
        &mut self,
        context: &mut MemberContext,
        raft: &RaftNode,
        hasher: &mut StateHasher,
        applied: u64,
    ) {
        let every = context.options.compare;
        if every.is_zero() {
            return;
        }
        if !context.shared.tickets.is_serving() {
            let former = std::mem::take(self);
            context.changed |= former.difference.is_some();
            return;
        }
        let now = context.now.since;
        let next = *self.next.get_or_insert(now + every / FIRST);
        if let Some(round) = &self.round {
            let is_over = now >= round.begun + every;
            if round.hashes.len() == round.asked || is_over {
                self.end(context);
            }
        } else if now >= next {
            self.begin(context, raft, hasher, applied);
        }
    }

    /// Asks all members for the hash of their state at the last entry of the log.
    fn begin(
        &mut self,
        context: &mut MemberContext,
        raft: &RaftNode,
        hasher: &mut StateHasher,
        applied: u64,
    ) {
        let raft = &raft.raft;
        let index = raft.raft_log.last_index();
        let members: Vec<NodeId> = raft.prs().iter().map(|(id, _)| node_of(*id)).collect();
        self.next = Some(context.now.since + context.options.compare);
        if members.len() < 2 || hasher.is_running() {
            return;
        }
        self.round = Some(ComparisonRound {
            index,
            begun: context.now.since,
            asked: members.len(),
            hashes: BTreeMap::new(),
        });
        for node in members {
            context.send(node, &MemberMessage::StateHashRequest { index });
        }
        let me = context.options.me;
        hasher.request(context, index, me, applied);
    }

    /// Puts the next comparison off, because hashing took so long.
    fn postpone(&mut self, now: Duration, took: Duration) {
        if let Some(next) = &mut self.next {
            *next = (*next).max(now + took * SHARE);
        }
    }

    /// Takes the hash of a member's state at the entry `index`.
    pub(super) fn note_hash(&mut self, from: NodeId, index: u64, hash: u64) {
        let round = self.round.as_mut();
        if let Some(round) = round.filter(|round| round.index == index) {
            round.hashes.insert(from, hash);
        }
    }

    fn end(&mut self, context: &mut MemberContext) {
        let Some(round) = self.round.take() else {
            return;
        };
        if round.hashes.len() < 2 {
            return;
        }
        self.completed += 1;
        let difference = difference(round.index, &round.hashes);
        match (&difference, &self.difference) {
            (Some(what), _) => tracing::error!("{what}"),
            (None, Some(_)) => tracing::info!("the members have the same state again"),
            (None, None) => tracing::debug!(index = round.index, "the members have the same state"),
        }
        context.changed |= difference != self.difference;
        self.difference = difference;
    }
}

/// Describes the difference between these hashes; returns `None` if they are equal.
fn difference(index: u64, hashes: &BTreeMap<NodeId, u64>) -> Option<String> {
    let mut with: BTreeMap<u64, Vec<NodeId>> = BTreeMap::new();
    for (node, hash) in hashes {
        with.entry(*hash).or_default().push(*node);
    }
    if with.len() < 2 {
        return None;
    }
    let mut groups: Vec<Vec<NodeId>> = with.into_values().collect();
    groups.sort_by_key(|nodes| std::cmp::Reverse(nodes.len()));
    let named = |nodes: &[NodeId]| {
        let nodes: Vec<String> = nodes.iter().map(|node| format!("node {node}")).collect();
        nodes.join(" and ")
    };
    let majority = groups.remove(0);
    if 2 * majority.len() <= hashes.len() {
        return Some(format!(
            "the members' states differ at entry {index}, and no majority of them has the same: keep the \
             data directories of all nodes, and compare what they hold"
        ));
    }
    let others = groups.concat();
    Some(format!(
        "the state of {} differs from that of {} at entry {index}. One node after the other: stop it, keep a \
         copy of its data directory for an analysis and delete the directory, start it again, and run \
         \"kumiki cluster add --node N\"",
        named(&others),
        named(&majority),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(hashes: &[(u16, u64)]) -> Option<String> {
        let hashes = hashes.iter().map(|(node, hash)| (NodeId(*node), *hash));
        difference(77, &hashes.collect())
    }

    #[test]
    fn the_minority_is_named() {
        assert_eq!(found(&[(1, 5), (2, 5), (3, 5)]), None);
        let one = found(&[(1, 5), (2, 6), (3, 5)]).unwrap();
        assert!(
            one.contains("of node 2 differs from that of node 1 and node 3 at entry 77"),
            "{one}"
        );
        for even in [&[(1, 5), (2, 6)][..], &[(1, 5), (2, 6), (3, 7)]] {
            let even = found(even).unwrap();
            assert!(even.contains("no majority"), "{even}");
        }
    }
}
