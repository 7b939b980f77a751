//! The truth values that a condition may have for rows of which only bounds are known.
//!
//! Invariant: a value that is said to be impossible is so for every row within the bounds. Nothing
//! is said about errors: rows that are skipped have none.

use arrow_schema::DataType;
use pages::{Bounds, Range};

use crate::compute::compare::{Comparison, order};
use crate::compute::value_interval::ValueInterval;
use crate::program::{ExprId, ExprOp, ExprProgram, interval_analysis};
use crate::scalar::{Scalar, Value};
use crate::types::{self, Class};

/// The truth values that a condition may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PossibleTruth {
    /// It may be true for a row.
    pub(crate) can_hold: bool,
    /// It may be false for a row.
    pub(crate) can_fail: bool,
    /// It may be null for a row.
    pub(crate) can_be_null: bool,
}

impl PossibleTruth {
    const ANYTHING: PossibleTruth = PossibleTruth {
        can_hold: true,
        can_fail: true,
        can_be_null: true,
    };

    /// Returns `true` if the condition is true for every row.
    pub(crate) fn always(&self) -> bool {
        !self.can_fail && !self.can_be_null
    }

    fn not(self) -> PossibleTruth {
        PossibleTruth {
            can_hold: self.can_fail,
            can_fail: self.can_hold,
            ..self
        }
    }

    fn and(self, other: PossibleTruth) -> PossibleTruth {
        PossibleTruth {
            can_hold: self.can_hold && other.can_hold,
            can_fail: self.can_fail || other.can_fail,
            can_be_null: (self.can_be_null && (other.can_be_null || other.can_hold))
                || (other.can_be_null && self.can_hold),
        }
    }
}

/// What is known of a column over some rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnBounds<'a> {
    /// The range in which its values lie.
    pub(crate) range: &'a Range,
    /// `true` if some may be null.
    pub(crate) nulls: bool,
}

impl<'a> ColumnBounds<'a> {
    /// Nothing is known.
    pub(crate) const NOTHING: ColumnBounds<'static> = ColumnBounds {
        range: &Range::Unknown,
        nulls: true,
    };

    /// Returns what a page's bounds say.
    pub(crate) fn of(bounds: &'a Bounds) -> ColumnBounds<'a> {
        ColumnBounds {
            range: &bounds.range,
            nulls: bounds.nulls > 0,
        }
    }

    /// Returns the interval in which values of the column's type lie, if it is a type of integers.
    pub(crate) fn interval(&self, data_type: &DataType) -> (i128, i128) {
        match *self.range {
            Range::Int { min, max } if min <= max => (min, max),
            // The place of a null may hold any value.
            Range::Empty => (0, 0),
            _ => types::limits(data_type).unwrap_or((0, 0)),
        }
    }
}

/// Decides conditions over rows of which bounds are known.
pub(crate) struct BoundsAnalysis<'a> {
    program: &'a ExprProgram,
    columns: &'a [ColumnBounds<'a>],
    intervals: Vec<ValueInterval>,
}

impl<'a> BoundsAnalysis<'a> {
    /// Makes a judge of this program's conditions, given what is known of the columns.
    pub(crate) fn new(
        program: &'a ExprProgram,
        columns: &'a [ColumnBounds<'a>],
    ) -> BoundsAnalysis<'a> {
        let known = columns.iter().zip(&program.columns);
        let intervals: Vec<_> = known
            .map(|(known, data_type)| known.interval(data_type))
            .collect();
        BoundsAnalysis {
            program,
            columns,
            intervals: interval_analysis::intervals(program, &intervals),
        }
    }

    /// Returns the truth values that a condition may have.
    pub(crate) fn truth(&self, condition: ExprId) -> PossibleTruth {
        match &self.program.nodes[condition].op {
            ExprOp::And(left, right) => self.truth(*left).and(self.truth(*right)),
            ExprOp::Or(left, right) => self.truth(*left).not().and(self.truth(*right).not()).not(),
            ExprOp::Not(of) => self.truth(*of).not(),
            ExprOp::IsNull(of) => self.null(*of),
            ExprOp::IsNotNull(of) => self.null(*of).not(),
            ExprOp::Compare(comparison, left, right) => self.compare(*comparison, *left, *right),
            ExprOp::InList(of, list, negated) => {
                let truth = self.listed(*of, list);
                if *negated { truth.not() } else { truth }
            }
            ExprOp::Literal(scalar, _) => match scalar.value {
                Value::Bool(value) => PossibleTruth {
                    can_hold: value,
                    can_fail: !value,
                    can_be_null: false,
                },
                _ => PossibleTruth {
                    can_hold: false,
                    can_fail: false,
                    can_be_null: true,
                },
            },
            _ => PossibleTruth::ANYTHING,
        }
    }

    fn null(&self, of: ExprId) -> PossibleTruth {
        PossibleTruth {
            can_hold: self.may_be_null(of),
            can_fail: !self.is_null(of),
            can_be_null: false,
        }
    }

    fn may_be_null(&self, node: ExprId) -> bool {
        match &self.program.nodes[node].op {
            ExprOp::Column(column) => self.columns[*column].nulls,
            ExprOp::Literal(scalar, _) => scalar.value == Value::Null,
            ExprOp::Compare(_, a, b) | ExprOp::Arithmetic(_, a, b) => {
                self.may_be_null(*a) || self.may_be_null(*b)
            }
            ExprOp::Negative(a) | ExprOp::Cast(a) | ExprOp::Not(a) => self.may_be_null(*a),
            _ => true,
        }
    }

    fn is_null(&self, node: ExprId) -> bool {
        match &self.program.nodes[node].op {
            ExprOp::Column(column) => *self.columns[*column].range == Range::Empty,
            ExprOp::Literal(scalar, _) => scalar.value == Value::Null,
            _ => false,
        }
    }

    fn compare(&self, comparison: Comparison, left: ExprId, right: ExprId) -> PossibleTruth {
        let can_be_null = self.may_be_null(left) || self.may_be_null(right);
        if self.is_null(left) || self.is_null(right) {
            return PossibleTruth {
                can_hold: false,
                can_fail: false,
                can_be_null: true,
            };
        }
        let (can_hold, can_fail) = match self.program.class(left) {
            Class::Int => {
                let of = |node: ExprId| {
                    (
                        Some(self.intervals[node].min),
                        Some(self.intervals[node].max),
                    )
                };
                decide(comparison, of(left), of(right))
            }
            Class::Float => decide(comparison, self.floats(left), self.floats(right)),
            Class::Bytes => decide(comparison, self.texts(left), self.texts(right)),
            Class::Bool => (true, true),
        };
        PossibleTruth {
            can_hold,
            can_fail,
            can_be_null,
        }
    }

    fn floats(&self, node: ExprId) -> (Option<i64>, Option<i64>) {
        match &self.program.nodes[node].op {
            ExprOp::Column(column) => match *self.columns[*column].range {
                Range::Float { min, max } => (Some(order(min)), Some(order(max))),
                _ => (None, None),
            },
            ExprOp::Literal(
                Scalar {
                    value: Value::Float(value),
                    ..
                },
                _,
            ) => (Some(order(*value)), Some(order(*value))),
            _ => (None, None),
        }
    }

    fn texts(&self, node: ExprId) -> (Option<&[u8]>, Option<&[u8]>) {
        match &self.program.nodes[node].op {
            ExprOp::Column(column) => match self.columns[*column].range {
                Range::Bytes { min, max } => (Some(min), max.as_deref()),
                _ => (None, None),
            },
            ExprOp::Literal(
                Scalar {
                    value: Value::Text(text),
                    ..
                },
                _,
            ) => (Some(text.as_bytes()), Some(text.as_bytes())),
            ExprOp::Literal(
                Scalar {
                    value: Value::Bytes(bytes),
                    ..
                },
                _,
            ) => (Some(bytes), Some(bytes)),
            _ => (None, None),
        }
    }

    /// Decides whether a value may be in a list.
    fn listed(&self, of: ExprId, list: &[Scalar]) -> PossibleTruth {
        if self.is_null(of) {
            return PossibleTruth::ANYTHING;
        }
        let within = |scalar: &Scalar| match (&scalar.value, self.program.class(of)) {
            (Value::Int(value), Class::Int) => {
                self.intervals[of].min <= *value && *value <= self.intervals[of].max
            }
            (Value::Text(text), Class::Bytes) => {
                let (min, max) = self.texts(of);
                min.is_none_or(|min| min <= text.as_bytes())
                    && max.is_none_or(|max| text.as_bytes() <= max)
            }
            (Value::Null, _) => false,
            _ => true,
        };
        let null_listed = list.iter().any(|scalar| scalar.value == Value::Null);
        PossibleTruth {
            can_hold: list.iter().any(within),
            can_fail: !null_listed,
            can_be_null: null_listed || self.may_be_null(of),
        }
    }
}

/// Returns two truth values for values within these bounds: `true` if a comparison of them may hold, and
/// `true` if it may fail.
fn decide<T: Ord>(
    comparison: Comparison,
    (left_min, left_max): (Option<T>, Option<T>),
    (right_min, right_max): (Option<T>, Option<T>),
) -> (bool, bool) {
    let known = |a: &Option<T>, b: &Option<T>, test: fn(&T, &T) -> bool| match (a, b) {
        (Some(a), Some(b)) => test(a, b),
        _ => false,
    };
    let left_below = known(&left_max, &right_min, |l, r| l < r);
    let right_below = known(&right_max, &left_min, |r, l| r < l);
    let left_up_to = known(&left_max, &right_min, |l, r| l <= r);
    let right_up_to = known(&right_max, &left_min, |r, l| r <= l);
    let apart = left_below || right_below;
    let equal = left_up_to && right_up_to;
    match comparison {
        Comparison::Eq => (!apart, !equal),
        Comparison::NotEq => (!equal, !apart),
        Comparison::Lt => (!right_up_to, !left_below),
        Comparison::LtEq => (!right_below, !left_up_to),
    }
}
