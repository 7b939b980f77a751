//! Which rows pass.
//!
//! A condition is split into conjuncts. Comparisons of a column of numbers with literals become
//! *tests*, one for each column, which compare values in the width in which they are stored.
//! Conjuncts that bounds decide for a whole chunk are not evaluated at all. The others are evaluated
//! one after the other, as long as there are rows left, and for these alone if they are few.

use pages::Range;

use crate::compute::compare::Comparison;
use crate::evaluate::{EvalContext, EvalFrame};
use crate::expr::{Expr, ExprError};
use crate::operator::Operator;
use crate::program::{ExprId, ExprOp, ExprProgram};
use crate::prune::{BoundsAnalysis, ColumnBounds};
use crate::scalar::Value;
use crate::stored_column::{Integer, RowSelection, StoredColumn, StoredValues, with_integers};
use crate::types::{self, Class};
use pages::task::TaskError;

/// A condition that rows must meet to pass.
#[derive(Debug)]
pub(crate) struct Filter {
    conjuncts: Vec<Conjunct>,
}

#[derive(Clone, Debug)]
enum Conjunct {
    /// A column's value is not null, and lies within these bounds.
    Test {
        column: usize,
        min: i128,
        max: i128,
        nodes: Vec<ExprId>,
    },
    /// The condition of this node is true.
    Condition(ExprId),
}

/// The conjuncts that a filter evaluates for a chunk.
#[derive(Debug)]
pub(crate) enum FilterPlan {
    /// No row passes.
    NoRow,
    /// These conjuncts decide; if there are none, all rows pass.
    Conjuncts(Vec<usize>),
}

/// Which of a vector's rows pass.
#[derive(Debug, PartialEq)]
pub(crate) enum SelectedRows {
    /// All.
    All,
    /// These, by their numbers in the chunk.
    Some(Vec<u32>),
}

/// If fewer than one in so many rows is left, the next conjuncts are evaluated for these rows alone.
const SPARSE: usize = 8;

impl Filter {
    /// Splits a condition into conjuncts.
    ///
    /// # Errors
    /// Returns the errors of [`Expr::data_type`].
    pub(crate) fn new(condition: &Expr, program: &mut ExprProgram) -> Result<Filter, ExprError> {
        let mut parts = Vec::new();
        condition.data_type(&program.columns)?;
        split(condition, &mut parts);
        let (mut tests, mut infallible, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            let node = program.add(part)?;
            match test(program, node) {
                Some(test) => merge(&mut tests, test),
                None if program.nodes[node].fallible => others.push(Conjunct::Condition(node)),
                None => infallible.push(Conjunct::Condition(node)),
            }
        }
        tests.append(&mut infallible);
        tests.append(&mut others);
        Ok(Filter { conjuncts: tests })
    }

    /// Returns what has to be evaluated, given what is known of the columns.
    pub(crate) fn plan(&self, program: &ExprProgram, columns: &[ColumnBounds<'_>]) -> FilterPlan {
        let judge = BoundsAnalysis::new(program, columns);
        let mut open = Vec::new();
        for (at, conjunct) in self.conjuncts.iter().enumerate() {
            let nodes = match conjunct {
                Conjunct::Test { nodes, .. } => nodes.as_slice(),
                Conjunct::Condition(node) => std::slice::from_ref(node),
            };
            let truths = nodes.iter().map(|&node| judge.truth(node));
            let mut always = true;
            for truth in truths {
                if !truth.can_hold {
                    return FilterPlan::NoRow;
                }
                always &= truth.always();
            }
            // Bounds do not say whether there is an error.
            let errs = nodes.iter().any(|&node| program.nodes[node].fallible);
            if !always || errs {
                open.push(at);
            }
        }
        FilterPlan::Conjuncts(open)
    }

    /// Returns the number of operations for a row. A test counts as one, however many comparisons it
    /// merges.
    pub(crate) fn operations(&self, program: &ExprProgram) -> u64 {
        let conditions = self.conjuncts.iter().filter_map(|conjunct| match conjunct {
            Conjunct::Test { .. } => None,
            Conjunct::Condition(node) => Some(*node),
        });
        let conditions: Vec<ExprId> = conditions.collect();
        let tests = self.conjuncts.len() - conditions.len();
        (tests + program.computing(&conditions)) as u64
    }

    /// Estimates the part of rows that pass, from 0 to 1, given what is known of the columns.
    pub(crate) fn selectivity(&self, program: &ExprProgram, columns: &[ColumnBounds<'_>]) -> f64 {
        /// The selectivity of a condition of which nothing is known.
        const UNKNOWN: f64 = 0.3;
        let judge = BoundsAnalysis::new(program, columns);
        let one = |conjunct: &Conjunct| match conjunct {
            Conjunct::Test {
                column, min, max, ..
            } => match *columns[*column].range {
                Range::Int {
                    min: least,
                    max: greatest,
                } if least <= greatest => {
                    let size = |min: i128, max: i128| max.saturating_sub(min) as f64 + 1.0;
                    let (min, max) = ((*min).max(least), (*max).min(greatest));
                    if min > max {
                        0.0
                    } else {
                        size(min, max) / size(least, greatest)
                    }
                }
                _ => UNKNOWN,
            },
            Conjunct::Condition(node) => {
                let truth = judge.truth(*node);
                match (truth.can_hold, truth.always()) {
                    (false, _) => 0.0,
                    (_, true) => 1.0,
                    _ => UNKNOWN,
                }
            }
        };
        self.conjuncts.iter().map(one).product()
    }

    /// Returns which of `len` rows of a chunk, from `from` on, pass these conjuncts.
    ///
    /// # Errors
    /// Returns an error if a condition has no value for a row that passes those before it.
    pub(crate) fn select(
        &self,
        context: EvalContext<'_>,
        conjuncts: &[usize],
        from: usize,
        len: usize,
    ) -> Result<SelectedRows, TaskError> {
        let mut left = Remaining::All;
        for &at in conjuncts {
            match &self.conjuncts[at] {
                Conjunct::Test {
                    column, min, max, ..
                } => {
                    left.test(context.columns.get(*column)?, *min, *max, from, len);
                }
                Conjunct::Condition(node) => left.condition(context, *node, from, len)?,
            }
            if left.settle(from, len) == 0 {
                return Ok(SelectedRows::Some(Vec::new()));
            }
        }
        Ok(match left {
            Remaining::All => SelectedRows::All,
            Remaining::Marks(marks) => SelectedRows::Some(numbers(&marks, from)),
            Remaining::Rows(rows) => SelectedRows::Some(rows),
        })
    }
}

/// The rows that are left while conjuncts are evaluated.
enum Remaining {
    All,
    /// The rows whose mark is 1.
    Marks(Vec<u8>),
    /// The rows with these numbers in the chunk.
    Rows(Vec<u32>),
}

impl Remaining {
    fn test(&mut self, column: &StoredColumn<'_>, min: i128, max: i128, from: usize, len: usize) {
        if let Remaining::Rows(rows) = self {
            let valid = |row: u32| {
                column
                    .nulls
                    .as_ref()
                    .is_none_or(|n| n.is_valid(row as usize))
            };
            with_integers!(&column.stored, slice => {
                match clamp(slice, min, max) {
                    None => rows.clear(),
                    Some((min, max)) => rows.retain(|&row| {
                        let value = slice[row as usize];
                        min <= value && value <= max && valid(row)
                    }),
                }
            }, _ => unreachable!("tests are of integers"));
            return;
        }
        let mut marks = match std::mem::replace(self, Remaining::All) {
            Remaining::Marks(marks) => marks,
            _ => vec![1; len],
        };
        with_integers!(&column.stored, slice => {
            mark(&slice[from..from + len], min, max, &mut marks);
        }, _ => unreachable!("tests are of integers"));
        if let Some(valid) = column.validity(RowSelection::Slice(from, len)) {
            marks
                .iter_mut()
                .zip(&valid)
                .for_each(|(mark, valid)| *mark &= valid);
        }
        *self = Remaining::Marks(marks);
    }

    fn condition(
        &mut self,
        context: EvalContext<'_>,
        node: ExprId,
        from: usize,
        len: usize,
    ) -> Result<(), TaskError> {
        // Rows that did not pass may have errors, which must not be reported.
        if let Remaining::Marks(marks) = self
            && context.program.nodes[node].fallible
        {
            *self = Remaining::Rows(numbers(marks, from));
        }
        let rows = match self {
            Remaining::Rows(rows) => RowSelection::Picked(rows),
            _ => RowSelection::Slice(from, len),
        };
        let mut holds = EvalFrame::new(context, rows)
            .evaluate(node)?
            .is_true(rows.len());
        match self {
            Remaining::All => *self = Remaining::Marks(holds),
            Remaining::Marks(marks) => {
                holds
                    .iter_mut()
                    .zip(&*marks)
                    .for_each(|(holds, mark)| *holds &= mark);
                *marks = holds;
            }
            Remaining::Rows(rows) => {
                let mut holds = holds.iter();
                rows.retain(|_| holds.next() == Some(&1));
            }
        }
        Ok(())
    }

    /// Chooses the form that suits the number of rows that are left, and returns this number.
    fn settle(&mut self, from: usize, len: usize) -> usize {
        let count = match self {
            Remaining::All => return len,
            Remaining::Rows(rows) => return rows.len(),
            Remaining::Marks(marks) => count(marks),
        };
        if let Remaining::Marks(marks) = self {
            if count == len {
                *self = Remaining::All;
            } else if count * SPARSE < len {
                *self = Remaining::Rows(numbers(marks, from));
            }
        }
        count
    }
}

/// Returns how many marks are set.
fn count(marks: &[u8]) -> usize {
    // The sum of up to 255 marks fits into a byte, so that sixteen are added at once.
    let part = |part: &[u8]| usize::from(part.iter().sum::<u8>());
    marks.chunks(255).map(part).sum()
}

/// Returns the numbers of the rows whose mark is set.
fn numbers(marks: &[u8], from: usize) -> Vec<u32> {
    const NONE: [u8; 8] = [0; 8];
    const ALL: [u8; 8] = [1; 8];
    // Eight numbers are written at a time; those that do not count are overwritten.
    let mut rows = vec![0; marks.len() + 8];
    let (eights, rest) = marks.as_chunks::<8>();
    let (mut first, mut next) = (from as u32, 0);
    for eight in eights {
        let mut some = [0; 8];
        let mut count = 0;
        match *eight {
            NONE => {
                first += 8;
                continue;
            }
            ALL => {
                some = std::array::from_fn(|at| first + at as u32);
                count = 8;
            }
            _ => {
                for (at, &mark) in eight.iter().enumerate() {
                    some[count & 7] = first + at as u32;
                    count += usize::from(mark);
                }
            }
        }
        rows[next..next + 8].copy_from_slice(&some);
        next += count;
        first += 8;
    }
    rows.truncate(next);
    let rest = rest.iter().zip(first..);
    rows.extend(rest.filter(|(mark, _)| **mark == 1).map(|(_, row)| row));
    rows
}

/// Bounds in a slice's own type; `None` if none of its values can lie between them.
fn clamp<T>(_: &[T], min: i128, max: i128) -> Option<(T, T)>
where
    T: Integer,
{
    let (least, greatest) = T::LIMITS;
    let (min, max) = (min.max(least), max.min(greatest));
    (min <= max).then(|| (T::exactly(min), T::exactly(max)))
}

/// Clears the marks of values that do not lie between these.
fn mark<T: Integer + Copy + PartialOrd>(slice: &[T], min: i128, max: i128, marks: &mut [u8]) {
    match clamp(slice, min, max) {
        None => marks.fill(0),
        Some((min, max)) => {
            for (mark, value) in marks.iter_mut().zip(slice) {
                *mark &= u8::from(min <= *value) & u8::from(*value <= max);
            }
        }
    }
}

fn split<'e>(condition: &'e Expr, parts: &mut Vec<&'e Expr>) {
    match condition {
        Expr::Binary(left, Operator::And, right) => {
            split(left, parts);
            split(right, parts);
        }
        other => parts.push(other),
    }
}

/// Returns a comparison of a column of numbers with a literal as a test.
fn test(program: &ExprProgram, node: ExprId) -> Option<Conjunct> {
    let ExprOp::Compare(comparison, left, right) = program.nodes[node].op else {
        return None;
    };
    if program.class(left) != Class::Int {
        return None;
    }
    let value = |of: ExprId| match &program.nodes[of].op {
        ExprOp::Literal(scalar, _) => match scalar.value {
            Value::Int(value) => Some(value),
            _ => None,
        },
        _ => None,
    };
    let column = |of: ExprId| match program.nodes[of].op {
        ExprOp::Column(column) => Some(column),
        _ => None,
    };
    let (least, greatest) = types::limits(program.data_type(left))?;
    // If no value lies beyond the literal, a test is no better than the condition.
    let (column, min, max) = match (column(left), value(right), value(left), column(right)) {
        (Some(column), Some(value), ..) => match comparison {
            Comparison::Eq => (column, value, value),
            Comparison::LtEq => (column, least, value),
            Comparison::Lt => (column, least, value.checked_sub(1)?),
            Comparison::NotEq => return None,
        },
        (.., Some(value), Some(column)) => match comparison {
            Comparison::Eq => (column, value, value),
            Comparison::LtEq => (column, value, greatest),
            Comparison::Lt => (column, value.checked_add(1)?, greatest),
            Comparison::NotEq => return None,
        },
        _ => return None,
    };
    Some(Conjunct::Test {
        column,
        min,
        max,
        nodes: vec![node],
    })
}

/// Merges tests of one column into one.
fn merge(tests: &mut Vec<Conjunct>, test: Conjunct) {
    let Conjunct::Test {
        column,
        min,
        max,
        nodes,
    } = &test
    else {
        unreachable!("only tests are merged");
    };
    for known in tests.iter_mut() {
        if let Conjunct::Test {
            column: other,
            min: least,
            max: greatest,
            nodes: all,
        } = known
            && other == column
        {
            *least = (*least).max(*min);
            *greatest = (*greatest).min(*max);
            all.extend(nodes);
            return;
        }
    }
    tests.push(test);
}
