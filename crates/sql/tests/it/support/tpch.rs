//! The tables of TPC-H, in memory.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use pages::{Groups, PageSize};
use tpchgen::generators as g;

use super::MemoryStore;

/// The tables' names.
pub(crate) const TABLES: [&str; 8] = [
    "nation", "region", "part", "supplier", "partsupp", "customer", "orders", "lineitem",
];

/// Returns a table's rows.
pub(crate) fn rows(table: &str, scale: f64) -> Vec<RecordBatch> {
    macro_rules! all {
        ($generator:ident, $arrow:ident) => {
            tpchgen_arrow::$arrow::new(g::$generator::new(scale, 1, 1))
                .with_batch_size(8192)
                .map(|batch| batch.expect("rows are made"))
                .collect()
        };
    }
    match table {
        "nation" => all!(NationGenerator, NationArrow),
        "region" => all!(RegionGenerator, RegionArrow),
        "part" => all!(PartGenerator, PartArrow),
        "supplier" => all!(SupplierGenerator, SupplierArrow),
        "partsupp" => all!(PartSuppGenerator, PartSuppArrow),
        "customer" => all!(CustomerGenerator, CustomerArrow),
        "orders" => all!(OrderGenerator, OrderArrow),
        "lineitem" => all!(LineItemGenerator, LineItemArrow),
        other => panic!("there is no table {other}"),
    }
}

/// Returns all tables in pages of a size.
pub(crate) fn store(scale: f64, size: PageSize, groups: &Groups) -> Arc<MemoryStore> {
    let mut store = MemoryStore::new();
    for table in TABLES {
        store.add(table, &rows(table, scale), size, groups);
    }
    Arc::new(store)
}
