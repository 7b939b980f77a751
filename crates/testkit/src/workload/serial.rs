//! The reference subject.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use history::Value;

use super::{Ended, Plan, Seen, Step, Subject};

/// A map behind one lock, which is strictly serializable. Clones share the map.
#[derive(Clone, Default)]
pub struct Serial {
    map: Arc<Mutex<BTreeMap<String, Value>>>,
}

impl Serial {
    /// Makes an empty map.
    #[must_use]
    pub fn new() -> Serial {
        Serial::default()
    }
}

impl Subject for Serial {
    fn run(&mut self, plan: &Plan) -> Ended {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ended::Committed(
            plan.steps
                .iter()
                .map(|step| apply(&mut map, step))
                .collect(),
        )
    }
}

/// Does one step of a plan on a map.
pub(super) fn apply(map: &mut BTreeMap<String, Value>, step: &Step) -> Seen {
    match step {
        Step::Get { key } => Seen::Value(map.get(key).copied()),
        Step::Put { key, value } => {
            map.insert(key.clone(), *value);
            Seen::Done
        }
        Step::Add { key, delta } => {
            let sum = map.entry(key.clone()).or_default();
            *sum += delta;
            Seen::Value(Some(*sum))
        }
        Step::Delete { key } => Seen::Deleted(map.remove(key).is_some()),
        Step::Scan { from, to, limit } => {
            let to = to.as_deref();
            // An empty range makes `range` panic, and has no pairs here.
            if to.is_some_and(|to| to <= from.as_str()) {
                return Seen::Pairs(Vec::new());
            }
            let range = (
                Bound::Included(from.as_str()),
                to.map_or(Bound::Unbounded, Bound::Excluded),
            );
            let pairs = map.range::<str, _>(range).take(*limit);
            Seen::Pairs(pairs.map(|(key, value)| (key.clone(), *value)).collect())
        }
    }
}
