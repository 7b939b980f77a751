//! Operations on streams with one consumer group, as commands of Redis and on a model. An entry's id is a whole
//! number, of milliseconds, and so is the value of its first field. A second field makes it long.

use std::collections::BTreeMap;

use history::Value;

use super::seen::Seen;
use crate::Reply;

/// An operation on a stream.
///
/// The result is a [`Seen::Value`], a number, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStep {
    /// Adds an entry with an id above those before. Result: the id.
    Add {
        /// The stream.
        key: String,
        /// The entry's id.
        id: Value,
        /// Its value.
        value: Value,
    },
    /// Deletes entries. Result: how many there were.
    Remove {
        /// The stream.
        key: String,
        /// The ids.
        ids: Vec<Value>,
    },
    /// Removes the oldest entries. Result: how many.
    Trim {
        /// The stream.
        key: String,
        /// The number of entries that stay at most.
        length: usize,
    },
    /// Reads a stream. Result: [`Seen::Entries`], ids and values.
    Entries {
        /// The stream.
        key: String,
    },
    /// Makes the consumer group, which does not exist, and the stream if it does not exist. Result: [`Seen::Done`].
    MakeGroup {
        /// The stream.
        key: String,
    },
    /// Delivers entries to the consumer of the group, which exists. Result: [`Seen::Entries`], ids and values.
    Deliver {
        /// The stream.
        key: String,
        /// The most entries.
        count: usize,
    },
    /// Acknowledges entries. Result: how many of them were pending.
    Acknowledge {
        /// The stream.
        key: String,
        /// The ids.
        ids: Vec<Value>,
    },
    /// Reads the pending entries of the group, which exists. Result: [`Seen::Entries`], ids and numbers of deliveries.
    Pending {
        /// The stream.
        key: String,
    },
}

const GROUP: &str = "group";
const CONSUMER: &str = "consumer";
/// The length of an entry's second value: some entries of a stream are more than a packed block has.
const LONG: usize = 300;
/// The items of an entry in a reply, and those of a pending one.
const ENTRY: usize = 5;
const PENDING: usize = 4;

impl StreamStep {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            StreamStep::Add { key, .. }
            | StreamStep::Remove { key, .. }
            | StreamStep::Trim { key, .. }
            | StreamStep::Entries { key }
            | StreamStep::MakeGroup { key }
            | StreamStep::Deliver { key, .. }
            | StreamStep::Acknowledge { key, .. }
            | StreamStep::Pending { key } => key,
        }
    }

    /// Returns the command.
    #[must_use]
    pub fn request(&self) -> Vec<String> {
        let text = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        let of_ids = |head: &[&str], ids: &[Value]| {
            let ids = ids.iter().map(|id| format!("{id}-0"));
            text(head).into_iter().chain(ids).collect()
        };
        match self {
            StreamStep::Add { key, id, value } => {
                let (id, value) = (format!("{id}-0"), value.to_string());
                let long = "x".repeat(LONG);
                text(&["XADD", key, &id, "value", &value, "long", &long])
            }
            StreamStep::Remove { key, ids } => of_ids(&["XDEL", key], ids),
            StreamStep::Trim { key, length } => {
                text(&["XTRIM", key, "MAXLEN", &length.to_string()])
            }
            StreamStep::Entries { key } => text(&["XRANGE", key, "-", "+"]),
            StreamStep::MakeGroup { key } => {
                text(&["XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"])
            }
            StreamStep::Deliver { key, count } => {
                let count = count.to_string();
                let head = ["XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", &count];
                [text(&head), text(&["STREAMS", key, ">"])].concat()
            }
            StreamStep::Acknowledge { key, ids } => of_ids(&["XACK", key, GROUP], ids),
            StreamStep::Pending { key } => text(&["XPENDING", key, GROUP, "-", "+", "100000"]),
        }
    }

    /// Returns the result of the reply to [`StreamStep::request`], or `None` if no server should give it.
    #[must_use]
    pub fn seen(&self, reply: &Reply) -> Option<Seen> {
        match (self, reply) {
            (StreamStep::MakeGroup { .. }, Reply::Status(_)) => Some(Seen::Done),
            (StreamStep::Add { .. }, reply) => Some(Seen::Value(Some(id(reply)?))),
            (
                StreamStep::Remove { .. }
                | StreamStep::Trim { .. }
                | StreamStep::Acknowledge { .. },
                Reply::Int(count),
            ) => Some(Seen::Value(Some(*count))),
            (StreamStep::Deliver { .. }, Reply::Null | Reply::NullArray) => {
                Some(Seen::Entries(Vec::new()))
            }
            (StreamStep::Entries { .. } | StreamStep::Deliver { .. }, Reply::Array(_)) => {
                let mut items = leaves(reply);
                // Before the entries that were delivered there is their key.
                if items.first().is_some_and(|item| id(item).is_none()) {
                    items.remove(0);
                }
                pairs(&items, ENTRY, 2)
            }
            (StreamStep::Pending { .. }, Reply::Array(_)) => pairs(&leaves(reply), PENDING, 3),
            _ => None,
        }
    }
}

/// Returns what a reply has that is no array.
fn leaves(reply: &Reply) -> Vec<&Reply> {
    match reply {
        Reply::Array(items) => items.iter().flat_map(leaves).collect(),
        reply => vec![reply],
    }
}

/// Returns the ids and the numbers of chunks of so many items, which have the number at a place.
fn pairs(items: &[&Reply], chunk: usize, place: usize) -> Option<Seen> {
    let chunks = items.chunks(chunk);
    let pairs = chunks.map(|items| Some((id(items.first()?)?, number(items.get(place)?)?)));
    pairs.collect::<Option<_>>().map(Seen::Entries)
}

fn id(reply: &Reply) -> Option<Value> {
    match reply {
        Reply::Bulk(text) => {
            let text = std::str::from_utf8(text).ok()?;
            text.strip_suffix("-0")?.parse().ok()
        }
        _ => None,
    }
}

fn number(reply: &Reply) -> Option<Value> {
    match reply {
        Reply::Int(number) => Some(*number),
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// A stream. One without entries exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamModel {
    /// The values of the entries.
    entries: BTreeMap<Value, Value>,
    /// The last id that was given.
    last_id: Value,
    group: Option<GroupModel>,
}

/// The consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupModel {
    /// The last id that it has delivered.
    last_id: Value,
    /// Its pending entries, and the numbers of their deliveries.
    pending: BTreeMap<Value, Value>,
}

impl StreamModel {
    /// Returns the last id that was given; ids are above 0.
    #[must_use]
    pub fn last_id(&self) -> Value {
        self.last_id
    }

    /// Returns `true` if it has the consumer group.
    #[must_use]
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Executes a step.
    ///
    /// # Panics
    /// Panics if a step needs the group, and it does not exist.
    pub(super) fn apply(&mut self, step: &StreamStep) -> Seen {
        let count = |count: usize| Seen::Value(Some(count as Value));
        match step {
            StreamStep::Add { id, value, .. } => {
                self.entries.insert(*id, *value);
                self.last_id = *id;
                Seen::Value(Some(*id))
            }
            StreamStep::Remove { ids, .. } => {
                let removed = ids.iter().filter(|id| self.entries.remove(id).is_some());
                count(removed.count())
            }
            StreamStep::Trim { length, .. } => {
                let removed = self.entries.len().saturating_sub(*length);
                for _ in 0..removed {
                    self.entries.pop_first();
                }
                count(removed)
            }
            StreamStep::Entries { .. } => Seen::Entries(self.entries.clone().into_iter().collect()),
            StreamStep::MakeGroup { .. } => {
                self.group = Some(GroupModel::default());
                Seen::Done
            }
            StreamStep::Deliver { count, .. } => {
                let group = self.group.as_mut().expect("there is a group");
                let new = self.entries.range(group.last_id + 1..).take(*count);
                let new: Vec<(Value, Value)> = new.map(|(id, value)| (*id, *value)).collect();
                group.pending.extend(new.iter().map(|(id, _)| (*id, 1)));
                group.last_id = new.last().map_or(group.last_id, |(id, _)| *id);
                Seen::Entries(new)
            }
            StreamStep::Acknowledge { ids, .. } => {
                let pending = self.group.as_mut().map(|group| &mut group.pending);
                let removed = pending.map(|pending| {
                    let removed = ids.iter().filter(|id| pending.remove(id).is_some());
                    removed.count()
                });
                count(removed.unwrap_or(0))
            }
            StreamStep::Pending { .. } => {
                let group = self.group.as_ref().expect("there is a group");
                Seen::Entries(group.pending.clone().into_iter().collect())
            }
        }
    }
}
