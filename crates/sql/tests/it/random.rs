//! Random queries over random tables: pages with push-down, pages without, and DataFusion over memory
//! give the same results.

use std::fmt::Write as _;
use std::sync::Arc;

use datafusion::arrow::array as a;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use fastrand::Rng;
use pages::{Groups, PageSize};
use testkit::amount;

use crate::support::{MemoryStore, Rows, ask, rows, session};

/// The number of queries for each table.
const QUERIES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_queries_give_the_same_everywhere() {
    for _ in 0..amount(2, 8) {
        let seed = fastrand::u64(..);
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(0..40_000);
        let batches = table(&mut rng, count);
        let size = PageSize::ALL[rng.usize(..PageSize::ALL.len())];
        let groups = if rng.bool() {
            Groups::OneEach
        } else {
            Groups::Together
        };
        let mut store = MemoryStore::new();
        store.add("t", &batches, size, &groups);
        let store = Arc::new(store);
        let pushed = session(vec![Arc::clone(&store) as _], rng.usize(1..4), true);
        pushed
            .plan("set kumiki.rows_for_each_group = 0")
            .await
            .unwrap();
        let plain = session(vec![store as _], rng.usize(1..4), false);
        let memory = memory(batches);
        for _ in 0..QUERIES {
            let query = query(&mut rng);
            let expected = of_memory(&memory, &query.sql).await;
            for (way, session) in [("with", &pushed), ("without", &plain)] {
                let given = ask(session, &query.sql).await;
                query.compare(&expected, given, &format!("seed {seed}, {way} push-down"));
            }
        }
    }
}

/// Returns rows with nulls, in columns of most types.
fn table(rng: &mut Rng, count: usize) -> Vec<RecordBatch> {
    let few = rng.i32(1..50);
    let sorted = rng.bool();
    let mut at = 0;
    let mut batches = Vec::new();
    while at < count || batches.is_empty() {
        let here = rng.usize(1..6_000).min(count - at);
        let mut maybe = |some: bool| some || rng.u8(..10) > 0;
        let valid: Vec<Vec<bool>> = (0..8)
            .map(|c| (0..here).map(|_| maybe(c == 0)).collect())
            .collect();
        let is = |column: usize, row: usize| valid[column][row];
        let number = |row: usize| i32::try_from(at + row).unwrap();
        let i: Vec<i32> = (0..here)
            .map(|r| if sorted { number(r) } else { rng.i32(0..2_000) })
            .collect();
        let k: Vec<_> = (0..here)
            .map(|r| is(1, r).then(|| rng.i32(0..few)))
            .collect();
        let b: Vec<_> = (0..here)
            .map(|r| is(2, r).then(|| rng.i64(-1_000_000..1_000_000)))
            .collect();
        let d: Vec<_> = (0..here)
            .map(|r| is(3, r).then(|| i128::from(rng.i64(-50_000..50_000))))
            .collect();
        let day: Vec<_> = (0..here)
            .map(|r| is(4, r).then(|| rng.i32(8_000..11_000)))
            .collect();
        let words = [
            "",
            "a",
            "ab",
            "abc",
            "bac",
            "über",
            "x y z",
            "a%b",
            "long text that is not short",
        ];
        let s: Vec<_> = (0..here)
            .map(|r| is(5, r).then(|| words[rng.usize(..words.len())]))
            .collect();
        let f: Vec<_> = (0..here)
            .map(|r| is(6, r).then(|| f64::from(rng.i32(-500..500)) / 4.0))
            .collect();
        let t: Vec<_> = (0..here).map(|r| is(7, r).then(|| rng.bool())).collect();
        let decimals = a::Decimal128Array::from(d)
            .with_precision_and_scale(12, 2)
            .unwrap();
        let columns: [(&str, ArrayRef, bool); 8] = [
            ("i", Arc::new(a::Int32Array::from(i)), false),
            ("k", Arc::new(a::Int32Array::from(k)), true),
            ("b", Arc::new(a::Int64Array::from(b)), true),
            ("d", Arc::new(decimals), true),
            ("day", Arc::new(a::Date32Array::from(day)), true),
            ("s", Arc::new(a::StringArray::from(s)), true),
            ("f", Arc::new(a::Float64Array::from(f)), true),
            ("t", Arc::new(a::BooleanArray::from(t)), true),
        ];
        batches.push(RecordBatch::try_from_iter_with_nullable(columns).unwrap());
        at += here;
    }
    batches
}

fn memory(batches: Vec<RecordBatch>) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().sql_parser.map_string_types_to_utf8view = false;
    let context = SessionContext::new_with_config(config);
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    context
}

async fn of_memory(context: &SessionContext, sql: &str) -> Result<Rows, String> {
    let planned = context
        .sql(sql)
        .await
        .map_err(|error| format!("{sql}: {error}"))?;
    let batches = planned.collect().await.map_err(|error| error.to_string())?;
    Ok(batches.iter().flat_map(rows).collect())
}

/// A query, and how its results are compared.
struct Query {
    sql: String,
    /// `true` if all selected columns order the rows.
    ordered: bool,
    /// `true` if only the number of rows is determined.
    counted: bool,
}

impl Query {
    fn compare(&self, expected: &Result<Rows, String>, given: Result<Rows, String>, way: &str) {
        let about = format!("{way}: {}", self.sql);
        let (mut expected, mut given) = match (expected, given) {
            (Ok(expected), Ok(given)) => (expected.clone(), given),
            (Ok(_), Err(error)) => panic!("{about}: {error}"),
            // It is undefined whether a value that does not reach the result is computed, and so
            // fails.
            (Err(_), _) => return,
        };
        assert_eq!(given.len(), expected.len(), "{about}");
        if self.counted {
            return;
        }
        if !self.ordered {
            expected.sort();
            given.sort();
        }
        for (given, expected) in given.iter().zip(&expected) {
            assert_eq!(given, expected, "{about}");
        }
    }
}

fn query(rng: &mut Rng) -> Query {
    let filter = match rng.u8(..4) {
        0 => String::new(),
        _ => format!(" where {}", condition(rng, 3)),
    };
    match rng.u8(..4) {
        0 => {
            let (x, y) = (value(rng, 2), value(rng, 1));
            Query {
                sql: format!("select i, {x} as x, {y} as y from t{filter}"),
                ordered: false,
                counted: false,
            }
        }
        1 => {
            let x = value(rng, 1);
            let (way, limit) = (["asc", "desc nulls last"][rng.usize(..2)], rng.usize(..50));
            Query {
                sql: format!(
                    "select x from (select {x} as x from t{filter}) order by x {way} limit {limit}"
                ),
                ordered: true,
                counted: false,
            }
        }
        2 => Query {
            sql: format!("select i, s from t{filter} limit {}", rng.usize(..3_000)),
            ordered: false,
            counted: true,
        },
        _ => Query {
            sql: aggregate(rng, &filter),
            ordered: false,
            counted: false,
        },
    }
}

fn aggregate(rng: &mut Rng, filter: &str) -> String {
    let by = [
        "",
        "k",
        "s",
        "t, k",
        "extract(year from day)",
        "k % 3, s",
        "d",
    ][rng.usize(..7)];
    let mut selected = by.to_owned();
    for number in 0..rng.usize(1..5) {
        let of = match rng.u8(..8) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", value(rng, 1)),
            2 => format!("min({})", value(rng, 1)),
            3 => format!("max({})", value(rng, 1)),
            4 => format!("avg({})", decimal(rng, 1)),
            5 => format!(
                "sum({}) filter (where {})",
                integer(rng, 1),
                condition(rng, 1)
            ),
            6 => format!("sum({})", decimal(rng, 2)),
            _ => format!("sum({})", integer(rng, 2)),
        };
        let comma = if selected.is_empty() { "" } else { ", " };
        let _ = write!(selected, "{comma}{of} as a{number}");
    }
    let group = if by.is_empty() {
        String::new()
    } else {
        format!(" group by {by}")
    };
    format!("select {selected} from t{filter}{group}")
}

fn condition(rng: &mut Rng, depth: usize) -> String {
    if depth > 0 && rng.u8(..3) == 0 {
        let (x, y) = (condition(rng, depth - 1), condition(rng, depth - 1));
        return match rng.u8(..4) {
            0 => format!("not ({x})"),
            1 => format!("({x} or {y})"),
            _ => format!("({x} and {y})"),
        };
    }
    let compare = ["=", "<>", "<", "<=", ">", ">="][rng.usize(..6)];
    match rng.u8(..12) {
        0 => format!("{} {compare} {}", integer(rng, 1), integer(rng, 1)),
        1 => format!("{} {compare} {}", decimal(rng, 1), decimal(rng, 1)),
        2 => format!(
            "day {compare} date '199{}-0{}-15'",
            rng.u8(2..10),
            rng.u8(1..10)
        ),
        3 => format!(
            "s {compare} '{}'",
            ["a", "abc", "über", "zz"][rng.usize(..4)]
        ),
        4 => {
            let pattern = ["a%", "%b%", "_b_", "%", "%ü%er", "x y z", "a%b"][rng.usize(..7)];
            format!("s {}like '{pattern}'", if rng.bool() { "not " } else { "" })
        }
        5 => format!(
            "k {}in (1, 2, {})",
            if rng.bool() { "not " } else { "" },
            rng.i32(..40)
        ),
        6 => format!(
            "s in ('a', 'bac', '{}')",
            if rng.bool() { "über" } else { "none" }
        ),
        7 => format!(
            "{} is {}null",
            value(rng, 1),
            if rng.bool() { "not " } else { "" }
        ),
        8 => "t".to_owned(),
        9 => format!("f {compare} {}", rng.i32(-130..130)),
        10 => format!("extract(year from day) = {}", rng.i32(1991..2001)),
        _ => format!(
            "i between {} and {}",
            rng.i32(..1_000),
            rng.i32(500..40_000)
        ),
    }
}

fn value(rng: &mut Rng, depth: usize) -> String {
    match rng.u8(..8) {
        0 => "s".to_owned(),
        1 => "day".to_owned(),
        2 => format!("substring(s from {} for {})", rng.i32(1..4), rng.i32(0..4)),
        3 => "t".to_owned(),
        4 => "f".to_owned(),
        5 => decimal(rng, depth),
        _ => integer(rng, depth),
    }
}

fn integer(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.u8(..3) == 0 {
        return match rng.u8(..4) {
            0 => "k".to_owned(),
            1 => "b".to_owned(),
            2 => rng.i32(-20..100).to_string(),
            _ => "i".to_owned(),
        };
    }
    let (x, y) = (integer(rng, depth - 1), integer(rng, depth - 1));
    match rng.u8(..8) {
        0 => format!("({x} + {y})"),
        1 => format!("({x} - {y})"),
        2 => format!("({x} * {y})"),
        3 => format!("({x} / {})", rng.i32(1..9)),
        4 => format!("({x} % {})", rng.i32(2..9)),
        5 => format!("-({x})"),
        6 => format!("case when {} then {x} else {y} end", condition(rng, 1)),
        _ => format!("cast({x} as bigint)"),
    }
}

fn decimal(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.u8(..3) == 0 {
        return match rng.u8(..3) {
            0 => format!(
                "cast('{}.{:02}' as decimal(4, 2))",
                rng.i32(0..40),
                rng.u8(..100)
            ),
            _ => "d".to_owned(),
        };
    }
    let (x, y) = (decimal(rng, depth - 1), decimal(rng, depth - 1));
    match rng.u8(..6) {
        0 => format!("({x} + {y})"),
        1 => format!("({x} - {y})"),
        2 => format!("({x} * {y})"),
        3 => format!("case when {} then {x} end", condition(rng, 1)),
        4 => format!("cast({x} as decimal(20, {}))", rng.u8(0..5)),
        _ => format!("({x} * (1 - {y}))"),
    }
}
