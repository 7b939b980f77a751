//! Expressions over a row's columns. Their meaning is that of SQL, with three-valued logic, and
//! each value equals that of DataFusion's physical expressions, so that any part of a query may be
//! evaluated by either.

use arrow_schema::DataType;

use crate::operator::Operator;
use crate::scalar::{Scalar, Value};
use crate::types::{self, Class};

/// An expression. Each node's type follows from its children's, see [`Expr::data_type`].
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// A column of the fragment, as its place among [`Fragment::columns`](crate::Fragment).
    Column(usize),
    /// A value.
    Literal(Scalar),
    /// Two operands of one type (decimals may differ in precision and scale for arithmetic).
    Binary(Box<Expr>, Operator, Box<Expr>),
    /// Not.
    Not(Box<Expr>),
    /// True if the value is null.
    IsNull(Box<Expr>),
    /// True if the value is not null.
    IsNotNull(Box<Expr>),
    /// The number with the other sign.
    Negative(Box<Expr>),
    /// True if a text matches a pattern of `%` and `_`.
    Like {
        /// The text.
        text: Box<Expr>,
        /// The pattern.
        pattern: String,
        /// `true` for NOT LIKE.
        negated: bool,
    },
    /// True if the value is in a list.
    InList {
        /// The value.
        value: Box<Expr>,
        /// The values, of its type; null may be among them.
        list: Vec<Scalar>,
        /// `true` for NOT IN.
        negated: bool,
    },
    /// The value of the first branch whose condition is true, or else the value of `otherwise`.
    Case {
        /// Conditions and values.
        when: Vec<(Expr, Expr)>,
        /// The value if no condition is true; null if none is given.
        otherwise: Option<Box<Expr>>,
    },
    /// The same value as one of another type; an error if that type has no such value.
    Cast(Box<Expr>, DataType),
    /// The year of a date, as an `Int32`.
    Year(Box<Expr>),
    /// A part of a text: so many characters, from a character on that is counted from 1.
    Substring(Box<Expr>, i64, i64),
}

/// The most levels that an expression has, the outermost included.
pub const DEPTH: usize = 64;
/// The most nodes of an expression, values of lists included.
pub const NODES: usize = 4096;

/// Why an expression cannot be evaluated here.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ExprError {
    /// There is no such column.
    #[error("there is no column {column}: there are {columns}")]
    Column {
        /// The place of the missing column.
        column: usize,
        /// The number of columns.
        columns: usize,
    },
    /// Values of this type are not computed with.
    #[error("values of type {0} are not supported")]
    Type(DataType),
    /// The operator does not go with the operands.
    #[error("{operator:?} is not supported between {left} and {right}")]
    Operands {
        /// The operator.
        operator: Operator,
        /// The type on its left.
        left: DataType,
        /// The type on its right.
        right: DataType,
    },
    /// Something must have another type.
    #[error("{what} has type {found}, and not {expected}")]
    Mismatch {
        /// The part of the expression.
        what: &'static str,
        /// The type it should have.
        expected: String,
        /// The type it has.
        found: DataType,
    },
    /// There is no such cast.
    #[error("a cast from {from} to {to} is not supported")]
    Cast {
        /// The type of the value.
        from: DataType,
        /// The type to which it should be cast.
        to: DataType,
    },
    /// The literal's value is not one of its type.
    #[error("a literal is no value of its type {0}")]
    Literal(DataType),
    /// The arguments are invalid.
    #[error("{0}")]
    Argument(&'static str),
    /// It is nested too deeply.
    #[error("expressions have at most {DEPTH} levels")]
    Depth,
    /// It is too large.
    #[error("expressions have at most {NODES} nodes")]
    Size,
}

impl Expr {
    /// Returns the type of its values, if columns have these types.
    ///
    /// # Errors
    /// Returns an error if it cannot be evaluated here: a column does not exist, types do not fit
    /// together or are not supported, or there are too many nodes or levels.
    pub fn data_type(&self, columns: &[DataType]) -> Result<DataType, ExprError> {
        let mut nodes = 0;
        self.typed(columns, 1, &mut nodes)
    }

    fn typed(
        &self,
        columns: &[DataType],
        depth: usize,
        nodes: &mut usize,
    ) -> Result<DataType, ExprError> {
        if depth > DEPTH {
            return Err(ExprError::Depth);
        }
        *nodes += 1 + if let Expr::InList { list, .. } = self {
            list.len()
        } else {
            0
        };
        if *nodes > NODES {
            return Err(ExprError::Size);
        }
        let mut of = |expr: &Expr| expr.typed(columns, depth + 1, nodes);
        match self {
            Expr::Column(column) => known(columns.get(*column).ok_or(ExprError::Column {
                column: *column,
                columns: columns.len(),
            })?),
            Expr::Literal(scalar) => scalar_type(scalar),
            Expr::Binary(left, operator, right) => binary(*operator, &of(left)?, &of(right)?),
            Expr::Not(of_what) => boolean("what NOT is of", of(of_what)?),
            Expr::IsNull(value) | Expr::IsNotNull(value) => of(value).map(|_| DataType::Boolean),
            Expr::Negative(value) => negative(of(value)?),
            Expr::Like { text: value, .. } => {
                text("what LIKE is of", of(value)?).map(|_| DataType::Boolean)
            }
            Expr::InList { value, list, .. } => in_list(&of(value)?, list),
            Expr::Case { when, otherwise } => case(when, otherwise.as_deref(), of),
            Expr::Cast(value, to) => cast(of(value)?, to),
            Expr::Year(date) => match of(date)? {
                DataType::Date32 => Ok(DataType::Int32),
                other => Err(mismatch("what YEAR is of", "Date32", other)),
            },
            Expr::Substring(value, from, count) => {
                if *count < 0 || *from == i64::MIN {
                    return Err(ExprError::Argument("a part of a text has no such place"));
                }
                text("what a part is taken of", of(value)?)
            }
        }
    }
}

fn mismatch(what: &'static str, expected: impl ToString, found: DataType) -> ExprError {
    ExprError::Mismatch {
        what,
        expected: expected.to_string(),
        found,
    }
}

fn known(data_type: &DataType) -> Result<DataType, ExprError> {
    match types::class(data_type) {
        Some(_) => Ok(data_type.clone()),
        None => Err(ExprError::Type(data_type.clone())),
    }
}

fn boolean(what: &'static str, found: DataType) -> Result<DataType, ExprError> {
    match found {
        DataType::Boolean => Ok(found),
        other => Err(mismatch(what, "Boolean", other)),
    }
}

fn text(what: &'static str, found: DataType) -> Result<DataType, ExprError> {
    match found {
        DataType::Utf8 => Ok(found),
        other => Err(mismatch(what, "Utf8", other)),
    }
}

fn scalar_type(scalar: &Scalar) -> Result<DataType, ExprError> {
    let class =
        types::class(&scalar.data_type).ok_or_else(|| ExprError::Type(scalar.data_type.clone()))?;
    let fits = match (&scalar.value, class) {
        (Value::Null, _) | (Value::Bool(_), Class::Bool) | (Value::Float(_), Class::Float) => true,
        (Value::Int(value), Class::Int) => {
            types::limits(&scalar.data_type).is_some_and(|(min, max)| (min..=max).contains(value))
        }
        (Value::Text(_), Class::Bytes) => scalar.data_type == DataType::Utf8,
        (Value::Bytes(_), Class::Bytes) => scalar.data_type == DataType::Binary,
        _ => false,
    };
    if fits {
        Ok(scalar.data_type.clone())
    } else {
        Err(ExprError::Literal(scalar.data_type.clone()))
    }
}

fn binary(operator: Operator, left: &DataType, right: &DataType) -> Result<DataType, ExprError> {
    let same = left == right;
    let refused = || ExprError::Operands {
        operator,
        left: left.clone(),
        right: right.clone(),
    };
    match operator {
        Operator::And | Operator::Or if same && *left == DataType::Boolean => Ok(DataType::Boolean),
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
            if same =>
        {
            Ok(DataType::Boolean)
        }
        Operator::Plus
        | Operator::Minus
        | Operator::Multiply
        | Operator::Divide
        | Operator::Modulo => types::arithmetic(operator, left, right).ok_or_else(refused),
        _ => Err(refused()),
    }
}

fn negative(of: DataType) -> Result<DataType, ExprError> {
    let signed = of.is_signed_integer()
        || matches!(
            of,
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..)
        );
    if signed {
        Ok(of)
    } else {
        Err(mismatch("what is made negative", "a signed number", of))
    }
}

fn in_list(of: &DataType, list: &[Scalar]) -> Result<DataType, ExprError> {
    for scalar in list {
        let found = scalar_type(scalar)?;
        if found != *of {
            return Err(mismatch("a value of a list", of, found));
        }
    }
    Ok(DataType::Boolean)
}

fn case(
    when: &[(Expr, Expr)],
    otherwise: Option<&Expr>,
    mut of: impl FnMut(&Expr) -> Result<DataType, ExprError>,
) -> Result<DataType, ExprError> {
    let mut result: Option<DataType> = None;
    let mut agree = |found: DataType| match &result {
        None => {
            result = Some(found);
            Ok(())
        }
        Some(expected) if *expected == found => Ok(()),
        Some(expected) => Err(mismatch("a value of CASE", expected, found)),
    };
    for (condition, value) in when {
        boolean("a condition of CASE", of(condition)?)?;
        agree(of(value)?)?;
    }
    if let Some(value) = otherwise {
        agree(of(value)?)?;
    }
    match result {
        Some(result) if !when.is_empty() => Ok(result),
        _ => Err(ExprError::Argument("a CASE has at least one condition")),
    }
}

fn cast(from: DataType, to: &DataType) -> Result<DataType, ExprError> {
    if types::can_cast(&from, to) {
        Ok(to.clone())
    } else {
        Err(ExprError::Cast {
            from,
            to: to.clone(),
        })
    }
}
