//! How results travel.

use arrow_array::{ArrayRef, Int64Array, StringArray};
use pages::{Groups, Memory, PageSize, Shape};

use super::*;
use crate::expr::Expr;
use crate::fragment::Fragment;
use crate::fragment::{FragmentWork, SortKey};
use crate::scan;
use crate::task::FragmentTask;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pages::Cancellation;

/// The results.
struct CollectedBatches {
    schema: SchemaRef,
    parts: Vec<RecordBatch>,
}

impl Output for CollectedBatches {
    fn batch(&mut self, bytes: Vec<u8>) -> bool {
        assert!(bytes.len() < BATCH_BYTES * 5 / 4, "{} bytes", bytes.len());
        self.parts
            .push(block::decode(bytes.into(), &self.schema).unwrap());
        true
    }

    fn cancellation(&self) -> Cancellation {
        Cancellation::default()
    }
}

/// Returns rows of long texts: as a single batch they would take eight times what travels at once.
fn rows() -> RecordBatch {
    let rows = 8192;
    let numbers: ArrayRef = Arc::new((0..rows).collect::<Int64Array>());
    let texts = (0..rows).map(|n| format!("{n:04000}"));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap()
}

/// Returns a fragment of the first rows by their number, which are all rows.
fn first(schema: &SchemaRef) -> Fragment {
    Fragment {
        columns: vec![0, 1],
        filter: None,
        work: FragmentWork::Rows {
            project: vec![Expr::Column(0), Expr::Column(1)],
            order: vec![SortKey {
                expr: Expr::Column(0),
                descending: false,
                nulls_first: false,
            }],
            limit: Some(8192),
        },
        output: Arc::clone(schema),
    }
}

#[test]
fn long_results_travel_in_batches_that_fit_into_messages() {
    let batch = rows();
    let schema = batch.schema();
    let groups = Groups::OneEach.resolve(&schema).unwrap();
    let shape = Shape::new(Arc::clone(&schema), PageSize::default(), groups, None).unwrap();
    let memory = Memory::new();
    let segment = std::slice::from_ref(&batch);
    let table = memory.table("t", &shape, [segment]).unwrap();
    let task = codec::encode_task(&FragmentTask {
        table: Arc::clone(&table),
        fragment: Arc::new(first(&schema)),
        rows: scan::all(&table),
        wanted: Cancellation::default(),
    });
    let opened = Arc::new(OpenTable {
        table: Some(table),
        description: Vec::new().into(),
        unit: PageSize::default().bytes(),
        extents: Vec::new(),
        kept: None,
    });
    let mut collected = CollectedBatches {
        schema,
        parts: Vec::new(),
    };
    let worker = FragmentWorker::new(Arc::new(memory));
    let ran = worker.run(&opened, &task.unwrap(), &mut collected);
    assert!(ran.is_ok(), "{ran:?}");
    let parts = collected.parts;
    assert!(parts.len() >= 8, "{} batches", parts.len());
    let mut at = 0;
    for part in parts {
        assert_eq!(part, batch.slice(at, part.num_rows()));
        at += part.num_rows();
    }
    assert_eq!(at, batch.num_rows());
}
