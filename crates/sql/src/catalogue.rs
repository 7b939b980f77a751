//! Which tables there are, and on which nodes.
//!
//! A *store* is a place that keeps tables: a directory of this machine, a storage node. Stores that
//! have the same version of a table with the same segments are its *replicas*: their pages are equal,
//! bit by bit, and a task that one of them loses is another's to run. Of several versions of a table
//! the newest is taken. Two different tables of one name are an error, which is better than to choose.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use operators::Site;
use operators::placement::{Link, Side};
use pages::{Address, Table};

use crate::meter::PageMeter;
use crate::place::Placement;

/// A place that keeps tables.
pub trait Store: Send + Sync + fmt::Debug {
    /// What it is called: a directory, an address.
    fn name(&self) -> &str;

    /// Where it is, and what it costs to read a table's pages there, as it was measured.
    fn place(&self, table: &Table) -> Place;

    /// What is known by measuring of the costs of [`Store::place`], and of work on its pages.
    fn measured(&self) -> Measured {
        Measured::default()
    }

    /// The part of these pages that is in a cache of this machine, from 0 to 1.
    fn cached(&self, _pages: &[Address]) -> f64 {
        0.0
    }

    /// Whether it is on another machine.
    fn is_remote(&self) -> bool;

    /// The names of its tables.
    ///
    /// # Errors
    /// If the store cannot be asked; the text says why and what to do.
    fn tables(&self) -> Result<Vec<String>, String>;

    /// The newest version of a table; `None` if the store has no such table.
    ///
    /// # Errors
    /// If the store cannot be asked, or the table is damaged; the text says why and what to do.
    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, String>;

    /// Where fragments over a table that it has opened run under a placement, with a count of the pages
    /// that are read for it; `None` if it has no such place.
    fn site(
        &self,
        table: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>>;
}

/// Where a store is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Place {
    /// On this machine.
    Here {
        /// Seconds for a page, with as many under way as usual.
        page_s: f64,
    },
    /// On a storage node, over a link.
    There(Side, Link),
}

/// What was measured: everything else is supposed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Whether the time that a page takes to be read where it lies was.
    pub pages: bool,
    /// Whether the time that a page takes over the link was.
    pub link: bool,
    /// Seconds of a processor here for an operation on a row.
    pub operation_s: Option<f64>,
    /// Seconds of a processor here for a page.
    pub page_s: Option<f64>,
    /// Seconds of a processor of the node for an operation on a row.
    pub operation_there_s: Option<f64>,
    /// Seconds of a processor of the node for a page.
    pub page_there_s: Option<f64>,
}

/// A version of a table, and who has it.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// The version.
    pub table: Arc<Table>,
    /// Who has all of it, those of this machine first; at least one.
    pub replicas: Vec<Replica>,
}

/// A store, and the version as it has opened it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Equal to that of the other replicas.
    pub table: Arc<Table>,
}

impl Replica {
    /// What the store is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.store.name()
    }
}

/// Why a table cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CatalogueError {
    /// Stores have different tables of one name.
    #[error(
        "there are different tables named {name}, in {first} and in {second}: rename one of them, \
         or leave one of the two places out"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// A store that has one.
        first: String,
        /// A store that has another one.
        second: String,
    },
    /// No store has the table, and some cannot be asked.
    #[error("{store} cannot be asked for table {name}: {why}")]
    Unavailable {
        /// The name.
        name: String,
        /// One of those that cannot be asked.
        store: String,
        /// What it, or the system, said.
        why: String,
    },
}

/// Tables of several stores.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    stores: Vec<Arc<dyn Store>>,
}

impl Catalogue {
    /// The tables of these stores.
    #[must_use]
    pub fn new(mut stores: Vec<Arc<dyn Store>>) -> Catalogue {
        stores.sort_by_key(|store| store.is_remote());
        Catalogue { stores }
    }

    /// The stores, those of this machine first.
    #[must_use]
    pub fn stores(&self) -> &[Arc<dyn Store>] {
        &self.stores
    }

    /// The names of all tables. A store that cannot be asked is left out, and the log says so.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        for store in &self.stores {
            match store.tables() {
                Ok(tables) => names.extend(tables),
                Err(why) => {
                    tracing::warn!("{} cannot be asked for its tables: {why}", store.name())
                }
            }
        }
        names.into_iter().collect()
    }

    /// The newest version of a table; `None` if there is no such table.
    ///
    /// # Errors
    /// See [`CatalogueError`]. A store that cannot be asked is no error while another one has the table.
    pub fn find(&self, name: &str) -> Result<Option<Replicated>, CatalogueError> {
        let mut found: Option<Replicated> = None;
        let mut failed = None;
        for store in &self.stores {
            let table = match store.open(name) {
                Ok(None) => continue,
                Ok(Some(table)) => table,
                Err(why) => {
                    tracing::warn!("{} cannot be asked for table {name}: {why}", store.name());
                    failed = failed.or(Some((store.name().to_owned(), why)));
                    continue;
                }
            };
            match &mut found {
                None => found = Some(Replicated::of(table, store)),
                Some(known) => known.add(table, store)?,
            }
        }
        match (found, failed) {
            (None, Some((store, why))) => Err(CatalogueError::Unavailable {
                name: name.to_owned(),
                store,
                why,
            }),
            (found, _) => Ok(found),
        }
    }
}

impl Replicated {
    fn of(table: Arc<Table>, store: &Arc<dyn Store>) -> Replicated {
        let store = Arc::clone(store);
        Replicated {
            table: Arc::clone(&table),
            replicas: vec![Replica { store, table }],
        }
    }

    /// Takes note of another store's version.
    fn add(&mut self, table: Arc<Table>, store: &Arc<dyn Store>) -> Result<(), CatalogueError> {
        let known = &self.table;
        let ambiguous = || CatalogueError::Ambiguous {
            name: table.name.clone(),
            first: self.replicas[0].name().to_owned(),
            second: store.name().to_owned(),
        };
        if table.id != known.id {
            return Err(ambiguous());
        }
        if table.version > known.version {
            *self = Replicated::of(table, store);
        } else if table.version == known.version {
            if !same_segments(&table, known) {
                return Err(ambiguous());
            }
            let store = Arc::clone(store);
            self.replicas.push(Replica { store, table });
        }
        Ok(())
    }
}

fn same_segments(one: &Table, other: &Table) -> bool {
    let ids = |table: &Table| -> Vec<_> { table.segments.iter().map(|s| (s.id, s.rows)).collect() };
    ids(one) == ids(other) && one.schema == other.schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{FakeStore, table};

    fn find(stores: Vec<FakeStore>) -> Result<Option<Replicated>, CatalogueError> {
        let stores = stores.into_iter().map(|s| Arc::new(s) as Arc<dyn Store>);
        Catalogue::new(stores.collect()).find("t")
    }

    #[test]
    fn equal_versions_are_replicas_and_those_of_this_machine_come_first() {
        let found = find(vec![
            FakeStore::remote("far", vec![table("t", 1, 3, &[7])]),
            FakeStore::local("near", vec![table("t", 1, 3, &[7])]),
        ]);
        let found = found.unwrap().unwrap();
        let names: Vec<_> = found.replicas.iter().map(|s| s.name().to_owned()).collect();
        assert_eq!(names, ["near", "far"]);
    }

    #[test]
    fn the_newest_version_is_taken_wherever_it_is() {
        for versions in [[2, 3], [3, 2]] {
            let [a, b] = versions;
            let found = find(vec![
                FakeStore::local("a", vec![table("t", 1, a, &[a.into()])]),
                FakeStore::local("b", vec![table("t", 1, b, &[b.into()])]),
            ]);
            let found = found.unwrap().unwrap();
            assert_eq!(found.table.version.0, 3);
            assert_eq!(found.replicas.len(), 1);
        }
    }

    #[test]
    fn different_tables_of_one_name_are_an_error() {
        let other_id = find(vec![
            FakeStore::local("a", vec![table("t", 1, 1, &[7])]),
            FakeStore::local("b", vec![table("t", 2, 1, &[8])]),
        ]);
        let other_segments = find(vec![
            FakeStore::local("a", vec![table("t", 1, 1, &[7])]),
            FakeStore::local("b", vec![table("t", 1, 1, &[8])]),
        ]);
        for found in [other_id, other_segments] {
            assert!(matches!(found, Err(CatalogueError::Ambiguous { .. })));
        }
    }

    #[test]
    fn a_store_that_is_away_matters_only_if_no_other_has_the_table() {
        let there = find(vec![
            FakeStore::away("gone"),
            FakeStore::local("a", vec![table("t", 1, 1, &[7])]),
        ]);
        assert_eq!(there.unwrap().unwrap().replicas.len(), 1);
        let gone = find(vec![FakeStore::away("gone"), FakeStore::local("a", vec![])]);
        assert!(matches!(gone, Err(CatalogueError::Unavailable { .. })));
        assert!(find(vec![FakeStore::local("a", vec![])]).unwrap().is_none());
    }
}
