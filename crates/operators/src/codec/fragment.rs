//! Fragments as bytes; see the [parent](super) for their form.

use std::sync::Arc;

use arrow_schema::{Field, Schema};

use super::bytes::{FragmentReader, FragmentWriter, Result, code};
use super::data_type;
use super::error::{CodecError, VERSION};
use crate::fragment::{Aggregate, COLUMNS, Fragment, FragmentWork, Function, KEYS, SortKey};

const MAGIC: &[u8; 4] = b"KFRG";
/// The most bytes that a fragment has.
pub const BYTES: usize = 1 << 20;

/// All functions, in the order of their codes.
const FUNCTIONS: [Function; 5] = [
    Function::Count,
    Function::Sum,
    Function::Min,
    Function::Max,
    Function::Avg,
];

/// Returns a fragment as bytes.
///
/// # Errors
/// Returns an error if it has types that are not supported, or is larger than a fragment that may be decoded.
pub fn encode(fragment: &Fragment) -> Result<Vec<u8>> {
    let mut to = FragmentWriter {
        bytes: MAGIC.to_vec(),
    };
    to.byte(VERSION);
    to.list(&fragment.columns, |to, &column| {
        to.number(column as u128);
        Ok(())
    })?;
    to.option(fragment.filter.as_ref(), FragmentWriter::expr)?;
    match &fragment.work {
        FragmentWork::Rows {
            project,
            order,
            limit,
        } => {
            to.byte(0);
            to.list(project, FragmentWriter::expr)?;
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
        FragmentWork::Aggregate { by, aggregates } => {
            to.byte(1);
            to.list(by, FragmentWriter::expr)?;
            to.list(aggregates, FragmentWriter::aggregate)?;
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
/// Returns an error if they encode none, see the [parent](super).
pub fn decode(bytes: &[u8]) -> Result<Fragment> {
    if bytes.len() > BYTES {
        return Err(CodecError::TooLarge("it has more than a mebibyte"));
    }
    let mut from = FragmentReader::new(bytes);
    if from.take(MAGIC.len())? != MAGIC {
        return Err(CodecError::Malformed("they begin with something else"));
    }
    let version = from.byte()?;
    if version != VERSION {
        return Err(CodecError::Version(version));
    }
    let columns = from.list(COLUMNS, FragmentReader::place)?;
    let filter = from.option(FragmentReader::expr)?;
    let work = match from.byte()? {
        0 => FragmentWork::Rows {
            project: from.list(COLUMNS, FragmentReader::expr)?,
            order: from.list(KEYS, sort_key)?,
            limit: from.option(|from| {
                let limit = from.number()?;
                u64::try_from(limit).map_err(|_| CodecError::TooLarge("a limit"))
            })?,
        },
        1 => FragmentWork::Aggregate {
            by: from.list(KEYS, FragmentReader::expr)?,
            aggregates: from.list(COLUMNS, aggregate)?,
        },
        _ => return Err(CodecError::Malformed("there is no such work")),
    };
    let fields = from.list(2 * COLUMNS + KEYS, |from| {
        let name = from.utf8()?;
        let data_type = data_type::read(from)?;
        Ok(Field::new(name, data_type, from.flag()?))
    })?;
    if !from.is_at_end() {
        return Err(CodecError::Malformed("something follows"));
    }
    Ok(Fragment {
        columns,
        filter,
        work,
        output: Arc::new(Schema::new(fields)),
    })
}

fn sort_key(from: &mut FragmentReader<'_>) -> Result<SortKey> {
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

fn aggregate(from: &mut FragmentReader<'_>) -> Result<Aggregate> {
    let function = FUNCTIONS.get(usize::from(from.byte()?));
    Ok(Aggregate {
        function: *function.ok_or(CodecError::Malformed("there is no such function"))?,
        of: from.option(FragmentReader::expr)?,
        filter: from.option(FragmentReader::expr)?,
    })
}

impl FragmentWriter {
    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<()> {
        self.byte(code(&FUNCTIONS, &aggregate.function));
        self.option(aggregate.of.as_ref(), FragmentWriter::expr)?;
        self.option(aggregate.filter.as_ref(), FragmentWriter::expr)
    }
}
