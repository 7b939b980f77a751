//! Tables and schemas in DataFusion's form.

use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::{Result, exec_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use parking_lot::RwLock;

use crate::blocking::run_blocking;
use crate::catalogue::{Catalogue, ReplicatedTable};
use crate::options::KumikiOptions;
use crate::scan::PagesScan;

/// A version of a table. Filters come to the scan as physical expressions, with the types of their
/// evaluation; so none are accepted here.
#[derive(Clone, Debug)]
pub struct PagesTable {
    replicated: Arc<ReplicatedTable>,
    looked_up: Instant,
}

impl PagesTable {
    /// Makes a table for a query, looked up at this moment.
    #[must_use]
    pub fn new(replicated: ReplicatedTable) -> PagesTable {
        PagesTable {
            replicated: Arc::new(replicated),
            looked_up: Instant::now(),
        }
    }

    /// Returns the version, and the stores that have it.
    #[must_use]
    pub fn replicated(&self) -> &ReplicatedTable {
        &self.replicated
    }

    /// Returns when it was the newest version.
    #[must_use]
    pub(crate) fn looked_up(&self) -> Instant {
        self.looked_up
    }
}

impl TableProvider for PagesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.replicated.table.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    // What `async fn` stands for here, without a future that holds expressions: the compiler would prove step by step
    // that they may move to another thread.
    fn scan<'own, 'state, 'columns, 'filters, 'async_trait>(
        &'own self,
        state: &'state dyn Session,
        projection: Option<&'columns Vec<usize>>,
        _filters: &'filters [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        Self: 'async_trait,
        'own: 'async_trait,
        'state: 'async_trait,
        'columns: 'async_trait,
        'filters: 'async_trait,
    {
        let all = || (0..self.schema().fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let partitions = state.config().target_partitions();
        let push_down = KumikiOptions::of(state.config().options()).push_down;
        let replicated = Arc::clone(&self.replicated);
        let scan = PagesScan::new(replicated, &columns, partitions, push_down);
        Box::pin(ready(scan.map(|scan| Arc::new(scan) as _)))
    }
}

/// The tables of a catalogue, and a session's own ones: views, and files that it has named. Each look-up
/// takes the version that is the newest then; DataFusion looks each name up once for a statement.
pub struct PagesSchema {
    catalogue: Arc<Catalogue>,
    own: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
}

impl PagesSchema {
    /// Makes a schema of the tables of a catalogue, for one session.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> PagesSchema {
        PagesSchema {
            catalogue,
            own: RwLock::default(),
        }
    }
}

impl fmt::Debug for PagesSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagesSchema").finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for PagesSchema {
    fn table_names(&self) -> Vec<String> {
        let own = self.own.read();
        let names = self.catalogue.names();
        let mut names = names.unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        names.extend(own.keys().cloned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let own = self.own.read().get(name).cloned();
        if own.is_some() {
            return Ok(own);
        }
        let (catalogue, name) = (Arc::clone(&self.catalogue), name.to_owned());
        let found = run_blocking(move || catalogue.find(&name)).await?;
        let found = found.map_err(|error| DataFusionError::Plan(error.to_string()))?;
        Ok(found.map(|found| Arc::new(PagesTable::new(found)) as _))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if matches!(self.catalogue.find(&name), Ok(Some(_))) {
            return exec_err!("there is a table {name} already: choose another name");
        }
        Ok(self.own.write().insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let removed = self.own.write().remove(name);
        if removed.is_none() && self.table_exist(name) {
            return exec_err!("table {name} is made of pages: remove it with 'kumiki pages'");
        }
        Ok(removed)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.own.read().contains_key(name) || matches!(self.catalogue.find(name), Ok(Some(_)))
    }
}
