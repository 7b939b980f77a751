//! Checks that replicas hold everything that was acknowledged, and are all the same.
//!
//! Counters begin at zero. Each acknowledged transaction adds one to two of them, so that a counter
//! equals the number of acknowledged transactions that added to it. Their answers are the numbers
//! from one up to that, each of them once; their sum shows that none was lost or given twice.

use std::cell::RefCell;
use std::rc::Rc;

use base::partition::OwnedReply;
use serde::{Deserialize, Serialize};

use super::members::{MemberState, Members};
use crate::error::RunError;

/// The acknowledged transactions of a counter.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct AcknowledgedAdditions {
    additions: u64,
    /// The sum of the answers.
    sum: u64,
}

/// The acknowledged transactions; all clients share it.
#[derive(Clone)]
pub(super) struct AdditionLedger(Rc<RefCell<Vec<AcknowledgedAdditions>>>);

impl AdditionLedger {
    pub(super) fn new(counters: u64) -> AdditionLedger {
        AdditionLedger::of(vec![AcknowledgedAdditions::default(); counters as usize])
    }

    /// Returns the ledger of clients that were elsewhere.
    pub(super) fn of(counts: Vec<AcknowledgedAdditions>) -> AdditionLedger {
        AdditionLedger(Rc::new(RefCell::new(counts)))
    }

    /// Returns what was acknowledged, by counter.
    pub(super) fn counts(&self) -> Vec<AcknowledgedAdditions> {
        self.0.borrow().clone()
    }

    /// Adds what clients of another thread were acknowledged.
    pub(super) fn add(&self, counts: &[AcknowledgedAdditions]) {
        let mut all = self.0.borrow_mut();
        for (sum, count) in all.iter_mut().zip(counts) {
            sum.additions += count.additions;
            sum.sum += count.sum;
        }
    }

    /// Adds a transaction that added to these counters, in this order, with these answers.
    pub(super) fn acknowledged(
        &self,
        drawn: &[u64],
        replies: &[OwnedReply],
    ) -> Result<(), RunError> {
        if drawn.len() != replies.len() {
            return Err(RunError::Failed(format!(
                "{} answers to {} operations",
                replies.len(),
                drawn.len()
            )));
        }
        let mut counts = self.0.borrow_mut();
        for (&index, reply) in drawn.iter().zip(replies) {
            let &OwnedReply::Int(sum @ 1..) = reply else {
                return Err(RunError::Failed(format!(
                    "counter {index} answers {reply:?}"
                )));
            };
            let count = &mut counts[index as usize];
            count.additions += 1;
            count.sum += sum as u64;
        }
        Ok(())
    }

    /// Checks that a member holds exactly this.
    fn compare(&self, held: &MemberState) -> Result<(), RunError> {
        let counts = self.0.borrow();
        for &(index, value) in &held.counters {
            let AcknowledgedAdditions { additions, sum } =
                counts.get(index as usize).copied().unwrap_or_default();
            if value != additions {
                return Err(RunError::Failed(format!(
                    "counter {index} is {value}, {additions} additions were acknowledged"
                )));
            }
            if sum != additions * (additions + 1) / 2 {
                return Err(RunError::Failed(format!(
                    "the answers of counter {index} are not those of its values"
                )));
            }
        }
        match held.counters.len() == counts.len() {
            true => Ok(()),
            false => Err(RunError::Failed(format!(
                "there are {} counters of {}",
                held.counters.len(),
                counts.len()
            ))),
        }
    }
}

/// Checks that every member holds what was acknowledged, and that all have the same state at the
/// same entry. `plant` makes it forget one acknowledgement.
pub(super) fn members(
    members: &Members,
    ledger: &AdditionLedger,
    plant: bool,
) -> Result<(), RunError> {
    if plant {
        let mut counts = ledger.0.borrow_mut();
        let known = counts.iter_mut().find(|count| count.additions > 0);
        known.into_iter().for_each(|count| count.additions -= 1);
    }
    let mut first: Option<MemberState> = None;
    for (node, held) in members.held()? {
        let of_node = |what: String| RunError::Failed(format!("node {node}: {what}"));
        let compared = ledger.compare(&held);
        compared.map_err(|wrong| of_node(wrong.to_string()))?;
        let first = first.get_or_insert_with(|| held.clone());
        if (first.applied, first.hash) != (held.applied, held.hash) {
            return Err(of_node(format!(
                "its state at entry {} is another than a member's at entry {}",
                held.applied, first.applied
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_a_doubled_and_a_foreign_addition_are_seen() {
        let ledger = AdditionLedger::new(3);
        let replies = [OwnedReply::Int(1), OwnedReply::Int(1)];
        assert_eq!(ledger.acknowledged(&[0, 2], &replies), Ok(()));
        assert!(ledger.acknowledged(&[0, 2], &replies[..1]).is_err());
        for wrong in [OwnedReply::Nil, OwnedReply::Int(0)] {
            assert!(ledger.acknowledged(&[1], &[wrong]).is_err());
        }
        let held = |counters: &[(u64, u64)]| MemberState {
            applied: 1,
            hash: 0,
            counters: counters.to_vec(),
        };
        assert_eq!(ledger.compare(&held(&[(0, 1), (1, 0), (2, 1)])), Ok(()));
        for wrong in [
            &[(0, 1), (1, 0)][..],
            &[(0, 2), (1, 0), (2, 1)],
            &[(0, 1), (1, 1), (2, 1)],
            &[(0, 1), (1, 0), (2, 1), (9, 0)],
        ] {
            assert!(ledger.compare(&held(wrong)).is_err(), "{wrong:?}");
        }
        ledger.acknowledged(&[0], &replies[..1]).unwrap();
        let outcome = ledger.compare(&held(&[(0, 2), (1, 0), (2, 1)]));
        let outcome = outcome.unwrap_err().to_string();
        assert!(outcome.contains("answers"), "told 1 twice: {outcome}");
    }
}
