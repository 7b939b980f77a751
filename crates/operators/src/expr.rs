//! Expressions over a row's columns. Their meaning is that of SQL, with three-valued logic, and
//! value by value that of DataFusion's physical expressions: whoever translates these may leave any
//! part of a query to either.

use arrow_schema::DataType;

use crate::scalar::Scalar;

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
    /// Whether it is null.
    IsNull(Box<Expr>),
    /// Whether it is not null.
    IsNotNull(Box<Expr>),
    /// The number with the other sign.
    Negative(Box<Expr>),
    /// Whether a text matches a pattern of `%` and `_`.
    Like {
        /// The text.
        text: Box<Expr>,
        /// The pattern.
        pattern: String,
        /// Whether it must not match.
        negated: bool,
    },
    /// Whether it is one of these values.
    InList {
        /// It.
        value: Box<Expr>,
        /// The values, of its type; null may be among them.
        list: Vec<Scalar>,
        /// Whether it must be none of them.
        negated: bool,
    },
    /// The first of these whose condition is true, or else the other.
    Case {
        /// Conditions and values.
        when: Vec<(Expr, Expr)>,
        /// The value if no condition is true; null if none is given.
        otherwise: Option<Box<Expr>>,
    },
    /// The same value as one of another type; an error if it has none.
    Cast(Box<Expr>, DataType),
    /// The year of a date, as an `Int32`.
    Year(Box<Expr>),
    /// A part of a text, from a character on (counted from 1), so many characters.
    Substring(Box<Expr>, i64, i64),
}

/// What stands between two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// `=`
    Eq,
    /// `<>`
    NotEq,
    /// `<`
    Lt,
    /// `<=`
    LtEq,
    /// `>`
    Gt,
    /// `>=`
    GtEq,
    /// `AND`
    And,
    /// `OR`
    Or,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}
