//! Random values and expressions.

use arrow_schema::DataType;
use fastrand::Rng;
use kumiki_operators::{Expr, Operator, Scalar, Value};

/// Returns the types of the columns.
pub(crate) fn columns() -> Vec<DataType> {
    vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt16,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Date32,
        DataType::Decimal128(10, 2),
        DataType::Decimal128(38, 4),
        DataType::Utf8,
        DataType::Int64,
        DataType::Decimal128(10, 2),
        DataType::Utf8,
    ]
}

/// How large the values of a column are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Size {
    Small,
    /// Small and extreme values.
    Any,
    /// All values are large: beyond 64 bits, if the type has such values.
    Large,
    /// All values are as far below zero.
    Deep,
}

impl Size {
    /// Chooses one of them.
    pub(crate) fn any(random: &mut Rng) -> Size {
        match random.u8(0..8) {
            0 => Size::Large,
            1 => Size::Deep,
            2..5 => Size::Any,
            _ => Size::Small,
        }
    }
}

/// Returns a value of a type, or null.
pub(crate) fn value(random: &mut Rng, data_type: &DataType, size: Size) -> Value {
    if random.u8(0..8) == 0 {
        return Value::Null;
    }
    match data_type {
        DataType::Boolean => Value::Bool(random.bool()),
        // Sums of these are exact in any order.
        DataType::Float32 | DataType::Float64 => match random.u8(0..20) {
            0 if size == Size::Any => Value::Float(f64::NAN),
            1 if size == Size::Any => Value::Float(f64::INFINITY),
            2 => Value::Float(-0.0),
            _ => Value::Float(f64::from(random.i32(-400..400)) / 4.0),
        },
        DataType::Utf8 => Value::Text(text(random)),
        other => Value::Int(integer(random, other, size)),
    }
}

fn integer(random: &mut Rng, data_type: &DataType, size: Size) -> i128 {
    let (mut min, mut max) = super::limits(data_type);
    if let DataType::Decimal128(precision, _) = data_type {
        max = 10i128.pow(u32::from(*precision)) - 1;
        min = -max;
    }
    let near = random.i128(0..=1_000);
    let found = match random.u8(0..10) {
        _ if size == Size::Large => max.saturating_sub(near).max(max / 2),
        _ if size == Size::Deep => min.saturating_add(near).min(min / 2),
        0 if size == Size::Any => min,
        1 if size == Size::Any => max,
        2 if size == Size::Any => random.i128(min..=max),
        3 => random.i128(-3..=3),
        _ => random.i128(-1_000..=1_000),
    };
    found.clamp(min, max)
}

fn text(random: &mut Rng) -> String {
    let syllables = ["", "a", "b", "é", "ab", "%", "_", "\\", "ba", "\0", "zz"];
    (0..random.usize(0..3))
        .map(|_| syllables[random.usize(0..syllables.len())])
        .collect()
}

fn scalar(random: &mut Rng, data_type: &DataType) -> Scalar {
    Scalar {
        data_type: data_type.clone(),
        value: value(random, data_type, Size::Any),
    }
}

fn pick<T: Clone>(random: &mut Rng, from: &[T]) -> T {
    from[random.usize(0..from.len())].clone()
}

/// Returns an expression of a type.
pub(crate) fn expr(random: &mut Rng, wanted: &DataType, depth: u32) -> Expr {
    if depth == 0 || random.u8(0..6) == 0 {
        return leaf(random, wanted);
    }
    let depth = depth - 1;
    if random.u8(0..8) == 0 {
        let when = (0..random.usize(1..3))
            .map(|_| {
                (
                    expr(random, &DataType::Boolean, depth),
                    expr(random, wanted, depth),
                )
            })
            .collect();
        let otherwise = random.bool().then(|| Box::new(expr(random, wanted, depth)));
        return Expr::Case { when, otherwise };
    }
    match wanted {
        DataType::Boolean => condition(random, depth),
        DataType::Utf8 if random.bool() => Expr::Substring(
            Box::new(expr(random, wanted, depth)),
            random.i64(-2..4),
            random.i64(0..4),
        ),
        DataType::Int32 if random.u8(0..4) == 0 => {
            Expr::Year(Box::new(expr(random, &DataType::Date32, depth)))
        }
        DataType::Utf8 | DataType::Date32 => leaf(random, wanted),
        number => self::number(random, number, depth),
    }
}

fn leaf(random: &mut Rng, wanted: &DataType) -> Expr {
    let columns = columns();
    let fitting: Vec<usize> = (0..columns.len())
        .filter(|&c| columns[c] == *wanted)
        .collect();
    if fitting.is_empty() || random.u8(0..4) == 0 {
        return Expr::Literal(scalar(random, wanted));
    }
    Expr::Column(pick(random, &fitting))
}

fn condition(random: &mut Rng, depth: u32) -> Expr {
    let boolean = DataType::Boolean;
    let of = pick(random, &columns());
    match random.u8(0..10) {
        0..3 => {
            let operator = pick(random, &[Operator::And, Operator::Or]);
            let (left, right) = (expr(random, &boolean, depth), expr(random, &boolean, depth));
            Expr::Binary(Box::new(left), operator, Box::new(right))
        }
        3 => Expr::Not(Box::new(expr(random, &boolean, depth))),
        4 => Expr::IsNull(Box::new(expr(random, &of, depth))),
        5 => Expr::IsNotNull(Box::new(expr(random, &of, depth))),
        6 => Expr::Like {
            text: Box::new(expr(random, &DataType::Utf8, depth)),
            pattern: text(random) + pick(random, &["", "%", "_", "a%"]),
            negated: random.bool(),
        },
        7 => Expr::InList {
            value: Box::new(expr(random, &of, depth)),
            list: (0..random.usize(0..12))
                .map(|_| scalar(random, &of))
                .collect(),
            negated: random.bool(),
        },
        _ => comparison(random, &of, depth),
    }
}

fn comparison(random: &mut Rng, of: &DataType, depth: u32) -> Expr {
    let operators = [
        Operator::Eq,
        Operator::NotEq,
        Operator::Lt,
        Operator::LtEq,
        Operator::Gt,
        Operator::GtEq,
    ];
    let (left, right) = match random.u8(0..3) {
        0 => (leaf(random, of), Expr::Literal(scalar(random, of))),
        1 => (Expr::Literal(scalar(random, of)), leaf(random, of)),
        _ => (expr(random, of, depth), expr(random, of, depth)),
    };
    Expr::Binary(Box::new(left), pick(random, &operators), Box::new(right))
}

fn number(random: &mut Rng, wanted: &DataType, depth: u32) -> Expr {
    let operators = [
        Operator::Plus,
        Operator::Minus,
        Operator::Multiply,
        Operator::Divide,
        Operator::Modulo,
    ];
    match (random.u8(0..6), wanted) {
        (0, DataType::UInt16 | DataType::UInt64) => leaf(random, wanted),
        (0, _) => Expr::Negative(Box::new(expr(random, wanted, depth))),
        (1, _) => {
            let types = columns();
            let castable: Vec<DataType> = types
                .into_iter()
                .filter(|from| {
                    let cast = Expr::Cast(Box::new(Expr::Column(0)), wanted.clone());
                    cast.data_type(std::slice::from_ref(from)).is_ok()
                })
                .collect();
            let from = pick(random, &castable);
            Expr::Cast(Box::new(expr(random, &from, depth)), wanted.clone())
        }
        (_, DataType::Decimal128(..)) => {
            // The result has a type of its own, from which it is cast to the wanted one.
            let (left, right) = (decimal(random, depth), decimal(random, depth));
            let found = Expr::Binary(Box::new(left), pick(random, &operators), Box::new(right));
            match found.data_type(&columns()) {
                Ok(_) => Expr::Cast(Box::new(found), wanted.clone()),
                Err(_) => leaf(random, wanted),
            }
        }
        _ => {
            let (left, right) = (expr(random, wanted, depth), expr(random, wanted, depth));
            Expr::Binary(Box::new(left), pick(random, &operators), Box::new(right))
        }
    }
}

fn decimal(random: &mut Rng, depth: u32) -> Expr {
    let (left, right) = (DataType::Decimal128(10, 2), DataType::Decimal128(38, 4));
    match random.u8(0..4) {
        0 => expr(random, &right, depth),
        1 if depth > 0 => {
            let (l, r) = (decimal(random, depth - 1), decimal(random, depth - 1));
            let operator = pick(
                random,
                &[Operator::Multiply, Operator::Minus, Operator::Plus],
            );
            let found = Expr::Binary(Box::new(l), operator, Box::new(r));
            if found.data_type(&columns()).is_ok() {
                found
            } else {
                expr(random, &left, depth)
            }
        }
        _ => expr(random, &left, depth),
    }
}
