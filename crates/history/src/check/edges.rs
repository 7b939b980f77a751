//! Builds the graph from facts and orders.

use super::facts::{HistoryFacts, INITIAL, versions_of};
use super::graph::{EdgeKind, EdgeReason, SerializationGraph};
use super::order::{LAST, UNDECIDED, VersionOrders};

/// The use of real time for edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RealTimeEdges {
    Ignored,
    /// Among transactions that write; transactions that only read may have seen an old state.
    OfWriters,
    Respected,
}

/// Returns the edges that hold for every choice of the unknown orders.
pub(super) fn certain_edges(
    facts: &HistoryFacts<'_>,
    known: &VersionOrders,
    time: RealTimeEdges,
) -> SerializationGraph {
    full_edges(facts, known, known, time)
}

/// Returns the edges of `orders`; those that are not in `known` are marked as inferred.
pub(super) fn full_edges(
    facts: &HistoryFacts<'_>,
    known: &VersionOrders,
    orders: &VersionOrders,
    time: RealTimeEdges,
) -> SerializationGraph {
    let node = |version: u32| facts.versions[version as usize].node;
    let mut list = Vec::with_capacity(facts.versions.len() + 2 * facts.reads.len());
    let mut add = |from: u32, to: u32, kind: EdgeKind, inferred: bool, key: u32| {
        if from != to {
            list.push((from, to, EdgeReason::new(kind, inferred, key)));
        }
    };
    for (version, &next) in orders.next.iter().enumerate() {
        if next != LAST {
            let inferred = known.next[version] != next;
            let key = facts.versions[version].key;
            add(
                node(version as u32),
                node(next),
                EdgeKind::Ww,
                inferred,
                key,
            );
        }
    }
    for (i, (read, &saw)) in facts.reads.iter().zip(&orders.saw).enumerate() {
        let unsure = known.saw[i] == UNDECIDED;
        if saw != INITIAL && saw != UNDECIDED {
            add(node(saw), read.node, EdgeKind::Wr, unsure, read.key);
        }
        let next = orders.follows(read.key, saw);
        if next != LAST {
            let absent = saw == INITIAL || facts.versions[saw as usize].value.is_none();
            let kind = if read.scan && absent {
                EdgeKind::ScanRw
            } else {
                EdgeKind::Rw
            };
            let inferred = unsure || known.follows(read.key, saw) != next;
            add(read.node, node(next), kind, inferred, read.key);
        }
    }
    let transactions = facts.nodes.len() as u32;
    let nodes = match time {
        RealTimeEdges::Ignored => transactions,
        RealTimeEdges::Respected => real_time(facts, &mut list, |_| true),
        RealTimeEdges::OfWriters => {
            let versions_of = versions_of(facts);
            let writes = |node: u32| versions_of[node as usize] < versions_of[node as usize + 1];
            real_time(facts, &mut list, writes)
        }
    };
    SerializationGraph::new(transactions, nodes, &list)
}

/// Adds real time in linearly many edges: points in time follow each other; a transaction leads to
/// the first point after its end, and the last point before its start leads to it. Returns the
/// number of nodes.
fn real_time(
    facts: &HistoryFacts<'_>,
    list: &mut Vec<(u32, u32, EdgeReason)>,
    counts: impl Fn(u32) -> bool,
) -> u32 {
    let reason = EdgeReason::new(EdgeKind::Rt, false, 0);
    let count = facts.nodes.len() as u32;
    let nodes = || (0..count).filter(|&node| counts(node));
    let mut starts: Vec<(u64, u32)> = nodes()
        .map(|node| (facts.transaction(node).start, node))
        .collect();
    let mut ends: Vec<(u64, u32)> = nodes().map(|node| (facts.end(node), node)).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    // The newest point, and `true` if ends were added to it that no start has used yet.
    let mut point = count;
    let mut open = false;
    for (start, node) in starts {
        while let Some((_, ended)) = ends.next_if(|end| end.0 < start) {
            if !open {
                // Transactions that started before keep their edge from the older point.
                if point > count {
                    list.push((point - 1, point, reason));
                }
                point += 1;
                open = true;
            }
            list.push((ended, point - 1, reason));
        }
        if point > count {
            list.push((point - 1, node, reason));
            open = false;
        }
    }
    point
}
