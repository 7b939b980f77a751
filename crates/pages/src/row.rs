//! The layout of rows: consecutive records of a fixed size, each attribute at a fixed
//! place, as in a structure of C (paper 4, section 4.5.1).
//!
//! | form | bytes | what it may hold |
//! |---|---|---|
//! | 1, 2, 3, 4: without a sign | 1, 2, 4, 8 | integers; booleans as 0 and 1; decimals without a fraction, as that number |
//! | 5, 6, 7, 8, 9: with a sign | 1, 2, 4, 8, 16 | integers, days, timestamps; decimals, unscaled |
//! | 10, 11: floating-point | 4, 8 | floating-point numbers; decimals, if the nearest one is the same again |
//! | 12: characters | as declared | texts and bytes, zeros behind them; days as `YYYY-MM-DD` and a zero |
//!
//! An attribute begins at the next multiple of its form's bytes (characters anywhere). After all
//! attributes there is a bit for each column that may be null, 1 for null; the record ends at a
//! multiple of its widest number.
//!
//! An attribute's entry in a page, 32 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | of the column's values, see the table of kinds |
//! | 1 | 1 | form | see above |
//! | 2 | 1 | precision | of decimals |
//! | 3 | 1 | scale | of decimals |
//! | 4 | 4 | at | the attribute's first byte in the record |
//! | 8 | 4 | bytes | of the attribute |
//! | 12 | 4 | null | 0: never null; or else 1 and the number of its bit in the record |
//! | 16 | 16 | – | zero |

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Schema};

use base::codec::{put_at, u32_at};

use crate::cell::{self, Cell, ValueMisfit};
use crate::entry::ENTRY;
pub use crate::form::Form;
use crate::format_error::FormatError;
use crate::kind::Kind;

/// The place of a column's values in each record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute {
    pub(crate) kind: Kind,
    /// The form of the values.
    pub form: Form,
    /// The first byte in the record.
    pub at: usize,
    /// The bit that is set for a null, counted from the record's beginning.
    pub null: Option<usize>,
}

impl Attribute {
    pub(crate) fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let [kind, precision, scale] = self.kind.encode();
        put_at(&mut bytes, 0, &[kind, self.form.code(), precision, scale]);
        let null = self.null.map_or(0, |bit| bit + 1);
        for (i, word) in [self.at, self.form.width(), null].iter().enumerate() {
            put_at(&mut bytes, 4 + 4 * i, &(*word as u32).to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(entry: &[u8; ENTRY], record: usize) -> Result<Attribute, FormatError> {
        let kind = Kind::decode([entry[0], entry[2], entry[3]]);
        let kind = kind.ok_or_else(|| format!("there is no kind {:?}", &entry[..4]))?;
        let word = |at| u32_at(entry, at) as usize;
        let (at, width, null) = (word(4), word(8), word(12).checked_sub(1));
        let form = match (entry[1], u16::try_from(width)) {
            (12, Ok(width)) => Some(Form::Chars(width)),
            (code, _) => Form::NUMBERS.into_iter().find(|form| form.code() == code),
        };
        let form = form.filter(|form| form.width() == width && form.suits(kind));
        let form = form.ok_or_else(|| format!("no {kind:?} has the form {}", entry[1]))?;
        let inside = at.checked_add(width).is_some_and(|to| to <= record);
        if !inside || null.is_some_and(|bit| bit / 8 >= record) {
            return Err(format!("{width} bytes at {at} are not in a record of {record}").into());
        }
        Ok(Attribute {
            kind,
            form,
            at,
            null,
        })
    }
}

/// The layout of a table's records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowSchema {
    attributes: Vec<Attribute>,
    record: usize,
}

/// Why rows cannot be laid out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column:?} {what}")]
pub struct BadForm {
    /// The column.
    pub column: String,
    /// What is wrong, and what to do.
    pub what: String,
}

impl RowSchema {
    /// Makes a layout with attributes of these forms, in the order of the schema's columns.
    ///
    /// # Errors
    /// Returns an error if a form does not suit a column's type.
    ///
    /// # Panics
    /// Panics if there are not as many forms as columns.
    pub fn new(schema: &Schema, forms: &[Form]) -> Result<RowSchema, BadForm> {
        assert_eq!(schema.fields().len(), forms.len(), "a form for each column");
        let mut attributes = Vec::new();
        let (mut end, mut widest) = (0_usize, 1);
        for (field, &form) in schema.fields().iter().zip(forms) {
            let bad = |what: String| BadForm {
                column: field.name().clone(),
                what,
            };
            let kind = Kind::of(field.data_type());
            let kind = kind.ok_or_else(|| bad(unsupported(field.data_type())))?;
            if !form.suits(kind) || form.width() == 0 {
                return Err(bad(format!(
                    "is of type {} and cannot lie in a record as {form:?}: choose another form",
                    field.data_type()
                )));
            }
            let at = end.next_multiple_of(form.align());
            (end, widest) = (at + form.width(), widest.max(form.align()));
            attributes.push(Attribute {
                kind,
                form,
                at,
                null: None,
            });
        }
        let nullable = schema.fields().iter().map(|field| field.is_nullable());
        let mut bit = 8 * end;
        for (attribute, nullable) in attributes.iter_mut().zip(nullable) {
            if nullable {
                attribute.null = Some(bit);
                bit += 1;
            }
        }
        let record = bit.div_ceil(8).next_multiple_of(widest);
        Ok(RowSchema { attributes, record })
    }

    /// Makes a layout with numbers in their own types, and texts of the widths that `width`
    /// returns.
    ///
    /// # Errors
    /// Returns an error if `width` returns none for a text, or a type has no form.
    pub fn of(schema: &Schema, width: impl Fn(&str) -> Option<u16>) -> Result<RowSchema, BadForm> {
        let form = |field: &arrow_schema::FieldRef| {
            let bad = |what: String| BadForm {
                column: field.name().clone(),
                what,
            };
            let kind = Kind::of(field.data_type());
            Ok(
                match kind.ok_or_else(|| bad(unsupported(field.data_type())))? {
                    Kind::Boolean | Kind::UInt8 => Form::U8,
                    Kind::Int8 => Form::I8,
                    Kind::Int16 => Form::I16,
                    Kind::UInt16 => Form::U16,
                    Kind::Int32 | Kind::Date32 | Kind::Decimal32(..) => Form::I32,
                    Kind::UInt32 => Form::U32,
                    Kind::Int64 | Kind::Timestamp(_) | Kind::Decimal64(..) => Form::I64,
                    Kind::Decimal128(precision, _) if precision <= 18 => Form::I64,
                    Kind::UInt64 => Form::U64,
                    Kind::Decimal128(..) => Form::I128,
                    Kind::Float32 => Form::F32,
                    Kind::Float64 => Form::F64,
                    Kind::Utf8 | Kind::Binary => {
                        let none = || bad("is a text: declare how wide it is at most".to_owned());
                        Form::Chars(width(field.name()).ok_or_else(none)?)
                    }
                },
            )
        };
        let forms = schema.fields().iter().map(form);
        RowSchema::new(schema, &forms.collect::<Result<Vec<_>, BadForm>>()?)
    }

    /// Returns the number of bytes of a record.
    #[must_use]
    pub fn record(&self) -> usize {
        self.record
    }

    /// Returns the columns' attributes.
    #[must_use]
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// Writes a column into consecutive records.
    ///
    /// # Errors
    /// Returns the row whose value does not fit, and why.
    pub(crate) fn write(
        &self,
        records: &mut [u8],
        column: usize,
        array: &ArrayRef,
    ) -> Result<(), (usize, ValueMisfit)> {
        let attribute = self.attributes[column];
        let cells = cell::cells(array);
        for (row, record) in records.chunks_exact_mut(self.record).enumerate() {
            match (cells(row), attribute.null) {
                (Cell::Null, Some(bit)) => record[bit / 8] |= 1 << (bit % 8),
                (Cell::Null, None) => {
                    let misfit = ValueMisfit("is null and must not be".to_owned());
                    return Err((row, misfit));
                }
                (value, _) => {
                    let to = &mut record[attribute.at..][..attribute.form.width()];
                    let done = cell::write(&value, attribute.kind, attribute.form, to);
                    done.map_err(|misfit| (row, misfit))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the error for a column of a type that pages do not support.
pub(crate) fn unsupported(data_type: &DataType) -> String {
    let instead = match data_type {
        DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) => "Utf8",
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "Binary",
        DataType::Date64 => "Date32 or Timestamp",
        DataType::Float16 => "Float32",
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal256(..) => {
            "Decimal128"
        }
        DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => "Int64",
        DataType::Null => "the type that it would have",
        _ => "Utf8, or a column for each part of it",
    };
    format!("is of type {data_type}, which pages do not have: cast it to {instead}")
}

/// The records of a page.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    record: usize,
    attributes: &'a [Attribute],
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8], record: usize, attributes: &'a [Attribute]) -> Records<'a> {
        Records {
            bytes,
            record,
            attributes,
        }
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.record
    }

    /// Returns `false`: pages have at least one row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes of a record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record
    }

    /// Returns a record.
    ///
    /// # Panics
    /// Panics if there is none of that number.
    #[must_use]
    pub fn record(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.record..][..self.record]
    }

    /// Returns all of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks_exact(self.record)
    }

    /// Returns the place of a column's values in each record.
    ///
    /// # Panics
    /// Panics if there is no such column.
    #[must_use]
    pub fn attribute(&self, column: usize) -> Attribute {
        self.attributes[column]
    }

    pub(crate) fn array(&self, column: usize) -> Result<ArrayRef, FormatError> {
        let attribute = self.attributes[column];
        let values = self.iter().map(|record| {
            let null = attribute
                .null
                .is_some_and(|bit| record[bit / 8] >> (bit % 8) & 1 == 1);
            (!null).then(|| &record[attribute.at..][..attribute.form.width()])
        });
        cell::array(values, attribute.kind, attribute.form)
    }
}
