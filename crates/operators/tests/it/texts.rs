//! Long texts: results come in small batches, and texts that are too long to be computed together
//! are an error.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use kumiki_operators::{
    Aggregate, Chunk, ChunkColumn, Expr, Fragment, FragmentExecutor, FragmentWork, Function,
    Operator, Scalar, SortKey, TaskError, Value,
};

use crate::reference::{Row, storage};

/// Bytes of texts below which a batch takes another row.
const BATCH_BYTES: usize = 256 << 10;

fn columns() -> Vec<DataType> {
    vec![DataType::Int64, DataType::Utf8]
}

/// Returns rows with a number and a text of so many bytes that begins with it. Numbers are not in
/// order.
fn rows(count: i128, bytes: usize) -> Vec<Row> {
    let row = |at: i128| {
        let number = at * 7919 % count;
        vec![Value::Int(number), Value::Text(text(number, bytes))]
    };
    (0..count).map(row).collect()
}

fn text(number: i128, bytes: usize) -> String {
    let mut text = number.to_string();
    text.extend(std::iter::repeat_n('x', bytes - text.len()));
    text
}

fn run(
    work: FragmentWork,
    output: &[DataType],
    rows: &[Row],
) -> Result<Vec<RecordBatch>, TaskError> {
    let fragment = Fragment {
        columns: vec![0, 1],
        filter: None,
        work,
        output: storage::schema(output),
    };
    let mut executor = FragmentExecutor::new(&fragment, &columns()).expect("a fragment");
    executor.feed(&chunk(rows))?;
    executor.finish()?;
    Ok(std::iter::from_fn(|| executor.take()).collect())
}

/// Returns all rows in one chunk, so that there are whole vectors of them.
fn chunk(rows: &[Row]) -> Chunk {
    let numbers = rows.iter().map(|row| match row[0] {
        Value::Int(number) => number as i64,
        _ => panic!("a number: {row:?}"),
    });
    let texts = rows.iter().map(|row| match &row[1] {
        Value::Text(text) => text.as_str(),
        _ => panic!("a text: {row:?}"),
    });
    let arrays: [ArrayRef; 2] = [
        Arc::new(Int64Array::from_iter_values(numbers)),
        Arc::new(StringArray::from_iter_values(texts)),
    ];
    let column = |array| ChunkColumn {
        array,
        range: pages::Range::Unknown,
    };
    Chunk {
        rows: rows.len(),
        columns: arrays.map(column).into(),
    }
}

fn first(project: Expr, limit: u64) -> FragmentWork {
    FragmentWork::Rows {
        project: vec![Expr::Column(0), project],
        order: vec![SortKey {
            expr: Expr::Column(0),
            descending: false,
            nulls_first: false,
        }],
        limit: Some(limit),
    }
}

/// Returns a text of a megabyte, the same for all rows.
fn megabyte() -> Expr {
    Expr::Literal(Scalar {
        data_type: DataType::Utf8,
        value: Value::Text("x".repeat(1 << 20)),
    })
}

fn assert_small(batches: &[RecordBatch], bytes: usize) {
    for batch in batches {
        let texts = batch.column(1).to_data().get_slice_memory_size().unwrap();
        let most = BATCH_BYTES + bytes + 4 * (batch.num_rows() + 1);
        assert!(texts <= most, "{texts} bytes in a batch");
    }
}

fn sorted(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows: Vec<Row> = batches.iter().flat_map(storage::rows).collect();
    rows.sort_by_key(|row| match row[0] {
        Value::Int(number) => number,
        _ => panic!("a number: {row:?}"),
    });
    rows
}

#[test]
fn texts_of_groups_come_out_in_small_batches() {
    let rows = rows(3000, 2000);
    let aggregate = Aggregate {
        function: Function::Max,
        of: Some(Expr::Column(1)),
        filter: None,
    };
    for (by, aggregates) in [(vec![0], vec![aggregate.clone()]), (vec![0, 1], Vec::new())] {
        let work = FragmentWork::Aggregate {
            by: by.into_iter().map(Expr::Column).collect(),
            aggregates,
        };
        let batches = run(work, &columns(), &rows).expect("groups");
        assert_small(&batches, 2000);
        let expect: Vec<Row> = (0..3000)
            .map(|n| vec![Value::Int(n), Value::Text(text(n, 2000))])
            .collect();
        assert_eq!(sorted(&batches), expect);
    }
}

#[test]
fn texts_of_first_rows_come_out_in_small_batches() {
    let rows = rows(9000, 8000);
    let batches = run(first(Expr::Column(1), 400), &columns(), &rows).expect("rows");
    assert_small(&batches, 8000);
    let found: Vec<Row> = batches.iter().flat_map(storage::rows).collect();
    let expect: Vec<Row> = (0..400)
        .map(|n| vec![Value::Int(n), Value::Text(text(n, 8000))])
        .collect();
    assert_eq!(found, expect);
}

#[test]
fn first_rows_are_found_among_texts_of_gigabytes() {
    let batches = run(first(megabyte(), 3), &columns(), &rows(5000, 8)).expect("rows");
    let numbers: Vec<Value> = batches
        .iter()
        .flat_map(storage::rows)
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(numbers, [Value::Int(0), Value::Int(1), Value::Int(2)]);
}

#[test]
fn texts_of_gigabytes_for_one_vector_are_an_error() {
    let condition = Expr::Binary(
        Box::new(Expr::Column(0)),
        Operator::GtEq,
        Box::new(Expr::Literal(Scalar {
            data_type: DataType::Int64,
            value: Value::Int(0),
        })),
    );
    let case = Expr::Case {
        when: vec![(condition, megabyte())],
        otherwise: None,
    };
    let work = FragmentWork::Rows {
        project: vec![Expr::Column(0), case],
        order: vec![],
        limit: None,
    };
    let found = run(work, &columns(), &rows(3000, 8));
    assert!(matches!(found, Err(TaskError::Value(_))), "{found:?}");
}

#[test]
fn states_of_many_aggregates_come_out_in_small_batches() {
    const AGGREGATES: usize = 4000;
    let count = Aggregate {
        function: Function::Count,
        of: None,
        filter: None,
    };
    let work = FragmentWork::Aggregate {
        by: vec![Expr::Column(0)],
        aggregates: vec![count; AGGREGATES],
    };
    let output = vec![DataType::Int64; AGGREGATES + 1];
    let batches = run(work, &output, &rows(1000, 8)).expect("groups");
    let most = |batch: &RecordBatch| batch.get_array_memory_size() <= 16 << 20;
    assert!(batches.len() > 1 && batches.iter().all(most));
    let found = sorted(&batches);
    assert_eq!(found.len(), 1000);
    let one = Value::Int(1);
    assert!(
        found
            .iter()
            .all(|row| row[1..].iter().all(|count| *count == one))
    );
}
