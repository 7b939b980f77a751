//! The collections that operations should make.

use std::collections::{BTreeMap, BTreeSet};

use history::Value;

use super::collection_step::{CollectionStep, DEADLINE, EXPIRES, NO_DEADLINE, NO_FIELD};
use super::seen::Seen;
use super::stream_step::{StreamModel, StreamStep};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Collection {
    List(Vec<Value>),
    Set(BTreeSet<Value>),
    /// A hash or a sorted set.
    Map(BTreeMap<Value, Value>),
    Stream(StreamModel),
}

/// Collections by key. An empty one does not exist, unless it is a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionModel {
    collections: BTreeMap<String, Collection>,
    /// The fields of hashes that have a deadline.
    expiring: BTreeMap<String, BTreeSet<Value>>,
}

impl CollectionModel {
    /// Removes a collection. Returns `false` if there is none.
    pub fn remove(&mut self, key: &str) -> bool {
        self.expiring.remove(key);
        self.collections.remove(key).is_some()
    }

    /// Returns `true` if there is such a collection.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.collections.contains_key(key)
    }

    /// Returns a stream.
    #[must_use]
    pub fn stream(&self, key: &str) -> Option<&StreamModel> {
        match self.collections.get(key)? {
            Collection::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Executes a step.
    ///
    /// # Panics
    /// Panics if the step does not suit the type of the collection, or renames one that does not exist.
    pub fn apply(&mut self, step: &CollectionStep) -> Seen {
        let seen = self.execute(step);
        self.collections.retain(|_, collection| match collection {
            Collection::List(list) => !list.is_empty(),
            Collection::Set(set) => !set.is_empty(),
            Collection::Map(map) => !map.is_empty(),
            Collection::Stream(_) => true,
        });
        let collections = &self.collections;
        self.expiring.retain(|key, _| collections.contains_key(key));
        seen
    }

    fn execute(&mut self, step: &CollectionStep) -> Seen {
        let count = |count: usize| Seen::Value(Some(count as Value));
        match step {
            CollectionStep::PushHead { key, values } => {
                let list = self.list(key);
                values.iter().for_each(|value| list.insert(0, *value));
                count(list.len())
            }
            CollectionStep::PushTail { key, values } => {
                let list = self.list(key);
                list.extend(values);
                count(list.len())
            }
            CollectionStep::PopHead { key } | CollectionStep::AwaitHead { key, .. } => {
                let list = self.list(key);
                Seen::Value((!list.is_empty()).then(|| list.remove(0)))
            }
            CollectionStep::Trim { key, first, last } => {
                let list = self.list(key);
                list.truncate(last + 1);
                list.drain(..(*first).min(list.len()));
                Seen::Done
            }
            CollectionStep::MoveElement { from, to } => {
                let element = self.list(from).pop();
                if let Some(element) = element {
                    self.list(to).insert(0, element);
                }
                Seen::Value(element)
            }
            CollectionStep::AwaitMove { from, to, .. } => {
                let list = self.list(from);
                let element = (!list.is_empty()).then(|| list.remove(0));
                if let Some(element) = element {
                    self.list(to).push(element);
                }
                Seen::Value(element)
            }
            CollectionStep::Elements { key } => Seen::Numbers(self.list(key).clone()),
            CollectionStep::SetFields { key, fields: pairs }
            | CollectionStep::SetScores { key, scores: pairs } => {
                self.forget_deadlines(key, pairs.iter().map(|(field, _)| field));
                let map = self.map(key);
                let new = pairs
                    .iter()
                    .filter(|(at, value)| map.insert(*at, *value).is_none());
                count(new.count())
            }
            CollectionStep::AddToField {
                key,
                field: at,
                delta,
            }
            | CollectionStep::AddToScore {
                key,
                member: at,
                delta,
            } => {
                let sum = self.map(key).entry(*at).or_default();
                *sum += delta;
                Seen::Value(Some(*sum))
            }
            CollectionStep::RemoveFields { key, fields: all }
            | CollectionStep::RemoveScores { key, members: all } => {
                self.forget_deadlines(key, all);
                let map = self.map(key);
                count(all.iter().filter(|at| map.remove(at).is_some()).count())
            }
            CollectionStep::ExpireFields { key, fields } => {
                let map = self.map(key).clone();
                let expiring = self.expiring.entry(key.clone()).or_default();
                let reply = |field: &Value| match map.contains_key(field) {
                    true => {
                        expiring.insert(*field);
                        EXPIRES
                    }
                    false => NO_FIELD,
                };
                Seen::Numbers(fields.iter().map(reply).collect())
            }
            CollectionStep::FieldDeadlines { key, fields } => {
                let map = self.map(key).clone();
                let expiring = self.expiring.get(key);
                let reply = |field: &Value| match expiring.is_some_and(|all| all.contains(field)) {
                    true => DEADLINE,
                    false if map.contains_key(field) => NO_DEADLINE,
                    false => NO_FIELD,
                };
                Seen::Numbers(fields.iter().map(reply).collect())
            }
            CollectionStep::Fields { key } | CollectionStep::Scores { key } => Seen::Entries(
                self.map(key)
                    .iter()
                    .map(|(at, value)| (*at, *value))
                    .collect(),
            ),
            CollectionStep::AddMembers { key, members } => {
                let set = self.set(key);
                count(members.iter().filter(|member| set.insert(**member)).count())
            }
            CollectionStep::RemoveMembers { key, members } => {
                let set = self.set(key);
                count(members.iter().filter(|member| set.remove(member)).count())
            }
            CollectionStep::MoveMember { from, to, member } => {
                let was_there = self.set(from).remove(member);
                if was_there {
                    self.set(to).insert(*member);
                }
                count(usize::from(was_there))
            }
            CollectionStep::Members { key } => {
                Seen::Numbers(self.set(key).iter().copied().collect())
            }
            CollectionStep::Stream(step) => self.apply_to_stream(step),
            CollectionStep::Copy { from, to } => {
                let source = self.collections.get(from).cloned();
                let is_there = source.is_some();
                if let Some(source) = source {
                    self.collections.insert(to.clone(), source);
                    let expiring = self.expiring.get(from).cloned().unwrap_or_default();
                    self.expiring.insert(to.clone(), expiring);
                }
                count(usize::from(is_there))
            }
            CollectionStep::Rename { from, to } => {
                let source = self.collections.remove(from).expect("it exists");
                self.collections.insert(to.clone(), source);
                let expiring = self.expiring.remove(from).unwrap_or_default();
                self.expiring.insert(to.clone(), expiring);
                Seen::Done
            }
            CollectionStep::Expire { key } => count(usize::from(self.has(key))),
        }
    }

    fn forget_deadlines<'f>(&mut self, key: &str, fields: impl IntoIterator<Item = &'f Value>) {
        if let Some(expiring) = self.expiring.get_mut(key) {
            for field in fields {
                expiring.remove(field);
            }
        }
    }

    fn apply_to_stream(&mut self, step: &StreamStep) -> Seen {
        let makes_key = matches!(step, StreamStep::Add { .. } | StreamStep::MakeGroup { .. });
        if !makes_key && !self.has(step.key()) {
            return StreamModel::default().apply(step);
        }
        match self.entry(step.key(), || Collection::Stream(StreamModel::default())) {
            Collection::Stream(stream) => stream.apply(step),
            other => panic!("{} is {other:?}", step.key()),
        }
    }

    fn list(&mut self, key: &str) -> &mut Vec<Value> {
        match self.entry(key, || Collection::List(Vec::new())) {
            Collection::List(list) => list,
            other => panic!("{key} is {other:?}"),
        }
    }

    fn set(&mut self, key: &str) -> &mut BTreeSet<Value> {
        match self.entry(key, || Collection::Set(BTreeSet::new())) {
            Collection::Set(set) => set,
            other => panic!("{key} is {other:?}"),
        }
    }

    fn map(&mut self, key: &str) -> &mut BTreeMap<Value, Value> {
        match self.entry(key, || Collection::Map(BTreeMap::new())) {
            Collection::Map(map) => map,
            other => panic!("{key} is {other:?}"),
        }
    }

    fn entry(&mut self, key: &str, new: impl FnOnce() -> Collection) -> &mut Collection {
        self.collections.entry(key.to_owned()).or_insert_with(new)
    }
}
