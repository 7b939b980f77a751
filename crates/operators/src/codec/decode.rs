//! Decodes bytes that may be anything.

use std::sync::Arc;

use arrow_schema::{Field, Schema};

use super::{BYTES, CodecError, FUNCTIONS, MAGIC, OPERATORS, VERSION, data_type};
use crate::expr::{DEPTH, Expr, NODES};
use crate::fragment::{Aggregate, COLUMNS, Fragment, KEYS, SortKey, Work};
use crate::scalar::{Scalar, Value};

type Result<T> = std::result::Result<T, CodecError>;

const ENDS: CodecError = CodecError::Malformed("they end too early");

pub(super) fn fragment(bytes: &[u8]) -> Result<Fragment> {
    if bytes.len() > BYTES {
        return Err(CodecError::TooLarge("it has more than a mebibyte"));
    }
    let mut from = Reader { rest: bytes };
    if from.take(MAGIC.len())? != MAGIC {
        return Err(CodecError::Malformed("they begin with something else"));
    }
    let version = from.byte()?;
    if version != VERSION {
        return Err(CodecError::Version(version));
    }
    let columns = from.list(COLUMNS, Reader::place)?;
    let filter = from.option(Reader::expr)?;
    let work = match from.byte()? {
        0 => Work::Rows {
            project: from.list(COLUMNS, Reader::expr)?,
            order: from.list(KEYS, sort_key)?,
            limit: from.option(|from| {
                let limit = from.number()?;
                u64::try_from(limit).map_err(|_| CodecError::TooLarge("a limit"))
            })?,
        },
        1 => Work::Aggregate {
            by: from.list(KEYS, Reader::expr)?,
            aggregates: from.list(COLUMNS, aggregate)?,
        },
        _ => return Err(CodecError::Malformed("there is no such work")),
    };
    let fields = from.list(2 * COLUMNS + KEYS, |from| {
        let name = from.utf8()?;
        let data_type = data_type::read(from)?;
        Ok(Field::new(name, data_type, from.flag()?))
    })?;
    if !from.rest.is_empty() {
        return Err(CodecError::Malformed("something follows"));
    }
    Ok(Fragment {
        columns,
        filter,
        work,
        output: Arc::new(Schema::new(fields)),
    })
}

fn sort_key(from: &mut Reader<'_>) -> Result<SortKey> {
    let expr = from.expr()?;
    let flags = from.byte()?;
    if flags > 3 {
        return Err(CodecError::Malformed("there is no such order"));
    }
    Ok(SortKey {
        expr,
        descending: flags & 1 == 1,
        nulls_first: flags & 2 == 2,
    })
}

fn aggregate(from: &mut Reader<'_>) -> Result<Aggregate> {
    let function = FUNCTIONS.get(usize::from(from.byte()?));
    Ok(Aggregate {
        function: *function.ok_or(CodecError::Malformed("there is no such function"))?,
        of: from.option(Reader::expr)?,
        filter: from.option(Reader::expr)?,
    })
}

/// Takes bytes from the front.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ENDS)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Malformed("a yes or no is neither")),
        }
    }

    fn number(&mut self) -> Result<u128> {
        let mut number = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let digit = u128::from(byte & 0x7F);
            if digit << shift >> shift != digit || (byte == 0 && shift > 0) {
                return Err(CodecError::Malformed("a number has too many digits"));
            }
            number |= digit << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(CodecError::Malformed("a number has too many digits"))
    }

    fn signed(&mut self) -> Result<i128> {
        let number = self.number()?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    fn signed64(&mut self) -> Result<i64> {
        let number = self.signed()?;
        i64::try_from(number).map_err(|_| CodecError::TooLarge("a place in a text"))
    }

    /// Reads a column's place.
    fn place(&mut self) -> Result<usize> {
        let number = self.number()?;
        u32::try_from(number)
            .map(|n| n as usize)
            .map_err(|_| CodecError::TooLarge("a column"))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.number()?).map_err(|_| ENDS)?;
        self.take(len)
    }

    pub(super) fn utf8(&mut self) -> Result<String> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_owned)
            .map_err(|_| CodecError::Malformed("a text is not UTF-8"))
    }

    fn list<T>(
        &mut self,
        most: usize,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let len = self.number()?;
        // Each item takes at least a byte, so no more memory is allocated than there may be items.
        if len > most as u128 || len > self.rest.len() as u128 {
            return Err(CodecError::TooLarge("a list"));
        }
        let mut items = Vec::new();
        for _ in 0..len {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let data_type = data_type::read(self)?;
        let value = match self.byte()? {
            0 => Value::Null,
            1 => Value::Bool(self.flag()?),
            2 => Value::Int(self.signed()?),
            3 => {
                let (bits, _) = self.take(8)?.as_chunks::<8>();
                Value::Float(f64::from_bits(u64::from_le_bytes(bits[0])))
            }
            4 => Value::Text(self.utf8()?),
            5 => Value::Bytes(self.bytes()?.to_vec()),
            _ => return Err(CodecError::Malformed("there is no such value")),
        };
        Ok(Scalar { data_type, value })
    }

    fn expr(&mut self) -> Result<Expr> {
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
                let list = self.list(NODES, Reader::scalar)?;
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
