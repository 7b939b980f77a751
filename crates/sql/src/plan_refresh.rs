//! The newest versions of tables, in plans that were made earlier.
//!
//! A view keeps its plan, and so does a statement that SQL has prepared; the plan contains the versions that
//! tables had then. A statement looks all tables up again, each name once, so that it sees one version of
//! each table even if it names it several times.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::{TableProvider, provider_as_source, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{LogicalPlan, TableScan};

use crate::blocking::run_blocking;
use crate::catalogue::Catalogue;
use crate::table::PagesTable;

/// Returns the table that a scan reads, if it is a table of pages.
fn pages_of(scan: &TableScan) -> Option<Arc<dyn TableProvider>> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider
        .downcast_ref::<PagesTable>()
        .is_some()
        .then_some(provider)
}

/// Returns a statement's plan with the newest versions of all tables, if any of them was looked up before the
/// statement began.
///
/// # Errors
/// Returns an error if such a table is not available any more, or has other columns now.
pub(crate) async fn with_newest_tables(
    plan: LogicalPlan,
    catalogue: &Arc<Catalogue>,
    begun: Instant,
) -> Result<LogicalPlan> {
    let mut names = BTreeMap::new();
    let mut are_new = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(provider) = pages_of(scan)
            && let Some(table) = provider.downcast_ref::<PagesTable>()
        {
            are_new &= table.looked_up() >= begun;
            let schema = Arc::clone(&table.replicated().table.schema);
            names.insert(table.replicated().table.name.clone(), schema);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if are_new {
        return Ok(plan);
    }
    let mut tables = HashMap::new();
    for (name, schema) in names {
        let (catalogue, wanted) = (Arc::clone(catalogue), name.clone());
        let found = run_blocking(move || catalogue.find(&wanted)).await?;
        let Some(found) = found.map_err(|error| DataFusionError::Plan(error.to_string()))? else {
            return plan_err!(
                "table '{name}' not found: it was there when the view or statement was made"
            );
        };
        if found.table.schema != schema {
            return plan_err!(
                "table {name} has other columns than when the view or statement was made: make that anew"
            );
        }
        let table: Arc<dyn TableProvider> = Arc::new(PagesTable::new(found));
        tables.insert(name, provider_as_source(table));
    }
    let renewed = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        let provider = pages_of(&scan);
        let table = provider
            .as_ref()
            .and_then(|found| found.downcast_ref::<PagesTable>());
        match table.and_then(|table| tables.get(&table.replicated().table.name)) {
            Some(with_newest_tables) => {
                scan.source = Arc::clone(with_newest_tables);
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        }
    })?;
    Ok(renewed.data)
}
