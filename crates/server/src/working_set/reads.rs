//! The reads of a transaction in several steps, and their answers.

use base::database;
use base::partition::OwnedReply;
use base::transaction::{Kind, ScanContents};
use base::{Op, Reply, Version};
use smallvec::SmallVec;

/// Operations, as plans have them.
pub(super) type Operations<'a> = SmallVec<[Op<'a>; 4]>;

/// The operations by which a key is read.
const OPS_OF_KEY: usize = 3;

/// A value, as it is stored, with its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkingValue {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    pub(crate) deadline: Option<u64>,
}

/// The reads without which a transaction cannot continue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Need {
    Keys(SmallVec<[Box<[u8]>; 2]>),
    /// The number of keys of a database.
    Count {
        database: u16,
    },
    /// A walk, as [`Op::Scan`].
    Scan {
        from: Box<[u8]>,
        to: Option<Box<[u8]>>,
        limit: usize,
        contents: ScanContents,
    },
    /// The libraries of functions, from the partition of this key; `None`: from that of this node.
    Libraries(Option<Box<[u8]>>),
}

/// The answers to a [`Need`].
pub(crate) enum ReadAnswers {
    /// For each key its version, and its value if it has one.
    Keys(SmallVec<[(Version, Option<WorkingValue>); 2]>),
    Other(OwnedReply),
}

impl WorkingValue {
    /// Returns a string.
    pub(crate) fn string(bytes: Vec<u8>, deadline: Option<u64>) -> WorkingValue {
        WorkingValue {
            kind: Kind::String,
            bytes,
            deadline,
        }
    }
}

impl Need {
    /// Returns the operations that read it.
    pub(crate) fn ops(&self) -> Operations<'_> {
        match self {
            Need::Keys(keys) => {
                let of = |key| [Op::Watch { key }, Op::GetAny { key }, Op::ExpiryOf { key }];
                keys.iter().flat_map(|key| of(key)).collect()
            }
            Need::Count { database } => {
                let database = *database;
                [Op::Count { database }].into_iter().collect()
            }
            Need::Scan {
                from,
                to,
                limit,
                contents,
            } => {
                let scan = Op::Scan {
                    from,
                    to: to.as_deref(),
                    limit: *limit,
                    contents: *contents,
                };
                [scan].into_iter().collect()
            }
            Need::Libraries(place) => {
                let place = place.iter().map(|key| Op::Exists { key });
                [Op::Libraries].into_iter().chain(place).collect()
            }
        }
    }
}

impl Need {
    /// Returns an answer to it with the keys of a walk as operations name them: an exchange of databases
    /// gives them others in the partition.
    pub(super) fn answer(&self, answer: OwnedReply) -> OwnedReply {
        match (self, answer) {
            (Need::Scan { from, .. }, OwnedReply::Pairs(mut pairs)) => {
                let database = database::number(from);
                let named = |key: &[u8]| database::qualified(database, database::client_key(key));
                pairs.iter_mut().for_each(|(key, _)| *key = named(key));
                OwnedReply::Pairs(pairs)
            }
            (_, answer) => answer,
        }
    }
}

impl ReadAnswers {
    /// Takes the answers to [`Need::ops`].
    pub(crate) fn of(need: &Need, replies: &[Reply<'_>]) -> ReadAnswers {
        let Need::Keys(_) = need else {
            let answer = replies.first().map_or(OwnedReply::Nil, OwnedReply::from);
            return ReadAnswers::Other(answer);
        };
        let of_key = |replies: &[Reply<'_>]| {
            let [Reply::Version(version), value, deadline] = replies else {
                unreachable!("a key's answers are {replies:?}")
            };
            let value = match (value, deadline) {
                (Reply::Value(kind, bytes), Reply::Deadline(deadline)) => Some(WorkingValue {
                    kind: *kind,
                    bytes: bytes.to_vec(),
                    deadline: *deadline,
                }),
                _ => None,
            };
            (*version, value)
        };
        ReadAnswers::Keys(replies.chunks_exact(OPS_OF_KEY).map(of_key).collect())
    }
}
