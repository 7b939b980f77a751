//! Checks that replicas hold everything that was acknowledged, and are all the same.
//!
//! Counters begin at zero. Each acknowledged transaction adds one to two of them, so that a counter
//! equals the number of acknowledged transactions that added to it. Their answers are the numbers
//! from one up to that, each of them once; their sum shows that none was lost or given twice.

use std::cell::RefCell;
use std::rc::Rc;

use base::Tid;
use base::partition::OwnedReply;

use super::members::{Held, Members};
use crate::keys;

/// The acknowledged transactions of a counter.
#[derive(Clone, Copy, Default)]
struct Count {
    additions: u64,
    /// The sum of the answers.
    sum: u64,
}

/// The acknowledged transactions; all clients share it.
#[derive(Clone)]
pub(super) struct Ledger(Rc<RefCell<Vec<Count>>>);

impl Ledger {
    pub(super) fn new(counters: u64) -> Ledger {
        Ledger(Rc::new(RefCell::new(vec![
            Count::default();
            counters as usize
        ])))
    }

    /// Adds a transaction that added to these counters, in this order, with these answers.
    pub(super) fn acknowledged(&self, drawn: &[u64], replies: &[OwnedReply]) -> Result<(), String> {
        if drawn.len() != replies.len() {
            return Err(format!(
                "{} answers to {} operations",
                replies.len(),
                drawn.len()
            ));
        }
        let mut counts = self.0.borrow_mut();
        for (&index, reply) in drawn.iter().zip(replies) {
            let &OwnedReply::Int(sum @ 1..) = reply else {
                return Err(format!("counter {index} answers {reply:?}"));
            };
            let count = &mut counts[index as usize];
            count.additions += 1;
            count.sum += sum as u64;
        }
        Ok(())
    }

    /// Checks that a member holds exactly this.
    fn compare(&self, held: &Held) -> Result<(), String> {
        let counts = self.0.borrow();
        for &(index, value) in &held.counters {
            let Count { additions, sum } = counts.get(index as usize).copied().unwrap_or_default();
            if value != additions {
                return Err(format!(
                    "counter {index} is {value}, {additions} additions were acknowledged"
                ));
            }
            if sum != additions * (additions + 1) / 2 {
                return Err(format!(
                    "the answers of counter {index} are not those of its values"
                ));
            }
        }
        match held.counters.len() == counts.len() {
            true => Ok(()),
            false => Err(format!(
                "there are {} counters of {}",
                held.counters.len(),
                counts.len()
            )),
        }
    }
}

/// Checks that every member holds what was acknowledged, and that all have the same state at the
/// same entry. `plant` makes it forget one acknowledgement.
pub(super) fn members(members: &Members, ledger: &Ledger, plant: bool) -> Result<(), String> {
    if plant {
        let mut counts = ledger.0.borrow_mut();
        let known = counts.iter_mut().find(|count| count.additions > 0);
        known.into_iter().for_each(|count| count.additions -= 1);
    }
    let mut first: Option<Held> = None;
    for (node, held) in members.held()? {
        let of_node = |what: String| format!("node {node}: {what}");
        ledger.compare(&held).map_err(of_node)?;
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

/// Returns a hash of a key, its writer and its value, which is added up over all keys.
pub(super) fn digest(key: &[u8], tid: Tid, value: &[u8]) -> u64 {
    let number = tid.epoch().0 << 20 | u64::from(tid.sequence());
    let mut sum = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for &byte in key.iter().chain(value) {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    sum
}

/// Parses a counter of a member: its number and its value.
pub(super) fn counter(key: &[u8], value: &[u8]) -> Result<(u64, u64), String> {
    let sum = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    match (keys::decode(key), sum) {
        (Some(index), Some(sum)) => Ok((index, sum)),
        _ => Err(format!("{key:?} holds {value:?}, which is no counter")),
    }
}

#[cfg(test)]
mod tests {
    use base::Epoch;

    use super::*;

    #[test]
    fn a_lost_a_doubled_and_a_foreign_addition_are_seen() {
        let ledger = Ledger::new(3);
        let replies = [OwnedReply::Int(1), OwnedReply::Int(1)];
        assert_eq!(ledger.acknowledged(&[0, 2], &replies), Ok(()));
        assert!(ledger.acknowledged(&[0, 2], &replies[..1]).is_err());
        for wrong in [OwnedReply::Nil, OwnedReply::Int(0)] {
            assert!(ledger.acknowledged(&[1], &[wrong]).is_err());
        }
        let held = |counters: &[(u64, u64)]| Held {
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
        let told = ledger.compare(&held(&[(0, 2), (1, 0), (2, 1)]));
        assert!(told.unwrap_err().contains("answers"), "told 1 twice");
    }

    #[test]
    fn counters_are_read_and_nothing_else_is() {
        let key = keys::encode(7);
        assert_eq!(counter(&key, b"12"), Ok((7, 12)));
        assert!(counter(b"other", b"12").is_err());
        assert!(counter(&key, b"many").is_err());
        let tid = |epoch, sequence| Tid::new(Epoch(epoch), sequence);
        let one = digest(&key, tid(1, 0), b"12");
        assert_eq!(one, digest(&key, tid(1, 0), b"12"));
        for (tid, value) in [(tid(2, 0), b"12"), (tid(1, 1), b"12"), (tid(1, 0), b"13")] {
            assert_ne!(one, digest(&key, tid, value));
        }
    }
}
