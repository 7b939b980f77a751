//! The paper's three queries over TPC-H's `lineitem` as fragments (paper 4, section 4.5.1).
//!
//! | query | condition |
//! |---|---|
//! | Q1 | shipped until 120 days before 1998-12-01 |
//! | Q6 | shipped in 1994, a discount from 0.05 to 0.07, fewer than 24 pieces |
//! | Q15 | shipped from April to June 1993 (its sub-query) |

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use operators::{Aggregate, Expr, Fragment, FragmentWork, Function, Operator, Scalar, Value};
use serde::{Deserialize, Serialize};

/// Places of columns, and behind the last one that of the record.
pub(super) const ORDERKEY: usize = 0;
pub(super) const SUPPKEY: usize = 2;
pub(super) const QUANTITY: usize = 4;
pub(super) const EXTENDEDPRICE: usize = 5;
pub(super) const DISCOUNT: usize = 6;
pub(super) const TAX: usize = 7;
pub(super) const RETURNFLAG: usize = 8;
pub(super) const LINESTATUS: usize = 9;
pub(super) const SHIPDATE: usize = 10;
pub(super) const RECORD: usize = 16;

/// Days since 1970-01-01. The last one of Q1, and the first ones in and behind the others' times.
pub(super) const Q1_LAST: i32 = 10_441;
pub(super) const Q6_TIME: [i32; 2] = [8_766, 9_131];
pub(super) const Q15_TIME: [i32; 2] = [8_491, 8_582];
/// Hundredths.
pub(super) const Q6_DISCOUNT: [i128; 2] = [5, 7];
pub(super) const Q6_QUANTITY: i128 = 2_400;

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TpchQuery {
    /// The pricing summary.
    Q1,
    /// The forecast of revenue.
    Q6,
    /// The suppliers' revenue, of which the query takes the greatest.
    Q15,
}

impl TpchQuery {
    /// All of them.
    pub const ALL: [TpchQuery; 3] = [TpchQuery::Q1, TpchQuery::Q6, TpchQuery::Q15];

    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TpchQuery::Q1 => "Q1",
            TpchQuery::Q6 => "Q6",
            TpchQuery::Q15 => "Q15",
        }
    }
}

/// The part of a query that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryVariant {
    /// The condition alone, as in the paper: over records, of which the matching ones are returned.
    Where,
    /// Condition and partial aggregates, over columns.
    Full,
}

impl QueryVariant {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueryVariant::Where => "where",
            QueryVariant::Full => "full",
        }
    }
}

/// Returns the fragment of a query.
pub(super) fn fragment(query: TpchQuery, variant: QueryVariant) -> Fragment {
    match (variant, query) {
        (QueryVariant::Where, _) => records(condition_columns(query), Some(condition(query))),
        (_, TpchQuery::Q1) => q1(),
        (_, TpchQuery::Q6) => q6(),
        (_, TpchQuery::Q15) => q15(),
    }
}

/// Returns a fragment that counts rows, of which a single column is read: as little work as
/// possible.
pub(super) fn counting() -> Fragment {
    let aggregates = vec![aggregate(Function::Count, None)];
    let work = FragmentWork::Aggregate {
        by: vec![],
        aggregates,
    };
    made(vec![SHIPDATE], None, work, vec![DataType::Int64])
}

/// Returns a fragment that works on about half of the rows.
pub(super) fn working(variant: QueryVariant) -> Fragment {
    let until = literal(DataType::Date32, 9_298);
    match variant {
        QueryVariant::Where => {
            let filter = binary(column(0), Operator::Lt, until);
            records(vec![SHIPDATE], Some(filter))
        }
        QueryVariant::Full => Fragment {
            filter: Some(binary(column(3), Operator::Lt, until)),
            ..q15()
        },
    }
}

/// Returns a fragment that returns all rows: their records, or two of their columns.
pub(super) fn everything(variant: QueryVariant) -> Fragment {
    match variant {
        QueryVariant::Where => records(vec![], None),
        QueryVariant::Full => {
            let work = FragmentWork::Rows {
                project: vec![column(0), column(1)],
                order: vec![],
                limit: None,
            };
            let output = vec![DataType::Int64, DataType::Decimal128(15, 2)];
            made(vec![ORDERKEY, EXTENDEDPRICE], None, work, output)
        }
    }
}

fn records(mut columns: Vec<usize>, filter: Option<Expr>) -> Fragment {
    columns.push(RECORD);
    let work = FragmentWork::Rows {
        project: vec![column(columns.len() - 1)],
        order: vec![],
        limit: None,
    };
    made(columns, filter, work, vec![DataType::Binary])
}

/// Returns the columns of a query's condition, the date of shipping first.
fn condition_columns(query: TpchQuery) -> Vec<usize> {
    match query {
        TpchQuery::Q1 | TpchQuery::Q15 => vec![SHIPDATE],
        TpchQuery::Q6 => vec![SHIPDATE, DISCOUNT, QUANTITY],
    }
}

/// Returns a query's condition over these columns.
fn condition(query: TpchQuery) -> Expr {
    match query {
        TpchQuery::Q1 => binary(column(0), Operator::LtEq, date(Q1_LAST)),
        TpchQuery::Q6 => q6_condition(0, 1, 2),
        TpchQuery::Q15 => between(0, Q15_TIME),
    }
}

fn between(shipped: usize, [from, to]: [i32; 2]) -> Expr {
    all_of(vec![
        binary(column(shipped), Operator::GtEq, date(from)),
        binary(column(shipped), Operator::Lt, date(to)),
    ])
}

fn q6_condition(shipped: usize, discount: usize, quantity: usize) -> Expr {
    let [least, most] = Q6_DISCOUNT;
    all_of(vec![
        between(shipped, Q6_TIME),
        binary(column(discount), Operator::GtEq, hundredths(least)),
        binary(column(discount), Operator::LtEq, hundredths(most)),
        binary(column(quantity), Operator::Lt, hundredths(Q6_QUANTITY)),
    ])
}

fn q1() -> Fragment {
    let columns = vec![
        QUANTITY,
        EXTENDEDPRICE,
        DISCOUNT,
        TAX,
        RETURNFLAG,
        LINESTATUS,
        SHIPDATE,
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
    output.extend([decimal(25, 2), decimal(25, 2)]);
    output.extend([decimal(38, 4), decimal(38, 6)]);
    for _ in 0..3 {
        output.extend([DataType::UInt64, decimal(38, 2)]);
    }
    output.push(DataType::Int64);
    let filter = binary(column(6), Operator::LtEq, date(Q1_LAST));
    let work = FragmentWork::Aggregate {
        by: vec![column(4), column(5)],
        aggregates,
    };
    made(columns, Some(filter), work, output)
}

fn q6() -> Fragment {
    let columns = vec![QUANTITY, EXTENDEDPRICE, DISCOUNT, SHIPDATE];
    let product = binary(column(1), Operator::Multiply, column(2));
    let work = FragmentWork::Aggregate {
        by: vec![],
        aggregates: vec![aggregate(Function::Sum, Some(product))],
    };
    let output = vec![DataType::Decimal128(38, 4)];
    made(columns, Some(q6_condition(3, 2, 0)), work, output)
}

fn q15() -> Fragment {
    let columns = vec![SUPPKEY, EXTENDEDPRICE, DISCOUNT, SHIPDATE];
    let work = FragmentWork::Aggregate {
        by: vec![column(0)],
        aggregates: vec![aggregate(Function::Sum, Some(discounted(1, 2)))],
    };
    let output = vec![DataType::Int64, DataType::Decimal128(38, 4)];
    made(columns, Some(between(3, Q15_TIME)), work, output)
}

fn made(
    columns: Vec<usize>,
    filter: Option<Expr>,
    work: FragmentWork,
    output: Vec<DataType>,
) -> Fragment {
    let field = |(at, data_type)| Field::new(format!("c{at}"), data_type, true);
    let fields: Vec<Field> = output.into_iter().enumerate().map(field).collect();
    Fragment {
        columns,
        filter,
        work,
        output: Arc::new(Schema::new(fields)),
    }
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

fn date(days: i32) -> Expr {
    literal(DataType::Date32, days.into())
}

fn hundredths(value: i128) -> Expr {
    literal(DataType::Decimal128(15, 2), value)
}

/// Returns the literal one, in the form that a planner gives it between decimals.
fn one() -> Expr {
    literal(DataType::Decimal128(20, 0), 1)
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::Binary(Box::new(left), operator, Box::new(right))
}

fn all_of(conditions: Vec<Expr>) -> Expr {
    let both = |left, right| binary(left, Operator::And, right);
    conditions.into_iter().reduce(both).expect("a condition")
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
