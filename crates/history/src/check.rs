//! The checkers: pure functions from a history to a [`Verdict`].
//!
//! They build the direct serialization graph: transactions are its nodes, and an edge says that one
//! must come before another in every serial order that explains the answers that they saw.
//!
//! | edge | from | to |
//! |---|---|---|
//! | ww | the writer of a version | the writer of the next version of that key |
//! | wr | the writer of a version | its reader |
//! | rw | the reader of a version, or a scan that missed it | the writer of the next version |
//! | rt | a transaction that ended … | … before this one began (strict serializability only) |
//!
//! A history is serializable if and only if the graph has no cycle. A delete writes a version too,
//! an absence; so that absences, read or noticed in a scan, give edges like values do.
//!
//! | module | what |
//! |---|---|
//! | `facts` | the transactions that count, and their writes |
//! | `reads` | their reads; anomalies that need no graph |
//! | `order` | the order of each key's versions: known, or to be inferred |
//! | `inference`, `execution` | a serial execution that settles the facts that were not recorded |
//! | `edges` | the graph from facts and orders |
//! | `graph` | cycles: Tarjan's components, then a shortest cycle in one |
//! | `evidence` | a cycle's name and evidence |
//! | `atomic` | read atomicity, which has a graph of its own |
//!
//! The recorded facts determine most: values are unique, so that wr is known, and a transaction
//! that reads a key before it writes it shows which version it replaced. Without recorded versions
//! two things are not known: the order of writes that did not read, and which of several absences
//! of a key a read saw. Then `inference` looks for one consistent choice. Its acceptance is proven, by
//! the order that it found; its rejection rests on a choice only if [`Violation::certain`] is
//! false.
//!
//! All checkers are near-linear in the operations recorded and in the absences that scans noticed.
//!
//! [`Violation::certain`]: crate::Violation::certain

mod atomic;
mod edges;
mod evidence;
mod execution;
mod facts;
mod graph;
mod inference;
mod order;
mod reads;

use std::str::FromStr;

use crate::model::History;
use crate::verdict::Verdict;
use edges::{RealTimeEdges, certain_edges, full_edges};
use facts::{HistoryFacts, UnknownDeletes};
use order::VersionOrders;

/// Accepts the history if a serial order of the committed transactions explains what they saw.
#[must_use]
pub fn serializable(history: &History) -> Verdict {
    judge(history, |facts| serial(facts, RealTimeEdges::Ignored))
}

/// Accepts the history if a serial order explains what was seen in which every transaction takes
/// effect between its start and its end.
#[must_use]
pub fn strictly_serializable(history: &History) -> Verdict {
    judge(history, |facts| serial(facts, RealTimeEdges::Respected))
}

/// Accepts the history if every transaction saw all of another transaction's writes or none, and no
/// uncommitted ones. The order in which they saw them is not judged.
#[must_use]
pub fn read_atomic(history: &History) -> Verdict {
    judge(history, atomic::check)
}

/// Accepts the history if it is read atomic and every key by itself is linearizable: no
/// acknowledged write is missed by a transaction that began later, and transactions of one key see
/// the newest state. Reads of several keys need only that: they may see writes that other
/// transactions do not see yet.
#[must_use]
pub fn strictly_read_atomic(history: &History) -> Verdict {
    judge(history, atomic::check_strictly)
}

/// The guarantees that a checker can judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// See [`serializable`].
    Serializable,
    /// See [`strictly_serializable`].
    StrictlySerializable,
    /// See [`read_atomic`].
    ReadAtomic,
    /// See [`strictly_read_atomic`].
    StrictlyReadAtomic,
}

impl Guarantee {
    /// All guarantees.
    pub const ALL: [Guarantee; 4] = [
        Guarantee::Serializable,
        Guarantee::StrictlySerializable,
        Guarantee::ReadAtomic,
        Guarantee::StrictlyReadAtomic,
    ];

    /// Returns the name, as users type it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::Serializable => "serializable",
            Guarantee::StrictlySerializable => "strictly-serializable",
            Guarantee::ReadAtomic => "read-atomic",
            Guarantee::StrictlyReadAtomic => "strictly-read-atomic",
        }
    }

    /// Judges the history by this guarantee.
    #[must_use]
    pub fn judge(self, history: &History) -> Verdict {
        match self {
            Guarantee::Serializable => serializable(history),
            Guarantee::StrictlySerializable => strictly_serializable(history),
            Guarantee::ReadAtomic => read_atomic(history),
            Guarantee::StrictlyReadAtomic => strictly_read_atomic(history),
        }
    }
}

/// The error for a name that is not the name of a guarantee; give one of the names in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is no guarantee; there are {}", Guarantee::ALL.map(Guarantee::name).join(", "))]
pub struct UnknownGuarantee {
    name: String,
}

impl FromStr for Guarantee {
    type Err = UnknownGuarantee;

    fn from_str(name: &str) -> Result<Guarantee, UnknownGuarantee> {
        let mut all = Guarantee::ALL.into_iter();
        let found = all.find(|guarantee| guarantee.name() == name);
        found.ok_or_else(|| UnknownGuarantee {
            name: name.to_owned(),
        })
    }
}

/// Judges the history twice if needed. Deletes of unknown outcome leave no value by which to see if
/// they happened, so both cases are tried: that none has happened, and that all have that can.
fn judge(history: &History, check: impl Fn(&HistoryFacts<'_>) -> Verdict) -> Verdict {
    let attempt = |unseen| match reads::gather(history, unseen) {
        Ok(facts) => (check(&facts), facts.has_unseen()),
        Err(verdict) => (verdict, false),
    };
    let (verdict, has_unseen) = attempt(UnknownDeletes::Dropped);
    if has_unseen && matches!(verdict, Verdict::Violated(_)) {
        let (second, _) = attempt(UnknownDeletes::Counted);
        if second.is_accepted() {
            return second;
        }
    }
    verdict
}

fn serial(facts: &HistoryFacts<'_>, time: RealTimeEdges) -> Verdict {
    let orders = match VersionOrders::known(facts) {
        Ok(orders) => orders,
        Err(verdict) => return verdict,
    };
    let certain = certain_edges(facts, &orders, time);
    if let Some(cycle) = certain.find_cycle(facts) {
        // A cycle that needs no real time says more.
        let timeless = match time {
            RealTimeEdges::Ignored => None,
            _ => certain_edges(facts, &orders, RealTimeEdges::Ignored).find_cycle(facts),
        };
        return evidence::violation(facts, &timeless.unwrap_or(cycle));
    }
    if orders.are_complete(facts) {
        return Verdict::Accepted;
    }
    infer_and_check(facts, &orders, time)
}

/// Chooses the orders that are not known. A store usually respects real time, which narrows the
/// choice; so real time guides the first attempts even if it need not be respected.
fn infer_and_check(
    facts: &HistoryFacts<'_>,
    known: &VersionOrders,
    time: RealTimeEdges,
) -> Verdict {
    let guides = match time {
        RealTimeEdges::Respected => &[RealTimeEdges::Respected][..],
        _ => &[
            RealTimeEdges::Respected,
            RealTimeEdges::OfWriters,
            RealTimeEdges::Ignored,
        ],
    };
    let mut found = None;
    for &guide in guides {
        let orders = inference::infer(facts, known, &certain_edges(facts, known, guide));
        let graph = full_edges(facts, known, &orders, time);
        let Some(cycle) = graph.find_cycle(facts) else {
            return Verdict::Accepted;
        };
        found.get_or_insert(cycle);
    }
    evidence::violation(
        facts,
        &found.expect("there was a guide, and it led to a cycle"),
    )
}
