//! Compares the states of the members, so that a member that has lost or altered data is found
//! before it leads.
//!
//! From time to time the leader names the last entry of its log. Each member hashes the state that
//! it has when it has applied exactly this entry, in the background, and the leader compares the
//! hashes. A difference is reported, with the members that are in the minority; nothing is
//! repaired.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use engine::NoLog;

use super::Member;
use super::job::{Job, Outcome};
use crate::messages::Envelope;
use crate::status::node_of;

/// A leader begins its first comparison after this fraction of the interval.
const FIRST: u32 = 10;
/// Hashing takes at most about one part in `SHARE` of the time.
const SHARE: u32 = 50;

/// See the module's description.
#[derive(Default)]
pub(super) struct Comparison {
    /// The time at which the leader begins the next one; `None` if this member does not lead.
    next: Option<Duration>,
    round: Option<Round>,
    /// The entry at which the state is to be hashed, and the node that asked for it.
    wanted: Option<(u64, NodeId)>,
    hashing: Option<Hashing>,
    /// The number of comparisons that this member has led to their end.
    compared: u64,
    /// The difference that the last comparison has found, if there was one.
    difference: Option<String>,
}

/// A comparison that this leader has begun.
struct Round {
    index: u64,
    begun: Duration,
    /// The number of members that were asked.
    asked: usize,
    hashes: BTreeMap<NodeId, u64>,
}

struct Hashing {
    index: u64,
    asked_by: NodeId,
    begun: Duration,
    outcome: Outcome<u64>,
}

impl Member {
    /// Goes on with the comparison.
    pub(super) fn compare(&mut self) {
        self.take_hash();
        let wanted = self.comparison.wanted;
        if wanted.is_some_and(|(index, _)| index < self.applied) {
            // A snapshot was loaded.
            self.comparison.wanted = None;
        }
        let every = self.options.compare;
        if every.is_zero() {
            return;
        }
        if !self.shared.tickets.is_serving() {
            let kept = std::mem::take(&mut self.comparison);
            self.comparison.wanted = kept.wanted;
            self.comparison.hashing = kept.hashing;
            self.changed |= kept.difference.is_some();
            return;
        }
        let first = self.now.since + every / FIRST;
        let next = *self.comparison.next.get_or_insert(first);
        if let Some(round) = &self.comparison.round {
            let is_over = self.now.since >= round.begun + every;
            if round.hashes.len() == round.asked || is_over {
                self.end_comparison();
            }
        } else if self.now.since >= next {
            self.begin_comparison();
        }
    }

    /// Asks all members, as the leader, for the hash of their state at the last entry of the log.
    fn begin_comparison(&mut self) {
        let raft = &self.raft.as_ref().expect("it takes part").raft;
        let index = raft.raft_log.last_index();
        let members: Vec<NodeId> = raft.prs().iter().map(|(id, _)| node_of(*id)).collect();
        self.comparison.next = Some(self.now.since + self.options.compare);
        if members.len() < 2 || self.comparison.hashing.is_some() {
            return;
        }
        self.comparison.round = Some(Round {
            index,
            begun: self.now.since,
            asked: members.len(),
            hashes: BTreeMap::new(),
        });
        for node in members {
            self.send(node, &Envelope::Compare { index });
        }
        self.want_hash(index, self.options.me);
    }

    /// Takes the leader's question for the hash of the state at an entry.
    pub(super) fn on_compare(&mut self, from: NodeId, index: u64) {
        let leader = self.raft.as_ref().map(|raft| raft.raft.leader_id);
        if leader.is_some_and(|leader| node_of(leader) == from) && index >= self.applied {
            self.want_hash(index, from);
        }
    }

    fn want_hash(&mut self, index: u64, asked_by: NodeId) {
        if self.comparison.hashing.is_none() {
            self.comparison.wanted = Some((index, asked_by));
            self.hash_if_wanted();
        }
    }

    /// Hashes the state if it is the one at the entry for which a hash is wanted.
    pub(super) fn hash_if_wanted(&mut self) {
        let wanted = self.comparison.wanted;
        let Some((index, asked_by)) = wanted.filter(|(index, _)| *index == self.applied) else {
            return;
        };
        self.comparison.wanted = None;
        let snapshot = self.shared.engine.snapshot();
        debug_assert_eq!(snapshot.epoch().0, index);
        let sessions = self.shared.sessions.lock().encode();
        let outcome = Outcome::default();
        self.comparison.hashing = Some(Hashing {
            index,
            asked_by,
            begun: self.now.since,
            outcome: Arc::clone(&outcome),
        });
        let engine = Arc::clone(&self.shared.engine);
        let job = Job::new(outcome, Arc::clone(&self.shared));
        (self.spawn)(Box::new(move || {
            job.run(|| {
                let mut worker = engine.worker(|_| NoLog).expect("a place is kept for this");
                let state = worker.state_hash(&snapshot);
                Ok(state ^ u64::from(crc32c::crc32c(&sessions)))
            });
        }));
    }

    /// Takes the result of hashing, and sends the hash to the leader.
    fn take_hash(&mut self) {
        let hashing = self.comparison.hashing.as_ref();
        let Some(outcome) = hashing.and_then(|one| one.outcome.lock().take()) else {
            return;
        };
        let hashing = self.comparison.hashing.take().expect("looked at before");
        let took = self.now.since.saturating_sub(hashing.begun);
        if let Some(next) = &mut self.comparison.next {
            *next = (*next).max(self.now.since + took * SHARE);
        }
        match outcome {
            Ok(hash) if hashing.asked_by == self.options.me => {
                self.on_hash(self.options.me, hashing.index, hash);
            }
            Ok(hash) => {
                let index = hashing.index;
                self.send(hashing.asked_by, &Envelope::State { index, hash });
            }
            Err(why) => tracing::error!("the state was not compared with that of others: {why}"),
        }
    }

    /// Takes the hash of a member's state.
    pub(super) fn on_hash(&mut self, from: NodeId, index: u64, hash: u64) {
        let round = self.comparison.round.as_mut();
        if let Some(round) = round.filter(|round| round.index == index) {
            round.hashes.insert(from, hash);
        }
    }

    fn end_comparison(&mut self) {
        let Some(round) = self.comparison.round.take() else {
            return;
        };
        if round.hashes.len() < 2 {
            return;
        }
        self.comparison.compared += 1;
        let difference = difference(round.index, &round.hashes);
        match (&difference, &self.comparison.difference) {
            (Some(what), _) => tracing::error!("{what}"),
            (None, Some(_)) => tracing::info!("the members have the same state again"),
            (None, None) => tracing::debug!(index = round.index, "the members have the same state"),
        }
        self.changed |= difference != self.comparison.difference;
        self.comparison.difference = difference;
    }

    /// Returns the number of comparisons that this member has completed since it leads, and the
    /// difference that the last one has found.
    pub(super) fn compared(&self) -> (u64, Option<&String>) {
        let comparison = &self.comparison;
        (comparison.compared, comparison.difference.as_ref())
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
