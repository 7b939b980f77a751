//! The results of steps.

use history::Value;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The write was done.
    Done,
    /// The key's value; `None` if it was absent.
    Value(Option<Value>),
    /// Like [`Seen::Value`], with the store's version of the key; see [`history::json`] for the
    /// requirements on versions.
    Versioned(Option<Value>, u64),
    /// `true` if there was a key to delete.
    Deleted(bool),
    /// Keys and values, in the store's order.
    Pairs(Vec<(String, Value)>),
    /// The elements of a list, or the members of a set.
    Numbers(Vec<Value>),
    /// The fields and values of a hash, or the members and scores of a sorted set.
    Entries(Vec<(Value, Value)>),
}

impl Seen {
    /// Returns the value of the key that was read or added to.
    #[must_use]
    pub fn value(&self) -> Option<Value> {
        match self {
            Seen::Value(value) | Seen::Versioned(value, _) => *value,
            _ => None,
        }
    }
}
