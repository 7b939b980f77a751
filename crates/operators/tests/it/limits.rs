//! Groups take as much memory as they may, and no more.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::DataType;
use kumiki_operators::{
    Aggregate, Chunk, ChunkColumn, Expr, Fragment, FragmentExecutor, FragmentWork, Function,
    GroupLimits, Operator, Scalar, TaskError, Value,
};

use crate::reference::storage;

const ROWS: i64 = 20_000;
/// Rows of a chunk.
const CHUNK: i64 = 2000;

fn limits(bytes: usize) -> GroupLimits {
    GroupLimits {
        bytes,
        ..GroupLimits::default()
    }
}

fn literal(data_type: DataType, value: Value) -> Box<Expr> {
    Box::new(Expr::Literal(Scalar { data_type, value }))
}

fn aggregate(function: Function, of: Expr) -> Aggregate {
    Aggregate {
        function,
        of: Some(of),
        filter: None,
    }
}

/// Returns so many different sums.
fn sums(count: i128) -> Vec<Aggregate> {
    let sum = |number| {
        let number = literal(DataType::Int64, Value::Int(number));
        let of = Expr::Binary(Box::new(Expr::Column(0)), Operator::Plus, number);
        aggregate(Function::Sum, of)
    };
    (0..count).map(sum).collect()
}

/// Returns the maximum of texts that are the same for all rows and have so many bytes.
fn greatest(bytes: usize) -> Aggregate {
    let text = Value::Text("x".repeat(bytes));
    aggregate(Function::Max, *literal(DataType::Utf8, text))
}

/// Runs over the numbers from 0 on, and takes the result after each chunk. Returns the number of
/// rows that came before the end, and that of all rows.
fn run(
    by: Vec<Expr>,
    aggregates: Vec<Aggregate>,
    limits: GroupLimits,
) -> Result<(usize, usize), TaskError> {
    let mut output = vec![DataType::Int64; by.len()];
    output.extend(aggregates.iter().map(|aggregate| match aggregate.function {
        Function::Max => DataType::Utf8,
        _ => DataType::Int64,
    }));
    let fragment = Fragment {
        columns: vec![0],
        filter: None,
        work: FragmentWork::Aggregate { by, aggregates },
        output: storage::schema(&output),
    };
    let executor = FragmentExecutor::with_limits(&fragment, &[DataType::Int64], limits);
    let mut executor = executor.expect("a fragment");
    let mut early = 0;
    for from in (0..ROWS).step_by(CHUNK as usize) {
        let array: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + CHUNK));
        let range = pages::Range::Unknown;
        executor.feed(&Chunk {
            rows: CHUNK as usize,
            columns: vec![ChunkColumn { array, range }],
        })?;
        early += rows(&mut executor);
    }
    executor.finish()?;
    Ok((early, early + rows(&mut executor)))
}

fn rows(executor: &mut FragmentExecutor) -> usize {
    std::iter::from_fn(|| executor.take())
        .map(|batch| batch.num_rows())
        .sum()
}

fn assert_too_large(found: Result<(usize, usize), TaskError>) {
    match found {
        Err(TaskError::Value(text)) => assert!(text.contains("ask for fewer"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_come_out_when_they_are_large() {
    let by = || vec![Expr::Column(0)];
    let all = ROWS as usize;
    let found = run(by(), sums(3), GroupLimits::default()).expect("groups");
    assert_eq!(found, (0, all));
    for aggregates in [sums(30), vec![greatest(500)]] {
        let found = run(by(), aggregates, limits(8 << 20)).expect("groups");
        let (early, found) = found;
        assert!(early > all / 2, "{early} groups came out early");
        assert_eq!(found, all);
    }
}

#[test]
fn groups_that_are_too_large_are_an_error() {
    let by = || vec![Expr::Column(0)];
    assert_too_large(run(by(), sums(100), limits(1 << 20)));
    assert_too_large(run(by(), vec![greatest(1000)], limits(1 << 20)));
    assert_too_large(run(vec![], vec![greatest(1000)], limits(900)));
    run(vec![], vec![greatest(1000)], limits(2000)).expect("a group");
}
