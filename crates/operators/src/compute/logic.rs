//! AND, OR, NOT and CASE in three-valued logic.
//!
//! Invariant: a node that may have errors is evaluated only for rows for which it matters. The right
//! side of an AND does not matter where the left one is false, that of an OR where it is true, and a
//! branch of a CASE where it is not taken. A node without errors is evaluated for all rows where that
//! is faster.

use crate::compute::Frame;
use crate::program::NodeId;
use crate::site::TaskError;
use crate::types::Class;
use crate::vector::{Bytes, Values, Vector};
use arrow_array::BinaryArray;

/// Evaluates AND (`deciding` false) or OR (`deciding` true): a side that has the deciding value
/// decides.
pub(crate) fn junction(
    frame: &mut Frame<'_, '_>,
    left: NodeId,
    right: NodeId,
    deciding: bool,
) -> Result<Vector, TaskError> {
    let rows = frame.len();
    let l = frame.evaluate(left)?;
    let decided = u8::from(deciding);
    let open = |row: usize| !(l.bools()[row] == decided && l.is_valid(row));
    if l.constant {
        return if open(0) {
            let r = frame.evaluate(right)?;
            Ok(both(&l.expanded(rows), &r.expanded(rows), deciding))
        } else {
            Ok((*l).clone())
        };
    }
    let fallible = frame.context().program.nodes[right].fallible;
    let places: Vec<u32> = (0..rows as u32).filter(|&row| open(row as usize)).collect();
    if places.is_empty() {
        return Ok((*l).clone());
    }
    if places.len() == rows || (!fallible && places.len() * 8 > rows) {
        let r = frame.evaluate(right)?;
        return Ok(both(&l, &r.expanded(rows), deciding));
    }
    let r = frame.evaluate_at(right, &places)?.expanded(places.len());
    let some = both(&l.taken(&places), &r, deciding);
    let mut values = vec![decided; rows];
    let mut valid = some.valid.is_some().then(|| vec![1; rows]);
    for (at, &row) in places.iter().enumerate() {
        values[row as usize] = some.bools()[at];
        if let (Some(valid), Some(some)) = (&mut valid, &some.valid) {
            valid[row as usize] = some[at];
        }
    }
    Ok(Vector::new(Values::Bool(values), valid))
}

fn both(l: &Vector, r: &Vector, deciding: bool) -> Vector {
    let (a, b) = (l.bools(), r.bools());
    if l.valid.is_none() && r.valid.is_none() {
        let one = |(a, b): (&u8, &u8)| if deciding { a | b } else { a & b };
        return Vector::all_valid(Values::Bool(a.iter().zip(b).map(one).collect()));
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
    Vector::new(Values::Bool(values), Some(valid))
}

/// Returns the opposite truth values.
pub(crate) fn not(of: &Vector) -> Vector {
    let values = of.bools().iter().map(|value| value ^ 1).collect();
    Vector {
        values: Values::Bool(values),
        valid: of.valid.clone(),
        constant: of.constant,
    }
}

/// Finds for each value whether it is null (`wanted`), or if it is not.
pub(crate) fn nulls(of: &Vector, rows: usize, wanted: bool) -> Vector {
    let values = match &of.valid {
        None => vec![u8::from(!wanted); if of.constant { 1 } else { rows }],
        Some(valid) => valid.iter().map(|valid| valid ^ u8::from(wanted)).collect(),
    };
    Vector {
        values: Values::Bool(values),
        valid: None,
        constant: of.constant,
    }
}

/// Returns the value of the first branch whose condition is true.
pub(crate) fn case(
    frame: &mut Frame<'_, '_>,
    id: NodeId,
    when: &[(NodeId, NodeId)],
    otherwise: Option<NodeId>,
) -> Result<Vector, TaskError> {
    let rows = frame.len();
    let context = frame.context();
    let mut merged = Merged::new(context.program.class(id), context.facts[id].narrow, rows);
    let mut open: Vec<u32> = (0..rows as u32).collect();
    for &(condition, value) in when {
        if open.is_empty() {
            break;
        }
        let holds = frame.evaluate_at(condition, &open)?.is_true(open.len());
        let pick = |wanted: u8| -> Vec<u32> {
            open.iter()
                .zip(&holds)
                .filter(|&(_, &h)| h == wanted)
                .map(|(&at, _)| at)
                .collect()
        };
        let (taken, left) = (pick(1), pick(0));
        if !taken.is_empty() {
            merged.put(&*frame.evaluate_at(value, &taken)?, &taken);
        }
        open = left;
    }
    if let Some(value) = otherwise
        && !open.is_empty()
    {
        merged.put(&*frame.evaluate_at(value, &open)?, &open);
    }
    merged.finish()
}

/// Values that come from several branches. Rows without a value from any branch are null.
struct Merged {
    values: Values,
    valid: Vec<u8>,
    /// The texts of the branches, one after the other.
    texts: Vec<BinaryArray>,
    first: Vec<u32>,
}

impl Merged {
    fn new(class: Class, narrow: bool, rows: usize) -> Merged {
        let values = match class {
            Class::Int if !narrow => Values::I128(vec![0; rows]),
            class => Values::nothing(class, rows),
        };
        Merged {
            values,
            valid: vec![0; rows],
            texts: Vec::new(),
            first: vec![0; rows],
        }
    }

    fn put(&mut self, from: &Vector, places: &[u32]) {
        fn put<T: Copy>(into: &mut [T], from: &[T], places: &[u32]) {
            places
                .iter()
                .zip(from)
                .for_each(|(&at, &value)| into[at as usize] = value);
        }
        let from = from.expanded(places.len());
        match (&mut self.values, &from.values) {
            (Values::Bool(into), Values::Bool(from)) => put(into, from, places),
            (Values::I64(into), Values::I64(from)) => put(into, from, places),
            (Values::I128(into), from) => put(into, &from.wide(), places),
            (Values::F64(into), Values::F64(from)) => put(into, from, places),
            (Values::Bytes(into), Values::Bytes(from)) => {
                put(&mut into.index, &from.index, places);
                places
                    .iter()
                    .for_each(|&at| self.first[at as usize] = self.texts.len() as u32);
                self.texts.push(from.data.clone());
            }
            (into, from) => unreachable!("branches of one type: {into:?}, {from:?}"),
        }
        for (at, &row) in places.iter().enumerate() {
            self.valid[row as usize] = u8::from(from.is_valid(at));
        }
    }

    fn finish(self) -> Result<Vector, TaskError> {
        let Merged {
            mut values,
            valid,
            texts,
            first,
        } = self;
        if let Values::Bytes(bytes) = &mut values
            && !texts.is_empty()
        {
            let text = |row: usize| {
                let at = bytes.index[row] as usize;
                crate::vector::text(&texts[first[row] as usize], at)
            };
            let rows = bytes.index.len();
            *bytes = Bytes::new((0..rows).map(text))?;
        }
        let valid = valid.contains(&0).then_some(valid);
        Ok(Vector::new(values, valid))
    }
}
