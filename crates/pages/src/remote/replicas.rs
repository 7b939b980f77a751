//! One table on several storage nodes: the same version with the same segments on each, so that readers can
//! use any of the nodes.
//!
//! The client that loads chooses the names of the new version: the table's id, the version's number, the
//! segment's id. Every node makes pages of the same blocks in the same way, so that the pages are equal, bit
//! by bit.
//!
//! **All of them or none**, as far as that is possible without a log:
//!
//! 1. every node gets every block, and has answered to all of them;
//! 2. every node *prepares*: its rows are durable, and it has checked that the version may come next;
//! 3. the nodes commit, one after the other in the order of their addresses.
//!
//! Until step 3 an error leaves no node with any of the rows. In step 3, only the loss of a node, or the
//! failure of a disk, can leave some nodes with the new version and others without: [`PartialChange`] says which,
//! and for which nodes the outcome is unknown. If it is unknown for the first node, the others are not asked
//! to commit. Readers take the newest version meanwhile.
//!
//! Of two loads at once into the same nodes, the first node accepts one and refuses the other one before any
//! node has its rows, because both loads begin with that node. This requires that both know each node by the
//! same address: clients that name nodes in different ways, such as one by its address on another network,
//! may begin with different nodes, and leave nodes with different versions.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::load::{RemoteLoad, blocks};
use super::remote_node::RemoteNode;
use super::session::Session;
use crate::error::{Error, PartialChange};
use crate::table::{SegmentId, Table, TableId, Version};
use crate::table_store::{Sink, TableStore};
use crate::tables::{Identity, LoadOptions, Mode, version_after};

/// Several storage nodes that are to have the same tables; see the [module](self).
#[derive(Clone, Debug)]
pub struct Replicas {
    nodes: Vec<RemoteNode>,
}

impl Replicas {
    /// Makes a store of these nodes.
    ///
    /// # Panics
    /// Panics without nodes.
    #[must_use]
    pub fn new(mut nodes: Vec<RemoteNode>) -> Replicas {
        assert!(!nodes.is_empty(), "replicas lie somewhere");
        nodes.sort_by_key(|node| node.options().session.address);
        Replicas { nodes }
    }

    /// Returns each node's version of a table.
    fn versions(&self, name: &str) -> Result<Vec<Option<Arc<Table>>>, Error> {
        let asked = self.nodes.iter().map(|node| {
            let table = TableStore::table(node, name);
            table.map_err(|error| of(&address(node), &error))
        });
        asked.collect()
    }

    /// Returns each node's version of a table that is to be replaced; a damaged table counts as none.
    fn replaceable(&self, name: &str) -> Result<Vec<Option<Arc<Table>>>, Error> {
        let asked = self.nodes.iter().map(|node| {
            let table = || match node.damaged()?.iter().any(|(damaged, _)| damaged == name) {
                true => Ok(None),
                false => TableStore::table(node, name),
            };
            table().map_err(|error| of(&address(node), &error))
        });
        asked.collect()
    }

    /// Returns the version that all nodes have; `None` if none has one.
    fn common(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        let versions = self.versions(name)?;
        let first = &versions[0];
        let is_same = |other: &Option<Arc<Table>>| match (first, other) {
            (Some(first), Some(other)) => same(first, other),
            (None, None) => true,
            _ => false,
        };
        if versions.iter().all(is_same) {
            return Ok(first.clone());
        }
        let versions = self
            .nodes
            .iter()
            .zip(&versions)
            .map(|(node, table)| match table {
                Some(table) => format!(
                    "{} version {} of {} rows",
                    address(node),
                    table.version.0,
                    table.rows()
                ),
                None => format!("{} none", address(node)),
            });
        let versions: Vec<_> = versions.collect();
        Err(Error::Different(format!(
            "the storage nodes have different tables {name} ({}): replace them on all of these",
            versions.join(", ")
        )))
    }

    /// Returns the names of the version that comes next.
    fn identity(&self, name: &str, mode: Mode) -> Result<Identity, Error> {
        let segment = SegmentId::new();
        if mode == Mode::Append {
            let unknown = || Error::Unknown {
                name: name.to_owned(),
                tables: Vec::new(),
            };
            let table = self.common(name)?.ok_or_else(unknown)?;
            return Ok(Identity {
                table: table.id,
                version: version_after(name, table.version)?,
                segment,
            });
        }
        let versions = match mode {
            Mode::Replace => self.replaceable(name)?,
            _ => self.versions(name)?,
        };
        let there = || versions.iter().flatten();
        if mode == Mode::Create && there().next().is_some() {
            return Err(Error::Exists(name.to_owned()));
        }
        let newest = there().map(|table| table.version).max();
        let version = newest.map_or(Ok(Version::FIRST), |newest| version_after(name, newest))?;
        let id = there().next().map(|table| table.id);
        let id = id.filter(|id| there().all(|table| table.id == *id));
        Ok(Identity {
            table: id.unwrap_or_else(TableId::new),
            version,
            segment,
        })
    }
}

/// Returns `true` if two nodes have the same version.
fn same(one: &Table, other: &Table) -> bool {
    let segments = |table: &Table| -> Vec<_> {
        let segments = table.segments.iter();
        segments.map(|segment| (segment.id, segment.rows)).collect()
    };
    (one.id, one.version) == (other.id, other.version) && segments(one) == segments(other)
}

fn address(node: &RemoteNode) -> String {
    node.options().session.address.to_string()
}

fn of(node: &str, error: &Error) -> Error {
    let (node, why) = (node.to_owned(), error.to_string());
    // Sessions name their node, too.
    let named = format!("storage node {node}: ");
    let why = why.strip_prefix(&named).unwrap_or(&why).to_owned();
    let class = error.class();
    Error::Replica { node, why, class }
}

impl TableStore for Replicas {
    /// Returns the tables of all nodes, each in the newest version of any node.
    fn list(&self) -> Result<Vec<Arc<Table>>, Error> {
        let mut all: Vec<Arc<Table>> = Vec::new();
        for node in &self.nodes {
            let list = TableStore::list(node).map_err(|error| of(&address(node), &error))?;
            for table in list {
                match all.iter_mut().find(|known| known.name == table.name) {
                    Some(known) if known.version < table.version => *known = table,
                    Some(_) => {}
                    None => all.push(table),
                }
            }
        }
        Ok(all)
    }

    /// Returns the damaged tables of all nodes; the damage names the node.
    fn damaged(&self) -> Result<Vec<(String, String)>, Error> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let address = address(node);
            let damaged = node.damaged().map_err(|error| of(&address, &error))?;
            let damaged = damaged.into_iter();
            all.extend(
                damaged.map(|(name, what)| (name, format!("storage node {address}: {what}"))),
            );
        }
        Ok(all)
    }

    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        self.common(name)
    }

    /// Removes it from the nodes that have it; an error if no node has it.
    fn remove(&self, name: &str) -> Result<(), Error> {
        let (mut done, mut doubtful, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut absent = None;
        for node in &self.nodes {
            if matches!(TableStore::table(node, name), Ok(None)) {
                absent = Some(TableStore::remove(node, name));
                continue;
            }
            match TableStore::remove(node, name) {
                Ok(()) => done.push(address(node)),
                Err(Error::Doubtful(why)) => {
                    doubtful.push((address(node), why));
                }
                Err(error) => failed.push((address(node), error)),
            }
        }
        match (&*done, &*doubtful, &*failed) {
            ([], [], []) => absent.unwrap_or(Ok(())),
            (_, [], []) => Ok(()),
            ([], [], [(node, error)]) => Err(of(node, error)),
            _ => Err(Error::from(Box::new(PartialChange {
                what: format!("removing table {name}"),
                remedy: "remove it again",
                done,
                doubtful,
                failed: failed
                    .into_iter()
                    .map(|(node, error)| (node, error.to_string()))
                    .collect(),
            }))),
        }
    }

    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, Error> {
        options.check(schema, mode)?;
        let identity = self.identity(name, mode)?;
        let begin = |node: &RemoteNode| {
            let session = Session::connect(node.options().session.clone())?;
            RemoteLoad::begin_as(session, name, schema, options, mode, Some(identity))
        };
        let loads = self
            .nodes
            .iter()
            .map(|node| begin(node).map_err(|error| of(&address(node), &error)));
        Ok(Box::new(ReplicaLoad {
            loads: loads.collect::<Result<_, _>>()?,
            what: format!("making version {} of table {name}", identity.version.0),
        }))
    }
}

/// Rows on their way to several nodes.
struct ReplicaLoad {
    /// The loads in the order of the nodes' addresses; at least one.
    loads: Vec<RemoteLoad>,
    what: String,
}

impl ReplicaLoad {
    /// Calls `work` for each node's load.
    fn each(
        &mut self,
        mut work: impl FnMut(&mut RemoteLoad) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for load in &mut self.loads {
            work(load).map_err(|error| of(&load.address().to_string(), &error))?;
        }
        Ok(())
    }
}

impl Sink for ReplicaLoad {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        for block in blocks(batch)? {
            self.each(|load| load.push_block(&block))?;
        }
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.loads[0].rows()
    }

    fn commit(mut self: Box<Self>) -> Result<Arc<Table>, Error> {
        // All nodes prepare at once: they sync in parallel.
        self.each(RemoteLoad::begin_prepare)?;
        self.each(RemoteLoad::prepare)?;
        let (mut done, mut doubtful, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = None;
        for load in self.loads {
            let node = load.address().to_string();
            if table.is_none() && !doubtful.is_empty() {
                failed.push((node, "it was not asked".to_owned()));
                continue;
            }
            match load.commit() {
                Ok(committed) => {
                    table.get_or_insert(committed);
                    done.push(node);
                }
                Err(Error::Doubtful(why)) => doubtful.push((node, why)),
                // No node has it yet, so no node shall get it.
                Err(error) if table.is_none() => return Err(of(&node, &error)),
                Err(error) => failed.push((node, error.to_string())),
            }
        }
        match table {
            Some(table) if doubtful.is_empty() && failed.is_empty() => Ok(table),
            _ => Err(Error::from(Box::new(PartialChange {
                what: self.what,
                remedy: "see with 'kumiki pages ls' what each of them has, and replace the table on all \
                         of them if that differs",
                done,
                doubtful,
                failed,
            }))),
        }
    }
}
