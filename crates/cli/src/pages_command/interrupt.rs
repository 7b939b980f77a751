//! Loads that stop on request: the data that they have written is removed with them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pages::{Error, LoadOptions, Mode, Sink, Table, TableStore};

use crate::signals::StopRequest;

impl StopRequest {
    /// Returns a depot whose loads end with an error once the stop is requested.
    pub(super) fn of(&self, depot: Box<dyn TableStore>) -> Box<dyn TableStore> {
        Box::new(Stoppable {
            inner: depot,
            stop: self.clone(),
        })
    }

    fn check(&self) -> Result<(), Error> {
        match self.is_wanted() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

/// A depot, or a load into one.
struct Stoppable<T: ?Sized> {
    stop: StopRequest,
    inner: Box<T>,
}

impl TableStore for Stoppable<dyn TableStore> {
    fn list(&self) -> Result<Vec<Arc<Table>>, Error> {
        self.inner.list()
    }

    fn damaged(&self) -> Result<Vec<(String, String)>, Error> {
        self.inner.damaged()
    }

    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        self.inner.table(name)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.inner.remove(name)
    }

    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, Error> {
        self.stop.check()?;
        Ok(Box::new(Stoppable {
            inner: self.inner.load(name, schema, options, mode)?,
            stop: self.stop.clone(),
        }))
    }
}

impl Sink for Stoppable<dyn Sink> {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.stop.check()?;
        self.inner.push(batch)
    }

    fn rows(&self) -> u64 {
        self.inner.rows()
    }

    fn commit(self: Box<Self>) -> Result<Arc<Table>, Error> {
        self.stop.check()?;
        self.inner.commit()
    }
}
