//! Interval analysis: the interval in which the values of each node lie over a chunk, which follows from
//! its columns' bounds.

use arrow_schema::DataType;

use super::{ExprOp, ExprProgram};
use crate::compute::value_interval::{ValueInterval, of_arithmetic, of_cast};
use crate::scalar::Value;
use crate::types::{self, Class};

/// Returns the intervals of all nodes' values if the columns' values lie between these bounds.
pub(crate) fn intervals(program: &ExprProgram, columns: &[(i128, i128)]) -> Vec<ValueInterval> {
    let mut known: Vec<ValueInterval> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let interval = if types::class(&node.data_type) == Some(Class::Int) {
            of(program, &node.op, &node.data_type, columns, &known)
        } else {
            ValueInterval {
                min: 0,
                max: 0,
                narrow: true,
            }
        };
        known.push(interval);
    }
    known
}

fn of(
    program: &ExprProgram,
    op: &ExprOp,
    data_type: &DataType,
    columns: &[(i128, i128)],
    known: &[ValueInterval],
) -> ValueInterval {
    let (least, greatest) = types::limits(data_type).expect("of class Int");
    let anything = ValueInterval::between(least, greatest);
    match op {
        ExprOp::Column(column) => {
            let (min, max) = columns[*column];
            ValueInterval::between(min.max(least), max.min(greatest).max(least))
        }
        ExprOp::Literal(scalar, _) => match scalar.value {
            Value::Int(value) => ValueInterval::between(value, value),
            _ => ValueInterval::between(0, 0),
        },
        ExprOp::Arithmetic(operator, left, right) => {
            let types = (program.data_type(*left), program.data_type(*right));
            let (left, right) = (known[*left], known[*right]);
            of_arithmetic(*operator, left, right, types, data_type).unwrap_or(anything)
        }
        ExprOp::Negative(of) => known[*of].negated((least, greatest)).unwrap_or(anything),
        ExprOp::Case(when, otherwise) => {
            let values = when.iter().map(|&(_, value)| value).chain(*otherwise);
            values
                .map(|value| known[value])
                .reduce(ValueInterval::union)
                .unwrap_or(anything)
        }
        ExprOp::Cast(of) => {
            of_cast(program.data_type(*of), data_type, known[*of]).unwrap_or(anything)
        }
        // The years of the calendar, and 0 for days that are outside of it.
        ExprOp::Year(_) => ValueInterval::between(-262_144, 262_143),
        _ => anything,
    }
}
