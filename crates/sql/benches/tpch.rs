//! Q1, Q6 and Q15's sub-query of TPC-H: pages with push-down beside DataFusion over Parquet and over memory;
//! and Q6 over pages whose rows are sorted by `l_shipdate`, most of which are skipped.
//!
//! `cargo bench -p kumiki-sql --bench tpch -- [SCALE [ROUNDS [THREADS]]]`: each round runs each query once in
//! each system; the output is the medians of their times, in milliseconds. The first round checks that the
//! results are equal.

// Tests use the rest of it.
#[allow(dead_code)]
#[path = "../tests/it/support.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{
    SortColumn, concat_batches, lexsort_to_indices, take_record_batch,
};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::datasource::MemTable;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use disk::RealDisk;
use kumiki_sql::{Directory, Session};
use pages::{LoadOptions, Mode, Tables};
use support::{MemoryStore, Rows, answers, plain, rows, session, tpch};

const Q15: &str = "select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem \
                   where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01' \
                   group by l_suppkey";

fn main() {
    let numbers: Vec<f64> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let scale = numbers.first().copied().unwrap_or(1.0);
    let rounds = numbers.get(1).map_or(7, |rounds| *rounds as usize);
    let threads = numbers.get(2).map_or(2, |threads| *threads as usize);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("threads");
    runtime.block_on(compare(scale, rounds, threads));
}

/// A system that runs the queries.
enum Asked {
    Pages(Session),
    DataFusion(SessionContext),
}

impl Asked {
    async fn ask(&self, sql: &str) -> Rows {
        let planned = match self {
            Asked::Pages(session) => session.plan(sql).await,
            Asked::DataFusion(context) => context.sql(sql).await,
        };
        let batches = planned.expect("a plan").collect().await.expect("an answer");
        let mut all: Rows = batches.iter().flat_map(rows).collect();
        all.sort();
        all
    }
}

async fn compare(scale: f64, rounds: usize, threads: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let batches: Vec<_> = tpch::rows("lineitem", scale).iter().map(plain).collect();
    let queries = [
        ("Q1", answers::query(1)),
        ("Q6", answers::query(6)),
        ("Q15", Q15.to_owned()),
    ];
    let asked = [
        (
            "pages, on disk",
            disk(dir.path(), "plain", &batches, threads),
        ),
        ("pages, in memory", memory(&batches, threads)),
        (
            "DataFusion, Parquet",
            parquet(dir.path(), &batches, threads).await,
        ),
        ("DataFusion, memory", table(&batches, threads)),
        (
            "pages, on disk, sorted",
            disk(dir.path(), "sorted", &[sorted(&batches)], threads),
        ),
    ];
    println!("scale {scale}, {threads} threads, medians of {rounds} rounds, ms");
    print!("{:24}", "");
    queries.iter().for_each(|(name, _)| print!("{name:>9}"));
    println!();
    let mut times = vec![vec![Vec::new(); queries.len()]; asked.len()];
    for round in 0..rounds {
        for (query, (_, sql)) in queries.iter().enumerate() {
            let mut expected: Option<Rows> = None;
            for (who, (name, asked)) in asked.iter().enumerate() {
                let begun = Instant::now();
                let given = asked.ask(sql).await;
                times[who][query].push(begun.elapsed());
                if round == 0 {
                    let expected = expected.get_or_insert_with(|| given.clone());
                    assert_eq!(&given, expected, "{name}");
                }
            }
        }
    }
    for ((name, _), times) in asked.iter().zip(&mut times) {
        print!("{name:24}");
        for times in times {
            times.sort_unstable();
            print!("{:>9.1}", times[times.len() / 2].as_secs_f64() * 1e3);
        }
        println!();
    }
}

fn disk(dir: &Path, name: &str, batches: &[RecordBatch], threads: usize) -> Asked {
    let dir = dir.join(name);
    let tables = Tables::open(Arc::new(RealDisk), std::slice::from_ref(&dir)).expect("a directory");
    let options = LoadOptions::default();
    let load = tables.load("lineitem", &batches[0].schema(), &options, Mode::Create);
    let mut load = load.expect("a load");
    batches
        .iter()
        .for_each(|batch| load.push(batch).expect("rows"));
    load.commit().expect("a table");
    drop(tables);
    let store = Directory::open(&dir).expect("tables");
    Asked::Pages(session(vec![Arc::new(store)], threads, true))
}

fn memory(batches: &[RecordBatch], threads: usize) -> Asked {
    let mut store = MemoryStore::new();
    store.add(
        "lineitem",
        batches,
        pages::PageSize::default(),
        &pages::Groups::OneEach,
    );
    Asked::Pages(session(vec![Arc::new(store)], threads, true))
}

fn context(threads: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(threads))
}

async fn parquet(dir: &Path, batches: &[RecordBatch], threads: usize) -> Asked {
    let context = context(threads);
    let path = dir.join("lineitem.parquet").to_string_lossy().into_owned();
    let Asked::DataFusion(memory) = table(batches, 1) else {
        unreachable!("it is DataFusion's");
    };
    let all = memory.table("lineitem").await.expect("the table");
    all.write_parquet(&path, DataFrameWriteOptions::new(), None)
        .await
        .expect("a file");
    let options = ParquetReadOptions::default();
    context
        .register_parquet("lineitem", path, options)
        .await
        .expect("the file");
    Asked::DataFusion(context)
}

fn table(batches: &[RecordBatch], threads: usize) -> Asked {
    let context = context(threads);
    let share = batches.len().div_ceil(threads);
    let parts = batches.chunks(share).map(<[RecordBatch]>::to_vec).collect();
    let table = MemTable::try_new(batches[0].schema(), parts).expect("a table");
    context
        .register_table("lineitem", Arc::new(table))
        .expect("a table");
    Asked::DataFusion(context)
}

/// Returns all rows in the order of their `l_shipdate`.
fn sorted(batches: &[RecordBatch]) -> RecordBatch {
    let all = concat_batches(&batches[0].schema(), batches).expect("one batch");
    let key = SortColumn {
        values: Arc::clone(all.column_by_name("l_shipdate").expect("a column")),
        options: None,
    };
    let order = lexsort_to_indices(&[key], None).expect("an order");
    take_record_batch(&all, &order).expect("rows")
}
