//! Loading and removing tables, in every place that keeps them.
//!
//! | depot | tables are |
//! |---|---|
//! | [`Tables`] | in directories of this machine |
//! | [`Far`] | at a storage node |
//! | [`Replicas`](crate::remote::Replicas) | at several storage nodes, at each the same |
//!
//! Every depot guarantees that rows that were pushed become part of their table when the sink commits, all at
//! once and durably. A sink that is dropped, or whose process ends, leaves the table as it was.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::remote::{Apart, Far, FarLoad, Session, SessionError};
use crate::table::Table;
use crate::tables::{Load, LoadOptions, Mode, Tables, TablesError};

/// A place where tables are loaded and removed; see the [module](self).
pub trait Depot: Send + Sync {
    /// Returns the newest versions of all tables, except those that are damaged.
    ///
    /// # Errors
    /// Returns an error if the depot cannot be asked.
    fn list(&self) -> Result<Vec<Arc<Table>>, DepotError>;

    /// Returns the tables that are damaged, and the damage of each.
    ///
    /// # Errors
    /// Returns an error if the depot cannot be asked.
    fn damaged(&self) -> Result<Vec<(String, String)>, DepotError>;

    /// Returns the newest version of a table; `None` if there is no such table.
    ///
    /// # Errors
    /// Returns an error if the depot cannot be asked, or the table is damaged.
    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, DepotError>;

    /// Removes a table.
    ///
    /// # Errors
    /// Returns an error if there is none, or it cannot be removed. The table is as it was, except for errors
    /// that say that the outcome is unknown; for several nodes see [`DepotError::Apart`].
    fn remove(&self, name: &str) -> Result<(), DepotError>;

    /// Begins to load rows into a table. To [append](Mode::Append) the schema must be the table's, and the
    /// options do not matter.
    ///
    /// # Errors
    /// Returns an error if the mode does not allow the table to exist, or to be missing, if the columns
    /// cannot be stored in pages with these options, or if the depot cannot be asked.
    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, DepotError>;
}

/// Rows on their way into a table. If it is dropped without a commit, the table stays as it was.
pub trait Sink: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be stored in pages, or the depot does not take them. The sink is
    /// of no use then.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), DepotError>;

    /// Returns the number of rows so far.
    fn rows(&self) -> u64;

    /// Makes the rows part of the table, durably and all at once. Returns the table's new version.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::push`]: the table is as it was. If a node is lost on the way, or a disk
    /// fails, it is unknown whether the rows are there, and the error says so, but all of them are or none;
    /// for several nodes see [`DepotError::Apart`].
    fn commit(self: Box<Self>) -> Result<Arc<Table>, DepotError>;
}

/// Why a table is not loaded, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    /// The load was asked to stop.
    #[error("stopped")]
    Stopped,
    /// The error of a directory.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The error of a storage node, or its loss.
    #[error(transparent)]
    Node(#[from] SessionError),
    /// One of several storage nodes has failed, or is lost; nothing has changed on any of them.
    #[error("storage node {node}: {why}")]
    Replica {
        /// The node.
        node: String,
        /// Its error.
        why: String,
    },
    /// Several storage nodes have different versions of a table.
    #[error("{0}")]
    Different(String),
    /// Some of several storage nodes have made a change, or may have, and others have not.
    #[error(transparent)]
    Apart(#[from] Apart),
}

impl Depot for Tables {
    fn list(&self) -> Result<Vec<Arc<Table>>, DepotError> {
        Ok(Tables::list(self))
    }

    fn damaged(&self) -> Result<Vec<(String, String)>, DepotError> {
        Ok(Tables::damaged(self))
    }

    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, DepotError> {
        match Tables::table(self, name) {
            Err(TablesError::Unknown { .. }) => Ok(None),
            table => Ok(Some(table?)),
        }
    }

    fn remove(&self, name: &str) -> Result<(), DepotError> {
        Ok(Tables::remove(self, name)?)
    }

    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, DepotError> {
        Ok(Box::new(Tables::load(self, name, schema, options, mode)?))
    }
}

impl Sink for Load {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), DepotError> {
        Ok(Load::push(self, batch)?)
    }

    fn rows(&self) -> u64 {
        Load::rows(self)
    }

    fn commit(self: Box<Self>) -> Result<Arc<Table>, DepotError> {
        Ok(Load::commit(*self)?)
    }
}

impl Depot for Far {
    fn list(&self) -> Result<Vec<Arc<Table>>, DepotError> {
        let listed = self.tables()?;
        let sound = listed.iter().filter(|listed| listed.found.is_ok());
        sound.map(|listed| Ok(self.open(&listed.name)?)).collect()
    }

    fn damaged(&self) -> Result<Vec<(String, String)>, DepotError> {
        let listed = self.tables()?.into_iter();
        let damaged = listed.filter_map(|listed| Some((listed.name, listed.found.err()?)));
        Ok(damaged.collect())
    }

    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, DepotError> {
        let is_there = self.tables()?.iter().any(|listed| listed.name == name);
        Ok(is_there.then(|| self.open(name)).transpose()?)
    }

    fn remove(&self, name: &str) -> Result<(), DepotError> {
        let mut session = Session::connect(self.options().session.clone())?;
        Ok(session.remove(name)?)
    }

    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, DepotError> {
        could_lie_in_pages(schema, options, mode)?;
        let session = Session::connect(self.options().session.clone())?;
        let load = FarLoad::begin(session, name, schema, options, mode)?;
        Ok(Box::new(load))
    }
}

/// Checks that a node could make a table of rows with these columns. Types that pages do not support cannot
/// even be sent to it.
pub(crate) fn could_lie_in_pages(
    schema: &SchemaRef,
    options: &LoadOptions,
    mode: Mode,
) -> Result<(), DepotError> {
    if mode != Mode::Append {
        options.shape(schema)?;
    }
    Ok(())
}

impl Sink for FarLoad {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), DepotError> {
        Ok(FarLoad::push(self, batch)?)
    }

    fn rows(&self) -> u64 {
        FarLoad::rows(self)
    }

    fn commit(self: Box<Self>) -> Result<Arc<Table>, DepotError> {
        Ok(FarLoad::commit(*self)?)
    }
}
