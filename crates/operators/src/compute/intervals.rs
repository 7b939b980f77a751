//! The interval in which the values of each node lie over a chunk, which follows from its columns'
//! bounds.
//!
//! Values that provably fit into 64 bits are computed in 64 bits, and operations that provably
//! cannot overflow are not checked. Everything else is computed in 128 bits, with checks where
//! there may be errors.

use arrow_schema::DataType;

use crate::expr::Operator;
use crate::program::{Op, Program};
use crate::scalar::Value;
use crate::types::{self, Class};

/// What is known of a node's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// The least possible value.
    pub(crate) min: i128,
    /// The greatest possible value.
    pub(crate) max: i128,
    /// `true` if its values, and all intermediate results, fit into 64 bits.
    pub(crate) narrow: bool,
}

impl Facts {
    fn between(min: i128, max: i128) -> Facts {
        let narrow = fits(min, max);
        Facts { min, max, narrow }
    }

    /// Returns the greatest absolute value.
    pub(crate) fn magnitude(&self) -> u128 {
        self.min.unsigned_abs().max(self.max.unsigned_abs())
    }
}

fn fits(min: i128, max: i128) -> bool {
    i128::from(i64::MIN) <= min && max <= i128::from(i64::MAX)
}

/// Returns what is known of all nodes' values if the columns' values lie between these bounds.
pub(crate) fn facts(program: &Program, columns: &[(i128, i128)]) -> Vec<Facts> {
    let mut known: Vec<Facts> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let facts = if types::class(&node.data_type) == Some(Class::Int) {
            of(program, &node.op, &node.data_type, columns, &known)
        } else {
            Facts {
                min: 0,
                max: 0,
                narrow: true,
            }
        };
        known.push(facts);
    }
    known
}

fn of(
    program: &Program,
    op: &Op,
    data_type: &DataType,
    columns: &[(i128, i128)],
    known: &[Facts],
) -> Facts {
    let (least, greatest) = types::limits(data_type).expect("of class Int");
    let anything = Facts::between(least, greatest);
    match op {
        Op::Column(column) => {
            let (min, max) = columns[*column];
            Facts::between(min.max(least), max.min(greatest).max(least))
        }
        Op::Literal(scalar, _) => match scalar.value {
            Value::Int(value) => Facts::between(value, value),
            _ => Facts::between(0, 0),
        },
        Op::Arithmetic(operator, left, right) => {
            let types = (program.data_type(*left), program.data_type(*right));
            arithmetic(*operator, known[*left], known[*right], types, data_type).unwrap_or(Facts {
                narrow: anything.narrow,
                ..anything
            })
        }
        Op::Negative(of) => match (known[*of].max.checked_neg(), known[*of].min.checked_neg()) {
            (Some(min), Some(max)) if least <= min && max <= greatest => Facts {
                narrow: known[*of].narrow && fits(min, max),
                min,
                max,
            },
            _ => anything,
        },
        Op::Case(when, otherwise) => {
            let values = when.iter().map(|&(_, value)| value).chain(*otherwise);
            values
                .map(|value| known[value])
                .reduce(either)
                .unwrap_or(anything)
        }
        Op::Cast(of) => cast(program.data_type(*of), data_type, known[*of]).unwrap_or(anything),
        // The years of the calendar, and 0 for days that are outside of it.
        Op::Year(_) => Facts::between(-262_144, 262_143),
        _ => anything,
    }
}

fn either(a: Facts, b: Facts) -> Facts {
    Facts {
        min: a.min.min(b.min),
        max: a.max.max(b.max),
        narrow: a.narrow && b.narrow,
    }
}

/// Returns the factors by which the operands are multiplied before they are added, subtracted, or
/// divided.
pub(crate) fn scaling(
    operator: Operator,
    (left, right): (&DataType, &DataType),
    result: &DataType,
) -> (i128, i128) {
    let ten = |power: i16| types::power_of_ten(power).expect("checked with the types");
    match (left, right, result) {
        (
            &DataType::Decimal128(_, s1),
            &DataType::Decimal128(_, s2),
            &DataType::Decimal128(_, scale),
        ) => {
            let (s1, s2, scale) = (i16::from(s1), i16::from(s2), i16::from(scale));
            match operator {
                Operator::Multiply => (1, 1),
                Operator::Divide => (ten(scale - s1 + s2), 1),
                _ => (ten(scale - s1), ten(scale - s2)),
            }
        }
        _ => (1, 1),
    }
}

/// Returns the facts of a result; `None` if it may leave the type, or an intermediate result 128
/// bits.
fn arithmetic(
    operator: Operator,
    left: Facts,
    right: Facts,
    types: (&DataType, &DataType),
    result: &DataType,
) -> Option<Facts> {
    let (l, r) = scaling(operator, types, result);
    let (a, b) = (times(left, l)?, times(right, r)?);
    let (min, max) = match operator {
        Operator::Plus => (a.0.checked_add(b.0)?, a.1.checked_add(b.1)?),
        Operator::Minus => (a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?),
        Operator::Multiply => {
            let corners = [
                a.0.checked_mul(b.0)?,
                a.0.checked_mul(b.1)?,
                a.1.checked_mul(b.0)?,
                a.1.checked_mul(b.1)?,
            ];
            (*corners.iter().min()?, *corners.iter().max()?)
        }
        // The divisor is 1 or more in magnitude; zero is an error of its own. The sign may change.
        Operator::Divide => {
            let most = a.0.checked_abs()?.max(a.1.checked_abs()?);
            (-most, most)
        }
        Operator::Modulo => {
            let most = b.0.checked_abs()?.max(b.1.checked_abs()?);
            let most = most.min(a.0.checked_abs()?.max(a.1.checked_abs()?));
            (-most, most)
        }
        _ => return None,
    };
    let (least, greatest) = types::limits(result)?;
    // A division's interval, in the type of the dividend, is wider than its values.
    let divides = matches!(operator, Operator::Divide | Operator::Modulo);
    if !divides && (min < least || greatest < max) {
        return None;
    }
    if divides && !matches!(result, DataType::Decimal128(..)) {
        // The least value divided by -1 leaves the type, which is found during the division.
        let (min, max) = (min.max(least), max.min(greatest));
        return Some(Facts {
            min,
            max,
            narrow: left.narrow && right.narrow && fits(min, max),
        });
    }
    let narrow = left.narrow
        && right.narrow
        && fits(a.0, a.1)
        && fits(b.0, b.1)
        && fits(l, r)
        && fits(r, l)
        && fits(min, max);
    Some(Facts { min, max, narrow })
}

fn times(facts: Facts, by: i128) -> Option<(i128, i128)> {
    Some((facts.min.checked_mul(by)?, facts.max.checked_mul(by)?))
}

fn cast(from: &DataType, to: &DataType, facts: Facts) -> Option<Facts> {
    if types::class(from) != Some(Class::Int) {
        return None;
    }
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) => i16::from(*scale),
        _ => 0,
    };
    let by = scale(to) - scale(from);
    let (min, max) = if by >= 0 {
        times(facts, types::power_of_ten(by)?)?
    } else {
        let by = types::power_of_ten(-by)?;
        // Rounding may add one.
        (facts.min / by - 1, facts.max / by + 1)
    };
    let (least, greatest) = types::limits(to)?;
    let (min, max) = (min.max(least), max.min(greatest));
    if min > max {
        return None;
    }
    Some(Facts {
        narrow: facts.narrow && fits(min, max),
        min,
        max,
    })
}
