//! TPC-H's Q1, Q6 and the sub-query of Q15 over a storage node's table. The result is the same if
//! the node reads its pages for itself, sends them, or runs the operators, on every transport. RDMA
//! is tested where there is a device: `cargo xtask rdma` runs these tests in a machine that has one.

#[path = "../../benches/queries/lineitem.rs"]
mod lineitem;
// The benchmark checks results, too.
#[allow(dead_code)]
#[path = "../../benches/queries/plans.rs"]
mod plans;

use std::sync::Arc;

use arrow_array::RecordBatch;
use disk::RealDisk;
use fabric::tcp::Transport;
use fabric::verbs::{Device, Domain, VerbsOptions};
use kumiki_operators::{
    Cancellation, Fragment, FragmentExecutor, FragmentTask, LocalSite, RemoteSite, Site, Value,
    scan,
};
use pages::{LoadOptions, Local, LocalOptions, Mode, PageSize, Source, Table, Tables, widen};
use tpchgen::generators::LineItemGenerator;

use crate::reference::{Row, storage};
use crate::storage_node;

/// This variable is set where a missing RDMA device is a failure.
const REQUIRE: &str = "KUMIKI_REQUIRE_RDMA";
const SCALE: f64 = 0.005;
/// Sizes of the pages.
const SIZES: [usize; 2] = [8 << 10, 64 << 10];

#[test]
fn queries_over_tcp() {
    queries(Transport::Tcp, None);
}

#[test]
fn queries_over_shared_memory() {
    queries(Transport::Shm, None);
}

#[test]
fn queries_over_verbs() {
    match Device::open(&VerbsOptions::default()) {
        Ok(device) => queries(Transport::Verbs, Some(device.domain().unwrap())),
        Err(error) if std::env::var_os(REQUIRE).is_some() => panic!("{error}"),
        Err(error) => println!("skipped: {error}"),
    }
}

fn queries(transport: Transport, verbs: Option<Domain>) {
    let rows = lineitem::generate(SCALE);
    for size in SIZES {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(Arc::new(RealDisk), &[dir.path().to_path_buf()]).unwrap();
        let table = load(&tables, &rows, PageSize::new(size).unwrap());
        let source: Arc<dyn Source> = Arc::new(Local::new(tables.clone(), LocalOptions::default()));
        let (node, far) = storage_node::start(tables, &source, transport, verbs.clone());
        let opened = far.open("lineitem").unwrap();
        assert_eq!(opened.rows(), rows.rows() as u64);

        let placements: [(&str, Box<dyn Site>, &Arc<Table>); 3] = [
            ("local", Box::new(LocalSite::new(source)), &table),
            (
                "remote-local",
                Box::new(LocalSite::new(Arc::new(far.clone()))),
                &opened,
            ),
            ("remote-remote", Box::new(RemoteSite::new(far)), &opened),
        ];
        for (name, fragment) in plans::all() {
            let expected = expected(&fragment, &rows);
            let fragment = Arc::new(fragment);
            for (placement, site, table) in &placements {
                let task = FragmentTask {
                    table: Arc::clone(table),
                    fragment: Arc::clone(&fragment),
                    rows: scan::all(table),
                    wanted: Cancellation::default(),
                };
                let batches: Result<Vec<RecordBatch>, _> = site.run(&task).collect();
                let found = sorted(&batches.unwrap());
                assert_eq!(
                    found, expected,
                    "{name}, {placement}, pages of {size} bytes"
                );
            }
        }
        drop(placements);
        node.stop().unwrap();
    }
}

/// Returns the rows as a table of pages.
fn load(tables: &Tables, rows: &lineitem::LineItem, page_size: PageSize) -> Arc<Table> {
    let schema = Arc::new(lineitem::schema());
    let options = LoadOptions {
        page_size,
        ..LoadOptions::default()
    };
    let mut load = tables
        .load("lineitem", &schema, &options, Mode::Create)
        .unwrap();
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    for chunk in rows.chunks(&columns, 10_000) {
        let fields = schema.fields().iter();
        let arrays = fields.zip(&chunk.columns);
        let arrays = arrays.map(|(field, column)| widen(&column.array, field.data_type()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays.collect()).unwrap();
        load.push(&batch).unwrap();
    }
    load.commit().unwrap()
}

/// Returns the result over the rows in memory. Q6's sum is calculated a second time, row by row.
fn expected(fragment: &Fragment, rows: &lineitem::LineItem) -> Vec<Row> {
    let types = fragment.column_types(&lineitem::schema()).unwrap();
    let mut executor = FragmentExecutor::new(fragment, &types).unwrap();
    let mut batches = Vec::new();
    for chunk in rows.chunks(&fragment.columns, 32_768) {
        executor.feed(&chunk).unwrap();
        batches.extend(std::iter::from_fn(|| executor.take()));
    }
    executor.finish().unwrap();
    batches.extend(std::iter::from_fn(|| executor.take()));
    let found = sorted(&batches);
    assert!(!found.is_empty());
    if fragment.output.fields().len() == 1 {
        assert_eq!(found, [[Value::Int(q6())]]);
    }
    found
}

/// Returns the revenue of Q6, in ten-thousandths.
fn q6() -> i128 {
    let rows = LineItemGenerator::new(SCALE, 1, 1).iter();
    let passing = rows.filter(|row| {
        let shipped = row.l_shipdate.to_unix_epoch();
        (8_766..9_131).contains(&shipped)
            && (5..=7).contains(&row.l_discount.0)
            && row.l_quantity < 24
    });
    passing
        .map(|row| i128::from(row.l_extendedprice.0) * i128::from(row.l_discount.0))
        .sum()
}

/// Returns all rows, in an order that does not depend on how they came.
fn sorted(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows: Vec<Row> = batches.iter().flat_map(storage::rows).collect();
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}
