//! The tables, and the nodes that have them.
//!
//! A *store* is a place that keeps tables: a directory of this machine, a storage node. Stores that have the
//! same version of a table with the same segments are its *replicas*: their pages are equal, bit by bit, and
//! a task that one of them loses can run on another one. Of several versions of a table the newest is used.
//! The newest version that was ever found is remembered: if a store that had a newer version is away, the
//! result is an error and no older version. Two different tables of one name are an error, as any choice
//! could be wrong.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use operators::placement::{LinkCosts, SideCosts};
use operators::{Placement, Site};
use pages::{PageAddress, Table, TableId, Version};
use parking_lot::Mutex;

use crate::error::{CatalogueError, Error};
use crate::meter::PageMeter;

/// The assumed seconds of a thread for an operation on a row before enough were measured: the result of
/// the executor's benchmark for sums of products.
pub(crate) const OPERATION_S: f64 = 1e-9;

/// A place that keeps tables.
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns its name: a directory, an address.
    fn name(&self) -> &str;

    /// Returns where it is, and the measured costs of reading a table's pages there.
    fn location(&self, table: &Table) -> StoreLocation;

    /// Returns which costs of [`Store::location`], and of work on its pages, were measured.
    fn measured(&self) -> MeasuredCosts {
        MeasuredCosts::default()
    }

    /// Returns the part of these pages that is in a cache of this machine, from 0 to 1.
    fn cached(&self, _pages: &[PageAddress]) -> f64 {
        0.0
    }

    /// Returns `true` if it is on another machine.
    fn is_remote(&self) -> bool;

    /// Returns the names of its tables.
    ///
    /// # Errors
    /// Returns an error if the store cannot be asked; the text says why and what to do.
    fn tables(&self) -> Result<Vec<String>, Error>;

    /// Returns the newest version of a table; `None` if the store has no such table.
    ///
    /// # Errors
    /// Returns an error if the store cannot be asked, or the table is damaged; the text says why and what to
    /// do.
    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error>;

    /// Returns the site where fragments over a table that it has opened run under a placement, with a count
    /// of the pages that are read for it; `None` if it does not offer the placement.
    fn site(
        &self,
        table: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>>;
}

/// Where a store is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StoreLocation {
    /// On this machine.
    Local {
        /// Seconds for a page, with as many under way as usual.
        page_s: f64,
    },
    /// On a storage node, over a link.
    Remote(SideCosts, LinkCosts),
}

/// The costs that were measured; all others are assumed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MeasuredCosts {
    /// `true` if the time that a page takes to be read where it lies was measured.
    pub pages: bool,
    /// `true` if the time that a page takes over the link was measured.
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

/// A version of a table, and the stores that have it.
#[derive(Clone, Debug)]
pub struct ReplicatedTable {
    /// The version.
    pub table: Arc<Table>,
    /// The stores that have all of it, those of this machine first; at least one.
    pub replicas: Vec<Replica>,
}

/// A store, and the version that it has opened.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The version, which is equal to that of the other replicas.
    pub table: Arc<Table>,
}

impl Replica {
    /// Returns the store's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.store.name()
    }
}

/// Tables of several stores.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    stores: Vec<Arc<dyn Store>>,
    /// The newest versions that were found.
    seen: Arc<Mutex<HashMap<TableId, Version>>>,
    /// Stores that could not be asked the last time.
    away: Arc<Mutex<HashSet<String>>>,
}

impl Catalogue {
    /// Makes a catalogue of these stores' tables.
    #[must_use]
    pub fn new(mut stores: Vec<Arc<dyn Store>>) -> Catalogue {
        stores.sort_by_key(|store| store.is_remote());
        Catalogue {
            stores,
            seen: Arc::default(),
            away: Arc::default(),
        }
    }

    /// Returns the stores, those of this machine first.
    #[must_use]
    pub fn stores(&self) -> &[Arc<dyn Store>] {
        &self.stores
    }

    /// Returns the names of all tables. A store that cannot be asked is left out, and the log says so.
    ///
    /// # Errors
    /// Returns an error if none of the stores can be asked.
    pub fn names(&self) -> Result<Vec<String>, CatalogueError> {
        let mut names = BTreeSet::new();
        let mut failed = None;
        let mut asked = self.stores.is_empty();
        for store in &self.stores {
            match store.tables() {
                Ok(tables) => {
                    asked = true;
                    self.is_back(store.name());
                    names.extend(tables);
                }
                Err(error) => failed = Some((store.name().to_owned(), error.to_string())),
            }
        }
        match failed {
            Some((store, why)) if !asked => Err(CatalogueError::Away { store, why }),
            Some((store, why)) => {
                self.is_away(&store, &why);
                Ok(names.into_iter().collect())
            }
            None => Ok(names.into_iter().collect()),
        }
    }

    /// Logs that a store cannot be asked, once for each time that it goes away.
    fn is_away(&self, store: &str, why: &str) {
        if self.away.lock().insert(store.to_owned()) {
            tracing::warn!("{store} cannot be asked: {why}");
        }
    }

    fn is_back(&self, store: &str) {
        if self.away.lock().remove(store) {
            tracing::info!("{store} can be asked again");
        }
    }

    /// Returns the newest version of a table; `None` if there is no such table.
    ///
    /// # Errors
    /// See [`CatalogueError`]. A store that cannot be asked is no error while another one has the table.
    pub fn find(&self, name: &str) -> Result<Option<ReplicatedTable>, CatalogueError> {
        let mut found: Option<ReplicatedTable> = None;
        let mut failed = None;
        for store in &self.stores {
            let table = match store.open(name) {
                Ok(table) => table,
                Err(error) => {
                    let why = || (store.name().to_owned(), error.to_string());
                    failed = failed.or_else(|| Some(why()));
                    continue;
                }
            };
            self.is_back(store.name());
            let Some(table) = table else { continue };
            match &mut found {
                None => found = Some(ReplicatedTable::of(table, store)),
                Some(known) => known.add(table, store)?,
            }
        }
        let name = name.to_owned();
        match (found, failed) {
            (None, None) => Ok(None),
            (None, Some((store, why))) => Err(CatalogueError::Unavailable { name, store, why }),
            (Some(found), failed) => {
                // If this returns an error, the error names the store itself.
                if let Some((store, why)) = &failed {
                    self.is_away(store, why);
                }
                let version = found.table.version;
                let mut seen = self.seen.lock();
                let newest = seen.entry(found.table.id).or_insert(version);
                // If all stores were asked, no store has the newer version any more.
                if let Some((store, why)) = failed
                    && *newest > version
                {
                    return Err(CatalogueError::Older {
                        name,
                        found: version.0,
                        seen: newest.0,
                        store,
                        why,
                    });
                }
                *newest = version;
                Ok(Some(found))
            }
        }
    }
}

impl ReplicatedTable {
    fn of(table: Arc<Table>, store: &Arc<dyn Store>) -> ReplicatedTable {
        let store = Arc::clone(store);
        ReplicatedTable {
            table: Arc::clone(&table),
            replicas: vec![Replica { store, table }],
        }
    }

    /// Adds another store's version.
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
            *self = ReplicatedTable::of(table, store);
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

    fn find(stores: Vec<FakeStore>) -> Result<Option<ReplicatedTable>, CatalogueError> {
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

    #[test]
    fn no_older_version_is_used_while_the_store_of_a_newer_one_is_away() {
        let old = FakeStore::local("old", vec![table("t", 1, 1, &[7])]);
        let new = FakeStore::remote("new", vec![table("t", 1, 2, &[7, 8])]);
        let mut catalogue = Catalogue::new(vec![Arc::new(old), Arc::new(new)]);
        let found = catalogue.find("t").unwrap().unwrap();
        assert_eq!(found.table.version.0, 2);
        catalogue.stores[1] = Arc::new(FakeStore::away("new"));
        let error = catalogue.find("t").unwrap_err();
        assert!(matches!(&error, CatalogueError::Older { .. }), "{error}");
        // The error names the store that is away. After no store is away, the older version is the newest.
        assert!(error.to_string().contains("new cannot be asked"), "{error}");
        catalogue.stores.pop();
        let found = catalogue.find("t").unwrap().unwrap();
        assert_eq!(found.table.version.0, 1);
    }

    #[test]
    fn names_are_those_of_the_stores_that_answer() {
        let names = |stores: Vec<FakeStore>| {
            let stores = stores.into_iter().map(|s| Arc::new(s) as Arc<dyn Store>);
            Catalogue::new(stores.collect()).names()
        };
        let there = || FakeStore::local("a", vec![table("t", 1, 1, &[7])]);
        assert_eq!(
            names(vec![there(), FakeStore::away("gone")]).unwrap(),
            ["t"]
        );
        let none = names(vec![FakeStore::away("gone")]).unwrap_err();
        assert!(none.to_string().contains("gone cannot be asked"), "{none}");
        assert_eq!(names(vec![]).unwrap(), Vec::<String>::new());
    }
}
