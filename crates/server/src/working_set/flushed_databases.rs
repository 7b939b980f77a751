//! The databases that a transaction has flushed.

use base::Op;
use smallvec::SmallVec;

/// Databases that were flushed.
#[derive(Default)]
pub(super) struct FlushedDatabases {
    all: bool,
    /// Others than those of `all`.
    some: SmallVec<[u16; 4]>,
}

impl FlushedDatabases {
    /// Returns `true` if a database was flushed.
    pub(super) fn has(&self, database: u16) -> bool {
        self.all || self.some.contains(&database)
    }

    /// Returns `true` if none was.
    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.some.is_empty()
    }

    /// Adds a database.
    pub(super) fn add(&mut self, database: u16) {
        if !self.has(database) {
            self.some.push(database);
        }
    }

    /// Adds all databases.
    pub(super) fn add_all(&mut self) {
        self.all = true;
        self.some.clear();
    }

    /// Returns the operations that flush them.
    pub(super) fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        let all = self.all.then_some(Op::Flush);
        let some = self.some.iter();
        let some = some.map(|&database| Op::FlushDatabase { database });
        all.into_iter().chain(some)
    }
}
