//! AND, OR and NOT in three-valued logic, and tests for null.

use crate::vector::{Vector, VectorValues};

/// Returns AND (`deciding` false) or OR (`deciding` true) of two vectors, of which none is constant: a side
/// that has the deciding value decides.
pub(crate) fn junction(l: &Vector, r: &Vector, deciding: bool) -> Vector {
    let (a, b) = (l.bools(), r.bools());
    if l.valid.is_none() && r.valid.is_none() {
        let one = |(a, b): (&u8, &u8)| if deciding { a | b } else { a & b };
        return Vector::all_valid(VectorValues::Bool(a.iter().zip(b).map(one).collect()));
    }
    let decided = u8::from(deciding);
    let mut values = Vec::with_capacity(a.len());
    let mut valid = Vec::with_capacity(a.len());
    for row in 0..a.len() {
        let (av, bv) = (l.is_valid(row), r.is_valid(row));
        let decides = (av && a[row] == decided) || (bv && b[row] == decided);
        values.push(if decides { decided } else { decided ^ 1 });
        valid.push(u8::from(decides || (av && bv)));
    }
    Vector::new(VectorValues::Bool(values), Some(valid))
}

/// Returns the opposite truth values.
pub(crate) fn not(of: &Vector) -> Vector {
    let values = of.bools().iter().map(|value| value ^ 1).collect();
    Vector {
        values: VectorValues::Bool(values),
        valid: of.valid.clone(),
        constant: of.constant,
    }
}

/// Finds for each value whether it is null (`is_null`), or if it is not.
pub(crate) fn nulls(of: &Vector, rows: usize, is_null: bool) -> Vector {
    let values = match &of.valid {
        None => vec![u8::from(!is_null); if of.constant { 1 } else { rows }],
        Some(valid) => valid
            .iter()
            .map(|valid| valid ^ u8::from(is_null))
            .collect(),
    };
    Vector {
        values: VectorValues::Bool(values),
        valid: None,
        constant: of.constant,
    }
}
