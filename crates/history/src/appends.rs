//! Lists to which transactions append: the order of the elements shows the order of the appends.
//!
//! A list says more than a register: a read shows every append before it, in order. The longest read of a
//! list has the order of its elements; appends whose answer, the length, lies behind that read come after it.
//! With the order known, a list is a register with versions, and [`crate::check`] does the rest:
//!
//! | operation | as a register |
//! |---|---|
//! | an append of an element at position *p* | a read of the element before, version *p*; a write, version *p* + 1 |
//! | a read of *n* elements | a read of the last one, version *n* |
//!
//! Rules, beside those of [`crate::model`]: no two appends to a list have the same element, and lists only grow.

use std::collections::HashMap;

use crate::check::strictly_serializable;
use crate::model::{History, HistoryOp, Names, Outcome, RecordedTransaction, Value};
use crate::verdict::Verdict;

/// An operation on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListOp {
    /// An element was added at the end.
    Append {
        /// The list's name.
        list: String,
        /// The element.
        value: Value,
        /// The list's length afterwards; `None` if the answer is missing.
        length: Option<u64>,
    },
    /// The whole list was read; an absent one has no elements.
    Read {
        /// The list's name.
        list: String,
        /// The elements, the oldest first.
        elements: Vec<Value>,
    },
}

/// A transaction on lists. Times are as in [`RecordedTransaction`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListTransaction {
    /// Nanoseconds, before its first operation was sent.
    pub start: u64,
    /// Nanoseconds, after its outcome was known.
    pub end: u64,
    /// The outcome. Of one that is not committed, only the appends are known.
    pub outcome: Outcome,
    /// The operations, in order.
    pub ops: Vec<ListOp>,
}

/// A reason why no order of the transactions explains what they saw.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListAnomaly {
    /// Two reads disagree about the elements that both have seen.
    #[error("list {list} had {one:?} at position {position} in one read and {other:?} in another")]
    Forked {
        /// The list's name.
        list: String,
        /// The first position at which they differ.
        position: usize,
        /// The element in the longest read; `None`: it ends there.
        one: Option<Value>,
        /// The element in the other read.
        other: Option<Value>,
    },
    /// An element is in a list twice.
    #[error("element {value} is in list {list} twice")]
    Twice {
        /// The list's name.
        list: String,
        /// The element.
        value: Value,
    },
    /// An append was answered with a length that does not fit its place.
    #[error(
        "the append of {value} to {list} was answered with length {length}, where {found:?} is"
    )]
    Misplaced {
        /// The list's name.
        list: String,
        /// The element.
        value: Value,
        /// The length that was answered.
        length: u64,
        /// The last element of a list of this length.
        found: Option<Value>,
    },
    /// The order of the elements is known, and no order of the transactions fits it.
    #[error("the history of lists is not strictly serializable: {0}")]
    Unserializable(Verdict),
}

/// The elements of a list by position; `None`: unknown.
type Order = Vec<Option<Value>>;
/// The position of each element, by list.
type Positions<'a> = HashMap<(&'a str, Value), u64>;

/// Accepts transactions that are strictly serializable.
///
/// # Errors
/// Returns the anomaly.
pub fn strictly_serializable_appends(transactions: &[ListTransaction]) -> Result<(), ListAnomaly> {
    let orders = orders_of(transactions)?;
    let mut positions = Positions::new();
    for (list, order) in &orders {
        for (position, value) in order.iter().enumerate() {
            let Some(value) = *value else { continue };
            if positions.insert((*list, value), position as u64).is_some() {
                let list = (*list).to_owned();
                return Err(ListAnomaly::Twice { list, value });
            }
        }
    }
    let mut names = Names::default();
    let recorded = transactions.iter().enumerate();
    let recorded = recorded.map(|(number, transaction)| RecordedTransaction {
        process: 0,
        id: number as u64,
        start: transaction.start,
        end: transaction.end,
        outcome: transaction.outcome,
        ops: as_register(transaction, (&orders, &positions), &mut names),
    });
    let recorded = recorded.collect();
    match strictly_serializable(&History::assemble(vec![(names, recorded)])) {
        Verdict::Accepted => Ok(()),
        verdict => Err(ListAnomaly::Unserializable(verdict)),
    }
}

/// Returns the order of the elements of each list.
fn orders_of(transactions: &[ListTransaction]) -> Result<HashMap<&str, Order>, ListAnomaly> {
    let committed = || {
        let transactions = transactions.iter();
        let transactions = transactions.filter(|one| one.outcome == Outcome::Committed);
        transactions.flat_map(|one| &one.ops)
    };
    let mut longest: HashMap<&str, &[Value]> = HashMap::new();
    for op in committed() {
        if let ListOp::Read { list, elements } = op {
            let longest = longest.entry(list).or_default();
            if elements.len() > longest.len() {
                *longest = elements;
            }
        }
    }
    let known = longest.iter().map(|(list, elements)| {
        let order: Order = elements.iter().copied().map(Some).collect();
        (*list, order)
    });
    let mut orders: HashMap<&str, Order> = known.collect();
    for op in committed() {
        match op {
            ListOp::Read { list, elements } => {
                let order = longest[list.as_str()];
                let position = order.iter().zip(elements).position(|(a, b)| a != b);
                if let Some(position) = position {
                    return Err(ListAnomaly::Forked {
                        list: list.clone(),
                        position,
                        one: order.get(position).copied(),
                        other: elements.get(position).copied(),
                    });
                }
            }
            ListOp::Append {
                list,
                value,
                length: Some(length),
            } => place(orders.entry(list).or_default(), (list, *value, *length))?,
            ListOp::Append { length: None, .. } => {}
        }
    }
    Ok(orders)
}

/// Enters an append that was answered with a length.
fn place(order: &mut Order, (list, value, length): (&str, Value, u64)) -> Result<(), ListAnomaly> {
    let misplaced = |found| ListAnomaly::Misplaced {
        list: list.to_owned(),
        value,
        length,
        found,
    };
    let position = usize::try_from(length).ok().and_then(|n| n.checked_sub(1));
    let position = position.ok_or_else(|| misplaced(None))?;
    if order.len() <= position {
        order.resize(position + 1, None);
    }
    match *order[position].get_or_insert(value) {
        found if found == value => Ok(()),
        found => Err(misplaced(Some(found))),
    }
}

/// Returns the operations of a transaction on the registers that stand for the lists.
fn as_register(
    transaction: &ListTransaction,
    (orders, positions): (&HashMap<&str, Order>, &Positions<'_>),
    names: &mut Names,
) -> Vec<HistoryOp> {
    let mut ops = Vec::with_capacity(2 * transaction.ops.len());
    let mut written: Vec<&str> = Vec::new();
    for op in &transaction.ops {
        match op {
            ListOp::Read { list, elements } => ops.push(HistoryOp::Read {
                key: names.key(list),
                value: elements.last().copied(),
                version: Some(elements.len() as u64),
            }),
            ListOp::Append { list, value, .. } => {
                let key = names.key(list);
                let position = positions.get(&(list.as_str(), *value)).copied();
                let counts = transaction.outcome != Outcome::Aborted;
                if let Some(position) = position.filter(|_| counts && !written.contains(&&**list)) {
                    let before = position.checked_sub(1);
                    let before = before.map(|at| orders[list.as_str()][at as usize]);
                    // An element that was not read, and whose append was not answered, is unknown.
                    if before != Some(None) {
                        ops.push(HistoryOp::Read {
                            key,
                            value: before.flatten(),
                            version: Some(position),
                        });
                    }
                }
                written.push(list);
                ops.push(HistoryOp::Write {
                    key,
                    value: *value,
                    version: position.filter(|_| counts).map(|position| position + 1),
                });
            }
        }
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Anomaly;

    fn append(list: &str, value: Value, length: u64) -> ListOp {
        ListOp::Append {
            list: list.to_owned(),
            value,
            length: (length > 0).then_some(length),
        }
    }

    fn read(list: &str, elements: &[Value]) -> ListOp {
        ListOp::Read {
            list: list.to_owned(),
            elements: elements.to_vec(),
        }
    }

    fn at(start: u64, end: u64, ops: &[ListOp]) -> ListTransaction {
        ListTransaction {
            start,
            end,
            outcome: Outcome::Committed,
            ops: ops.to_vec(),
        }
    }

    fn ended(outcome: Outcome, transaction: ListTransaction) -> ListTransaction {
        ListTransaction {
            outcome,
            ..transaction
        }
    }

    fn anomaly(transactions: &[ListTransaction]) -> Anomaly {
        match strictly_serializable_appends(transactions) {
            Err(ListAnomaly::Unserializable(verdict)) => verdict.anomaly().expect("it is judged"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn appends_of_several_clients_and_reads_of_prefixes_are_accepted() {
        let history = [
            at(0, 2, &[append("x", 1, 1), append("y", 1, 1)]),
            at(1, 4, &[append("x", 2, 2), append("x", 3, 3)]),
            at(1, 5, &[read("x", &[1]), read("y", &[1])]),
            ended(
                Outcome::Unknown,
                at(2, 9, &[append("x", 4, 0), append("y", 4, 0)]),
            ),
            ended(Outcome::Unknown, at(2, 9, &[append("x", 5, 0)])),
            ended(Outcome::Aborted, at(2, 3, &[append("x", 6, 0)])),
            at(6, 7, &[append("y", 7, 3)]),
            at(8, 9, &[read("x", &[1, 2, 3, 4]), read("y", &[1, 4, 7])]),
            at(10, 11, &[append("x", 8, 6)]),
        ];
        assert_eq!(strictly_serializable_appends(&history), Ok(()));
    }

    #[test]
    fn a_fork_a_double_and_a_wrong_length_are_found() {
        let fork = [
            ended(Outcome::Unknown, at(0, 1, &[append("x", 1, 0)])),
            ended(Outcome::Unknown, at(0, 1, &[append("x", 2, 0)])),
            at(2, 3, &[read("x", &[1, 2])]),
            at(2, 3, &[read("x", &[2])]),
        ];
        let found = strictly_serializable_appends(&fork);
        assert!(
            matches!(found, Err(ListAnomaly::Forked { position: 0, .. })),
            "{found:?}"
        );
        let double = [
            at(0, 1, &[append("x", 1, 1)]),
            at(2, 3, &[read("x", &[1, 1])]),
        ];
        let found = strictly_serializable_appends(&double);
        assert!(
            matches!(found, Err(ListAnomaly::Twice { value: 1, .. })),
            "{found:?}"
        );
        let same = [
            at(0, 1, &[append("x", 1, 1)]),
            at(0, 1, &[append("x", 2, 1)]),
        ];
        let found = strictly_serializable_appends(&same);
        assert!(
            matches!(found, Err(ListAnomaly::Misplaced { value: 2, .. })),
            "{found:?}"
        );
    }

    #[test]
    fn a_lost_append_is_found() {
        let never_seen = [
            at(0, 1, &[append("x", 1, 1)]),
            at(2, 3, &[append("x", 2, 2)]),
            at(4, 5, &[read("x", &[1])]),
        ];
        assert_eq!(anomaly(&never_seen), Anomaly::RealTimeViolation);
        let overwritten = [
            at(0, 1, &[append("x", 1, 1)]),
            at(2, 3, &[append("x", 2, 1)]),
        ];
        assert!(strictly_serializable_appends(&overwritten).is_err());
    }

    #[test]
    fn half_of_a_transaction_is_found() {
        let history = [
            at(0, 9, &[append("x", 1, 1), append("y", 1, 1)]),
            at(1, 8, &[read("x", &[1]), read("y", &[])]),
        ];
        assert_eq!(anomaly(&history), Anomaly::ReadSkew);
        let interleaved = [
            at(0, 9, &[append("x", 1, 1), append("x", 3, 3)]),
            at(0, 9, &[append("x", 2, 2)]),
        ];
        assert_eq!(anomaly(&interleaved), Anomaly::IntermediateRead);
        let skew = [
            at(0, 9, &[read("x", &[]), append("y", 1, 1)]),
            at(0, 9, &[read("y", &[]), append("x", 1, 1)]),
        ];
        assert_eq!(anomaly(&skew), Anomaly::WriteSkew);
    }

    #[test]
    fn elements_of_no_client_and_of_refused_appends_are_found() {
        let refused = ended(Outcome::Aborted, at(0, 1, &[append("x", 1, 0)]));
        let history = [refused, at(2, 3, &[append("x", 2, 2)])];
        assert_eq!(
            strictly_serializable_appends(&history),
            Ok(()),
            "it was not read"
        );
        let [refused, other] = history;
        let read = at(4, 5, &[read("x", &[1, 2])]);
        assert_eq!(
            anomaly(&[refused, other.clone(), read.clone()]),
            Anomaly::AbortedRead
        );
        assert_eq!(anomaly(&[other, read]), Anomaly::GarbageRead);
    }
}
