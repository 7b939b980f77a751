//! Versions of read-atomic keys (paper 1, RAMP): questions to a partition, and its answers.
//!
//! The newest committed version of a key is what every other reader sees. A read-atomic transaction
//! may also have to ask for another one: one that is committed in another partition and
//! prepared in this one, or one that was replaced since the transaction began.

use std::sync::Arc;
use std::time::Duration;

use super::database;
use super::ids::TransactionId;
use super::operation::Kind;

/// The set of read-atomic keys: those with one of these prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAtomic {
    prefixes: Arc<[Box<[u8]>]>,
}

impl ReadAtomic {
    /// The time for which a version is kept after it was replaced. A transaction that reads for
    /// longer than half of it begins again.
    pub const KEPT: Duration = Duration::from_secs(2);

    /// Returns the set of keys with these prefixes.
    pub fn new(prefixes: impl IntoIterator<Item = impl Into<Box<[u8]>>>) -> ReadAtomic {
        ReadAtomic {
            prefixes: prefixes.into_iter().map(Into::into).collect(),
        }
    }

    /// Returns `true` if no key is read atomic.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Returns `true` if this key is read atomic. Keys of other databases than 0 are not.
    #[inline]
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        let mut prefixes = self.prefixes.iter();
        prefixes.any(|prefix| key.starts_with(prefix)) && database::split(key).is_none()
    }

    /// Returns the prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.prefixes.iter().map(|prefix| &**prefix)
    }
}

/// The longest part of a key that a refusal shows, in bytes.
const SHOWN: usize = 100;

/// Returns a key as refusals show it: escaped, and the beginning of a long one alone.
#[must_use]
pub fn shown_key(key: &[u8]) -> String {
    match key.get(..SHOWN) {
        Some(start) if key.len() > SHOWN => format!("'{}…'", start.escape_ascii()),
        _ => format!("'{}'", key.escape_ascii()),
    }
}

/// An observer of the writes of read-atomic keys, of any kind.
///
/// The calls come from many threads at once, and from within commits: they must be short. Readers
/// begin to see a write between `writing` and `written`, and not before; the calls say nothing about
/// its durability.
pub trait Watcher: Send + Sync {
    /// Notes that a transaction begins to write a key.
    fn writing(&self, key: &[u8]);
    /// Notes that the write is done: the key's newest version can be read.
    fn written(&self, key: &[u8]);
    /// Notes that a transaction begins to remove all keys.
    fn writing_all(&self);
    /// Notes that the removal is done.
    fn written_all(&self);
}

/// A question about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// The newest committed version. Answered by `Version` or `Nothing`.
    Newest {
        /// The key.
        key: &'a [u8],
    },
    /// As `Newest`, but only the id: neither siblings nor content (RAMP-Small, first round).
    Id {
        /// The key.
        key: &'a [u8],
    },
    /// The newest of the versions with these ids, be it committed or prepared (second round).
    OneOf {
        /// The key.
        key: &'a [u8],
        /// Ids of transactions that have committed; at least one.
        ids: Vec<TransactionId>,
    },
}

impl<'a> Ask<'a> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match self {
            Ask::Newest { key } | Ask::Id { key } | Ask::OneOf { key, .. } => key,
        }
    }
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// This version.
    Version(Versioned<'a>),
    /// The key is absent and nothing is known of it: it was never written, or was made absent so
    /// long ago that every partition knows it.
    Nothing,
    /// None of these transactions has written the key: a version that is older than all of them is
    /// still kept, and none is of theirs.
    NotThere,
    /// One of them may have written it, but versions are not kept for so long: begin again.
    Gone,
}

/// A version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versioned<'a> {
    /// The transaction that wrote it; [`TransactionId::ZERO`] if it was written without an id,
    /// before the key was declared read atomic.
    pub id: TransactionId,
    /// See [`crate::change::siblings`].
    pub siblings: &'a [u8],
    /// The key's content; `None` if the key is absent, and for [`Ask::Id`].
    pub content: Option<Content<'a>>,
}

/// The content of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Its type.
    pub kind: Kind,
    /// The time at which it expires, milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
}

/// A [`Found`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The variants are those of `Found`.
pub enum OwnedFound {
    Version(OwnedVersion),
    Nothing,
    NotThere,
    Gone,
}

/// A [`Versioned`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of `Versioned`.
pub struct OwnedVersion {
    pub id: TransactionId,
    pub siblings: Arc<[u8]>,
    pub content: Option<OwnedContent>,
}

/// A [`Content`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of `Content`.
pub struct OwnedContent {
    pub value: Vec<u8>,
    pub kind: Kind,
    pub deadline: Option<u64>,
}

impl OwnedContent {
    /// Returns the content, borrowed.
    #[must_use]
    pub fn as_content(&self) -> Content<'_> {
        Content {
            value: &self.value,
            kind: self.kind,
            deadline: self.deadline,
        }
    }
}

impl OwnedFound {
    /// Returns the id of the version that was found.
    #[must_use]
    pub fn id(&self) -> Option<TransactionId> {
        match self {
            OwnedFound::Version(version) => Some(version.id),
            OwnedFound::Nothing | OwnedFound::NotThere | OwnedFound::Gone => None,
        }
    }

    /// Returns a copy. It shares the siblings of `last` if they are the same: versions that are read
    /// together are often of one transaction.
    #[must_use]
    pub fn copy(found: Found<'_>, last: Option<&OwnedFound>) -> OwnedFound {
        let version = match found {
            Found::Version(version) => version,
            Found::Nothing => return OwnedFound::Nothing,
            Found::NotThere => return OwnedFound::NotThere,
            Found::Gone => return OwnedFound::Gone,
        };
        let siblings = match last {
            Some(OwnedFound::Version(last)) if *last.siblings == *version.siblings => {
                Arc::clone(&last.siblings)
            }
            _ => version.siblings.into(),
        };
        OwnedFound::Version(OwnedVersion {
            id: version.id,
            siblings,
            content: version.content.map(|content| OwnedContent {
                value: content.value.to_vec(),
                kind: content.kind,
                deadline: content.deadline,
            }),
        })
    }
}

impl From<Found<'_>> for OwnedFound {
    fn from(found: Found<'_>) -> OwnedFound {
        OwnedFound::copy(found, None)
    }
}
