//! Random fragments over random chunks: the executor's results are those of a slow and obviously
//! right executor, however rows are cut into chunks and stored.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use fastrand::Rng;
use kumiki_operators::{
    Aggregate, Chunk, Expr, Fragment, FragmentExecutor, FragmentWork, Function, GroupLimits,
    Operator, SortKey, TaskError, Value,
};

use crate::reference::generate::{self, Size};
use crate::reference::{Found, Row, evaluate, order, storage};

const ROUNDS: u64 = 1500;

fn table(random: &mut Rng, types: &[DataType]) -> Vec<Row> {
    let count = if random.u8(0..4) == 0 {
        random.usize(2000..6000)
    } else {
        random.usize(0..60)
    };
    let sizes: Vec<Size> = types.iter().map(|_| Size::any(random)).collect();
    let row = |random: &mut Rng| {
        types
            .iter()
            .zip(&sizes)
            .map(|(t, size)| generate::value(random, t, *size))
            .collect()
    };
    let mut rows: Vec<Row> = (0..count).map(|_| row(random)).collect();
    for column in 0..types.len() {
        if random.u8(0..4) == 0 {
            leave_gaps(random, &mut rows, column);
        }
    }
    rows
}

/// Makes ranges of a column null, which may be whole chunks, or all of it.
fn leave_gaps(random: &mut Rng, rows: &mut [Row], column: usize) {
    let most = 1 + rows.len() / random.usize(1..4);
    let mut from = 0;
    while from < rows.len() {
        let to = rows.len().min(from + random.usize(1..=most));
        if random.bool() {
            rows[from..to]
                .iter_mut()
                .for_each(|row| row[column] = Value::Null);
        }
        from = to;
    }
}

fn run(fragment: &Fragment, chunks: &[Chunk], limits: GroupLimits) -> Result<Vec<Row>, TaskError> {
    let types = generate::columns();
    let mut executor = FragmentExecutor::with_limits(fragment, &types, limits).expect("a fragment");
    let mut batches: Vec<RecordBatch> = Vec::new();
    for chunk in chunks {
        executor.feed(chunk)?;
        batches.extend(std::iter::from_fn(|| executor.take()));
    }
    executor.finish()?;
    batches.extend(std::iter::from_fn(|| executor.take()));
    Ok(batches.iter().flat_map(storage::rows).collect())
}

fn conjuncts<'e>(filter: &'e Expr, all: &mut Vec<&'e Expr>) {
    match filter {
        Expr::Binary(left, Operator::And, right) => {
            conjuncts(left, all);
            conjuncts(right, all);
        }
        other => all.push(other),
    }
}

/// The rows that pass, and whether a conjunct is an error for a row. It is undefined which conjuncts
/// are evaluated for a row that another conjunct, or bounds, reject.
struct Passed<'r> {
    rows: Vec<&'r Row>,
    /// `true` if there may be an error.
    may_fail: bool,
}

fn pass<'r>(filter: Option<&Expr>, rows: &'r [Row], types: &[DataType]) -> Passed<'r> {
    let mut all = Vec::new();
    filter
        .into_iter()
        .for_each(|filter| conjuncts(filter, &mut all));
    let mut passed = Passed {
        rows: Vec::new(),
        may_fail: false,
    };
    for row in rows {
        let found: Vec<Found> = all.iter().map(|expr| evaluate(expr, row, types)).collect();
        let fails = found.iter().any(Found::is_err);
        let rejected = found
            .iter()
            .flatten()
            .any(|value| *value != Value::Bool(true));
        passed.may_fail |= fails;
        if !fails && !rejected {
            passed.rows.push(row);
        }
    }
    passed
}

/// Returns `true` if values are the same. Floats are compared by their bits, except that all NaNs are
/// the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (a, b) => a == b,
    }
}

fn same_rows(a: &[Row], b: &[Row]) -> bool {
    let row = |(a, b): (&Row, &Row)| a.iter().zip(b).all(|(a, b)| same(a, b));
    a.len() == b.len() && a.iter().zip(b).all(row)
}

fn filter(random: &mut Rng) -> Option<Expr> {
    let conjunct = |random: &mut Rng| {
        let depth = random.u32(0..4);
        generate::expr(random, &DataType::Boolean, depth)
    };
    let both = |left, right| Expr::Binary(Box::new(left), Operator::And, Box::new(right));
    (0..random.usize(0..4))
        .map(|_| conjunct(random))
        .reduce(both)
}

fn exprs(random: &mut Rng, most: usize) -> Vec<Expr> {
    let types = generate::columns();
    let expr = |_| {
        let data_type = types[random.usize(0..types.len())].clone();
        let depth = random.u32(0..4);
        generate::expr(random, &data_type, depth)
    };
    (0..most).map(expr).collect()
}

fn types_of(exprs: &[Expr]) -> Vec<DataType> {
    let types = generate::columns();
    exprs
        .iter()
        .map(|expr| expr.data_type(&types).expect("a type"))
        .collect()
}

/// Returns the values of expressions for rows, or an error if there is one for any row.
fn project(exprs: &[Expr], rows: &[&Row]) -> Result<Vec<Row>, ()> {
    let types = generate::columns();
    let row = |row: &&Row| {
        exprs
            .iter()
            .map(|expr| evaluate(expr, row, &types))
            .collect()
    };
    rows.iter().map(row).collect()
}

/// Checks the result against the expected one, or, if it is an error, that there may be one. Returns
/// `true` if rows were compared.
fn check(
    seed: u64,
    found: Result<Vec<Row>, TaskError>,
    passed: &Passed<'_>,
    expect: Result<Vec<Row>, ()>,
    same: impl Fn(&[Row], &[Row]) -> bool,
) -> bool {
    let compared = found.as_ref().is_ok_and(|rows| !rows.is_empty());
    match (found, expect) {
        (Ok(_), Err(())) => panic!("seed {seed}: an error was expected"),
        (Ok(found), Ok(expect)) => {
            assert!(
                same(&found, &expect),
                "seed {seed}:\n{found:?}\nnot\n{expect:?}"
            );
        }
        (Err(error), Ok(_)) => assert!(passed.may_fail, "seed {seed}: {error}"),
        (Err(_), Err(())) => {}
    }
    compared
}

#[test]
fn rows_come_out() {
    let mut compared = 0;
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let types = generate::columns();
        let rows = table(&mut random, &types);
        let project_exprs = exprs(&mut random, 3);
        let fragment = Fragment {
            columns: (0..types.len()).collect(),
            filter: filter(&mut random),
            output: storage::schema(&types_of(&project_exprs)),
            work: FragmentWork::Rows {
                project: project_exprs.clone(),
                order: vec![],
                limit: None,
            },
        };
        let chunks = storage::chunks(&mut random, &rows, &types);
        let found = run(&fragment, &chunks, GroupLimits::default());
        let passed = pass(fragment.filter.as_ref(), &rows, &types);
        let expect = project(&project_exprs, &passed.rows);
        compared += u64::from(check(seed, found, &passed, expect, same_rows));
    }
    assert!(compared > ROUNDS / 4, "{compared} results had rows");
}

#[test]
fn limits_end_early() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Rng::with_seed(seed);
        let types = generate::columns();
        let rows = table(&mut random, &types);
        let columns: Vec<Expr> = (0..types.len()).map(Expr::Column).collect();
        let limit = random.u64(0..100);
        let fragment = Fragment {
            columns: (0..types.len()).collect(),
            filter: None,
            output: storage::schema(&types),
            work: FragmentWork::Rows {
                project: columns,
                order: vec![],
                limit: Some(limit),
            },
        };
        let chunks = storage::chunks(&mut random, &rows, &types);
        let found = run(&fragment, &chunks, GroupLimits::default()).expect("rows");
        assert!(
            same_rows(&found, &rows[..rows.len().min(limit as usize)]),
            "seed {seed}"
        );
    }
}

#[test]
fn first_rows_come_out_in_order() {
    let mut compared = 0;
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let types = generate::columns();
        let rows = table(&mut random, &types);
        let key = |random: &mut Rng| SortKey {
            expr: Expr::Column(random.usize(0..types.len())),
            descending: random.bool(),
            nulls_first: random.bool(),
        };
        let keys: Vec<SortKey> = (0..random.usize(1..4)).map(|_| key(&mut random)).collect();
        let columns: Vec<Expr> = keys.iter().map(|key| key.expr.clone()).collect();
        let limit = random.usize(0..50);
        let fragment = Fragment {
            columns: (0..types.len()).collect(),
            filter: filter(&mut random),
            output: storage::schema(&types_of(&columns)),
            work: FragmentWork::Rows {
                project: columns.clone(),
                order: keys.clone(),
                limit: Some(limit as u64),
            },
        };
        let chunks = storage::chunks(&mut random, &rows, &types);
        let found = run(&fragment, &chunks, GroupLimits::default());
        let passed = pass(fragment.filter.as_ref(), &rows, &types);
        let mut expect = project(&columns, &passed.rows).expect("columns are no errors");
        expect.sort_by(|a, b| by_keys(&keys, a, b));
        expect.truncate(limit);
        compared += u64::from(check(seed, found, &passed, Ok(expect), same_rows));
    }
    assert!(compared > ROUNDS / 4, "{compared} results had rows");
}

fn by_keys(keys: &[SortKey], a: &Row, b: &Row) -> std::cmp::Ordering {
    let by_key = |(at, key): (usize, &SortKey)| match (&a[at], &b[at]) {
        (Value::Null, Value::Null) => std::cmp::Ordering::Equal,
        (Value::Null, _) if key.nulls_first => std::cmp::Ordering::Less,
        (Value::Null, _) => std::cmp::Ordering::Greater,
        (_, Value::Null) if key.nulls_first => std::cmp::Ordering::Greater,
        (_, Value::Null) => std::cmp::Ordering::Less,
        (a, b) if key.descending => order(b, a),
        (a, b) => order(a, b),
    };
    let mut found = keys.iter().enumerate().map(by_key);
    found
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

/// Returns an aggregate that is defined for its argument's type.
fn aggregate(random: &mut Rng) -> Aggregate {
    let types = generate::columns();
    let filter = (random.u8(0..4) == 0).then(|| generate::expr(random, &DataType::Boolean, 2));
    loop {
        let data_type = types[random.usize(0..types.len())].clone();
        let float = matches!(data_type, DataType::Float32 | DataType::Float64);
        let of = match random.u8(0..4) {
            0 => None,
            _ => Some(generate::expr(
                random,
                &data_type,
                if float { 0 } else { 2 },
            )),
        };
        let functions = [
            Function::Count,
            Function::Sum,
            Function::Min,
            Function::Max,
            Function::Avg,
        ];
        let function = functions[random.usize(0..functions.len())];
        let aggregate = Aggregate {
            function,
            of,
            filter: filter.clone(),
        };
        if states(&aggregate).is_some() {
            return aggregate;
        }
    }
}

/// Returns the types of an aggregate's state.
fn states(aggregate: &Aggregate) -> Option<Vec<DataType>> {
    let of = aggregate
        .of
        .as_ref()
        .map(|of| of.data_type(&generate::columns()).expect("a type"));
    Some(match (aggregate.function, of) {
        (Function::Count, _) => vec![DataType::Int64],
        (_, None) => return None,
        (Function::Min | Function::Max, Some(of)) => vec![of],
        (Function::Sum, Some(DataType::Decimal128(p, s))) => {
            vec![DataType::Decimal128((p + 10).min(38), s)]
        }
        (Function::Avg, Some(DataType::Decimal128(10, s))) => {
            vec![DataType::UInt64, DataType::Decimal128(38, s)]
        }
        (Function::Sum, Some(t @ (DataType::Int64 | DataType::UInt64 | DataType::Float64))) => {
            vec![t]
        }
        (Function::Avg, Some(DataType::Float64)) => vec![DataType::UInt64, DataType::Float64],
        _ => return None,
    })
}

/// Returns the state of an aggregate over values of which none is null.
fn state(aggregate: &Aggregate, values: &[Value], rows: usize, types: &[DataType]) -> Row {
    let count = Value::Int(if aggregate.of.is_some() {
        values.len()
    } else {
        rows
    } as i128);
    let none = values.is_empty();
    let sum = || sum(values, types.last().expect("a type"));
    match aggregate.function {
        Function::Count => vec![count],
        Function::Avg if none => vec![Value::Null, Value::Null],
        _ if none => vec![Value::Null],
        Function::Sum => vec![sum()],
        Function::Avg => vec![count, sum()],
        Function::Min => values.iter().cloned().min_by(total).into_iter().collect(),
        Function::Max => values.iter().cloned().max_by(total).into_iter().collect(),
    }
}

fn sum(values: &[Value], data_type: &DataType) -> Value {
    let floats = values.iter().filter_map(|value| match value {
        Value::Float(value) => Some(*value),
        _ => None,
    });
    let integers = values.iter().filter_map(|value| match value {
        Value::Int(value) => Some(*value),
        _ => None,
    });
    match data_type {
        DataType::Float64 => Value::Float(floats.fold(0.0, |a, b| a + b)),
        DataType::Int64 => Value::Int(integers.fold(0i64, |a, b| a.wrapping_add(b as i64)).into()),
        DataType::UInt64 => Value::Int(integers.fold(0u64, |a, b| a.wrapping_add(b as u64)).into()),
        _ => Value::Int(integers.fold(0, i128::wrapping_add)),
    }
}

/// Compares values of one type in the order by which minima and maxima are found: floats in their
/// total order.
fn total(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (a, b) => order(a, b),
    }
}

/// Merges the states of a group that came out several times.
fn merge(aggregates: &[Aggregate], a: &[Value], b: &[Value], types: &[Vec<DataType>]) -> Row {
    let mut merged = Vec::new();
    for (aggregate, types) in aggregates.iter().zip(types) {
        for data_type in types {
            let at = merged.len();
            let both: Vec<Value> = [&a[at], &b[at]]
                .into_iter()
                .filter(|v| **v != Value::Null)
                .cloned()
                .collect();
            merged.push(match aggregate.function {
                _ if both.is_empty() => Value::Null,
                Function::Min => both.into_iter().min_by(total).expect("one"),
                Function::Max => both.into_iter().max_by(total).expect("one"),
                _ => sum(&both, data_type),
            });
        }
    }
    merged
}

/// Returns a group's key in a form that has an order.
fn key_of(values: &[Value]) -> String {
    let one = |value: &Value| match value {
        Value::Float(value) => format!("{:x}", value.to_bits()),
        other => format!("{other:?}"),
    };
    values.iter().map(one).collect::<Vec<_>>().join("|")
}

#[test]
fn groups_are_aggregated() {
    let mut compared = 0;
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let keys = random.usize(0..4);
        let by = match random.bool() {
            true => some_columns(&mut random, keys),
            false => exprs(&mut random, keys),
        };
        let count = random.usize(1..6);
        let aggregates = (0..count).map(|_| aggregate(&mut random)).collect();
        let filter = filter(&mut random);
        compared += u64::from(check_groups(seed, &mut random, filter, by, aggregates));
    }
    assert!(compared > ROUNDS / 4, "{compared} results had rows");
}

/// The least and greatest values of whole columns, of which some have values beyond 64 bits in some
/// chunks, and nothing but nulls in others.
#[test]
fn extremes_of_columns_are_found() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Rng::with_seed(seed);
        let keys = random.usize(0..2);
        let by = some_columns(&mut random, keys);
        let of = |function| {
            (0..generate::columns().len()).map(move |column| Aggregate {
                function,
                of: Some(Expr::Column(column)),
                filter: None,
            })
        };
        let aggregates = of(Function::Min).chain(of(Function::Max)).collect();
        check_groups(seed, &mut random, None, by, aggregates);
    }
}

fn some_columns(random: &mut Rng, count: usize) -> Vec<Expr> {
    let columns = generate::columns().len();
    (0..count)
        .map(|_| Expr::Column(random.usize(0..columns)))
        .collect()
}

/// Checks aggregates over a random table. Returns `true` if rows were compared.
fn check_groups(
    seed: u64,
    random: &mut Rng,
    filter: Option<Expr>,
    by: Vec<Expr>,
    aggregates: Vec<Aggregate>,
) -> bool {
    let types = generate::columns();
    let rows = table(random, &types);
    let state_types: Vec<_> = aggregates
        .iter()
        .map(|aggregate| states(aggregate).expect("types"))
        .collect();
    let mut output = types_of(&by);
    output.extend(state_types.iter().flatten().cloned());
    let fragment = Fragment {
        columns: (0..types.len()).collect(),
        filter,
        output: storage::schema(&output),
        work: FragmentWork::Aggregate {
            by: by.clone(),
            aggregates: aggregates.clone(),
        },
    };
    let limits = match random.bool() {
        true => GroupLimits::default(),
        false => GroupLimits {
            groups: 3,
            ..GroupLimits::default()
        },
    };
    let chunks = storage::chunks(random, &rows, &types);
    let found = run(&fragment, &chunks, limits)
        .map(|rows| merged(&rows, by.len(), &aggregates, &state_types));
    let passed = pass(fragment.filter.as_ref(), &rows, &types);
    let expect = grouped(&by, &aggregates, &state_types, &passed.rows);
    check(seed, found, &passed, expect, same_rows)
}

/// Returns rows of partial states, with those of a group merged, in the order of groups.
fn merged(
    rows: &[Row],
    keys: usize,
    aggregates: &[Aggregate],
    types: &[Vec<DataType>],
) -> Vec<Row> {
    let mut groups: BTreeMap<String, Row> = BTreeMap::new();
    for row in rows {
        let (key, states) = row.split_at(keys);
        match groups.get_mut(&key_of(key)) {
            Some(known) => *known = merge(aggregates, known, states, types),
            None => _ = groups.insert(key_of(key), states.to_vec()),
        }
    }
    groups
        .into_iter()
        .map(|(key, states)| [vec![Value::Text(key)], states].concat())
        .collect()
}

/// Returns the expected result of groups, in the same form.
fn grouped(
    by: &[Expr],
    aggregates: &[Aggregate],
    state_types: &[Vec<DataType>],
    rows: &[&Row],
) -> Result<Vec<Row>, ()> {
    let types = generate::columns();
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    if by.is_empty() {
        groups.insert(String::new(), Vec::new());
    }
    for (key, row) in project(by, rows)?.iter().zip(rows) {
        groups.entry(key_of(key)).or_default().push(row);
    }
    let mut found = Vec::new();
    for (key, rows) in groups {
        let mut states = vec![Value::Text(key)];
        for (aggregate, state_types) in aggregates.iter().zip(state_types) {
            let (mut values, mut count) = (Vec::new(), 0);
            for row in &rows {
                if let Some(filter) = &aggregate.filter
                    && evaluate(filter, row, &types)? != Value::Bool(true)
                {
                    continue;
                }
                count += 1;
                if let Some(of) = &aggregate.of {
                    values.extend(Some(evaluate(of, row, &types)?).filter(|v| *v != Value::Null));
                }
            }
            states.extend(state(aggregate, &values, count, state_types));
        }
        found.push(states);
    }
    Ok(found)
}
