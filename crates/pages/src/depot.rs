//! Where tables are loaded and removed, whoever keeps them.
//!
//! | depot | tables are |
//! |---|---|
//! | [`Tables`] | in directories of this machine |
//! | [`Far`] | at a storage node |
//! | [`Replicas`](crate::remote::Replicas) | at several storage nodes, at each the same |
//!
//! What every depot keeps: rows that were pushed are part of their table when the sink has committed,
//! all at once and durably. A sink that is dropped, or whose process ends, leaves the table as it was.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::remote::{Apart, Far, FarLoad, Session, SessionError};
use crate::table::Table;
use crate::tables::{Load, LoadOptions, Mode, Tables, TablesError};

/// Where tables are loaded and removed; see the [module](self).
pub trait Depot: Send + Sync {
    /// Returns the newest versions of all tables but those that are damaged.
    ///
    /// # Errors
    /// The depot cannot be asked.
    fn list(&self) -> Result<Vec<Arc<Table>>, DepotError>;

    /// Tables that are damaged, and in which way.
    ///
    /// # Errors
    /// The depot cannot be asked.
    fn damaged(&self) -> Result<Vec<(String, String)>, DepotError>;

    /// Returns the newest version of a table; `None` if there is no such table.
    ///
    /// # Errors
    /// The depot cannot be asked, or the table is damaged.
    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, DepotError>;

    /// Removes a table.
    ///
    /// # Errors
    /// There is none, or it cannot be removed. The table is as it was, but for errors that say that
    /// nobody knows; of several nodes see [`DepotError::Apart`].
    fn remove(&self, name: &str) -> Result<(), DepotError>;

    /// Begins to load rows into a table. To [append](Mode::Append) the schema must be the table's, and
    /// the options do not matter.
    ///
    /// # Errors
    /// The table is there or not against the mode, columns cannot lie in pages as it is asked for, or
    /// the depot cannot be asked.
    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, DepotError>;
}

/// Rows on their way into a table. Dropped without a commit it leaves the table as it was.
pub trait Sink: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// The rows do not become pages, or the depot does not take them. The sink is of no use any more.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), DepotError>;

    /// Returns the number of rows so far.
    fn rows(&self) -> u64;

    /// Makes the rows part of the table, durably and all at once. Returns the table's new version.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::push`]: the table is as it was. If a node is lost on the way, or a disk
    /// fails, nobody knows whether the rows are there, and the error says so, but all of them are or none; of
    /// several nodes see [`DepotError::Apart`].
    fn commit(self: Box<Self>) -> Result<Arc<Table>, DepotError>;
}

/// Why a table is not loaded, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    /// Whoever loads was asked to stop.
    #[error("stopped")]
    Stopped,
    /// Directories say so.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// A storage node says so, or is gone.
    #[error(transparent)]
    Node(#[from] SessionError),
    /// Of several storage nodes one says so, or is gone; on none of them anything has changed.
    #[error("storage node {node}: {why}")]
    Replica {
        /// Which one.
        node: String,
        /// What it says.
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

/// Whether a node could make a table of rows with these columns: what pages do not have cannot even be said to
/// it.
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
