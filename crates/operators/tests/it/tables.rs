//! Fragments over tables of pages: the result is that over the rows themselves, for every size, groups
//! and layout of pages, and however a task is split; and pages that cannot matter are not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use fastrand::Rng;
use kumiki_operators::{
    Aggregate, Cancellation, Expr, Fragment, FragmentExecutor, FragmentTask, FragmentWork,
    Function, LocalSite, Operator, RowRange, Scalar, Site, SortKey, TaskError, Value, scan,
};
use pages::row::RowSchema;
use pages::{Groups, Memory, PageAddress, PageSize, PageStream, Shape, Source, Table};

use crate::reference::generate::{self, Size};
use crate::reference::{Row, storage};

/// A source that counts pages.
struct Counted {
    memory: Arc<Memory>,
    pages: AtomicUsize,
}

impl Source for Counted {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        self.pages.fetch_add(pages.len(), Ordering::Relaxed);
        self.memory.read(table, pages)
    }
}

fn counted(memory: Memory) -> Arc<Counted> {
    Arc::new(Counted {
        memory: Arc::new(memory),
        pages: AtomicUsize::new(0),
    })
}

fn batches(rows: &[Row], types: &[DataType]) -> Vec<RecordBatch> {
    let mut random = Rng::with_seed(0);
    storage::plain(&mut random, rows, types)
}

fn table(random: &mut Rng, memory: &Memory, segments: &[&[Row]], types: &[DataType]) -> Arc<Table> {
    let schema = storage::schema(types);
    let rows = (random.u8(0..4) == 0).then(|| RowSchema::of(&schema, |_| Some(60)).expect("forms"));
    let groups = match (&rows, random.u8(0..3)) {
        (Some(_), _) | (None, 0) => Groups::Together,
        (None, 1) => Groups::OneEach,
        _ => Groups::Given(vec![
            vec!["c1".into(), "c9".into(), "c3".into()],
            vec!["c11".into()],
        ]),
    };
    let groups = groups.resolve(&schema).expect("columns");
    let sizes = PageSize::ALL;
    let size = sizes[random.usize(0..sizes.len())];
    let shape = Shape::new(schema, size, groups, rows).expect("a shape");
    let segments: Vec<Vec<RecordBatch>> =
        segments.iter().map(|rows| batches(rows, types)).collect();
    let segments = segments.iter().map(Vec::as_slice);
    memory.table("t", &shape, segments).expect("rows fit")
}

fn run(site: &dyn Site, task: &FragmentTask) -> Result<Vec<Row>, TaskError> {
    let batches: Vec<RecordBatch> = site.run(task).collect::<Result<_, _>>()?;
    for batch in &batches {
        assert_eq!(batch.schema(), task.fragment.output);
    }
    Ok(batches.iter().flat_map(storage::rows).collect())
}

/// Returns the result if the rows are fed as they are.
fn fed(fragment: &Fragment, rows: &[Row]) -> Result<Vec<Row>, TaskError> {
    let all = generate::columns();
    let types: Vec<DataType> = fragment.columns.iter().map(|&c| all[c].clone()).collect();
    let mut executor = FragmentExecutor::new(fragment, &types).expect("a fragment");
    let mut random = Rng::with_seed(0);
    let rows: Vec<Row> = rows
        .iter()
        .map(|row| fragment.columns.iter().map(|&c| row[c].clone()).collect())
        .collect();
    for chunk in storage::chunks(&mut random, &rows, &types) {
        executor.feed(&chunk)?;
    }
    executor.finish()?;
    Ok(std::iter::from_fn(|| executor.take())
        .flat_map(|batch| storage::rows(&batch))
        .collect())
}

/// Returns some of the table's columns, and their types.
fn some_columns(random: &mut Rng) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..generate::columns().len()).collect();
    random.shuffle(&mut columns);
    columns.truncate(random.usize(1..8));
    columns
}

fn comparison(random: &mut Rng, columns: &[usize]) -> Expr {
    let at = random.usize(0..columns.len());
    let data_type = generate::columns()[columns[at]].clone();
    let value = generate::value(random, &data_type, Size::Small);
    let operators = [Operator::Eq, Operator::Lt, Operator::GtEq, Operator::NotEq];
    Expr::Binary(
        Box::new(Expr::Column(at)),
        operators[random.usize(0..operators.len())],
        Box::new(Expr::Literal(Scalar { data_type, value })),
    )
}

fn fragment(random: &mut Rng) -> Fragment {
    let columns = some_columns(random);
    let types: Vec<DataType> = columns
        .iter()
        .map(|&c| generate::columns()[c].clone())
        .collect();
    let both = |l, r| Expr::Binary(Box::new(l), Operator::And, Box::new(r));
    let filter = (0..random.usize(0..3))
        .map(|_| comparison(random, &columns))
        .reduce(both);
    let project: Vec<Expr> = (0..columns.len()).map(Expr::Column).collect();
    let (work, output) = match random.u8(0..3) {
        0 => (
            FragmentWork::Rows {
                project,
                order: vec![],
                limit: None,
            },
            types,
        ),
        1 => {
            let key = |expr: &Expr| SortKey {
                expr: expr.clone(),
                descending: random.bool(),
                nulls_first: random.bool(),
            };
            let order = project.iter().map(key).collect();
            (
                FragmentWork::Rows {
                    project,
                    order,
                    limit: Some(random.u64(0..30)),
                },
                types,
            )
        }
        _ => {
            let count = Aggregate {
                function: Function::Count,
                of: None,
                filter: None,
            };
            let (by, mut output) = (vec![project[0].clone()], vec![types[0].clone()]);
            output.push(DataType::Int64);
            (
                FragmentWork::Aggregate {
                    by,
                    aggregates: vec![count],
                },
                output,
            )
        }
    };
    Fragment {
        columns,
        filter,
        work,
        output: storage::schema(&output),
    }
}

fn sorted(mut rows: Vec<Row>) -> Vec<String> {
    let mut all: Vec<String> = rows.drain(..).map(|row| format!("{row:?}")).collect();
    all.sort_unstable();
    all
}

#[test]
fn pages_give_what_rows_give() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let types = generate::columns();
        let count = random.usize(0..4000);
        let value =
            |random: &mut Rng, data_type| match generate::value(random, data_type, Size::Small) {
                // Records drop zeros at the end of texts.
                Value::Text(text) => Value::Text(text.replace('\0', "0")),
                other => other,
            };
        let rows: Vec<Row> = (0..count)
            .map(|_| types.iter().map(|t| value(&mut random, t)).collect())
            .collect();
        let (first, second) = rows.split_at(count / 3);
        let memory = Memory::new();
        let table = table(&mut random, &memory, &[first, second], &types);
        let here = LocalSite::new(counted(memory));
        let fragment = Arc::new(fragment(&mut random));
        let expect = fed(&fragment, &rows).expect("values");
        let task = FragmentTask {
            rows: scan::all(&table),
            table: Arc::clone(&table),
            fragment: Arc::clone(&fragment),
            wanted: Cancellation::default(),
        };
        let found = run(&here, &task).expect("values");
        assert_eq!(sorted(found), sorted(expect.clone()), "seed {seed}");
        if let FragmentWork::Rows { limit: None, .. } = fragment.work {
            let parts = random.usize(1..6);
            let split = scan::split(&table, &fragment, parts).expect("parts");
            assert!(split.len() <= parts, "seed {seed}: {split:?}");
            let part = |rows| {
                run(
                    &here,
                    &FragmentTask {
                        rows,
                        ..task.clone()
                    },
                )
                .expect("values")
            };
            let found: Vec<Row> = split.into_iter().flat_map(part).collect();
            assert_eq!(sorted(found), sorted(expect), "seed {seed}");
        }
    }
}

#[test]
fn nulls_are_neither_least_nor_greatest() {
    let decimal = DataType::Decimal128(38, 18);
    let hundred = 100 * 10i128.pow(18);
    for (data_type, function, value) in [
        (&decimal, Function::Min, hundred),
        (&decimal, Function::Max, -hundred),
        (&DataType::UInt64, Function::Min, u64::MAX.into()),
    ] {
        let all_null = vec![vec![Value::Null]; 10];
        let known = vec![vec![Value::Int(value)]];
        for segments in [[&all_null[..], &known], [&known, &all_null]] {
            let found = extreme(segments, data_type, function);
            assert_eq!(found, [[Value::Int(value)]], "{function:?} of {data_type}");
        }
    }
}

/// Returns an aggregate's result over the only column of a table of two segments.
fn extreme(segments: [&[Row]; 2], data_type: &DataType, function: Function) -> Vec<Row> {
    let types = [data_type.clone()];
    let schema = storage::schema(&types);
    let groups = Groups::OneEach.resolve(&schema).expect("columns");
    let size = PageSize::new(4096).expect("a size");
    let shape = Shape::new(Arc::clone(&schema), size, groups, None).expect("a shape");
    let segments = segments.map(|rows| batches(rows, &types));
    let memory = Memory::new();
    let segments = segments.iter().map(Vec::as_slice);
    let table = memory.table("t", &shape, segments).expect("rows fit");
    let of = Some(Expr::Column(0));
    let filter = None;
    let task = FragmentTask {
        rows: scan::all(&table),
        table,
        fragment: Arc::new(Fragment {
            columns: vec![0],
            filter: None,
            work: FragmentWork::Aggregate {
                by: vec![],
                aggregates: vec![Aggregate {
                    function,
                    of,
                    filter,
                }],
            },
            output: schema,
        }),
        wanted: Cancellation::default(),
    };
    run(&LocalSite::new(counted(memory)), &task).expect("a value")
}

/// Returns a table of one column of numbers in order, and another one of texts.
fn ordered(rows: i128) -> (Arc<Counted>, Arc<Table>) {
    let types = [DataType::Int64, DataType::Utf8];
    let rows: Vec<Row> = (0..rows)
        .map(|n| vec![Value::Int(n), Value::Text(format!("text {n}"))])
        .collect();
    let memory = Memory::new();
    let schema = storage::schema(&types);
    let groups = Groups::OneEach.resolve(&schema).expect("columns");
    let size = PageSize::new(4096).expect("a size");
    let shape = Shape::new(schema, size, groups, None).expect("a shape");
    let batches = batches(&rows, &types);
    let table = memory
        .table("t", &shape, [batches.as_slice()])
        .expect("rows fit");
    (counted(memory), table)
}

fn within(from: i128, to: i128) -> Fragment {
    let literal = |value| {
        Box::new(Expr::Literal(Scalar {
            data_type: DataType::Int64,
            value: Value::Int(value),
        }))
    };
    let column = || Box::new(Expr::Column(0));
    let filter = Expr::Binary(
        Box::new(Expr::Binary(column(), Operator::GtEq, literal(from))),
        Operator::And,
        Box::new(Expr::Binary(column(), Operator::Lt, literal(to))),
    );
    Fragment {
        columns: vec![0, 1],
        filter: Some(filter),
        work: FragmentWork::Rows {
            project: vec![Expr::Column(1)],
            order: vec![],
            limit: None,
        },
        output: storage::schema(&[DataType::Utf8]),
    }
}

#[test]
fn pages_that_cannot_matter_are_not_read() {
    let (source, table) = ordered(100_000);
    let here = LocalSite::new(Arc::clone(&source) as Arc<dyn Source>);
    let task = |fragment| FragmentTask {
        table: Arc::clone(&table),
        fragment: Arc::new(fragment),
        rows: scan::all(&table),
        wanted: Cancellation::default(),
    };
    let found = run(&here, &task(within(70_000, 70_010))).expect("rows");
    assert_eq!(found.len(), 10);
    assert_eq!(found[3], vec![Value::Text("text 70003".into())]);
    let few = source.pages.swap(0, Ordering::Relaxed);
    assert!((2..=6).contains(&few), "{few} pages were read");
    assert_eq!(
        run(&here, &task(within(0, 100_000))).expect("rows").len(),
        100_000
    );
    assert_eq!(
        source.pages.swap(0, Ordering::Relaxed) as u64,
        table.pages()
    );
    assert!(
        run(&here, &task(within(100_000, 200_000)))
            .expect("rows")
            .is_empty()
    );
    assert_eq!(source.pages.load(Ordering::Relaxed), 0);
}

#[test]
fn parts_are_balanced() {
    let (_, table) = ordered(100_000);
    for parts in [1, 2, 3, 7] {
        let split = scan::split(&table, &within(10_000, 90_000), parts).expect("parts");
        let size = |rows: &Vec<RowRange>| rows.iter().map(|rows| rows.to - rows.from).sum::<u64>();
        let sizes: Vec<u64> = split.iter().map(size).collect();
        assert_eq!(sizes.len(), parts);
        let (least, most) = (
            sizes.iter().min().expect("a part"),
            sizes.iter().max().expect("a part"),
        );
        assert!(*least as f64 > 0.7 * *most as f64, "{sizes:?}");
    }
}

#[test]
fn tasks_that_make_no_sense_are_refused() {
    let (source, table) = ordered(1000);
    let here = LocalSite::new(source);
    let segment = table.segments[0].id;
    let rows = |from, to| vec![RowRange { segment, from, to }];
    let elsewhere = pages::SegmentId(7);
    let task = |fragment, rows| FragmentTask {
        table: Arc::clone(&table),
        fragment: Arc::new(fragment),
        rows,
        wanted: Cancellation::default(),
    };
    let mut far = within(0, 1);
    far.columns = vec![0, 9];
    let mut other = within(0, 1);
    other.output = storage::schema(&[DataType::Int64]);
    for task in [
        task(within(0, 1), rows(0, 1001)),
        task(within(0, 1), rows(10, 9)),
        task(
            within(0, 1),
            vec![RowRange {
                segment: elsewhere,
                from: 0,
                to: 1,
            }],
        ),
        task(far, rows(0, 1000)),
        task(other, rows(0, 1000)),
    ] {
        let found = run(&here, &task);
        assert!(matches!(found, Err(TaskError::Refused(_))), "{found:?}");
    }
}

#[test]
fn rows_are_counted_without_pages() {
    let (source, table) = ordered(12_345);
    let here = LocalSite::new(Arc::clone(&source) as Arc<dyn Source>);
    let count = Aggregate {
        function: Function::Count,
        of: None,
        filter: None,
    };
    let fragment = Fragment {
        columns: vec![],
        filter: None,
        work: FragmentWork::Aggregate {
            by: vec![],
            aggregates: vec![count],
        },
        output: storage::schema(&[DataType::Int64]),
    };
    let task = FragmentTask {
        rows: scan::all(&table),
        table,
        fragment: Arc::new(fragment),
        wanted: Cancellation::default(),
    };
    assert_eq!(
        run(&here, &task).expect("a count"),
        vec![vec![Value::Int(12_345)]]
    );
    assert_eq!(source.pages.load(Ordering::Relaxed), 0);
}

#[test]
fn estimates_are_near() {
    let (_, table) = ordered(100_000);
    let of = |fragment: &Fragment| {
        kumiki_operators::estimate::estimate(&table, fragment, &scan::all(&table))
            .expect("an estimate")
    };
    let little = of(&within(70_000, 70_010));
    assert!((5..=40).contains(&little.result_rows), "{little:?}");
    assert!((2..=6).contains(&little.pages), "{little:?}");
    let half = of(&within(0, 50_000));
    assert!((49_900..=50_100).contains(&half.result_rows), "{half:?}");
    assert!(
        half.pages > table.pages() / 3 && half.pages < table.pages() * 2 / 3,
        "{half:?}"
    );
    assert_eq!(of(&within(-10, -5)).rows, 0);
}

#[test]
fn records_come_out_as_they_lie() {
    let types = [DataType::Int64, DataType::Utf8];
    let schema = storage::schema(&types);
    let layout = RowSchema::of(&schema, |_| Some(20)).expect("forms");
    let row = |n| vec![Value::Int(n), Value::Text(format!("text {n}"))];
    let rows: Vec<Row> = (0..20_000).map(row).collect();
    let batches = batches(&rows, &types);
    let size = PageSize::new(4096).expect("a size");
    let made = |rows| {
        let groups = vec![vec![0, 1]];
        let shape = Shape::new(Arc::clone(&schema), size, groups, rows).expect("a shape");
        let memory = Memory::new();
        let table = memory.table("t", &shape, [batches.as_slice()]);
        (LocalSite::new(counted(memory)), table.expect("rows fit"))
    };
    let task = |table: &Arc<Table>| FragmentTask {
        table: Arc::clone(table),
        fragment: Arc::new(Fragment {
            columns: vec![0, 2],
            output: storage::schema(&[DataType::Binary]),
            ..within(15_000, 17_500)
        }),
        rows: scan::all(table),
        wanted: Cancellation::default(),
    };
    let (here, table) = made(Some(layout.clone()));
    let found = run(&here, &task(&table)).expect("records");
    assert_eq!(found.len(), 2500);
    for (found, n) in found.iter().zip(15_000_i64..) {
        let [Value::Bytes(record)] = &found[..] else {
            panic!("a record: {found:?}");
        };
        assert_eq!(record.len(), layout.record());
        assert_eq!(record[..8], n.to_le_bytes());
        let text = format!("text {n}");
        assert_eq!(record[8..][..text.len()], *text.as_bytes());
    }
    let estimate =
        kumiki_operators::estimate::estimate(&table, &task(&table).fragment, &scan::all(&table));
    let bytes = estimate.expect("an estimate").result_bytes as f64;
    let right = (2500 * layout.record()) as f64;
    assert!((0.9..1.3).contains(&(bytes / right)), "{bytes} of {right}");
    let (here, table) = made(None);
    let found = run(&here, &task(&table));
    assert!(matches!(found, Err(TaskError::Refused(_))), "{found:?}");
}
