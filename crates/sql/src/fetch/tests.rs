//! Batches that are kept until a task's end, and for how long.

use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::Int64Array;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use operators::{Expr, Fragment, ResultBatches};

use super::*;
use crate::test_support::table;

/// A place in which all tasks yield these batches.
struct Fake {
    yields: Vec<Result<RecordBatch, TaskError>>,
    asked: AtomicUsize,
}

impl Site for Fake {
    fn run(&self, _: &FragmentTask) -> ResultBatches {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::new(self.yields.clone().into_iter())
    }
}

fn fake(yields: Vec<Result<RecordBatch, TaskError>>) -> Arc<Fake> {
    let asked = AtomicUsize::new(0);
    Arc::new(Fake { yields, asked })
}

/// Returns a thousand numbers from this one on.
fn batch(from: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(from..from + 1000);
    RecordBatch::try_from_iter([("n", Arc::new(numbers) as _)]).unwrap()
}

/// Runs a task that is short by its kind, in these places, and keeps at most so many bytes.
fn run(places: &[&Arc<Fake>], kept_bytes: usize) -> Vec<Result<RecordBatch, String>> {
    let candidates = places.iter().map(|place| Candidate {
        name: "a place".to_owned(),
        site: Arc::clone(place) as _,
    });
    let table = Arc::new(table("t", 1, 1, &[]));
    let fragment = Fragment {
        columns: vec![0],
        filter: None,
        work: FragmentWork::Rows {
            project: vec![Expr::Column(0)],
            order: Vec::new(),
            limit: Some(10_000),
        },
        output: Arc::clone(&table.schema),
    };
    let run = TaskRun {
        candidates: candidates.collect(),
        task: FragmentTask {
            table,
            fragment: Arc::new(fragment),
            rows: Vec::new(),
            wanted: Cancellation::default(),
        },
        metrics: TaskMetrics {
            baseline: BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0),
            lost: Count::new(),
        },
        kept_bytes,
        _resources: None,
    };
    let mut batches = Box::new(run).begin().unwrap();
    let next = || batches.blocking_recv();
    let all = std::iter::from_fn(next);
    all.map(|batch| batch.map_err(|error| error.to_string()))
        .collect()
}

#[test]
fn what_is_longer_than_it_may_be_is_handed_over_and_does_not_begin_anew() {
    let lost = || Err(TaskError::Lost("the node is gone".to_owned()));
    let first = fake(vec![Ok(batch(0)), Ok(batch(1000)), Ok(batch(2000)), lost()]);
    let second = fake(vec![Ok(batch(0)), Ok(batch(1000)), Ok(batch(2000))]);
    let whole = [Ok(batch(0)), Ok(batch(1000)), Ok(batch(2000))];
    assert_eq!(run(&[&first, &second], KEPT_BYTES), whole);
    assert_eq!(second.asked.swap(0, Ordering::Relaxed), 1);
    // Two batches exceed this limit.
    let found = run(&[&first, &second], 12_000);
    assert_eq!(found[..3], whole);
    let error = found[3].as_ref().unwrap_err();
    assert!(error.contains("in the middle of the query"), "{error}");
    assert_eq!((found.len(), second.asked.load(Ordering::Relaxed)), (4, 0));
    // A task that completes yields all batches in order.
    assert_eq!(run(&[&second, &first], 12_000), whole);
}

#[test]
fn untaken_results_are_not_requested_from_another_node() {
    let untaken = || {
        Err(TaskError::ResultsNotTaken(
            "the reader did not take the results".to_owned(),
        ))
    };
    let (first, second) = (fake(vec![untaken()]), fake(vec![Ok(batch(0))]));
    let found = run(&[&first, &second], KEPT_BYTES);
    let error = found[0].as_ref().unwrap_err();
    assert!(error.contains("remote-local"), "{error}");
    assert!(!error.contains("was lost"), "{error}");
    assert_eq!((found.len(), second.asked.load(Ordering::Relaxed)), (1, 0));
}
