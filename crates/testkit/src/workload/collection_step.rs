//! Operations on lists, hashes, sets, sorted sets and streams, as commands of Redis. Elements, fields,
//! members, values and scores are whole numbers; members of sets are written as text, because a set of integers
//! has a form of its own.

use std::time::Duration;

use history::Value;

use super::seen::Seen;
use super::stream_step::StreamStep;
use crate::Reply;

/// An operation on one or two collections.
///
/// The result is [`Seen::Value`] unless it says otherwise: a number, an element, or `None` if there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionStep {
    /// Adds elements at the head of a list, one after another. Result: the length.
    PushHead {
        /// The list.
        key: String,
        /// The elements.
        values: Vec<Value>,
    },
    /// Adds elements at the tail of a list. Result: the length.
    PushTail {
        /// The list.
        key: String,
        /// The elements.
        values: Vec<Value>,
    },
    /// Removes the first element of a list. Result: the element.
    PopHead {
        /// The list.
        key: String,
    },
    /// Removes the first element of a list, and waits for one if there is none. Not for a plan of several steps.
    /// Result: the element.
    AwaitHead {
        /// The list.
        key: String,
        /// The longest wait.
        wait: Duration,
    },
    /// Keeps the elements from `first` to `last` of a list, both included. Result: [`Seen::Done`].
    Trim {
        /// The list.
        key: String,
        /// The position of the first element.
        first: usize,
        /// The position of the last one.
        last: usize,
    },
    /// Moves the last element of a list to the head of another one, or of the same. Result: the element.
    MoveElement {
        /// The list that has it.
        from: String,
        /// The list that gets it.
        to: String,
    },
    /// Moves the first element of a list to the tail of another one, or of the same, and waits for one if there is
    /// none. Not for a plan of several steps. Result: the element.
    AwaitMove {
        /// The list that has it.
        from: String,
        /// The list that gets it.
        to: String,
        /// The longest wait.
        wait: Duration,
    },
    /// Reads a list. Result: [`Seen::Numbers`], in the list's order.
    Elements {
        /// The list.
        key: String,
    },
    /// Sets fields of a hash. Result: how many are new.
    SetFields {
        /// The hash.
        key: String,
        /// Fields and values.
        fields: Vec<(Value, Value)>,
    },
    /// Adds to a field of a hash, where absent counts as 0. Result: the sum.
    AddToField {
        /// The hash.
        key: String,
        /// The field.
        field: Value,
        /// The number to add.
        delta: Value,
    },
    /// Removes fields of a hash. Result: how many there were.
    RemoveFields {
        /// The hash.
        key: String,
        /// The fields.
        fields: Vec<Value>,
    },
    /// Gives fields of a hash a deadline in the far future, which they have until they are set again. Result:
    /// [`Seen::Numbers`], for each field 1, or -2 if it is absent.
    ExpireFields {
        /// The hash.
        key: String,
        /// The fields, each of them once.
        fields: Vec<Value>,
    },
    /// Reads the deadlines of fields of a hash. Result: [`Seen::Numbers`], for each field -1 if it has none, and -2
    /// if it is absent.
    FieldDeadlines {
        /// The hash.
        key: String,
        /// The fields.
        fields: Vec<Value>,
    },
    /// Reads a hash. Result: [`Seen::Entries`], by field.
    Fields {
        /// The hash.
        key: String,
    },
    /// Adds members to a set. Result: how many are new.
    AddMembers {
        /// The set.
        key: String,
        /// The members.
        members: Vec<Value>,
    },
    /// Removes members of a set. Result: how many there were.
    RemoveMembers {
        /// The set.
        key: String,
        /// The members.
        members: Vec<Value>,
    },
    /// Moves a member from a set to another one. Result: 1 if it was there.
    MoveMember {
        /// The set that has it.
        from: String,
        /// The set that gets it.
        to: String,
        /// The member.
        member: Value,
    },
    /// Reads a set. Result: [`Seen::Numbers`], sorted.
    Members {
        /// The set.
        key: String,
    },
    /// Sets scores of members of a sorted set. Result: how many are new.
    SetScores {
        /// The sorted set.
        key: String,
        /// Members and scores.
        scores: Vec<(Value, Value)>,
    },
    /// Adds to a score of a sorted set, where absent counts as 0. Result: the sum.
    AddToScore {
        /// The sorted set.
        key: String,
        /// The member.
        member: Value,
        /// The number to add.
        delta: Value,
    },
    /// Removes members of a sorted set. Result: how many there were.
    RemoveScores {
        /// The sorted set.
        key: String,
        /// The members.
        members: Vec<Value>,
    },
    /// Reads a sorted set. Result: [`Seen::Entries`], by member.
    Scores {
        /// The sorted set.
        key: String,
    },
    /// An operation on a stream, whose results it says.
    Stream(StreamStep),
    /// Copies a collection in place of another one. Result: 1 if it was there.
    Copy {
        /// The collection.
        from: String,
        /// The key that gets the copy.
        to: String,
    },
    /// Moves a collection, which exists, to another key. Result: [`Seen::Done`].
    Rename {
        /// Its key.
        from: String,
        /// The key that gets it.
        to: String,
    },
    /// Gives a key a deadline in the far future. Result: 1 if it exists.
    Expire {
        /// The key.
        key: String,
    },
}

/// The deadline of fields, in seconds since the Unix epoch.
pub(super) const DEADLINE: Value = 9_999_999_999;
/// The replies for fields that are absent, have no deadline, and have got one.
pub(super) const NO_FIELD: Value = -2;
pub(super) const NO_DEADLINE: Value = -1;
pub(super) const EXPIRES: Value = 1;
/// The beginning of members of sets.
const MEMBER: &str = "member ";

/// The form of a reply.
enum Form {
    Done,
    /// A number or nothing.
    Number,
    /// A key and an element, or nothing.
    KeyAndElement,
    Numbers,
    SortedNumbers,
    Entries,
}

impl CollectionStep {
    /// Returns the key; of two, the first one.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            CollectionStep::PushHead { key, .. }
            | CollectionStep::PushTail { key, .. }
            | CollectionStep::PopHead { key }
            | CollectionStep::AwaitHead { key, .. }
            | CollectionStep::Trim { key, .. }
            | CollectionStep::Elements { key }
            | CollectionStep::SetFields { key, .. }
            | CollectionStep::AddToField { key, .. }
            | CollectionStep::RemoveFields { key, .. }
            | CollectionStep::ExpireFields { key, .. }
            | CollectionStep::FieldDeadlines { key, .. }
            | CollectionStep::Fields { key }
            | CollectionStep::AddMembers { key, .. }
            | CollectionStep::RemoveMembers { key, .. }
            | CollectionStep::Members { key }
            | CollectionStep::SetScores { key, .. }
            | CollectionStep::AddToScore { key, .. }
            | CollectionStep::RemoveScores { key, .. }
            | CollectionStep::Scores { key }
            | CollectionStep::Expire { key } => key,
            CollectionStep::MoveElement { from, .. }
            | CollectionStep::AwaitMove { from, .. }
            | CollectionStep::MoveMember { from, .. }
            | CollectionStep::Copy { from, .. }
            | CollectionStep::Rename { from, .. } => from,
            CollectionStep::Stream(step) => step.key(),
        }
    }

    /// Returns the command.
    #[must_use]
    pub fn request(&self) -> Vec<String> {
        fn words(name: &str, key: &str, numbers: impl IntoIterator<Item = Value>) -> Vec<String> {
            let numbers = numbers.into_iter().map(|number| number.to_string());
            let head = [name, key].map(str::to_owned);
            head.into_iter().chain(numbers).collect()
        }
        let text = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        let of_fields = |head: Vec<String>, fields: &[Value]| {
            let count = ["FIELDS".to_owned(), fields.len().to_string()];
            let fields = fields.iter().map(|field| field.to_string());
            head.into_iter().chain(count).chain(fields).collect()
        };
        let with_members = |name: &str, key: &str, members: &[Value]| {
            let members = members.iter().map(|member| format!("{MEMBER}{member}"));
            let head = [name, key].map(str::to_owned);
            head.into_iter().chain(members).collect()
        };
        match self {
            CollectionStep::PushHead { key, values } => words("LPUSH", key, values.clone()),
            CollectionStep::PushTail { key, values } => words("RPUSH", key, values.clone()),
            CollectionStep::PopHead { key } => text(&["LPOP", key]),
            CollectionStep::AwaitHead { key, wait } => {
                text(&["BLPOP", key, &wait.as_secs_f64().to_string()])
            }
            CollectionStep::Trim { key, first, last } => {
                text(&["LTRIM", key, &first.to_string(), &last.to_string()])
            }
            CollectionStep::MoveElement { from, to } => text(&["LMOVE", from, to, "RIGHT", "LEFT"]),
            CollectionStep::AwaitMove { from, to, wait } => {
                let wait = wait.as_secs_f64().to_string();
                text(&["BLMOVE", from, to, "LEFT", "RIGHT", &wait])
            }
            CollectionStep::Elements { key } => text(&["LRANGE", key, "0", "-1"]),
            CollectionStep::SetFields { key, fields } => words(
                "HSET",
                key,
                fields.iter().flat_map(|&(field, value)| [field, value]),
            ),
            CollectionStep::AddToField { key, field, delta } => {
                words("HINCRBY", key, [*field, *delta])
            }
            CollectionStep::RemoveFields { key, fields } => words("HDEL", key, fields.clone()),
            CollectionStep::ExpireFields { key, fields } => {
                let deadline = DEADLINE.to_string();
                let head = text(&["HEXPIREAT", key, &deadline]);
                of_fields(head, fields)
            }
            CollectionStep::FieldDeadlines { key, fields } => {
                of_fields(text(&["HEXPIRETIME", key]), fields)
            }
            CollectionStep::Fields { key } => text(&["HGETALL", key]),
            CollectionStep::AddMembers { key, members } => with_members("SADD", key, members),
            CollectionStep::RemoveMembers { key, members } => with_members("SREM", key, members),
            CollectionStep::MoveMember { from, to, member } => {
                text(&["SMOVE", from, to, &format!("{MEMBER}{member}")])
            }
            CollectionStep::Members { key } => text(&["SMEMBERS", key]),
            CollectionStep::SetScores { key, scores } => words(
                "ZADD",
                key,
                scores.iter().flat_map(|&(member, score)| [score, member]),
            ),
            CollectionStep::AddToScore { key, member, delta } => {
                words("ZINCRBY", key, [*delta, *member])
            }
            CollectionStep::RemoveScores { key, members } => words("ZREM", key, members.clone()),
            CollectionStep::Scores { key } => text(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            CollectionStep::Stream(step) => step.request(),
            CollectionStep::Copy { from, to } => text(&["COPY", from, to, "REPLACE"]),
            CollectionStep::Rename { from, to } => text(&["RENAME", from, to]),
            CollectionStep::Expire { key } => text(&["EXPIRE", key, "100000"]),
        }
    }

    fn form(&self) -> Form {
        match self {
            CollectionStep::Trim { .. } | CollectionStep::Rename { .. } => Form::Done,
            CollectionStep::AwaitHead { .. } => Form::KeyAndElement,
            CollectionStep::Elements { .. }
            | CollectionStep::ExpireFields { .. }
            | CollectionStep::FieldDeadlines { .. } => Form::Numbers,
            CollectionStep::Members { .. } => Form::SortedNumbers,
            CollectionStep::Fields { .. } | CollectionStep::Scores { .. } => Form::Entries,
            _ => Form::Number,
        }
    }

    /// Returns the result of the reply to [`CollectionStep::request`], or `None` if no server should give it.
    #[must_use]
    pub fn seen(&self, reply: &Reply) -> Option<Seen> {
        if let CollectionStep::Stream(step) = self {
            return step.seen(reply);
        }
        let numbers = |items: &[Reply]| items.iter().map(number).collect::<Option<Vec<Value>>>();
        match (self.form(), reply) {
            (Form::Done, Reply::Status(_)) => Some(Seen::Done),
            (Form::Number, Reply::Null | Reply::NullArray) => Some(Seen::Value(None)),
            (Form::Number, _) => number(reply).map(|number| Seen::Value(Some(number))),
            (Form::KeyAndElement, Reply::Null | Reply::NullArray) => Some(Seen::Value(None)),
            (Form::KeyAndElement, Reply::Array(items)) => match &items[..] {
                [Reply::Bulk(key), element] if key == self.key().as_bytes() => {
                    number(element).map(|number| Seen::Value(Some(number)))
                }
                _ => None,
            },
            (Form::Numbers, Reply::Array(items)) => numbers(items).map(Seen::Numbers),
            (Form::SortedNumbers, Reply::Array(items)) => {
                let mut numbers = items.iter().map(member).collect::<Option<Vec<Value>>>()?;
                numbers.sort_unstable();
                Some(Seen::Numbers(numbers))
            }
            (Form::Entries, Reply::Array(items)) => {
                let numbers = numbers(items)?;
                let pairs = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1]));
                let mut pairs: Vec<(Value, Value)> = pairs.collect();
                pairs.sort_unstable();
                numbers
                    .len()
                    .is_multiple_of(2)
                    .then_some(Seen::Entries(pairs))
            }
            _ => None,
        }
    }
}

fn number(reply: &Reply) -> Option<Value> {
    match reply {
        Reply::Int(number) => Some(*number),
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

fn member(reply: &Reply) -> Option<Value> {
    match reply {
        Reply::Bulk(text) => {
            let text = std::str::from_utf8(text).ok()?;
            text.strip_prefix(MEMBER)?.parse().ok()
        }
        _ => None,
    }
}
