//! A node that is lost in the middle of a query: the query goes on from a replica, or ends with an error;
//! it never gives a wrong answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Int64Array, RecordBatch};
use kumiki_sql::catalogue::StoreLocation;
use kumiki_sql::error::Error;
use kumiki_sql::meter::PageMeter;
use kumiki_sql::{Placement, Store};
use operators::{FragmentTask, LocalSite, ResultBatches, Site, TaskError};
use pages::{Groups, Memory, PageSize, Shape, Table};

use crate::support::{ask, location, session};

/// A store whose site gives some batches and is then lost.
struct Dying {
    name: &'static str,
    pages: Arc<Memory>,
    table: Arc<Table>,
    end: End,
    asked: Arc<AtomicUsize>,
}

/// How a site ends.
#[derive(Clone, Copy)]
enum End {
    /// It completes.
    Well,
    /// It is lost after so many batches.
    Lost(usize),
    /// It panics after so many batches.
    Panic(usize),
}

impl std::fmt::Debug for Dying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Store for Dying {
    fn name(&self) -> &str {
        self.name
    }

    fn location(&self, _: &Table) -> StoreLocation {
        location(self.is_remote())
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn tables(&self) -> Result<Vec<String>, Error> {
        Ok(vec![self.table.name.clone()])
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        Ok((name == self.table.name).then(|| Arc::clone(&self.table)))
    }

    fn site(&self, _: &Arc<Table>, _: Placement, _: &Arc<PageMeter>) -> Option<Arc<dyn Site>> {
        Some(Arc::new(DyingSite {
            here: LocalSite::new(Arc::clone(&self.pages) as _),
            end: self.end,
            asked: Arc::clone(&self.asked),
        }))
    }
}

struct DyingSite {
    here: LocalSite,
    end: End,
    asked: Arc<AtomicUsize>,
}

impl Site for DyingSite {
    fn run(&self, task: &FragmentTask) -> ResultBatches {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let batches = self.here.run(task);
        match self.end {
            End::Well => batches,
            End::Panic(after) => {
                let panic = || panic!("a planted panic");
                Box::new(batches.take(after).chain(std::iter::once_with(panic)))
            }
            End::Lost(after) => {
                let lost = || Err(TaskError::Lost("the node is gone".to_owned()));
                Box::new(batches.take(after).chain(std::iter::once_with(lost)))
            }
        }
    }
}

const ROWS: i64 = 100_000;

/// Returns stores that have the same table.
fn stores(ends: &[End]) -> (Vec<Arc<dyn Store>>, Vec<Arc<AtomicUsize>>) {
    let numbers = Int64Array::from_iter_values(0..ROWS);
    let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as _)]).unwrap();
    let groups = Groups::OneEach.resolve(&batch.schema()).unwrap();
    let shape = Shape::new(batch.schema(), PageSize::new(4096).unwrap(), groups, None).unwrap();
    let pages = Arc::new(Memory::new());
    let table = pages.table("numbers", &shape, [&[batch][..]]).unwrap();
    let asked: Vec<_> = ends.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let stores = ends.iter().zip(["one", "two", "three"]).zip(&asked);
    let stores = stores.map(|((end, name), asked)| {
        Arc::new(Dying {
            name,
            pages: Arc::clone(&pages),
            table: Arc::clone(&table),
            end: *end,
            asked: Arc::clone(asked),
        }) as Arc<dyn Store>
    });
    (stores.collect(), asked)
}

const SUM: &str = "select sum(n) from numbers where n >= 0";

#[tokio::test]
async fn an_aggregate_goes_on_from_a_replica() {
    for partitions in [1, 3] {
        for after in [0, 1] {
            let (stores, asked) = stores(&[End::Lost(after), End::Well]);
            let rows = ask(&session(stores, partitions, true), SUM).await.unwrap();
            assert_eq!(rows[0][0], Some((ROWS * (ROWS - 1) / 2).to_string()));
            assert!(asked.iter().all(|asked| asked.load(Ordering::Relaxed) > 0));
        }
    }
}

#[tokio::test]
async fn rows_go_on_only_if_none_has_come() {
    let sql = "select n from numbers";
    let (early, _) = stores(&[End::Lost(0), End::Well]);
    let rows = ask(&session(early, 1, true), sql).await.unwrap();
    assert_eq!(rows.len(), usize::try_from(ROWS).unwrap());
    let (late, asked) = stores(&[End::Lost(1), End::Well]);
    let error = ask(&session(late, 1, true), sql).await.unwrap_err();
    assert!(error.contains("a storage node was lost"), "{error}");
    assert_eq!(asked[1].load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn when_all_are_lost_the_query_fails() {
    let (stores, _) = stores(&[End::Lost(0), End::Lost(1), End::Lost(0)]);
    let error = ask(&session(stores, 2, true), SUM).await.unwrap_err();
    assert!(error.contains("the node is gone"), "{error}");
}

#[tokio::test]
async fn a_scan_that_panics_is_no_end_of_the_table() {
    for sql in [SUM, "select n from numbers"] {
        for after in [0, 1] {
            let (stores, _) = stores(&[End::Panic(after)]);
            let error = ask(&session(stores, 2, true), sql).await.unwrap_err();
            assert!(error.contains("a scan panicked"), "{error}");
        }
    }
}
