//! Tables and schemas as DataFusion wants them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::catalogue::{Catalogue, Replicated};
use crate::fetch::off_runtime;
use crate::scan::PagesScan;

/// A version of a table. Filters come to the scan as physical expressions, which have the types with
/// which they are evaluated; so none are taken here.
#[derive(Clone, Debug)]
pub struct PagesTable {
    replicated: Arc<Replicated>,
}

impl PagesTable {
    /// The table as a query sees it.
    #[must_use]
    pub fn new(replicated: Replicated) -> PagesTable {
        PagesTable {
            replicated: Arc::new(replicated),
        }
    }

    /// The version, and who has it.
    #[must_use]
    pub fn replicated(&self) -> &Replicated {
        &self.replicated
    }
}

#[async_trait]
impl TableProvider for PagesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.replicated.table.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema().fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let partitions = state.config().target_partitions();
        let scan = PagesScan::new(Arc::clone(&self.replicated), &columns, partitions)?;
        Ok(Arc::new(scan))
    }
}

/// The tables of a catalogue. Each look-up takes the version that is the newest then; DataFusion looks
/// each name up once for a statement.
#[derive(Clone)]
pub struct PagesSchema {
    catalogue: Arc<Catalogue>,
}

impl PagesSchema {
    /// The tables of a catalogue.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> PagesSchema {
        PagesSchema { catalogue }
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
        self.catalogue.names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let (catalogue, name) = (Arc::clone(&self.catalogue), name.to_owned());
        let found = off_runtime(move || catalogue.find(&name)).await?;
        let found = found.map_err(|error| DataFusionError::Plan(error.to_string()))?;
        Ok(found.map(|found| Arc::new(PagesTable::new(found)) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        matches!(self.catalogue.find(name), Ok(Some(_)))
    }
}
