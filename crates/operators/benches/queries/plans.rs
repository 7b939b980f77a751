//! The queries as fragments, with the types that DataFusion gives them, and their results.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type};
use arrow_schema::{DataType, Field, Schema};
use kumiki_operators::{
    Aggregate, Expr, Fragment, FragmentWork, Function, Operator, Scalar, Value,
};

use super::lineitem;

/// Returns all queries, with their names.
pub(crate) fn all() -> Vec<(&'static str, Fragment)> {
    vec![("Q1", q1()), ("Q6", q6()), ("Q15s", q15())]
}

fn column(place: usize) -> Expr {
    Expr::Column(place)
}

fn literal(data_type: DataType, value: i128) -> Expr {
    Expr::Literal(Scalar {
        data_type,
        value: Value::Int(value),
    })
}

/// Returns a literal of a date, as days since 1970.
fn date(days: i128) -> Expr {
    literal(DataType::Date32, days)
}

fn cents(value: i128) -> Expr {
    literal(DataType::Decimal128(15, 2), value)
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::Binary(Box::new(left), operator, Box::new(right))
}

fn all_of(conditions: Vec<Expr>) -> Expr {
    let both = |left, right| binary(left, Operator::And, right);
    conditions.into_iter().reduce(both).expect("a condition")
}

/// Returns the literal 1 in the type that DataFusion gives it between decimals.
fn one() -> Expr {
    literal(DataType::Decimal128(20, 0), 1)
}

fn aggregate(function: Function, of: Option<Expr>) -> Aggregate {
    Aggregate {
        function,
        of,
        filter: None,
    }
}

fn discounted(price: usize, discount: usize) -> Expr {
    let rest = binary(one(), Operator::Minus, column(discount));
    binary(column(price), Operator::Multiply, rest)
}

fn fragment(
    columns: Vec<usize>,
    filter: Expr,
    work: FragmentWork,
    output: Vec<DataType>,
) -> Fragment {
    let field = |(at, data_type)| Field::new(format!("c{at}"), data_type, true);
    let fields: Vec<Field> = output.into_iter().enumerate().map(field).collect();
    Fragment {
        columns,
        filter: Some(filter),
        work,
        output: Arc::new(Schema::new(fields)),
    }
}

fn q1() -> Fragment {
    let columns = vec![
        lineitem::QUANTITY,
        lineitem::EXTENDEDPRICE,
        lineitem::DISCOUNT,
        lineitem::TAX,
        lineitem::RETURNFLAG,
        lineitem::LINESTATUS,
        lineitem::SHIPDATE,
    ];
    let taxed = binary(one(), Operator::Plus, column(3));
    let charge = binary(discounted(1, 2), Operator::Multiply, taxed);
    let aggregates = vec![
        aggregate(Function::Sum, Some(column(0))),
        aggregate(Function::Sum, Some(column(1))),
        aggregate(Function::Sum, Some(discounted(1, 2))),
        aggregate(Function::Sum, Some(charge)),
        aggregate(Function::Avg, Some(column(0))),
        aggregate(Function::Avg, Some(column(1))),
        aggregate(Function::Avg, Some(column(2))),
        aggregate(Function::Count, None),
    ];
    let decimal = DataType::Decimal128;
    let mut output = vec![DataType::Utf8, DataType::Utf8];
    output.extend([
        decimal(25, 2),
        decimal(25, 2),
        decimal(38, 4),
        decimal(38, 6),
    ]);
    for _ in 0..3 {
        output.extend([DataType::UInt64, decimal(38, 2)]);
    }
    output.push(DataType::Int64);
    // 1998-09-02
    let filter = binary(column(6), Operator::LtEq, date(10_471));
    let work = FragmentWork::Aggregate {
        by: vec![column(4), column(5)],
        aggregates,
    };
    fragment(columns, filter, work, output)
}

fn q6() -> Fragment {
    let columns = vec![
        lineitem::QUANTITY,
        lineitem::EXTENDEDPRICE,
        lineitem::DISCOUNT,
        lineitem::SHIPDATE,
    ];
    // 1994
    let filter = all_of(vec![
        binary(column(3), Operator::GtEq, date(8_766)),
        binary(column(3), Operator::Lt, date(9_131)),
        binary(column(2), Operator::GtEq, cents(5)),
        binary(column(2), Operator::LtEq, cents(7)),
        binary(column(0), Operator::Lt, cents(2_400)),
    ]);
    let product = binary(column(1), Operator::Multiply, column(2));
    let aggregates = vec![aggregate(Function::Sum, Some(product))];
    let work = FragmentWork::Aggregate {
        by: vec![],
        aggregates,
    };
    fragment(columns, filter, work, vec![DataType::Decimal128(38, 4)])
}

fn q15() -> Fragment {
    let columns = vec![
        lineitem::SUPPKEY,
        lineitem::EXTENDEDPRICE,
        lineitem::DISCOUNT,
        lineitem::SHIPDATE,
    ];
    // The first quarter of 1996.
    let filter = all_of(vec![
        binary(column(3), Operator::GtEq, date(9_496)),
        binary(column(3), Operator::Lt, date(9_587)),
    ]);
    let aggregates = vec![aggregate(Function::Sum, Some(discounted(1, 2)))];
    let work = FragmentWork::Aggregate {
        by: vec![column(0)],
        aggregates,
    };
    fragment(
        columns,
        filter,
        work,
        vec![DataType::Int64, DataType::Decimal128(38, 4)],
    )
}

/// Checks a result at scale factor 1.
pub(crate) fn check(name: &str, scale: f64, batches: &[RecordBatch]) {
    let sum = |column: usize| -> i128 {
        let sum = |batch: &RecordBatch| -> i128 {
            batch
                .column(column)
                .as_primitive::<Decimal128Type>()
                .iter()
                .flatten()
                .sum()
        };
        batches.iter().map(sum).sum()
    };
    if scale != 1.0 {
        return;
    }
    match name {
        "Q6" => assert_eq!(sum(0), 1_231_410_782_283),
        "Q1" => {
            let count = |batch: &RecordBatch| -> i64 {
                batch
                    .column(12)
                    .as_primitive::<Int64Type>()
                    .iter()
                    .flatten()
                    .sum()
            };
            // The sums of the four groups in the benchmark's answers.
            assert_eq!(
                batches.iter().map(count).sum::<i64>(),
                1_478_493 + 38_854 + 2_920_374 + 1_478_870
            );
            let quantity = 37_734_107 + 991_417 + 74_476_040 + 37_719_753;
            assert_eq!(sum(2), quantity * 100);
            let prices = [
                537_582_571_348_700,
                14_130_821_680_541,
                1_061_182_303_076_056,
                537_412_926_846_040,
            ];
            assert_eq!(sum(4), prices.iter().sum());
        }
        _ => assert!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() >= 10_000),
    }
}
