//! Stores of tables, into which rows are loaded.
//!
//! | store | tables are |
//! |---|---|
//! | [`Tables`] | in directories of this machine |
//! | [`RemoteNode`](crate::remote::RemoteNode) | at a storage node |
//! | [`Replicas`](crate::remote::Replicas) | at several storage nodes, at each the same |
//!
//! Every store guarantees that rows that were pushed become part of their table when the sink commits, all at
//! once and durably. A sink that is dropped, or whose process ends, leaves the table as it was.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::Error;
use crate::table::Table;
use crate::tables::{Load, LoadOptions, Mode, Tables};

/// A store in which tables are loaded and removed; see the [module](self).
pub trait TableStore: Send + Sync {
    /// Returns the newest versions of all tables, except those that are damaged.
    ///
    /// # Errors
    /// Returns an error if the store cannot be asked.
    fn list(&self) -> Result<Vec<Arc<Table>>, Error>;

    /// Returns the tables that are damaged, and the damage of each.
    ///
    /// # Errors
    /// Returns an error if the store cannot be asked.
    fn damaged(&self) -> Result<Vec<(String, String)>, Error>;

    /// Returns the newest version of a table; `None` if there is no such table.
    ///
    /// # Errors
    /// Returns an error if the store cannot be asked, or the table is damaged.
    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, Error>;

    /// Removes a table.
    ///
    /// # Errors
    /// Returns an error if there is none, or it cannot be removed. The table is as it was, except for errors
    /// that say that the outcome is unknown; for several nodes see [`Error::Partial`].
    fn remove(&self, name: &str) -> Result<(), Error>;

    /// Begins to load rows into a table. To [append](Mode::Append) the schema must be the table's, and the
    /// options do not matter.
    ///
    /// # Errors
    /// Returns an error if the mode does not allow the table to exist, or to be missing, if the columns
    /// cannot be stored in pages with these options, or if the store cannot be asked.
    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, Error>;
}

/// Rows on their way into a table. If it is dropped without a commit, the table stays as it was.
pub trait Sink: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be stored in pages, or the store does not take them. The sink is
    /// of no use then.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), Error>;

    /// Returns the number of rows so far.
    fn rows(&self) -> u64;

    /// Makes the rows part of the table, durably and all at once. Returns the table's new version.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::push`]: the table is as it was. If a node is lost on the way, or a disk
    /// fails, it is unknown whether the rows are there, and the error says so, but all of them are or none;
    /// for several nodes see [`Error::Partial`].
    fn commit(self: Box<Self>) -> Result<Arc<Table>, Error>;
}

impl TableStore for Tables {
    fn list(&self) -> Result<Vec<Arc<Table>>, Error> {
        Ok(Tables::list(self))
    }

    fn damaged(&self) -> Result<Vec<(String, String)>, Error> {
        Ok(Tables::damaged(self))
    }

    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        match Tables::table(self, name) {
            Err(Error::Unknown { .. }) => Ok(None),
            table => table.map(Some),
        }
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        Tables::remove(self, name)
    }

    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Tables::load(self, name, schema, options, mode)?))
    }
}

impl Sink for Load {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        Load::push(self, batch)
    }

    fn rows(&self) -> u64 {
        Load::rows(self)
    }

    fn commit(self: Box<Self>) -> Result<Arc<Table>, Error> {
        Load::commit(*self)
    }
}
