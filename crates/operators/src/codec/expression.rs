//! Expressions and values as bytes.

use super::bytes::{FragmentReader, FragmentWriter, Result, code};
use super::data_type;
use super::error::CodecError;
use crate::expr::{DEPTH, Expr, NODES};
use crate::operator::Operator;
use crate::scalar::{Scalar, Value};

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

impl FragmentWriter {
    fn scalar(&mut self, scalar: &Scalar) -> Result<()> {
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

    pub(super) fn expr(&mut self, expr: &Expr) -> Result<()> {
        self.nested(expr, 1)
    }

    fn nested(&mut self, expr: &Expr, depth: usize) -> Result<()> {
        if depth > DEPTH {
            return Err(CodecError::TooLarge("an expression is nested too deeply"));
        }
        let depth = depth + 1;
        let one = |to: &mut FragmentWriter, code, of: &Expr| {
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
                self.list(list, FragmentWriter::scalar)?;
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

impl FragmentReader<'_> {
    fn scalar(&mut self) -> Result<Scalar> {
        let data_type = data_type::read(self)?;
        let value = match self.byte()? {
            0 => Value::Null,
            1 => Value::Bool(self.flag()?),
            2 => Value::Int(self.signed()?),
            3 => Value::Float(f64::from_bits(u64::from_le_bytes(self.array()?))),
            4 => Value::Text(self.utf8()?),
            5 => Value::Bytes(self.bytes()?.to_vec()),
            _ => return Err(CodecError::Malformed("there is no such value")),
        };
        Ok(Scalar { data_type, value })
    }

    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.nested(1, &mut 0)
    }

    fn nested(&mut self, depth: usize, nodes: &mut usize) -> Result<Expr> {
        if depth > DEPTH {
            return Err(CodecError::TooLarge("an expression is nested too deeply"));
        }
        count(nodes, 1)?;
        let code = self.byte()?;
        let mut one = |from: &mut Self| from.nested(depth + 1, nodes).map(Box::new);
        Ok(match code {
            0 => Expr::Column(self.place()?),
            1 => Expr::Literal(self.scalar()?),
            2 => {
                let operator = OPERATORS.get(usize::from(self.byte()?));
                let operator =
                    *operator.ok_or(CodecError::Malformed("there is no such operator"))?;
                Expr::Binary(one(self)?, operator, one(self)?)
            }
            3 => Expr::Not(one(self)?),
            4 => Expr::IsNull(one(self)?),
            5 => Expr::IsNotNull(one(self)?),
            6 => Expr::Negative(one(self)?),
            7 => Expr::Year(one(self)?),
            8 => Expr::Like {
                text: one(self)?,
                pattern: self.utf8()?,
                negated: self.flag()?,
            },
            9 => {
                let value = one(self)?;
                let list = self.list(NODES, FragmentReader::scalar)?;
                count(nodes, list.len())?;
                Expr::InList {
                    value,
                    list,
                    negated: self.flag()?,
                }
            }
            10 => {
                let when = self.list(NODES, |from| {
                    Ok((
                        from.nested(depth + 1, nodes)?,
                        from.nested(depth + 1, nodes)?,
                    ))
                })?;
                let otherwise = self.option(|from| from.nested(depth + 1, nodes).map(Box::new))?;
                Expr::Case { when, otherwise }
            }
            11 => Expr::Cast(one(self)?, data_type::read(self)?),
            12 => Expr::Substring(one(self)?, self.signed64()?, self.signed64()?),
            _ => return Err(CodecError::Malformed("there is no such expression")),
        })
    }
}

fn count(nodes: &mut usize, more: usize) -> Result<()> {
    *nodes += more;
    if *nodes > NODES {
        return Err(CodecError::TooLarge("an expression has too many nodes"));
    }
    Ok(())
}
