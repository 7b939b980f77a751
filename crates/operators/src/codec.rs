//! Fragments as bytes, to be sent to where they run.
//!
//! A *number* is an unsigned one in base 128, the lowest digits first; all bytes but the last have
//! their highest bit set. Numbers with signs are folded first: 0, -1, 1, -2… become 0, 1, 2, 3….
//! A *list* is a number of items, and the items. An *option* is a byte, 0 or 1, and the value if it is 1.
//! A *text* is a number of bytes, and the bytes.
//!
//! | field | form |
//! |---|---|
//! | magic and version | `KFRG`, and a byte: 1 |
//! | columns | list of numbers |
//! | filter | option of an expression |
//! | work | byte: 0 rows, 1 aggregates |
//! | – rows: project | list of expressions |
//! | – rows: order | list of: expression, byte (1: descending, 2: nulls first, or both) |
//! | – rows: limit | option of a number |
//! | – aggregates: by | list of expressions |
//! | – aggregates | list of: byte (count, sum, min, max, avg), option of an expression, option of a filter |
//! | output | list of: text, type, byte (1: may be null) |
//!
//! | expression | code | what follows |
//! |---|---|---|
//! | column | 0 | number |
//! | literal | 1 | scalar |
//! | binary | 2 | byte, in the order of [`Operator`]; expression, expression |
//! | not, is null, is not null, negative, year | 3…7 | expression |
//! | like | 8 | expression, text, byte (1: negated) |
//! | in list | 9 | expression, list of scalars, byte (1: negated) |
//! | case | 10 | list of: expression, expression; option of an expression |
//! | cast | 11 | expression, type |
//! | substring | 12 | expression, signed number, signed number |
//!
//! | scalar | what follows the type |
//! |---|---|
//! | null | 0 |
//! | bool | 1, byte |
//! | integer | 2, signed number |
//! | float | 3, 8 bytes, little-endian |
//! | text | 4, text |
//! | bytes | 5, text |
//!
//! A type is a byte, see `data_type`; decimals have two more, precision and scale, and timestamps
//! an option of a text, the zone. Metadata of fields and schemas is not encoded.
//!
//! Invariants:
//!
//! 1. Bytes that may be anything are decoded in time and memory proportional to their number.
//!    Expressions that are nested deeper than [`DEPTH`] or have more nodes than [`NODES`](crate::expr::NODES) are
//!    refused, and so are bytes after a fragment.
//! 2. A decoded fragment is not yet [checked](Fragment::check): columns may not exist, and types may not
//!    fit.

mod data_type;
mod decode;

use crate::expr::{DEPTH, Expr, Operator};
use crate::fragment::{Aggregate, Fragment, Function, Work};
use crate::scalar::{Scalar, Value};
use crate::site::Rows;

const MAGIC: &[u8; 4] = b"KFRG";
const VERSION: u8 = 1;
/// The most bytes that a fragment has.
pub const BYTES: usize = 1 << 20;
/// Bytes of [`Rows`].
const ROWS: usize = 32;

/// All operators, in the order of their codes.
const OPERATORS: [Operator; 13] = [
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::And,
    Operator::Or,
    Operator::Plus,
    Operator::Minus,
    Operator::Multiply,
    Operator::Divide,
    Operator::Modulo,
];

/// All functions, in the order of their codes.
const FUNCTIONS: [Function; 5] = [
    Function::Count,
    Function::Sum,
    Function::Min,
    Function::Max,
    Function::Avg,
];

/// Why bytes cannot be decoded to a fragment, or a fragment not be encoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes are those of another version.
    #[error("the fragment is of version {0}, and this program knows {VERSION}: send pages instead")]
    Version(u8),
    /// The bytes are not those of a fragment.
    #[error("these bytes are no fragment: {0}")]
    Malformed(&'static str),
    /// There is more than a fragment may have.
    #[error("the fragment is too large: {0}")]
    TooLarge(&'static str),
    /// Values of this type are not computed with.
    #[error("type {0} cannot be sent")]
    Type(String),
}

/// Returns a fragment as bytes.
///
/// # Errors
/// Returns an error if it has types that are not supported, or is larger than a fragment that may be decoded.
pub fn encode(fragment: &Fragment) -> Result<Vec<u8>, CodecError> {
    let mut to = Writer {
        bytes: MAGIC.to_vec(),
    };
    to.byte(VERSION);
    to.list(&fragment.columns, |to, &column| {
        to.number(column as u128);
        Ok(())
    })?;
    to.option(fragment.filter.as_ref(), Writer::expr)?;
    match &fragment.work {
        Work::Rows {
            project,
            order,
            limit,
        } => {
            to.byte(0);
            to.list(project, Writer::expr)?;
            to.list(order, |to, key| {
                to.expr(&key.expr)?;
                to.byte(u8::from(key.descending) | u8::from(key.nulls_first) << 1);
                Ok(())
            })?;
            to.option(limit.as_ref(), |to, &limit| {
                to.number(limit.into());
                Ok(())
            })?;
        }
        Work::Aggregate { by, aggregates } => {
            to.byte(1);
            to.list(by, Writer::expr)?;
            to.list(aggregates, Writer::aggregate)?;
        }
    }
    to.list(fragment.output.fields(), |to, field| {
        to.text(field.name().as_bytes());
        data_type::write(to, field.data_type())?;
        to.byte(field.is_nullable().into());
        Ok(())
    })?;
    if to.bytes.len() > BYTES {
        return Err(CodecError::TooLarge("it has more than a mebibyte"));
    }
    // A fragment that cannot be decoded is not sent.
    decode(&to.bytes)?;
    Ok(to.bytes)
}

/// Returns the fragment that these bytes encode.
///
/// # Errors
/// Returns an error if they encode none, see the [module](self).
pub fn decode(bytes: &[u8]) -> Result<Fragment, CodecError> {
    decode::fragment(bytes)
}

/// Returns rows as bytes. Each range has its segment, its first row and the one after its last, of 16, 8 and
/// 8 bytes, little-endian.
#[must_use]
pub fn encode_rows(rows: &[Rows]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len() * ROWS);
    for rows in rows {
        bytes.extend(rows.segment.0.to_le_bytes());
        bytes.extend(rows.from.to_le_bytes());
        bytes.extend(rows.to.to_le_bytes());
    }
    bytes
}

/// Returns the rows that these bytes encode. It does not check that a table has them.
///
/// # Errors
/// Returns an error if the last range is incomplete.
pub fn decode_rows(bytes: &[u8]) -> Result<Vec<Rows>, CodecError> {
    let (rows, []) = bytes.as_chunks::<ROWS>() else {
        return Err(CodecError::Malformed("rows end too early"));
    };
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0u128, |n, &b| n << 8 | u128::from(b))
    };
    let one = |bytes: &[u8; ROWS]| Rows {
        segment: pages::SegmentId(number(&bytes[..16])),
        from: number(&bytes[16..24]) as u64,
        to: number(&bytes[24..]) as u64,
    };
    Ok(rows.iter().map(one).collect())
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn number(&mut self, mut number: u128) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn signed(&mut self, number: i128) {
        self.number(((number << 1) ^ (number >> 127)) as u128);
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u128);
        self.bytes.extend(text);
    }

    fn list<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&mut Writer, &T) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        self.number(items.len() as u128);
        items.iter().try_for_each(|item| write(self, item))
    }

    fn option<T>(
        &mut self,
        item: Option<&T>,
        write: impl FnOnce(&mut Writer, &T) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        self.byte(item.is_some().into());
        item.map_or(Ok(()), |item| write(self, item))
    }

    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<(), CodecError> {
        self.byte(code(&FUNCTIONS, &aggregate.function));
        self.option(aggregate.of.as_ref(), Writer::expr)?;
        self.option(aggregate.filter.as_ref(), Writer::expr)
    }

    fn scalar(&mut self, scalar: &Scalar) -> Result<(), CodecError> {
        data_type::write(self, &scalar.data_type)?;
        match &scalar.value {
            Value::Null => self.byte(0),
            Value::Bool(value) => self.bytes.extend([1, u8::from(*value)]),
            Value::Int(value) => {
                self.byte(2);
                self.signed(*value);
            }
            Value::Float(value) => {
                self.byte(3);
                self.bytes.extend(value.to_bits().to_le_bytes());
            }
            Value::Text(text) => {
                self.byte(4);
                self.text(text.as_bytes());
            }
            Value::Bytes(bytes) => {
                self.byte(5);
                self.text(bytes);
            }
        }
        Ok(())
    }

    fn expr(&mut self, expr: &Expr) -> Result<(), CodecError> {
        self.nested(expr, 1)
    }

    fn nested(&mut self, expr: &Expr, depth: usize) -> Result<(), CodecError> {
        if depth > DEPTH {
            return Err(CodecError::TooLarge("an expression is nested too deeply"));
        }
        let depth = depth + 1;
        let one = |to: &mut Writer, code, of: &Expr| {
            to.byte(code);
            to.nested(of, depth)
        };
        match expr {
            Expr::Column(column) => {
                self.byte(0);
                self.number(*column as u128);
            }
            Expr::Literal(scalar) => {
                self.byte(1);
                self.scalar(scalar)?;
            }
            Expr::Binary(left, operator, right) => {
                self.bytes.extend([2, code(&OPERATORS, operator)]);
                self.nested(left, depth)?;
                self.nested(right, depth)?;
            }
            Expr::Not(of) => one(self, 3, of)?,
            Expr::IsNull(of) => one(self, 4, of)?,
            Expr::IsNotNull(of) => one(self, 5, of)?,
            Expr::Negative(of) => one(self, 6, of)?,
            Expr::Year(of) => one(self, 7, of)?,
            Expr::Like {
                text,
                pattern,
                negated,
            } => {
                one(self, 8, text)?;
                self.text(pattern.as_bytes());
                self.byte((*negated).into());
            }
            Expr::InList {
                value,
                list,
                negated,
            } => {
                one(self, 9, value)?;
                self.list(list, Writer::scalar)?;
                self.byte((*negated).into());
            }
            Expr::Case { when, otherwise } => {
                self.byte(10);
                self.list(when, |to, (condition, value)| {
                    to.nested(condition, depth)?;
                    to.nested(value, depth)
                })?;
                self.option(otherwise.as_deref(), |to, value| to.nested(value, depth))?;
            }
            Expr::Cast(of, to) => {
                one(self, 11, of)?;
                data_type::write(self, to)?;
            }
            Expr::Substring(of, from, count) => {
                one(self, 12, of)?;
                self.signed((*from).into());
                self.signed((*count).into());
            }
        }
        Ok(())
    }
}

fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter()
        .position(|known| known == one)
        .expect("all are listed") as u8
}
