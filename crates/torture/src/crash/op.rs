//! The operations of the crash load, as requests and as the facts that their replies prove.
//!
//! | operation | keys | requests | what it can show |
//! |---|---|---|---|
//! | `Assign` | the connection's own | `SET`, `SET PX`, `DEL`, `MSET`, `MULTI … EXEC` | a lost, stale or invented value; a connection's writes out of order |
//! | `Add` | counters of all | `INCRBY` | a lost or doubled increment |
//! | `Transfer` | accounts of all | `MULTI DECRBY INCRBY EXEC` | a transaction in part: the sum is not zero |
//! | `Stamp` | groups of all | `MSET`, `MULTI … EXEC` | a transaction in part: the group's keys differ |
//! | `ReadCounter`, `ReadGroup` | counters, groups | `GET`, `MGET` | a value that was shown and is gone later |

use std::time::Instant;

use crate::crash::value::CrashValue;
use anyhow::{Result, anyhow, bail};
use testkit::{Client, Reply};

/// Counters that all connections add to.
pub const COUNTERS: usize = 8;
/// Accounts that all connections move amounts between.
pub const ACCOUNTS: usize = 12;
/// Groups that all connections stamp.
pub const GROUPS: usize = 4;
/// Keys in a group.
pub const GROUP_KEYS: usize = 5;
/// Keys that each connection has for itself.
pub const OWN_KEYS: usize = 24;

/// When a cell expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashExpiry {
    /// Never.
    Never,
    /// So soon that it is gone when the books are compared: after this many milliseconds.
    Soon(u64),
    /// So late that it is still there: after this many milliseconds from the instant on.
    Late(u64, Instant),
}

/// The value that a key was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashCell {
    /// The value.
    pub value: CrashValue,
    /// When it expires.
    pub expiry: CrashExpiry,
}

/// How several keys are written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One `MSET`.
    MSet,
    /// `MULTI`, a `SET` for each key, `EXEC`.
    Multi,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum CrashOp {
    /// Gives own keys a value, or deletes them.
    Assign {
        /// Keys and their cells; `None` deletes. One key, or several without expiry.
        cells: Vec<(String, Option<CrashCell>)>,
        /// How several keys are written.
        how: How,
    },
    /// Adds to a counter.
    Add {
        /// Its index.
        counter: usize,
        /// The amount; positive.
        by: i64,
    },
    /// Moves an amount.
    Transfer {
        /// From this account.
        from: usize,
        /// To this one.
        to: usize,
        /// The amount.
        amount: i64,
    },
    /// Writes one value to all keys of a group.
    Stamp {
        /// Its index.
        group: usize,
        /// The value.
        stamp: CrashValue,
        /// How the keys are written.
        how: How,
    },
    /// Reads a counter.
    ReadCounter(usize),
    /// Reads a group.
    ReadGroup(usize),
}

/// The facts that a reply shows beyond success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedState {
    /// Nothing.
    Nothing,
    /// A counter's value.
    Counter(i64),
    /// The value that all keys of a group have; `None` when they are all absent.
    Group(Option<CrashValue>),
}

/// Returns the name of a counter.
#[must_use]
pub fn counter_key(counter: usize) -> String {
    format!("counter:{counter}")
}

/// Returns the name of an account.
#[must_use]
pub fn account_key(account: usize) -> String {
    format!("account:{account}")
}

/// Returns the names of a group's keys. They differ in their first letters, so that they lie far
/// apart in the index.
#[must_use]
pub fn group_keys(group: usize) -> Vec<String> {
    (0..GROUP_KEYS)
        .map(|k| format!("{}:group:{group}", (b'a' + k as u8 * 5) as char))
        .collect()
}

/// Returns the name of one of a connection's own keys.
#[must_use]
pub fn own_key(connection: usize, key: usize) -> String {
    format!("own:{connection}:{key}")
}

impl CrashOp {
    /// Returns `true` if it writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        !matches!(self, CrashOp::ReadCounter(_) | CrashOp::ReadGroup(_))
    }

    /// Adds the requests to those that `client` sends next.
    pub fn push(&self, client: &mut Client) {
        match self {
            CrashOp::Assign { cells, how } => match cells.as_slice() {
                [(key, None)] => client.push(&["DEL", key]),
                [(key, Some(cell))] => push_set(client, key, cell),
                _ => {
                    let pairs = cells
                        .iter()
                        .filter_map(|(k, c)| Some((k.clone(), c.as_ref()?.value)));
                    push_many(client, pairs.collect(), *how);
                }
            },
            CrashOp::Add { counter, by } => {
                client.push(&["INCRBY", &counter_key(*counter), &by.to_string()]);
            }
            CrashOp::Transfer { from, to, amount } => {
                let amount = amount.to_string();
                client.push(&["MULTI"]);
                client.push(&["DECRBY", &account_key(*from), &amount]);
                client.push(&["INCRBY", &account_key(*to), &amount]);
                client.push(&["EXEC"]);
            }
            CrashOp::Stamp { group, stamp, how } => {
                let pairs = group_keys(*group)
                    .into_iter()
                    .map(|k| (k, *stamp))
                    .collect();
                push_many(client, pairs, *how);
            }
            CrashOp::ReadCounter(counter) => client.push(&["GET", &counter_key(*counter)]),
            CrashOp::ReadGroup(group) => {
                let mut args = vec!["MGET".to_owned()];
                args.extend(group_keys(*group));
                client.push(&args);
            }
        }
    }

    /// Returns the number of replies to the requests. The last one decides.
    #[must_use]
    pub fn replies(&self) -> usize {
        match self {
            CrashOp::Transfer { .. } => 4,
            CrashOp::Assign {
                cells,
                how: How::Multi,
            } if cells.len() > 1 => cells.len() + 2,
            CrashOp::Stamp {
                how: How::Multi, ..
            } => GROUP_KEYS + 2,
            _ => 1,
        }
    }

    /// Returns what the last reply shows.
    ///
    /// # Errors
    /// The text says what is wrong with the reply.
    pub fn judge(&self, reply: &Reply) -> Result<ObservedState> {
        let unexpected = || Err(anyhow!("{self:?} was answered with {reply:?}"));
        match (self, reply) {
            (CrashOp::Assign { cells, .. }, Reply::Int(0 | 1)) if cells[0].1.is_none() => {
                Ok(ObservedState::Nothing)
            }
            (CrashOp::Assign { .. } | CrashOp::Stamp { .. }, Reply::Status(text))
                if text == "OK" =>
            {
                Ok(ObservedState::Nothing)
            }
            (
                CrashOp::Assign {
                    how: How::Multi, ..
                }
                | CrashOp::Stamp {
                    how: How::Multi, ..
                }
                | CrashOp::Transfer { .. },
                Reply::Array(items),
            ) if items
                .iter()
                .all(|r| matches!(r, Reply::Int(_) | Reply::Status(_))) =>
            {
                Ok(ObservedState::Nothing)
            }
            (CrashOp::Add { .. }, Reply::Int(value)) => Ok(ObservedState::Counter(*value)),
            (CrashOp::ReadCounter(_), Reply::Null) => Ok(ObservedState::Counter(0)),
            (CrashOp::ReadCounter(_), Reply::Bulk(bytes)) => {
                match std::str::from_utf8(bytes)
                    .ok()
                    .and_then(|text| text.parse().ok())
                {
                    Some(value) => Ok(ObservedState::Counter(value)),
                    None => unexpected(),
                }
            }
            (CrashOp::ReadGroup(_), Reply::Array(items)) if items.len() == GROUP_KEYS => {
                judge_group(items)
            }
            _ => unexpected(),
        }
    }
}

fn judge_group(items: &[Reply]) -> Result<ObservedState> {
    if items.iter().any(|item| item != &items[0]) {
        let value = |item: &Reply| match item {
            Reply::Bulk(bytes) => CrashValue::decode(bytes),
            _ => None,
        };
        let values: Vec<_> = items.iter().map(value).collect();
        bail!("a group was read in part: {values:?}");
    }
    match &items[0] {
        Reply::Null => Ok(ObservedState::Group(None)),
        Reply::Bulk(bytes) => match CrashValue::decode(bytes) {
            Some(value) => Ok(ObservedState::Group(Some(value))),
            None => bail!("a group holds a value that no client sent"),
        },
        other => bail!("a group was answered with {other:?}"),
    }
}

fn push_set(client: &mut Client, key: &str, cell: &CrashCell) {
    let value = cell.value.encode();
    match cell.expiry {
        CrashExpiry::Never => client.push(&[b"SET", key.as_bytes(), &value]),
        CrashExpiry::Soon(ms) | CrashExpiry::Late(ms, _) => {
            let ms = ms.to_string();
            client.push(&[b"SET", key.as_bytes(), &value, b"PX", ms.as_bytes()]);
        }
    }
}

fn push_many(client: &mut Client, pairs: Vec<(String, CrashValue)>, how: How) {
    if how == How::MSet {
        let mut args = vec![b"MSET".to_vec()];
        args.extend(
            pairs
                .into_iter()
                .flat_map(|(k, v)| [k.into_bytes(), v.encode()]),
        );
        client.push(&args);
        return;
    }
    client.push(&["MULTI"]);
    for (key, value) in pairs {
        client.push(&[b"SET", key.as_bytes(), &value.encode()]);
    }
    client.push(&["EXEC"]);
}
