//! The reference subject.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use history::Value;

use super::{CollectionModel, Ended, Plan, Seen, Step, Subject};

/// A map behind one lock, which is strictly serializable. Clones share the map.
#[derive(Clone, Default)]
pub struct Serial {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Clone, Default)]
struct Contents {
    map: BTreeMap<String, Value>,
    collections: CollectionModel,
}

impl Serial {
    /// Makes an empty map.
    #[must_use]
    pub fn new() -> Serial {
        Serial::default()
    }

    /// Returns another map with the same contents.
    #[cfg(test)]
    pub(super) fn copied(&self) -> Serial {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        Serial {
            contents: Arc::new(Mutex::new(contents.clone())),
        }
    }
}

impl Subject for Serial {
    fn run(&mut self, plan: &Plan) -> Ended {
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let Contents { map, collections } = &mut *contents;
        let steps = plan.steps.iter().map(|step| match step {
            Step::Collection(step) => collections.apply(step),
            Step::Delete { key } if collections.remove(key) => Seen::Deleted(true),
            step => apply(map, step),
        });
        Ended::Committed(steps.collect())
    }
}

/// Does one step of a plan on a map, but none on collections.
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
        Step::Collection(step) => panic!("{step:?} is not one on a map"),
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
